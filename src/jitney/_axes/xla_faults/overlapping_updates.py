"""Updates of an array by a moved part of itself, which are written without an update in place.

    a = x[::-1]
    lax.dynamic_update_slice(a, a[2:5], [3])

Padded, `a` is a gather. XLA for CPUs takes the gather, the slice and the update as one loop in
place, and reads elements that it has written (jaxlib 0.10.2, 0.12.0): `a[2]` three times. At exact
size the same is a reversal, and right. The hazard needs one operation that moves elements from
which both the array and the update are made, and a window of several elements. XLA makes one of
equal operations, and undoes barriers and an array of its own for the update. What a loop
over the axis, a sort along it or a scatter to as many positions has made lies in memory.

    a = x[:, None]
    a.at[1:].set(a[:-1])

The other hazard: XLA writes into an array that lies in memory in another shape (a bitcast), and
does not see that the update reads the same memory. At exact size the start is a number, and
nothing is written in place.

In a program that has such an update, each element of the result is chosen: that of the array, or
that of the update. XLA makes an array of its own for the choice, never an update in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from ..._jax.programs.evaluation import CallStack, without_calls
from ..._jax.programs.jaxprs import (
    equations,
    open_jaxpr,
    programs,
    scan_parts,
    solve_operands,
    while_parts,
)
from ..._jax.programs.primitives import ARITHMETIC, LOGIC
from ..._jax.typed import Aval, JaxprEqn
from ..dims import Dim, is_ragged
from ..monoids import SCATTERS
from ..typed_jax import dtypes, jnp, lax

_STILL = ("broadcast_in_dim", "dot_general", "iota", "squeeze", "transpose")
_OF_EQUAL_RANK = ("concatenate", "dynamic_slice", "pad", "rev", "slice", "sort")
_REDUCTIONS = ("reduce_", "arg", "cum")


def overlapping_updates(jaxpr: object) -> frozenset[int]:
    """The `id` of each update of a symbolic program that may read what it writes; equations are
    not hashable by identity, and live as long as the program.
    """
    found: set[int] = set()
    if any(map(is_update, equations(open_jaxpr(jaxpr)[0]))):
        _Moves(found).in_memory(jaxpr)
    return frozenset(found)


def window_at(
    update: jax.Array,
    starts: Sequence[jax.Array],
    shape: Sequence[int],
) -> tuple[jax.Array, jax.Array]:
    """The elements of an update at their positions in an array of a shape, anything elsewhere, and
    a mask of the positions that it covers. A window lies inside of the array.
    """
    covered = jnp.ones(shape, np.bool_)
    for axis, (start, size) in enumerate(zip(starts, shape, strict=True)):
        length = update.shape[axis]
        if length == size:
            continue
        positions = lax.broadcasted_iota(np.int32, shape, axis) - start
        covered &= (positions >= 0) & (positions < length)
        update = _spread(update, start, size, axis)
    return update, covered


def _spread(
    update: jax.Array,
    start: jax.Array,
    size: int,
    axis: int,
) -> jax.Array:
    """The elements of an update from a position on along an axis of a size; others are anything."""
    if dtypes.issubdtype(update.dtype, dtypes.extended):
        at = lax.iota(np.int32, size) - start
        return jnp.take(update, at, axis=axis, mode="clip")
    around = [(0, 0, 0)] * update.ndim
    around[axis] = (size, size, 0)
    wide = lax.pad(update, lax.full((), 0, update.dtype), around)
    return lax.dynamic_slice_in_dim(wide, size - start, size, axis)


class _Value(NamedTuple):
    """Arrays in memory that a value is made of, operations that have moved its elements, and arrays
    in memory that it may be in another shape, as bits of numbers.
    """

    made_of: int = 0
    moved: int = 0
    shaped: int = 0


def _all_of(values: Iterable[_Value]) -> _Value:
    made_of = moved = shaped = 0
    for value in values:
        made_of |= value.made_of
        moved |= value.moved
        shaped |= value.shaped
    return _Value(made_of, moved, shaped)


class _Moves:
    """Follows which operations have moved the elements of a value. Equal operations on the same
    arrays are one, as XLA merges them.
    """

    def __init__(self, found: set[int]):
        self.found = found
        self.bits: dict[object, int] = {}
        self.scalars = 0

    def bit(self, key: object) -> int:
        """The bit of an array or operation."""
        return 1 << self.bits.setdefault(key, len(self.bits))

    def in_memory(self, jaxpr: object) -> list[_Value]:
        """Look at a program whose arguments lie in memory, and return its results."""
        given: list[_Value] = []
        for var in open_jaxpr(jaxpr)[0].invars:
            given.append(_Value(self.bit(var)))
            if not var.aval.shape:
                self.scalars |= self.bit(var)
        return self.follow(jaxpr, given)

    def follow(self, jaxpr: object, given: Sequence[_Value]) -> list[_Value]:
        """Look at a program, and return its results."""
        return without_calls(jaxpr, given, self._results, constant=self._constant)

    def _constant(self, value: object, aval: Aval, eqn: JaxprEqn | None) -> _Value:
        is_number = eqn is not None or not aval.shape
        return _Value() if is_number else _Value(self.bit(id(value)))

    def _results(
        self,
        eqn: JaxprEqn,
        operands: list[_Value],
        at: CallStack,
    ) -> list[_Value]:
        del at
        if is_update(eqn):
            array, update = operands[0], operands[_place_of_update(eqn)]
            reads = array.shaped & update.made_of & ~self.scalars
            if array.moved & update.moved or reads:
                self.found.add(id(eqn))
            return [_Value(array.made_of | update.made_of, array.moved, array.shaped)]
        held = programs(eqn.params)
        inner = self._inside(eqn, operands) if held else []
        made_of, moved, shaped = _all_of((*operands, *inner))
        if held and eqn.primitive.name in ("scan", "while"):
            shaped = _all_of(inner).shaped
        if _moves(eqn):
            moved |= self.bit(id(eqn) if held else (_text(eqn), made_of))
        if _is_stored(eqn):
            moved = shaped = 0
        elif not held and _shapes(eqn):
            shaped = made_of
        if eqn.primitive.name == "cond":
            count = len(eqn.outvars)
            return [_Value(made_of, moved, _all_of(inner[i::count]).shaped) for i in range(count)]
        return [_Value(made_of, moved, shaped)] * len(eqn.outvars)

    def _inside(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        """Look at the programs that an operation holds. The arguments of a loop's body lie in
        memory, but XLA puts the body of a loop of one turn, and a branch that it knows, in the
        place of the operation; `jax.vmap` does so with branches. Padding evaluates the `solve` of a
        `custom_linear_solve` in its place.
        """
        name = eqn.primitive.name
        if name == "custom_linear_solve":
            return self.follow(eqn.params["jaxprs"].solve, solve_operands(eqn, operands))
        if name == "cond":
            return [x for each in programs(eqn.params) for x in self.follow(each, operands[1:])]
        if name == "while" and _is_counted(eqn, operands):
            _, constants, carry = while_parts(eqn, operands)
            return self.follow(eqn.params["body_jaxpr"], [*constants, *carry])
        if name == "scan" and _is_inlined(eqn):
            constants, carry, rows = scan_parts(eqn, operands)
            # Two turns: the carry of the second is what the first has made.
            once = self.follow(eqn.params["jaxpr"], [*constants, *carry, *rows])
            again = [*constants, *once[: len(carry)], *rows]
            return [*once, *self.follow(eqn.params["jaxpr"], again)]
        made = [x for each in programs(eqn.params) for x in self.in_memory(each)]
        # What a loop carries lies in memory.
        return [x._replace(shaped=0) for x in made] if name in ("scan", "while") else made


def _text(eqn: JaxprEqn) -> str:
    params = sorted(eqn.params.items())
    return f"{eqn.primitive.name} {params}"


def _is_inlined(eqn: JaxprEqn) -> bool:
    """Return whether XLA may have the body of a scan in place of a loop: of one turn, or of several
    that JAX has unrolled.
    """
    length = eqn.params["length"]
    # What is made of a size may be 1 where the size itself is not.
    may_be_one = not str(length).isidentifier() if is_ragged(length) else length == 1
    return may_be_one or eqn.params["unroll"] != 1


def _is_counted(eqn: JaxprEqn, operands: Sequence[_Value]) -> bool:
    """Return whether XLA may count the turns of a `while`: no array in memory decides on them."""
    known: list[bool] = [not x.made_of for x in operands]
    of_condition, of_body, carry = while_parts(eqn, known)
    before: list[bool] | None = None
    while carry != before:
        before = carry
        after = _known(eqn.params["body_jaxpr"], [*of_body, *carry])
        carry = [a and b for a, b in zip(carry, after, strict=True)]
    return all(_known(eqn.params["cond_jaxpr"], [*of_condition, *carry]))


def _known(program: object, given: Iterable[bool]) -> list[bool]:
    """Return which results of a program are made of known numbers alone."""

    def results(eqn: JaxprEqn, reads: Sequence[bool], _: object) -> list[bool]:
        return [all(reads)] * len(eqn.outvars)

    def constant(*_: object) -> bool:
        return True

    return without_calls(program, given, results, constant=constant)


def _is_stored(eqn: JaxprEqn) -> bool:
    """Return whether results lie in memory before they are read: XLA takes no loop, sort or scatter
    of several turns, elements or windows together with what follows.
    """
    name = eqn.primitive.name
    if name == "scan":
        return is_ragged(eqn.params["length"]) and not _is_inlined(eqn)
    if name in SCATTERS or name == "scatter":
        return any(map(_is_several, eqn.invars[1].aval.shape[:-1]))
    return name == "sort" and _is_several(eqn.invars[0].aval.shape[eqn.params["dimension"]])


def _is_several(size: Dim) -> bool:
    """Return whether a size is one of a padded axis, which is not 1; what is made of it may be."""
    return is_ragged(size) and str(size).isidentifier()


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


def _shapes(eqn: JaxprEqn) -> bool:
    """Return whether what an operation makes may be what it reads, in another shape."""
    name = eqn.primitive.name
    if name in ARITHMETIC | LOGIC or name in _OF_EQUAL_RANK:
        return False
    after = [var.aval.shape for var in eqn.outvars]
    read = eqn.invars[:1] if name == "gather" else eqn.invars
    before = [atom.aval.shape for atom in read if any(map(is_ragged, atom.aval.shape))]
    # The sum of several elements is another one; that of an axis of one element is the element.
    if name.startswith(_REDUCTIONS):
        axes = eqn.params.get("axes", ())
        return bool(axes) and any(all(shape[axis] == 1 for axis in axes) for shape in before)
    if name == "dot_general":
        (left, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return all(not is_ragged(shape[axis]) and shape[axis] == 1 for axis in left)
    return any(shape != of for shape in before for of in after)


def _symbolic(shape: Sequence[Dim]) -> list[tuple[int, str]]:
    return [(axis, str(dim)) for axis, dim in enumerate(shape) if is_ragged(dim)]


def is_update(eqn: JaxprEqn) -> bool:
    """Return whether an equation writes one window of several elements."""
    name = eqn.primitive.name
    if name in SCATTERS or name == "scatter":
        windows = eqn.invars[1].aval.shape[:-1]
        return all(size == 1 for size in windows) and _has_several(eqn.invars[2].aval)
    if name != "dynamic_update_slice":
        return False
    array, update = eqn.invars[0].aval, eqn.invars[1].aval
    # One of the whole array is the update itself.
    return _has_several(update) and array.shape != update.shape


def _has_several(update: Aval) -> bool:
    return any(size != 1 for size in update.shape)


def _place_of_update(eqn: JaxprEqn) -> int:
    return 1 if eqn.primitive.name == "dynamic_update_slice" else 2
