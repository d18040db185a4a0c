"""Trees with stand-ins in place of their leaves, for jitney's own eyes: abstract values, markers,
static values in a wrapper.

JAX rebuilds a registered dataclass by a call of its class, whose `__init__` may look at what it is
given: a type checker does, and so does a `__post_init__` that converts its fields. In a trace it
gets tracers, which it takes; stand-ins it may refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .trees import tree_flatten, tree_unflatten

_PyTreeDef: Any = jax.tree_util.PyTreeDef
_REGISTRY: Any = jax.tree_util.default_registry


def unflatten_stand_ins(treedef: Any, leaves: Sequence[object]) -> Any:
    """Rebuild a tree from leaves that nobody computes with. A dataclass that refuses them gets them
    as its fields, without a call of its class.

    Raises:
        Exception: Whatever another class raises that refuses them.
    """
    try:
        return tree_unflatten(treedef, leaves)
    except Exception:
        if not _has_dataclass(treedef):
            raise
        return _rebuild(treedef, leaves)


def _has_dataclass(treedef: Any) -> bool:
    node = treedef.node_data()
    if node is None:
        return False
    return dataclasses.is_dataclass(node[0]) or any(map(_has_dataclass, treedef.children()))


def _rebuild(treedef: Any, leaves: Sequence[object]) -> Any:
    node = treedef.node_data()
    if node is None or not _has_dataclass(treedef):
        return tree_unflatten(treedef, leaves)
    # The children first, each from its own leaves.
    parts: list[object] = []
    begin = 0
    for child in treedef.children():
        parts.append(_rebuild(child, leaves[begin : begin + child.num_leaves]))
        begin += child.num_leaves

    kind, held = node
    made = _without_init(kind, held, parts) if dataclasses.is_dataclass(kind) else None
    return _one_level(treedef, parts) if made is None else made


def _one_level(treedef: Any, parts: Sequence[object]) -> object:
    """The node of a structure, around parts that are trees."""
    children = [jax.tree.structure(0)] * len(parts)
    node = _PyTreeDef.from_node_data_and_children(_REGISTRY, treedef.node_data(), children)
    return tree_unflatten(node, parts)


def _without_init(kind: Any, held: object, parts: Sequence[object]) -> object | None:
    """Instance of a dataclass with these parts and this auxiliary data in its fields; None if its
    flattening does not show which field each of them is.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    # Which child a field is, and which part of the auxiliary data, a blank instance tells, whose
    # fields hold a marker each.
    blank = object.__new__(kind)
    markers = {name: object() for name in names}
    for name, marker in markers.items():
        object.__setattr__(blank, name, marker)
    flat = _REGISTRY.flatten_one_level(blank)
    if flat is None:
        return None
    children, beside = list(flat[0]), flat[1]
    if len(children) != len(parts):
        return None

    made = object.__new__(kind)
    for name, marker in markers.items():
        place = next((i for i, child in enumerate(children) if child is marker), None)
        if place is not None:
            object.__setattr__(made, name, parts[place])
            continue
        place = next((i for i, part in enumerate(_items(beside)) if part is marker), None)
        if place is not None:
            object.__setattr__(made, name, _items(held)[place])
    return made


def _items(beside: object) -> tuple[object, ...]:
    return tuple(beside) if isinstance(beside, tuple) else (beside,)


def partition(tree: Any, chosen: Callable[[object], bool]) -> tuple[Any, Any]:
    """Split a tree in two of its structure, with None in place of the leaves of the other one: the
    leaves that are chosen, and the rest. `equinox.combine` is the inverse.

    Equinox's own function makes a tree of bools first, which a dataclass may refuse.
    """
    leaves, treedef = tree_flatten(tree)
    first = [leaf if chosen(leaf) else None for leaf in leaves]
    rest = [None if chosen(leaf) else leaf for leaf in leaves]
    return unflatten_stand_ins(treedef, first), unflatten_stand_ins(treedef, rest)
