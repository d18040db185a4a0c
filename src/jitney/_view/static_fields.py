"""Values beside the leaves of the arguments that callers can change in place: static fields of
modules, and auxiliary data of registered classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import equinox as eqx
from jax.tree_util import tree_flatten

from .._jax.typed import PyTreeDef
from .._owners import owner_of_class
from .._values.copies import snapshot
from .._values.mutable_objects import first_consumable, is_immutable
from .nodes import is_leaf, nodes

_OTHERS = ("user", "generated", "library")


def loose_parts(values: object) -> tuple[object, ...]:
    """Values beside the leaves, in all nodes, that can change or be consumed."""
    return tuple(
        part
        for node in nodes(values)
        for part in _auxiliary_parts(node)
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


def _auxiliary_parts(node: object) -> Iterator[object]:
    if isinstance(node, eqx.Module):
        yield from (getattr(node, name) for name in _names(node))
    elif (
        node is not None
        and not isinstance(node, (tuple, list, dict))
        and not is_leaf(node)
        and owner_of_class(type(node)) in _OTHERS
    ):
        # The second item of the node data is the auxiliary data of a registered class.
        treedef: PyTreeDef = tree_flatten(node)[1]
        data = treedef.node_data()
        yield None if data is None else data[1]


def _names(module: eqx.Module) -> list[str]:
    fields = dataclasses.fields(module)
    static = [field.name for field in fields if field.metadata.get("static", False)]
    return [name for name in static if hasattr(module, name)]
