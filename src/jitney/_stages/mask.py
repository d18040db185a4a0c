"""Stage that evaluates the body at the size of the bucket, so that padding reaches no result.

    sum x[d0], 65 <= d0 <= 128   ->   sum (select (iota < n) x[128] 0), n = true size

The body is traced with a symbol for each padded size. Every operation along the axis needs a rule
that is proven for all sizes in the bucket; otherwise the call is refused and runs at exact size.

Mask stands inside Vmap, because each mapped element sees its own axes, and outside Remat and
Precision, which are part of the body that it traces.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import jax

from .. import _axes
from .._axes import Refused
from .._jax.trees import set_weak_type
from .._jax.typed import Array
from .._view.named_axes import in_names, is_count, named_axes, shape_at, sizes_of
from .._view.result import Outcome
from .._view.true_sizes import KnownSizes, NeedsNumbers, Proof, knowing, known_sizes
from .._view.view import View
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Symbol:
    """Padded axis inside the body: its symbol, and the range of sizes that the symbol stands
    for.
    """

    name: str
    symbol: str
    low: int
    high: int


@dataclass(frozen=True)
class Mask(Stage):
    """Symbolic jaxpr of the body, evaluated where only the leading part of an axis is valid."""

    symbols: tuple[Symbol, ...]
    # Padded axes, in the order in which their true sizes arrive behind the arrays.
    counts: tuple[str, ...]
    view: View = field(compare=False)
    why: str = field(compare=False)
    # True if an outer transform may differentiate the program.
    derived: bool = field(default=False, compare=False)
    name: str = field(default="mask", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        counts = tuple(leaf.counts for leaf in view.leaves if leaf.counts is not None)
        if not counts:
            return Skip("mask", "nothing is padded")

        inside = cls._body(view)
        sizes = sizes_of(inside, named_axes(inside))
        buckets = dict(request.options.pad)
        symbols: list[Symbol] = []
        for name in counts:
            # A padded axis that the body does not have is mapped outside of it, and needs no
            # symbol.
            if name not in sizes:
                continue
            bounds = buckets[name].range(sizes[name], request.divisor(name))
            # A bucket that ends below its size: see `Request.tops`.
            if bounds is not None:
                symbols.append(Symbol(name, f"d{len(symbols)}", bounds[0], sizes[name]))

        why = "the padded axes are mapped: each element alone"
        mask = cls(tuple(symbols), counts, inside, why, request.nested)
        return replace(mask, why=mask.line(mask.ranges)) if symbols else mask

    @classmethod
    def over(
        cls,
        view: View,
        ranges: Mapping[str, tuple[int, int]],
    ) -> Self:
        """Build a stage for any axes of a body, over any ranges of sizes."""
        symbols: list[Symbol] = []
        for name, (low, high) in ranges.items():
            symbols.append(Symbol(name, f"d{len(symbols)}", low, high))
        return cls(tuple(symbols), tuple(ranges), view, "")

    @staticmethod
    def _body(view: View) -> View:
        return View(tuple(leaf for leaf in view.leaves if not is_count(leaf)))

    def inner(self, view: View) -> View:
        return self._body(view)

    @property
    def scope(self) -> str:
        return " ".join(["mask", *(s.name for s in self.symbols)])

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {s.symbol: (s.low, s.high) for s in self.symbols}

    def line(self, ranges: Mapping[str, tuple[int, int]]) -> str:
        """The line of the plan, where one program stands for these sizes of each symbol."""
        bounds = ((s.name, ranges[s.symbol]) for s in self.symbols)
        axes = " and ".join(f"{name} from {low} to {high}" for name, (low, high) in bounds)
        return f"one program for {axes}; what each operation does along it is proven"

    @property
    def is_mapped(self) -> bool:
        """True if a padded axis is mapped outside: the body then runs on padding as on any other
        element.
        """
        return len(self.counts) > len(self.symbols)

    def avals(self, sizes: Mapping[str, object]) -> list[jax.ShapeDtypeStruct]:
        """Abstract arguments of the body, given a size for each symbol."""
        named = named_axes(self.view)
        known = sizes_of(self.view, named)
        changed = {s.name: sizes[s.symbol] for s in self.symbols}
        avals: list[jax.ShapeDtypeStruct] = []
        for leaf, axes in zip(self.view.leaves, named, strict=True):
            shape = shape_at(leaf, axes, known, changed)
            avals.append(leaf.reshape(shape).abstract())
        return avals

    def prove(self, fn: Fn) -> Proof:
        """Trace the body symbolically and prove that each operation can be padded.

        Raises:
            Refused: An operation cannot.
        """
        # A program with choices, such as the colours of a Jacobian, is traced once more for each
        # size, which does not happen under an outer transform.
        choices = None if self.derived else _axes.Choices()
        try:
            try:
                program = self._trace_symbolically(fn, choices)
            except Refused:
                if choices is None or not choices.has_decisions:
                    raise
                # Without choices the trace may still be proven.
                program = self._trace_symbolically(fn, None)
        except Refused as refusal:
            what = in_names(refusal.what, [s.name for s in self.symbols])
            ends = {s.name: refusal.ends.get(s.symbol, ()) for s in self.symbols}
            raise Refused(refusal.place, what, ends, by_size=refusal.by_size) from refusal
        return Proof(
            program,
            fn,
            self.avals,
            {s.name: s.symbol for s in self.symbols},
            self._subject(),
        )

    def _subject(self) -> Hashable:
        arguments = tuple((leaf.shape, leaf.dtype, leaf.weak_type) for leaf in self.view.leaves)
        sizes = known_sizes().sizes
        return self, arguments, self.derived, sizes and tuple(sizes.items())

    @property
    def proof_before(self) -> Proof | None:
        """The proof of the trace that this one repeats for the same call, if there is one: of the
        same axes, arguments and sizes.
        """
        proof = known_sizes().proof
        return None if proof is None or proof.subject != self._subject() else proof

    def _trace_symbolically(
        self,
        fn: Fn,
        choices: _axes.Choices | None,
        *,
        body: _axes.TracedBody | None = None,
    ) -> _axes.SymbolicProgram:
        sizes = known_sizes().sizes
        at_hand: dict[str, int] | None = None
        if sizes is not None:
            at_hand = {s.symbol: sizes[s.name] for s in self.symbols}
        # Sizes that are known here are not those of a padded program inside the body.
        with knowing(KnownSizes()):
            program = _axes.trace(
                fn,
                self.avals,
                self.ranges,
                at_hand,
                choices=choices,
                examples=body is None,
                symbols=body and body.symbols,
            )
        _axes.demand(program.jaxpr, program.ranges)
        _axes.demand_no_tracers(program.jaxpr)
        # The body also runs on padded elements, where its effects must not happen.
        if self.is_mapped:
            _axes.demand_no_effects(program.jaxpr)
        return program

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def masked(*operands: Array) -> Sequence[Array]:
            count = len(self.view.leaves)
            arrays = operands[:count]
            counts = dict(zip(self.counts, operands[count:], strict=True))
            known, proof = known_sizes(), self.proof_before
            if proof is None or proof.outcome is not outcome:
                proof = replace(self.prove(fn), outcome=outcome)
            program, numbers = proof.program, known.numbers
            if self.derived and program.each is not None and known.derivatives is None:
                raise Refused(
                    "",
                    "is looked at by code, under an outer transform, where each size is not"
                    f" traced: {program.each}",
                )
            # The program takes numbers that Python computes from the true sizes, and was called
            # without them: the caller computes them and calls again.
            if self.derived and known.derivatives is not None:
                proof = replace(proof, derivatives=known.derivatives)
            along = _split_numbers(proof, len(numbers))
            if along is None:
                raise NeedsNumbers(proof)
            outcome.proof = proof

            # Arrays are allocated at the size of the bucket and valid up to the true size.
            allocated = {s.symbol: s.high for s in self.symbols}
            valid = {s.symbol: counts[s.name] for s in self.symbols}
            if self.derived:
                results = _axes.run_differentiable(
                    program.jaxpr,
                    lambda vary: self.derivative(fn, vary, outcome, proof, along),
                    arrays,
                    allocated,
                    valid,
                    program.numbers,
                    numbers,
                )
            else:
                results = _axes.run_padded(
                    program.jaxpr,
                    arrays,
                    allocated,
                    valid,
                    dict(zip(program.numbers, numbers, strict=True)),
                )
            typed = zip(results, program.jaxpr.out_avals, strict=True)
            return [set_weak_type(x, is_weak=aval.weak_type) for x, aval in typed]

        return masked

    def derivative(
        self,
        fn: Fn,
        varying: tuple[int, ...],
        outcome: Outcome,
        proof: Proof,
        known: Mapping[tuple[int, ...], _axes.PaddedDerivative],
    ) -> _axes.PaddedDerivative:
        """Body's derivative along the arguments that vary.

        Args:
            fn: Body.
            varying: Positions of the arguments.
            outcome: Of the trace of the body.
            proof: Of the body.
            known: Derivatives whose numbers the program of the body takes.

        Raises:
            Refused: The derivative cannot be padded.
            NeedsNumbers: It has to be traced at each size, and was not at that of this call.
        """
        if varying in known:
            return known[varying]
        leaves = self.view.leaves
        tangents = [replace(leaves[i], weak_type=False) for i in varying]
        along = replace(self, view=View((*leaves, *tangents)))
        own = along.of_traced(proof.program.body, varying)
        if own is not None:
            return _axes.PaddedDerivative(own.jaxpr)
        jvp = _axes.jvp_function(fn, len(leaves), varying)
        found = along.prove(jvp)
        outcome.refuse_differences()
        program = found.program
        if program.each is None:
            return _axes.PaddedDerivative(program.jaxpr)
        if known_sizes().derivatives is None:
            raise Refused(
                "",
                "is looked at by code in the derivative, which is not traced at each size:"
                f" {program.each}",
            )
        # The caller traces it at the size of each call from now on, and calls again.
        found = replace(found, outcome=outcome)
        proof.derivatives.setdefault(varying, found)
        raise NeedsNumbers(proof)

    def of_traced(
        self,
        body: _axes.TracedBody | None,
        varying: tuple[int, ...],
    ) -> _axes.SymbolicProgram | None:
        """Derivative of a body that has been traced, from its programs; None if the body has to run
        for it.
        """
        if body is None:
            return None
        jvp = _axes.jvp_function(body, len(body.exact.in_avals), varying)
        try:
            program = self._trace_symbolically(jvp, None, body=body)
        # The trace of the body itself gives the reason, or finds none.
        except Refused:
            return None
        return program if program.each is None else None


def _split_numbers(
    proof: Proof,
    count: int,
) -> dict[tuple[int, ...], _axes.PaddedDerivative] | None:
    """The derivatives whose numbers a program takes, with the places of these; None if the program
    takes others than those of the proof.

    Args:
        proof: Of the body.
        count: How many numbers the program takes: its own, and those of the first derivatives, each
            behind a 0.
    """
    along: dict[tuple[int, ...], _axes.PaddedDerivative] = {}
    at = len(proof.program.numbers)
    for varying, each in proof.derivatives.items():
        if at >= count:
            break
        program = each.program
        along[varying] = _axes.PaddedDerivative(
            program.jaxpr,
            tuple(program.numbers),
            at + 1,
        )
        at += 1 + len(program.numbers)
    return along if at == count else None
