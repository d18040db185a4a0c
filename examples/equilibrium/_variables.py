"""Groups of named variables as flat vectors, and the point of time at which equations read them.

A group is a pytree of arrays: a small Equinox module whose fields are variables, or a dict of them. Programs work on one vector a
group, so a group is taken apart with one split and put together with one concatenation, however many variables it has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from examples.equilibrium._fail import ModelError, message

derived = cached_property  # An intermediate: declared once in a `Point`, computed once where it is read, and not at all where it is not.


@dataclass(frozen=True)
class Layout:
    """How a group lies in its vector. Made of an example of the group, whose numbers do not matter."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, group: Any) -> "Layout":
        """The layout of groups like this one."""
        found, treedef = jax.tree_util.tree_flatten_with_path(group)
        paths = tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found)
        return cls(treedef, tuple(np.shape(leaf) for _, leaf in found), paths)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each variable."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Elements of the vector."""
        return sum(self.sizes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each element: `c`, or `logK[3]`."""
        return tuple(
            path + (f"[{','.join(map(str, at))}]" if shape else "")
            for path, shape in zip(self.paths, self.shapes, strict=True)
            for at in np.ndindex(shape)
        )

    def index(self, where: str, name: str) -> int:
        """The place of an element by its name; a variable of one element needs no index."""
        for i, known in enumerate(self.names):
            if known == name:
                return i
        raise ModelError(message(where, f"there is no {name!r}.", f"Known are {', '.join(self.names)}.", "correct the name."))

    def vector(self, group: Any) -> np.ndarray:
        """The numbers of a group, on the host."""
        leaves = [np.asarray(leaf, np.float64) for leaf in self.treedef.flatten_up_to(group)]
        spread = [np.broadcast_to(leaf, shape).ravel() for leaf, shape in zip(leaves, self.shapes, strict=True)]
        return np.concatenate(spread) if spread else np.zeros(0)

    def group(self, vector: Any) -> Any:
        """The group with the numbers of a vector, or of vectors along leading axes, on the host."""
        lead = np.shape(vector)[:-1]
        parts = np.split(np.asarray(vector), np.cumsum(self.sizes)[:-1], axis=-1) if self.sizes else []
        return self.treedef.unflatten([part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True)])

    def traced(self, vector: Float[Array, "size"]) -> Any:
        """The group with the elements of a traced vector: one split, whatever the number of variables."""
        if not self.sizes:
            return self.treedef.unflatten([])
        parts = lax.split(vector, self.sizes)
        return self.treedef.unflatten([lax.reshape(part, shape) for part, shape in zip(parts, self.shapes, strict=True)])


def joined(leaves: list[Any]) -> Float[Array, "size"]:
    """One vector of traced arrays."""
    if not leaves:
        return lax.full((0,), 0.0, np.float64)
    return lax.concatenate([lax.reshape(leaf, (math.prod(leaf.shape),)) for leaf in leaves], 0)


class Point:
    """All variables of one period under their names, and what is derived from them.

    Subclass it and declare intermediates with `@derived`. `params` are the parameters.
    """

    def __init__(self, params: Any, *groups: Any):
        self.params = params
        for group in groups:
            self.__dict__.update(members(group))

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(name for name in self.__dict__ if name != "params")
        raise AttributeError(f"{type(self).__name__} has neither a variable nor a derived quantity {name!r}. Variables are {known}.")


def members(group: Any) -> Mapping[str, Any]:
    """The variables of a group by name."""
    if isinstance(group, Mapping):
        return group
    if is_dataclass(group):
        return {field.name: getattr(group, field.name) for field in fields(group)}
    raise ModelError(
        message(
            type(group).__name__,
            "is not a group of variables.",
            "A group is an Equinox module or a dict, with arrays in its fields.",
            "write `class Controls(eqx.Module): c: Float[Array, '']`.",
        )
    )
