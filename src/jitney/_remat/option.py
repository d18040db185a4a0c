"""Options of rematerialisation, and the program with one built in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax

from .._jax.programs.evaluation import evaluate_jaxpr
from .._jax.programs.jaxprs import open_jaxpr, scan_parts
from .._jax.programs.ssa import FlatProgram, is_pure, run_steps, values_at
from .._jax.typed import Array
from .chain import Arrays, Chain, LoopBody
from .layers import Stack

Saved = Literal["everything", "dots", "nothing", "offloaded"]


@dataclass(frozen=True)
class Option:
    """Choice of what a program saves. Layers are those of all its stacks, in program order.

    Args:
        saved: Residuals inside recomputed layers: matrix products ("dots", or "offloaded" to host
            memory) or "nothing".
        layers: Number of recomputed layers, from the first on. The others save everything, since
            the backward pass starts with them.
        group: Layers that are recomputed together: between groups, the values that one passes to
            the next are saved.
        rolled: True if identical layers of a Python loop become a `scan`.
        whole: True if the policy applies to the whole program instead of layers.
    """

    saved: Saved = "everything"
    layers: int = 0
    group: int = 1
    rolled: bool = False
    whole: bool = False

    def __str__(self) -> str:
        if self.saved == "everything":
            return "everything"
        residuals = {
            "dots": "products",
            "offloaded": "products, in the memory of the host",
            "nothing": "what enters",
        }[self.saved]
        if self.whole:
            return residuals
        of = "each layer" if self.group == 1 else f"each {self.group} layers"
        loop = ", as a loop" if self.rolled else ""
        return f"{residuals} of {of}, the first {self.layers}{loop}"


EVERYTHING = Option()


def policy_of(saved: Saved) -> Callable[..., bool]:
    """Policy for `jax.checkpoint`, of the type that JAX gives it."""
    policies = jax.checkpoint_policies
    if saved == "offloaded":
        return policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return policies.dots_saveable if saved == "dots" else policies.nothing_saveable


@dataclass
class _Evaluation:
    """Interpreter state of one run."""

    flat: FlatProgram
    option: Option
    env: dict[int, Array]

    def plain(self, start: int, stop: int) -> None:
        run_steps(self.flat.steps[start:stop], self.env)

    def checkpoint(self, start: int, stop: int) -> None:
        """Run steps under `jax.checkpoint`: their inputs are saved, and what the policy saves."""
        flat = self.flat
        # `jax.checkpoint` does not take effects.
        if not is_pure(flat.steps[start:stop]):
            self.plain(start, stop)
            return
        reads = flat.reads_of(start, stop)
        writes = flat.live_outputs(start, stop)

        def segment(*values: Array) -> list[Array]:
            env = dict(zip(reads, values, strict=True))
            inner = _Evaluation(flat, self.option, env)
            inner.plain(start, stop)
            return [inner.env[n] for n in writes]

        remat = jax.checkpoint(segment, policy=policy_of(self.option.saved))
        out = remat(*(self.env[n] for n in reads))
        self.env.update(zip(writes, out, strict=True))

    def stack(self, stack: Stack, layers: int) -> None:
        """Run a stack whose first layers are recomputed."""
        if stack.turns:
            self.loop(stack, layers)
            return
        group = self.option.group
        # A loop takes whole groups only. The remainder follows as separate layers.
        rolled = 0
        if self.option.rolled and stack.identical:
            rolled = layers - layers % group
        first = 0
        if rolled > group:
            chain = Chain.of(self.flat, stack, rolled)
            if isinstance(chain, Chain):
                self.chain(chain)
                first = rolled

        bounds = stack.bounds
        for i in range(first, layers, group):
            end = min(i + group, layers)
            self.checkpoint(bounds[i], bounds[end])
        self.plain(bounds[layers], stack.stop)

    def chain(self, chain: Chain) -> None:
        """Run layers as a scan that is recomputed in groups."""
        layer, begin = chain.layer(self.flat, self.env.__getitem__)
        rows = [jax.numpy.stack([self.env[n] for n in row]) for row in chain.rows]
        last, ys = remat_scan(
            layer,
            begin,
            [*rows, *chain.numbers],
            chain.layers,
            chain.layers,
            self.option,
            backwards=False,
        )
        for index, y in zip(chain.outputs, ys, strict=True):
            for k, makes in enumerate(chain.makes):
                self.env[makes[index]] = y[k]
        self.env.update(chain.final_carry(last))

    def loop(self, stack: Stack, layers: int) -> None:
        """Run a scan whose first iterations are recomputed in groups."""
        step = self.flat.steps[stack.start]
        if not layers or step.eqn.effects:
            self.plain(stack.start, stack.stop)
            return
        operands = values_at(step.reads, self.env)
        fixed, carry, rows = scan_parts(step.eqn, operands)
        body, constants = open_jaxpr(step.eqn.params["jaxpr"])
        count = len(carry)

        def iteration(carry: Arrays, row: Arrays) -> tuple[Arrays, Arrays]:
            out = evaluate_jaxpr(body, constants, [*fixed, *carry, *row])
            return out[:count], out[count:]

        last, ys = remat_scan(
            iteration,
            carry,
            rows,
            stack.turns,
            layers,
            self.option,
            backwards=bool(step.eqn.params["reverse"]),
        )
        self.env.update(zip(step.makes, [*last, *ys], strict=True))


def remat_scan(
    body: LoopBody,
    carry: Arrays,
    rows: Arrays,
    total: int,
    layers: int,
    option: Option,
    *,
    backwards: bool,
) -> tuple[Arrays, Arrays]:
    """Scan whose first `layers` iterations are recomputed, one group at a time."""
    scan = jax.lax.scan
    size = option.group
    layers -= layers % size
    if not layers:
        return scan(body, carry, rows, length=total, reverse=backwards)

    def some(first: int, last: int) -> Arrays:
        """Rows of a range of iterations, counted in the order in which they run."""
        if last - first == total:
            return rows
        low, high = first, last
        if backwards:
            low, high = total - last, total - first
        return [row[low:high] for row in rows]

    # Two nested scans: the outer one runs over groups and is rematerialised.
    def grouped(rows: Arrays, count: int) -> Arrays:
        return [row.reshape(count // size, size, *row.shape[1:]) for row in rows]

    def group(carry: Arrays, rows: Arrays) -> tuple[Arrays, Arrays]:
        return scan(body, carry, rows, length=size, reverse=backwards)

    inner: LoopBody = body
    inputs = some(0, layers)
    if size > 1:
        inner = group
        inputs = grouped(inputs, layers)
    # Inside a scan `prevent_cse` is not needed.
    remat = jax.checkpoint(inner, policy=policy_of(option.saved), prevent_cse=False)
    carry, ys = scan(remat, carry, inputs, length=layers // size, reverse=backwards)
    if size > 1:
        ys = [y.reshape(layers, *y.shape[2:]) for y in ys]

    # The remainder saves everything. In a reversed scan its rows come first.
    if layers < total:
        others = some(layers, total)
        carry, rest = scan(body, carry, others, length=total - layers, reverse=backwards)
        first, second = (rest, ys) if backwards else (ys, rest)
        pairs = zip(first, second, strict=True)
        ys = [jax.numpy.concatenate(pair) for pair in pairs]
    return carry, ys


def program_of(
    flat: FlatProgram,
    stacks: Sequence[Stack],
    option: Option,
) -> Callable[[Arrays], list[Array]]:
    """Program as a function of its constants and arguments that saves what the option says."""

    def whole(values: Arrays) -> list[Array]:
        env = dict(zip(flat.takes, values, strict=True))
        run = _Evaluation(flat, option, env)
        at, done = 0, 0
        for stack in () if option.whole else stacks:
            run.plain(at, stack.start)
            left = max(option.layers - done, 0)
            run.stack(stack, min(left, stack.count))
            at = stack.stop
            done += stack.count
        run.plain(at, len(flat.steps))
        return values_at(flat.gives, run.env)

    if not option.whole:
        return whole
    return jax.checkpoint(whole, policy=policy_of(option.saved))
