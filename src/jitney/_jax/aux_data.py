"""Static data of tree structures: keys of dicts, static fields of modules, and other auxiliary data
of nodes.

JAX's public functions show it node by node, which a call with a new module would pay for at each
node. The pickled state of a `PyTreeDef` has all nodes at once, in a tenth of the time, but its form
is not documented (jax 0.10.0 to 0.12): a test compares the two ways.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax

Structure: Any = jax.tree_util.PyTreeDef


def aux_data(structure: Hashable) -> list[Any]:
    """Return the auxiliary data of each node that has any, inner nodes first. That of a named tuple
    is its class.
    """
    known: Any = structure
    # The state of a node is (kind, arity, auxiliary data, registered class, leaves, nodes).
    return [
        held
        for _, _, held, kind, *_ in known.__getstate__()[1]
        if held is not None and (kind is not None or type(held) is list)
    ]


def beside_leaves_by_node(structure: Hashable) -> list[Any]:
    """Compute the same by JAX's documented functions."""
    known: Any = structure
    held = [part for child in known.children() for part in beside_leaves_by_node(child)]
    node = known.node_data()
    return held if node is None or node[1] is None else [*held, node[1]]
