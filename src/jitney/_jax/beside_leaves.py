"""What the structure of a tree holds beside its leaves: keys of dicts, static fields of modules,
whatever a class keeps to itself.

JAX has a public way to ask for it, node by node, and a call with a module that is new would pay for
each. What it gives to be pickled has all nodes at once, in a tenth of the time; how that is laid
out is nowhere written (jax 0.10.0 to 0.12: a test compares the two).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax

_tree: Any = jax.tree_util
Structure: Any = _tree.PyTreeDef


def beside_leaves(structure: Hashable) -> list[Any]:
    """Of each node that holds something, what it holds, the inner ones first; the class of a named
    tuple is what it is.
    """
    known: Any = structure
    return [
        held
        for _, _, held, kind, *_ in known.__getstate__()[1]
        if held is not None and (kind is not None or type(held) is list)
    ]


def beside_leaves_by_node(structure: Hashable) -> list[Any]:
    """The same, as JAX's own documented functions tell it."""
    known: Any = structure
    held = [part for child in known.children() for part in beside_leaves_by_node(child)]
    node = known.node_data()
    return held if node is None or node[1] is None else [*held, node[1]]
