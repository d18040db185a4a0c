"""Run equal layers of a program as one loop, so that one of them is compiled and not all: `roll="auto"`.

What is rolled is proven equal: the same operations with the same parameters, on values of the same types, each layer reading what the one
before has made, what is the same for all, and what is its own. What is its own is stacked in the program, or was one array from the
beginning. The rest stays as it is, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from .._jax.evaluation import applied
from .._jax.jaxprs import inside, is_backward, opened, scan_parts
from .._jax.memory import text
from .._jax.trees import is_a
from .chain import Broken, Chain, typed
from .flat import FlatProgram, Step, flattened
from .flops import flops_text, of_equation
from .layers import Stack, formed, repetitions
from .slices import gradients_as_rows, slices_first

_jax: Any = jax
LAYERS = 4
"""Fewer are not worth a loop."""
OPERATIONS = 40
"""Layers of fewer compile about as fast as the loop with what it takes apart and puts together."""
STACKED = 12
"""So many layers are worth one whatever they do, where all of their weights are slices of stacked ones: on CPUs XLA compiles each slice for
itself, where it compiles equal operations once."""
COPY = 300
"""As many operations on numbers have to be done for each byte that is stacked, so that stacking takes a twentieth of their time."""
EACH = 10_000
"""As many operations on numbers take as long as one operation of a program takes to start."""
_NO_KERNEL = "conv_general_dilated"  # that CPUs have kernels for outside of loops alone


@dataclass(frozen=True)
class Layers:
    """Layers that were found one behind the other, and what became of them.

    Args:
        layers: How many.
        operations: Of each, in the program.
        chain: The loop; None if they stay as they are.
        why: For a line of the plan.
    """

    layers: int
    operations: int
    chain: Chain | None
    why: str


@dataclass(frozen=True)
class Rolling:
    """A program with its equal layers as loops.

    Args:
        flat: The program.
        found: The layers.
        inner: Of its loops those whose bodies have such layers, by step.
        is_last: Whether nobody differentiates it: then layers may pick what is theirs out of arrays of more. The derivative of that
            would add up whole arrays in each turn.
    """

    flat: FlatProgram
    found: tuple[Layers, ...]
    inner: Mapping[int, Rolling] = field(default_factory=dict[int, "Rolling"])
    is_last: bool = False

    @property
    def chains(self) -> list[Chain]:
        return [each.chain for each in self.found if each.chain is not None]

    @property
    def changes(self) -> bool:
        """Whether anything is another program than before."""
        return bool(self.chains or self.inner)

    @property
    def lines(self) -> list[tuple[bool, str]]:
        """Whether something was rolled, and what or why not, for a plan."""
        mine = [(each.chain is not None, each.why) for each in self.found]
        return mine + [(done, f"in a loop: {why}") for each in self.inner.values() for done, why in each.lines]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The results, from the program's constants and arguments."""
        run = _Run(self, dict(zip(self.flat.takes, values, strict=True)))
        at = 0
        for chain in self.chains:
            run.plain(at, chain.stack.start)
            run.chain(chain)
            at = chain.stack.stop
        run.plain(at, len(self.flat.steps))
        return [typed(run.value(ref), self.flat.avals[ref]) if isinstance(ref, int) else ref.value for ref in self.flat.gives]


def rolling(traced: Any, *, differentiated: bool = False, derived: bool = False) -> Rolling:
    """Find the equal layers of a program, and decide which become loops; whether it is differentiated then, or is part of a derivative."""
    flat = slices_first(gradients_as_rows(flattened(traced)))
    parts: Parts = dict(_parts(flat))
    derived = derived or any(is_backward(step.eqn) for step in flat.steps)
    stacks = repetitions(flat, OPERATIONS)
    found: list[Layers] = []
    for i, stack in enumerate(stacks):
        low = stacks[i - 1].stop if i else 0
        high = stacks[i + 1].start if i + 1 < len(stacks) else len(flat.steps)
        if found and (before := found[-1].chain) is not None:
            low = before.stack.stop  # which may have grown
        layers = _decided(flat, _grown(flat, stack, low, high), parts, differentiated=differentiated, derived=derived)
        found.append(layers)
        if layers.chain is not None:
            parts.update(_made(layers.chain, lambda chain, made: _Turns((chain, made))))
    rolled = {i for each in found if each.chain for i in range(each.chain.stack.start, each.chain.stack.stop)}
    inner = {
        i: rolling(step.eqn.params["jaxpr"], differentiated=differentiated, derived=derived)
        for i, step in enumerate(flat.steps)
        if i not in rolled and step.name == "scan"
    }
    return Rolling(flat, tuple(found), {i: each for i, each in inner.items() if each.changes}, is_last=not differentiated)


def _decided(flat: FlatProgram, stack: Stack, parts: Parts, *, differentiated: bool, derived: bool) -> Layers:
    """Layers as they repeat, and whether they become a loop."""
    steps = flat.steps[stack.bounds[0] : stack.bounds[1]]
    operations = sum(1 + _held(step) for step in steps)
    count = stack.count

    def stay(why: str) -> Layers:
        return Layers(count, operations, None, f"{count} layers of {operations} operations stay as they are: {why}")

    effects = next((step.name for step in flat.steps[stack.start : stack.stop] if step.eqn.effects), None)
    if effects is not None:
        return stay(f"`{effects}` in them does something besides computing")
    stack, chain = _longest(flat, stack)
    if isinstance(chain, Broken):
        return stay(chain.why)
    count = stack.count
    copied = sum(flat.sizes[n] for row in chain.rows if not _at_hand(flat, row, parts, is_last=not differentiated) for n in row) // count
    on_cpu = _jax.local_devices()[0].platform == "cpu"
    in_slices = on_cpu and count >= STACKED and bool(chain.rows) and not copied
    if count < LAYERS or (operations < OPERATIONS and not in_slices):
        many = f", or on CPUs for {STACKED} or more whose weights are stacked" if on_cpu else ""
        return stay(f"a loop is worth it for {LAYERS} layers or more, of {OPERATIONS} operations or more{many}")
    if on_cpu:
        if not (differentiated or derived) and copied:  # of stacked weights each slice would be an operation of its own
            return stay("on a CPU a forward pass compiles equal operations once as it is; a gradient of it may be rolled")
        if any(eqn.primitive.name == _NO_KERNEL for step in steps for eqn in (step.eqn, *inside(step.eqn))):
            return stay(f"`{_NO_KERNEL}` has no fast kernel in a loop on CPUs")
    work = sum(of_equation(step.eqn) for step in steps)
    if copied * COPY > work + EACH * operations:
        return stay(f"to stack {text(copied)} of each takes too long beside its {flops_text(work)}; `jitney.stack` does it once")
    stacked = f", with {text(copied)} of each stacked" if copied else ""
    saved = (count - 1) * operations
    return Layers(count, operations, chain, f"{count} equal layers are one loop{stacked}: {saved} operations fewer to compile")


def _grown(flat: FlatProgram, stack: Stack, low: int, high: int) -> Stack:
    """With the layers before and behind it that are equal to its first and last; where a repetition ends is a guess."""
    bounds = list(stack.bounds)
    period = bounds[1] - bounds[0]
    while bounds[0] - period >= low and formed(flat, bounds[0] - period, bounds[0]).form == formed(flat, *bounds[:2]).form:
        bounds.insert(0, bounds[0] - period)
    while bounds[-1] + period <= high and formed(flat, bounds[-1], bounds[-1] + period).form == formed(flat, *bounds[-2:]).form:
        bounds.append(bounds[-1] + period)
    return Stack(tuple(bounds))


def _longest(flat: FlatProgram, stack: Stack) -> tuple[Stack, Chain | Broken]:
    """The most layers that follow one another and are a chain. The first or the last may stand where others do not."""
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


# What is cut out of one array.


@dataclass(frozen=True, eq=False)
class _Turns:
    """What each turn of a loop has made, as one array; while it is decided, which."""

    array: Any


Parts = dict[int, tuple[Any, int]]
"""What is one element along the first axis of an array, by number: of which (a value, by number, or turns of a loop) and at which place."""


def _parts(flat: FlatProgram) -> dict[int, tuple[int, int]]:
    """What is one element along the first axis of an array: which array, and at which place."""
    parts: dict[int, tuple[int, int]] = {}
    rows: dict[int, tuple[int, int]] = {}
    for step in flat.steps:
        if step.name == "slice" and step.numbers:
            start, stop, strides = (step.eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
            shape = flat.avals[step.numbers[0]].shape
            whole = not any(start[1:]) and tuple(stop[1:]) == tuple(shape[1:]) and all(each == 1 for each in strides or ())
            if whole and stop[0] == start[0] + 1:
                rows[step.makes[0]] = (step.numbers[0], start[0])
        elif step.name == "squeeze" and step.numbers and step.numbers[0] in rows and tuple(step.eqn.params["dimensions"]) == (0,):
            parts[step.makes[0]] = rows[step.numbers[0]]
    return parts


def _at_hand(flat: FlatProgram, row: Sequence[int], parts: Parts, *, is_last: bool) -> bool:
    """Whether nothing is copied to have what is each layer's own in one array."""
    found = _array(row, parts)
    if found is None:
        return False
    return is_last or is_a(found[0], _Turns) or (flat.avals[found[0]].shape[0] == len(row) and found[1][0] == 0)


def _made(chain: Chain, array: Callable[[Chain, int], _Turns]) -> Iterator[tuple[int, tuple[_Turns, int]]]:
    """What the layers of a loop make that is read elsewhere: of what it is a part then, and at which place."""
    for made in chain.wanted:
        turns = array(chain, made)
        for k in range(chain.layers):
            yield chain.makes[k][made], (turns, k)


def _array(row: Sequence[int], parts: Parts) -> tuple[Any, list[int]] | None:
    """The one array that values are the elements of, and their places, one behind the other or before it; None if there is none."""
    found = [parts[n] for n in row if n in parts]
    if len(found) < len(row) or any(array is not found[0][0] and array != found[0][0] for array, _ in found):
        return None
    places = [place for _, place in found]
    return (found[0][0], places) if {b - a for a, b in pairwise(places)} in ({1}, {-1}) else None


# The program as it runs.


class _Run:
    """One evaluation."""

    def __init__(self, rolling: Rolling, env: dict[int, Any]):
        self.flat, self.inner, self.env, self.is_last = rolling.flat, rolling.inner, env, rolling.is_last
        self.parts: Parts = dict(_parts(self.flat))

    def value(self, n: int) -> Any:
        if n not in self.env:
            array, at = self.parts[n]
            whole = array.array if is_a(array, _Turns) else self.value(array)
            self.env[n] = _jax.lax.index_in_dim(whole, at, keepdims=False)
        return self.env[n]

    def plain(self, start: int, stop: int) -> None:
        for i, step in enumerate(self.flat.steps[start:stop], start):
            if step.makes and step.makes[0] in self.parts:
                continue  # when it is asked for
            if step.name == "concatenate" and step.eqn.params["dimension"] == 0:
                self.env[step.makes[0]] = self.together(step)
                continue
            values = [self.value(ref) if isinstance(ref, int) else ref.value for ref in step.reads]
            made = self.loop(step, values, self.inner[i]) if i in self.inner else step.bound(values)
            self.env.update(zip(step.makes, made, strict=True))

    def loop(self, step: Step, operands: list[Any], inner: Rolling) -> list[Any]:
        """A loop in whose body there are layers."""
        fixed, carry, rows = scan_parts(step.eqn, operands)
        constants, count = list(opened(step.eqn.params["jaxpr"])[1]), len(carry)

        def turn(carry: Any, row: Any) -> Any:
            out = inner([*constants, *fixed, *carry, *row])
            return out[:count], out[count:]

        options = {name: step.eqn.params[name] for name in ("length", "reverse", "unroll")}
        last, ys = _jax.lax.scan(turn, carry, rows, **options)
        return [*last, *ys]

    def chain(self, chain: Chain) -> None:
        """Layers as a loop."""
        layer, begin = chain.layer(self.flat, self.value)
        rows = [self.stacked(row) for row in chain.rows]
        arrays = [array for array, _ in rows]

        def turn(carry: Any, given: Any) -> Any:
            own = [
                x if of is None else _jax.lax.dynamic_index_in_dim(of, x, keepdims=False) for of, x in zip(arrays, given[0], strict=True)
            ]
            return layer(carry, [*own, *given[1]])

        last, ys = _jax.lax.scan(turn, begin, ([row for _, row in rows], chain.numbers), length=chain.layers)
        made = dict(zip(chain.wanted, ys, strict=True))
        self.parts.update(_made(chain, lambda _, which: _Turns(made[which])))
        self.env.update(chain.handed_on(last))

    def together(self, step: Step) -> Any:
        """What is put one behind the other. What a loop has made in turns that follow one another is one array already."""
        runs: list[tuple[Any, list[Any]]] = []  # of turns, their places; of None, one value
        for ref in step.reads:
            turns, at = self.parts.get(ref, (None, 0)) if isinstance(ref, int) and ref not in self.env else (None, 0)
            if not is_a(turns, _Turns):
                runs.append((None, [self.value(ref) if isinstance(ref, int) else ref.value]))
            elif runs and runs[-1][0] is turns and _follows(runs[-1][1], at):
                runs[-1][1].append(at)
            else:
                runs.append((turns, [at]))
        pieces = [which[0] if turns is None else _flat_run(turns.array, which) for turns, which in runs]
        return pieces[0] if len(pieces) == 1 else _jax.lax.concatenate(pieces, 0)

    def stacked(self, row: Sequence[int]) -> tuple[Any, Any]:
        """What is each layer's own, as one array; or an array and which of its elements each layer reads."""
        found = _array(row, self.parts)
        if found is None:
            return None, _jax.numpy.stack([self.value(n) for n in row])
        array, places = found
        whole = array.array if is_a(array, _Turns) else self.value(array)
        if places == list(range(whole.shape[0])):
            return None, whole
        if self.is_last or is_a(array, _Turns):
            return whole, np.asarray(places, np.int32)
        return None, _run_of(whole, places)


def _follows(places: Sequence[int], at: int) -> bool:
    """Whether a place is the next one, in either direction."""
    step = at - places[-1]
    return abs(step) == 1 and (len(places) == 1 or step == places[1] - places[0])


def _run_of(whole: Any, places: Sequence[int]) -> Any:
    """Elements of an array that follow one another, in either direction."""
    part = _jax.lax.slice_in_dim(whole, min(places), max(places) + 1)
    return part if places[0] == min(places) else _jax.lax.rev(part, (0,))


def _flat_run(whole: Any, places: Sequence[int]) -> Any:
    """The same, put one behind the other."""
    part = _run_of(whole, places)
    return _jax.lax.reshape(part, (part.shape[0] * part.shape[1], *part.shape[2:]))


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
    def of(cls, fn: Callable[..., Any], arrays: Sequence[Any], *, differentiated: bool = False) -> Rolled:
        def flat(*arrays: Any) -> Any:  # JAX keeps traces by function, and what a trace leaves behind is wanted each time
            return fn(*arrays)

        traced = _jax.make_jaxpr(flat)(*arrays)
        return cls(traced, rolling(traced, differentiated=differentiated))

    @property
    def lines(self) -> list[tuple[bool, str]]:
        return self.found.lines

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        program, constants = opened(self.traced)
        return self.found([*constants, *arrays]) if self.found.changes else applied(program, constants, arrays)
