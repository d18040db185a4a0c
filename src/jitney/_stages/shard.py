"""Stage that puts the results where their annotations say; XLA adds the communication that the body
needs.

Shard stands inside Jit. Arguments arrive placed (see Place), except under an outer trace, where
they are placed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import jax

from .. import _axes
from .._jax.typed import Array
from .._signature.hints import Hint
from .._signature.options import Sharding
from .._view.field_axes import axes_in_fields
from .._view.named_axes import NamedAxis, named_axes
from .._view.result import Outcome, is_computed
from .._view.view import Leaf, View, leaf_hints
from .sharding import Place, sharding, spec_of
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Shard(Stage):
    """Shardings of the results, and of arguments that an outer trace passes in."""

    place: Place
    rules: Sharding
    request: Request = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="shard", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        place, rules = request.outer_stage(Place), request.options.shard
        if place is None or rules is None:
            why = next(stage.why for stage in request.outer if stage.name == "place")
            return Skip("shard", why)
        return cls(
            place,
            rules,
            request,
            "results lie as annotated; XLA adds the communication between them and the arguments",
        )

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        fn = _axes.partition_safe(fn) if self._is_xlas else fn
        if not self.request.nested:
            return fn

        def placed(*arrays: Array) -> Sequence[Array]:
            constrained = map(jax.lax.with_sharding_constraint, arrays, self.place.shardings)
            return fn(*constrained)

        return placed

    @property
    def _is_xlas(self) -> bool:
        """True if XLA adds the communication, because some array is sharded over a mesh axis of
        more than one device.
        """
        sizes = self.place.mesh.shape
        for spec in self.place.specs:
            if any(sizes[name] > 1 for along in spec for name in along):
                return True
        return False

    def finish(
        self,
        results: Sequence[Array],
        outcome: Outcome,
    ) -> Sequence[Array]:
        """Constrain the results to their shardings.

        XLA chooses the sharding of results whose annotation names no axis of `shard`.
        """
        leaves, named = named_results(self.request.result, results, outcome)
        triples = zip(results, leaves, named, strict=True)
        return [self._constrain_leaf(x, leaf, axes) for x, leaf, axes in triples]

    def _constrain_leaf(
        self,
        x: Array,
        leaf: Leaf,
        axes: Sequence[NamedAxis],
    ) -> Array:
        mesh = self.place.mesh
        spec = spec_of(self.request.where, leaf, axes, self.rules, mesh)
        if not any(spec):
            return x
        return jax.lax.with_sharding_constraint(x, sharding(mesh, spec))


def named_results(
    hint: Hint | None,
    results: Sequence[Array],
    outcome: Outcome,
) -> tuple[list[Leaf], Sequence[Sequence[NamedAxis]]]:
    """Return the results as leaves, with the axes that have a name by annotation or by a field
    of a module.
    """
    whole = outcome.whole(results)
    # Three walks over the same leaves: hints of the annotation, hints of module fields, and values.
    hints = zip(
        leaf_hints(hint, outcome.inner(results)),
        axes_in_fields(whole),
        jax.tree.leaves(whole),
        strict=True,
    )

    computed = [(hint, inside) for hint, inside, leaf in hints if is_computed(leaf)]
    leaves: list[Leaf] = []
    for x, (hint, inside) in zip(results, computed, strict=True):
        leaf = Leaf(
            "the result",
            "",
            tuple(x.shape),
            x.dtype,
            weak_type=False,
            hint=hint or (inside and inside.hint) or None,
            in_module=inside is not None and inside.in_module,
        )
        leaves.append(leaf)

    # Mapped axes come first in every result.
    levels = [(name, (0,) * len(leaves)) for name in outcome.levels]
    return leaves, named_axes(View(tuple(leaves)), levels)
