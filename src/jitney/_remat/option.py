"""Options of rematerialisation, and the program with one built in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax

from .._jax.evaluation import applied, values_at
from .._jax.jaxprs import opened, scan_parts
from .chain import Chain
from .flat import FlatProgram
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
        kept = {
            "dots": "products",
            "offloaded": "products, in the memory of the host",
            "nothing": "what enters",
        }[self.saved]
        if self.whole:
            return kept
        of = "each layer" if self.group == 1 else f"each {self.group} layers"
        return f"{kept} of {of}, the first {self.layers}{', as a loop' if self.rolled else ''}"


EVERYTHING = Option()


def policy_of(saved: Saved) -> Any:
    """Policy of `jax.checkpoint`."""
    policies = jax.checkpoint_policies
    if saved == "offloaded":
        return policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return policies.dots_saveable if saved == "dots" else policies.nothing_saveable


@dataclass
class _Evaluation:
    """Interpreter state of one run."""

    flat: FlatProgram
    option: Option
    env: dict[int, Any]

    def plain(self, start: int, stop: int) -> None:
        for step in self.flat.steps[start:stop]:
            self.env.update(zip(step.makes, step.run(self.env), strict=True))

    def apart(self, start: int, stop: int) -> None:
        """Run steps under `jax.checkpoint`: their inputs are saved, and what the policy saves."""
        flat = self.flat
        # `jax.checkpoint` does not take effects.
        if any(step.eqn.effects for step in flat.steps[start:stop]):
            self.plain(start, stop)
            return
        reads, writes = flat.reads_of(start, stop), flat.needed_after(start, stop)

        def segment(*values: object) -> list[Any]:
            inner = _Evaluation(flat, self.option, dict(zip(reads, values, strict=True)))
            inner.plain(start, stop)
            return [inner.env[n] for n in writes]

        out = jax.checkpoint(segment, policy=policy_of(self.option.saved))(
            *(self.env[n] for n in reads)
        )
        self.env.update(zip(writes, out, strict=True))

    def stack(self, stack: Stack, layers: int) -> None:
        """Run a stack whose first layers are recomputed."""
        if stack.turns:
            self.loop(stack, layers)
            return
        group = self.option.group
        # A loop takes whole groups only. The remainder follows as separate layers.
        rolled = layers - layers % group if self.option.rolled and stack.identical else 0
        found = Chain.of(self.flat, stack, rolled) if rolled > group else None
        chain = found if isinstance(found, Chain) else None
        first = rolled if chain else 0
        if chain:
            self.chain(chain)
        for i in range(first, layers, group):
            self.apart(stack.bounds[i], stack.bounds[min(i + group, layers)])
        self.plain(stack.bounds[layers], stack.stop)

    def chain(self, chain: Chain) -> None:
        """Run layers as a scan that is recomputed in groups."""
        layer, begin = chain.layer(self.flat, self.env.__getitem__)
        rows = [jax.numpy.stack([self.env[n] for n in row]) for row in chain.rows] + chain.numbers
        last, ys = remat_scan(
            layer, begin, rows, chain.layers, chain.layers, self.option, backwards=False
        )
        for made, y in zip(chain.outputs, ys, strict=True):
            for k in range(chain.layers):
                self.env[chain.makes[k][made]] = y[k]
        self.env.update(chain.final_carry(last))

    def loop(self, stack: Stack, layers: int) -> None:
        """Run a scan whose first iterations are recomputed in groups."""
        step = self.flat.steps[stack.start]
        if not layers or step.eqn.effects:
            self.plain(stack.start, stack.stop)
            return
        operands = values_at(step.reads, self.env)
        fixed, carry, rows = scan_parts(step.eqn, operands)
        body, constants = opened(step.eqn.params["jaxpr"])
        count, backwards = len(carry), bool(step.eqn.params["reverse"])

        def turn(carry: Any, row: Any) -> Any:
            out = applied(body, constants, [*fixed, *carry, *row])
            return out[:count], out[count:]

        carry, ys = remat_scan(
            turn, carry, rows, stack.turns, layers, self.option, backwards=backwards
        )
        self.env.update(zip(step.makes, [*carry, *ys], strict=True))


def remat_scan(
    turn: Any, carry: Any, rows: Any, total: int, layers: int, option: Option, *, backwards: bool
) -> Any:
    """Scan whose first `layers` iterations are recomputed, one group at a time."""
    scan = jax.lax.scan
    layers -= layers % option.group
    if not layers:
        return scan(turn, carry, rows, length=total, reverse=backwards)

    def some(first: int, last: int) -> Any:
        """Rows of a range of iterations, counted in the order in which they run."""
        low, high = (total - last, total - first) if backwards else (first, last)
        return rows if last - first == total else [row[low:high] for row in rows]

    # Two nested scans: the outer one runs over groups and is rematerialised.
    def grouped(rows: Any, count: int) -> Any:
        return [row.reshape(count // option.group, option.group, *row.shape[1:]) for row in rows]

    def group(carry: Any, rows: Any) -> Any:
        return scan(turn, carry, rows, length=option.group, reverse=backwards)

    kept = turn if option.group == 1 else group
    given = some(0, layers) if option.group == 1 else grouped(some(0, layers), layers)
    # Inside a scan `prevent_cse` is not needed.
    again = jax.checkpoint(kept, policy=policy_of(option.saved), prevent_cse=False)
    carry, ys = scan(again, carry, given, length=layers // option.group, reverse=backwards)
    if option.group > 1:
        ys = [y.reshape(layers, *y.shape[2:]) for y in ys]

    # The remainder saves everything. In a reversed scan its rows come first.
    if layers < total:
        carry, rest = scan(
            turn, carry, some(layers, total), length=total - layers, reverse=backwards
        )
        pairs = zip(rest, ys, strict=True) if backwards else zip(ys, rest, strict=True)
        ys = [jax.numpy.concatenate(pair) for pair in pairs]
    return carry, ys


def program_of(
    flat: FlatProgram, stacks: Sequence[Stack], option: Option
) -> Callable[[Sequence[Any]], list[Any]]:
    """Program as a function of its constants and arguments that saves what the option says."""

    def whole(values: Sequence[object]) -> list[Any]:
        run = _Evaluation(flat, option, dict(zip(flat.takes, values, strict=True)))
        at, done = 0, 0
        for stack in () if option.whole else stacks:
            run.plain(at, stack.start)
            run.stack(stack, min(max(option.layers - done, 0), stack.count))
            at, done = stack.stop, done + stack.count
        run.plain(at, len(flat.steps))
        return values_at(flat.gives, run.env)

    return jax.checkpoint(whole, policy=policy_of(option.saved)) if option.whole else whole
