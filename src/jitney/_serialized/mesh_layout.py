"""Mesh layout of a cached program, and the check that the exported program shards its results as
the traced one does.

`jax.export` forgets the shardings of results that nobody constrained: XLA chooses them, in the
exported program as in the traced one. Nothing guarantees that both choices agree, so they are
compared, once, when a program is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax.sharding import AxisType

from .._jax.equinox_checks import own_jit
from .._jax.mesh import automatic, context, mesh_fingerprint
from .._jax.typed import AnyMesh, Jitted
from .._record.unsure import NotDeterministic


@dataclass(frozen=True)
class MeshLayout:
    """Mesh and argument shardings of a program.

    Args:
        mesh: JAX's mesh.
        shardings: Shardings of the arguments.
    """

    mesh: AnyMesh
    shardings: Sequence[jax.sharding.NamedSharding | None]

    def describe(self) -> list[str]:
        """Return texts that are equal in another process with the same layout.

        Raises:
            NotDeterministic: The layout cannot be described by content.
        """
        if not isinstance(self.mesh, jax.sharding.Mesh) or jax.process_count() != 1:
            raise NotDeterministic("programs over the devices of several processes are not cached")
        if AxisType.Explicit in self.mesh.axis_types:
            raise NotDeterministic("programs over explicit axes are not cached")
        around = context()
        if not around.empty and dict(around.shape) != dict(automatic(self.mesh).shape):
            raise NotDeterministic("programs are not cached under another mesh")

        placed = [None if to is None else (repr(to.spec), to.memory_kind) for to in self.shardings]
        return [
            *mesh_fingerprint(self.mesh),
            str(jax.device_count()),
            repr(placed),
            repr((around.axis_names, around.axis_types)),
        ]

    def check_results(
        self,
        traced: Callable[..., object],
        exported: Callable[..., object],
        specs: Sequence[object],
    ) -> None:
        """Compile both programs, and compare the shardings of their results.

        Raises:
            NotDeterministic: They differ.
        """
        first, second = (self._results(flat, specs) for flat in (traced, exported))
        same = len(first) == len(second) and all(
            left.is_equivalent_to(right, rank)
            for (left, rank), (right, _) in zip(first, second, strict=True)
        )
        if not same:
            raise NotDeterministic(
                "its results do not lie on the devices as those of the exported program"
            )

    def _results(
        self,
        flat: Callable[..., object],
        specs: Sequence[object],
    ) -> list[tuple[jax.sharding.Sharding, int]]:
        lowered = self.jit(flat, len(specs)).lower(*specs)
        ranks = [len(result.shape) for result in jax.tree.leaves(lowered.out_info)]
        compiled = lowered.compile()
        shardings = jax.tree.leaves(compiled.output_shardings)
        return list(zip(shardings, ranks, strict=True))

    def jit(self, flat: Callable[..., object], count: int) -> Jitted:
        """Return JAX's function with the argument shardings; arguments past these, the true sizes
        of a padded call, go to every device.
        """
        known = [to for to in self.shardings if to is not None]
        everywhere = [None] * (count - len(known))
        return own_jit()(flat, in_shardings=(*known, *everywhere))
