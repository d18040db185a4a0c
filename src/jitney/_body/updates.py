"""Mutations that a body makes in its arguments: they are lost, and one warning says so.

A body runs while it is traced, on containers that are built for the trace; later calls run no
Python at all. So `state["count"] = ...` and `history.append(...)` reach no caller, and JAX is
silent about it. This file compares the arguments before and after the body ran.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from .._errors import Where, format_error, shortlist
from .._jax.trees import Path, tree_flatten_with_path
from .._signature.binding import Binder
from .._values.mutable_objects import state
from .._values.static_values import Unkeyed, static_key
from .._view.layout import name_of
from .._view.static_fields import loose_parts

_flatten: Callable[..., tuple[Iterable[tuple[Path, object]], object]] = tree_flatten_with_path
Update = tuple[str, bool, bool]
"""Path in the arguments, whether a value was there, and whether a value is there now."""


class ArgumentSnapshot:
    """Arguments of a body, as they were before it ran: the leaves, the contents of static values,
    and the static fields of modules.

    Args:
        binder: Binder of the arguments, which gives their names.
        values: One for each parameter, on which the body works.
        originals: By `id`, the originals of static values that were copied; others map to
            themselves.
    """

    def __init__(
        self,
        binder: Binder,
        values: tuple[object, ...],
        originals: Mapping[int, object],
    ):
        self._binder = binder
        self._values = values
        self._originals = originals
        self._leaves, self._keys = self._state()
        self._fields = self._states_of_fields()

    def updates(self) -> Iterator[Update]:
        """Yield what the body has changed in place since."""
        leaves, keys = self._state()
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

    def _state(self) -> tuple[dict[Path, object], dict[Path, Hashable]]:
        """Return the leaves by path, each static value as one leaf, and the keys of those that are
        copies.
        """

        def is_static(part: object) -> bool:
            return id(part) in self._originals

        leaves = dict(_flatten(self._values, is_leaf=is_static)[0])
        keys: dict[Path, Hashable] = {}
        for path, leaf in leaves.items():
            if self._originals.get(id(leaf), leaf) is not leaf:
                keys[path] = _key(leaf)
        return leaves, keys

    def _states_of_fields(self) -> list[object]:
        """Return the contents of the static fields of modules."""
        values = [value for value in self._values if id(value) not in self._originals]
        return [state(part) for part in loose_parts(values)]


def _key(leaf: object) -> Hashable:
    try:
        return static_key(leaf)
    except Unkeyed:
        # The value now holds something that has no key, so it differs from any other.
        return object()


def in_words(update: Update) -> str:
    """Return the text of one update."""
    path, was, now = update
    if was and now:
        return f"{path!r} has changed"
    return f"{path!r} is new" if now else f"{path!r} is gone"


def lost_updates_message(where: Where, updates: Sequence[str]) -> str:
    """Return the warning."""
    return format_error(
        where,
        f"the body updates its arguments in place: {shortlist(updates)}.",
        "It runs while it is traced, on containers of its own, and not at all in later calls: what"
        " it writes there reaches no caller.",
        "return what has changed, and go on with that (of Flax NNX, `nnx.split` and `nnx.merge`); "
        "or update a copy, as `batch = dict(batch)`, if nobody needs it.",
    )
