"""Updates of an array by a moved part of itself, which are refused.

    a = x[::-1]
    lax.dynamic_update_slice(a, a[2:5], [3])

Padded, `a` is a gather. XLA for CPUs takes the gather, the slice and the update as one loop in
place, and reads elements that it has written (jaxlib 0.10.2, 0.12.0): `a[2]` three times. At exact
size the same is a reversal, and right. The hazard needs one operation that moves elements from
which both the array and the update are made, and a window of several elements. An array of its own
for the update, and barriers, are undone by XLA. What a loop, a sort or a scatter of several windows
has made lies in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._jax.programs.evaluation import CallStack, without_calls
from .._jax.programs.jaxprs import equations, open_jaxpr, programs
from .._jax.programs.primitives import ARITHMETIC, LOGIC
from .._jax.typed import Aval, JaxprEqn
from .dims import Dim, is_ragged
from .monoids import SCATTERS

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
        if _is_stored(eqn):
            moved = 0
        return [moved] * len(eqn.outvars)


def _is_stored(eqn: JaxprEqn) -> bool:
    """Return whether results lie in memory before they are read: XLA takes no loop, sort or scatter
    of several windows together with what follows.
    """
    name = eqn.primitive.name
    if name == "scan":
        # Unrolled it may be no loop.
        return is_ragged(eqn.params["length"]) and eqn.params["unroll"] == 1
    if name in SCATTERS or name == "scatter":
        return any(map(is_ragged, eqn.invars[1].aval.shape[:-1]))
    return name == "sort"


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
