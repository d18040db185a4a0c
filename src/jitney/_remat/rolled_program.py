"""Program with its identical layers as loops: the decision about each group of layers, and its
interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from .._jax.jaxprs import opened, scan_parts
from .chain import Chain, with_weak_type
from .flat import FlatProgram, Step
from .stacked_slices import ScanOutputs, Values, made_by


@dataclass(frozen=True)
class Layers:
    """Layers that follow one another, with the decision about them.

    Args:
        layers: Number of layers.
        operations: Equations of each.
        chain: The loop; None if the layers stay as they are.
        why: Reason for a line of the plan.
    """

    layers: int
    operations: int
    chain: Chain | None
    why: str


@dataclass(frozen=True)
class RolledProgram:
    """Program with its identical layers as loops.

    Args:
        flat: The program.
        found: Its layers.
        inner: Step of a loop -> its body, if layers in the body are rolled.
        is_last: True if the program is not differentiated. Then layers may index arrays of more
            elements; the derivative of that would add up whole arrays in each iteration.
    """

    flat: FlatProgram
    found: tuple[Layers, ...]
    inner: Mapping[int, RolledProgram] = field(default_factory=dict[int, "RolledProgram"])
    is_last: bool = False

    @property
    def chains(self) -> list[Chain]:
        return [each.chain for each in self.found if each.chain is not None]

    @property
    def changes(self) -> bool:
        """True if the program differs from the original."""
        return bool(self.chains or self.inner)

    @property
    def lines(self) -> list[tuple[bool, str]]:
        """Lines for a plan: whether layers were rolled, and which or why not."""
        mine = [(each.chain is not None, each.why) for each in self.found]
        return mine + [
            (done, f"in a loop: {why}") for each in self.inner.values() for done, why in each.lines
        ]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Results of the program, from its constants and arguments."""
        run = _RolledInterpreter(self, dict(zip(self.flat.takes, values, strict=True)))
        at = 0
        for chain in self.chains:
            run.plain(at, chain.stack.start)
            run.chain(chain)
            at = chain.stack.stop
        run.plain(at, len(self.flat.steps))
        return [
            with_weak_type(run.values.value(ref), self.flat.avals[ref])
            if isinstance(ref, int)
            else ref.value
            for ref in self.flat.gives
        ]


class _RolledInterpreter:
    """Interpreter state of one run."""

    def __init__(self, rolling: RolledProgram, env: dict[int, Any]):
        self.flat, self.inner = rolling.flat, rolling.inner
        self.values = Values(rolling.flat, env, is_last=rolling.is_last)

    def plain(self, start: int, stop: int) -> None:
        """Run a range of steps as it is."""
        for i, step in enumerate(self.flat.steps[start:stop], start):
            if step.makes and step.makes[0] in self.values.parts:
                # An element is sliced when something reads it.
                continue
            if step.name == "concatenate" and step.eqn.params["dimension"] == 0:
                self.values.env[step.makes[0]] = self.values.together(step)
                continue
            operands = [self.values.read(ref) for ref in step.reads]
            made = _loop(step, operands, self.inner[i]) if i in self.inner else step.bound(operands)
            self.values.env.update(zip(step.makes, made, strict=True))

    def chain(self, chain: Chain) -> None:
        """Run layers as a scan."""
        layer, begin = chain.layer(self.flat, self.values.value)
        rows = [self.values.stacked(row) for row in chain.rows]
        arrays = [array for array, _ in rows]

        def turn(carry: Any, given: Any) -> Any:
            # Rows of the scan are the operands themselves, or indices into a larger array.
            own = [
                x if of is None else jax.lax.dynamic_index_in_dim(of, x, keepdims=False)
                for of, x in zip(arrays, given[0], strict=True)
            ]
            return layer(carry, [*own, *given[1]])

        last, ys = jax.lax.scan(
            turn, begin, ([row for _, row in rows], chain.numbers), length=chain.layers
        )
        # Outputs that are read elsewhere stay stacked; `Values` slices them on demand.
        self.values.parts.update(
            made_by(
                chain,
                {made: ScanOutputs(array) for made, array in zip(chain.outputs, ys, strict=True)},
            )
        )
        self.values.env.update(chain.final_carry(last))


def _loop(step: Step, operands: list[jax.Array], inner: RolledProgram) -> list[Any]:
    """Run a loop whose body has rolled layers."""
    fixed, carry, rows = scan_parts(step.eqn, operands)
    constants, count = list(opened(step.eqn.params["jaxpr"])[1]), len(carry)

    def turn(carry: Any, row: Any) -> Any:
        out = inner([*constants, *fixed, *carry, *row])
        return out[:count], out[count:]

    options = {name: step.eqn.params[name] for name in ("length", "reverse", "unroll")}
    last, ys = jax.lax.scan(turn, carry, rows, **options)
    return [*last, *ys]
