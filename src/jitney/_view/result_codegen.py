"""Code generation for results: one function per tree structure that builds modules from arrays.

Equinox unflattens a module in Python, which takes longer than a small program. The generated
function builds the same tree directly: a module is an object of its class with these fields and no
others, a Python container is a display, and any other node is left to JAX. It is written from a
result that JAX's own unflatten made of stand-ins, and its first result is compared with JAX's, part
by part. If they differ, JAX builds all results of the structure.

The function for `eqx.nn.Linear(2, 3)`, in which `c4` to `c7` are the static fields and the class:

    def build(arrays):
        a0, a1, = arrays
        m1 = new(c7)
        put(m1, {'weight': a0, 'bias': a1, 'in_features': c4, 'out_features': c5, 'use_bias': c6})
        return m1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx

from .._jax.trees import tree_flatten, tree_unflatten
from .._jax.typed import PyTreeDef
from .nodes import FIELDS, children, fields_of, is_leaf

Build = Callable[[Sequence[object]], Any]
"""Function from the arrays of a result to the user's tree."""


class _StandIn:
    """Placeholder for a leaf while the function is written."""


def holds_modules(treedef: PyTreeDef) -> bool:
    """Return whether a tree structure contains an Equinox module."""
    node = treedef.node_data()
    if node is None:
        return False
    if issubclass(node[0], eqx.Module):
        return True
    return any(map(holds_modules, treedef.children()))


def builder(
    treedef: PyTreeDef,
    rest: Sequence[tuple[int, object]],
    fresh: Callable[[object], object],
) -> Build:
    """Function that builds results of one structure from their arrays.

    Args:
        treedef: The structure.
        rest: Values of a result that are not arrays, by their index among the leaves.
        fresh: Returns a copy of such a value for one result, or the value itself.
    """
    static = dict(rest)
    indices = range(treedef.num_leaves)
    leaves = [static[i] if i in static else _StandIn() for i in indices]
    arrays_of = [leaf for i, leaf in enumerate(leaves) if i not in static]
    changing = [value for value in static.values() if fresh(value) is not value]
    copied = set(map(id, changing))

    # Compare one result with that of JAX before the function is trusted.
    try:
        build = _BuilderWriter(treedef, static, fresh).compile_function()
        if _are_alike(build(arrays_of), tree_unflatten(treedef, leaves), copied):
            return build
    # A class of the user's that takes arrays alone, as under a type checker.
    except Exception:  # noqa: BLE001, S110
        pass

    # Fallback for a structure that the generated function gets wrong.
    def by_jax(arrays: Sequence[object]) -> object:
        coming = iter(arrays)
        parts = [fresh(static[i]) if i in static else next(coming) for i in indices]
        return tree_unflatten(treedef, parts)

    return by_jax


def _are_alike(a: object, b: object, copied: set[int]) -> bool:
    """Return whether two trees consist of the same nodes and leaves. A value that is copied may be
    another object of its type.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if id(b) in copied:
        return True

    of_a, of_b = _items(a), _items(b)
    if of_a is not None and of_b is not None:
        # Keys and fields are compared in order, since the body's caller can observe it.
        if [*of_a] != [*of_b]:
            return False
        return all(_are_alike(of_a[key], part, copied) for key, part in of_b.items())

    parts, others = children(a), children(b)
    if is_leaf(b) or len(parts) != len(others):
        return False
    pairs = zip(parts, others, strict=True)
    return all(_are_alike(part, other, copied) for part, other in pairs)


def _items(node: object) -> Mapping[Any, object] | None:
    """Fields of a module, or a dict; None for another node."""
    if isinstance(node, eqx.Module):
        return fields_of(node)
    return node if type(node) is dict else None


class _BuilderWriter:
    """Writer of the function for one structure."""

    def __init__(
        self,
        treedef: PyTreeDef,
        static: dict[int, object],
        fresh: Callable[[object], object],
    ):
        # Globals of the generated function.
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "put": FIELDS.__set__,
            "fresh": fresh,
            "unflatten": tree_unflatten,
        }
        self._lines: list[str] = []
        indices = range(treedef.num_leaves)
        stand_ins = [_StandIn() for _ in indices]
        self._number = {id(each): i for i, each in enumerate(stand_ins)}
        self._leaves = [f"a{i}" for i in indices]
        arrays = "".join(f"a{i}, " for i in indices if i not in static)
        if arrays:
            self._lines.append(f"{arrays}= arrays")

        for i, value in static.items():
            name = self._constant(value)
            if fresh(value) is value:
                self._leaves[i] = name
            else:
                self._lines.append(f"a{i} = fresh({name})")

        # The stand-ins have to stay alive, since they are identified by `id`.
        self._alive = whole = tree_unflatten(treedef, stand_ins)
        self._whole = self._part(whole)

    def compile_function(self) -> Build:
        """Compile the function."""
        source = "\n    ".join(["def build(arrays):", *self._lines, f"return {self._whole}"])
        # The source consists of names and numbers generated here, and of no text of the user's.
        exec(compile(source, "<a result, built by jitney>", "exec"), self._names)  # noqa: S102
        return self._names["build"]

    def _constant(self, value: object) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _part(self, node: object) -> str:
        """Expression for a part of the result. Statements that it depends on are appended to the
        lines.
        """
        kind, number = type(node), self._number.get(id(node))
        if number is not None:
            return self._leaves[number]
        if node is None:
            return "None"
        if isinstance(node, eqx.Module) and _lies_in_vars(node):
            return self._module(node)
        if type(node) is list:
            return f"[{', '.join(map(self._part, node))}]"
        if type(node) is dict:
            items = [f"{self._constant(key)}: {self._part(part)}" for key, part in node.items()]
            return f"{{{', '.join(items)}}}"
        if isinstance(node, tuple) and (kind is tuple or hasattr(kind, "_fields")):
            parts = "".join(f"{self._part(part)}, " for part in node)
            return f"({parts})" if kind is tuple else f"{self._constant(kind)}({parts})"

        # JAX unflattens any other node.
        leaves, treedef = tree_flatten(node)
        structure = self._constant(treedef)
        numbers = [self._number[id(leaf)] for leaf in leaves]
        names = ", ".join(self._leaves[number] for number in numbers)
        return f"unflatten({structure}, [{names}])"

    def _module(self, node: eqx.Module) -> str:
        fields = dataclasses.fields(node)
        traced = {field.name for field in fields if not field.metadata.get("static")}
        entries: list[str] = []
        for name, part in fields_of(node).items():
            value = self._part(part) if name in traced else self._constant(part)
            entries.append(f"{name!r}: {value}")
        variable = f"m{len(self._lines)}"

        # Equinox's `__setattr__` refuses writes, so the `__dict__` is set as a whole.
        self._lines += [
            f"{variable} = new({self._constant(type(node))})",
            f"put({variable}, {{{', '.join(entries)}}})",
        ]
        return variable


def _lies_in_vars(module: eqx.Module) -> bool:
    """Return whether all fields that a module has are in its `__dict__`, and none in a slot."""
    return all(
        field.name in vars(module) or not hasattr(module, field.name)
        for field in dataclasses.fields(module)
    )
