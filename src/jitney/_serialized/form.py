"""Form of a result as plain data: its structure and its parts that are not arrays, so that another
process can rebuild it.

Python's own containers are written as they are, functions and named tuples by their qualified name.
An Equinox module is written as "like node 3 of the arguments", which has the same static fields, or
field by field, under the name of its class. Any other node that no argument has makes the program
ineligible for the cache. For example, the result `(x, {"n": 2})` with an array `x` is

    ["tuple", ["array"], ["dict", ["n"], ["value", 2]]]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from functools import partial
from operator import is_not
from typing import Any

import equinox as eqx
import jax

from .._jax.trees import attribute, tree_flatten, tree_unflatten
from .._record.origin import reached
from .._record.unsure import NotDeterministic
from .._signature.strict_keys import are_one

_LEAF = jax.tree_util.tree_structure(0)
Rest = tuple[tuple[int, Any], ...]


class _Array:
    """Placeholder for an array."""


_ARRAY = _Array()


class Forms:
    """Writer and reader of forms, relative to the arguments of one call.

    Args:
        values: The arguments, with anything in place of arrays.
    """

    def __init__(self, values: Any):
        self._nodes: list[tuple[Any, Any]] = []
        self._leaves: list[Any] = []
        self._collect(values)

    def _collect(self, value: object) -> None:
        children, treedef = _opened(value)
        if treedef == _LEAF:
            self._leaves.append(value)
            return
        self._nodes.append((value, treedef))
        for child in children:
            self._collect(child)

    def written(self, treedef: Any, rest: Rest) -> Any:
        """Return a form as plain data.

        Raises:
            Unsure: It holds a part that no argument has and that has no qualified name.
        """
        # Rebuild the result with placeholders; `rest` is sorted by index.
        leaves = [_ARRAY] * (treedef.num_leaves - len(rest))
        for i, leaf in rest:
            leaves.insert(i, leaf)
        said = self._written(tree_unflatten(treedef, leaves))

        # Read it back: the structure must be the same, static fields included.
        again, others = self.read(said)
        if not are_one(again, treedef) or [(i, type(x)) for i, x in others] != [
            (i, type(x)) for i, x in rest
        ]:
            raise NotDeterministic(
                "the structure of its result is not read again as it was written"
            )
        return said

    def _written(self, value: Any) -> Any:
        if value is _ARRAY:
            return ["array"]
        if value is None or type(value) in (bool, int, str):
            return ["value", value]
        # Hexadecimal: exact, and NaN and infinities survive JSON.
        if type(value) is float:
            return ["float", value.hex()]
        if type(value) in (tuple, list):
            return [type(value).__name__, *map(self._written, value)]
        if type(value) is dict and all(type(key) is str for key in value):
            return ["dict", list(value), *map(self._written, value.values())]

        # Leaves, then nodes that JAX knows: like an argument, a named tuple, or a module.
        children, treedef = _opened(value)
        if treedef == _LEAF:
            return self._leaf(value)
        said = self._node(value, treedef)
        if said is None:
            return self._module(value)
        return [*said, *map(self._written, children)]

    def _leaf(self, value: object) -> Any:
        for at, leaf in enumerate(self._leaves):
            if leaf is value:
                return ["leaf", at]
        return ["name", *_named(value)]

    def _node(self, value: object, treedef: object) -> list[Any] | None:
        for at, (node, of_node) in enumerate(self._nodes):
            if type(node) is type(value) and are_one(of_node, treedef):
                return ["like", at]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named tuple", *_named(type(value))]
        return None

    def _module(self, value: object) -> list[Any]:
        """Return a module of a class that no argument has.

        `written` then verifies that it reads back with the same structure, static fields included.
        """
        if not isinstance(value, eqx.Module):
            raise NotDeterministic(
                f"its result holds a {type(value).__qualname__}, which no argument is like"
            )
        present = [field.name for field in dataclasses.fields(value) if field.name in vars(value)]
        return [
            "module",
            *_named(type(value)),
            present,
            *(self._written(vars(value)[name]) for name in present),
        ]

    def read(self, said: object) -> tuple[Hashable, Rest]:
        """Return the structure, and the parts that are not arrays with their indices.

        Raises:
            Unsure: A name cannot be resolved.
        """
        leaves, treedef = tree_flatten(self._read(said))
        return treedef, tuple((i, leaf) for i, leaf in enumerate(leaves) if leaf is not _ARRAY)

    def _read(self, said: Any) -> Any:
        kind, *rest = said
        if kind == "array":
            return _ARRAY
        if kind == "value":
            return rest[0]
        if kind == "float":
            return float.fromhex(rest[0])
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(map(self._read, rest))
        if kind == "dict":
            return dict(zip(rest[0], map(self._read, rest[1:]), strict=True))
        if kind == "leaf":
            return self._leaves[rest[0]]
        if kind == "name":
            return _found(*rest)
        if kind == "named tuple":
            return _found(rest[0], rest[1])(*map(self._read, rest[2:]))
        if kind == "module":
            return _module_of(
                _found(rest[0], rest[1]), dict(zip(rest[2], map(self._read, rest[3:]), strict=True))
            )
        children = list(map(self._read, rest[1:]))
        return tree_unflatten(self._nodes[rest[0]][1], children)


def _module_of(kind: object, fields: Mapping[str, object]) -> Any:
    """Return a module rebuilt as JAX does it: without its `__init__`."""
    if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
        raise NotDeterministic(f"{kind} is no module of Equinox")
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _opened(value: object) -> tuple[list[Any], Any]:
    """Return the children of a node, and its treedef without them; a leaf is its own child."""
    return jax.tree_util.tree_flatten(value, is_leaf=partial(is_not, value))


def _named(value: object) -> tuple[str, str]:
    module = attribute(value, "__module__", None)
    name = attribute(value, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or reached(module, name) is not value
    ):
        raise NotDeterministic(
            f"its result holds a {type(value).__qualname__} that no argument has and no name"
            " leads to"
        )
    return module, name


def _found(module: str, name: str) -> Any:
    value = reached(module, name)
    if value is None:
        raise NotDeterministic(f"{module}.{name} is not there")
    return value
