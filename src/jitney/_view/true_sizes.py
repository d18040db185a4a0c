"""True sizes of padded axes, which travel behind the arrays of a call into its program.

Numbers that Python computes from the sizes travel with them, if the body has such: `1 - n / (n +
1)` is a Python number of 64 bits. They are read from a trace at the true size. A program discovers
during its own trace that it needs such numbers: it stops then (`NeedsNumbers`) and is called again
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._jax.trees import register_pytree_node
from .._jax.typed import Array

if TYPE_CHECKING:
    from .._axes.symbolic.symbolic_trace import SymbolicProgram
    from .._axes.unified.sized_function import Avals
    from .result import Outcome


class TrueSizes:
    """True sizes as a pytree: one int32 scalar for each padded axis.

    Args:
        values: The true sizes.
        names: Names of the axes.
        weak: For each array, whether it was weakly typed before it was padded; NumPy arrays are
            not. The weak type changes what the body computes, so it is part of the program's key,
            as the names are.
        numbers: Numbers that Python computed from the sizes.
        sizes: Axis -> true size, outside of a program, where it is known.
        turn: Which program of the bucket takes them; it has others for sizes at which the body does
            other operations.
    """

    def __init__(
        self,
        values: Sequence[object],
        names: tuple[str, ...],
        weak: tuple[bool, ...],
        numbers: Sequence[Array | jax.ShapeDtypeStruct] = (),
        sizes: Mapping[str, int] | None = None,
        turn: int = 0,
    ):
        self.values = tuple(values)
        self.names = names
        self.weak = weak
        self.numbers = tuple(numbers)
        self.sizes = sizes
        self.turn = turn
        # JAX flattens them in each call.
        self.flat = (*self.values, *self.numbers), (names, weak, turn)

    @property
    def key(self) -> tuple[object, ...]:
        """Part of the program's key."""
        return self.names, self.weak, len(self.numbers), self.turn

    def abstract(self) -> TrueSizes:
        """The same with shapes and dtypes in place of the numbers."""
        values = [jax.ShapeDtypeStruct((), np.int32) for _ in self.values]
        numbers = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.numbers]
        return TrueSizes(
            values,
            self.names,
            self.weak,
            numbers,
            self.sizes,
            self.turn,
        )

    def replace(
        self,
        numbers: Sequence[Array],
        sizes: Mapping[str, int] | None = None,
        values: Sequence[object] | None = None,
    ) -> TrueSizes:
        """True sizes for the same program: with other numbers, and other sizes if these are
        given.
        """
        return TrueSizes(
            self.values if values is None else values,
            self.names,
            self.weak,
            numbers,
            sizes,
            self.turn,
        )


# Limits for one program: sizes whose numbers are memoised, and bytes of these numbers.
_MOST_SIZES = 65_536
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Proof:
    """Program of a body with symbolic sizes, and the means to trace it at a concrete size.

    Args:
        program: The program.
        fn: The body.
        avals: Returns its arguments, given a size for each symbol.
        symbols: Axis -> symbol.
        subject: Key of what was proven: the axes, the arguments and the sizes of the call.
        outcome: Findings of the traces of the body.
        derivatives: Positions of the arguments that vary -> the proof of the derivative, of those
            that have to be traced at each size; filled in while JAX differentiates.
    """

    program: SymbolicProgram
    fn: Callable[..., object]
    avals: Avals
    symbols: Mapping[str, str]
    subject: Hashable = None
    outcome: Outcome | None = field(default=None, compare=False, repr=False)
    derivatives: Derivatives = field(
        default_factory=dict[tuple[int, ...], "Proof"],
        compare=False,
        repr=False,
    )
    _done: dict[tuple[int, ...], Sequence[Array]] = field(
        default_factory=dict[tuple[int, ...], Sequence[Array]],
        compare=False,
        repr=False,
    )

    def numbers_at(self, sizes: Mapping[str, int]) -> Sequence[Array]:
        """Numbers that Python computes from these sizes of axes: those of the program, then those
        of each derivative, behind a 0 that stands for it.

        Raises:
            Refused: The body, or a derivative, performs other operations at these sizes.
        """
        along = [*self.derivatives.values()]
        key = (len(along), *(sizes[name] for name in self.symbols))
        numbers = self._done.get(key)
        if numbers is None:
            of_symbols = {symbol: sizes[name] for name, symbol in self.symbols.items()}
            numbers = self.program.numbers_at(self.fn, self.avals, of_symbols)
            if self.outcome is not None:
                self.outcome.refuse_differences()
            for proof in along:
                numbers = [*numbers, np.zeros((), np.int32), *proof.numbers_at(sizes)]
            size = sum(number.nbytes for number in numbers) or 1
            if len(self._done) < min(_MOST_SIZES, _MOST_BYTES // size):
                self._done[key] = numbers
        return numbers


Derivatives = dict[tuple[int, ...], Proof]
"""Positions of the arguments that vary -> the proof of the derivative."""


class NeedsNumbers(Exception):
    """Signal that the program of a padded call takes numbers computed from its sizes, and was
    called without them.
    """

    def __init__(self, proof: Proof):
        super().__init__(proof)
        self.proof = proof


@dataclass(frozen=True)
class KnownSizes:
    """Sizes of a padded call, as far as they are known while its program is traced.

    Args:
        sizes: Axis -> true size of the present call; None if there is none.
        numbers: Numbers that Python computed from the sizes, as the program takes them.
        derivatives: Those that are traced at each size, where such calls are differentiated by an
            outer transform; None where nothing traces them again.
        proof: That of the trace before, if that has stopped for numbers and this one repeats it.
    """

    sizes: Mapping[str, int] | None = None
    numbers: tuple[Array, ...] = ()
    derivatives: Derivatives | None = None
    proof: Proof | None = None


_NOTHING = KnownSizes()
# A context variable, since several threads may trace at once.
_KNOWN: ContextVar[KnownSizes] = ContextVar("known_sizes", default=_NOTHING)
# For warm calls, where a context manager would take three times as long.
set_known, reset_known = _KNOWN.set, _KNOWN.reset


class knowing:  # noqa: N801 - it is called as a function
    """Scope in which `known_sizes` returns these sizes; each padded call has one."""

    __slots__ = ("_token", "_what")

    def __init__(self, what: KnownSizes):
        self._what = what

    def __enter__(self) -> None:
        self._token = _KNOWN.set(self._what)

    def __exit__(self, *_: object) -> None:
        _KNOWN.reset(self._token)


def known_sizes() -> KnownSizes:
    """Known sizes of the padded call that is being traced."""
    return _KNOWN.get()


def split_counts(arrays: Sequence[object]) -> tuple[Sequence[Any], TrueSizes | None]:
    """Split the arrays of a call from its true sizes, which are None if it is not padded."""
    last = arrays[-1] if arrays else None
    if isinstance(last, TrueSizes):
        return arrays[:-1], last
    return arrays, None


_Names = tuple[tuple[str, ...], tuple[bool, ...], int]


def _unflatten(static: _Names, leaves: Sequence[Any]) -> TrueSizes:
    names, weak, turn = static
    count = len(names)
    return TrueSizes(leaves[:count], names, weak, numbers=leaves[count:], turn=turn)


register_pytree_node(TrueSizes, attrgetter("flat"), _unflatten)
