"""On which devices a program lies, and whether its results lie there as those of what was exported
from it.

`jax.export` forgets where results lie that nobody placed: XLA finds the best place for them, in the
exported program as in the one that is traced. Nothing says that both come to the same, so it is
compared, once, when a program is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AxisType

from .._jax.equinox_checks import own_jit
from .._jax.mesh import automatic, context, told_of
from .._jax.trees import is_a
from .._record.unsure import Unsure

_jax: Any = jax
_sharding: Any = jax.sharding


@dataclass(frozen=True)
class Laid:
    """Where a program runs.

    Args:
        mesh: JAX's.
        shardings: Of its arguments.
    """

    mesh: Any
    shardings: Sequence[Any]

    def told(self) -> list[str]:
        """By which it is the same in another process.

        Raises:
            Unsure: It is not seen where it runs.
        """
        if not is_a(self.mesh, _sharding.Mesh) or _jax.process_count() != 1:
            raise Unsure("programs over the devices of several processes are not kept")
        if AxisType.Explicit in self.mesh.axis_types:
            raise Unsure("programs over explicit axes are not kept")
        around = context()
        if not around.empty and dict(around.shape) != dict(automatic(self.mesh).shape):
            raise Unsure("programs are not kept under another mesh")
        placed = [None if to is None else (repr(to.spec), to.memory_kind) for to in self.shardings]
        return [
            *told_of(self.mesh),
            str(_jax.device_count()),
            repr(placed),
            repr((around.axis_names, around.axis_types)),
        ]

    def check_results(
        self, traced: Callable[..., Any], exported: Callable[..., Any], specs: Sequence[Any]
    ) -> None:
        """Compile both, and compare where their results lie.

        Raises:
            Unsure: They lie elsewhere.
        """
        first, second = (self._results(flat, specs) for flat in (traced, exported))
        if len(first) != len(second) or not all(
            a.is_equivalent_to(b, n) for (a, n), (b, _) in zip(first, second, strict=True)
        ):
            raise Unsure("its results do not lie on the devices as those of the exported program")

    def _results(self, flat: Callable[..., Any], specs: Sequence[Any]) -> list[tuple[Any, int]]:
        lowered = self.jitted(flat, len(specs)).lower(*specs)
        ranks = [len(result.shape) for result in _jax.tree.leaves(lowered.out_info)]
        return list(zip(_jax.tree.leaves(lowered.compile().output_shardings), ranks, strict=True))

    def jitted(self, flat: Callable[..., Any], count: int) -> Any:
        """JAX's function, told where its arguments lie; what stands behind those, the true sizes of
        a padded call, every device gets.
        """
        known = [to for to in self.shardings if to is not None]
        return own_jit()(flat, in_shardings=(*known, *[None] * (count - len(known))))
