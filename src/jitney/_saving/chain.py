"""Equal layers that stand one behind the other, as a loop: what each of them reads, and what
becomes of what it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jax.extend.core import primitives

from .._jax.jaxprs import bound
from .flat import FlatProgram, Step
from .layers import Stack, formed, is_number

_primitives: Any = primitives
_convert: Any = _primitives.convert_element_type_p


@dataclass(frozen=True)
class Broken:
    """Why layers are no chain, as part of a sentence."""

    why: str


@dataclass(frozen=True)
class Chain:
    """Equal layers as a loop: what each reads is the same for all, its own, or what the layer
    before made.

    Args:
        stack: The layers.
        layers: How many of them, the first ones.
        sources: For each layer, what it reads, in one order for all.
        makes: For each layer, what it makes, in one order for all.
        carried: What is read from the layer before, by place -> which of what that made.
        own: What is read that is not the same for all, by place.
        wanted: Which of what a layer makes is read elsewhere.
        written: The numbers that are written into the program where each layer reads them; None
            where they are the same for all.
    """

    stack: Stack
    layers: int
    sources: tuple[list[int], ...]
    makes: tuple[list[int], ...]
    carried: dict[int, int]
    own: tuple[int, ...]
    wanted: tuple[int, ...]
    written: tuple[np.ndarray[Any, Any] | None, ...]

    @classmethod
    def of(cls, flat: FlatProgram, stack: Stack, layers: int) -> Chain | Broken:
        """The chain, or why there is none: they are not equal, or read something of a layer that is
        not the one before.
        """
        pairs = list(pairwise(stack.bounds))[:layers]
        parts = [formed(flat, *pair) for pair in pairs]
        if any(part.form != parts[0].form for part in parts):
            return Broken("they differ in more than what they read")
        sources, makes = tuple(part.reads for part in parts), tuple(part.makes for part in parts)
        maker = {n: k for k, numbers in enumerate(makes) for n in numbers}
        place_of = [{n: i for i, n in enumerate(numbers)} for numbers in makes]
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
        """What is each layer's own: of each place, the value of each layer."""
        return [[source[p] for source in self.sources] for p in self.own]

    @property
    def numbers(self) -> list[Any]:
        """The numbers of the program that are each layer's own."""
        return [number for number in self.written if number is not None]

    @property
    def shared(self) -> list[int]:
        """What is the same for all layers."""
        return [
            n for p, n in enumerate(self.sources[0]) if p not in self.carried and p not in self.own
        ]

    @property
    def begins(self) -> list[int]:
        """What the first layer reads where the others read what the one before has made."""
        return [self.sources[0][p] for p in self.carried]

    def layer(
        self, flat: FlatProgram, value_of: Callable[[int], Any]
    ) -> tuple[Callable[[Any, Any], Any], list[Any]]:
        """The body of the loop, from what is carried and what is its own, and what it begins
        with.
        """
        start, stop = self.stack.bounds[0], self.stack.bounds[1]
        source, makes = self.sources[0], self.makes[0]
        shared = {n: value_of(n) for n in self.shared}

        def layer(carry: Any, row: Any) -> Any:
            env = dict(shared)
            for p, value in zip(
                (*self.carried, *self.own), (*carry, *row[: len(self.own)]), strict=True
            ):
                env[source[p]] = typed(value, flat.avals[source[p]])
            _run(flat.steps[start:stop], env, self.written, row[len(self.own) :])
            carry = [
                typed(env[makes[made]], flat.avals[source[p]]) for p, made in self.carried.items()
            ]
            return carry, [env[makes[made]] for made in self.wanted]

        return layer, [typed(value_of(source[p]), flat.avals[source[p]]) for p in self.carried]

    def handed_on(self, last: Sequence[Any]) -> dict[int, Any]:
        """What is carried behind the last layer, by number."""
        return {
            self.makes[-1][made]: value
            for made, value in zip(self.carried.values(), last, strict=True)
        }


def _run(
    steps: Sequence[Step], env: dict[int, Any], written: Sequence[Any], own: Sequence[Any]
) -> None:
    """One layer, with its own numbers in the place of those of the first."""
    places, given = iter(written), iter(own)
    for step in steps:
        values: list[Any] = []
        for ref, atom in zip(step.reads, step.eqn.invars, strict=True):
            if isinstance(ref, int):
                values.append(env[ref])
            elif is_number(ref) and next(places) is not None:
                values.append(typed(next(given), atom.aval))
            else:
                values.append(ref.value)
        env.update(zip(step.makes, bound(step.eqn, values), strict=True))


def _written(values: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """None if numbers are the same, to the bit; else all of them."""
    same = all(value.tobytes() == values[0].tobytes() for value in values)
    return None if same else np.stack(values)


def _wanted(
    flat: FlatProgram,
    pairs: Sequence[tuple[int, int]],
    makes: Sequence[list[int]],
    carried: Mapping[int, int],
) -> tuple[int, ...]:
    """Which of what a layer makes is read elsewhere than in it and in the next one. What the last
    one carries the loop hands on.
    """
    wanted: set[int] = set()
    for k, numbers in enumerate(makes):
        low, high = pairs[k][0], pairs[k + 1][1] if k + 1 < len(pairs) else pairs[k][1]
        handed = set(carried.values()) if k + 1 == len(pairs) else set[int]()
        for i, n in enumerate(numbers):
            if i not in handed and not all(low <= at < high for at in flat.readers.get(n, ())):
                wanted.add(i)
    return tuple(sorted(wanted))


def typed(x: Any, aval: Any) -> Any:
    """A value as weakly typed as another: what is stacked or carried is strongly typed."""
    if (
        getattr(aval, "weak_type", False) == getattr(x, "weak_type", False)
        and getattr(x, "dtype", None) == aval.dtype
    ):
        return x
    return _convert.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None)
