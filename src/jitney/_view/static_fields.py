"""Values beside the leaves of the arguments that callers can change in place: static fields of
modules, and auxiliary data of registered classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx

from .._jax.trees import tree_flatten
from .._owners import owner_of_class
from .._signature.copies import snapshot
from .._signature.mutable_objects import first_consumable, is_immutable
from .nodes import is_leaf, nodes

_OTHERS = ("user", "generated", "library")


def loose_parts(values: object) -> tuple[Any, ...]:
    """Values beside the leaves, in all nodes, that can change or be consumed."""
    return tuple(
        part
        for node in nodes(values)
        for part in _beside(node)
        if not is_immutable(part) or first_consumable(part) is not None
    )


def copy_loose(values: object) -> None:
    """Replace the static fields of modules, which were built for one trace, by copies, since JAX
    identifies a NumPy array by identity.
    """
    for node in nodes(values):
        if isinstance(node, eqx.Module):
            for name in _names(node):
                object.__setattr__(node, name, snapshot(getattr(node, name)))


def _beside(node: object) -> Iterator[Any]:
    if isinstance(node, eqx.Module):
        yield from (getattr(node, name) for name in _names(node))
    elif (
        node is not None
        and not isinstance(node, (tuple, list, dict))
        and not is_leaf(node)
        and owner_of_class(type(node)) in _OTHERS
    ):
        # The second item of the node data is the auxiliary data of a registered class.
        treedef: Any = tree_flatten(node)[1]
        told = treedef.node_data()
        yield None if told is None else told[1]


def _names(module: Any) -> list[str]:
    fixed = (
        field.name for field in dataclasses.fields(module) if field.metadata.get("static", False)
    )
    return [name for name in fixed if hasattr(module, name)]
