"""View of a call by a stage: the arrays with their paths, shapes, dtypes and annotations, at one
depth of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_flatten_with_path

from .._jax.trees import canonicalize_dtype
from .._jax.typed import DType
from .._signature.hints import (
    AnyHint,
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
    dtype: DType
    weak_type: bool
    hint: LeafHint = None
    # Annotation of the field that contains the array, of an instance of some class.
    field: LeafHint = None
    # Set only for `shard`.
    in_module: bool = False
    # A number of Python's, which among the parts of an argument is the same for each element of a
    # mapped axis.
    is_number: bool = False
    # Name of the padded axis whose true size this leaf is; such a leaf is not an argument.
    counts: str | None = None

    @property
    def declared(self) -> LeafHint:
        """The annotation of the signature, else that of the field."""
        return self.field if self.hint is None else self.hint

    @property
    def declared_rank(self) -> int | None:
        """Rank according to the annotation, or to that of the field; None if neither gives one."""
        hint = self.declared
        if isinstance(hint, ArrayHint):
            return hint.rank
        return 0 if isinstance(hint, ScalarHint) else None

    def abstract(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)

    def reshape(self, shape: tuple[int, ...]) -> Leaf:
        return replace(self, shape=shape)

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        weak = " weak" if self.weak_type else ""
        return f"{self.path}: {self.dtype}[{sizes}]{weak}"


@dataclass(frozen=True)
class View:
    """Flat list of the arrays of a call, as the function at this depth takes them."""

    leaves: tuple[Leaf, ...]

    def of(self, argument: str) -> tuple[int, ...]:
        """Positions of the arrays that belong to an argument."""
        owners = [leaf.argument for leaf in self.leaves]
        return tuple(index for index, owner in enumerate(owners) if owner == argument)


_ARRAYS = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)


def is_array(value: object) -> bool:
    """Return whether a value is traced by Equinox's default rule; an abstract value counts as the
    array it represents.
    """
    return isinstance(value, _ARRAYS)


def leaf_hints(hint: Hint | None, value: object) -> list[LeafHint]:
    """Annotation of each leaf of `value`, in JAX's order; None for leaves without one."""
    if isinstance(hint, UnionHint):
        hint = _alternative(hint, value)
    if isinstance(hint, AnyHint) and hint.number is not None and _is_number(value):
        return [replace(hint.number, is_alternative=True)]
    if isinstance(hint, (ArrayHint, ScalarHint)):
        return [hint] if _is_leaf(value) else _empty_hints(value)
    if isinstance(hint, TreeHint):
        hints: list[LeafHint] = []
        for leaf in jax.tree.leaves(value):
            hints += leaf_hints(hint.leaf, leaf)
        return hints
    # JAX treats an instance of a subclass of list or dict as a leaf.
    if isinstance(hint, ContainerHint) and not _is_leaf(value):
        return _in_container(hint, value)
    return _empty_hints(value)


def _in_container(hint: ContainerHint, value: object) -> list[LeafHint]:
    hints: list[LeafHint] = []
    if isinstance(value, Mapping) and len(hint.items) >= 1:
        # The keys of a TypedDict have hints of their own; those of a dict share one.
        by_key: dict[object, Hint] = dict(zip(hint.keys, hint.items, strict=False))
        for key, part in _entries(value):
            hints += leaf_hints(by_key.get(key) if hint.keys else hint.items[-1], part)
        return hints
    if not isinstance(value, (tuple, list)):
        return _empty_hints(value)

    many = hint.variadic or (isinstance(value, list) and len(hint.items) == 1)
    items: Sequence[Hint] = hint.items * len(value) if many else hint.items
    if len(items) != len(value):
        return _empty_hints(value)
    for item, part in zip(items, value, strict=True):
        hints += leaf_hints(item, part)
    return hints


def _alternative(hint: UnionHint, value: object) -> Hint | None:
    """Alternative of a union that a value belongs to, as far as its kind and rank determine it;
    None otherwise.
    """
    options = hint.options
    scalars = [option for option in options if isinstance(option, ScalarHint)]

    if isinstance(value, _ARRAYS):
        arrays = [option for option in options if isinstance(option, ArrayHint)]
        if arrays:
            return _of_array(arrays, len(value.shape), value.dtype)
        return scalars[0] if len(scalars) == 1 else None

    # A number picks the static alternative of its class, else the first scalar, else an array that
    # it may stand for.
    if isinstance(value, (float, int, complex)):
        static = [option for option in options if isinstance(option, StaticHint)]
        if any(option.hint is type(value) for option in static):
            return None
        likes = [
            option for option in options if isinstance(option, ArrayHint) and option.array_like
        ]
        dtype = jnp.result_type(type(value))
        likes = [option for option in likes if option.allows(dtype)] or likes
        if scalars:
            return replace(scalars[0], is_alternative=True)
        return likes[0] if likes else None
    trees = [option for option in options if isinstance(option, (ContainerHint, TreeHint))]
    return trees[0] if trees else None


def _of_array(
    options: Sequence[ArrayHint],
    rank: int,
    dtype: DType,
) -> ArrayHint | None:
    """Alternative of an array: of those that allow its dtype the first with its rank, else the only
    one. Several without names that agree in the rank are as one: both kinds of raw keys are
    `UInt32`, of 2 or 4 numbers, and a stack of them has one axis more than either.
    """
    options = [option for option in options if _may_have(option, dtype)] or options
    exact = [option for option in options if option.rank == rank]
    if exact or len(options) == 1:
        return [*exact, *options][0]
    is_one = len({option.rank for option in options}) == 1
    return options[0] if is_one and not any(option.names for option in options) else None


def _may_have(option: ArrayHint, dtype: DType) -> bool:
    """Return whether an array of this dtype, or of the one that JAX makes of it, is allowed."""
    if not isinstance(dtype, np.dtype):  # of keys
        return option.allows(dtype)
    return option.allows(dtype) or option.allows(canonicalize_dtype(dtype))


def _is_number(value: object) -> bool:
    return isinstance(value, (float, int, complex)) and not isinstance(value, bool)


def _entries(value: object) -> list[tuple[object, object]]:
    """Keys and children of a mapping that is a tree node, in JAX's order."""
    children = tree_flatten_with_path(value, is_leaf=lambda inner: inner is not value)[0]
    return [(getattr(path[0], "key", None) if path else None, child) for path, child in children]


def _is_leaf(value: object) -> bool:
    return jax.tree_util.all_leaves([value])


def _empty_hints(value: object) -> list[LeafHint]:
    return [None] * len(jax.tree.leaves(value))
