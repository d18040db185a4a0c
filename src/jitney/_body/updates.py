"""Updates in place that a body makes of its arguments: they are lost, which is said once.

A body runs while it is traced, on containers that are made for the trace; later calls run no Python
at all. So `state["count"] = ...` and `history.append(...)` reach no caller. JAX says nothing of it.
Here what the body was given is compared with what it leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from .._errors import Where, few, sentence
from .._jax.trees import Path, tree_flatten_with_path
from .._signature.binding import Binder
from .._signature.plain_objects import state
from .._signature.static_values import Unkeyed, static_key
from .._view.layout import name_of
from .._view.static_fields import loose_parts

_flatten: Any = tree_flatten_with_path
Update = tuple[str, bool, bool]
"""A path in the arguments, whether something was there, and whether something is."""


class Given:
    """What a body is given: its leaves, what the static ones hold, and the static fields of
    modules.

    Args:
        binder: Of its arguments, which gives their names.
        values: One for each parameter, on which the body works.
        originals: By `id`, of what static values in them are copies; one that is no copy is itself.
    """

    def __init__(self, binder: Binder, values: tuple[Any, ...], originals: Mapping[int, Any]):
        self._binder = binder
        self._values = values
        self._originals = originals
        self._leaves, self._keys = self._held()
        self._fields = self._states_of_fields()

    def updates(self) -> Iterator[Update]:
        """What the body has changed in place since."""
        leaves, keys = self._held()
        for path in dict.fromkeys((*self._leaves, *leaves)):
            was, now = path in self._leaves, path in leaves
            same = (
                was
                and now
                and leaves[path] is self._leaves[path]
                and keys.get(path) == self._keys.get(path)
            )
            if not same:
                yield name_of(self._binder, path)[1], was, now
        if self._states_of_fields() != self._fields:
            yield "a static field", True, True

    def _held(self) -> tuple[dict[Path, Any], dict[Path, Any]]:
        """The leaves by their paths, of which each static value is one; and the keys of those that
        are copies.
        """

        def is_static(part: Any) -> bool:
            return id(part) in self._originals

        leaves = dict(_flatten(self._values, is_leaf=is_static)[0])
        return leaves, {
            path: _key(leaf)
            for path, leaf in leaves.items()
            if self._originals.get(id(leaf), leaf) is not leaf
        }

    def _states_of_fields(self) -> list[Any]:
        """What the static fields of modules hold."""
        return [
            state(part)
            for part in loose_parts(
                [value for value in self._values if id(value) not in self._originals]
            )
        ]


def _key(leaf: Any) -> Hashable:
    try:
        return static_key(leaf)
    except Unkeyed:  # it holds something now that has no key
        return object()


def in_words(update: Update) -> str:
    """One of them."""
    path, was, now = update
    return f"{path!r} {'has changed' if was and now else 'is new' if now else 'is gone'}"


def told(where: Where, updates: Sequence[str]) -> str:
    """The warning."""
    return sentence(
        where,
        f"the body updates its arguments in place: {few(updates)}.",
        "It runs while it is traced, on containers of its own, and not at all in later calls: what"
        " it writes there reaches no caller.",
        "return what has changed, and go on with that (of Flax NNX, `nnx.split` and `nnx.merge`); "
        "or update a copy, as `batch = dict(batch)`, if nobody needs it.",
    )
