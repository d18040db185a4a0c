"""Interpreter of jaxprs over sparsity patterns: the arguments that each result may depend on.

This is abstract interpretation. The abstract value of an array is a `Pattern`, a boolean matrix
with a row per element and a column per element of the seeds, or None if the array depends on no
seed; the join is the union. It is sound for every value of the arguments.

    a = slice[1:3] x     x: 4 rows, identity   ->   a: rows {1}, {2}
    b = reduce_sum a                           ->   b: row  {1, 2}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .._jax.programs.jaxprs import open_jaxpr, scan_parts, solve_operands, source_of, while_parts
from .._jax.programs.ssa import FlatProgram, Ref, Step, numbers_of
from .._jax.typed import JaxprEqn, Var
from .constant_folding import FoldedValues, Programs, constant
from .dependence_rules import POSITIONS, READ, RULES
from .pattern import MaybePattern, Pattern, SparsityOp, TooDenseError, everything, stack_rows, union

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
    known = programs.fold(jaxpr, given)
    flat = known.flat
    constants: list[MaybePattern] = [None] * (len(flat.takes) - len(patterns))
    reached: dict[int, MaybePattern] = dict(zip(flat.takes, [*constants, *patterns], strict=True))
    # Values that rules will read are computed together, in one compiled program.
    varying = {number for number, pattern in reached.items() if pattern is not None}
    values = known.values(_values_to_fold(known, varying))

    def pattern(ref: Ref) -> MaybePattern:
        return reached.get(ref) if isinstance(ref, int) else None

    def value(ref: Ref) -> object:
        return values.get(ref) if isinstance(ref, int) else constant(ref.value)

    sources = None if blurred is None else _Sources(flat, blurred)
    for step in flat.steps:
        operands = [pattern(ref) for ref in step.reads]
        if sources is not None:
            sources.follow(step)
        # An equation whose operands depend on nothing gives results that depend on nothing.
        if not any(part is not None for part in operands):
            continue
        operand_values = [value(ref) for ref in step.reads]
        unknown = programs.unknown
        if step.name in POSITIONS and _is_blurred(step.name, operands, operand_values):
            programs.unknown += 1
        try:
            if step.name in _LOOPS:
                rule = _LOOPS[step.name]
                out = rule(_Nested(step.eqn, operands, operand_values, programs))
            else:
                out = _plain(step.eqn, operands, operand_values)
        # Note the sources even if the rule raises: an unknown position may be why it is too
        # dense.
        finally:
            if sources is not None and programs.unknown > unknown:
                sources.note(step)
        reached.update(zip(step.makes, out, strict=True))
    return [pattern(ref) for ref in flat.gives]


def _is_blurred(
    name: str,
    patterns: Sequence[MaybePattern],
    values: Sequence[object],
) -> bool:
    """Return whether an equation reads or writes at positions that are unknown and do not vary
    themselves.
    """
    positions = POSITIONS[name]
    pairs = zip(values[positions], patterns[positions], strict=True)
    return any(value is None and pattern is None for value, pattern in pairs)


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
            positions = step.reads[POSITIONS[step.name]]
            refs = numbers_of(positions)
        else:
            refs = list(filter(self._is_integer, step.numbers))
        for source in sorted(self._read(refs)):
            self.blurred.setdefault(source, source_of(step.eqn))

    def _is_integer(self, number: int) -> bool:
        return np.issubdtype(self.flat.avals[number].dtype, np.integer)

    def _read(self, numbers: Iterable[int]) -> frozenset[int]:
        sources = frozenset[int]()
        return sources.union(*(self._of[number] for number in numbers))


def _values_to_fold(known: FoldedValues, varying: set[int]) -> list[int]:
    """Known values that rules will read: those of equations on operands that vary."""
    asked: dict[int, None] = {}
    for step in known.flat.steps:
        if varying.isdisjoint(step.numbers):
            continue
        varying.update(step.makes)
        for ref in numbers_of(_folded_operands(step)):
            if ref in known and ref not in varying:
                asked[ref] = None
    return list(asked)


def _folded_operands(step: Step) -> Sequence[Ref]:
    """Operands of a step whose values its rule reads."""
    if step.name in _LOOPS:
        return step.reads
    if step.name in READ:
        return step.reads[READ[step.name]]
    return ()


def _plain(
    eqn: JaxprEqn,
    patterns: Sequence[MaybePattern],
    values: Sequence[object],
) -> Sequence[MaybePattern]:
    op = _operation(eqn, patterns, values)
    rule = RULES.get(op.name, everything)
    return rule(op)


def _operation(
    eqn: JaxprEqn,
    patterns: Sequence[MaybePattern],
    values: Sequence[object],
) -> SparsityOp:
    ins = [tuple(atom.aval.shape) for atom in eqn.invars]
    outs = [tuple(var.aval.shape) for var in eqn.outvars]
    return SparsityOp(
        eqn.primitive.name,
        eqn.params,
        ins,
        outs,
        patterns,
        values,
    )


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
    values: Sequence[object]
    programs: Programs

    def locally(
        self,
        body: object,
        sizes: Sequence[int],
        varying: Sequence[bool],
        given: Sequence[object],
    ) -> list[MaybePattern]:
        """Patterns of the results of a body in terms of its own varying arguments, laid out as
        columns in their order.
        """
        # These local patterns are the same in every iteration.
        total = sum(size for size, on in zip(sizes, varying, strict=True) if on)
        columns: list[MaybePattern] = []
        at = 0
        for size, on in zip(sizes, varying, strict=True):
            if on:
                columns.append(Pattern.identity(at, size, total))
                at += size
            else:
                columns.append(None)
        return dependence(body, columns, self.programs, given)

    def everything(self) -> list[MaybePattern]:
        """Patterns in which all results depend on all that any operand depends on."""
        return everything(_operation(self.eqn, self.patterns, self.values))


def _cond(loop: _Nested) -> list[MaybePattern]:
    index, *operands = loop.patterns
    # The branch itself varies, so every result depends on it.
    if index is not None:
        return loop.everything()
    values = loop.values[1:]
    branches = [
        dependence(branch, operands, loop.programs, values)
        for branch in loop.eqn.params["branches"]
    ]
    return [_either(parts) for parts in zip(*branches, strict=True)]


def _either(parts: Sequence[MaybePattern]) -> MaybePattern:
    there = [part for part in parts if part is not None]
    return union(there) if there else None


def _scan(loop: _Nested) -> list[MaybePattern]:
    eqn = loop.eqn
    consts, carry, xs = scan_parts(eqn, list(loop.patterns))
    const_values, carry_values, x_values = scan_parts(eqn, list(loop.values))
    # A carry and a row have another value in each iteration.
    given = [*const_values, *[None] * (len(carry_values) + len(x_values))]
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    sizes = [_size(var) for var in open_jaxpr(body)[0].invars]
    const_varies = [pattern is not None for pattern in consts]
    carried = [pattern is not None for pattern in carry]
    row_varies = [pattern is not None for pattern in xs]
    count = len(carry)
    # Fixpoint: a carry varies if the body returns a varying value for it. The set only grows.
    while True:
        varying = [*const_varies, *carried, *row_varies]
        local = loop.locally(body, sizes, varying, given)
        after = [
            before or out is not None for before, out in zip(carried, local[:count], strict=True)
        ]
        if after == carried:
            break
        carried = after

    if length > _LONGEST_LOOP and any(carried):
        return loop.everything()
    columns = next(p for p in loop.patterns if p is not None).columns

    # Compose the local pattern with that of the carry, iteration by iteration: each may read
    # another row of `xs`.
    carry_sizes = sizes[len(consts) : len(consts) + count]
    widths = sizes[len(consts) + count :]
    now: list[MaybePattern] = []
    for pattern, size, on in zip(carry, carry_sizes, carried, strict=True):
        now.append((pattern or _nothing(size, columns)) if on else None)
    steps = range(length)
    outputs: dict[int, list[MaybePattern]] = {}
    for step in reversed(steps) if eqn.params["reverse"] else steps:
        rows: list[MaybePattern] = []
        for x, width in zip(xs, widths, strict=True):
            rows.append(x and x.take(np.arange(step * width, (step + 1) * width)))
        # The columns of `local` are the varying arguments in order, so their patterns stacked are
        # the basis.
        basis = stack_rows([p for p in (*consts, *now, *rows) if p is not None])
        out = [p and p.compose(basis) for p in local]
        outputs[step] = out[count:]

        now = []
        for pattern, var, on in zip(out[:count], eqn.outvars, carried, strict=False):
            now.append(pattern or (_nothing(_size(var), columns) if on else None))

    # Also for a scan without iterations, which has outputs all the same.
    stacked_outputs = range(len(eqn.outvars) - count)
    ys = [_stack_parts([outputs[step][i] for step in steps]) for i in stacked_outputs]
    return [*now, *ys]


def _stack_parts(parts: Sequence[MaybePattern]) -> MaybePattern:
    there = [part for part in parts if part is not None]
    return stack_rows(there) if there else None


def _nothing(size: int, columns: int) -> Pattern:
    starts = np.zeros(size + 1, np.int64)
    no_columns = np.zeros(0, np.int64)
    return Pattern(starts, no_columns, columns)


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
    sizes = [_size(var) for var in open_jaxpr(body)[0].invars]
    _, const_values, _ = while_parts(eqn, list(loop.values))
    given = [*const_values, *[None] * len(carry)]
    columns = next(p for p in loop.patterns if p is not None).columns

    now: list[MaybePattern] = list(carry)
    for _ in range(_LONGEST_LOOP):
        varying = [p is not None for p in (*consts, *now)]
        local = loop.locally(body, sizes, varying, given)
        basis = stack_rows([p for p in (*consts, *now) if p is not None])

        joined: list[MaybePattern] = []
        for before, out in zip(now, local, strict=True):
            joined.append(_either([before, out and out.compose(basis)]))
        if all(map(_are_equal, now, joined)):
            break
        now = joined
    else:
        raise TooDenseError

    results: list[MaybePattern] = []
    for pattern, var in zip(now, eqn.outvars, strict=True):
        results.append(pattern or _nothing(_size(var), columns))
    return results


def _are_equal(one: MaybePattern, other: MaybePattern) -> bool:
    if one is None or other is None:
        return one is other
    return one.equals(other)


def _linear_solve(loop: _Nested) -> list[MaybePattern]:
    operands = solve_operands(loop.eqn, list(loop.patterns))
    lengths = loop.eqn.params["const_lengths"]
    varying = [p for p in loop.patterns if p is not None]
    rest = [p for p in varying if not any(p is q for q in operands)]
    # The matrix varies: every element of the solution may depend on it.
    if rest or any(p is not None for p in operands[: lengths.solve]):
        return loop.everything()
    solve = loop.eqn.params["jaxprs"].solve
    values = solve_operands(loop.eqn, list(loop.values))
    return dependence(solve, operands, loop.programs, values)


_LOOPS: Mapping[str, Callable[[_Nested], list[MaybePattern]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
}
