"""A program with its equal layers as loops: what became of the layers, and how the program runs
then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from .._jax.jaxprs import opened, scan_parts
from .chain import Chain, typed
from .elements import Turns, Values, made_by
from .flat import FlatProgram, Step

_jax: Any = jax


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
        is_last: Whether nobody differentiates it: then layers may pick what is theirs out of arrays
            of more. The derivative of that would add up whole arrays in each turn.
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
        return mine + [
            (done, f"in a loop: {why}") for each in self.inner.values() for done, why in each.lines
        ]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The results, from the program's constants and arguments."""
        run = _Run(self, dict(zip(self.flat.takes, values, strict=True)))
        at = 0
        for chain in self.chains:
            run.plain(at, chain.stack.start)
            run.chain(chain)
            at = chain.stack.stop
        run.plain(at, len(self.flat.steps))
        return [
            typed(run.values.value(ref), self.flat.avals[ref])
            if isinstance(ref, int)
            else ref.value
            for ref in self.flat.gives
        ]


class _Run:
    """One evaluation."""

    def __init__(self, rolling: Rolling, env: dict[int, Any]):
        self.flat, self.inner = rolling.flat, rolling.inner
        self.values = Values(rolling.flat, env, is_last=rolling.is_last)

    def plain(self, start: int, stop: int) -> None:
        """Operations as they are."""
        for i, step in enumerate(self.flat.steps[start:stop], start):
            if step.makes and step.makes[0] in self.values.parts:
                continue  # when it is asked for
            if step.name == "concatenate" and step.eqn.params["dimension"] == 0:
                self.values.env[step.makes[0]] = self.values.together(step)
                continue
            operands = [self.values.read(ref) for ref in step.reads]
            made = _loop(step, operands, self.inner[i]) if i in self.inner else step.bound(operands)
            self.values.env.update(zip(step.makes, made, strict=True))

    def chain(self, chain: Chain) -> None:
        """Layers as a loop."""
        layer, begin = chain.layer(self.flat, self.values.value)
        rows = [self.values.stacked(row) for row in chain.rows]
        arrays = [array for array, _ in rows]

        def turn(carry: Any, given: Any) -> Any:
            own = [
                x if of is None else _jax.lax.dynamic_index_in_dim(of, x, keepdims=False)
                for of, x in zip(arrays, given[0], strict=True)
            ]
            return layer(carry, [*own, *given[1]])

        last, ys = _jax.lax.scan(
            turn, begin, ([row for _, row in rows], chain.numbers), length=chain.layers
        )
        self.values.parts.update(
            made_by(
                chain, {made: Turns(array) for made, array in zip(chain.wanted, ys, strict=True)}
            )
        )
        self.values.env.update(chain.handed_on(last))


def _loop(step: Step, operands: list[Any], inner: Rolling) -> list[Any]:
    """A loop in whose body there are layers."""
    fixed, carry, rows = scan_parts(step.eqn, operands)
    constants, count = list(opened(step.eqn.params["jaxpr"])[1]), len(carry)

    def turn(carry: Any, row: Any) -> Any:
        out = inner([*constants, *fixed, *carry, *row])
        return out[:count], out[count:]

    options = {name: step.eqn.params[name] for name in ("length", "reverse", "unroll")}
    last, ys = _jax.lax.scan(turn, carry, rows, **options)
    return [*last, *ys]
