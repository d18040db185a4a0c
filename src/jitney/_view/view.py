"""View of a call by a stage: the arrays with their paths, shapes, dtypes and annotations, at one
depth of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from .._signature.hints import (
    ArrayHint,
    ContainerHint,
    Hint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
)

LeafHint = ArrayHint | ScalarHint | None


@dataclass(frozen=True)
class Leaf:
    """Array among the arguments of a call."""

    # As a person would write it: `model.layers[0].weight`.
    path: str
    argument: str
    shape: tuple[int, ...]
    # A NumPy dtype, or the extended dtype of PRNG keys.
    dtype: Any
    weak_type: bool
    hint: LeafHint = None
    # Annotation of the module field that contains the array.
    field: LeafHint = None
    # Set only for `shard`.
    in_module: bool = False
    # Name of the padded axis whose true size this leaf is; such a leaf is not an argument.
    counts: str | None = None

    @property
    def declared_rank(self) -> int | None:
        """Rank according to the annotation, or to that of the module field; None if neither gives
        one.
        """
        hint = self.field if self.hint is None else self.hint
        if isinstance(hint, ArrayHint):
            return hint.rank
        return 0 if isinstance(hint, ScalarHint) else None

    def abstract(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)

    def reshaped(self, shape: tuple[int, ...]) -> Leaf:
        return replace(self, shape=shape)

    def __str__(self) -> str:
        return (
            f"{self.path}:"
            f" {self.dtype}[{','.join(map(str, self.shape))}]{' weak' if self.weak_type else ''}"
        )


@dataclass(frozen=True)
class View:
    """Flat list of the arrays of a call, as the function at this depth takes them."""

    leaves: tuple[Leaf, ...]

    def of(self, argument: str) -> tuple[int, ...]:
        """Positions of the arrays that belong to an argument."""
        return tuple(index for index, leaf in enumerate(self.leaves) if leaf.argument == argument)


def is_array(value: object) -> bool:
    """Return whether a value is traced by Equinox's default rule; an abstract value counts as the
    array it represents.
    """
    return isinstance(value, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))


def leaf_hints(hint: Hint | None, value: object) -> list[LeafHint]:
    """Annotation of each leaf of `value`, in JAX's order; None for leaves without one."""
    if isinstance(hint, UnionHint):
        hint = _alternative(hint, value)
    if isinstance(hint, (ArrayHint, ScalarHint)):
        return [hint] if _is_leaf(value) else _none(value)
    if isinstance(hint, TreeHint):
        return [
            leaf_hint
            for leaf in jax.tree.leaves(value)
            for leaf_hint in leaf_hints(hint.leaf, leaf)
        ]
    # JAX treats an instance of a subclass of list or dict as a leaf.
    if isinstance(hint, ContainerHint) and not _is_leaf(value):
        return _in_container(hint, value)
    return _none(value)


def _in_container(hint: ContainerHint, value: object) -> list[LeafHint]:
    if isinstance(value, Mapping) and len(hint.items) >= 1:
        return [
            leaf_hint for part in _children(value) for leaf_hint in leaf_hints(hint.items[-1], part)
        ]
    if not isinstance(value, (tuple, list)):
        return _none(value)
    many = hint.variadic or (isinstance(value, list) and len(hint.items) == 1)
    items: Sequence[Hint] = hint.items * len(value) if many else hint.items
    if len(items) != len(value):
        return _none(value)
    return [
        leaf_hint
        for item, part in zip(items, value, strict=True)
        for leaf_hint in leaf_hints(item, part)
    ]


def _alternative(hint: UnionHint, value: Any) -> Hint | None:
    """Alternative of a union that a value belongs to, as far as its kind and rank determine it;
    None otherwise.
    """
    if is_array(value):
        arrays = [option for option in hint.options if isinstance(option, ArrayHint)]
        # An array picks the alternative with its rank, else the only array, else the only scalar.
        exact = [option for option in arrays if option.rank == len(value.shape)]
        scalars = [option for option in hint.options if isinstance(option, ScalarHint)]
        chosen = exact[:1] or arrays or scalars
        return chosen[0] if len(chosen) == 1 else None
    if isinstance(value, (float, int, complex)):
        static = [o for o in hint.options if isinstance(o, StaticHint) and o.hint is type(value)]
        return (
            None if static else next((o for o in hint.options if isinstance(o, ScalarHint)), None)
        )
    return next((o for o in hint.options if isinstance(o, (ContainerHint, TreeHint))), None)


def _children(value: object) -> list[Any]:
    """Children of a tree node, in JAX's order."""
    return jax.tree.leaves(value, is_leaf=lambda inner: inner is not value)


def _is_leaf(value: object) -> bool:
    return jax.tree_util.all_leaves([value])


def _none(value: object) -> list[LeafHint]:
    return [None] * len(jax.tree.leaves(value))
