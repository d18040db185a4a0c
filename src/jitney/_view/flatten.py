"""Flatten the arguments of a call, modules by functions that were written for others of their
structure.

Equinox flattens a module in Python, about a microsecond for each module inside it, and that is most
of what a warm call with a model costs. The function of a structure (`taking.py`) takes a tenth of
that. Most calls do not come here, since those of a pattern that is known are taken apart as a
whole.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._jax.trees import Tracer, is_a, tree_flatten, type_of
from .._signature.told_apart import exactly
from .nodes import children
from .taking import Taker, is_told, leaves_taker

_NODES = (tuple, eqx.Module)
_NO_KEYWORDS: dict[str, Any] = {}
# a key starts with it, since that of `f((x,))` would else be that of `f(x)` flattened as a whole
_APART = "by argument"
# modules of a class that are flattened by JAX before a function is written: most calls are taken
# apart as a whole by then
_SEEN = 3
_MOST_SEEN = 64  # after which no more functions are written for its modules
_MOST_TAKERS = 8  # of one class


class Structure:
    """What the modules of one tree structure, with one type for each leaf, have in their keys:
    compared by identity, which is fast.

    Args:
        constants: How many leaves are functions and other constants, which are the same for all of
            these modules.
    """

    __slots__ = ("__weakref__", "constants")

    def __init__(self, constants: int):
        self.constants = constants


_structures: weakref.WeakValueDictionary[Hashable, Structure] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def structure(treedef: Hashable, leaves: Sequence[Any]) -> Structure:
    """The one of a tree with such leaves."""
    constants = tuple(leaf for leaf in leaves if is_told(leaf))
    with _lock:
        return _structures.setdefault(
            (treedef, exactly([treedef]), *map(type, leaves), *constants), Structure(len(constants))
        )


def constants_in(key: Any) -> int:
    """How many leaves the key of a call's arguments tells by value."""
    return sum(part.constants for part in key if is_a(part, Structure))


class _Class:
    """What is known of modules of one class.

    Attributes:
        seen: How many were flattened by JAX.
        takers: Functions for some of their structures.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.takers: tuple[tuple[Taker, Structure], ...] = ()

    def taken(self, module: Any) -> tuple[Sequence[Any], Structure] | None:
        """Its leaves and its part of the key, if there is a function for it."""
        for take, of in self.takers:
            leaves = take((module,), _NO_KEYWORDS)
            if leaves is not None:
                return leaves, of
        return None

    def learn(self, leaves: Sequence[Any], treedef: Hashable) -> None:
        """Have a function for modules of this structure, if such modules come again and again."""
        self.seen += 1
        if _SEEN <= self.seen <= _MOST_SEEN and len(self.takers) < _MOST_TAKERS:
            take = leaves_taker(treedef, leaves)
            if take is not None:
                of = structure(treedef, leaves)
                self.takers = (take, of), *(known for known in self.takers if known[1] is not of)


class Flattener:
    """Arguments in normal form -> leaves, and a key of their structure and types."""

    def __init__(self) -> None:
        self._classes: dict[type, _Class] = {}
        self._tuples: dict[type, bool] = {tuple: True}  # whether JAX takes one apart as it is
        self._arrays: set[type] = {np.ndarray}  # which are leaves

    def __call__(self, args: tuple[Any, ...]) -> tuple[list[Any], tuple[Hashable, ...]]:
        leaves: list[Any] = []
        key: list[Hashable] = [_APART]
        for arg in args:
            self._add(arg, leaves, key)
        return leaves, tuple(key)

    def _add(self, node: Any, leaves: list[Any], key: list[Hashable]) -> None:
        """The leaves of one argument, or part of one; and its part of the key, which tells where it
        ends.
        """
        kind = type_of(node)
        if kind in self._arrays:
            leaves.append(node)
            key.append(kind)
            return
        if is_a(node, eqx.Module):
            self._module(node, leaves, key)
        elif is_a(node, jax.Array) and not is_a(node, Tracer):
            self._arrays.add(kind)
            self._add(node, leaves, key)
        elif is_a(node, tuple) and self._holds_more(node):
            key += (kind, len(node))
            for child in node:
                self._add(child, leaves, key)
        else:
            flat, treedef = tree_flatten(node)
            leaves += flat
            key += (treedef, *map(type, flat))

    def _module(self, module: Any, leaves: list[Any], key: list[Hashable]) -> None:
        known = self._classes.get(type_of(module))
        if known is None:
            known = self._classes[type_of(module)] = _Class()
        taken = known.taken(module)
        if taken is not None:
            leaves += taken[0]
            key.append(taken[1])
            return
        flat, treedef = tree_flatten(module)
        leaves += flat
        key += (treedef, *map(type, flat))
        known.learn(flat, treedef)

    def _holds_more(self, node: Any) -> bool:
        """Whether it is a tuple of modules, or of tuples, which may be of modules; not one that JAX
        takes apart in another way.
        """
        return any(isinstance(child, _NODES) for child in node) and self._is_plain(node)

    def _is_plain(self, node: Any) -> bool:
        """Whether JAX takes a tuple apart as it is."""
        kind = type_of(node)
        plain = self._tuples.get(kind)
        if plain is None:
            parts = [*map(id, node)]
            if len(set(parts)) < len(parts):
                return False  # equal ones do not show in which order JAX takes them
            plain = self._tuples[kind] = [*map(id, children(node))] == parts
        return plain
