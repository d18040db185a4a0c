"""Chains of identical layers, as the body of a `scan`: what each layer reads, and where its results
are read.

    h1 = tanh (h0 @ w0)        shared:  operands that are the same for all layers
    h2 = tanh (h1 @ w1)   ->   carried: h, which each layer reads from the one before
    h3 = tanh (h2 @ w2)        own:     w, stacked into the rows of the scan
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .._jax.programs.jaxprs import rebind
from .._jax.programs.ssa import FlatProgram, Step
from .._jax.trees import set_weak_type
from .._jax.typed import Array, Aval, NumPyArray
from .layers import Stack, canonical_form, is_number

Arrays = Sequence[Array]
LoopBody = Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]
"""One iteration of a scan: from carry and row to the next carry and outputs."""


@dataclass(frozen=True)
class Broken:
    """Reason why layers are not a chain, as part of a sentence."""

    why: str


@dataclass(frozen=True)
class Chain:
    """Identical layers as a loop. What a layer reads is shared by all, its own, or carried from the
    layer before.

    Args:
        stack: The layers.
        layers: Number of layers in the loop, from the first on.
        sources: For each layer, the values that it reads, in the same order for all.
        makes: For each layer, the values that it computes, in the same order for all.
        carried: Index of an operand that is read from the layer before -> index of the value there.
        own: Indices of the operands that differ between layers.
        outputs: Indices of the values of a layer that are read elsewhere.
        written: Literals of the program, stacked over the layers; None where they are the same for
            all.
    """

    stack: Stack
    layers: int
    sources: tuple[list[int], ...]
    makes: tuple[list[int], ...]
    carried: dict[int, int]
    own: tuple[int, ...]
    outputs: tuple[int, ...]
    written: tuple[NumPyArray | None, ...]

    @classmethod
    def of(
        cls,
        flat: FlatProgram,
        stack: Stack,
        layers: int,
    ) -> Chain | Broken:
        """Chain of these layers, or the reason why there is none.

        They are not a chain if they differ, or if one reads a value of a layer other than the one
        before.
        """
        # The forms are equal if the layers compute the same of what they read.
        pairs = list(pairwise(stack.bounds))[:layers]
        parts = [canonical_form(flat, *pair) for pair in pairs]
        first = parts[0]
        if any(part.form != first.form for part in parts):
            return Broken("they differ in more than what they read")
        sources = tuple(part.reads for part in parts)
        makes = tuple(part.makes for part in parts)
        computed = {n for numbers in makes for n in numbers}
        place_of = [{n: i for i, n in enumerate(numbers)} for numbers in makes]

        # An operand is carried if the first layer reads it from outside, and every other layer from
        # the same result of the layer before.
        carried: dict[int, int] = {}
        own: list[int] = []
        for place in range(len(first.reads)):
            read = [source[place] for source in sources]
            if computed.isdisjoint(read):
                if len(set(read)) > 1:
                    own.append(place)
                continue
            before = {place_of[k].get(n, -1) for k, n in enumerate(read[1:])}
            if read[0] in computed or len(before) > 1 or before == {-1}:
                return Broken("one reads what a layer makes that is not the one before")
            carried[place] = before.pop()

        literals = zip(*(part.numbers for part in parts), strict=True)
        return cls(
            stack,
            layers,
            sources,
            makes,
            carried,
            own=tuple(own),
            outputs=_output_indices(flat, pairs, makes, carried),
            written=tuple(map(_stack_literals, literals)),
        )

    @property
    def rows(self) -> list[list[int]]:
        """Operands that differ between layers: for each, the value of every layer."""
        return [[source[p] for source in self.sources] for p in self.own]

    @property
    def numbers(self) -> list[NumPyArray]:
        """Literals that differ between layers, stacked."""
        return [number for number in self.written if number is not None]

    @property
    def shared_operands(self) -> list[int]:
        """Operands that are the same for all layers."""
        differing = {*self.carried, *self.own}
        return [n for p, n in enumerate(self.sources[0]) if p not in differing]

    @property
    def begins(self) -> list[int]:
        """Initial carry: the values that the first layer reads where the others read the layer
        before.
        """
        return [self.sources[0][p] for p in self.carried]

    def layer(
        self,
        flat: FlatProgram,
        value_of: Callable[[int], Array],
    ) -> tuple[LoopBody, list[Array]]:
        """Body of the loop, a function of the carry and of a row, with its initial carry."""
        start, stop = self.stack.bounds[:2]
        steps = flat.steps[start:stop]
        source, makes = self.sources[0], self.makes[0]
        shared = {n: value_of(n) for n in self.shared_operands}
        places = (*self.carried, *self.own)
        count = len(self.own)

        def layer(carry: Arrays, row: Arrays) -> tuple[Arrays, Arrays]:
            env = dict(shared)
            operands = (*carry, *row[:count])
            for place, value in zip(places, operands, strict=True):
                n = source[place]
                env[n] = with_weak_type(value, flat.avals[n])
            _run(steps, env, self.written, row[count:])

            # A scan checks that the types of its carry stay the same, weak types included.
            after: list[Array] = []
            for place, index in self.carried.items():
                aval = flat.avals[source[place]]
                after.append(with_weak_type(env[makes[index]], aval))
            return after, [env[makes[index]] for index in self.outputs]

        begin = [with_weak_type(value_of(n), flat.avals[n]) for n in self.begins]
        return layer, begin

    def final_carry(self, last: Arrays) -> dict[int, Array]:
        """Final carry, by the number of the value that it is in the program."""
        makes = self.makes[-1]
        numbers = [makes[index] for index in self.carried.values()]
        return dict(zip(numbers, last, strict=True))


def _run(
    steps: Sequence[Step],
    env: dict[int, Array],
    written: Sequence[object],
    own: Arrays,
) -> None:
    """Run one layer on the steps of the first, with its own literals in place of those of the
    first.
    """
    stacked_literals = iter(written)
    own_literals = iter(own)
    for step in steps:
        values: list[object] = []
        for ref, atom in zip(step.reads, step.eqn.invars, strict=True):
            if isinstance(ref, int):
                values.append(env[ref])
            elif is_number(ref) and next(stacked_literals) is not None:
                literal = next(own_literals)
                values.append(with_weak_type(literal, atom.aval))
            else:
                values.append(ref.value)
        results = rebind(step.eqn, values)
        env.update(zip(step.makes, results, strict=True))


def _stack_literals(values: Sequence[NumPyArray]) -> NumPyArray | None:
    """Stack literals; None if they are the same to the bit."""
    first = values[0].tobytes()
    if all(value.tobytes() == first for value in values):
        return None
    return np.stack(values)


def _output_indices(
    flat: FlatProgram,
    pairs: Sequence[tuple[int, int]],
    makes: Sequence[list[int]],
    carried: Mapping[int, int],
) -> tuple[int, ...]:
    """Indices of the values of a layer that are read outside of it and of the next one.

    The final carry is left out for the last layer, because the loop returns it anyway.
    """
    wanted: set[int] = set()
    last = len(pairs) - 1
    for k, numbers in enumerate(makes):
        low, _ = pairs[k]
        _, high = pairs[min(k + 1, last)]
        final = set(carried.values()) if k == last else set[int]()
        for i, n in enumerate(numbers):
            if i in final:
                continue
            readers = flat.readers.get(n, ())
            if not all(low <= at < high for at in readers):
                wanted.add(i)
    return tuple(sorted(wanted))


def with_weak_type(x: Array, aval: Aval) -> Array:
    """Give a value the weak type of an abstract value: what is stacked or carried is strongly
    typed.
    """
    is_weak = bool(getattr(aval, "weak_type", False))
    return set_weak_type(x, is_weak=is_weak, dtype=aval.dtype)
