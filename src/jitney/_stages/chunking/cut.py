"""Decision of Chunk about one body: the axis, the width of its chunks and the passes over the data,
with its description for the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from ... import _axes
from ..._jax.programs.primitives import public_name
from ..._jax.xla.memory import Fit, text


@dataclass(frozen=True)
class Cut:
    """Decision about one body.

    Args:
        axis: Axis that is cut.
        passes: Passes over the data; None if the whole fits and nothing is cut, and for an axis
            that is mapped in chunks.
        width: Elements in one chunk.
        fit: Measured bytes, if `memory` was given.
        devices: Devices that share the axis, each with chunks of its own; None if there is one.
        size: Size of the axis.
        is_mapped: Whether each chunk is `jax.vmap` of the body, which needs no proof.
    """

    axis: str
    passes: _axes.Passes | None
    width: int
    fit: Fit | None = None
    devices: _axes.Devices | None = None
    size: int = 0
    is_mapped: bool = False

    @property
    def text(self) -> str:
        """Description for a line of the plan."""
        if self.is_mapped:
            return f"1 over the data, {self.width} of {self.axis} at a time by `jax.vmap`"
        if self.passes is None:
            return "not cut: all of it fits"
        back = sum(pass_.back for pass_ in self.passes.passes)
        ways = f", {back} of them from its end" if back else ""
        done = (
            f"{len(self.passes.passes)} over the data{ways}, {self.width} of {self.axis} at a"
            f" time{self._describe_counting(self.passes)}{self._describe_loops(self.passes)}"
            f"{self._describe_memory(self.passes)}"
        )
        if self.devices is None:
            return done
        return (
            f"{done} on each of {self.devices.parts} devices along {self.devices.text};"
            f" {_axes.describe_collectives(self.passes)}"
        )

    def _describe_counting(self, passes: _axes.Passes) -> str:
        """Describe the passes that only count the iterations of loops."""
        counting = [work for work in passes.passes if work.counts]
        if not counting:
            return ""
        operations = passes.counted_loops
        loops = [f"`{public_name(op.name)}` at {op.place}" for op in operations]
        names = ", ".join(dict.fromkeys(loops))
        count, are = f"{len(counting)} of them count", "are"
        if len(counting) == 1:
            count, are = "1 of them counts", "is"
        return (
            f"; {count} the iterations of {names}, and {are} repeated until no chunk takes more,"
            " so twice as a rule"
        )

    def _describe_loops(self, passes: _axes.Passes) -> str:
        """Describe the loops that take passes in each iteration."""
        line = ""
        for node in passes.at_once:
            loop = passes.loop(node)
            if loop is not None:
                name = f"`{public_name(node.op.name)}` at {node.op.place}"
                # Without a pass, elements at positions are read from the arrays in memory.
                takes = f"takes {loop.turns}" if loop.turns else "reads the arrays in memory"
                line += f"; {name} {takes} in each iteration"
        return line

    def _describe_memory(self, passes: _axes.Passes) -> str:
        """Describe the memory that is needed in addition to one chunk."""
        line = ""
        held = passes.held_bytes(self.size)
        if passes.at_once and (held or len(passes.loops) < len(passes.at_once)):
            operations = [node.op for node in passes.at_once]
            names = [f"`{public_name(op.name)}` at {op.place}" for op in operations if op.place]
            whole = ", ".join(dict.fromkeys(names)) or "what looks at all of it"
            line = f"; {text(held)} are there as a whole, for {whole}"
        chunks = -(-self.size // self.width)
        carried = passes.kept_bytes(chunks)
        if carried:
            line += f"; {text(carried)} are kept of what is carried into each chunk"
        return line
