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
from typing import Any

import numpy as np
from jax.extend.core import primitives

from .._jax.jaxprs import bound
from .._jax.typed import Aval
from .flat import FlatProgram, Step
from .layers import Stack, canonical_form, is_number

_convert: Any = primitives.convert_element_type_p


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
        wanted: Indices of the values of a layer that are read elsewhere.
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
    written: tuple[np.ndarray[Any, Any] | None, ...]

    @classmethod
    def of(cls, flat: FlatProgram, stack: Stack, layers: int) -> Chain | Broken:
        """Chain of these layers, or the reason why there is none.

        They are not a chain if they differ, or if one reads a value of a layer other than the one
        before.
        """
        # The forms are equal if the layers compute the same of what they read.
        pairs = list(pairwise(stack.bounds))[:layers]
        parts = [canonical_form(flat, *pair) for pair in pairs]
        if any(part.form != parts[0].form for part in parts):
            return Broken("they differ in more than what they read")
        sources, makes = tuple(part.reads for part in parts), tuple(part.makes for part in parts)
        maker = {n: k for k, numbers in enumerate(makes) for n in numbers}
        place_of = [{n: i for i, n in enumerate(numbers)} for numbers in makes]

        # An operand is carried if the first layer reads it from outside, and every other layer from
        # the same result of the layer before.
        carried: dict[int, int] = {}
        for place in range(len(sources[0])):
            read = [source[place] for source in sources]
            if not any(n in maker for n in read):
                continue
            before = {place_of[k].get(n, -1) for k, n in enumerate(read[1:])}
            if read[0] in maker or len(before) > 1 or before == {-1}:
                return Broken("one reads what a layer makes that is not the one before")
            carried[place] = before.pop()
        own = tuple(
            p
            for p in range(len(sources[0]))
            if p not in carried and len({source[p] for source in sources}) > 1
        )
        written = tuple(
            _written([part.numbers[i] for part in parts]) for i in range(len(parts[0].numbers))
        )
        return cls(
            stack,
            layers,
            sources,
            makes,
            carried,
            own,
            _wanted(flat, pairs, makes, carried),
            written,
        )

    @property
    def rows(self) -> list[list[int]]:
        """Operands that differ between layers: for each, the value of every layer."""
        return [[source[p] for source in self.sources] for p in self.own]

    @property
    def numbers(self) -> list[Any]:
        """Literals that differ between layers, stacked."""
        return [number for number in self.written if number is not None]

    @property
    def shared(self) -> list[int]:
        """Operands that are the same for all layers."""
        return [
            n for p, n in enumerate(self.sources[0]) if p not in self.carried and p not in self.own
        ]

    @property
    def begins(self) -> list[int]:
        """Initial carry: the values that the first layer reads where the others read the layer
        before.
        """
        return [self.sources[0][p] for p in self.carried]

    def layer(
        self, flat: FlatProgram, value_of: Callable[[int], Any]
    ) -> tuple[Callable[[Any, Any], Any], list[Any]]:
        """Body of the loop, a function of the carry and of a row, with its initial carry."""
        start, stop = self.stack.bounds[0], self.stack.bounds[1]
        source, makes = self.sources[0], self.makes[0]
        shared = {n: value_of(n) for n in self.shared}

        def layer(carry: Any, row: Any) -> Any:
            env = dict(shared)
            for p, value in zip(
                (*self.carried, *self.own), (*carry, *row[: len(self.own)]), strict=True
            ):
                env[source[p]] = with_weak_type(value, flat.avals[source[p]])
            _run(flat.steps[start:stop], env, self.written, row[len(self.own) :])
            # A scan checks that the types of its carry stay the same, weak types included.
            carry = [
                with_weak_type(env[makes[made]], flat.avals[source[p]])
                for p, made in self.carried.items()
            ]
            return carry, [env[makes[made]] for made in self.outputs]

        return layer, [
            with_weak_type(value_of(source[p]), flat.avals[source[p]]) for p in self.carried
        ]

    def final_carry(self, last: Sequence[object]) -> dict[int, Any]:
        """Final carry, by the number of the value that it is in the program."""
        return {
            self.makes[-1][made]: value
            for made, value in zip(self.carried.values(), last, strict=True)
        }


def _run(
    steps: Sequence[Step], env: dict[int, Any], written: Sequence[object], own: Sequence[object]
) -> None:
    """Run one layer on the steps of the first, with its own literals in place of those of the
    first.
    """
    places, given = iter(written), iter(own)
    for step in steps:
        values: list[Any] = []
        for ref, atom in zip(step.reads, step.eqn.invars, strict=True):
            if isinstance(ref, int):
                values.append(env[ref])
            elif is_number(ref) and next(places) is not None:
                values.append(with_weak_type(next(given), atom.aval))
            else:
                values.append(ref.value)
        env.update(zip(step.makes, bound(step.eqn, values), strict=True))


def _written(values: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Stack literals; None if they are the same to the bit."""
    same = all(value.tobytes() == values[0].tobytes() for value in values)
    return None if same else np.stack(values)


def _wanted(
    flat: FlatProgram,
    pairs: Sequence[tuple[int, int]],
    makes: Sequence[list[int]],
    carried: Mapping[int, int],
) -> tuple[int, ...]:
    """Indices of the values of a layer that are read outside of it and of the next one.

    The final carry is left out for the last layer, because the loop returns it anyway.
    """
    wanted: set[int] = set()
    for k, numbers in enumerate(makes):
        low, high = pairs[k][0], pairs[k + 1][1] if k + 1 < len(pairs) else pairs[k][1]
        handed = set(carried.values()) if k + 1 == len(pairs) else set[int]()
        for i, n in enumerate(numbers):
            if i not in handed and not all(low <= at < high for at in flat.readers.get(n, ())):
                wanted.add(i)
    return tuple(sorted(wanted))


def with_weak_type(x: Any, aval: Aval) -> Any:
    """Give a value the weak type of an abstract value: what is stacked or carried is strongly
    typed.
    """
    if (
        getattr(aval, "weak_type", False) == getattr(x, "weak_type", False)
        and getattr(x, "dtype", None) == aval.dtype
    ):
        return x
    return _convert.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)
