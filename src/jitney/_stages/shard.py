"""Keep the results where their annotations say; XLA adds the communication that the body needs.

It stands inside Jit. Arguments come placed (see Place), except under an outer trace, where they are placed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .._axes import spread
from .._signature.options import Sharding
from .._view.named_axes import named_axes
from .._view.view import Leaf, LeafHint, View
from .place import Place, sharding, spec_of
from .stage import Fn, Request, Skip

_lax: Any = jax.lax


@dataclass(frozen=True)
class Shard:
    """Placements of the results, and of arguments that an outer trace brings."""

    place: Place
    rules: Sharding
    request: Request = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="shard", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        place = Place.plan(view, request)
        if isinstance(place, Skip):
            return Skip("shard", place.why)
        rules = request.options.shard
        assert rules is not None  # noqa: S101 - Place has seen it
        return cls(place, rules, request, "results lie as annotated; XLA adds the communication between them and the arguments")

    def inner(self, view: View) -> View:
        return view

    def wrap(self, fn: Fn) -> Fn:
        fn = spread(fn) if self._is_xlas else fn
        if not self.request.nested:
            return fn

        def placed(*arrays: Any) -> Sequence[Any]:
            return fn(*map(_lax.with_sharding_constraint, arrays, self.place.shardings))

        return placed

    @property
    def _is_xlas(self) -> bool:
        """Whether XLA adds the communication: some array is spread, along axes of the mesh that no outer trace has made explicit."""
        sizes = [self.place.mesh.shape[name] for spec in self.place.specs for along in spec for name in along]
        return any(size > 1 for size in sizes) and not (self.request.nested and self.request.mesh is not self.place.mesh)

    def results(self, arrays: Sequence[Any], hints: Sequence[tuple[LeafHint, bool]], levels: Sequence[str]) -> list[Any]:
        """The results, placed. Those whose annotation names no axis of `shard` lie where XLA finds best.

        Args:
            arrays: The results.
            hints: The annotation of each, and whether it lies in a module.
            levels: The axes that Vmap adds in front, outermost first.
        """
        leaves = [Leaf("the result", "", tuple(x.shape), x.dtype, weak_type=False, hint=h, in_module=m)
                  for x, (h, m) in zip(arrays, hints, strict=True)]  # fmt: skip
        named = named_axes(View(tuple(leaves)), [(name, (0,) * len(leaves)) for name in levels])
        found: list[Any] = []
        for x, leaf, axes in zip(arrays, leaves, named, strict=True):
            spec = spec_of(self.request.where, leaf, axes, self.rules, self.place.mesh)
            found.append(_lax.with_sharding_constraint(x, sharding(self.place.mesh, spec)) if any(spec) else x)
        return found
