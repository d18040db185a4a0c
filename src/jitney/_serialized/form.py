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

from .._jax.stand_ins import unflatten_stand_ins
from .._jax.trees import attribute, tree_flatten
from .._jax.typed import PyTreeDef
from .._record.origin import lookup_name
from .._record.unsure import NotDeterministic
from .._values.strict_keys import are_one

_LEAF = jax.tree_util.tree_structure(0)
Rest = tuple[tuple[int, object], ...]
"""Parts of a result that are not arrays, with their indices."""
Form = list[object]
"""A form as plain data: the kind of a node, and what that kind needs."""


class _Array:
    """Placeholder for an array."""


_ARRAY = _Array()


class Forms:
    """Writer and reader of forms, relative to the arguments of one call.

    Args:
        values: The arguments, with anything in place of arrays.
    """

    def __init__(self, values: object):
        self._nodes: list[tuple[object, Hashable]] = []
        self._leaves: list[object] = []
        self._collect(values)

    def _collect(self, value: object) -> None:
        children, treedef = _flatten_node(value)
        if treedef == _LEAF:
            self._leaves.append(value)
            return
        self._nodes.append((value, treedef))
        for child in children:
            self._collect(child)

    def to_data(self, treedef: PyTreeDef, rest: Rest) -> Form:
        """Return a form as plain data.

        Raises:
            NotDeterministic: It holds a part that no argument has and that has no qualified name.
        """
        # Rebuild the result with placeholders; `rest` is sorted by index.
        leaves: list[object] = [_ARRAY] * (treedef.num_leaves - len(rest))
        for i, leaf in rest:
            leaves.insert(i, leaf)
        form = self._to_data(unflatten_stand_ins(treedef, leaves))

        # Read it back: the structure must be the same, static fields included.
        treedef_read, rest_read = self.read(form)
        types = [(i, type(leaf)) for i, leaf in rest]
        types_read = [(i, type(leaf)) for i, leaf in rest_read]
        if not are_one(treedef_read, treedef) or types_read != types:
            raise NotDeterministic(
                "the structure of its result is not read again as it was written"
            )
        return form

    def _to_data(self, value: Any) -> Form:
        if value is _ARRAY:
            return ["array"]
        if value is None or type(value) in (bool, int, str):
            return ["value", value]
        # Hexadecimal: exact, and NaN and infinities survive JSON.
        if type(value) is float:
            return ["float", value.hex()]
        if type(value) in (tuple, list):
            return [type(value).__name__, *map(self._to_data, value)]
        if type(value) is dict and all(type(key) is str for key in value):
            return ["dict", list(value), *map(self._to_data, value.values())]

        # Leaves, then nodes that JAX knows: like an argument, a named tuple, or a module.
        children, treedef = _flatten_node(value)
        if treedef == _LEAF:
            return self._leaf(value)
        node = self._node(value, treedef)
        if node is None:
            return self._module(value)
        return [*node, *map(self._to_data, children)]

    def _leaf(self, value: object) -> Form:
        for at, leaf in enumerate(self._leaves):
            if leaf is value:
                return ["leaf", at]
        return ["name", *_qualified_name(value)]

    def _node(self, value: object, treedef: Hashable) -> Form | None:
        kind = type(value)
        for at, (node, treedef_of_node) in enumerate(self._nodes):
            if type(node) is kind and are_one(treedef_of_node, treedef):
                return ["like", at]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named tuple", *_qualified_name(kind)]
        return None

    def _module(self, value: object) -> Form:
        """Return a module of a class that no argument has.

        `to_data` then verifies that it reads back with the same structure, static fields included.
        """
        if not isinstance(value, eqx.Module):
            raise NotDeterministic(
                f"its result holds a {type(value).__qualname__}, which no argument is like"
            )
        fields = vars(value)
        present = [field.name for field in dataclasses.fields(value) if field.name in fields]
        forms = [self._to_data(fields[name]) for name in present]
        return ["module", *_qualified_name(type(value)), present, *forms]

    def read(self, form: object) -> tuple[Hashable, Rest]:
        """Return the structure, and the parts that are not arrays with their indices.

        Raises:
            NotDeterministic: A name cannot be resolved.
        """
        leaves, treedef = tree_flatten(self._read(form))
        rest = ((i, leaf) for i, leaf in enumerate(leaves) if leaf is not _ARRAY)
        return treedef, tuple(rest)

    def _read(self, form: Any) -> object:
        kind, *rest = form
        if kind == "array":
            return _ARRAY
        if kind == "value":
            return rest[0]
        if kind == "float":
            return float.fromhex(rest[0])
        if kind == "tuple":
            return tuple(map(self._read, rest))
        if kind == "list":
            return list(map(self._read, rest))
        if kind == "dict":
            return dict(zip(rest[0], map(self._read, rest[1:]), strict=True))
        if kind == "leaf":
            return self._leaves[rest[0]]
        if kind == "name":
            return _require_name(*rest)
        if kind == "named tuple":
            module, name, *items = rest
            return _require_name(module, name)(*map(self._read, items))
        if kind == "module":
            module, name, present, *values = rest
            cls = _require_name(module, name)
            fields = dict(zip(present, map(self._read, values), strict=True))
            return _module_of(cls, fields)

        # Like a node of the arguments.
        at, *children = rest
        values = list(map(self._read, children))
        return unflatten_stand_ins(self._nodes[at][1], values)


def _module_of(kind: object, fields: Mapping[str, object]) -> eqx.Module:
    """Return a module rebuilt as JAX does it: without its `__init__`."""
    if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
        raise NotDeterministic(f"{kind} is not a module of Equinox")
    module = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def _flatten_node(value: object) -> tuple[list[object], Hashable]:
    """Return the children of a node, and its treedef without them; a leaf is its own child."""
    return jax.tree_util.tree_flatten(value, is_leaf=partial(is_not, value))


def _qualified_name(value: object) -> tuple[str, str]:
    module = attribute(value, "__module__", None)
    name = attribute(value, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or lookup_name(module, name) is not value
    ):
        raise NotDeterministic(
            f"its result holds a {type(value).__qualname__} that no argument has and no name"
            " leads to"
        )
    return module, name


def _require_name(module: str, name: str) -> Any:
    value = lookup_name(module, name)
    if value is None:
        raise NotDeterministic(f"{module}.{name} is not there")
    return value
