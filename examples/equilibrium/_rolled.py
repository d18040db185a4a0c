"""A graph of numbers as a short program on vectors: nodes of one kind that can be computed together become one operation.

Fourteen blocks of scalar formulas are fourteen times the same formula, whatever their names. A list scheduler emits, again and again, all nodes of the kind
of which most are ready. So thousands of scalar operations become some dozens of vector operations, and what is traced, lowered, compiled and
loaded from the cache is that short. Values have a trailing axis of periods, so a path evaluates all its periods at once.
"""

from typing import Any

import numpy as np
from jax import lax
from jaxtyping import Array, Float

from examples.equilibrium._graph import arguments, reached

Values = Float[Array, "nodes periods"]
FUNCTIONS: dict[str, Any] = {
    "recip": lambda x: lax.div(1.0, x), "exp": lax.exp, "log": lax.log, "sqrt": lax.sqrt, "tanh": lax.tanh, "sin": lax.sin, "cos": lax.cos,
    "log1p": lax.log1p, "expm1": lax.expm1, "logistic": lax.logistic, "mul": lax.mul, "pow": lax.pow,
}  # fmt: skip


def schedule(nodes: list[tuple[Any, ...]], outputs: list[int]) -> list[tuple[Any, list[int]]]:
    """Kinds, each with the nodes that are computed together, in an order in which arguments come first."""
    needed = reached(nodes, outputs)
    waits: dict[int, int] = {}
    users: dict[int, list[int]] = {i: [] for i in needed}
    ready: dict[Any, list[int]] = {}
    for i in needed:
        args = set(arguments(nodes[i]))
        waits[i] = len(args)
        for j in args:
            users[j].append(i)
        if not args:
            ready.setdefault(_kind(nodes[i]), []).append(i)
    order: list[tuple[Any, list[int]]] = []
    while ready:
        kind = "in" if "in" in ready else "const" if "const" in ready else max(ready, key=lambda kind: len(ready[kind]))
        group = ready.pop(kind)
        order.append((kind, group))
        for i in group:
            for user in users[i]:
                waits[user] -= 1
                if not waits[user]:
                    ready.setdefault(_kind(nodes[user]), []).append(user)
    return order


def _kind(node: tuple[Any, ...]) -> Any:
    return ("sum", next((n for n in (2, 4) if n >= len(node[2])), len(node[2]))) if node[0] == "sum" else node[0]


class Rolled:
    """A schedule of a graph, ready to be traced."""

    def __init__(self, nodes: list[tuple[Any, ...]], outputs: list[int]):
        self.nodes, self.outputs = nodes, outputs
        self.order = schedule(nodes, outputs)

    def __call__(self, inputs: Values) -> Values:
        """The outputs for inputs, at all periods."""
        self.made: list[Values] = []
        self.place: dict[int, tuple[int, int]] = {}
        for kind, group in self.order:
            group.sort(key=lambda i: [self.place[j] for j in arguments(self.nodes[i])])
            value = self._group(kind, group, inputs)
            self.place.update((i, (len(self.made), position)) for position, i in enumerate(group))
            self.made.append(value)
        return self._taken(self.outputs)

    def _group(self, kind: Any, group: list[int], inputs: Values) -> Values:
        periods = inputs.shape[1]
        if kind == "in":
            return _rows(inputs, np.array([self.nodes[i][1] for i in group]))
        if kind == "const":
            column = np.array([self.nodes[i][1] for i in group])
            return lax.broadcast_in_dim(column, (len(group), periods), (0,))
        if kind[0] == "sum":
            return self._sum(group, kind[1], periods)
        operands = zip(*(self.nodes[i][1:] for i in group), strict=True)
        return FUNCTIONS[kind](*(self._taken(list(ids)) for ids in operands))

    def _sum(self, group: list[int], terms: int, periods: int) -> Values:
        """Linear combinations of as many terms each."""
        table = [self.nodes[i][2] + ((self.nodes[i][2][0][0], 0.0),) * (terms - len(self.nodes[i][2])) for i in group]
        factors = np.array([[factor for _, factor in row] for row in table])
        constants = np.array([self.nodes[i][1] for i in group])
        if terms > 4:
            taken = lax.reshape(self._taken([i for row in table for i, _ in row]), (len(group), terms, periods))
            total = lax.reduce_sum(taken if np.all(factors == 1.0) else lax.mul(taken, _spread(factors, periods)), (1,))
        else:
            total = None
            for term in range(terms):
                taken, factor = self._taken([row[term][0] for row in table]), factors[:, term]
                if total is not None and np.all(factor == -1.0):
                    total = lax.sub(total, taken)
                    continue
                taken = (
                    taken
                    if np.all(factor == 1.0)
                    else lax.neg(taken)
                    if np.all(factor == -1.0)
                    else lax.mul(taken, _spread(factor, periods))
                )
                total = taken if total is None else lax.add(total, taken)
        return lax.add(total, _spread(constants, periods)) if np.any(constants) else total

    def _taken(self, ids: list[int]) -> Values:
        """Values of nodes, a row each."""
        places = [self.place[i] for i in ids]
        groups = sorted({group for group, _ in places})
        if len(groups) == 1:
            return _rows(self.made[groups[0]], np.array([position for _, position in places]))
        starts = dict(zip(groups, np.cumsum([0, *(self.made[group].shape[0] for group in groups)]).tolist(), strict=False))
        rows = np.array([starts[group] + position for group, position in places])
        return _rows(lax.concatenate([self.made[group] for group in groups], 0), rows)


def _spread(numbers: np.ndarray, periods: int) -> Any:
    """Known numbers, the same in all periods."""
    return lax.broadcast_in_dim(numbers, (*numbers.shape, periods), tuple(range(numbers.ndim)))


def _rows(values: Values, rows: np.ndarray) -> Values:
    """Rows by number; a slice where they are one."""
    first, count = int(rows[0]), rows.size
    if np.array_equal(rows, np.arange(first, first + count)):
        return values if count == values.shape[0] else lax.slice_in_dim(values, first, first + count, axis=0)
    if np.all(rows == first):
        return lax.broadcast_in_dim(lax.slice_in_dim(values, first, first + 1, axis=0), (count, values.shape[1]), (0, 1))
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(values, rows[:, None].astype(np.int32), numbers, (1, values.shape[1]), mode=mode, unique_indices=False)
