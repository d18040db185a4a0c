"""Program with its identical layers as loops: the decision about each group of layers, and its
interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax

from .._jax.programs.control import rebuild_scan
from .._jax.programs.jaxprs import open_jaxpr
from .._jax.programs.ssa import FlatProgram, Step
from .._jax.typed import Array
from .chain import Arrays, Chain, with_weak_type
from .stacked_slices import ScanOutputs, Values, layer_results


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
        lines = [(each.chain is not None, each.why) for each in self.found]
        for each in self.inner.values():
            lines += [(done, f"in a loop: {why}") for done, why in each.lines]
        return lines

    def __call__(self, values: Arrays) -> list[Array]:
        """Results of the program, from its constants and arguments."""
        env = dict(zip(self.flat.takes, values, strict=True))
        run = _RolledInterpreter(self, env)
        at = 0
        for chain in self.chains:
            run.plain(at, chain.stack.start)
            run.chain(chain)
            at = chain.stack.stop
        run.plain(at, len(self.flat.steps))

        results: list[Array] = []
        for ref in self.flat.gives:
            value = run.values.read(ref)
            if isinstance(ref, int):
                value = with_weak_type(value, self.flat.avals[ref])
            results.append(value)
        return results


class _RolledInterpreter:
    """Interpreter state of one run."""

    def __init__(self, rolling: RolledProgram, env: dict[int, Array]):
        self.flat, self.inner = rolling.flat, rolling.inner
        self.values = Values(rolling.flat, env, is_last=rolling.is_last)

    def plain(self, start: int, stop: int) -> None:
        """Run a range of steps as it is."""
        values = self.values
        for i, step in enumerate(self.flat.steps[start:stop], start):
            if step.makes and step.makes[0] in values.parts:
                # An element is sliced when something reads it.
                continue
            if step.name == "concatenate" and step.eqn.params["dimension"] == 0:
                values.env[step.makes[0]] = values.concatenate(step)
                continue
            operands = [values.read(ref) for ref in step.reads]
            if i in self.inner:
                results = _loop(step, operands, self.inner[i])
            else:
                results = step.bind(operands)
            values.env.update(zip(step.makes, results, strict=True))

    def chain(self, chain: Chain) -> None:
        """Run layers as a scan."""
        layer, begin = chain.layer(self.flat, self.values.value)
        arrays: list[Array | None] = []
        rows: list[Array] = []
        for numbers in chain.rows:
            array, row = self.values.stacked_operand(numbers)
            arrays.append(array)
            rows.append(row)

        def iteration(carry: Arrays, inputs: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
            # Rows of the scan are the operands themselves, or indices into a larger array.
            operands, literals = inputs
            own: list[Array] = []
            for array, x in zip(arrays, operands, strict=True):
                if array is not None:
                    x = jax.lax.dynamic_index_in_dim(array, x, keepdims=False)
                own.append(x)
            return layer(carry, [*own, *literals])

        inputs = (rows, chain.numbers)
        last, ys = jax.lax.scan(iteration, begin, inputs, length=chain.layers)
        # Outputs that are read elsewhere stay stacked; `Values` slices them on demand.
        outputs = {index: ScanOutputs(y) for index, y in zip(chain.outputs, ys, strict=True)}
        self.values.parts.update(layer_results(chain, outputs))
        self.values.env.update(chain.final_carry(last))


def _loop(
    step: Step,
    operands: list[Array],
    inner: RolledProgram,
) -> list[Array]:
    """Run a loop whose body has rolled layers."""
    _, constants = open_jaxpr(step.eqn.params["jaxpr"])
    return [*rebuild_scan(step.eqn, operands, lambda *values: inner([*constants, *values]))]
