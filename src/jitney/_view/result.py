"""Results of a body, flattened into arrays and static parts, and rebuilt on the other side of the
transforms.

The stages carry flat arrays. The static parts of a result (strings, shapes, functions) are known
once the body has been traced. They travel as auxiliary data of a pytree node, `Mixed`, which the
program converts to the user's own tree after JAX has returned. If the conversion happened when JAX
rebuilds the node, JAX would find more than arrays in a result and take its slow path in every call,
ten times as long for a small module.

A static part that existed before the trace, such as a module's constant, is returned itself in each
call. An object that the body creates would be created anew by each call of a plain function, so
each call returns a copy: a change by one caller is invisible to the others.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_flatten

from .._axes import Refused, is_symbolic
from .._errors import StaticError, Where
from .._jax.stand_ins import unflatten_stand_ins
from .._jax.trees import is_of_numbers, register_pytree_node, tree_unflatten
from .._jax.typed import Array, PyTreeDef
from .._values.attributes import attributes_of
from .._values.copies import Copies, snapshot
from .._values.identity import Identity, dereference
from .._values.kinds import RECORD, kind_of
from .._values.mutable_objects import article, is_consumable, is_plain
from .._values.static_values import keyer_of
from .._values.strict_keys import strict_key
from .layout import aval_parts
from .nodes import nodes
from .result_codegen import Build, builder, holds_modules
from .result_padding import Cut
from .true_sizes import Proof
from .view import is_array

_StaticLeaves = tuple[tuple[int, object], ...]
"""Static leaves of a result, with their indices among its leaves."""


class Outcome:
    """Findings of one trace of a body: the structure of its result, and notes of the stages for
    their second step.
    """

    def __init__(self) -> None:
        self.treedef: Any = None
        # Static leaves of the result by index, with stand-ins for objects that the caller passes
        # in.
        self._rest: _StaticLeaves = ()
        # The `id`s of objects that the body created; each call returns copies.
        self.made: frozenset[int] = frozenset()
        # Structure and static leaves of each trace, if the body is traced at several sizes.
        self.seen: list[tuple[PyTreeDef, _StaticLeaves]] = []
        # Axes that Vmap adds in front of the results, outermost first.
        self.levels: tuple[str, ...] = ()
        # The body's program with symbolic sizes, if an axis of the body is padded.
        self.proof: Proof | None = None
        # The reason why an axis was not cut into chunks.
        self.uncut: Refused | None = None
        # The user's lines of operations with a rule of their own for `jax.vmap`, of a call that
        # threads share.
        self.joint_rules: list[str] = []
        # Padded axes of each result.
        self.cuts: list[Cut] = []
        # Time of each run of the body.
        self.body_seconds: list[float] = []
        self.build: Build = self._first
        """Builds the result from arrays, as users get it."""

    def restore(self, treedef: object, rest: _StaticLeaves) -> None:
        """Take the structure and the static leaves that another trace has found."""
        self.treedef, self._rest = treedef, rest

    def begin_again(self) -> None:
        """Drop the notes of the stages, which run anew where the proof of the body does not."""
        self.uncut, self.joint_rules, self.cuts, self.body_seconds = None, [], [], []

    @property
    def rest(self) -> _StaticLeaves:
        """Static leaves of the result, by index among the leaves."""
        leaves: list[tuple[int, object]] = []
        for i, leaf in self._rest:
            leaves.append((i, dereference(leaf) if type(leaf) is Identity else leaf))
        return tuple(leaves)

    def take_apart(
        self,
        result: object,
        given: Sequence[Identity] = (),
    ) -> list[object]:
        """Flatten a result into its arrays, and record its structure.

        Args:
            result: The result.
            given: Stand-ins for objects that the caller passes in, such as the object of a method.
                They are not kept alive here.
        """
        leaves, self.treedef = tree_flatten(result)
        # This comes first, as any other reference to the objects would count as one from outside.
        self.made = new_objects_in(result, leaves)
        # A result contains functions as they are, so only plain objects get their stand-in.
        plain = [stand_in for stand_in in given if is_plain(stand_in.kind)]
        stand_ins = {id(stand_in()): stand_in for stand_in in plain}
        self._rest = tuple(
            (i, stand_ins.get(id(leaf)) or snapshot(leaf))
            for i, leaf in enumerate(leaves)
            if not is_computed(leaf)
        )
        copies = Copies(self.made)
        for _, leaf in self._rest if self.made else ():
            _renew(leaf, copies)  # as each call does, which has no line of the user's to name
        self.seen.append((self.treedef, self._rest))
        self.build = self._first
        return [leaf for leaf in leaves if is_computed(leaf)]

    @property
    def form(self) -> object:
        """The structure and the static parts, to be compared with those of another trace."""
        return _form(self._structure(), self._rest)

    def refuse_differences(self) -> None:
        """Check that the static parts of the result are the same at every size.

        Raises:
            Refused: They differ, so one program for several sizes cannot return them.
        """
        has_symbols = any(is_symbolic(value) for _, rest in self.seen for _, value in rest)
        first, *others = [_form(treedef, rest) for treedef, rest in self.seen]
        if has_symbols or any(other != first for other in others):
            raise Refused(
                "",
                "returns something besides arrays that depends on the size; return a number as"
                " jnp.asarray(...) of it",
            )
        del self.seen[1:]

    def whole(self, arrays: Sequence[object]) -> object:
        """Build the result from these arrays, with JAX's unflatten."""
        return tree_unflatten(self._structure(), self._leaves(arrays))

    def _structure(self) -> PyTreeDef:
        if self.treedef is None:
            raise AssertionError("the body has not run")
        return self.treedef

    def _leaves(self, arrays: Sequence[object]) -> list[object]:
        leaves, copies = list(arrays), Copies(self.made)
        for i, leaf in self._rest:
            # Each caller gets a copy, so that a change in place reaches no later result.
            leaves.insert(i, _renew(leaf, copies))
        return leaves

    def _first(self, arrays: Sequence[object]) -> object:
        """Build the first result, which may be the only one, without generating a function."""
        # Only `whole` copies the objects that the body created.
        self.build = self.whole if self.made else self._second
        return self.whole(arrays)

    def _second(self, arrays: Sequence[object]) -> object:
        self.build = builder(self.treedef, self._rest, _renew)
        return self.build(arrays)

    def inner(self, arrays: Sequence[Array]) -> object:
        """Result as the body returned it for one element, with a shape and dtype in place of each
        array.
        """
        leaves = map(self._without_levels, self._leaves(arrays))
        return unflatten_stand_ins(self._structure(), [*leaves])

    def _without_levels(self, leaf: object) -> object:
        if not is_array(leaf):
            return leaf
        shape, dtype, weak = aval_parts(leaf)
        inner = shape[len(self.levels) :]
        return jax.ShapeDtypeStruct(inner, dtype, weak_type=weak)

    def output(self, arrays: Sequence[object]) -> object:
        """Value that a transformed function returns to JAX: the result itself if it contains only
        arrays and no modules, else a `Mixed`.
        """
        if self._rest or holds_modules(self.treedef):
            return Mixed(self, tuple(arrays))
        return self.whole(arrays)


def _renew(leaf: object, copies: Copies | None = None) -> object:
    """Static leaf of a result for one caller."""
    return dereference(leaf) if type(leaf) is Identity else snapshot(leaf, copies)


def refuse_used_up(where: Where, result: object) -> None:
    """Check that a result contains nothing that its first reader would consume.

    Raises:
        StaticError: It contains an iterator or a coroutine.
    """
    for leaf in tree_flatten(result)[0]:
        if is_consumable(leaf):
            raise StaticError(
                where,
                f"the result is or holds {article(leaf)}.",
                "It can be read once, and what is traced once serves many calls.",
                "return a list, a tuple or an array.",
                code="J311",
            )


def is_computed(leaf: object) -> bool:
    """Return whether JAX can return a leaf: not a shape that stands for an array, nor text or times
    in a NumPy array.
    """
    # PRNG keys are included: the kind of their dtype is that of objects, so the test below would
    # fail.
    if isinstance(leaf, jax.Array):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and is_of_numbers(leaf.dtype)


def _key(value: object) -> object:
    keyer = keyer_of(type(value))
    return value if keyer is None else keyer(value)


def _form(treedef: PyTreeDef, rest: _StaticLeaves) -> object:
    keys = tuple((i, type(value), _key(value)) for i, value in rest)
    return treedef, strict_key([treedef]), keys


class Mixed:
    """Result with static parts or modules; JAX sees only the arrays."""

    def __init__(self, outcome: Outcome, arrays: tuple[object, ...]):
        self.outcome = outcome
        self.arrays = arrays


def unmix(result: object) -> Any:
    """The user's own tree."""
    return result.outcome.build(result.arrays) if type(result) is Mixed else result


register_pytree_node(Mixed, lambda mixed: (mixed.arrays, mixed.outcome), Mixed)


def new_objects_in(result: object, leaves: Sequence[object]) -> frozenset[int]:
    """The `id`s of plain objects in the leaves of a result that nothing outside of the result
    refers to.
    """
    found = _reachable_objects(leaves)
    objects = {key: value for key, value in found.items() if is_plain(type(value))}
    if not objects:
        return frozenset()
    holders = [*objects.values(), *nodes(result)]

    # An object is new if all its referrers are inside: the objects themselves, their attribute
    # dicts, the nodes of the result, and the local variables here.
    inside = {*found, *map(id, (found, objects, leaves, holders)), *map(id, holders)}
    inside |= {
        id(holder.__dict__) for holder in (*holders, *found.values()) if hasattr(holder, "__dict__")
    }

    # The objects are looked up by key, since a tuple of `items()` would be one more referrer.
    there_before = {key for key in objects if not _is_only_in(objects[key], inside)}
    return frozenset(objects.keys() - there_before - _reachable_ids(there_before, objects))


def _is_only_in(value: object, inside: set[int]) -> bool:
    """Return whether all referrers of an object are in `inside`. Frames do not count: a body
    reaches outer objects through a cell, a module, an argument or another object.
    """
    return all(
        id(referrer) in inside or isinstance(referrer, types.FrameType)
        for referrer in gc.get_referrers(value)
    )


def _reachable_ids(
    roots: set[int],
    objects: dict[int, object],
) -> set[int]:
    """The `id`s of objects that can be reached from objects that existed before, and so existed
    before too.
    """
    return {key for root in roots for key in _reachable_objects([objects[root]])}


def _reachable_objects(values: Sequence[object]) -> dict[int, object]:
    """Plain objects and containers that can be reached from these values (through attributes,
    Python's containers, methods and partials), by `id`.
    """
    found: dict[int, object] = {}
    coming = [*values]
    while coming:
        value = coming.pop()
        if id(value) not in found and (parts := [*_parts(value)]):
            coming += parts
            found[id(value)] = value
        elif is_plain(type(value)):
            found[id(value)] = value
    return found


def _parts(value: object) -> Iterator[object]:
    kind = kind_of(value)
    yield from kind.parts(value)
    if is_plain(type(value)) or kind is RECORD:
        yield from attributes_of(value).values()
