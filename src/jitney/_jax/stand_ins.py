"""Trees with stand-ins in place of their leaves, for jitney's own eyes: abstract values, markers,
static values in a wrapper.

JAX rebuilds a registered dataclass by a call of its class, whose `__init__` may look at what it is
given: a type checker does, and so does a `__post_init__` that converts its fields. In a trace it
gets tracers, which it takes; stand-ins it may refuse. The same holds for the `__new__` of a named
tuple, and for a class whose own unflattening calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from .trees import tree_flatten, tree_unflatten
from .typed import PyTreeDef

Tree = Any
_REGISTRY = jax.tree_util.default_registry
_MOST_ATTRIBUTES = 100


def unflatten_stand_ins(treedef: object, leaves: Sequence[object]) -> Tree:
    """Rebuild a tree from leaves that nobody computes with. A class that refuses them gets them as
    attributes, without a call of the class.

    Raises:
        Exception: Whatever a class raises that refuses them, and does not show its attributes.
    """
    try:
        return tree_unflatten(treedef, leaves)
    except Exception:
        if not isinstance(treedef, PyTreeDef) or treedef.node_data() is None:
            raise
        return _rebuild(treedef, leaves)


def _rebuild(treedef: PyTreeDef, leaves: Sequence[object]) -> object:
    """Rebuild a tree node by node, the inner ones first."""
    node = treedef.node_data()
    if node is None:
        return leaves[0]
    parts: list[object] = []
    begin = 0
    for child in treedef.children():
        parts.append(_rebuild(child, leaves[begin : begin + child.num_leaves]))
        begin += child.num_leaves

    children = [jax.tree.structure(0)] * len(parts)
    level = PyTreeDef.from_node_data_and_children(_REGISTRY, node, children)
    try:
        return tree_unflatten(level, parts)
    except Exception:
        kind, held = node
        if issubclass(kind, tuple):
            return tuple.__new__(kind, parts)
        made = _without_init(kind, held, parts)
        if made is None:
            raise
        return made


def _without_init(kind: type, held: object, parts: Sequence[object]) -> object | None:
    """Instance of a registered class with these parts and this auxiliary data as its attributes;
    None if its flattening does not show which attribute each of them is.
    """
    markers: dict[str, object] = {}
    flat = _flatten_blank(kind, markers)
    if flat is None or len(flat[0]) != len(parts):
        return None
    children, beside = flat
    places = dict(zip(map(id, children), parts, strict=True))
    places.update(zip(map(id, _items(beside)), _items(held), strict=False))

    made = object.__new__(kind)
    for name, marker in markers.items():
        if id(marker) not in places:
            return None
        object.__setattr__(made, name, places[id(marker)])
    return made


def _flatten_blank(
    kind: type, markers: dict[str, object]
) -> tuple[tuple[object, ...], object] | None:
    """Children and auxiliary data of an instance whose attributes are markers. Those that the
    flattening asks for are made one by one, and are noted in `markers`.
    """
    blank = object.__new__(kind)
    for _ in range(_MOST_ATTRIBUTES):
        try:
            children, beside = _REGISTRY.flatten_one_level(blank)
        except AttributeError as missing:
            name = missing.name
            if missing.obj is not blank or name is None or name in markers:
                return None
            markers[name] = object()
            object.__setattr__(blank, name, markers[name])
        # It does more with its attributes than to hand them on.
        except Exception:  # noqa: BLE001
            return None
        else:
            return tuple(children), beside
    return None


def _items(beside: object) -> tuple[object, ...]:
    return tuple(beside) if isinstance(beside, (tuple, list)) else (beside,)


def partition(tree: object, chosen: Callable[[object], bool]) -> tuple[Tree, Tree]:
    """Split a tree in two of its structure, with None in place of the leaves of the other one: the
    leaves that are chosen, and the rest. `equinox.combine` is the inverse.

    Equinox's own function makes a tree of bools first, which a dataclass may refuse.
    """
    leaves, treedef = tree_flatten(tree)
    taken = [(leaf, chosen(leaf)) for leaf in leaves]
    first = [leaf if is_chosen else None for leaf, is_chosen in taken]
    rest = [None if is_chosen else leaf for leaf, is_chosen in taken]
    return unflatten_stand_ins(treedef, first), unflatten_stand_ins(treedef, rest)
