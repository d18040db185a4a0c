"""A graph of numbers as a short program: a loop over instructions, each of which computes many
nodes of one kind.

Fourteen blocks of scalar formulas are fourteen times the same formula, whatever their names. A list
scheduler takes, again and again, nodes of the kind of which most are ready, up to `WIDTH` at once,
and writes them as one row of a table: kind, arguments, factors. The program is one `lax.scan` over
that table, with one branch a kind. What is traced, lowered, compiled and loaded no longer grows
with the model: only the table does, and it is data. Values have a trailing axis of periods, so a
path evaluates all its periods at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._graph import arguments, reached

Values = Float[Array, "nodes periods"]
WIDTH, TERMS = 64, 4
UNARY: dict[str, Callable[[Any], Any]] = {
    "recip": lambda x: lax.div(1.0, x),
    "exp": lax.exp,
    "log": lax.log,
    "sqrt": lax.sqrt,
    "tanh": lax.tanh,
    "sin": lax.sin,
    "cos": lax.cos,
    "log1p": lax.log1p,
    "expm1": lax.expm1,
    "logistic": lax.logistic,
}


@jax.custom_jvp
def power(base: Values, exponent: Values) -> Values:
    """A power whose derivatives are finite where the base is negative and the exponent whole:
    that of `lax.pow` by an exponent that does not move is zero times a logarithm that is NaN.
    """
    return lax.pow(base, exponent)


@power.defjvp
def _power_moves(at: tuple[Values, Values], moved: tuple[Values, Values]) -> tuple[Values, Values]:
    (base, exponent), (by_base, by_exponent) = at, moved
    value, positive = power(base, exponent), base > 0.0
    slope = jnp.where(exponent == 0.0, 0.0, exponent * power(base, exponent - 1.0))
    log = jnp.where(positive, jnp.log(jnp.where(positive, base, 1.0)), 0.0)
    return value, slope * by_base + value * log * by_exponent


BINARY: dict[str, Callable[[Any, Any], Any]] = {"mul": lax.mul, "pow": power}


class Rolled:
    """The table of a graph's nodes that some outputs need."""

    def __init__(self, nodes: list[tuple[Any, ...]], outputs: list[int]):
        nodes, outputs = short(nodes, outputs)
        order = schedule(nodes, outputs)
        free = [i for kind, group in order if kind in ("in", "const") for i in group]
        steps = [
            (kind, group[at : at + WIDTH])
            for kind, group in order
            if kind not in ("in", "const")
            for at in range(0, len(group), WIDTH)
        ]
        place = {i: row for row, i in enumerate(free)}
        for step, (_, group) in enumerate(steps):
            place.update((i, len(free) + step * WIDTH + lane) for lane, i in enumerate(group))
        self.inputs = np.array([nodes[i][1] for i in free if nodes[i][0] == "in"], int)
        self.constants = np.array([nodes[i][1] for i in free if nodes[i][0] == "const"])
        self.rows = len(free) + len(steps) * WIDTH
        self.kinds = sorted({kind for kind, _ in steps})
        self.outputs = np.array([place[i] for i in outputs])
        self.table = self._table(nodes, steps, place, len(free))

    def _table(
        self,
        nodes: list[Any],
        steps: list[tuple[str, list[int]]],
        place: dict[int, int],
        first: int,
    ) -> tuple[np.ndarray, ...]:
        """For each step: kind, where its values go, rows of the arguments, factors and constants.
        Idle lanes repeat the first one.
        """
        kinds = np.array([self.kinds.index(kind) for kind, _ in steps], np.int32)
        starts = np.array([first + step * WIDTH for step in range(len(steps))], np.int32)
        rows = np.zeros((len(steps), TERMS, WIDTH), np.int32)
        factors, constants = np.zeros((len(steps), TERMS, WIDTH)), np.zeros((len(steps), WIDTH))
        for step, (kind, group) in enumerate(steps):
            for lane in range(WIDTH):
                node = nodes[group[lane if lane < len(group) else 0]]
                for term, i in enumerate(arguments(node)):
                    rows[step, term, lane] = place[i]
                if kind == "sum":
                    constants[step, lane] = node[1]
                    factors[step, : len(node[2]), lane] = [factor for _, factor in node[2]]
                    # times zero, and finite where the others are
                    rows[step, len(node[2]) :, lane] = rows[step, 0, lane]
        return kinds, starts, rows, factors, constants

    def __call__(self, inputs: Values) -> Values:
        """The outputs for inputs, at all periods."""
        periods = inputs.shape[1]
        known = lax.broadcast_in_dim(self.constants, (self.constants.size, periods), (0,))
        rest = np.zeros((self.rows - self.inputs.size - self.constants.size, periods))
        store = lax.concatenate([taken(inputs, self.inputs), known, rest], 0)

        def step(store: Values, line: Any) -> tuple[Values, None]:
            kind, start, rows, factors, constants = line
            branches = [_branch(kind) for kind in self.kinds]
            values = lax.switch(kind, branches, store, rows, factors, constants)
            return lax.dynamic_update_slice(store, values, (start, np.int32(0))), None

        store, _ = lax.scan(step, store, self.table)
        return taken(store, self.outputs)


def _branch(kind: str) -> Callable[..., Values]:
    """What one instruction of a kind does."""

    def total(store: Values, rows: Any, factors: Any, constants: Any) -> Values:
        parts = jnp.reshape(taken(store, jnp.reshape(rows, (-1,))), (TERMS, WIDTH, store.shape[1]))
        return jnp.sum(parts * factors[:, :, None], 0) + constants[:, None]

    def one(store: Values, rows: Any, factors: Any, constants: Any) -> Values:
        return UNARY[kind](taken(store, rows[0]))

    def two(store: Values, rows: Any, factors: Any, constants: Any) -> Values:
        return BINARY[kind](taken(store, rows[0]), taken(store, rows[1]))

    return total if kind == "sum" else two if kind in BINARY else one


def elements(vector: Float[Array, "size"], where: np.ndarray) -> Float[Array, "rows columns"]:
    """A matrix of elements of a vector."""
    return lax.reshape(
        taken(lax.expand_dims(vector, (1,)), where.ravel().astype(np.int32)), where.shape
    )


def taken(values: Values, rows: Any) -> Values:
    """Rows by number, which are within bounds: half the operations of `values[rows]`."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(values, lax.expand_dims(rows, (1,)), numbers, (1, values.shape[1]), mode=mode)


def short(
    nodes: list[tuple[Any, ...]], outputs: list[int]
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The same graph with sums of up to `TERMS` terms: longer ones become sums of sums."""
    made: list[tuple[Any, ...]] = []
    moved: dict[int, int] = {}
    for i in reached(nodes, outputs):
        kind, *args = nodes[i]
        if kind == "sum":
            terms = [(moved[j], factor) for j, factor in args[1]]
            while len(terms) > TERMS:
                parts = [tuple(terms[at : at + TERMS]) for at in range(0, len(terms), TERMS)]
                terms = [
                    part[0] if len(part) == 1 else (len(made) + k, 1.0)
                    for k, part in enumerate(parts)
                ]
                made.extend(("sum", 0.0, part) for part in parts)
            made.append(("sum", args[0], tuple(terms)))
        else:
            made.append(
                (kind, *args) if kind in ("in", "const") else (kind, *(moved[j] for j in args))
            )
        moved[i] = len(made) - 1
    return made, [moved[i] for i in outputs]


def schedule(nodes: list[tuple[Any, ...]], outputs: list[int]) -> list[tuple[str, list[int]]]:
    """Kinds, each with nodes that can be computed together, in an order in which arguments come
    first.
    """
    needed = reached(nodes, outputs)
    waits: dict[int, int] = {}
    users: dict[int, list[int]] = {i: [] for i in needed}
    ready: dict[str, list[int]] = {}
    for i in needed:
        args = set(arguments(nodes[i]))
        waits[i] = len(args)
        for j in args:
            users[j].append(i)
        if not args:
            ready.setdefault(nodes[i][0], []).append(i)
    order: list[tuple[str, list[int]]] = []
    while ready:
        kind = (
            "in"
            if "in" in ready
            else "const"
            if "const" in ready
            else max(ready, key=lambda kind: len(ready[kind]))
        )
        group = ready.pop(kind)
        order.append((kind, group))
        for i in group:
            for user in users[i]:
                waits[user] -= 1
                if not waits[user]:
                    ready.setdefault(nodes[user][0], []).append(user)
    return order
