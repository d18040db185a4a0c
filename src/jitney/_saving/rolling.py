"""Run equal layers of a program as one loop, so that one of them is compiled and not all:
`roll="auto"`.

What is rolled is proven equal: the same operations with the same parameters, on values of the same
types, each layer reading what the one before has made, what is the same for all, and what is its
own. What is its own is stacked in the program, or was one array from the beginning. The rest stays
as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax

from .._jax.evaluation import applied
from .._jax.jaxprs import inside, is_backward, opened
from .._jax.memory import text
from .._own_time import OWN_TIME
from .chain import Broken, Chain
from .elements import Parts, Turns, is_at_hand, made_by, parts_of
from .flat import FlatProgram, Step, flattened
from .flops import flops_text, of_equation
from .layers import Stack, formed, repetitions
from .looped import Layers, Rolling
from .slices import gradients_as_rows, slices_first

_jax: Any = jax
LAYERS = 4
"""Fewer are not worth a loop."""
OPERATIONS = 40
"""Layers of fewer compile about as fast as the loop with what it takes apart and puts together."""
STACKED = 12
"""So many layers are worth one whatever they do, where all of their weights are slices of stacked
ones: on CPUs XLA compiles each slice for itself, where it compiles equal operations once.
"""
COPY = 300
"""As many operations on numbers have to be done for each byte that is stacked, so that stacking
takes a twentieth of their time.
"""
EACH = 10_000
"""As many operations on numbers take as long as one operation of a program takes to start."""
_NO_KERNEL = "conv_general_dilated"  # that CPUs have kernels for outside of loops alone


def rolling(traced: Any, *, differentiated: bool = False, derived: bool = False) -> Rolling:
    """Find the equal layers of a program, and decide which become loops; whether it is
    differentiated then, or is part of a derivative.
    """
    flat = slices_first(gradients_as_rows(flattened(traced)))
    parts: Parts = dict(parts_of(flat))
    derived = derived or any(is_backward(step.eqn) for step in flat.steps)
    stacks = repetitions(flat, OPERATIONS)
    found: list[Layers] = []
    for i, stack in enumerate(stacks):
        low = stacks[i - 1].stop if i else 0
        high = stacks[i + 1].start if i + 1 < len(stacks) else len(flat.steps)
        if found and (before := found[-1].chain) is not None:
            low = before.stack.stop  # which may have grown
        layers = _decided(
            flat,
            _grown(flat, stack, low, high),
            parts,
            differentiated=differentiated,
            derived=derived,
        )
        found.append(layers)
        if layers.chain is not None:
            parts.update(made_by(layers.chain, {made: Turns(made) for made in layers.chain.wanted}))
    rolled = {
        i
        for each in found
        if each.chain
        for i in range(each.chain.stack.start, each.chain.stack.stop)
    }
    inner = {
        i: rolling(step.eqn.params["jaxpr"], differentiated=differentiated, derived=derived)
        for i, step in enumerate(flat.steps)
        if i not in rolled and step.name == "scan"
    }
    return Rolling(
        flat,
        tuple(found),
        {i: each for i, each in inner.items() if each.changes},
        is_last=not differentiated,
    )


def _decided(
    flat: FlatProgram, stack: Stack, parts: Parts, *, differentiated: bool, derived: bool
) -> Layers:
    """Layers as they repeat, and whether they become a loop."""
    steps = flat.steps[stack.bounds[0] : stack.bounds[1]]
    operations = sum(1 + _held(step) for step in steps)
    count = stack.count

    def stay(why: str) -> Layers:
        return Layers(
            count,
            operations,
            None,
            f"{count} layers of {operations} operations stay as they are: {why}",
        )

    effects = next(
        (step.name for step in flat.steps[stack.start : stack.stop] if step.eqn.effects), None
    )
    if effects is not None:
        return stay(f"`{effects}` in them does something besides computing")
    stack, chain = _longest(flat, stack)
    if isinstance(chain, Broken):
        return stay(chain.why)
    count = stack.count
    copied = (
        sum(
            flat.sizes[n]
            for row in chain.rows
            if not is_at_hand(flat, row, parts, is_last=not differentiated)
            for n in row
        )
        // count
    )
    on_cpu = _jax.local_devices()[0].platform == "cpu"
    in_slices = on_cpu and count >= STACKED and bool(chain.rows) and not copied
    if count < LAYERS or (operations < OPERATIONS and not in_slices):
        many = f", or on CPUs for {STACKED} or more whose weights are stacked" if on_cpu else ""
        return stay(
            f"a loop is worth it for {LAYERS} layers or more, of {OPERATIONS} operations or"
            f" more{many}"
        )
    if on_cpu:
        # of stacked weights each slice would be an operation of its own
        if not (differentiated or derived) and copied:
            return stay(
                "on a CPU a forward pass compiles equal operations once as it is; a gradient of it"
                " may be rolled"
            )
        if any(
            eqn.primitive.name == _NO_KERNEL
            for step in steps
            for eqn in (step.eqn, *inside(step.eqn))
        ):
            return stay(f"`{_NO_KERNEL}` has no fast kernel in a loop on CPUs")
    work = sum(of_equation(step.eqn) for step in steps)
    if copied * COPY > work + EACH * operations:
        return stay(
            f"to stack {text(copied)} of each takes too long beside its {flops_text(work)};"
            " `jitney.stack` does it once"
        )
    stacked = f", with {text(copied)} of each stacked" if copied else ""
    saved = (count - 1) * operations
    return Layers(
        count,
        operations,
        chain,
        f"{count} equal layers are one loop{stacked}: {saved} operations fewer to compile",
    )


def _grown(flat: FlatProgram, stack: Stack, low: int, high: int) -> Stack:
    """With the layers before and behind it that are equal to its first and last; where a repetition
    ends is a guess.
    """
    bounds = list(stack.bounds)
    period = bounds[1] - bounds[0]
    while (
        bounds[0] - period >= low
        and formed(flat, bounds[0] - period, bounds[0]).form == formed(flat, *bounds[:2]).form
    ):
        bounds.insert(0, bounds[0] - period)
    while (
        bounds[-1] + period <= high
        and formed(flat, bounds[-1], bounds[-1] + period).form == formed(flat, *bounds[-2:]).form
    ):
        bounds.append(bounds[-1] + period)
    return Stack(tuple(bounds))


def _longest(flat: FlatProgram, stack: Stack) -> tuple[Stack, Chain | Broken]:
    """The most layers that follow one another and are a chain. The first or the last may stand
    where others do not.
    """
    forms = [formed(flat, *pair).form for pair in pairwise(stack.bounds)]
    runs = [0, *(k for k in range(1, len(forms)) if forms[k] != forms[k - 1]), len(forms)]
    low, high = max(pairwise(runs), key=lambda run: run[1] - run[0])
    first: Chain | Broken | None = None
    for a, b in ((low, high), (low + 1, high), (low, high - 1), (low + 1, high - 1)):
        if b - a > 1:
            part = Stack(stack.bounds[a : b + 1], alike=True)
            chain = Chain.of(flat, part, part.count)
            first = first or chain
            if isinstance(chain, Chain):
                return part, chain
    return stack, first or Broken("they differ in more than what they read")


def _held(step: Step) -> int:
    """Operations of the programs that one holds."""
    return sum(1 for _ in inside(step.eqn))


@dataclass(frozen=True)
class Rolled:
    """A function of flat arrays at some of them.

    Args:
        traced: Its program.
        found: The layers in it, and which of them are loops.
    """

    traced: Any
    found: Rolling

    @classmethod
    def of(
        cls, fn: Callable[..., Any], arrays: Sequence[Any], *, differentiated: bool = False
    ) -> Rolled:
        # JAX keeps traces by function, and what a trace leaves behind is wanted each time
        def flat(*arrays: Any) -> Any:
            return fn(*arrays)

        traced = _jax.make_jaxpr(flat)(*arrays)
        with OWN_TIME.running():
            return cls(traced, rolling(traced, differentiated=differentiated))

    @property
    def lines(self) -> list[tuple[bool, str]]:
        return self.found.lines

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        program, constants = opened(self.traced)
        return (
            self.found([*constants, *arrays])
            if self.found.changes
            else applied(program, constants, arrays)
        )
