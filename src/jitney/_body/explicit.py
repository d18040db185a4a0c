"""Programs over a mesh with explicit axes, where the sharding of an array is a part of its type and
JAX refuses an operation whose result it cannot shard.

Options that chunk, pad or shard, and coloured Jacobians, rewrite programs that were not written for
such types. Inside of such a program the axes are automatic; its results get explicit shardings
where it ends. A function without such an option sees the axes as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .._jax.mesh import automatically, dividing, explicit_mesh, spec, with_explicit_sharding
from .._jax.trees import tree_flatten, tree_map, tree_unflatten
from .._jax.typed import AnyMesh
from .._stages import Place, Vmap
from .._stages.derivatives.derive import JACOBIANS, Derived
from .._stages.shard import named_results
from .._view.named_axes import named_axes
from .._view.result import Outcome
from .body import CallPlanner, Planned

Axes = str | tuple[str, ...] | None
"""Mesh axes that one axis of an array is sharded over."""
Along = tuple[Axes, ...]
"""Sharding of an array, axis by axis."""


def is_rewritten(body: CallPlanner) -> bool:
    """Return whether an option rewrites the program of a function such that it takes no explicit
    axes.
    """
    options, fn = body.core.options, body.core.fn()
    if options.chunk or options.memory is not None or options.pad or options.shard is not None:
        return True
    return isinstance(fn, Derived) and fn.what in JACOBIANS and not fn.plain


@dataclass
class Explicit:
    """Explicit shardings of one traced call.

    Args:
        mesh: The mesh with explicit axes; None where there is none, and nothing is done.
        arrays: The arrays, automatic.
    """

    mesh: AnyMesh | None
    arrays: Sequence[object]
    specs: list[Along] = field(default_factory=list[Along])

    def shard_result(
        self,
        out: object,
        body: CallPlanner,
        planned: Planned,
        outcome: Outcome,
    ) -> object:
        """Return the result with explicit shardings.

        A named axis is sharded as that axis of the arguments is. A result without named axes is
        sharded, along its last axes, as an argument of their shape is: a gradient or a Jacobian.
        Any other result is replicated.
        """
        if self.mesh is None:
            return out
        results, treedef = tree_flatten(out)
        leaves, named = named_results(body.core.contract.result, results, outcome)
        vmap, place = planned.plan.of(Vmap), planned.plan.of(Place)
        levels = () if vmap is None else tuple(zip(vmap.axes, vmap.levels, strict=True))
        specs = self.specs if place is None else list(place.specs)
        arguments = planned.view.leaves
        axes_of_arguments = named_axes(planned.view, levels)

        # The shardings of the arguments, by the name of an axis and by shape.
        by_name: dict[str, Axes] = {}
        by_shape: dict[tuple[int, ...], Along] = {}
        for leaf, axes, along in zip(arguments, axes_of_arguments, specs, strict=False):
            for axis in axes:
                if axis.axis < len(along) and along[axis.axis]:
                    by_name[axis.size] = along[axis.axis]
            by_shape.setdefault(leaf.shape, along)

        # Results: by name, else by the longest tail of the shape that an argument has.
        resharded: list[object] = []
        for x, leaf, axes in zip(results, leaves, named, strict=True):
            rank = len(leaf.shape)
            wanted: list[Axes] = [None] * rank
            for axis in axes:
                wanted[axis.axis] = by_name.get(axis.size)
            if not axes:
                tails = (by_shape.get(leaf.shape[at:], ()) for at in range(rank))
                tail = next(filter(any, tails), ())
                wanted[rank - len(tail) :] = tail

            along = dividing(self.mesh, leaf.shape, wanted)
            resharded.append(with_explicit_sharding(x, self.mesh, along))
        return tree_unflatten(treedef, resharded)


@contextmanager
def without_explicit(body: CallPlanner, arrays: Sequence[object]) -> Generator[Explicit]:
    """Scope of a trace in which no axis is explicit, if an option rewrites the program."""
    flat, treedef = tree_flatten(arrays)
    mesh = explicit_mesh(flat) if is_rewritten(body) else None
    if mesh is None:
        yield Explicit(None, arrays)
        return
    specs = [spec(x) for x in flat]
    with automatically(mesh) as brought:
        yield Explicit(mesh, tree_unflatten(treedef, tree_map(brought, flat)), specs)
