"""What a body returns, taken apart into arrays and the rest, and put together again on the other
side of the transforms.

The stages carry flat arrays. What else a result holds (strings, shapes, functions) is known once
the body has been traced, and travels as auxiliary data of a pytree node, which the program turns
back into the user's own tree behind JAX. Were that done when JAX rebuilds the node, JAX would find
more than arrays in a result, and take its slow path in every call: ten times as long for a small
module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from .._axes import Refused, is_symbolic
from .._errors import StaticError, Where
from .._jax.trees import (
    is_a,
    is_of_numbers,
    register_pytree_node,
    tree_flatten,
    tree_map,
    tree_unflatten,
    type_of,
)
from .._signature.copies import Copies, snapshot
from .._signature.identity import Identity, living
from .._signature.plain_objects import article, is_plain, is_used_up
from .._signature.static_values import keyer_of
from .._signature.told_apart import exactly
from .building import Build, builder, holds_modules
from .cuts import Cut
from .layout import described
from .made_objects import made_in
from .true_sizes import Proof
from .view import is_array


class Outcome:
    """What one trace of a body finds out: the structure of its result, and what its stages leave
    for their second step.
    """

    def __init__(self) -> None:
        self.treedef: Any = None
        # with stand-ins for objects that its caller gives it
        self._rest: tuple[tuple[int, Any], ...] = ()
        # the `id`s of objects that the body has made, of which each call gets a copy
        self.made: frozenset[int] = frozenset()
        # of each trace, where a body is traced at several sizes
        self.seen: list[tuple[Any, tuple[tuple[int, Any], ...]]] = []
        # the axes that Vmap adds in front of the results, outermost first
        self.levels: tuple[str, ...] = ()
        self.proof: Proof | None = None  # of the body's program, if an axis of the body is padded
        self.uncut: Refused | None = None  # why an axis that was to be cut into chunks was not
        self.cuts: list[Cut] = []  # which axes of which results are padded
        self.body_seconds: list[float] = []  # of each run of the body
        self.build: Build = self._first
        """The result with these arrays in it, as users get it."""

    @property
    def rest(self) -> tuple[tuple[int, Any], ...]:
        """What a result holds besides arrays, by its number among the leaves."""
        return tuple(
            (i, living(leaf) if type(leaf) is Identity else leaf) for i, leaf in self._rest
        )

    @rest.setter
    def rest(self, rest: tuple[tuple[int, Any], ...]) -> None:
        self._rest = rest

    def take_apart(self, result: Any, given: Sequence[Identity] = ()) -> list[Any]:
        """The arrays of a result; the structure is kept.

        Args:
            result: It.
            given: Stands for objects that each caller gives, a method's own, which this keeps none
                of alive.
        """
        leaves, self.treedef = tree_flatten(result)
        self.made = made_in(result, leaves)  # before anything else refers to them
        # functions stand in results as they are
        stand_ins = {id(stand_in()): stand_in for stand_in in given if is_plain(stand_in.kind)}
        self._rest = tuple(
            (i, stand_ins.get(id(leaf)) or snapshot(leaf))
            for i, leaf in enumerate(leaves)
            if not is_computed(leaf)
        )
        copies = Copies(self.made)
        for _, leaf in self._rest if self.made else ():
            _renewed(leaf, copies)  # as each call does, which has no line of the user's to name
        self.seen.append((self.treedef, self._rest))
        self.build = self._first
        return [leaf for leaf in leaves if is_computed(leaf)]

    def refuse_differences(self) -> None:
        """Check that what a result holds besides arrays is the same at every size.

        Raises:
            Refused: It is not, so that it cannot come from a program for several sizes.
        """
        first, *others = [
            (
                treedef,
                exactly([treedef]),
                tuple((i, type_of(value), _key(value)) for i, value in rest),
            )
            for treedef, rest in self.seen
        ]
        if any(is_symbolic(value) for _, rest in self.seen for _, value in rest) or any(
            other != first for other in others
        ):
            raise Refused("", "returns something besides arrays that depends on the size")
        del self.seen[1:]

    def whole(self, arrays: Sequence[Any]) -> Any:
        """The result with these arrays in it."""
        leaves, copies = list(arrays), Copies(self.made)
        for i, leaf in self._rest:
            # a caller who changes it in place changes no later result
            leaves.insert(i, _renewed(leaf, copies))
        if self.treedef is None:
            raise AssertionError("the body has not run")
        return tree_unflatten(self.treedef, leaves)

    def _first(self, arrays: Sequence[Any]) -> Any:
        """As the only one, perhaps, so that no function is written for it."""
        self.build = self.whole if self.made else self._second
        return self.whole(arrays)

    def _second(self, arrays: Sequence[Any]) -> Any:
        self.build = builder(self.treedef, self._rest, _renewed)
        return self.build(arrays)

    def inner(self, arrays: Sequence[Any]) -> Any:
        """The result as the body returned it for one element, with a shape and a dtype in place of
        each array.
        """
        return tree_map(self._without_levels, self.whole(arrays))

    def _without_levels(self, leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        shape, dtype, weak = described(leaf)
        return jax.ShapeDtypeStruct(shape[len(self.levels) :], dtype, weak_type=weak)

    def output(self, arrays: Sequence[Any]) -> Any:
        """What a transformed function returns to JAX: the result itself if it holds arrays only, in
        no modules.
        """
        return (
            Mixed(self, tuple(arrays))
            if self._rest or holds_modules(self.treedef)
            else self.whole(arrays)
        )


def _renewed(leaf: Any, copies: Copies | None = None) -> Any:
    """What is no array in a result, for one caller."""
    return living(leaf) if type(leaf) is Identity else snapshot(leaf, copies)


def refuse_used_up(where: Where, result: Any) -> None:
    """Check that a result holds nothing that its first reader would use up for all others.

    Raises:
        StaticError: An iterator or a coroutine.
    """
    for leaf in tree_flatten(result)[0]:
        if is_used_up(leaf):
            raise StaticError(
                where,
                f"the result is or holds {article(leaf)}.",
                "It can be read once, and what is traced once serves many calls.",
                "return a list, a tuple or an array.",
                code="J311",
            )


def is_computed(leaf: Any) -> bool:
    """Whether JAX can return it: not a shape that stands for an array, nor text or times in a NumPy
    array.
    """
    if is_a(leaf, jax.Array):  # PRNG keys too, whose dtype is of the kind of an object's
        return True
    return is_array(leaf) and not is_a(leaf, jax.ShapeDtypeStruct) and is_of_numbers(leaf.dtype)


def _key(value: Any) -> Any:
    keyer = keyer_of(type_of(value))
    return value if keyer is None else keyer(value)


class Mixed:
    """A result that holds more than arrays, or modules; to JAX it is the arrays."""

    def __init__(self, outcome: Outcome, arrays: tuple[Any, ...]):
        self.outcome = outcome
        self.arrays = arrays


def unmixed(result: Any) -> Any:
    """The user's own tree."""
    return result.outcome.build(result.arrays) if type(result) is Mixed else result


register_pytree_node(Mixed, lambda mixed: (mixed.arrays, mixed.outcome), Mixed)
