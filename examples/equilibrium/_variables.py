"""Groups of named variables as flat vectors, and the point of time at which equations read them.

A group is a pytree of arrays: a small Equinox module whose fields are variables, or a dict of them.
Programs work on one vector a group, so a group is taken apart with one split and put together with
one concatenation, however many variables it has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._fail import ModelError, UnknownName, message
from ._given import called, numbers, shown

# An intermediate: declared once in a `Point`, computed once where it is read, and not at all where
# it is not.
derived = cached_property


@dataclass(frozen=True)
class Layout:
    """How a group lies in its vector. Made of an example of the group, whose numbers do not
    matter.
    """

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
        return named(where, self.names, name)

    def vector(self, group: Any, where: str = "a group") -> np.ndarray:
        """The numbers of a group, on the host.

        Raises:
            ModelError: It has other names than this one, or something else than numbers of these
                shapes.
        """
        spread = [
            self.spread(where, i, numbers(where, self.paths[i], leaf)).ravel()
            for i, leaf in enumerate(self.leaves(group, where))
        ]
        return np.concatenate(spread) if spread else np.zeros(0)

    def leaves(self, group: Any, where: str) -> list[Any]:
        """What stands in a group for each variable."""
        try:
            return self.treedef.flatten_up_to(group)
        except (ValueError, TypeError):
            raise ModelError(
                message(
                    where,
                    f"{_misfit(self, group)}.",
                    f"The group is {self.kind} of {', '.join(self.paths) or 'nothing'}.",
                    "pass the same class or dict as the model was made with, with the same names.",
                )
            ) from None

    @property
    def kind(self) -> str:
        """What groups of this layout are: a dict, or a class by its name."""
        node = self.treedef.node_data()
        return "a number" if node is None else f"a {node[0].__name__}"

    def spread(self, where: str, i: int, value: Any) -> Any:
        """A variable's numbers in its shape; one number serves all elements."""
        shape = self.shapes[i]
        if np.shape(value) != shape and np.shape(value) != ():
            raise ModelError(
                message(
                    where,
                    f"{self.paths[i]!r} has shape {np.shape(value)}.",
                    f"In the model it has shape {shape}.",
                    "pass that shape, or one number for all elements.",
                )
            )
        return (
            np.broadcast_to(value, shape)
            if isinstance(value, np.ndarray)
            else jnp.broadcast_to(value, shape)
        )

    def group(self, vector: Any) -> Any:
        """The group with the numbers of a vector, or of vectors along leading axes, on the host."""
        lead = np.shape(vector)[:-1]
        parts = (
            np.split(np.asarray(vector), np.cumsum(self.sizes)[:-1], axis=-1) if self.sizes else []
        )
        return self.treedef.unflatten(
            [part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True)]
        )

    def traced(self, vector: Float[Array, "size"]) -> Any:
        """The group with the elements of a traced vector: one split, whatever the number of
        variables.
        """
        if not self.sizes:
            return self.treedef.unflatten([])
        parts = lax.split(vector, self.sizes)
        return self.treedef.unflatten(
            [lax.reshape(part, shape) for part, shape in zip(parts, self.shapes, strict=True)]
        )


def named(where: str, names: tuple[str, ...], name: str) -> int:
    """The place of a name among names.

    Raises:
        ModelError: It is none of them.
    """
    if isinstance(name, str) and name in names:
        return names.index(name)
    raise ModelError(
        message(
            where,
            f"there is no {shown(name)}.",
            f"Known are {', '.join(names) or 'none'}.",
            "correct the name.",
        )
    )


def _misfit(layout: Layout, group: Any) -> str:
    if not isinstance(group, Mapping) and not is_dataclass(group):
        return f"{shown(group)} is no group of variables"
    given, known = set(map(str, members(group))), {path.split(".")[0] for path in layout.paths}
    said = [
        f"{what} {', '.join(map(repr, sorted(names)))}"
        for what, names in (("without", known - given), ("with", given - known))
        if names
    ]
    return (
        f"a {type(group).__name__} {' and '.join(said) or 'of another structure'} is not the"
        " model's"
    )


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
        rule = getattr(type(self), name, None)
        # its rule raised an AttributeError, and Python asks here for the quantity itself
        if isinstance(rule, cached_property):
            return called(type(self).__name__, f"the rule of {name!r}", rule.func, self)
        known = ", ".join(name for name in self.__dict__ if name != "params")
        raise UnknownName(
            message(
                type(self).__name__,
                f"it has neither a variable nor a derived quantity {name!r}.",
                f"Variables are {known}.",
                "correct the name, or declare it with `@derived`.",
            )
        )


def members(group: Any) -> Mapping[str, Any]:
    """The variables of a group by name."""
    if isinstance(group, Mapping):
        return group
    if is_dataclass(group):
        return {field.name: getattr(group, field.name) for field in fields(group)}
    raise ModelError(
        message(
            shown(group),
            "it is not a group of variables.",
            "A group is an Equinox module or a dict, with arrays in its fields.",
            "write `class Controls(eqx.Module): c: Float[Array, '']`.",
        )
    )
