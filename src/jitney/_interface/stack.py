"""`jitney.stack`: identical layers with each weight of all of them in one array.

A program that runs a list of layers in a loop has to stack their weights in each call. This module
does it once, outside of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, NoReturn, TypeVar, overload

import equinox as eqx
import jax
import numpy as np

from .._errors import OptionError
from .._jax.trees import is_of_numbers, keystr, tree_flatten_with_path, tree_map
from .._jax.typed import DType
from .._owners import public
from .._public import public_in
from .._values.static_values import Unkeyed, static_key
from .._values.strict_keys import are_one

T = TypeVar("T")
Shape = tuple[int, ...]


@public_in("jitney.types")
class Stacked(eqx.Module, Generic[T]):
    """Identical layers, iterated and indexed like the list that they came from.

    Attributes:
        layers: A layer whose arrays hold those of all layers, along a first axis.
        count: The number of layers.
    """

    layers: T
    count: int = eqx.field(static=True)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[T]:
        return (self[i] for i in range(self.count))

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(self.count)[at]]
        # An IndexError past the end, so that a loop over indices ends.
        place = range(self.count)[at]

        def element(x: Any) -> object:
            if not _is_array(x):
                return x
            return jax.lax.index_in_dim(x, place, keepdims=False)

        return tree_map(element, self.layers)


@public
def stack(layers: Sequence[T]) -> Stacked[T]:
    """Stack identical layers, with each weight of all of them in one array, for functions under
    `optimize(roll="auto")`.

    In a model, `jitney.stack(layers)` may replace the list `layers`: loops over it, indices and
    `len` are as before, and a rolled loop stacks nothing in each call. Gradients and updates of it
    are stacked too.

    Args:
        layers: Equinox modules or other trees of arrays, at least one, of equal structure, shapes
            and dtypes.

    Returns:
        A module that is iterated and indexed like the list.

    Raises:
        OptionError: The layers differ in more than the values of their arrays.
    """
    if not isinstance(layers, (list, tuple)):
        _fail(
            f"{type(layers).__name__} is not a list of layers.",
            _RULE,
            "pass a list or a tuple of them.",
        )
    if not layers:
        _fail(
            "there are no layers.",
            "The arrays of one layer at least are stacked.",
            "pass a list of layers.",
        )

    # Every layer must match the first in structure, shapes, dtypes and static values.
    first = tree_flatten_with_path(layers[0])
    for i, layer in enumerate(layers):
        leaves, treedef = tree_flatten_with_path(layer)
        if not are_one(treedef, first[1]):
            _fail(
                f"layer {i} has another structure than layer 0.",
                _RULE,
                "stack those of one structure; a list may hold several stacks.",
            )
        for (path, one), (_, other) in zip(first[0], leaves, strict=True):
            if not _is_equal(one, other):
                _fail(
                    f"layer {i} differs from layer 0 in layers[{i}]{keystr(path)}:"
                    f" {_leaf_text(other)}"
                    f" for {_leaf_text(one)}.",
                    _RULE,
                    "stack those that are alike; a list may hold several stacks.",
                )

    def stacked(*given: Any) -> object:
        first = given[0]
        return jax.numpy.stack(given) if _is_array(first) else first

    return Stacked(tree_map(stacked, *layers), len(layers))


_RULE = "Layers that are stacked are equal but for the values of their arrays."


def _is_array(x: object) -> bool:
    return isinstance(x, jax.Array) or (
        isinstance(x, (np.ndarray, np.generic)) and is_of_numbers(x.dtype)
    )


def _is_equal(one: object, other: object) -> bool:
    if _is_array(one) or _is_array(other):
        return _is_array(one) and _is_array(other) and _kind(one) == _kind(other)
    if one is other:
        return True
    try:
        return type(one) is type(other) and static_key(one) == static_key(other)
    except Unkeyed:
        # Values without a key cannot be compared.
        return False


def _kind(x: Any) -> tuple[Shape, DType, bool]:
    # The weak type counts: such a value takes the dtype of its other operand.
    is_weak = bool(getattr(x, "weak_type", False))
    return x.shape, x.dtype, is_weak


def _leaf_text(x: object) -> str:
    if not _is_array(x):
        return repr(x)
    shape, dtype, weak = _kind(x)
    return f"{dtype}{list(shape)}{' (weak)' * weak}"


def _fail(what: str, rule: str, fix: str) -> NoReturn:
    raise OptionError("stack()", what, rule, fix, code="J209")
