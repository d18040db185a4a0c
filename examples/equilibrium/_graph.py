"""Equations as a graph of numbers, taken from their jaxpr, and its derivatives, which are exactly
those that are not zero.

A vector of sectors becomes one node a sector, so it does not matter whether equations were written
on vectors or on scalars. There are few kinds of nodes: linear combinations, which take in sums,
differences and products with constants; products; and functions of one number, and powers. Nodes
with the same kind and arguments are one node. What does not fit (control flow, matrix products,
integers) is refused with `NotScalar`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Ids = Any  # a NumPy array of node numbers, with the shape of the value they make up
Partials = dict[int, int]
# a sum of at most so many terms is written out where it is used; a longer one that nothing used
# yet, too
FOLD = 4


class NotScalar(Exception):
    """An operation that is not made of operations on numbers; its name."""


class Graph:
    """Nodes in an order in which arguments come first."""

    def __init__(self):
        self.nodes: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._used: set[int] = set()

    def node(self, *key: Any) -> int:
        """The node of this kind and these arguments."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.nodes)
            self.nodes.append(key)
            self._used.update(key[1:] if key[0] not in ("in", "const", "sum") else ())
        return found

    def const(self, value: float) -> int:
        """A number that is known."""
        return self.node("const", float(value))

    def value(self, i: int) -> float | None:
        """The number of a node, if it is known."""
        kind, *rest = self.nodes[i]
        return rest[0] if kind == "const" else None

    def sum(self, terms: Iterable[tuple[int, float]], constant: float = 0.0) -> int:
        """A linear combination of nodes."""
        total: dict[int, float] = {}
        for i, factor in terms:
            kind, *rest = self.nodes[i]
            if kind == "const":
                constant += factor * rest[0]
            elif kind == "sum" and (len(rest[1]) <= FOLD or i not in self._used):
                constant += factor * rest[0]
                for j, inner in rest[1]:
                    total[j] = total.get(j, 0.0) + factor * inner
            else:
                total[i] = total.get(i, 0.0) + factor
        left = tuple((i, factor) for i, factor in total.items() if factor != 0.0)
        if not left:
            return self.const(constant)
        if len(left) == 1 and left[0][1] == 1.0 and constant == 0.0:
            return left[0][0]
        return self.node("sum", constant, left)

    def product(self, a: int, b: int) -> int:
        """A product; with a known number, a linear combination."""
        for known, other in ((self.value(a), b), (self.value(b), a)):
            if known is not None:
                return self.sum([(other, known)])
        return self.node("mul", min(a, b), max(a, b))

    def apply(self, name: str, a: int) -> int:
        """A function of one number."""
        known = self.value(a)
        return self.node(name, a) if known is None else self.const(ON_HOST[name](known))

    def power(self, a: int, b: int) -> int:
        """A power; a square is a product."""
        known, base = self.value(b), self.value(a)
        if known is not None and base is not None:
            return self.const(base**known)
        if known in (0.0, 1.0, 2.0):
            return self.const(1.0) if known == 0.0 else a if known == 1.0 else self.product(a, a)
        return self.apply("recip", a) if known == -1.0 else self.node("pow", a, b)

    def partials(self, outputs: list[int], inputs: int) -> list[Partials]:
        """For each output, its derivatives by the first `inputs` nodes: nodes of the graph, by
        number of the input.
        """
        needed, found = (
            reached(self.nodes, outputs),
            {i: {i: self.const(1.0)} for i in range(inputs)},
        )
        for i in needed:
            if i not in found:
                found[i] = self._chained(i, found)
        return [found[i] for i in outputs]

    def _chained(self, i: int, found: dict[int, Partials]) -> Partials:
        kind, *args = self.nodes[i]
        if kind == "const":
            return {}
        if kind == "sum":
            pairs = [(j, self.const(factor)) for j, factor in args[1]]
        elif kind == "mul":
            pairs = [(args[0], args[1]), (args[1], args[0])]
        elif kind == "pow":
            a, b = args
            pairs = [(a, self.product(b, self.power(a, self.sum([(b, 1.0)], -1.0))))]
            pairs += [(b, self.product(i, self.apply("log", a)))] if found[b] else []
        else:
            pairs = [(args[0], SLOPES[kind](self, i, args[0]))]
        terms: dict[int, list[tuple[int, float]]] = {}
        for j, slope in pairs:
            for key, partial in found[j].items():
                terms.setdefault(key, []).append((self.product(slope, partial), 1.0))
        return {key: self.sum(each) for key, each in terms.items()}


def reached(nodes: list[tuple[Any, ...]], outputs: Iterable[int]) -> list[int]:
    """The nodes that outputs need, in order."""
    seen: set[int] = set()
    stack = list(outputs)
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack.extend(arguments(nodes[i]))
    return sorted(seen)


def arguments(node: tuple[Any, ...]) -> tuple[int, ...]:
    """The nodes that a node is made of."""
    kind, *args = node
    if kind in ("in", "const"):
        return ()
    return tuple(i for i, _ in args[1]) if kind == "sum" else tuple(args)


ON_HOST: dict[str, Callable[[float], float]] = {
    "recip": lambda x: 1.0 / x,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "sin": math.sin,
    "cos": math.cos,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "logistic": lambda x: 1.0 / (1.0 + math.exp(-x)),
}
SLOPES: dict[str, Callable[[Graph, int, int], int]] = {  # of y = f(x), from the nodes y and x
    "recip": lambda g, y, x: g.sum([(g.product(y, y), -1.0)]),
    "exp": lambda g, y, x: y,
    "log": lambda g, y, x: g.apply("recip", x),
    "sqrt": lambda g, y, x: g.sum([(g.apply("recip", y), 0.5)]),
    "tanh": lambda g, y, x: g.sum([(g.product(y, y), -1.0)], 1.0),
    "sin": lambda g, y, x: g.apply("cos", x),
    "cos": lambda g, y, x: g.sum([(g.apply("sin", x), -1.0)]),
    "log1p": lambda g, y, x: g.apply("recip", g.sum([(x, 1.0)], 1.0)),
    "expm1": lambda g, y, x: g.sum([(y, 1.0)], 1.0),
    "logistic": lambda g, y, x: g.sum([(y, 1.0), (g.product(y, y), -1.0)]),
}
TWO: dict[str, Callable[[Graph, int, int], int]] = {
    "add": lambda g, a, b: g.sum([(a, 1.0), (b, 1.0)]),
    "sub": lambda g, a, b: g.sum([(a, 1.0), (b, -1.0)]),
    "mul": lambda g, a, b: g.product(a, b),
    "div": lambda g, a, b: g.product(a, g.apply("recip", b)),
    "pow": lambda g, a, b: g.power(a, b),
}
MOVES: dict[str, Callable[..., Any]] = {  # operations that put numbers elsewhere
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "squeeze": lambda p, x: np.squeeze(x, p["dimensions"]),
    "expand_dims": lambda p, x: np.expand_dims(x, p["dimensions"]),
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "copy": lambda p, x: x,
    "copy_p": lambda p, x: x,
    "stack": lambda p, *xs: np.stack(xs, p["axis"]),
    "concatenate": lambda p, *xs: np.concatenate(xs, p["dimension"]),
    "slice": lambda p, x: x[
        tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or (None,) * x.ndim))
    ],
    "split": lambda p, x: np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"]),
    "broadcast_in_dim": lambda p, x, *_: np.broadcast_to(
        np.expand_dims(
            x, tuple(i for i in range(len(p["shape"])) if i not in p["broadcast_dimensions"])
        ),
        p["shape"],
    ),
}


def read(graph: Graph, jaxpr: Any, consts: Iterable[Any], inputs: list[Ids]) -> list[Ids]:
    """Put a jaxpr into the graph. `inputs` are nodes that its arguments are made of.

    Raises:
        NotScalar: An operation is not made of operations on numbers.
    """
    known: dict[Any, Ids] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update(
        (var, _constant(graph, const)) for var, const in zip(jaxpr.constvars, consts, strict=True)
    )

    def nodes(var: Any) -> Ids:
        return _constant(graph, var.val) if hasattr(var, "val") else known[var]

    for eqn in jaxpr.eqns:
        out = _operation(graph, eqn.primitive.name, eqn.params, [nodes(var) for var in eqn.invars])
        known.update(zip(eqn.outvars, out, strict=True))
    return [nodes(var) for var in jaxpr.outvars]


def _operation(graph: Graph, name: str, params: Any, given: list[Ids]) -> list[Ids]:
    if name in ("jit", "pjit"):
        return read(
            graph, getattr(params["jaxpr"], "jaxpr", params["jaxpr"]), params["jaxpr"].consts, given
        )
    if name in TWO:
        return [_each(lambda a, b: TWO[name](graph, a, b), *given)]
    if name in SLOPES:
        return [_each(lambda a: graph.apply(name, a), *given)]
    if name in MOVES:
        out = MOVES[name](params, *given)
        return list(out) if name == "split" else [out]
    if name == "neg":
        return [_each(lambda a: graph.sum([(a, -1.0)]), *given)]
    if name in ("integer_pow", "square"):
        exponent = graph.const(params.get("y", 2))
        return [_each(lambda a: graph.power(a, exponent), *given)]
    if name == "convert_element_type" and params["new_dtype"] == np.float64:
        return given
    if name == "reduce_sum":
        rows = np.moveaxis(given[0], params["axes"], range(len(params["axes"])))
        rows = rows.reshape(-1, *rows.shape[len(params["axes"]) :])
        return [_each(lambda *column: graph.sum([(i, 1.0) for i in column]), *rows)]
    raise NotScalar(name)


def _each(rule: Callable[..., int], *given: Ids) -> Ids:
    spread = np.broadcast_arrays(*given)
    out = [rule(*column) for column in zip(*(ids.ravel().tolist() for ids in spread), strict=True)]
    return np.array(out, int).reshape(spread[0].shape)


def _constant(graph: Graph, value: Any) -> Ids:
    value = np.asarray(value)
    if value.dtype != np.float64:
        raise NotScalar(f"a constant of {value.dtype}")
    return np.array([graph.const(each) for each in value.ravel().tolist()], int).reshape(
        value.shape
    )
