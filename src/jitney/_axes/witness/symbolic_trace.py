"""Trace a function with symbolic sizes, watched, and compare it with what it is at a size that is at hand."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import export

from ..._jax.jaxprs import opened, programs
from ..._jax.primitives import HOLDERS
from ..._owners import is_users, short
from ..refusal import Refused
from ..typed_jax import make_jaxpr
from .compare_traces import Witness
from .watch import watched

_jax: Any = jax

Shape = tuple[Any, ...]


Sizes = Mapping[str, Any]
"""Symbol -> a size, symbolic or not."""
Avals = Callable[[Sizes], Sequence[Any]]
"""The abstract arguments, from a size for each symbol."""

# Bodies that JAX has traced before are not run again: a value that nobody has had before makes it forget them for one trace.
_fresh: Any = _jax.make_user_context(None)


@dataclass(frozen=True)
class SymbolicProgram:
    """A program with symbolic sizes.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: What Python computes of the sizes, by the variables of the program that stand in for it, and its values at one size.
        each: Why each new size is traced once more, for a line of the plan; None if the program is the same at all sizes.
    """

    jaxpr: Any
    ranges: Mapping[str, tuple[int, int]]
    numbers: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    each: str | None = None

    @property
    def out_dims(self) -> list[Shape]:
        return [tuple(aval.shape) for aval in self.jaxpr.out_avals]

    def numbers_at(self, fn: Callable[..., Any], avals: Avals, sizes: Mapping[str, int]) -> list[Any]:
        """What Python makes of other sizes, for each of `numbers`.

        Raises:
            Refused: At these sizes the function does other operations.
        """
        numbers = witnessed(self.jaxpr, fn, avals, self.ranges, sizes).numbers
        if numbers.keys() != self.numbers.keys():
            raise Refused("", f"does other operations at size {' and '.join(map(str, sizes.values()))}")
        return [numbers[variable] for variable in self.numbers]


def symbolic_sizes(ranges: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """One of JAX's symbolic dimensions for each symbol, known to lie in its range."""
    bounds = [f"{name} {sign} {bound}" for name, (low, high) in ranges.items() for sign, bound in ((">=", low), ("<=", high))]
    return dict(zip(ranges, export.symbolic_shape(", ".join(ranges), constraints=bounds), strict=True))


def trace(
    fn: Callable[..., Any], avals: Avals, ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int] | None = None
) -> SymbolicProgram:
    """Trace `fn` for all sizes in the ranges at once, and compare with what it is at the sizes at hand.

    Args:
        fn: Takes arrays, returns a sequence of arrays.
        avals: The abstract arguments, from a size for each symbol.
        ranges: Symbol -> the least and the largest size it stands for.
        sizes: Symbol -> the size at hand; without it, two of the ranges.

    Raises:
        Refused: The function needs to know a size, or does different things for different ones.
        Exception: What the function raises at any size, known or not.
    """
    at_hand = [sizes] if sizes is not None else probes(ranges)
    jaxpr, looks = _symbolic(fn, avals, ranges, at_hand[0])
    if not ranges:
        return SymbolicProgram(jaxpr, ranges)
    seen = [witnessed(jaxpr, fn, avals, ranges, known) for known in at_hand]
    first = seen[0]
    if any(other.numbers.keys() != first.numbers.keys() for other in seen):
        raise Refused("", "computes other numbers of its size at each size")
    if not first.numbers.keys() <= set(_evaluated(jaxpr)):
        raise Refused("", "computes a number of its size where it cannot be put in")
    lines = list(dict.fromkeys(filter(None, first.places.values())))
    why = f"{', '.join(lines) or 'it'} computes numbers of the size" if first.numbers else None
    if looks:
        why = "; ".join(filter(None, [why, looks[0]]))
    return SymbolicProgram(jaxpr, ranges, first.numbers, why)


def _evaluated(jaxpr: Any) -> Iterator[Any]:
    """What the operations make that an evaluator comes to one by one, in a program and in those whose rules evaluate them."""
    for eqn in opened(jaxpr)[0].eqns:
        yield from eqn.outvars[:1]
        for inner in programs(eqn.params) if eqn.primitive.name in HOLDERS else ():
            yield from _evaluated(inner)


def witnessed(jaxpr: Any, fn: Callable[..., Any], avals: Avals, ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]) -> Witness:
    """Compare a program with symbolic sizes with what the function is at known ones."""
    with _scope(ranges):
        exact = make_jaxpr(_anew(fn))(*avals(sizes))
    witness = Witness(sizes, ranges)
    witness.compare(jaxpr, exact)
    return witness


@contextmanager
def _scope(ranges: Mapping[str, tuple[int, int]]) -> Generator[None]:
    """What is traced here is traced anew, and nothing in it is chosen by a size."""
    token = _AT_ANY_SIZE.set(ranges)
    try:
        with _fresh(object()):
            yield
    finally:
        _AT_ANY_SIZE.reset(token)


def at_any_size() -> bool:
    """Whether what is traced now must do the same at every size, so that nothing may be chosen by a size."""
    return _AT_ANY_SIZE.get() is not None


def ranges_at_hand() -> Mapping[str, tuple[int, int]]:
    """The symbols of the trace under way, and which sizes they stand for; none if all sizes are known."""
    return _AT_ANY_SIZE.get() or {}


_AT_ANY_SIZE: ContextVar[Mapping[str, tuple[int, int]] | None] = ContextVar("at_any_size", default=None)


def _symbolic(
    fn: Callable[..., Any], avals: Avals, ranges: Mapping[str, tuple[int, int]], known: Mapping[str, int]
) -> tuple[Any, Sequence[str]]:
    """The program with symbolic sizes, and where code looked at a size in a way that is right only if each size is traced."""
    sizes = symbolic_sizes(ranges)
    jaxpr: Any = None
    failed: Exception | None = None
    with watched() as seen, _scope(ranges):
        try:
            jaxpr = make_jaxpr(_anew(fn))(*avals(sizes))
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001
            failed = error
    if failed is not None:
        with _scope(ranges):
            make_jaxpr(_anew(fn))(*avals(known))  # raises what is wrong at any size
        raise Refused(_place(failed), f"needs to know a size: {_first_line(failed)}") from failed
    if seen.refused:  # code that catches everything has caught it
        raise seen.refused[0]
    return jaxpr, seen.looks


def _anew(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: JAX may know `fn` from another trace."""

    def again(*arrays: Any) -> Any:
        return fn(*arrays)

    return again


def probes(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Two sets of sizes from the ranges; where there are several symbols their sizes are unequal if they can be."""
    low = {name: min(first + i, last) for i, (name, (first, last)) in enumerate(ranges.items())}
    high = {name: max(last - i, first) for i, (name, (first, last)) in enumerate(ranges.items())}
    return [low] if low == high else [low, high]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(":") or type(error).__name__


def _place(error: BaseException) -> str:
    """The innermost line of the user's in a traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f"{short(frames[-1].filename)}:{frames[-1].lineno} ({frames[-1].name})" if frames else ""
