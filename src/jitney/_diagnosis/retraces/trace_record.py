"""Record of a trace or compile: the key of one program, in a form that can be compared and
explained.

`_program/tracing/call_record.py` writes it; `causes.py` compares two.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from ..._host.switches import OF_PROGRAMS
from ..._jax.settings import settings_of_programs
from ..._signature.options import Options
from ..._stages.plan import Plan
from ..._view.view import Leaf, View


@dataclass(frozen=True)
class CallerArray:
    """Dtype and placement of one array as the caller passed it, which its program does not show.

    Args:
        dtype: Dtype before JAX narrowed 64 bits to 32.
        place: Sharding, if the array is committed.
    """

    dtype: str
    place: Any = None

    def place_text(self) -> str:
        if self.place is None:
            return "not committed"
        spec = getattr(self.place, "spec", None)
        if spec is None:
            return "committed to " + ", ".join(sorted(map(str, self.place.device_set)))
        sizes = ", ".join(f"{name}={size}" for name, size in self.place.mesh.shape.items())
        return f"{spec} on mesh {sizes}"


@dataclass(frozen=True)
class TraceRecord:
    """Key of one program, in a form that can be compared and explained.

    Args:
        view: The arrays.
        static: Static values by path.
        keys: Cache key of the static values.
        plan: Decisions of the stages; None if the program was compiled again without a trace.
        surroundings: Settings of JAX, mesh and outer transform; see `surroundings`.
        tree: Structure of each argument.
        absent: Paths of leaves that are None.
        fields: Static fields of modules, by path.
        given: Dtype and placement of the caller's arrays, by path; empty if unknown.
        axes: Names of the axes of each array, by path.
        sizes: True sizes of padded axes.
        numbers: Number of values that Python computed from the sizes.
        padded: Whether calls are padded, so that the program's shapes are not those of the call.
        placed: Whether the program places its arrays itself.
        outer: The transform that passes the arrays.
        generation: Number of times that the content of the same static values has changed.
        changed: The latest such changes: path, old and new text.
    """

    view: View
    static: tuple[tuple[str, object], ...]
    keys: object
    plan: Plan | None
    surroundings: tuple[tuple[str, str], ...] = ()
    tree: tuple[tuple[str, object], ...] = ()
    absent: frozenset[str] = frozenset()
    fields: tuple[tuple[str, object], ...] = ()
    given: Mapping[str, CallerArray] = field(default_factory=dict[str, CallerArray])
    axes: Mapping[str, tuple[str | None, ...]] = field(
        default_factory=dict[str, tuple[str | None, ...]]
    )
    sizes: tuple[tuple[str, int], ...] = ()
    numbers: int = 0
    padded: bool = False
    placed: bool = False
    outer: str = ""
    generation: int = 0
    changed: tuple[tuple[str, str, str], ...] = ()

    @functools.cached_property
    def identity(self) -> Hashable:
        """Hash of all that distinguishes programs for JAX and jitney, placements aside."""
        leaves = tuple(
            (leaf.path, leaf.shape, str(leaf.dtype), leaf.weak_type) for leaf in self.view.leaves
        )
        return hash(
            (self.keys, leaves, self.surroundings, self.sizes if self.numbers else (), self.numbers)
        )


def surroundings(options: Options, *, nested: bool) -> tuple[tuple[str, str], ...]:
    """Surroundings of a trace: settings of JAX and of jitney, the mesh of the context, and whether
    an outer transform traces.
    """
    mesh = jax.sharding.get_abstract_mesh()
    sizes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items()) or "none"
    told = [(f"setting {name}", repr(value)) for name, value in settings_of_programs()]
    told += [(f"setting {name}", repr(getattr(options, name))) for name in OF_PROGRAMS]
    return (
        *told,
        ("mesh", sizes),
        ("called", "inside an outer transform" if nested else "outside of one"),
    )


def type_text(leaf: Leaf) -> str:
    """Return the type of an array in words, without its path."""
    return str(leaf).split(": ", 1)[1]
