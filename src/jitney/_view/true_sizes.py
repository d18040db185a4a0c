"""The true sizes of padded axes, as they travel behind the arrays of a call into its program.

Beside them travel the numbers that Python made of the sizes, where the body has such: `1 - n / (n +
1)` is a number for Python, in 64 bits. They are read off a trace at the true size. A program that
meets its first size learns only while it is traced that there are such numbers: it stops, and is
called again with them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .._jax.trees import register_pytree_node


class Counts:
    """One int32 scalar for each padded axis.

    Args:
        values: The true sizes.
        names: Of which axes.
        weak: Which arrays were weakly typed before they were filled; NumPy arrays are not. It
            changes what the body computes, so it is part of the program's key, as the names are.
        numbers: What Python made of the sizes.
        sizes: Axis -> true size, where it is known: not inside a program.
    """

    def __init__(
        self,
        values: Sequence[Any],
        names: tuple[str, ...],
        weak: tuple[bool, ...],
        numbers: Sequence[Any] = (),
        sizes: Mapping[str, int] | None = None,
    ):
        self.values = tuple(values)
        self.names = names
        self.weak = weak
        self.numbers = tuple(numbers)
        self.sizes = sizes

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells programs apart."""
        return self.names, self.weak, len(self.numbers)

    def abstract(self) -> Counts:
        """The same without the numbers: shapes and types alone."""
        values, numbers = (
            [jax.ShapeDtypeStruct((), np.int32) for _ in self.values],
            [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.numbers],
        )
        return Counts(values, self.names, self.weak, numbers, self.sizes)


_MOST_SIZES = 65_536  # that one program remembers,
_MOST_BYTES = 1 << 26  # and of their numbers


@dataclass(frozen=True)
class Proof:
    """A body's program with symbolic sizes, and how to trace it at a size.

    Args:
        program: The program.
        fn: The body.
        avals: Its arguments, from a size for each symbol.
        symbols: Axis -> symbol.
        check: Called after each trace.
    """

    program: Any
    fn: Callable[..., Any]
    avals: Callable[[Any], Sequence[Any]]
    symbols: Mapping[str, str]
    check: Callable[[], None] | None = None
    _done: dict[tuple[int, ...], list[Any]] = field(
        default_factory=dict[tuple[int, ...], list[Any]], compare=False, repr=False
    )

    def numbers_at(self, sizes: Mapping[str, int]) -> list[Any]:
        """What Python makes of these sizes of axes.

        Raises:
            Refused: At these sizes the body does other operations.
        """
        key = tuple(sizes[name] for name in self.symbols)
        numbers = self._done.get(key)
        if numbers is None:
            numbers = self.program.numbers_at(
                self.fn, self.avals, {symbol: sizes[name] for name, symbol in self.symbols.items()}
            )
            if self.check is not None:
                self.check()
            if len(self._done) < min(
                _MOST_SIZES, _MOST_BYTES // (sum(x.nbytes for x in numbers) or 1)
            ):
                self._done[key] = numbers
        return numbers


class NeedsNumbers(Exception):
    """The program of a padded call takes numbers made of its sizes, and was called without them."""

    def __init__(self, proof: Proof):
        super().__init__(proof)
        self.proof = proof


@dataclass(frozen=True)
class KnownSizes:
    """What is known of the sizes of a padded call while its program is traced.

    Args:
        sizes: Axis -> the true size of the call at hand; None if there is none.
        numbers: What Python made of the sizes, as the program takes them.
    """

    sizes: Mapping[str, int] | None = None
    numbers: tuple[Any, ...] = ()


_NOTHING = KnownSizes()
_KNOWN: ContextVar[KnownSizes] = ContextVar("known_sizes", default=_NOTHING)


@contextmanager
def knowing(what: KnownSizes) -> Generator[None]:
    """The scope in which this is known of the sizes of a padded call."""
    token = _KNOWN.set(what)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def known() -> KnownSizes:
    """What is known of the sizes of the padded call that is being traced."""
    return _KNOWN.get()


def parted(arrays: Sequence[Any]) -> tuple[Sequence[Any], Counts | None]:
    """The arrays of a call, and its true sizes if it is padded."""
    return (
        (arrays[:-1], arrays[-1]) if arrays and isinstance(arrays[-1], Counts) else (arrays, None)
    )


register_pytree_node(
    Counts,
    lambda counts: ((*counts.values, *counts.numbers), (counts.names, counts.weak)),
    lambda what, values: Counts(values[: len(what[0])], *what, numbers=values[len(what[0]) :]),
)
