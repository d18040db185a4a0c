"""Follow through a program which results may depend on which arguments: sound for every value of the arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from .._jaxprs import CALLS, opened, scan_parts, solve_operands, while_parts
from .._trees import Tracer, is_a
from ._numpy import KNOWN
from ._op import Found, Op, everything
from ._pattern import Pattern, TooDenseError, stacked, union
from ._rules import RULES

_LARGEST_KNOWN = 1 << 22
_LONGEST_LOOP = 1 << 10


def dependence(jaxpr: Any, patterns: Sequence[Found], values: Sequence[Any] = ()) -> list[Found]:
    """What the results of a program depend on.

    Args:
        jaxpr: The program, closed or open.
        patterns: What each argument depends on; None for nothing.
        values: Known values of arguments, None for unknown ones.

    Raises:
        TooDenseError: Almost everything depends on almost everything.
    """
    return _Walk(jaxpr, patterns, values or [None] * len(patterns)).results()


class _Walk:
    def __init__(self, jaxpr: Any, patterns: Sequence[Found], values: Sequence[Any]):
        self.program, constants = opened(jaxpr)
        self.patterns: dict[Any, Found] = {}
        self.values: dict[Any, Any] = {}
        for var, value in zip(self.program.constvars, constants, strict=False):
            self.values[var] = _known(value)
        for var, pattern, value in zip(self.program.invars, patterns, values, strict=True):
            self.patterns[var], self.values[var] = pattern, value

    def results(self) -> list[Found]:
        for eqn in self.program.eqns:
            self.step(eqn)
        return [self.pattern(atom) for atom in self.program.outvars]

    def pattern(self, atom: Any) -> Found:
        return None if is_a(atom, core.Literal) else self.patterns.get(atom)

    def value(self, atom: Any) -> Any:
        return _known(atom.val) if is_a(atom, core.Literal) else self.values.get(atom)

    def step(self, eqn: Any) -> None:
        patterns = [self.pattern(atom) for atom in eqn.invars]
        values = [self.value(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        if name in CALLS:
            inner = _Walk(eqn.params[CALLS[name]], patterns, values)
            self.patterns.update(zip(eqn.outvars, inner.results(), strict=True))
            self.values.update((var, inner.value(atom)) for var, atom in zip(eqn.outvars, inner.program.outvars, strict=True))
            return
        if all(pattern is None for pattern in patterns):
            if name in KNOWN and all(value is not None for value in values) and _size(eqn.outvars[0]) <= _LARGEST_KNOWN:
                self.values[eqn.outvars[0]] = KNOWN[name](values, eqn.params)
            return
        out = _LOOPS[name](eqn, patterns) if name in _LOOPS else _plain(eqn, patterns, values)
        self.patterns.update(zip(eqn.outvars, out, strict=True))


def _plain(eqn: Any, patterns: Sequence[Found], values: Sequence[Any]) -> Sequence[Found]:
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    op = Op(eqn.primitive.name, eqn.params, shapes, [tuple(var.aval.shape) for var in eqn.outvars], patterns, values)
    return RULES.get(op.name, everything)(op)


def _known(value: Any) -> Any:
    if is_a(value, Tracer) or not (hasattr(value, "dtype") or is_a(value, (bool, int, float))):
        return None
    if math.prod(np.shape(value)) > _LARGEST_KNOWN or getattr(getattr(value, "dtype", None), "kind", "i") not in "biuf":
        return None
    return np.asarray(value)


def _size(var: Any) -> int:
    return math.prod(var.aval.shape)


# Loops and branches.


def _cond(eqn: Any, patterns: Sequence[Found]) -> list[Found]:
    if patterns[0] is not None:
        return everything_of(eqn, patterns)
    branches = [dependence(branch, patterns[1:]) for branch in eqn.params["branches"]]
    return [_either(parts) for parts in zip(*branches, strict=True)]


def _either(parts: Sequence[Found]) -> Found:
    there = [part for part in parts if part is not None]
    return union(there) if there else None


def everything_of(eqn: Any, patterns: Sequence[Found]) -> list[Found]:
    """All results depend on all that any operand does."""
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    return everything(
        Op(eqn.primitive.name, eqn.params, shapes, [tuple(var.aval.shape) for var in eqn.outvars], patterns, [None] * len(shapes))
    )


def _locally(body: Any, sizes: Sequence[int], varying: Sequence[bool]) -> list[Found]:
    """What the results of a body depend on, its varying arguments standing one after the other as columns."""
    total = sum(size for size, on in zip(sizes, varying, strict=True) if on)
    found: list[Found] = []
    at = 0
    for size, on in zip(sizes, varying, strict=True):
        found.append(Pattern.identity(at, size, total) if on else None)
        at += size * on
    return dependence(body, found)


def _scan(eqn: Any, patterns: Sequence[Found]) -> list[Found]:
    consts, carry, xs = scan_parts(eqn, list(patterns))
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    sizes = [_size(var) for var in opened(body)[0].invars]
    carried = [pattern is not None for pattern in carry]
    while True:  # what is carried varies if what it becomes does
        varying = [*(p is not None for p in consts), *carried, *(p is not None for p in xs)]
        local = _locally(body, sizes, varying)
        after = [now or out is not None for now, out in zip(carried, local[: len(carry)], strict=True)]
        if after == carried:
            break
        carried = after
    if length > _LONGEST_LOOP and any(carried):
        return everything_of(eqn, patterns)
    columns = next(p for p in patterns if p is not None).columns
    now: list[Found] = [
        (pattern or _nothing(size, columns)) if on else None
        for pattern, size, on in zip(carry, sizes[len(consts) : len(consts) + len(carry)], carried, strict=True)
    ]
    widths = sizes[len(consts) + len(carry) :]
    steps = range(length - 1, -1, -1) if eqn.params["reverse"] else range(length)
    made: dict[int, list[Found]] = {}
    for step in steps:
        here = [x and x.take(np.arange(step * width, (step + 1) * width)) for x, width in zip(xs, widths, strict=True)]
        inside = [p for p in (*consts, *now, *here) if p is not None]
        basis = stacked(inside)
        out = [p and p.after(basis) for p in local]
        now, made[step] = out[: len(carry)], out[len(carry) :]
        now = [p or (_nothing(_size(v), columns) if on else None) for p, v, on in zip(now, eqn.outvars, carried, strict=False)]
    ys = [_stacked([made[step][i] for step in range(length)]) for i in range(len(eqn.outvars) - len(carry))]
    return [*now, *ys]


def _stacked(parts: Sequence[Found]) -> Found:
    there = [part for part in parts if part is not None]
    return stacked(there) if there else None


def _nothing(size: int, columns: int) -> Pattern:
    return Pattern(np.zeros(size + 1, np.int64), np.zeros(0, np.int64), columns)


def _while(eqn: Any, patterns: Sequence[Found]) -> list[Found]:
    """Round after round, until nothing more is reached."""
    condition, consts, carry = while_parts(eqn, list(patterns))
    if any(pattern is not None for pattern in condition):
        return everything_of(eqn, patterns)
    body = eqn.params["body_jaxpr"]
    sizes = [_size(var) for var in opened(body)[0].invars]
    columns = next(p for p in patterns if p is not None).columns
    now: list[Found] = list(carry)
    for _ in range(_LONGEST_LOOP):
        local = _locally(body, sizes, [p is not None for p in (*consts, *now)])
        basis = stacked([p for p in (*consts, *now) if p is not None])
        reached = [_either([before, out and out.after(basis)]) for before, out in zip(now, local, strict=True)]
        if all(a is b or (a is not None and b is not None and a.equals(b)) for a, b in zip(now, reached, strict=True)):
            return [p or _nothing(_size(var), columns) for p, var in zip(now, eqn.outvars, strict=True)]
        now = reached
    raise TooDenseError


def _linear_solve(eqn: Any, patterns: Sequence[Found]) -> list[Found]:
    operands = solve_operands(eqn, list(patterns))
    lengths = eqn.params["const_lengths"]
    rest = [p for p in patterns if p is not None and not any(p is q for q in operands)]
    if rest or any(p is not None for p in operands[: lengths.solve]):
        return everything_of(eqn, patterns)
    return dependence(eqn.params["jaxprs"].solve, operands)


_LOOPS: Mapping[str, Any] = {"scan": _scan, "while": _while, "cond": _cond, "custom_linear_solve": _linear_solve}
