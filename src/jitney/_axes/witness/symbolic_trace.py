"""Trace a function with symbolic sizes, watched, and compare it with what it is at a size that is
at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
from jax import export

from ..._errors import DerivativeError
from ..._jax.debug_names import named_like
from ..._jax.jaxprs import opened, programs
from ..._jax.primitives import HOLDERS
from ..._jax.user_contexts import FRESH
from ..derivative import demand_no_backward_rules
from ..refusal import Refused
from ..typed_jax import make_jaxpr
from .asked_size import place, said, why
from .compare_traces import Witness
from .scope import SCOPE, Scope
from .watch import watched

_jax: Any = jax

Shape = tuple[Any, ...]
W = TypeVar("W")
S = TypeVar("S")

Sizes = Mapping[str, Any]
"""Symbol -> a size, symbolic or not."""
Avals = Callable[[Sizes], Sequence[Any]]
"""The abstract arguments, from a size for each symbol."""


@dataclass(frozen=True)
class SymbolicProgram:
    """A program with symbolic sizes.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: What Python computes of the sizes, by the variables of the program that stand in
            for it, and its values at one size.
        each: Why each new size is traced once more, for a line of the plan; None if the program is
            the same at all sizes.
        choices: What was chosen for it, once for all sizes.
    """

    jaxpr: Any
    ranges: Mapping[str, tuple[int, int]]
    numbers: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    each: str | None = None
    choices: Choices | None = field(default=None, compare=False)

    @property
    def out_dims(self) -> list[Shape]:
        return [tuple(aval.shape) for aval in self.jaxpr.out_avals]

    def numbers_at(
        self, fn: Callable[..., Any], avals: Avals, sizes: Mapping[str, int]
    ) -> list[Any]:
        """What Python makes of other sizes, for each of `numbers`.

        Raises:
            Refused: At these sizes the function does other operations.
        """
        numbers = witnessed(self.jaxpr, fn, avals, self.ranges, sizes, self.choices).numbers
        if numbers.keys() != self.numbers.keys():
            raise Refused(
                "", f"does other operations at size {' and '.join(map(str, sizes.values()))}"
            )
        return [numbers[variable] for variable in self.numbers]


def symbolic_sizes(ranges: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """One of JAX's symbolic dimensions for each symbol, known to lie in its range."""
    bounds = [
        f"{name} {sign} {bound}"
        for name, (low, high) in ranges.items()
        for sign, bound in ((">=", low), ("<=", high))
    ]
    return dict(
        zip(ranges, export.symbolic_shape(", ".join(ranges), constraints=bounds), strict=True)
    )


def trace(
    fn: Callable[..., Any],
    avals: Avals,
    ranges: Mapping[str, tuple[int, int]],
    sizes: Mapping[str, int] | None = None,
    *,
    choices: Choices | None = None,
) -> SymbolicProgram:
    """Trace `fn` for all sizes in the ranges at once, and compare with what it is at the sizes at
    hand.

    Args:
        fn: Takes arrays, returns a sequence of arrays.
        avals: The abstract arguments, from a size for each symbol.
        ranges: Symbol -> the least and the largest size it stands for.
        sizes: Symbol -> the size at hand; without it, two of the ranges.
        choices: Where it is kept what is chosen by what the function is at some sizes; None where
            nothing may be.

    Raises:
        Refused: The function needs to know a size, does different things for different ones, or is
            a derivative with rules that only go backwards.
        Exception: What the function raises at any size, known or not.
    """
    at_hand = [sizes] if sizes is not None else probes(ranges)
    if choices is not None:
        choices.begin(fn, avals, ranges)
    jaxpr, looks = _symbolic(fn, avals, ranges, at_hand[0], choices)
    demand_no_backward_rules(jaxpr)
    if not ranges:
        return SymbolicProgram(jaxpr, ranges)
    seen = [witnessed(jaxpr, fn, avals, ranges, known, choices) for known in at_hand]
    first = seen[0]
    if any(other.numbers.keys() != first.numbers.keys() for other in seen):
        raise Refused("", "computes other numbers of its size at each size")
    if not first.numbers.keys() <= set(_evaluated(jaxpr)):
        raise Refused("", "computes a number of its size where it cannot be put in")
    lines = list(dict.fromkeys(filter(None, first.places.values())))
    if choices is not None and choices.any:
        lines.append("the structure of its derivative")
    why = f"{', '.join(lines) or 'it'} computes numbers of the size" if first.numbers else None
    if looks:
        why = "; ".join(filter(None, [why, looks[0]]))
    return SymbolicProgram(jaxpr, ranges, first.numbers, why, choices)


def _evaluated(jaxpr: Any) -> Iterator[Any]:
    """What the operations make that an evaluator comes to one by one, in a program and in those
    whose rules evaluate them.
    """
    for eqn in opened(jaxpr)[0].eqns:
        yield from eqn.outvars[:1]
        for inner in programs(eqn.params) if eqn.primitive.name in HOLDERS else ():
            yield from _evaluated(inner)


def witnessed(
    jaxpr: Any,
    fn: Callable[..., Any],
    avals: Avals,
    ranges: Mapping[str, tuple[int, int]],
    sizes: Mapping[str, int],
    choices: Choices | None = None,
) -> Witness:
    """Compare a program with symbolic sizes with what the function is at known ones."""
    with _scope(ranges, choices):
        exact = make_jaxpr(_anew(fn))(*avals(sizes))
    witness = Witness(sizes, ranges)
    witness.compare(jaxpr, exact)
    return witness


class Choices:
    """What is chosen once for a program, by what its function is at some sizes, and holds at all of
    them.

    The trace with symbolic sizes asks first; then the function is rehearsed at sizes that are
    known. Every later trace is given the same, in the order in which they ask.
    """

    def __init__(self) -> None:
        self._begun: tuple[Callable[..., Any], Avals, Mapping[str, tuple[int, int]]] | None = None
        self._made: list[Any] | None = None

    def begin(
        self, fn: Callable[..., Any], avals: Avals, ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        """Of which function."""
        self._begun = fn, avals, ranges

    @property
    def any(self) -> bool:
        """Whether anything was chosen."""
        return any(choice is not None for choice in self._made or ())

    @property
    def made(self) -> list[Any]:
        """What was chosen, in the order of the trace."""
        if self._made is None:
            asked = list(self._asked())
            first = asked[0] if len({len(wishes) for wishes in asked}) == 1 else []
            self._made = [
                _settled(settle, [wishes[i][0] for wishes in asked])
                for i, (_, settle) in enumerate(first)
            ]
        return self._made

    def _asked(self) -> Iterator[list[tuple[Any, Callable[[Sequence[Any]], Any]]]]:
        """What is asked for at the largest sizes. No size at hand is among them: what is chosen is
        the same in every process.

        Raises:
            Refused: The function fails at one of them.
        """
        if self._begun is None:
            return
        fn, avals, ranges = self._begun
        for below in range(_REHEARSED):
            sizes = {name: max(low, high - below) for name, (low, high) in ranges.items()}
            try:
                with _scope(ranges, self, rehearsed=[]) as scope:
                    make_jaxpr(_anew(fn))(*avals(sizes))
            except (Refused, DerivativeError):  # of any size
                raise
            except Exception as error:
                at = " and ".join(map(str, sizes.values()))
                raise Refused(
                    place(error), f"cannot be traced at size {at}: {said(error)}"
                ) from error
            yield scope.rehearsed or []


_REHEARSED = 3  # sizes; the colours of a ring of neighbours depend on the remainder by 3


def _settled(settle: Callable[[Sequence[Any]], Any], wishes: Sequence[Any]) -> Any:
    return None if any(wish is None for wish in wishes) else settle(wishes)


def chosen(wish: Callable[[], W | None], settle: Callable[[Sequence[W]], S | None]) -> S | None:
    """What holds at all sizes of the trace under way; None where nothing is chosen.

    Args:
        wish: What this would be at the size of the trace, which is known when it is asked; None for
            nothing.
        settle: Makes a choice of the wishes of several sizes; those of the largest stand first.
    """
    scope = SCOPE.get()
    if scope is None or scope.choices is None:
        return None
    if scope.rehearsed is not None:
        scope.rehearsed.append((wish(), settle))
        return None
    made = scope.choices.made
    scope.turn += 1
    return made[scope.turn - 1] if scope.turn <= len(made) else None


@contextmanager
def _scope(
    ranges: Mapping[str, tuple[int, int]],
    choices: Choices | None = None,
    rehearsed: list[tuple[Any, Callable[[Sequence[Any]], Any]]] | None = None,
) -> Generator[Scope]:
    """What is traced here is traced anew, and nothing in it is chosen by a size."""
    scope = Scope(ranges, choices, rehearsed)
    token = SCOPE.set(scope)
    try:
        # bodies that JAX has traced before are not run again: a value that nobody has had makes it
        # forget them
        with FRESH(object()):
            yield scope
    finally:
        SCOPE.reset(token)


def _symbolic(
    fn: Callable[..., Any],
    avals: Avals,
    ranges: Mapping[str, tuple[int, int]],
    known: Mapping[str, int],
    choices: Choices | None,
) -> tuple[Any, Sequence[str]]:
    """The program with symbolic sizes, and where code looked at a size in a way that is right only
    if each size is traced.
    """
    sizes = symbolic_sizes(ranges)
    jaxpr: Any = None
    failed: Exception | None = None
    with watched() as seen, _scope(ranges, choices):
        try:
            jaxpr = make_jaxpr(_anew(fn))(*avals(sizes))
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001
            failed = error
    if failed is not None:
        with _scope(ranges, choices):
            make_jaxpr(_anew(fn))(*avals(known))  # raises what is wrong at any size
        raise Refused(place(failed), why(failed)) from failed
    if seen.refused:  # code that catches everything has caught it
        raise seen.refused[0]
    return jaxpr, seen.looks


def _anew(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: JAX may know `fn` from another trace."""

    def again(*arrays: Any) -> Any:
        return fn(*arrays)

    return named_like(again, fn)


def probes(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Two sets of sizes from the ranges; where there are several symbols their sizes are unequal if
    they can be.
    """
    low = {name: min(first + i, last) for i, (name, (first, last)) in enumerate(ranges.items())}
    high = {name: max(last - i, first) for i, (name, (first, last)) in enumerate(ranges.items())}
    return [low] if low == high else [low, high]
