"""What can be saved for the backward pass, and the program with that choice built in."""

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

_jax: Any = jax
Saved = Literal["everything", "dots", "nothing", "offloaded"]


@dataclass(frozen=True)
class Option:
    """What is saved of a program. The layers are those of all its stacks, in the order of the
    program.

    Args:
        saved: Inside the layers that are recomputed: matrix products ("dots", "offloaded" to the
            memory of the host) or "nothing".
        layers: How many are recomputed, the first ones; of the others everything is saved, since
            the backward pass starts with them.
        group: How many of them together: between groups what one hands to the next is saved.
        rolled: Whether equal layers of a Python loop are made a loop of the program.
        whole: Whether it is no matter of layers: the policy is that of the whole program.
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
    """The policy of `jax.checkpoint`."""
    policies: Any = jax.checkpoint_policies
    if saved == "offloaded":
        return policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return policies.dots_saveable if saved == "dots" else policies.nothing_saveable


@dataclass
class _Evaluation:
    """One evaluation of a program."""

    flat: FlatProgram
    option: Option
    env: dict[int, Any]

    def plain(self, start: int, stop: int) -> None:
        for step in self.flat.steps[start:stop]:
            self.env.update(zip(step.makes, step.run(self.env), strict=True))

    def apart(self, start: int, stop: int) -> None:
        """Steps of which only what enters is kept, and what the policy says."""
        flat = self.flat
        if any(step.eqn.effects for step in flat.steps[start:stop]):
            self.plain(start, stop)
            return
        reads, writes = flat.reads_of(start, stop), flat.needed_after(start, stop)

        def segment(*values: Any) -> list[Any]:
            inner = _Evaluation(flat, self.option, dict(zip(reads, values, strict=True)))
            inner.plain(start, stop)
            return [inner.env[n] for n in writes]

        out = _jax.checkpoint(segment, policy=policy_of(self.option.saved))(
            *(self.env[n] for n in reads)
        )
        self.env.update(zip(writes, out, strict=True))

    def stack(self, stack: Stack, layers: int) -> None:
        """A stack, of which the first layers are recomputed."""
        if stack.turns:
            self.loop(stack, layers)
            return
        group = self.option.group
        rolled = layers - layers % group if self.option.rolled and stack.alike else 0
        found = Chain.of(self.flat, stack, rolled) if rolled > group else None
        chain = found if isinstance(found, Chain) else None
        first = rolled if chain else 0
        if chain:
            self.chain(chain)
        for i in range(first, layers, group):
            self.apart(stack.bounds[i], stack.bounds[min(i + group, layers)])
        self.plain(stack.bounds[layers], stack.stop)

    def chain(self, chain: Chain) -> None:
        """Layers as a loop, which are recomputed in groups."""
        layer, begin = chain.layer(self.flat, self.env.__getitem__)
        rows = [_jax.numpy.stack([self.env[n] for n in row]) for row in chain.rows] + chain.numbers
        last, ys = turns(
            layer, begin, rows, chain.layers, chain.layers, self.option, backwards=False
        )
        for made, y in zip(chain.wanted, ys, strict=True):
            for k in range(chain.layers):
                self.env[chain.makes[k][made]] = y[k]
        self.env.update(chain.handed_on(last))

    def loop(self, stack: Stack, layers: int) -> None:
        """A loop, whose first turns are recomputed in groups, and the others kept."""
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

        carry, ys = turns(turn, carry, rows, stack.turns, layers, self.option, backwards=backwards)
        self.env.update(zip(step.makes, [*carry, *ys], strict=True))


def turns(
    turn: Any, carry: Any, rows: Any, total: int, layers: int, option: Option, *, backwards: bool
) -> Any:
    """A scan, whose first turns are recomputed, some at a time."""
    scan = _jax.lax.scan
    layers -= layers % option.group
    if not layers:
        return scan(turn, carry, rows, length=total, reverse=backwards)

    def some(first: int, last: int) -> Any:
        """The rows of some turns, by their order in time."""
        low, high = (total - last, total - first) if backwards else (first, last)
        return rows if last - first == total else [row[low:high] for row in rows]

    def grouped(rows: Any, count: int) -> Any:
        return [row.reshape(count // option.group, option.group, *row.shape[1:]) for row in rows]

    def group(carry: Any, rows: Any) -> Any:
        return scan(turn, carry, rows, length=option.group, reverse=backwards)

    kept = turn if option.group == 1 else group
    given = some(0, layers) if option.group == 1 else grouped(some(0, layers), layers)
    again = _jax.checkpoint(kept, policy=policy_of(option.saved), prevent_cse=False)
    carry, ys = scan(again, carry, given, length=layers // option.group, reverse=backwards)
    if option.group > 1:
        ys = [y.reshape(layers, *y.shape[2:]) for y in ys]
    if layers < total:
        carry, rest = scan(
            turn, carry, some(layers, total), length=total - layers, reverse=backwards
        )
        pairs = zip(rest, ys, strict=True) if backwards else zip(ys, rest, strict=True)
        ys = [_jax.numpy.concatenate(pair) for pair in pairs]
    return carry, ys


def program_of(
    flat: FlatProgram, stacks: Sequence[Stack], option: Option
) -> Callable[[Sequence[Any]], list[Any]]:
    """The program on its constants and arguments, saving what the option says."""

    def whole(values: Sequence[Any]) -> list[Any]:
        run = _Evaluation(flat, option, dict(zip(flat.takes, values, strict=True)))
        at, done = 0, 0
        for stack in () if option.whole else stacks:
            run.plain(at, stack.start)
            run.stack(stack, min(max(option.layers - done, 0), stack.count))
            at, done = stack.stop, done + stack.count
        run.plain(at, len(flat.steps))
        return values_at(flat.gives, run.env)

    return _jax.checkpoint(whole, policy=policy_of(option.saved)) if option.whole else whole
