"""Trace a function with symbolic sizes, while its code is watched, and compare the program with a
trace at known sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jax import export

from ..._errors import DerivativeError
from ..._jax.debug_names import named_like
from ..._jax.jaxprs import open_jaxpr, programs
from ..._jax.primitives import HOLDERS
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, NumPyArray, Var
from ..._jax.user_contexts import FRESH
from ..derivative import demand_no_backward_rules
from ..dims import Dim
from ..interpreter import Ranges
from ..refusal import AsksForSize, Refused
from ..typed_jax import make_jaxpr
from .compare_traces import Witness
from .dim_hooks import SizeUses, hooked_dims
from .example_sizes import example_sizes
from .graph import at
from .narrow_sizes import narrow_sizes
from .number_of_size import fill_up
from .range_ends import range_ends
from .scope import SCOPE, Proposal, Scope
from .size_errors import explain_size_error, first_line, place
from .unify_traces import Unifier, expand_closed, reads_sizes_inside

Shape = tuple[Dim, ...]
W = TypeVar("W")
S = TypeVar("S")

Sizes = Mapping[str, Dim]
"""Symbol -> a size, symbolic or not."""
Avals = Callable[[Sizes], Sequence[object]]
"""The abstract arguments, from a size for each symbol."""


@dataclass(frozen=True)
class SymbolicProgram:
    """A program with symbolic sizes.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Variable of the program -> the value that Python computed from the sizes in its
            place, at one size.
        each: The reason why each new size is traced once more, for a line of the plan; None if the
            program is the same at all sizes.
        choices: The choices that were made for it, once for all sizes.
        is_expanded: True if the closed primitives were replaced by what they compute.
    """

    jaxpr: ClosedJaxpr
    ranges: Ranges
    numbers: Mapping[Var, NumPyArray] = field(default_factory=dict[Var, NumPyArray])
    each: str | None = None
    choices: Choices | None = field(default=None, compare=False)
    is_expanded: bool = field(default=False, compare=False)

    @property
    def out_dims(self) -> list[Shape]:
        return [tuple(aval.shape) for aval in self.jaxpr.out_avals]

    def numbers_at(
        self,
        fn: Callable[..., object],
        avals: Avals,
        sizes: Mapping[str, int],
    ) -> list[NumPyArray]:
        """The values of `numbers` at other sizes.

        Raises:
            Refused: At these sizes the function does other operations.
        """
        witness = trace_witness(
            self.jaxpr,
            fn,
            avals,
            self.ranges,
            sizes,
            self.choices,
            is_expanded=self.is_expanded,
        )
        numbers = witness.numbers
        if numbers.keys() != self.numbers.keys():
            size = " and ".join(map(str, sizes.values()))
            raise Refused("", f"does other operations at size {size}")
        allocated = {symbol: high for symbol, (_, high) in self.ranges.items()}
        return [
            fill_up(numbers[variable], at(variable.aval.shape, allocated))
            for variable in self.numbers
        ]


def symbolic_sizes(ranges: Ranges) -> dict[str, Dim]:
    """Make a JAX symbolic dimension for each symbol, constrained to its range."""
    bounds: list[str] = []
    for name, (low, high) in ranges.items():
        bounds += [f"{name} >= {low}", f"{name} <= {high}"]
    dims = export.symbolic_shape(", ".join(ranges), constraints=bounds)
    return dict(zip(ranges, dims, strict=True))


def trace(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    sizes: Mapping[str, int] | None = None,
    *,
    choices: Choices | None = None,
    examples: bool = True,
) -> SymbolicProgram:
    """Trace `fn` for all sizes in the ranges at once, and compare the program with traces at known
    sizes.

    Args:
        fn: Function of arrays that returns a sequence of arrays.
        avals: The abstract arguments, from a size for each symbol.
        ranges: Symbol -> the least and the largest size it stands for.
        sizes: Symbol -> the size of the call; without it, two sizes from the ranges.
        choices: Store of the choices that depend on sampled sizes; None where none may be made.
        examples: Whether the program may be made from traces at known sizes, where no trace with
            symbolic sizes goes through.

    Raises:
        Refused: The function needs to know a size, does different operations at different sizes, or
            is a derivative with rules for reverse mode only.
        Exception: Any exception that the function raises at known sizes too.
    """
    at_hand = [sizes] if sizes is not None else probes(ranges)
    if choices is not None:
        choices.begin(fn, avals, ranges)
    try:
        jaxpr, looks = _symbolic(
            fn,
            avals,
            ranges,
            at_hand[0],
            choices,
        )
        is_expanded = reads_sizes_inside(jaxpr)
        if is_expanded:
            jaxpr = expand_closed(jaxpr)
        return _confirmed(
            jaxpr, looks, fn, avals, ranges, at_hand, choices, is_expanded=is_expanded
        )
    except AsksForSize as refusal:
        # A shorter range of sizes makes it one program, without a trace at each size.
        if not examples or refusal.ends:
            raise
        symbolic = refusal
    try:
        jaxpr, looks = _from_examples(
            fn,
            avals,
            ranges,
            at_hand[0],
            choices,
        )
        return _confirmed(jaxpr, looks, fn, avals, ranges, at_hand, choices, is_expanded=True)
    except Refused as refusal:
        also = f"{symbolic.what}; and at known sizes it {refusal.what}"
        raise Refused(symbolic.place, also) from refusal


def _from_examples(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    known: Mapping[str, int],
    choices: Choices | None,
) -> tuple[ClosedJaxpr, Sequence[str]]:
    """The program with symbolic sizes from traces at a few known ones.

    Raises:
        Refused: There is none.
    """
    dims = symbolic_sizes(ranges)
    traces: dict[tuple[int, ...], ClosedJaxpr] = {}
    taken = {size for aval in avals(known) for size in getattr(aval, "shape", ())}
    last = Refused("", "cannot be traced at other sizes")
    for samples in example_sizes(known, ranges, taken):
        try:
            for sample in samples:
                key = tuple(sample.values())
                if key not in traces:
                    traces[key] = _exact(
                        fn,
                        avals,
                        ranges,
                        sample,
                        choices,
                        is_expanded=True,
                    )
            each = [traces[tuple(sample.values())] for sample in samples]
            jaxpr = Unifier(samples, dims).program(each, avals(dims))
        except Refused as refusal:
            last = refusal
            continue
        # The function's own, at a size that is not the call's.
        except Exception as error:
            raise Refused(place(error), first_line(error)) from error
        *first, final = ("x".join(map(str, sample.values())) for sample in _in_order(samples))
        sizes = f"{', '.join(first)} and {final}"
        return jaxpr, [f"it was traced at sizes {sizes}, as its Python needs to know a size"]
    raise last


def _in_order(samples: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    return sorted(samples, key=lambda sample: tuple(sample.values()))


def _exact(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    sizes: Mapping[str, int],
    choices: Choices | None,
    *,
    is_expanded: bool,
) -> ClosedJaxpr:
    """The program at known sizes."""
    with _scope(ranges, choices):
        jaxpr = make_jaxpr(_fresh_function(fn))(*avals(sizes))
        return expand_closed(jaxpr) if is_expanded else jaxpr


def _confirmed(
    jaxpr: ClosedJaxpr,
    looks: Sequence[str],
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    at_hand: Sequence[Mapping[str, int]],
    choices: Choices | None,
    *,
    is_expanded: bool,
) -> SymbolicProgram:
    """The program, compared with traces at known sizes.

    Raises:
        Refused: They differ.
    """
    demand_no_backward_rules(jaxpr)
    if not ranges:
        return SymbolicProgram(
            jaxpr,
            ranges,
        )

    def witness_of(known: Mapping[str, int]) -> Witness:
        return trace_witness(
            jaxpr,
            fn,
            avals,
            ranges,
            known,
            choices,
            is_expanded=is_expanded,
        )

    # Values that Python computed from sizes must stand at the same variables at each probed size,
    # where the interpreter of `interpreter.py` can put others in their place.
    first, *others = map(witness_of, at_hand)
    if any(other.numbers.keys() != first.numbers.keys() for other in others):
        raise Refused("", "computes other numbers of its size at each size")
    if not first.numbers.keys() <= set(_interpreted_vars(jaxpr)):
        raise Refused("", "computes a number of its size where it cannot be put in")

    # Sizes that wrap in the type of a position.
    for narrow in narrow_sizes(jaxpr, ranges):
        for known in narrow.outside(ranges):
            try:
                witness_of(known)
            # Other operations there, or JAX's error of a number that does not fit.
            except Exception as error:
                raise narrow.refusal from error

    # The reasons why each new size has to be traced, for people.
    reasons: list[str] = []
    lines = list(dict.fromkeys(filter(None, first.places.values())))
    if choices is not None and choices.has_decisions:
        lines.append("the structure of its derivative")
    if first.numbers:
        reasons.append(f"{', '.join(lines) or 'it'} computes numbers of the size")
    reasons += looks[:1]
    why = "; ".join(reasons) if reasons else None
    return SymbolicProgram(
        jaxpr,
        ranges,
        first.numbers,
        why,
        choices,
        is_expanded,
    )


def _interpreted_vars(jaxpr: AnyJaxpr) -> Iterator[Var]:
    """Yield the variables that an interpreter defines equation by equation, in a program and in the
    sub-jaxprs that rules evaluate.
    """
    program, _ = open_jaxpr(jaxpr)
    for eqn in program.eqns:
        yield from eqn.outvars[:1]
        if eqn.primitive.name in HOLDERS:
            for inner in programs(eqn.params):
                yield from _interpreted_vars(inner)


def trace_witness(
    jaxpr: AnyJaxpr,
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    sizes: Mapping[str, int],
    choices: Choices | None = None,
    *,
    is_expanded: bool = False,
) -> Witness:
    """Trace the function at known sizes, and compare the program with symbolic sizes with that.

    Raises:
        Refused: They differ.
    """
    exact = _exact(
        fn,
        avals,
        ranges,
        sizes,
        choices,
        is_expanded=is_expanded,
    )
    witness = Witness(sizes, ranges)
    witness.compare(jaxpr, exact)
    return witness


class Choices:
    """Choices that are made once for a program, from traces at a few known sizes, and hold at all
    sizes.

    The symbolic trace reads them first. Then the function is rehearsed: it is traced at known sizes
    to collect a proposal from each. Every later trace reads the same choices, in the same order.
    """

    def __init__(self) -> None:
        self._begun: tuple[Callable[..., object], Avals, Ranges] | None = None
        self._made: list[object] | None = None

    def begin(
        self,
        fn: Callable[..., object],
        avals: Avals,
        ranges: Ranges,
    ) -> None:
        """Set the function to rehearse, its abstract arguments and its ranges of sizes."""
        self._begun = fn, avals, ranges

    @property
    def has_decisions(self) -> bool:
        """True if a choice was made."""
        return any(choice is not None for choice in self._made or ())

    @property
    def decisions(self) -> list[Any]:
        """The choices, in the order of the trace; made on first use."""
        # Traces that propose different numbers of choices cannot be matched: none is made.
        if self._made is None:
            proposals = list(self._proposals())
            counts = {len(each) for each in proposals}
            first = proposals[0] if len(counts) == 1 else []
            self._made = [
                _settle_wishes(settle, [each[i][0] for each in proposals])
                for i, (_, settle) in enumerate(first)
            ]
        return self._made

    def _proposals(self) -> Iterator[list[Proposal]]:
        """Yield the proposals at each of the largest sizes. The size of the call is not used, so
        that the choice is the same in every process.

        Raises:
            Refused: The function fails at one of these sizes.
        """
        if self._begun is None:
            return
        fn, avals, ranges = self._begun
        for below in range(_REHEARSED):
            sizes = {name: max(low, high - below) for name, (low, high) in ranges.items()}
            try:
                with _scope(ranges, self, rehearsed=[]) as scope:
                    make_jaxpr(_fresh_function(fn))(*avals(sizes))
            # These hold at any size.
            except (Refused, DerivativeError):
                raise
            except Exception as error:
                size = " and ".join(map(str, sizes.values()))
                why = f"cannot be traced at size {size}: {first_line(error)}"
                raise Refused(place(error), why) from error
            yield scope.rehearsed or []


# The number of sizes to rehearse. Three, since the colours of a ring of neighbours (a stencil with
# periodic boundaries) depend on the size modulo 3.
_REHEARSED = 3


def _settle_wishes(
    settle: Callable[[Sequence[object]], object], wishes: Sequence[object]
) -> object:
    return None if any(wish is None for wish in wishes) else settle(wishes)


def shared_choice(
    wish: Callable[[], W | None], settle: Callable[[Sequence[W]], S | None]
) -> S | None:
    """The choice that holds at all sizes of the trace under way; None if none is made.

    Args:
        wish: Proposal at the size of the trace, called where that is known; None for no choice.
        settle: Makes a choice from the proposals at several sizes, the largest size first.
    """
    scope = SCOPE.get()
    if scope is None or scope.choices is None:
        return None
    if scope.rehearsed is not None:
        scope.rehearsed.append((wish(), settle))
        return None
    made = scope.choices.decisions
    scope.turn += 1
    return made[scope.turn - 1] if scope.turn <= len(made) else None


@contextmanager
def _scope(
    ranges: Ranges,
    choices: Choices | None = None,
    rehearsed: list[Proposal] | None = None,
) -> Generator[Scope]:
    """Context in which bodies are traced without JAX's trace cache, and no decision depends on a
    size.
    """
    scope = Scope(ranges, choices, rehearsed)
    token = SCOPE.set(scope)
    try:
        # JAX caches the traces of inner functions, and would not run their code. A new value of a
        # context that is part of its cache keys makes it miss.
        with FRESH(object()):
            yield scope
    finally:
        SCOPE.reset(token)


def _symbolic(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    known: Mapping[str, int],
    choices: Choices | None,
) -> tuple[ClosedJaxpr, Sequence[str]]:
    """The program with symbolic sizes, and the places where code looked at a size in a way that is
    right only if each size is traced.

    Raises:
        Refused: Code needs to know a size.
        Exception: Any exception that the function raises at known sizes too.
    """
    result, seen = _watched(fn, avals, ranges, choices)
    # `x + pos[:n]` where n is the length of `pos`: JAX makes that length of n, and x has n rows.
    if isinstance(result, Exception) and seen.ties:
        again, seen_again = _watched(fn, avals, ranges, choices, keeps_size=True)
        if not isinstance(again, Exception):
            result, seen = again, seen_again

    # An error at a known size too is the user's, and is raised by this trace. Otherwise the symbol
    # is the reason.
    if isinstance(result, Exception):
        with _scope(ranges, choices):
            make_jaxpr(_fresh_function(fn))(*avals(known))
        if isinstance(result, Refused):
            raise result
        what = explain_size_error(result)
        raise AsksForSize(place(result), what, range_ends(seen.undecided, ranges)) from result

    # A refusal is raised inside the user's code, which may have caught it.
    if seen.refused:
        raise seen.refused[0]
    return result, seen.looks


def _watched(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    choices: Choices | None,
    *,
    keeps_size: bool = False,
) -> tuple[ClosedJaxpr | Exception, SizeUses]:
    """The program with symbolic sizes, or the error that its trace ended in, and what was asked of
    sizes.

    Raises:
        Refused: Code needs to know a size.
    """
    sizes = symbolic_sizes(ranges)
    with hooked_dims(keeps_size=keeps_size) as seen, _scope(ranges, choices):
        try:
            return make_jaxpr(_fresh_function(fn))(*avals(sizes)), seen
        except Refused as refusal:
            # The text of a size in the message of another error, which may come at known sizes too.
            if refusal.__context__ is None:
                raise
            return refusal, seen
        except Exception as error:  # noqa: BLE001
            return error, seen


def _fresh_function(fn: Callable[..., object]) -> Callable[..., object]:
    """Wrap `fn` in a new function, since JAX may have cached a trace of `fn`."""

    def again(*arrays: object) -> object:
        return fn(*arrays)

    return named_like(again, fn)


def probes(ranges: Ranges) -> list[dict[str, int]]:
    """Two sets of sizes from the ranges, or one if these are equal. Different symbols get different
    sizes if the ranges allow it.
    """
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for i, (name, (first, last)) in enumerate(ranges.items()):
        low[name] = min(first + i, last)
        high[name] = max(last - i, first)
    return [low] if low == high else [low, high]
