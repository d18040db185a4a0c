"""Trace of a function whose static values are objects: what its body gets when it reads them.

    self.tolerance     the value, and the read is noted
    self.history       a list: a copy, which stays as it is when the caller appends
    self.count = 3     set by the body, then read: scratch space of its own, not noted
    self.calls += 1    read, then set: it is not as recorded, so the next call is traced again

What the body changes in place, and no later call repeats, is reported by `updates`.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from .._owners import owner_of_class
from .attributes import attributes_of
from .copies import Copies, snapshot
from .kinds import referent
from .mutable_objects import is_immutable, state
from .read_hooks import ABSENT, WatchedClasses, suspend_readers
from .recorded_reads import GONE, dict_of, place_of, raw_attribute, strong_value
from .static_values import Unkeyed, static_key

if TYPE_CHECKING:
    from .attribute_reads import AttributeReads

# Reads of these names read the object as a whole: `copy` and `pickle` use them.
_WHOLE = (
    "__dict__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
)


class ReadTrace:
    """Reads of one trace, and the values that its body got for attributes that others can
    change.
    """

    def __init__(self, reads: AttributeReads, watch: WatchedClasses):
        self.number = reads.number
        self._reads = reads
        self._watch = watch
        # The objects, kept alive since `id` is their key below.
        self._alive: list[object] = []
        # Attributes of the objects when they were first seen; any other value was set by the body.
        self._began: dict[int, dict[str, object]] = {}
        self._copies = Copies()
        # Value of an attribute and the value that the body got for it.
        self._given: dict[tuple[int, str], tuple[object, object]] = {}
        # The subset of these of which the body got a copy.
        self._copied: dict[tuple[int, str], tuple[object, object]] = {}
        # Attributes that the body set and then read: scratch space of its own.
        self._scratch: set[tuple[int, str]] = set()

        for held, _ in [*reads.attributes.values()]:
            value = strong_value(held)
            if value is not GONE and not isinstance(value, type):
                self._add(value)

    def _add(self, value: object) -> None:
        if id(value) not in self._began:
            self._alive.append(value)
            self._began[id(value)] = {**attributes_of(value)}
            self._reads.add(value)
            self._watch.add(value)

    def read(self, value: object, name: str, part: object) -> object:
        """Value that the body gets for an attribute: the attribute itself, or a copy that no caller
        can change.
        """
        began = self._began.get(id(value))
        if began is None:
            return part
        if name in _WHOLE:
            # Slots are not in the `__dict__`.
            for own in attributes_of(value).keys() - dict_of(value).keys():
                self._reads.note(value, own, raw_attribute(value, own))
            self._reads.note(value, "__dict__", dict_of(value))
            return part
        raw = raw_attribute(value, name)
        before = self._given.get((id(value), name))

        # The same copy is returned at each read, so that identity holds inside the body.
        if before is not None and before[0] is raw:
            return before[1] if raw is part else part

        # The body has set this attribute itself.
        if raw is not began.get(name, raw) or (name not in began and name in attributes_of(value)):
            self._scratch.add((id(value), name))
            return part
        self._reads.refuse_unreadable(value, name, raw)
        given = self._note_read(value, name, raw, part)
        self._given[id(value), name] = raw, given
        return given

    def updates(self, names: Mapping[int, str]) -> Iterator[tuple[str, bool, bool]]:
        """Changes in place that the trace made and no later call will repeat: attributes that the
        body set, and containers that it read and changed.

        An attribute that the body read and then set is not among them: it differs from the recorded
        value, so the next call is traced again. Nor is an attribute that it set and then read, its
        own scratch space.

        Args:
            names: Names of the static values, by `id`.

        Returns:
            The path of each change, whether the attribute existed before, and whether it exists
            now.
        """
        objects = {id(value): value for value in self._alive}
        paths = {key: names.get(key) or type(value).__name__ for key, value in objects.items()}

        with suspend_readers():
            for key, began in [*self._began.items()]:
                value = objects[key]
                noted = self._reads.attributes[place_of(value)][1]
                now = attributes_of(value)
                for name in dict.fromkeys((*began, *now)):
                    is_changed = began.get(name, ABSENT) is not now.get(name, ABSENT)
                    if (
                        is_changed
                        and name not in noted
                        and (key, name) not in self._scratch
                        and not _is_cached(value, name)
                    ):
                        yield f"{paths[key]}.{name}", name in began, name in now
            for (key, name), (raw, copied) in [*self._copied.items()]:
                if copied is not raw and _content(copied) != _content(raw):
                    yield f"{paths[key]}.{name}", True, True

    def _note_read(
        self,
        value: object,
        name: str,
        raw: object,
        part: object,
    ) -> object:
        referred = referent(raw)
        nested = (
            raw is part
            and referred is not None
            and owner_of_class(type(referred)) != "library"
            and self._reads.can_watch(referred)
        )
        self._reads.note(value, name, raw, nested=nested)
        if nested:
            self._add(referred)
            return part
        if raw is not part or is_immutable(part):
            return part
        copied = snapshot(part, self._copies)
        self._copied[id(value), name] = part, copied
        return copied


def _content(part: object) -> Hashable:
    """Contents of a container. Objects of plain classes count by identity, since they may contain
    the container.
    """
    try:
        return static_key(part)
    except Unkeyed:
        return state(part)


def _is_cached(value: object, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), functools.cached_property)
