"""Flatten the arguments of a call; a module that is passed again and again is flattened once.

Equinox flattens a module in Python, about a microsecond for each module inside it, and that is most of what a warm call with a
model costs. Modules are frozen, so one that holds nothing but modules, tuples and leaves flattens to the same leaves
each time. Should someone have changed it behind its back all the same (`object.__setattr__`), its fields are no longer the objects
that they were: that is looked at on every call, and costs a tenth of flattening.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator
from itertools import chain
from operator import is_
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import all_leaves

from .._jax.trees import tree_flatten

_LEAST_MODULES = 2  # a module with no other inside flattens as fast as it is found again
_APART = "by argument"  # a key starts with it, since that of `f((x,))` would else be that of `f(x)` flattened as a whole


class _Remembered:
    """The leaves of one module, and what all of its fields were when it was flattened."""

    __slots__ = ("fields", "key", "leaves", "module", "values")

    def __init__(self, module: weakref.ref[Any], leaves: list[Any], key: Hashable, fields: list[dict[str, Any]]):
        self.module = module
        self.leaves = leaves
        self.key = key
        self.fields = [*fields, _END]
        self.values = [value for field in self.fields for value in field.values()]

    def holds(self) -> bool:
        return all(map(is_, chain.from_iterable(map(_values, self.fields)), self.values))


_END: dict[str, Any] = {"": object()}
"""Stands behind the last module, so that a field more or less there shows too."""
_dict: Any = dict
_values: Any = _dict.values


class Flattener:
    """Arguments in normal form -> leaves, and a key of their structure and types."""

    def __init__(self) -> None:
        self._remembered: dict[int, _Remembered] = {}
        self._keys: dict[Hashable, int] = {}
        self._last: weakref.ref[Any] | None = None

    def __call__(self, args: tuple[Any, ...]) -> tuple[list[Any], Hashable]:
        leaves: list[Any] = []
        key: list[Hashable] = [_APART]
        for arg in args:
            part = self._module(arg) if isinstance(arg, eqx.Module) else None
            if part is None:
                flat, treedef = tree_flatten(arg)
                leaves += flat
                key += (treedef, *map(type, flat))
            else:
                leaves += part.leaves
                key.append(part.key)
        return leaves, tuple(key)

    def _module(self, module: eqx.Module) -> _Remembered | None:
        """What is remembered of a module, if it is this one and is as it was."""
        remembered = self._remembered.get(id(module))
        if remembered is not None and remembered.module() is module and remembered.holds():
            return remembered
        if self._last is not None and self._last() is module:
            return self._remember(module)
        self._last = weakref.ref(module)
        return None

    def _remember(self, module: eqx.Module) -> _Remembered | None:
        """Called when a module comes twice in a row: one that is new on every call, as in training, costs nothing more."""
        nodes = list(_modules(module))
        if None in nodes or len(nodes) < _LEAST_MODULES:
            return None
        leaves, treedef = tree_flatten(module)
        structure = (treedef, *map(type, leaves))
        number = self._keys.setdefault(structure, len(self._keys))
        name = id(module)
        forget = weakref.ref(module, lambda _: self._remembered.pop(name, None))
        remembered = _Remembered(forget, leaves, ("module", number), [vars(node) for node in nodes if node is not None])
        self._remembered[name] = remembered
        return remembered


def _modules(node: Any) -> Iterator[eqx.Module | None]:
    """Every module in a tree of modules, tuples and leaves; None for anything that could change in place."""
    if isinstance(node, eqx.Module):
        yield node
    elif not isinstance(node, tuple) and node is not None:
        yield from () if all_leaves([node]) else (None,)
        return
    for child in _children(node):
        yield from _modules(child)


def _children(node: Any) -> list[Any]:
    leaves: Any = jax.tree.leaves

    def is_child(inner: Any) -> bool:
        return inner is not node

    return leaves(node, is_leaf=is_child)
