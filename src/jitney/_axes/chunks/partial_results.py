"""Abstract interpretation of loops, branches and solves that do not run along the cut axis: which
of their results are made per chunk, and which are partial results that a monoid combines.

The gradient of a weight that each iteration of a loop over time uses is a sum over the batch and
over time, accumulated in the carry. With the batch cut, each chunk can accumulate its partial sum
from zero, if every operation that reads the carry is linear in it. This is proven here on the body,
in the domain of `rules/partials.py`; the initial carry goes to one chunk.

    scan over time, batch cut     body: g = g + sum over the batch of x * y
    x, y                          "along"
    g, the carry                  "start" -> partial[add], the fixpoint
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..._jax.equinox_checks import only_raises
from ..._jax.programs.evaluation import interpret
from ..._jax.programs.jaxprs import scan_parts, solve_operands, while_parts
from ..._jax.programs.primitives import public_name
from ..._jax.trees import issubdtype
from ..._jax.typed import Aval, JaxprEqn
from ..dims import is_ragged
from ..interpreter import Op, mentions, ragged_axes
from ..monoids import MONOIDS, Monoid
from ..refusal import Refused
from ..rule import Use
from ..rules import RULES
from ..rules.control import inlined_program
from ..rules.partials import (
    AbstractValue,
    is_fixed,
    is_partial_of,
    is_zero,
    preserves_partials,
    transfer_fixed,
)

_OVER_ANOTHER = ("scan", "while", "cond", "custom_linear_solve")


@dataclass(frozen=True)
class PartialResults:
    """The partial results of an operation.

    Args:
        monoids: For each result, the monoid that combines the partial results of the chunks; None
            if the result is made per chunk.
        begun: Position of an operand -> the monoid, for initial carries that are accumulated into:
            one chunk starts from the operand, the others from the identity.
    """

    monoids: tuple[Monoid | None, ...]
    begun: Mapping[int, Monoid]


def is_over_another(op: Op) -> bool:
    """Return whether an operation is a loop, branch or solve, and does not run along the axis."""
    return op.name in _OVER_ANOTHER and not (op.name == "scan" and is_ragged(op.params["length"]))


def find_partials(op: Op, zeros: Sequence[bool]) -> PartialResults:
    """Find the partial results of a loop, branch or solve over another axis.

    Args:
        op: The operation; its rule refuses no use of the axis in it.
        zeros: For each operand, whether it is known to be zero.

    Raises:
        Refused: A partial result is read by an operation that needs the combined one.
    """
    operands = _abstract_operands(op, zeros)
    results = _PartialsInterpreter(op).control(op, operands, begins=True)
    monoids = tuple(each if isinstance(each, Monoid) else None for each in results)

    positions = list(range(len(operands)))
    match op.name:
        case "scan":
            _, carry, _ = scan_parts(op.eqn, positions)
        case "while":
            _, _, carry = while_parts(op.eqn, positions)
        case _:
            return PartialResults(monoids, {})
    begun = {at: monoid for at, monoid in zip(carry, monoids, strict=False) if monoid is not None}
    return PartialResults(monoids, begun)


def find_turns(op: Op, zeros: Sequence[bool]) -> PartialResults:
    """Find how chunks count the iterations of a loop that goes on until all elements are done: the
    number is the largest of all chunks.

    Args:
        op: The loop; its rule refuses no use of the axis in it.
        zeros: For each operand, whether it is known to be zero.

    Raises:
        Refused: The condition is not false for the whole exactly where it is false for each chunk,
            or a partial result is read by an operation that needs the combined one.
    """
    operands = _abstract_operands(op, zeros)
    interpreter = _PartialsInterpreter(op)
    carry, goes_on = interpreter.until(op, operands, begins=True)
    if goes_on is not MONOIDS["or"]:
        raise interpreter.read_early(op)

    positions = list(range(len(operands)))
    _, _, start = while_parts(op.eqn, positions)
    begins = zip(start, carry, strict=True)
    begun = {at: monoid for at, monoid in begins if isinstance(monoid, Monoid)}
    return PartialResults((MONOIDS["max"],), begun)


def carry_until_all_done(op: Op) -> list[AbstractValue] | None:
    """The abstract carry of a `while` if it goes on until all elements of the axis are done, else
    None. Its operands count as zero if they do not have the axis; `find_turns` knows better.
    """
    operands = _abstract_operands(op, [True for _ in op.ins])
    try:
        carry, goes_on = _PartialsInterpreter(op).until(op, operands, begins=True)
    except Refused:
        return None
    return carry if goes_on is MONOIDS["or"] else None


def _abstract_operands(op: Op, zeros: Sequence[bool]) -> list[AbstractValue]:
    operands: list[AbstractValue] = []
    for dims, is_zero_known in zip(op.ins, zeros, strict=True):
        operands.append(_standing(dims, "zero" if is_zero_known else "fixed"))
    return operands


def _standing(dims: Sequence[object], otherwise: AbstractValue) -> AbstractValue:
    return "along" if ragged_axes(dims) else otherwise


class _PartialsInterpreter:
    """Abstract interpreter of the sub-jaxprs that one operation holds.

    Args:
        outer: The operation.
    """

    def __init__(self, outer: Op):
        self.outer = outer

    def run(
        self,
        jaxpr: object,
        given: Sequence[AbstractValue],
        seen_at: str,
    ) -> list[AbstractValue]:
        """The abstract results of a jaxpr for abstract arguments."""

        def number(
            value: object,
            aval: Aval,
            _eqn: object,
        ) -> AbstractValue:
            return _standing(getattr(aval, "shape", ()), "zero" if is_zero(value) else "fixed")

        def results(eqn: JaxprEqn, standings: list[AbstractValue]) -> list[AbstractValue]:
            return self.transfer(Op(eqn, self.outer.ranges, seen_at), standings)

        return interpret(
            jaxpr,
            given,
            results,
            constant=number,
        )

    def transfer(
        self,
        op: Op,
        given: list[AbstractValue],
    ) -> list[AbstractValue]:
        """Transfer function of one operation."""
        if any(len(ragged_axes(dims)) > 1 for dims in op.outs):
            raise Refused(
                op.place,
                f"makes an array that has it twice, inside `{public_name(self.outer.name)}`"
                f" (`{public_name(op.name)}`)",
            )
        if all(map(is_fixed, given)) and not mentions(op):
            return [transfer_fixed(op, given)] * len(op.outs)
        program = inlined_program(op.eqn)
        if program is not None:
            return self.run(program, given, op.place)
        if is_over_another(op):
            return self.control(op, given)
        if op.name == "optimization_barrier":
            return given
        return self.plain(op, given)

    def plain(
        self,
        op: Op,
        given: list[AbstractValue],
    ) -> list[AbstractValue]:
        """Transfer function of an operation that holds no sub-jaxpr."""
        rule = RULES.get(op.name)
        for use in rule.uses_of(op) if rule is not None else ():
            return [self.partial_result(op, given, use)] * len(op.outs)

        # No use of the axis: values with the axis stay per chunk, and must not meet partials.
        parts = [each for each in given if isinstance(each, Monoid)]
        along = "along" in given
        if rule is None or (along and (parts or not all(map(ragged_axes, op.outs)))):
            raise self.read_early(op)
        if not parts:
            return [_standing(dims, transfer_fixed(op, given)) for dims in op.outs]

        # Partials of one monoid stay partials if the operation commutes with the monoid.
        if any(map(ragged_axes, op.outs)) or any(each is not parts[0] for each in parts):
            raise self.read_early(op)
        monoid = _truths(op, given, parts[0])
        if monoid is parts[0] and not preserves_partials(op, given, monoid):
            raise self.read_early(op)
        return [monoid] * len(op.outs)

    def partial_result(
        self,
        op: Op,
        given: list[AbstractValue],
        use: Use,
    ) -> Monoid:
        """Transfer function of a use of the axis: the partial result of a reduction, or of a
        scatter into an array without the axis.
        """
        carrier = RULES[op.name].carrier
        if carrier is None or carrier.monoid is None or use.monoid is None:
            raise self.looks(op, use)
        if any(map(ragged_axes, op.outs)) or not carrier.is_combined:
            raise self.looks(op, use)

        # A scatter adds to its first operand, which may be a partial result itself.
        into = carrier.initial(op, given)
        if any(isinstance(each, Monoid) for each in given[len(into) :]):
            raise self.looks(op, use)
        if not all(is_partial_of(carrier.monoid, each) for each in into):
            raise self.read_early(op)
        return carrier.monoid

    def looks(self, op: Op, use: Use) -> Refused:
        what = use.refused or use.how
        return Refused(
            op.place,
            f"looks along it inside `{public_name(self.outer.name)}`: {what}"
            f" (`{public_name(op.name)}`)",
        )

    def read_early(self, op: Op) -> Refused:
        what = "is put together over all of it only when that is done"
        return Refused(
            op.place,
            f"reads what {what}, inside `{public_name(self.outer.name)}`"
            f" (`{public_name(op.name)}`)",
        )

    # Loops, branches and solves.

    def control(
        self,
        op: Op,
        given: list[AbstractValue],
        *,
        begins: bool = False,
    ) -> list[AbstractValue]:
        """Transfer function of a loop, branch or solve. The outermost loop (`begins`) may start
        from any values, since these go to one chunk.
        """
        if op.name == "cond":
            return self.branches(op, given)
        if op.name == "custom_linear_solve":
            return self.run(
                op.params["jaxprs"].solve,
                solve_operands(op.eqn, given),
                op.place,
            )
        if op.name == "scan":
            constants, start, xs = scan_parts(op.eqn, given)
            carry, rest = self.loop(
                op,
                op.params["jaxpr"],
                constants,
                start,
                xs,
                begins=begins,
            )
            return [*carry, *rest]
        carry, goes_on = self.until(op, given, begins=begins)
        if isinstance(goes_on, Monoid):
            raise self.read_early(op)
        if goes_on == "along" and any(each != "along" for each in carry):
            raise self.read_early(op)
        return carry

    def until(
        self,
        op: Op,
        given: list[AbstractValue],
        *,
        begins: bool,
    ) -> tuple[list[AbstractValue], AbstractValue]:
        """The abstract carry of a `while`, valid in each iteration, and its abstract condition."""
        of_condition, of_body, start = while_parts(op.eqn, given)
        carry, _ = self.loop(
            op,
            op.params["body_jaxpr"],
            of_body,
            start,
            [],
            begins=begins,
        )
        (goes_on,) = self.run(
            op.params["cond_jaxpr"],
            [*of_condition, *carry],
            op.place,
        )
        return carry, goes_on

    def loop(
        self,
        op: Op,
        body: object,
        constants: list[AbstractValue],
        start: list[AbstractValue],
        xs: list[AbstractValue],
        *,
        begins: bool,
    ) -> tuple[list[AbstractValue], list[AbstractValue]]:
        """The abstract carry of a loop, valid in each iteration, and the abstract stacked outputs.

        Raises:
            Refused: A carry is a partial result, but starts from another value.
        """
        # Fixpoint from "start", the least element: join the carry with what the body returns until
        # it is stable. A carry that is still "start" then is never changed; it is demoted to the
        # value it started with, and the iteration goes on.
        carry: list[AbstractValue] = ["start" if is_fixed(each) else each for each in start]
        while True:
            out = self.run(
                body,
                [*constants, *carry, *xs],
                op.place,
            )
            after = self.join_values(
                op,
                carry,
                out[: len(carry)],
            )
            if after == carry:
                after = _demote_carries(start, carry)
            if after == carry:
                break
            carry = after

        # An inner loop runs in each chunk, so a carry that turns into a partial must start from
        # one: else its initial value would be counted once per chunk.
        for before, after in zip(start, carry, strict=True):
            if begins or not isinstance(after, Monoid):
                continue
            if not is_partial_of(after, before):
                raise self.read_early(op)
        return carry, out[len(carry) :]

    def branches(
        self,
        op: Op,
        given: list[AbstractValue],
    ) -> list[AbstractValue]:
        index, *operands = given
        programs = op.params["branches"]

        # A predicate that differs between chunks selects one branch in one chunk and another in the
        # next, so their partials do not combine. A branch that only raises does not count.
        if not is_fixed(index):
            programs = [program for program in programs if not only_raises(program)]
            if len(programs) != 1:
                raise self.read_early(op)
        joined = self.run(programs[0], operands, op.place)
        for program in programs[1:]:
            results = self.run(program, operands, op.place)
            joined = self.join_values(op, joined, results)
        return joined

    def join_values(
        self,
        op: Op,
        these: Sequence[AbstractValue],
        those: Sequence[AbstractValue],
    ) -> list[AbstractValue]:
        """Join of two lists of abstract values.

        Raises:
            Refused: Two values have no join.
        """
        joined: list[AbstractValue] = []
        for a, b in zip(these, those, strict=True):
            if _is_above(a, b):
                joined.append(a)
            elif _is_above(b, a):
                joined.append(b)
            elif is_fixed(a) and is_fixed(b):
                joined.append("fixed")
            else:
                raise self.read_early(op)
        return joined


def _is_above(a: AbstractValue, b: AbstractValue) -> bool:
    """Return whether the join of two abstract values is the first of them."""
    if a == b or b == "start":
        return True
    return isinstance(a, Monoid) and is_partial_of(a, b)


def _demote_carries(
    start: Sequence[AbstractValue], carry: Sequence[AbstractValue]
) -> list[AbstractValue]:
    """Demote carries that no iteration changes to the abstract values that they started with."""
    return [
        a if b == "start" or (a, b) == ("fixed", "zero") else b
        for a, b in zip(start, carry, strict=True)
    ]


def _truths(
    op: Op,
    given: Sequence[AbstractValue],
    monoid: Monoid,
) -> Monoid:
    """The monoid of a partial after an operation that changes it.

    "or" becomes "max" where bools are converted to integers (to select a branch), as max(int(a),
    int(b)) = int(a or b); "or" and "and" become each other where they are negated, as not (a and b)
    = not a or not b; and a maximum or minimum becomes one of them where it is compared with a fixed
    number, as max(a, b) > c if a > c or b > c. (Not of floating-point numbers, whose maximum is NaN
    where one of them is.)
    """
    if op.name == "not":
        return _NEGATED.get(monoid.word, monoid)
    if op.name in _COMPARED:
        return _compared(op, given, monoid)
    if op.name != "convert_element_type" or monoid is not MONOIDS["or"]:
        return monoid
    before, after = op.eqn.invars[0].aval.dtype, op.eqn.outvars[0].aval.dtype
    is_counted = before == np.bool_ and issubdtype(after, np.integer)
    return MONOIDS["max"] if is_counted else monoid


_NEGATED = {"or": MONOIDS["and"], "and": MONOIDS["or"]}
_COMPARED = ("gt", "ge", "lt", "le")


def _compared(
    op: Op,
    given: Sequence[AbstractValue],
    monoid: Monoid,
) -> Monoid:
    """The monoid of the truth of a comparison of a partial with a fixed integer; the partial's own
    if there is none.
    """
    dtype = op.eqn.invars[0].aval.dtype
    if monoid not in (MONOIDS["max"], MONOIDS["min"]):
        return monoid
    if not issubdtype(dtype, np.integer) or sum(map(is_fixed, given)) != 1:
        return monoid

    # True if the comparison asks whether the partial is above.
    is_above = op.name in ("gt", "ge")
    if is_fixed(given[0]):
        is_above = not is_above
    is_any = is_above == (monoid is MONOIDS["max"])
    return MONOIDS["or" if is_any else "and"]
