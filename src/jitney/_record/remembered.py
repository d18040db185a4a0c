"""Functions of the user's that remember their results (`functools.cache`, `lru_cache`), as a trace
reads them.

A trace in which nothing is remembered computes what it needs, and that code is seen. What was
remembered before may be of other globals than now, or changed since: it is state, and in the key by
content. Unless it is known to be what would be computed, as a trace that was watched has computed
it when the function read what it reads now. Then it is as if nothing were remembered: a process
that has traced one program looks the next one up under the key of a process that has traced none.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from .._jax.trees import attribute, is_a, space_of, type_of
from .unsure import Unsure

REMEMBERING: Any = functools._lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]
Known = tuple[str, str, str]
"""By their digests: a function with what it reads, what it was called with, what it gave."""
_KNOWN: WeakKeyDictionary[Any, set[Known]] = WeakKeyDictionary()
# what Python tells behind the results: the table, the function, a mark, two types, the attributes
_BEHIND = 6


@dataclass(frozen=True)
class Memory:
    """What such a function is made of.

    Args:
        fn: What it calls.
        entries: What it was called with, as one object, and what that gave.
    """

    fn: Any
    entries: Sequence[tuple[Any, Any]]

    @classmethod
    def of(cls, remembering: Any) -> Memory:
        """Of one of them. Nothing public tells what is remembered, but for what the garbage
        collector is told: the type, then of each bounded entry its key, its result and its type,
        then the table and what `_BEHIND` lists. Tried on Python 3.11.7 and 3.13.0.

        Raises:
            Unsure: It is told otherwise.
        """
        size, attributes = remembering.cache_info().currsize, space_of(remembering)
        told: list[Any] = gc.get_referents(remembering)
        no_two: list[Any] = [None, None]
        table, fn = told[-_BEHIND : -_BEHIND + 2] if len(told) > _BEHIND else no_two
        links = told[1:-_BEHIND]
        is_known = (
            type_of(table) is dict
            and len(table) == size
            and told[-1] is attributes
            and fn is attributes.get("__wrapped__")
        )
        if not is_known or len(links) not in (0, 3 * size):
            raise Unsure(
                f"`{name_of(remembering)}` remembers what it returned, and nobody sees what"
            )
        if not links:
            return cls(fn, list(table.items()))
        results = {id(key): result for key, result in zip(links[::3], links[1::3], strict=True)}
        if results.keys() != set(map(id, table)):
            raise Unsure(
                f"`{name_of(remembering)}` remembers what it returned, and nobody sees what"
            )
        # in the order of the table, which a call that finds one leaves
        return cls(fn, [(key, results[id(key)]) for key in table])


def name_of(remembering: Any) -> str:
    """For messages."""
    return str(attribute(remembering, "__name__", "a function"))


def options_of(remembering: Any) -> str:
    """How many results it remembers, and whether it tells the types of its arguments apart."""
    return repr(sorted(remembering.cache_parameters().items()))


class Traced:
    """What functions remember that a trace has computed, and what they did before.

    Args:
        remembering: The functions that the trace may call.
        digest: Of a value, and of what it reads.
    """

    def __init__(self, remembering: Sequence[Any], digest: Callable[[Any], str]):
        self._remembering = remembering
        self._digest = digest
        self._before = {id(one): list(Memory.of(one).entries) for one in remembering}
        self.codes = [
            one.__wrapped__.__code__
            for one in remembering
            if type_of(one.__wrapped__) is types.FunctionType
        ]
        """Those whose results are to be noted."""
        self._returned: dict[int, tuple[Any, str | None]] = {}

    def returned(self, value: Any) -> None:
        """One of these functions has computed this."""
        try:
            digest = self._digest(value)
        except Unsure:
            digest = None
        before = self._returned.get(id(value), (value, digest))
        self._returned[id(value)] = (value, digest if before[1] == digest else None)

    def before(self, remembering: Any, entries: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Without those that the trace has computed."""
        return [
            (key, result) for key, result in entries if not self._is_new(remembering, key, result)
        ]

    def _is_new(self, remembering: Any, key: Any, result: Any) -> bool:
        before = self._before.get(id(remembering))
        return (
            before is not None
            and not any(key is k for k, _ in before)
            and id(result) in self._returned
        )

    def check(self) -> None:
        """Check that what was computed is still what it was then.

        Raises:
            Unsure: It has changed, or nobody can tell.
        """
        for one, key, result in self._new():
            self._digest(key)
            digest = self._returned[id(result)][1]
            if digest is None:
                raise Unsure(f"`{name_of(one)}` remembers what cannot be told by content")
            if digest != self._digest(result):
                raise Unsure(f"what `{name_of(one)}` remembers is changed")

    def remember(self) -> None:
        """From now on it is known that this is what these functions give, as long as they read what
        they do now.
        """
        for one, key, result in self._new():
            _KNOWN.setdefault(one, set()).add(
                (self._digest(one.__wrapped__), self._digest(key), self._digest(result))
            )

    def _new(self) -> Iterator[tuple[Any, Any, Any]]:
        for one in self._remembering:
            yield from (
                (one, key, result)
                for key, result in Memory.of(one).entries
                if self._is_new(one, key, result)
            )


def is_as_computed(
    remembering: Any, entries: Sequence[tuple[Any, Any]], digest: Callable[[Any], str]
) -> bool:
    """Whether all of this that is remembered is what would be computed now."""
    known = _KNOWN.get(remembering)
    if not entries or known is None:
        return not entries
    try:
        fn = digest(remembering.__wrapped__)
        return all((fn, digest(key), digest(result)) in known for key, result in entries)
    except Unsure:
        return False


def attributes_of(remembering: Any) -> list[tuple[str, Any]]:
    """What somebody has set on it."""
    return [
        (name, part)
        for name, part in sorted(space_of(remembering).items())
        if name not in _OF_PYTHON
    ]


_OF_PYTHON = (
    "cache_parameters",
    "__wrapped__",
    "__doc__",
    "__annotations__",
    "__type_params__",
    "__annotate__",
)


def is_remembering(value: Any) -> bool:
    """Whether it is such a function, exactly."""
    return is_a(value, REMEMBERING) and type_of(value) is REMEMBERING
