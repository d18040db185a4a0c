"""The nodes of a tree, as JAX takes it apart, one by one; and where the fields of a module lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import all_leaves

_leaves: Any = jax.tree.leaves
FIELDS: Any = vars(eqx.Module)["__dict__"]
"""What reads and sets the `__dict__` of a module; by its name each attribute of a module is looked
for in Python.
"""
fields_of: Callable[[Any], dict[str, Any]] = vars


def nodes(node: Any) -> Iterator[Any]:
    """It, and every node in it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each is not None and not is_leaf(each):
            waiting += reversed(children(each))


def is_leaf(node: Any) -> bool:
    """Whether JAX takes it for one; None is not."""
    return all_leaves([node])


def children(node: Any) -> list[Any]:
    """The parts of a node, in JAX's order; of a leaf, itself."""

    def is_child(inner: Any) -> bool:
        return inner is not node

    return _leaves(node, is_leaf=is_child)
