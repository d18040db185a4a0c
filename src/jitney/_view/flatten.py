"""Flatten the arguments of a call; a module that is passed again and again is flattened once.

Equinox flattens a module in Python, about a microsecond for each module inside it, and that is most of what a warm call with a
model costs. Modules are frozen, so one that holds modules, containers of Python's and leaves flattens to the same leaves each time; one
that a Program returned need not be flattened at all (see `building.py`). A list in it may have changed, or someone may have changed it
behind its back (`object.__setattr__`): then its parts are no longer the objects that they were, which is looked at on every call, and
costs a tenth of flattening.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from operator import is_
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.tree_util import all_leaves

from .._jax.trees import Tracer, is_a, tree_flatten, type_of
from .._signature.plain_objects import can_change
from .._signature.static_values import is_constant
from .._signature.told_apart import exactly
from .view import is_array

_NODES = (tuple, eqx.Module)
_APART = "by argument"  # a key starts with it, since that of `f((x,))` would else be that of `f(x)` flattened as a whole
_MOST_SEEN = 64
_NEVER = None, False


class Structure:
    """What the modules of one tree structure, with one type for each leaf, have in their keys: compared by identity, which is fast.

    Args:
        arrays: Where the arrays are among the leaves.
        constants: How many leaves are functions and other constants, which are the same for all of these modules.
    """

    __slots__ = ("__weakref__", "arrays", "constants")

    def __init__(self, arrays: tuple[int, ...], constants: int):
        self.arrays = arrays
        self.constants = constants


_structures: weakref.WeakValueDictionary[Hashable, Structure] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def structure(treedef: Hashable, leaves: Sequence[Any]) -> Structure:
    """The one of a tree with such leaves."""
    arrays = tuple(i for i, leaf in enumerate(leaves) if is_array(leaf))
    constants = tuple(leaf for leaf in leaves if is_constant(type_of(leaf)) and not can_change(leaf) and not is_array(leaf))
    with _lock:
        return _structures.setdefault((treedef, exactly([treedef]), *map(type, leaves), *constants), Structure(arrays, len(constants)))


def constants_in(key: Any) -> int:
    """How many leaves the key of a call's arguments tells by value."""
    return sum(part.constants for part in key if is_a(part, Structure))


class Remembered(weakref.ref[Any]):
    """A weak reference to a module, with its leaves and what all of its fields were when it was flattened, or made.

    Attributes:
        name: Its `id`.
        leaves: In JAX's order.
        structure: Its part of a key.
        holders: What the modules, lists and dicts in it hold now: views and lists, which show each change.
        held: What these held then.
        found: Is called when the module is found again.
    """

    __slots__ = ("found", "held", "holders", "leaves", "name", "structure")

    name: int
    leaves: list[Any]
    structure: Structure
    holders: list[Any]
    held: list[Any]
    found: Callable[[], None] | None

    def holds(self) -> bool:
        return all(map(is_, chain.from_iterable(self.holders), self.held))


END = (object(),)
"""Stands behind each list and dict and behind the last module, so that a part more or less there shows too."""
_leaves: Any = jax.tree.leaves
fields_of: Callable[[Any], dict[str, Any]] = vars
_remembered: dict[int, Remembered] = {}
remembered: Callable[[int], Remembered | None] = _remembered.get
"""What is remembered of the module of this `id`; what it refers to says whether it is that one."""


def remember(module: Any, leaves: list[Any], structure: Structure, holders: list[Any], held: list[Any], found: Any = None) -> None:
    """Find these leaves whenever the module is an argument, for as long as it lives. `holders` ends with END."""
    part = Remembered(module, _forget)
    part.name, part.leaves, part.structure, part.holders, part.held, part.found = id(module), leaves, structure, holders, held, found
    _remembered[part.name] = part


def _forget(part: Any, forget: Any = _remembered.pop) -> None:
    """Of a module that is gone. At exit the names of this file may be gone before the last module is."""
    forget(part.name, None)


def holders_of(node: Any) -> Iterator[Any]:
    """What holds the parts of one node that can change, to be looked at again; None for one that JAX takes apart in a way of its own."""
    kind = type_of(node)
    if is_a(node, eqx.Module):
        yield fields_of(node).values()
    elif kind is list:
        yield node
        yield END
    elif kind is dict:
        yield node.keys()
        yield node.values()
        yield END
    elif node is not None and not is_a(node, tuple) and not is_leaf(node):
        yield None


class Flattener:
    """Arguments in normal form -> leaves, and a key of their structure and types."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[Any], bool]] = {}  # and whether it was looked at, and is flattened each time
        self._tuples: dict[type, bool] = {tuple: True}  # whether JAX takes one apart as it is
        self._arrays: set[type] = {np.ndarray}  # which are leaves

    def __call__(self, args: tuple[Any, ...]) -> tuple[list[Any], tuple[Hashable, ...]]:
        leaves: list[Any] = []
        key: list[Hashable] = [_APART]
        for arg in args:
            self._add(arg, leaves, key)
        return leaves, tuple(key)

    def is_array(self, kind: type) -> bool:
        """Whether all of this type have been arrays so far."""
        return kind in self._arrays

    def _add(self, node: Any, leaves: list[Any], key: list[Hashable]) -> None:
        """The leaves of one argument, or part of one; and its part of the key, which tells where it ends."""
        kind = type_of(node)
        if kind in self._arrays:
            leaves.append(node)
            key.append(kind)
            return
        part = remembered(id(node))
        if part is not None and part() is node and part.holds():
            if part.found is not None:
                part.found()
        elif is_a(node, jax.Array) and not is_a(node, Tracer):
            self._arrays.add(kind)
            self._add(node, leaves, key)
            return
        elif is_a(node, tuple):
            if self.holds_more(node):
                key += (kind, len(node))
                for child in node:
                    self._add(child, leaves, key)
                return
            part = None
        else:
            part = self._second(node) if isinstance(node, eqx.Module) else None
        if part is None:
            flat, treedef = tree_flatten(node)
            leaves += flat
            key += (treedef, *map(type, flat))
        else:
            leaves += part.leaves
            key.append(part.structure)

    def holds_more(self, node: Any) -> bool:
        """Whether it is a tuple of modules, or of tuples, which may be of modules; not one that JAX takes apart in another way."""
        return any(isinstance(child, _NODES) for child in node) and self.is_plain(node)

    def is_plain(self, node: Any) -> bool:
        """Whether JAX takes a tuple apart as it is."""
        kind = type_of(node)
        plain = self._tuples.get(kind)
        if plain is None:
            parts = [*map(id, node)]
            if len(set(parts)) < len(parts):
                return False  # equal ones do not show in which order JAX takes them
            plain = self._tuples[kind] = [*map(id, children(node))] == parts
        return plain

    def _second(self, module: eqx.Module) -> Remembered | None:
        """What is remembered of a module from its second call on: one that is new on every call costs nothing more."""
        name = id(module)
        seen, is_settled = self._seen.get(name, _NEVER)
        if seen is None or seen() is not module:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[name] = weakref.ref(module), False
            return None
        if is_settled:
            return None
        holders = [holder for node in nodes(module) for holder in holders_of(node)]
        if any(holder is None for holder in holders):
            self._seen[name] = seen, True
            return None
        del self._seen[name]
        leaves, treedef = tree_flatten(module)
        holders.append(END)
        remember(module, leaves, structure(treedef, leaves), holders, [*chain.from_iterable(holders)])
        return remembered(name)


def nodes(node: Any) -> Iterator[Any]:
    """It, and every node in it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each is not None and not is_leaf(each):
            waiting += reversed(children(each))


def is_leaf(node: Any) -> bool:
    """Whether JAX takes it for one; None is not."""
    return all_leaves([node])


def children(node: Any) -> list[Any]:
    """The parts of a node, in JAX's order; of a leaf, itself."""

    def is_child(inner: Any) -> bool:
        return inner is not node

    return _leaves(node, is_leaf=is_child)
