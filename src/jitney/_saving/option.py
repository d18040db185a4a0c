"""What can be saved for the backward pass, and the program with that choice built in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import jax

from .._jax.evaluation import applied, values_at
from .._jax.jaxprs import opened, scan_parts
from .flat import FlatProgram
from .layers import Stack, alike

_jax: Any = jax
Saved = Literal["everything", "dots", "nothing", "offloaded"]


@dataclass(frozen=True)
class Option:
    """What is saved of a program. The layers are those of all its stacks, in the order of the program.

    Args:
        saved: Inside the layers that are recomputed: matrix products ("dots", "offloaded" to the memory of the host) or "nothing".
        layers: How many are recomputed, the first ones; of the others everything is saved, since the backward pass starts with them.
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
        kept = {"dots": "products", "offloaded": "products, in the memory of the host", "nothing": "what enters"}[self.saved]
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

        out = _jax.checkpoint(segment, policy=policy_of(self.option.saved))(*(self.env[n] for n in reads))
        self.env.update(zip(writes, out, strict=True))

    def stack(self, stack: Stack, layers: int) -> None:
        """A stack, of which the first layers are recomputed."""
        if stack.turns:
            self.loop(stack, layers)
            return
        group = self.option.group
        rolled = layers - layers % group if self.option.rolled and stack.alike else 0
        chain = Chain.of(self.flat, stack, rolled) if rolled > group else None
        first = rolled if chain else 0
        if chain:
            chain.run(self)
        for i in range(first, layers, group):
            self.apart(stack.bounds[i], stack.bounds[min(i + group, layers)])
        self.plain(stack.bounds[layers], stack.stop)

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


def turns(turn: Any, carry: Any, rows: Any, total: int, layers: int, option: Option, *, backwards: bool) -> Any:
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
        carry, rest = scan(turn, carry, some(layers, total), length=total - layers, reverse=backwards)
        pairs = zip(rest, ys, strict=True) if backwards else zip(ys, rest, strict=True)
        ys = [_jax.numpy.concatenate(pair) for pair in pairs]
    return carry, ys


@dataclass(frozen=True)
class Chain:
    """Equal layers as a loop: what each reads is the same for all, its own, or what the layer before made.

    Args:
        stack: The layers.
        layers: How many of them, the first ones.
        sources: For each layer, what it reads, in one order for all.
        makes: For each layer, what it makes, in one order for all.
        carried: What is read from the layer before, by place -> which of what that made.
        wanted: Which of what a layer makes is read elsewhere.
    """

    stack: Stack
    layers: int
    sources: tuple[list[int], ...]
    makes: tuple[list[int], ...]
    carried: dict[int, int]
    wanted: tuple[int, ...]

    @classmethod
    def of(cls, flat: FlatProgram, stack: Stack, layers: int) -> Chain | None:
        """None if they read something of a layer that is not the one before."""
        pairs = list(pairwise(stack.bounds))[:layers]
        parts = [alike(flat, *pair) for pair in pairs]
        sources, makes = tuple(part[1] for part in parts), tuple(part[2] for part in parts)
        inside = {n for numbers in makes for n in numbers}
        carried: dict[int, int] = {}
        for place in range(len(sources[0])):
            read = [source[place] for source in sources]
            if not any(n in inside for n in read):
                continue
            before = {makes[k].index(n) if n in makes[k] else -1 for k, n in enumerate(read[1:])}
            if read[0] in inside or len(before) > 1 or before == {-1}:
                return None
            carried[place] = before.pop()
        own = [set(range(*pair)) for pair in pairs]
        later = [set(flat.needed_after(*pair)) - _read_by_next(flat, own, sources, k, layers) for k, pair in enumerate(pairs)]
        later[-1] -= {makes[-1][made] for made in carried.values()}  # which the loop hands on
        wanted = sorted({makes[k].index(n) for k, numbers in enumerate(later) for n in numbers})
        return cls(stack, layers, sources, makes, carried, tuple(wanted))

    def run(self, run: _Evaluation) -> None:
        env, flat = run.env, run.flat
        start, stop = self.stack.bounds[0], self.stack.bounds[1]
        places = range(len(self.sources[0]))
        shared = {p: env[self.sources[0][p]] for p in places if p not in self.carried and len({source[p] for source in self.sources}) == 1}
        own = [p for p in places if p not in self.carried and p not in shared]
        rows = [_jax.numpy.stack([env[source[p]] for source in self.sources]) for p in own]

        def layer(carry: Any, row: Any) -> Any:
            values = {**shared, **dict(zip(self.carried, carry, strict=True)), **dict(zip(own, row, strict=True))}
            inner = _Evaluation(flat, run.option, {self.sources[0][p]: values[p] for p in places})
            inner.plain(start, stop)
            out = [inner.env[n] for n in self.makes[0]]
            return [out[made] for made in self.carried.values()], [out[made] for made in self.wanted]

        begin = [env[self.sources[0][p]] for p in self.carried]
        last, ys = turns(layer, begin, rows, self.layers, self.layers, run.option, backwards=False)
        for made, y in zip(self.wanted, ys, strict=True):
            for k, makes in enumerate(self.makes):
                env[makes[made]] = y[k]
        env.update({self.makes[-1][made]: value for made, value in zip(self.carried.values(), last, strict=True)})


def _read_by_next(flat: FlatProgram, own: list[set[int]], sources: Any, k: int, layers: int) -> set[int]:
    """What a layer makes and only the next one reads; of the last one the loop hands on what it carries."""
    read = set(sources[k + 1]) if k + 1 < layers else set[int]()
    after = own[k + 1] if k + 1 < layers else set[int]()
    others = {n for i, step in enumerate(flat.steps) if i not in own[k] and i not in after for n in step.numbers} | flat.results
    return read - others


def program_of(flat: FlatProgram, stacks: Sequence[Stack], option: Option) -> Callable[[Sequence[Any]], list[Any]]:
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
