"""Trace a function with symbolic sizes, while its code is watched, and compare the program with a
trace at known sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ..._jax.programs.jaxprs import equations, open_jaxpr, programs
from ..._jax.programs.primitives import HOLDERS
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, NumPyArray, Var
from ..derivative import demand_no_backward_rules
from ..dims import Dim
from ..interpreter import Ranges
from ..refusal import AsksForSize, Refused
from ..typed_jax import InconclusiveDimensionOperation
from ..unified.choices import Choices
from ..unified.closed_primitives import reads_sizes_inside
from ..unified.example_sizes import example_sizes
from ..unified.number_of_size import NUMBER_OF_SIZE, fill_up
from ..unified.sized_function import Avals, SizedFunction
from ..unified.unify_traces import expand_closed, unify
from ..witness.compare_traces import Witness
from ..witness.graph import at
from .dim_hooks import SizeUses, hooked_dims
from .range_ends import narrow_sizes, range_ends
from .size_errors import explain_size_error, first_line, place
from .traced_body import TracedBody

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Candidate:
    """A program with symbolic sizes that no trace at a known size has confirmed yet.

    Args:
        jaxpr: The program.
        looks: The places where code looked at a size in a way that is right only if each size is
            traced.
        is_expanded: True if the closed primitives were replaced by what they compute.
        from_sizes: Symbol -> the least size that it stands for, if not that of the function's
            range.
        symbols: Symbol -> the symbolic dimension, where the program is one trace with these.
    """

    jaxpr: ClosedJaxpr
    looks: Sequence[str] = ()
    is_expanded: bool = False
    from_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    symbols: Mapping[str, Dim] = field(default_factory=dict[str, Dim])

    def ranges(self, ranges: Ranges) -> Ranges:
        """The part of these ranges that the program stands for."""
        lows = self.from_sizes
        return {name: (lows.get(name, low), high) for name, (low, high) in ranges.items()}

    def witness(
        self,
        function: SizedFunction,
        sizes: Mapping[str, int],
    ) -> Witness:
        """Trace the function at known sizes, and compare the program with that.

        Raises:
            Refused: They differ.
        """
        ranges = self.ranges(function.ranges)
        if any(sizes[name] < low for name, (low, _) in ranges.items()):
            raise _other_program(sizes)
        exact = function.at_known(sizes)
        witness = Witness(sizes, ranges)
        witness.compare(self.jaxpr, expand_closed(exact) if self.is_expanded else exact)
        # The witness looks no further than an empty array: what is read by such alone is not
        # recorded, and has no effect.
        for eqn in equations(self.jaxpr):
            if eqn.primitive.name == NUMBER_OF_SIZE:
                (var,) = eqn.outvars
                zeros = np.zeros(at(var.aval.shape, sizes), var.aval.dtype)
                witness.numbers.setdefault(var, zeros)
        return witness


@dataclass(frozen=True)
class SymbolicProgram:
    """A program with symbolic sizes.

    Args:
        jaxpr: The program.
        ranges: Symbol -> the least and the largest size it stands for.
        numbers: Variable of the program -> the value that Python computed from the sizes in its
            place, at one size.
        confirmed: Symbol -> that size, at which a trace has confirmed the program.
        each: The reason why each new size is traced once more, for a line of the plan; None if the
            program is the same at all sizes.
        choices: The choices that were made for it, once for all sizes.
        is_expanded: True if the closed primitives were replaced by what they compute.
        spent: Seconds of each trace that it was made from or confirmed by.
        body: The function by its programs, from which its derivative is traced; None where Python
            has to run for that.
    """

    jaxpr: ClosedJaxpr
    ranges: Ranges
    numbers: Mapping[Var, NumPyArray] = field(default_factory=dict[Var, NumPyArray])
    each: str | None = None
    choices: Choices | None = field(default=None, compare=False)
    is_expanded: bool = field(default=False, compare=False)
    confirmed: Mapping[str, int] | None = field(default=None, compare=False)
    spent: Sequence[float] = field(default=(), compare=False)
    body: TracedBody | None = field(default=None, compare=False, repr=False)

    @property
    def out_dims(self) -> list[Shape]:
        return [tuple(aval.shape) for aval in self.jaxpr.out_avals]

    def check_at(
        self,
        fn: Callable[..., object],
        avals: Avals,
        sizes: Mapping[str, int],
    ) -> None:
        """Compare the program with a trace at sizes that no call has had.

        Raises:
            Refused: At these sizes the function does other operations, or fails.
        """
        with _own_errors_refused():
            self.numbers_at(fn, avals, sizes)

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
        numbers = self.numbers
        if sizes != self.confirmed:
            function = SizedFunction(
                fn,
                avals,
                self.ranges,
                self.choices,
            )
            candidate = Candidate(self.jaxpr, is_expanded=self.is_expanded)
            numbers = candidate.witness(function, sizes).numbers
        if numbers.keys() != self.numbers.keys():
            raise _other_program(sizes)
        allocated = {symbol: high for symbol, (_, high) in self.ranges.items()}
        return [
            fill_up(numbers[variable], at(variable.aval.shape, allocated))
            for variable in self.numbers
        ]


def trace(
    fn: Callable[..., object],
    avals: Avals,
    ranges: Ranges,
    sizes: Mapping[str, int] | None = None,
    *,
    choices: Choices | None = None,
    examples: bool = True,
    symbols: Mapping[str, Dim] | None = None,
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
        symbols: Symbol -> the symbolic dimension, where the function holds programs with these.

    Raises:
        Refused: The function needs to know a size, does different operations at different sizes, or
            is a derivative with rules for reverse mode only.
        Exception: Any exception that the function raises at known sizes too.
    """
    function = SizedFunction(fn, avals, ranges, choices, symbols)
    # A copy: the choices outlive the traces of this proof.
    rehearsed = replace(function)
    if choices is not None:
        choices.begin(rehearsed)
    program = _program(function, sizes, examples=examples)
    return replace(program, spent=(*function.spent, *rehearsed.spent))


def _program(
    function: SizedFunction,
    sizes: Mapping[str, int] | None,
    *,
    examples: bool,
) -> SymbolicProgram:
    """The program of `trace`."""
    at_hand = [sizes] if sizes is not None else function.probes
    # No size to look at: the padded axes are mapped outside.
    if not function.ranges:
        return _confirmed(function, _expanded(function.at({})), at_hand)
    try:
        return _confirmed(function, _symbolic(function, at_hand), at_hand)
    except AsksForSize as refusal:
        # A shorter range of sizes makes it one program, without a trace at each size.
        if not examples or _is_within(sizes, refusal.ends):
            raise
        symbolic = refusal
    try:
        # A bucket that ends at another size is looked for by such an end, not by a later beginning.
        is_whole = sizes is None or bool(symbolic.ends)
        candidate = _from_examples(function, at_hand[0], is_whole=is_whole)
        return _confirmed(function, candidate, at_hand)
    except Refused as refusal:
        also = f"{symbolic.what}; and at known sizes it {refusal.what}"
        raise Refused(symbolic.place, also, symbolic.ends, by_size=True) from refusal


def _is_within(
    sizes: Mapping[str, int] | None,
    ends: Mapping[str, Sequence[int]],
) -> bool:
    """Return whether the sizes of a call are within the shorter range; it is not asked of others
    without a call.
    """
    if sizes is None:
        return bool(ends)
    return any(sizes[symbol] <= max(of_symbol) for symbol, of_symbol in ends.items())


def _from_examples(
    function: SizedFunction,
    known: Mapping[str, int],
    *,
    is_whole: bool,
) -> Candidate:
    """The program with symbolic sizes from traces at a few known ones; if `is_whole`, for the whole
    ranges alone.

    Raises:
        Refused: There is none.
    """
    traces: dict[tuple[int, ...], ClosedJaxpr] = {}
    taken = {size for aval in function.avals(known) for size in getattr(aval, "shape", ())}
    last = Refused("", "cannot be traced at other sizes")
    for samples in example_sizes(known, function.ranges, taken):
        try:
            for sample in samples:
                key = tuple(sample.values())
                if key not in traces:
                    traces[key] = _example(function, sample)
            each = [traces[tuple(sample.values())] for sample in samples]
            jaxpr, from_sizes = _unified(function, each, samples, is_whole=is_whole)
        except Refused as refusal:
            last = refusal
            continue
        *first, final = ("x".join(map(str, sample.values())) for sample in _in_order(samples))
        sizes = f"{', '.join(first)} and {final}"
        look = f"it was traced at sizes {sizes}, as its Python needs to know a size"
        return Candidate(
            jaxpr,
            [look],
            is_expanded=True,
            from_sizes=from_sizes,
        )
    raise last


def _unified(
    function: SizedFunction,
    traces: Sequence[ClosedJaxpr],
    samples: Sequence[Mapping[str, int]],
    *,
    is_whole: bool,
) -> tuple[ClosedJaxpr, Mapping[str, int]]:
    """The program from traces at known sizes, and the least sizes that it stands for where these
    are not those of the ranges.

    Raises:
        Refused: There is none.
    """
    try:
        dims = function.new_symbols()
        return unify(traces, samples, dims, function.avals(dims)), {}
    except Refused as refusal:
        # JAX could not tell for all sizes: `x[:-3]` of sizes from 2 on has no elements at 2. So the
        # program begins at the least size that was traced.
        if is_whole or not isinstance(refusal.__cause__, InconclusiveDimensionOperation):
            raise
    least = {name: min(sample[name] for sample in samples) for name in function.ranges}
    lows = {name: max(low, function.ranges[name][0]) for name, low in least.items()}
    ranges = {name: (lows[name], high) for name, (_, high) in function.ranges.items()}
    dims = replace(function, ranges=ranges).new_symbols()
    return unify(traces, samples, dims, function.avals(dims)), lows


def _other_program(sizes: Mapping[str, int]) -> Refused:
    size = " and ".join(map(str, sizes.values()))
    return Refused("", f"does other operations at size {size}")


def _example(
    function: SizedFunction,
    sample: Mapping[str, int],
) -> ClosedJaxpr:
    """The program at sizes that are not those of the call.

    Raises:
        Refused: The function fails there.
    """
    with _own_errors_refused():
        return function.at_known(sample)


def _goes_through(function: SizedFunction, known: Mapping[str, int]) -> bool:
    try:
        _example(function, known)
    except Refused:
        return False
    return True


@contextmanager
def _own_errors_refused() -> Generator[None]:
    """Context in which the function runs at sizes that no call has had: where it fails, whatever
    its error is, it may go through at those of a call.

    Raises:
        Refused: The function fails.
    """
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        raise Refused(place(error), first_line(error)) from error


def _in_order(samples: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    return sorted(samples, key=lambda sample: tuple(sample.values()))


def _confirmed(
    function: SizedFunction,
    candidate: Candidate,
    at_hand: Sequence[Mapping[str, int]],
) -> SymbolicProgram:
    """The program, compared with traces at known sizes.

    Raises:
        Refused: They differ.
    """
    jaxpr, choices = candidate.jaxpr, function.choices
    ranges = candidate.ranges(function.ranges)
    demand_no_backward_rules(jaxpr)
    if not ranges:
        return SymbolicProgram(
            jaxpr,
            ranges,
        )

    # Values that Python computed from sizes must stand at the same variables at each probed size,
    # where the interpreter of `interpreter.py` can put others in their place.
    first, *others = (candidate.witness(function, known) for known in at_hand)
    if any(other.numbers.keys() != first.numbers.keys() for other in others):
        raise Refused("", "computes other numbers of its size at each size")
    if not first.numbers.keys() <= set(_interpreted_vars(jaxpr)):
        raise Refused("", "computes a number of its size where it cannot be put in")

    # Sizes that wrap in the type of a position.
    for narrow in narrow_sizes(jaxpr, ranges):
        for known in narrow.outside(ranges):
            try:
                candidate.witness(function, known)
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
    reasons += candidate.looks[:1]
    why = "; ".join(reasons) if reasons else None
    # An expanded primitive has lost the rule of its derivative.
    body = None
    if candidate.symbols and why is None and not candidate.is_expanded and not others:
        body = TracedBody(candidate.symbols, jaxpr, function.at_known(at_hand[0]))
    return SymbolicProgram(
        jaxpr,
        ranges,
        first.numbers,
        why,
        choices,
        candidate.is_expanded,
        at_hand[0],
        body=body,
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


def _symbolic(
    function: SizedFunction,
    at_hand: Sequence[Mapping[str, int]],
) -> Candidate:
    """The program with symbolic sizes from one trace with symbols.

    Raises:
        Refused: Code needs to know a size, or fails at the first known ones alone.
        Exception: Any exception that the function raises at all known sizes too.
    """
    symbols = function.new_symbols()
    result, seen = _watched(function, symbols)
    # `x + pos[:n]` where n is the length of `pos`: JAX makes that length of n, and x has n rows.
    if isinstance(result, Exception) and seen.ties:
        again, seen_again = _watched(function, symbols, keeps_size=True)
        if not isinstance(again, Exception):
            result, seen = again, seen_again

    # An error at a known size too is the user's, and is raised by this trace. Otherwise the symbol
    # is the reason.
    if isinstance(result, Exception):
        first, *others = at_hand
        if any(_goes_through(function, known) for known in others):
            _example(function, first)
        else:
            function.at_known(first)
        if isinstance(result, Refused):
            raise result
        what = explain_size_error(result)
        ends = range_ends(seen.undecided, function.ranges)
        raise AsksForSize(place(result), what, ends) from result

    # A refusal is raised inside the user's code, which may have caught it.
    if seen.refused:
        raise seen.refused[0]
    return replace(_expanded(result, seen.looks), symbols=symbols)


def _expanded(jaxpr: ClosedJaxpr, looks: Sequence[str] = ()) -> Candidate:
    """The program, with its closed primitives expanded if one of them reads a symbolic size."""
    is_expanded = reads_sizes_inside(jaxpr)
    return Candidate(expand_closed(jaxpr) if is_expanded else jaxpr, looks, is_expanded)


def _watched(
    function: SizedFunction, symbols: Mapping[str, Dim], *, keeps_size: bool = False
) -> tuple[ClosedJaxpr | Exception, SizeUses]:
    """The program with symbolic sizes, or the error that its trace ended in, and what was asked of
    sizes.

    Raises:
        Refused: Code needs to know a size.
    """
    with hooked_dims(keeps_size=keeps_size) as seen:
        try:
            return function.at(symbols), seen
        except Refused as refusal:
            # The text of a size in the message of another error, which may come at known sizes too.
            if refusal.__context__ is None:
                raise
            return refusal, seen
        except Exception as error:  # noqa: BLE001
            return error, seen
