"""Values of options, as `Options` holds them, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from ..._precision import FULL, LOW, Policy
from ..paths import root_of, stem_of, steps_of

PRECISIONS = ("bf16", "fp16", "bf16-all", "fp16-all", "f32", "f64", "tf32")
MEASURED = "fast"
"""Value of `chunk`: the size is measured, of an axis of `vmap`."""
PRODUCT_TYPES = ("bf16", "fp16", "f32")
DEFAULT = "default"
# Factories in `jax.checkpoint_policies` take arguments, so a name alone does not choose a policy.
MAX_VMAP_AXES = 8
MOST_WORKERS = 1024
Wrt = str | tuple[str, ...] | list[str] | None
"""Names of the arguments to differentiate with respect to."""
FSDP = "fsdp"
OPTIONAL = "optional"
"""Value of `mesh`: use the mesh of the context, if there is one."""
EVERY = "*"
"""Value in `shard`: all axes of the mesh, in their order."""


@dataclass(frozen=True)
class VmapAxis:
    """Axis to map over. `dims` holds (path, position) pairs, or None for the rank rule. A path is
    an argument or a part of one, whose position is None if it does not have the axis.
    """

    name: str
    dims: tuple[tuple[str, int | None], ...] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments that `dims` names, or of which it names parts."""
        return tuple(dict.fromkeys(root_of(path) for path, _ in self.dims or ()))

    def entries_at(self, path: str) -> list[tuple[str, int | None]]:
        """Entries of `dims` that an array at this path is a part of, the longest path first."""
        entries = [(steps_of(part) or (), part, at) for part, at in self.dims or ()]
        entries.sort(key=lambda entry: -len(entry[0]))
        return [(part, at) for steps, part, at in entries if stem_of(path, steps) is not None]


@dataclass(frozen=True)
class Sharding:
    """Mesh axes that each named axis is sharded over, and whether parameters are sharded regardless
    of the names of their axes (`fsdp`).
    """

    axes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fsdp: bool = False

    def drop_axes(self, taken: Set[str]) -> Sharding:
        """The same sharding, leaving out mesh axes that are taken already."""
        left = (
            (name, tuple(axis for axis in along if axis not in taken)) for name, along in self.axes
        )
        return replace(self, axes=tuple(left))

    def over(self, mesh_axes: Iterable[str]) -> Sharding:
        """The same sharding, with `"*"` replaced by the names of the mesh's axes."""
        every = tuple(mesh_axes)
        return replace(
            self,
            axes=tuple((name, every if along == (EVERY,) else along) for name, along in self.axes),
        )


@dataclass(frozen=True)
class CompileLimit:
    """Maximum number of programs that one function may compile, and the reaction beyond it: "warn",
    "raise" or "eager".
    """

    count: int
    past: str


def is_measured(chunk: tuple[tuple[str, int | str], ...]) -> bool:
    """Return whether the size of a chunk is measured."""
    return any(size == MEASURED for _, size in chunk)


def tolerance_of(precision: str | tuple[tuple[str, str], ...] | None) -> float | None:
    """Tolerance of `"auto:1e-2"`; None for any other policy."""
    if not isinstance(precision, str):
        return None
    match = re.fullmatch(r"auto:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)", precision)
    tolerance = 0.0 if match is None else float(match[1])
    return tolerance if tolerance > 0 else None


def policy_of(precision: str | tuple[tuple[str, str], ...] | None) -> Policy | None:
    """Policy that casts products; None for a policy that casts arguments."""
    if isinstance(precision, tuple):
        types = dict(precision)
        usual = types.pop(DEFAULT, FULL)
        return Policy(usual, tuple(types.items()))
    return Policy(str(precision)) if precision in LOW else None
