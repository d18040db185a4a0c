"""Loop rolling (`roll="auto"`): run identical layers of a program as one `scan`, so that one of
them is compiled instead of all.

Rolled layers are proven identical: the same equations with the same parameters, on values of the
same types. Each reads what the layer before has computed, what is the same for all, and its own
operands. These are stacked in the program, or were one array from the beginning. Everything else
stays as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax

from .._host.own_time import OWN_TIME
from .._jax.programs.evaluation import evaluate_jaxpr
from .._jax.programs.jaxprs import inside, is_backward, open_jaxpr
from .._jax.programs.ssa import FlatProgram, Step, flatten_program
from .._jax.typed import Array
from .._jax.xla.memory import text
from .chain import Broken, Chain
from .flops import flops_text, of_equation
from .layers import Stack, canonical_form, repetitions
from .rolled_program import Layers, RolledProgram
from .slices import gradients_as_rows, slices_first
from .stacked_slices import Parts, ScanOutputs, is_at_hand, layer_results, parts_of

LAYERS = 4
"""Fewest layers that are worth a loop."""
OPERATIONS = 40
"""Fewest equations of a layer: smaller layers compile about as fast as the loop with its slices
and stacks.
"""
STACKED = 12
"""Layers that are worth a loop whatever they do, if all of their weights are slices of stacked
arrays: on CPUs XLA compiles each slice by itself, where it compiles identical operations once.
"""
COPY = 300
"""Floating-point operations for each byte that is stacked, at least, so that stacking takes a
twentieth of their time.
"""
EACH = 10_000
"""Floating-point operations that take as long as the start of one operation of a program."""
# CPUs have kernels for this primitive outside of loops only.
_NO_KERNEL = "conv_general_dilated"


def rolling(
    traced: object,
    *,
    differentiated: bool = False,
    derived: bool = False,
) -> RolledProgram:
    """Find the identical layers of a program, and decide which become loops.

    Args:
        traced: The program.
        differentiated: Whether it will be differentiated.
        derived: Whether it is part of a derivative.
    """
    flat = slices_first(gradients_as_rows(flatten_program(traced)))
    end = len(flat.steps)
    parts: Parts = dict(parts_of(flat))
    derived = derived or any(is_backward(step.eqn) for step in flat.steps)
    stacks = repetitions(flat, OPERATIONS)
    starts = [*(stack.start for stack in stacks[1:]), end]
    decisions: list[Layers] = []
    # Steps that become part of a loop.
    rolled: set[int] = set()
    low = 0
    for stack, high in zip(stacks, starts, strict=False):
        grown = _extend_stack(flat, stack, low, high)
        layers = _decide_loop(
            flat,
            grown,
            parts,
            differentiated=differentiated,
            derived=derived,
        )
        decisions.append(layers)
        chain = layers.chain
        if chain is None:
            low = stack.stop
            continue
        # The stack may have grown beyond its repetition.
        low = chain.stack.stop
        rolled.update(range(chain.stack.start, chain.stack.stop))
        outputs = {made: ScanOutputs(made) for made in chain.outputs}
        parts.update(layer_results(chain, outputs))

    # Loops that stay may have layers in their bodies.
    inner: dict[int, RolledProgram] = {}
    for i, step in enumerate(flat.steps):
        if i in rolled or step.name != "scan":
            continue
        body = step.eqn.params["jaxpr"]
        program = rolling(body, differentiated=differentiated, derived=derived)
        if program.changes:
            inner[i] = program
    return RolledProgram(
        flat,
        tuple(decisions),
        inner,
        is_last=not differentiated,
    )


def _decide_loop(
    flat: FlatProgram,
    stack: Stack,
    parts: Parts,
    *,
    differentiated: bool,
    derived: bool,
) -> Layers:
    """Decide whether repeated layers become a loop."""
    steps = flat.steps[stack.bounds[0] : stack.bounds[1]]
    operations = sum(1 + _count_inside(step) for step in steps)
    count = stack.count

    def stay(why: str) -> Layers:
        return Layers(
            count,
            operations,
            None,
            f"{count} layers of {operations} operations stay as they are: {why}",
        )

    for step in flat.steps[stack.start : stack.stop]:
        if step.eqn.effects:
            return stay(f"`{step.name}` in them does something besides computing")
    stack, chain = _longest(flat, stack)
    if isinstance(chain, Broken):
        return stay(chain.why)
    count = stack.count

    # Bytes per layer that have to be stacked first.
    to_stack = 0
    for row in chain.rows:
        if not is_at_hand(flat, row, parts, is_last=not differentiated):
            to_stack += sum(flat.sizes[n] for n in row)
    copied = to_stack // count
    on_cpu = jax.local_devices()[0].platform == "cpu"
    in_slices = on_cpu and count >= STACKED and bool(chain.rows) and not copied
    if count < LAYERS or (operations < OPERATIONS and not in_slices):
        many = f", or on CPUs for {STACKED} or more whose weights are stacked" if on_cpu else ""
        return stay(
            f"a loop is worth it for {LAYERS} layers or more, of {OPERATIONS} operations or"
            f" more{many}"
        )
    if on_cpu:
        # Nothing is copied if the weights are stacked already. Then each slice would be compiled by
        # itself, and the loop pays.
        if not (differentiated or derived) and copied:
            return stay(
                "on a CPU a forward pass compiles equal operations once as it is; a gradient of it"
                " may be rolled"
            )
        equations = [eqn for step in steps for eqn in (step.eqn, *inside(step.eqn))]
        if any(eqn.primitive.name == _NO_KERNEL for eqn in equations):
            return stay(f"`{_NO_KERNEL}` has no fast kernel in a loop on CPUs")

    # Stacking has to be cheap compared with the work of the layers.
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


def _extend_stack(flat: FlatProgram, stack: Stack, low: int, high: int) -> Stack:
    """Extend a stack by layers before and behind it that equal its first and last one.

    The end of a repetition is only a guess.
    """
    bounds = list(stack.bounds)
    period = bounds[1] - bounds[0]

    def equal(start: int, stop: int, layer: Sequence[int]) -> bool:
        candidate = canonical_form(flat, start, stop)
        return candidate.form == canonical_form(flat, *layer).form

    while True:
        before = bounds[0] - period
        if before < low or not equal(before, bounds[0], bounds[:2]):
            break
        bounds.insert(0, before)
    while True:
        after = bounds[-1] + period
        if after > high or not equal(bounds[-1], after, bounds[-2:]):
            break
        bounds.append(after)
    return Stack(tuple(bounds))


def _longest(flat: FlatProgram, stack: Stack) -> tuple[Stack, Chain | Broken]:
    """Longest run of layers that is a chain.

    The first or the last layer may not fit into the chain, so runs without them are tried too.
    """
    forms = [canonical_form(flat, *pair).form for pair in pairwise(stack.bounds)]
    changes = [k for k in range(1, len(forms)) if forms[k] != forms[k - 1]]
    runs = pairwise([0, *changes, len(forms)])
    low, high = max(runs, key=lambda run: run[1] - run[0])

    candidates = (
        (low, high),
        (low + 1, high),
        (low, high - 1),
        (low + 1, high - 1),
    )
    first: Chain | Broken | None = None
    for start, stop in candidates:
        if stop - start <= 1:
            continue
        part = Stack(stack.bounds[start : stop + 1], identical=True)
        chain = Chain.of(flat, part, part.count)
        first = first or chain
        if isinstance(chain, Chain):
            return part, chain
    return stack, first or Broken("they differ in more than what they read")


def _count_inside(step: Step) -> int:
    """Number of equations in the sub-jaxprs of a step."""
    return sum(1 for _ in inside(step.eqn))


@dataclass(frozen=True)
class RolledFunction:
    """Traced function of flat arrays, with its loops.

    Args:
        traced: Its program.
        found: Its layers, and which of them are loops.
    """

    traced: object
    found: RolledProgram

    @classmethod
    def of(
        cls,
        fn: Callable[..., object],
        arrays: Sequence[object],
        *,
        differentiated: bool = False,
    ) -> RolledFunction:
        # A new function for each trace: JAX caches traces by function, and the side effects of
        # tracing are wanted each time.
        def flat(*arrays: object) -> object:
            return fn(*arrays)

        traced = jax.make_jaxpr(flat)(*arrays)
        with OWN_TIME.running():
            return cls(traced, rolling(traced, differentiated=differentiated))

    @property
    def lines(self) -> list[tuple[bool, str]]:
        return self.found.lines

    def __call__(self, arrays: Sequence[Any]) -> list[Array]:
        program, constants = open_jaxpr(self.traced)
        if self.found.changes:
            return self.found([*constants, *arrays])
        return evaluate_jaxpr(program, constants, arrays)
