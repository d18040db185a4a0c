"""Make the modules of a result as Equinox makes them, in one function for each structure.

Equinox unflattens a module in Python, as it flattens it, which takes longer than a small program.
The function is written from a result that JAX's own unflatten made of stand-ins: a module is an
object of its class with such fields and no others, a container of Python's is a display, and other
nodes JAX makes. What the function makes is compared once with what JAX makes, part by part; were it
another, JAX would make all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx

from .._jax.trees import is_a, tree_flatten, tree_unflatten, type_of
from .nodes import FIELDS, children, fields_of, is_leaf

Build = Callable[[Sequence[Any]], Any]


class _StandIn:
    """For a leaf, while the function is written."""


def holds_modules(treedef: Any) -> bool:
    """Whether a module is among the nodes."""
    node = treedef.node_data()
    return node is not None and (
        issubclass(node[0], eqx.Module) or any(map(holds_modules, treedef.children()))
    )


def builder(treedef: Any, rest: Sequence[tuple[int, Any]], fresh: Callable[[Any], Any]) -> Build:
    """What makes results of one structure from their arrays.

    Args:
        treedef: The structure.
        rest: What a result holds besides arrays, by its number among the leaves.
        fresh: A copy of such a value for one result, or the value itself.
    """
    held = dict(rest)
    leaves: list[Any] = [held[i] if i in held else _StandIn() for i in range(treedef.num_leaves)]
    build = _Writer(treedef, held, fresh).written()
    made = build([leaf for i, leaf in enumerate(leaves) if i not in held])
    copied = {id(value) for value in held.values() if fresh(value) is not value}
    if _are_alike(made, tree_unflatten(treedef, leaves), copied):
        return build

    def by_jax(arrays: Sequence[Any]) -> Any:
        found = iter(arrays)
        return tree_unflatten(
            treedef,
            [fresh(held[i]) if i in held else next(found) for i in range(treedef.num_leaves)],
        )

    return by_jax


def _are_alike(a: Any, b: Any, copied: set[int]) -> bool:
    """Whether two trees are of the same nodes and leaves; of values that are copied, copies."""
    if a is b:
        return True
    if type_of(a) is not type_of(b):
        return False
    if id(b) in copied:
        return True
    if is_a(b, eqx.Module) or type_of(b) is dict:
        of_a, of_b = _items(a), _items(b)
        return [*of_a] == [*of_b] and all(
            _are_alike(of_a[key], part, copied) for key, part in of_b.items()
        )
    parts, others = children(a), children(b)
    return (
        not is_leaf(b)
        and len(parts) == len(others)
        and all(_are_alike(x, y, copied) for x, y in zip(parts, others, strict=True))
    )


def _items(node: Any) -> dict[Any, Any]:
    return fields_of(node) if is_a(node, eqx.Module) else node


class _Writer:
    """Writes the function of one structure."""

    def __init__(self, treedef: Any, held: dict[int, Any], fresh: Callable[[Any], Any]):
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "put": FIELDS.__set__,
            "fresh": fresh,
            "unflatten": tree_unflatten,
        }
        self._lines: list[str] = []
        stand_ins = [_StandIn() for _ in range(treedef.num_leaves)]
        self._number = {id(each): i for i, each in enumerate(stand_ins)}
        self._leaves = [f"a{i}" for i in range(treedef.num_leaves)]
        arrays = "".join(f"a{i}, " for i in range(treedef.num_leaves) if i not in held)
        self._lines += [f"{arrays}= arrays"] if arrays else []
        for i, value in held.items():
            name = self._constant(value)
            if fresh(value) is value:
                self._leaves[i] = name
            else:
                self._lines.append(f"a{i} = fresh({name})")
        self._alive = whole = tree_unflatten(treedef, stand_ins)  # its identities count
        self._whole = self._part(whole)

    def written(self) -> Build:
        """The function, compiled."""
        source = "\n    ".join(["def build(arrays):", *self._lines, f"return {self._whole}"])
        exec(compile(source, "<a result, built by jitney>", "exec"), self._names)  # noqa: S102 - of names and numbers made here
        return self._names["build"]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _part(self, node: Any) -> str:
        """The expression of a part of the result; what has to be done before is a line."""
        kind, number = type_of(node), self._number.get(id(node))
        if number is not None:
            return self._leaves[number]
        if node is None:
            return "None"
        if is_a(node, eqx.Module) and _lies_in_vars(node):
            return self._module(node)
        if kind is list:
            return f"[{', '.join(map(self._part, node))}]"
        if kind is dict:
            items = [f"{self._constant(key)}: {self._part(part)}" for key, part in node.items()]
            return f"{{{', '.join(items)}}}"
        if kind is tuple or (is_a(node, tuple) and hasattr(kind, "_fields")):
            parts = "".join(f"{self._part(part)}, " for part in node)
            return f"({parts})" if kind is tuple else f"{self._constant(kind)}({parts})"
        leaves, treedef = tree_flatten(node)
        return (
            f"unflatten({self._constant(treedef)},"
            f" [{', '.join(self._leaves[self._number[id(leaf)]] for leaf in leaves)}])"
        )

    def _module(self, node: Any) -> str:
        traced = {
            field.name for field in dataclasses.fields(node) if not field.metadata.get("static")
        }
        parts = {
            name: self._part(part) if name in traced else self._constant(part)
            for name, part in fields_of(node).items()
        }
        fields = ", ".join(f"{name!r}: {part}" for name, part in parts.items())
        name = f"m{len(self._lines)}"
        self._lines += [
            f"{name} = new({self._constant(type_of(node))})",
            f"put({name}, {{{fields}}})",
        ]
        return name


def _lies_in_vars(module: Any) -> bool:
    """Whether all of its fields do, and none in a slot."""
    return all(
        field.name in vars(module) or not hasattr(module, field.name)
        for field in dataclasses.fields(module)
    )
