"""Proof that a body can be padded: the uses of each named axis, collected in one walk over its
jaxpr with symbolic sizes.

The proof is by induction over the equations: each has a rule that keeps the invariant of
`interpreter.py` (valid elements first, and exact), or it is refused.

One refusal needs more of the program than an equation: an update of an array by a moved part of
itself.

    a = x[::-1]
    lax.dynamic_update_slice(a, a[2:5], [3])

Padded, `a` is a gather. XLA for CPUs takes the gather, the slice and the update as one loop in
place, and reads elements that it has written (jaxlib 0.10.2, 0.12.0): `a[2]` three times. At exact
size the same is a reversal, and right. The hazard needs one operation that moves elements from
which both the array and the update are made, and a window of several elements. An array of its own
for the update, and barriers, are undone by XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import equations, open_jaxpr, programs
from .._jax.programs.primitives import ARITHMETIC, LOGIC, public_name
from .._jax.typed import AnyJaxpr, Aval, JaxprEqn
from .dims import Dim, is_countable, is_ragged
from .interpreter import Op, Ranges, grows, mentions
from .monoids import SCATTERS
from .refusal import Refused
from .rule import Use, ragged_dims, refuse
from .rules import RULES
from .rules.control import forward_programs
from .rules.matrices import is_pseudo_inverse


def uses_of(
    jaxpr: AnyJaxpr,
    ranges: Ranges,
    seen_at: str = "",
    overlapping: frozenset[int] | None = None,
) -> Iterator[Use]:
    """Yield the uses of symbolic axes, in the order of the program.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        seen_at: The user's line of the operation that holds the program, for equations without a
            line of their own.
        overlapping: The `id` of each update that may read what it writes; by default they are
            looked for.
    """
    if overlapping is None:
        overlapping = overlapping_updates(jaxpr)
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        op = Op(eqn, ranges, seen_at)
        if not mentions(op):
            continue
        rule = RULES.get(op.name)
        if rule is None:
            dims = ragged_dims(chain.from_iterable((*op.ins, *op.outs)))
            yield refuse(op, dims, f"`{public_name(op.name)}` has no rule")
            continue

        # Padding needs a valid part that fits into what is allocated, and sizes that int32 holds.
        made = ragged_dims(chain.from_iterable(op.outs))
        for dim in {str(dim): dim for dim in made}.values():
            what = f"makes an array of {dim} elements"
            if not is_countable(dim, ranges):
                yield refuse(op, dim, f"{what}, which 32 bits may not count")
            elif not grows(dim, ranges):
                yield refuse(op, dim, f"{what}, which does not grow with it")
        yield from rule.uses_of(op)
        written = ragged_dims(op.ins[0]) if id(eqn) in overlapping else ()
        if written:
            yield refuse(op, written, "updates an array by a moved part of itself")

        # Inside of `pinv` and `lstsq` an SVD with vectors is allowed: see `rules/matrices.py`.
        signs_cancel = is_pseudo_inverse(op)
        for program in forward_programs(op):
            for each in uses_of(program, ranges, op.place, overlapping):
                if signs_cancel and each.op == "svd":
                    yield replace(each, how="its pseudo-inverse", refused=None)
                else:
                    yield each


def demand(jaxpr: AnyJaxpr, ranges: Ranges) -> tuple[Use, ...]:
    """The uses of a program, none of which is refused.

    Raises:
        Refused: The first use that is.
    """
    uses: list[Use] = []
    for use in uses_of(jaxpr, ranges):
        if use.refused is not None:
            raise Refused(use.place, f"{use.refused} (`{public_name(use.op)}`)")
        uses.append(use)
    return tuple(uses)


_STILL = ("broadcast_in_dim", "dot_general", "iota", "squeeze", "transpose")
_REDUCTIONS = ("reduce_", "arg", "cum")


def overlapping_updates(jaxpr: object) -> frozenset[int]:
    """The `id` of each update of a symbolic program that may read what it writes; equations are
    not hashable by identity, and live as long as the program.
    """
    found: set[int] = set()
    if any(map(_is_update, equations(open_jaxpr(jaxpr)[0]))):
        _Moves(found).follow(jaxpr)
    return frozenset(found)


class _Moves:
    """Follows which operations have moved the elements of a value, as bits of a number."""

    def __init__(self, found: set[int]):
        self.found = found
        self.count = 0

    def follow(self, jaxpr: object) -> None:
        """Look at a program whose arguments lie in memory, as those of a loop's body do."""
        given = [0] * len(open_jaxpr(jaxpr)[0].invars)
        without_calls(jaxpr, given, self._results, constant=_none)

    def _results(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        at: CallStack,
    ) -> list[int]:
        del at
        if _is_update(eqn):
            array, update = operands[0], operands[_place_of_update(eqn)]
            if array & update:
                self.found.add(id(eqn))
            return [array]
        moved = 0
        for operand in operands:
            moved |= operand
        if _moves(eqn):
            moved |= 1 << self.count
            self.count += 1
        for program in programs(eqn.params):
            self.follow(program)
        return [moved] * len(eqn.outvars)


def _moves(eqn: JaxprEqn) -> bool:
    """Return whether an operation may move elements along a symbolic axis, as a gather does; in
    doubt it does.
    """
    name = eqn.primitive.name
    if name in ARITHMETIC | LOGIC or name in _STILL or name.startswith(_REDUCTIONS):
        return False
    before = [_symbolic(atom.aval.shape) for atom in eqn.invars]
    after = [_symbolic(var.aval.shape) for var in eqn.outvars]
    if name == "rev":
        shape = eqn.invars[0].aval.shape
        return any(is_ragged(shape[axis]) for axis in eqn.params["dimensions"])
    if name in ("slice", "dynamic_slice", "pad", "concatenate"):
        return any(dims != after[0] for dims in before if dims or after[0])
    return any((*before, *after))


def _symbolic(shape: Sequence[Dim]) -> list[tuple[int, str]]:
    return [(axis, str(dim)) for axis, dim in enumerate(shape) if is_ragged(dim)]


def _none(value: object, aval: Aval, eqn: JaxprEqn | None) -> int:
    del value, aval, eqn
    return 0


def _is_update(eqn: JaxprEqn) -> bool:
    """Return whether an equation writes one window of several elements."""
    name = eqn.primitive.name
    if name in SCATTERS or name == "scatter":
        windows = eqn.invars[1].aval.shape[:-1]
        return all(size == 1 for size in windows) and _has_several(eqn.invars[2].aval)
    return name == "dynamic_update_slice" and _has_several(eqn.invars[1].aval)


def _has_several(update: Aval) -> bool:
    return any(size != 1 for size in update.shape)


def _place_of_update(eqn: JaxprEqn) -> int:
    return 1 if eqn.primitive.name == "dynamic_update_slice" else 2
