"""A group: rows of one bucket, which share programs.

Rows of sizes 0 and 1, and above the largest bucket, run at exact size: a group for each size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import jax

from ..._jax.typed import Array, Jitted
from ..._jax.xla.memory import counted_bytes
from ..._view.layout import aval_parts
from ..runners.captured_calls import CapturedArray
from ..runners.padding_recipes import PaddingRecipe

if TYPE_CHECKING:
    from .columns import Column

Axes = tuple[int, ...]
"""Positions in the result of a row."""
Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the arrays of one row."""
_MOST_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """Program of so many rows.

    Args:
        jitted: JAX's function, which takes the captured arrays first.
        captured: What rows have captured.
    """

    jitted: Jitted
    captured: tuple[jax.Array, ...] = ()

    def __call__(self, *given: object) -> object:
        return self.jitted(*self.captured, *given)

    def lower(self, *given: object) -> jax.stages.Lowered:
        """Return JAX's lowered program."""
        return self.jitted.lower(*self.captured, *given)

    def trace(self, *given: object) -> jax.stages.Traced:
        """Return JAX's traced program, with the captured arrays as constants: it is for a file."""
        if not self.captured:
            return self.jitted.trace(*given)
        function: Callable[..., object] = vars(self.jitted)["__wrapped__"]
        return jax.jit(partial(function, *self.captured)).trace(*given)

    def bytes(self, *given: object) -> int:
        """Bytes of a run by the compiler's count, without those of the captured arrays."""
        taken = counted_bytes(self.lower(*given).compile())
        return taken - sum(copy.nbytes for copy in self.captured)


@dataclass
class RowGroup:
    """Rows of one bucket.

    Args:
        key: The bucket of each padded axis; of rows at exact size, their shapes.
        recipe: How each row is padded; None if they run at exact size.
        shapes: Shapes of the arrays of a row in the program.
        programs: How many rows at a time -> their program.
        captured: What they have captured.
    """

    key: Hashable
    recipe: PaddingRecipe | None
    shapes: Shapes
    programs: dict[int, BlockProgram] = field(default_factory=dict[int, BlockProgram])
    captured: tuple[CapturedArray, ...] = ()
    # The program has run-time checks of Equinox, whose errors are waited for; or effects, which no
    # row may have twice.
    has_checks: bool = False
    has_effects: bool = False
    # How many rows a program may take, so that it keeps to `memory`.
    limit: int | None = None

    def elements(self, columns: Sequence[Column]) -> int:
        """Elements that a row of the program has, of arrays that rows have their own of."""
        return sum(
            math.prod(shape)
            for column, shape in zip(columns, self.shapes, strict=True)
            if column.kind != "shared"
        )

    def most(self, columns: Sequence[Column]) -> int:
        """How many rows a program takes at most, so that their arrays take 64 MiB or less."""
        row = sum(
            math.prod(shape) * aval_parts(column.arrays[0])[1].itemsize
            for column, shape in zip(columns, self.shapes, strict=True)
            if column.kind != "shared"
        )
        most = max(1, _MOST_BYTES // max(1, row))
        return most if self.limit is None else min(most, self.limit)


@dataclass(frozen=True)
class Member:
    """Rows of one set of shapes.

    Args:
        group: Their group.
        sizes: The true size of each padded axis.
        numbers: Numbers that Python computes from the sizes, if the program takes any.
    """

    group: RowGroup
    sizes: Mapping[str, int]
    numbers: Sequence[Array] = ()
