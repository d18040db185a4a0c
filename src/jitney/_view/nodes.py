"""Nodes of a pytree one by one, as JAX flattens them, and direct access to the fields of a
module.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
from jax.tree_util import all_leaves

FIELDS: types.GetSetDescriptorType = vars(eqx.Module)["__dict__"]
"""Descriptor that reads and sets the `__dict__` of a module. Access by attribute name would run
Equinox's lookup in Python.
"""
fields_of: Callable[[object], dict[str, object]] = vars


def nodes(node: object) -> Iterator[object]:
    """Iterate over a node and all nodes inside it, in preorder."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each is not None and not is_leaf(each):
            # The last item is popped first.
            waiting += reversed(children(each))


def is_leaf(node: object) -> bool:
    """Return whether JAX treats a node as a leaf. None is not a leaf."""
    return all_leaves([node])


def children(node: object) -> list[object]:
    """Children of a node in JAX's order; a leaf is its own child."""
    # `is_leaf` stops the flattening one level below the node.
    return jax.tree.leaves(node, is_leaf=lambda inner: inner is not node)


def names_of_children(node: object) -> list[object]:
    """Names of the children of a node in JAX's order; None for one that has a number or a key."""
    found, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda inner: inner is not node)
    return [getattr(key, "name", None) for path, _ in found for key in path]
