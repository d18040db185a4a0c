"""Values with marks: the operations that produced their NaN and their infinity.

    Finding       an operation, the line of the user that it stands in, and its operands in short
    Mark          a finding, and when it was made
    MarkedValue   an array, and a mark for each kind of number in it that is not finite

`has_nonfinite` is the quick check after each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax.typed import NumPyArray

Kind = Literal["NaN", "inf"]
KINDS: Final[tuple[Kind, Kind]] = ("NaN", "inf")
TESTS: Final[dict[Kind, Callable[[NumPyArray], NumPyArray]]] = {"NaN": np.isnan, "inf": np.isinf}
INPUTS: Final = ("argument", "constant")


@dataclass(frozen=True)
class Finding:
    """Operation that produced the first NaN or infinity that reaches a result.

    Args:
        primitive: JAX's name of the operation; "argument", "constant" or "program" if it is not
            one.
        kind: NaN or infinity.
        source: User's line, "fit.py:12 (residual)".
        path: Calls and loops around it, from the outside in: "scan iteration 3", counted from 0.
        inputs: The operands in short.
        argument: Position in the flat arguments, if it came in with one.
        cause: Of a NaN, the origin of the infinity that it came from.
        advice: Remedy, if the operation alone does not imply it.
        element: Index of the first such element in the operation's result; empty if it has a single
            element.
    """

    primitive: str
    kind: Kind
    source: str
    path: tuple[str, ...] = ()
    inputs: str = ""
    argument: int | None = None
    cause: Finding | None = None
    advice: str = ""
    element: tuple[int, ...] = ()


@dataclass(frozen=True)
class Mark:
    """Finding with its position in the order of evaluation."""

    order: int
    finding: Finding

    @property
    def rank(self) -> tuple[bool, int]:
        """Key of the earliest mark."""
        # Infinities that came in sort last: any operation's mark precedes them.
        meant = self.finding.kind == "inf" and self.finding.primitive in INPUTS
        return meant, self.order


@dataclass(frozen=True)
class MarkedValue:
    """Concrete value, with the marks of its NaN and its infinity.

    `made_by` is JAX's name of the operation that returned it.
    """

    data: Any
    marks: dict[Kind, Mark] = field(default_factory=dict[Kind, Mark])
    made_by: str = ""

    @cached_property
    def numbers(self) -> NumPyArray | None:
        """Value on the host; None if its dtype has no NaN."""
        return np.asarray(self.data) if is_inexact(self.data) else None

    def bad(self, kind: Kind) -> Any:
        """Mask of the elements that have it; None if the dtype has no NaN."""
        return None if self.numbers is None else TESTS[kind](self.numbers)

    def has(self, kind: Kind) -> bool:
        """True if an element has it."""
        bad = self.bad(kind)
        return bad is not None and bool(bad.any())


def keep_marks(data: object, marks: dict[Kind, Mark]) -> MarkedValue:
    """Value that keeps those marks whose NaN or infinity is still in it."""
    value = MarkedValue(data)
    value.marks.update({kind: mark for kind, mark in marks.items() if value.has(kind)})
    return value


def has_nonfinite(leaves: Sequence[object]) -> bool:
    """Return whether any float or complex array has a NaN or an infinity; other leaves pass."""
    return any(
        not np.isfinite(part).all() for leaf in leaves if is_inexact(leaf) for part in _local(leaf)
    )


def is_inexact(x: Any) -> bool:
    """Return whether a value has a dtype with NaNs."""
    if isinstance(x, (float, complex)):
        return True
    return (
        hasattr(x, "dtype") and not isinstance(x, jax.Ref) and jnp.issubdtype(x.dtype, np.inexact)
    )


def _local(x: object) -> list[NumPyArray]:
    """Parts of an array that this process can address."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return [np.asarray(shard.data) for shard in x.addressable_shards]
    return [np.asarray(x)]
