"""Flattening of the arguments of a call, with a generated function for modules of a known
structure.

Equinox flattens a module in Python, which takes about a microsecond for each module inside it and
is most of the cost of a warm call with a model. A generated function (`call_codegen.py`) takes a
tenth of that. Most calls bypass this module, because a call of a known pattern is flattened as a
whole by `call_codegen.taker`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence

import equinox as eqx
import jax
import numpy as np

from .._jax.trees import Tracer, tree_flatten
from .._values.strict_keys import strict_key
from .call_codegen import LeavesTaker, is_keyed_by_value, leaves_taker
from .nodes import children

_NODES = (tuple, eqx.Module)
_NO_KEYWORDS: dict[str, object] = {}
# First item of a key. Without it the key of `f((x,))`, flattened by argument, would equal that of
# `f(x)`, flattened as a whole.
_APART = "by argument"
# Number of modules of a class that JAX flattens before a function is generated. By then most calls
# are flattened as a whole.
_SEEN = 3
# Number of modules of a class after which no more functions are generated for it.
_MOST_SEEN = 64
# Number of functions of one class.
_MOST_TAKERS = 8


class ModuleStructure:
    """Key of modules with one tree structure and one type for each leaf. It is compared by
    identity, which is fast.

    Args:
        constants: Number of leaves that are functions or other constants, which are the same in all
            of these modules.
    """

    __slots__ = ("__weakref__", "constants")

    def __init__(self, constants: int):
        self.constants = constants


_structures: weakref.WeakValueDictionary[Hashable, ModuleStructure] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def structure(treedef: Hashable, leaves: Sequence[object]) -> ModuleStructure:
    """Get the unique `ModuleStructure` of a tree with these leaves."""
    constants = tuple(leaf for leaf in leaves if is_keyed_by_value(leaf))
    with _lock:
        return _structures.setdefault(
            (treedef, strict_key([treedef]), *map(type, leaves), *constants),
            ModuleStructure(len(constants)),
        )


def constants_in(key: tuple[Hashable, ...]) -> int:
    """Number of leaves that the key of a call's arguments identifies by value."""
    return sum(part.constants for part in key if isinstance(part, ModuleStructure))


class _Class:
    """Statistics and generated functions for modules of one class.

    Attributes:
        seen: Number of modules that JAX has flattened.
        takers: Functions for some of their structures.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.takers: tuple[tuple[LeavesTaker, ModuleStructure], ...] = ()

    def take_leaves(self, module: object) -> tuple[Sequence[object], ModuleStructure] | None:
        """Leaves of a module and its part of the key, if a function fits; None otherwise."""
        for take, of in self.takers:
            leaves = take((module,), _NO_KEYWORDS)
            if leaves is not None:
                return leaves, of
        return None

    def learn(self, leaves: Sequence[object], treedef: Hashable) -> None:
        """Generate a function for modules of this structure, once enough modules of the class have
        been seen.
        """
        self.seen += 1
        if not _SEEN <= self.seen <= _MOST_SEEN or len(self.takers) >= _MOST_TAKERS:
            return
        take = leaves_taker(treedef, leaves)
        if take is None:
            return
        of = structure(treedef, leaves)

        # The newest function is tried first, and replaces an older one of the same structure.
        others = [known for known in self.takers if known[1] is not of]
        self.takers = (take, of), *others


class Flattener:
    """Flattens arguments in normal form into leaves and a key of their structure and types."""

    def __init__(self) -> None:
        self._classes: dict[type, _Class] = {}
        # Whether JAX flattens a tuple class as a plain tuple.
        self._tuples: dict[type, bool] = {tuple: True}
        # Array types, which are leaves.
        self._arrays: set[type] = {np.ndarray}

    def __call__(self, args: tuple[object, ...]) -> tuple[list[object], tuple[Hashable, ...]]:
        leaves: list[object] = []
        key: list[Hashable] = [_APART]
        for arg in args:
            self._add(arg, leaves, key)
        return leaves, tuple(key)

    def _add(
        self,
        node: object,
        leaves: list[object],
        key: list[Hashable],
    ) -> None:
        """Append the leaves of one argument (or part of one), and its part of the key. The part
        determines where the argument ends.
        """
        kind = type(node)
        if kind in self._arrays:
            leaves.append(node)
            key.append(kind)
            return
        if isinstance(node, eqx.Module):
            self._module(node, leaves, key)
        elif isinstance(node, jax.Array) and not isinstance(node, Tracer):
            self._arrays.add(kind)
            self._add(node, leaves, key)
        elif isinstance(node, tuple) and self._holds_more(node):
            key += (kind, len(node))
            for child in node:
                self._add(child, leaves, key)
        else:
            flat, treedef = tree_flatten(node)
            leaves += flat
            key += (treedef, *map(type, flat))

    def _module(
        self,
        module: object,
        leaves: list[object],
        key: list[Hashable],
    ) -> None:
        known = self._classes.get(type(module))
        if known is None:
            known = self._classes[type(module)] = _Class()
        taken = known.take_leaves(module)
        if taken is not None:
            leaves += taken[0]
            key.append(taken[1])
            return
        flat, treedef = tree_flatten(module)
        leaves += flat
        key += (treedef, *map(type, flat))
        known.learn(flat, treedef)

    def _holds_more(self, node: tuple[object, ...]) -> bool:
        """Return whether a node is a tuple of modules, or of tuples that may contain modules, and
        JAX flattens it as a plain tuple.
        """
        return any(isinstance(child, _NODES) for child in node) and self._is_plain(node)

    def _is_plain(self, node: tuple[object, ...]) -> bool:
        """Return whether JAX flattens a tuple item by item, in order."""
        kind = type(node)
        plain = self._tuples.get(kind)
        if plain is None:
            parts = [*map(id, node)]
            if len(set(parts)) < len(parts):
                # Items that are the same object do not reveal the order, so nothing is learned
                # about the class.
                return False
            plain = self._tuples[kind] = [*map(id, children(node))] == parts
        return plain
