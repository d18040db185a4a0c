"""Interpreter of jaxprs over sparsity patterns: the arguments that each result may depend on.

This is abstract interpretation. The abstract value of an array is a `Pattern`, a boolean matrix
with a row per element and a column per element of the seeds, or None if the array depends on no
seed; the join is the union. It is sound for every value of the arguments.

    a = slice[1:3] x     x: 4 rows, identity   ->   a: rows {1}, {2}
    b = reduce_sum a                           ->   b: row  {1, 2}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._jax.evaluation import Ref
from .._jax.jaxprs import opened, scan_parts, solve_operands, source_of, while_parts
from .._jax.typed import JaxprEqn, Var
from .._remat import FlatProgram, Step
from .constant_folding import FoldedValues, Programs, constant
from .dependence_rules import POSITIONS, READ, RULES
from .operation import MaybePattern, SparsityOp, everything
from .pattern import Pattern, TooDenseError, stacked, union

_LONGEST_LOOP = 1 << 10


def dependence(
    jaxpr: object,
    patterns: Sequence[MaybePattern],
    programs: Programs | None = None,
    given: Sequence[object] = (),
    blurred: dict[int, str] | None = None,
) -> list[MaybePattern]:
    """Patterns of the results of a program.

    Args:
        jaxpr: The program, closed or open.
        patterns: Pattern of each argument; None if it depends on nothing.
        programs: Memo of sub-jaxprs that are followed.
        given: Known values of arguments, None for unknown ones.
        blurred: Output. Gets the constants and arguments, by their index among both, from which
            unknown positions are computed; each with the line that reads or writes there.

    Raises:
        TooDenseError: Almost everything depends on almost everything.
    """
    programs = programs or Programs()
    known = programs.known(jaxpr, given)
    flat = known.flat
    reached: dict[int, MaybePattern] = dict(
        zip(flat.takes, [*[None] * (len(flat.takes) - len(patterns)), *patterns], strict=True)
    )
    # Values that rules will read are computed together, in one compiled program.
    values = known.values(
        _values_to_fold(
            known, {number for number, pattern in reached.items() if pattern is not None}
        )
    )

    def pattern(ref: Ref) -> MaybePattern:
        return reached.get(ref) if isinstance(ref, int) else None

    def value(ref: Ref) -> Any:
        return values.get(ref) if isinstance(ref, int) else constant(ref.value)

    sources = None if blurred is None else _Sources(flat, blurred)
    for step in flat.steps:
        inside = [pattern(ref) for ref in step.reads]
        if sources is not None:
            sources.follow(step)
        # An equation whose operands depend on nothing gives results that depend on nothing.
        if any(part is not None for part in inside):
            rule, there = _LOOPS.get(step.name), [value(ref) for ref in step.reads]
            unknown = programs.unknown
            if step.name in POSITIONS and _is_blurred(step.name, inside, there):
                programs.unknown += 1
            try:
                out = (
                    rule(_Nested(step.eqn, inside, there, programs))
                    if rule
                    else _plain(step.eqn, inside, there)
                )
            # Note the sources even if the rule raises: an unknown position may be why it is too
            # dense.
            finally:
                if sources is not None and programs.unknown > unknown:
                    sources.note(step)
            reached.update(zip(step.makes, out, strict=True))
    return [pattern(ref) for ref in flat.gives]


def _is_blurred(name: str, patterns: Sequence[MaybePattern], values: Sequence[object]) -> bool:
    """Return whether an equation reads or writes at positions that are unknown and do not vary
    themselves.
    """
    positions = range(len(values))[POSITIONS[name]]
    return any(values[i] is None and patterns[i] is None for i in positions)


class _Sources:
    """Constants and arguments of a program that each of its values is computed from.

    Args:
        flat: The program.
        blurred: Output. Gets those that unknown positions are computed from.
    """

    def __init__(self, flat: FlatProgram, blurred: dict[int, str]):
        self.flat = flat
        self.blurred = blurred
        self._of: dict[int, frozenset[int]] = {
            number: frozenset([i]) for i, number in enumerate(flat.takes)
        }

    def follow(self, step: Step) -> None:
        """Record the sources of the results of a step."""
        read = self._read(step.numbers)
        self._of.update(dict.fromkeys(step.makes, read))

    def note(self, step: Step) -> None:
        """Record that a step has unknown positions.

        For a loop, any integer that it reads may be such a position.
        """
        if step.name in POSITIONS:
            refs = [ref for ref in step.reads[POSITIONS[step.name]] if isinstance(ref, int)]
        else:
            refs = [
                number
                for number in step.numbers
                if np.issubdtype(self.flat.avals[number].dtype, np.integer)
            ]
        for source in sorted(self._read(refs)):
            self.blurred.setdefault(source, source_of(step.eqn))

    def _read(self, numbers: Iterable[int]) -> frozenset[int]:
        return frozenset[int]().union(*(self._of[number] for number in numbers))


def _values_to_fold(known: FoldedValues, varying: set[int]) -> list[int]:
    """Known values that rules will read: those of equations on operands that vary."""
    asked: dict[int, None] = {}
    for step in known.flat.steps:
        if not varying.isdisjoint(step.numbers):
            varying.update(step.makes)
            read = (
                step.reads
                if step.name in _LOOPS
                else step.reads[READ[step.name]]
                if step.name in READ
                else ()
            )
            asked.update(
                dict.fromkeys(
                    ref
                    for ref in read
                    if isinstance(ref, int) and ref in known and ref not in varying
                )
            )
    return list(asked)


def _plain(
    eqn: JaxprEqn, patterns: Sequence[MaybePattern], values: Sequence[Any]
) -> Sequence[MaybePattern]:
    shapes = [tuple(atom.aval.shape) for atom in eqn.invars]
    op = SparsityOp(
        eqn.primitive.name,
        eqn.params,
        shapes,
        [tuple(var.aval.shape) for var in eqn.outvars],
        patterns,
        values,
    )
    return RULES.get(op.name, everything)(op)


def _size(var: Var) -> int:
    return math.prod(var.aval.shape)


# Rules of control flow.


@dataclass(frozen=True)
class _Nested:
    """Equation with sub-jaxprs, the patterns of its operands, and their values where they are
    known.
    """

    eqn: JaxprEqn
    patterns: Sequence[MaybePattern]
    values: Sequence[Any]
    programs: Programs

    def locally(
        self, body: object, sizes: Sequence[int], varying: Sequence[bool], given: Sequence[object]
    ) -> list[MaybePattern]:
        """Patterns of the results of a body in terms of its own varying arguments, laid out as
        columns in their order.
        """
        # These local patterns are the same in every iteration.
        total = sum(size for size, on in zip(sizes, varying, strict=True) if on)
        columns: list[MaybePattern] = []
        at = 0
        for size, on in zip(sizes, varying, strict=True):
            columns.append(Pattern.identity(at, size, total) if on else None)
            at += size * on
        return dependence(body, columns, self.programs, given)

    def everything(self) -> list[MaybePattern]:
        """Patterns in which all results depend on all that any operand depends on."""
        ins, outs = (
            [tuple(atom.aval.shape) for atom in atoms]
            for atoms in (self.eqn.invars, self.eqn.outvars)
        )
        return everything(
            SparsityOp(
                self.eqn.primitive.name, self.eqn.params, ins, outs, self.patterns, self.values
            )
        )


def _cond(loop: _Nested) -> list[MaybePattern]:
    # The branch itself varies, so every result depends on it.
    if loop.patterns[0] is not None:
        return loop.everything()
    branches = [
        dependence(branch, loop.patterns[1:], loop.programs, loop.values[1:])
        for branch in loop.eqn.params["branches"]
    ]
    return [_either(parts) for parts in zip(*branches, strict=True)]


def _either(parts: Sequence[MaybePattern]) -> MaybePattern:
    there = [part for part in parts if part is not None]
    return union(there) if there else None


def _scan(loop: _Nested) -> list[MaybePattern]:
    eqn = loop.eqn
    consts, carry, xs = scan_parts(eqn, list(loop.patterns))
    given, *rest = scan_parts(eqn, list(loop.values))
    given = [*given, *(None for part in rest for _ in part)]
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    sizes = [_size(var) for var in opened(body)[0].invars]
    carried = [pattern is not None for pattern in carry]
    # Fixpoint: a carry varies if the body returns a varying value for it. The set only grows.
    while True:
        varying = [*(p is not None for p in consts), *carried, *(p is not None for p in xs)]
        local = loop.locally(body, sizes, varying, given)
        after = [
            now or out is not None for now, out in zip(carried, local[: len(carry)], strict=True)
        ]
        if after == carried:
            break
        carried = after

    if length > _LONGEST_LOOP and any(carried):
        return loop.everything()
    columns = next(p for p in loop.patterns if p is not None).columns

    # Compose the local pattern with that of the carry, iteration by iteration: each may read
    # another row of `xs`.
    now: list[MaybePattern] = [
        (pattern or _nothing(size, columns)) if on else None
        for pattern, size, on in zip(
            carry, sizes[len(consts) : len(consts) + len(carry)], carried, strict=True
        )
    ]
    widths = sizes[len(consts) + len(carry) :]
    steps = range(length - 1, -1, -1) if eqn.params["reverse"] else range(length)
    made: dict[int, list[MaybePattern]] = {}
    for step in steps:
        here = [
            x and x.take(np.arange(step * width, (step + 1) * width))
            for x, width in zip(xs, widths, strict=True)
        ]
        # The columns of `local` are the varying arguments in order, so their patterns stacked are
        # the basis.
        inside = [p for p in (*consts, *now, *here) if p is not None]
        basis = stacked(inside)
        out = [p and p.after(basis) for p in local]
        now, made[step] = out[: len(carry)], out[len(carry) :]
        now = [
            p or (_nothing(_size(v), columns) if on else None)
            for p, v, on in zip(now, eqn.outvars, carried, strict=False)
        ]

    ys = [
        _stacked([made[step][i] for step in range(length)])
        for i in range(len(eqn.outvars) - len(carry))
    ]
    return [*now, *ys]


def _stacked(parts: Sequence[MaybePattern]) -> MaybePattern:
    there = [part for part in parts if part is not None]
    return stacked(there) if there else None


def _nothing(size: int, columns: int) -> Pattern:
    return Pattern(np.zeros(size + 1, np.int64), np.zeros(0, np.int64), columns)


def _while(loop: _Nested) -> list[MaybePattern]:
    """Rule of `while`: join the pattern of the carry with that after one more iteration, until a
    fixpoint.
    """
    eqn = loop.eqn
    condition, consts, carry = while_parts(eqn, list(loop.patterns))
    # The number of iterations itself varies.
    if any(pattern is not None for pattern in condition):
        return loop.everything()
    body = eqn.params["body_jaxpr"]
    sizes = [_size(var) for var in opened(body)[0].invars]
    given = [*while_parts(eqn, list(loop.values))[1], *(None for _ in carry)]
    columns = next(p for p in loop.patterns if p is not None).columns

    now: list[MaybePattern] = list(carry)
    for _ in range(_LONGEST_LOOP):
        local = loop.locally(body, sizes, [p is not None for p in (*consts, *now)], given)
        basis = stacked([p for p in (*consts, *now) if p is not None])
        reached = [
            _either([before, out and out.after(basis)])
            for before, out in zip(now, local, strict=True)
        ]
        if all(
            a is b or (a is not None and b is not None and a.equals(b))
            for a, b in zip(now, reached, strict=True)
        ):
            return [
                p or _nothing(_size(var), columns) for p, var in zip(now, eqn.outvars, strict=True)
            ]
        now = reached
    raise TooDenseError


def _linear_solve(loop: _Nested) -> list[MaybePattern]:
    operands = solve_operands(loop.eqn, list(loop.patterns))
    lengths = loop.eqn.params["const_lengths"]
    rest = [p for p in loop.patterns if p is not None and not any(p is q for q in operands)]
    # The matrix varies: every element of the solution may depend on it.
    if rest or any(p is not None for p in operands[: lengths.solve]):
        return loop.everything()
    return dependence(
        loop.eqn.params["jaxprs"].solve,
        operands,
        loop.programs,
        solve_operands(loop.eqn, list(loop.values)),
    )


_LOOPS: Mapping[str, Any] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
}
