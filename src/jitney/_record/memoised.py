"""Memoised functions of the user (`functools.cache`, `lru_cache`), as a trace reads them.

With an empty cache a trace computes each result, and that code is watched. An entry from before may
depend on globals that have changed since, so it is state, and its content enters the key. An entry
does not enter the key if it is known to be the result that would be computed now: a watched trace
computed it, and the function still reads what it read then. So a process that has traced one
program looks up the next one under the same key as a process that has traced none.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

from .._jax.trees import attribute
from .unsure import NotDeterministic

REMEMBERING: type = functools._lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]
Known = tuple[str, str, str]
"""Digests of a function with its reads, of the arguments of a call, and of its result."""
_KNOWN: WeakKeyDictionary[Memoised, set[Known]] = WeakKeyDictionary()
# number of referents after the entries: the table, the function, a sentinel, two types, `__dict__`
_BEHIND = 6


class Memoised(Protocol):
    """Interface of an `lru_cache` wrapper."""

    @property
    def __wrapped__(self) -> Callable[..., object]:
        """The function."""
        ...

    def cache_info(self) -> CacheInfo:
        """Return counts of the cache."""
        ...

    def cache_parameters(self) -> Mapping[str, object]:
        """Return the options of the cache."""
        ...


class CacheInfo(Protocol):
    """Interface of the counts of a cache."""

    @property
    def currsize(self) -> int:
        """The number of entries."""
        ...


@dataclass(frozen=True)
class LruCacheContents:
    """The function and the cache entries of an `lru_cache` wrapper.

    Args:
        fn: The function that it wraps.
        entries: Each call's cache key, as one object, and its result.
    """

    fn: Callable[..., object]
    entries: Sequence[tuple[object, object]]

    @classmethod
    def of(cls, remembering: Memoised) -> LruCacheContents:
        """Read the entries of a wrapper from `gc.get_referents`, since nothing public shows them.

        The referents are the type, then the key, the result and the type of each entry of a bounded
        cache, then the table and the others that `_BEHIND` counts. Tried on Python 3.11.7 and
        3.13.0.

        Raises:
            NotDeterministic: The referents have another form.
        """
        size, attributes = remembering.cache_info().currsize, vars(remembering)
        referents = gc.get_referents(remembering)
        no_two: list[Any] = [None, None]
        is_long = len(referents) > _BEHIND
        table, fn = referents[-_BEHIND : -_BEHIND + 2] if is_long else no_two
        links = referents[1:-_BEHIND]
        is_known = (
            type(table) is dict
            and len(table) == size
            and referents[-1] is attributes
            and fn is attributes.get("__wrapped__")
        )
        if not is_known or len(links) not in (0, 3 * size):
            raise NotDeterministic(
                f"`{name_of(remembering)}` remembers its results, which cannot be read"
            )

        # The table of an unbounded cache maps keys to results; that of a bounded one, keys to
        # links.
        if not links:
            return cls(fn, list(table.items()))
        pairs = zip(links[::3], links[1::3], strict=True)
        results = {id(key): result for key, result in pairs}
        if results.keys() != set(map(id, table)):
            raise NotDeterministic(
                f"`{name_of(remembering)}` remembers its results, which cannot be read"
            )
        # in the order of the table, which a cache hit leaves unchanged
        return cls(fn, [(key, results[id(key)]) for key in table])


def name_of(remembering: object) -> str:
    """Name of a memoised function, for messages."""
    return str(attribute(remembering, "__name__", "a function"))


def options_of(remembering: Memoised) -> str:
    """Options of the cache as text: its size, and whether it distinguishes argument types."""
    return repr(sorted(remembering.cache_parameters().items()))


class TracedCacheEntries:
    """Cache entries that a watched trace adds to memoised functions, and the entries from before
    it.

    Args:
        remembering: The memoised functions that the trace may call.
        digest: Digest of a value and of everything that it reads.
    """

    def __init__(
        self,
        remembering: Sequence[Any],
        digest: Callable[[object], str],
    ):
        self._remembering: Sequence[Memoised] = remembering
        self._digest = digest
        self._before = {id(one): list(LruCacheContents.of(one).entries) for one in remembering}
        self.codes = [
            one.__wrapped__.__code__
            for one in remembering
            if type(one.__wrapped__) is types.FunctionType
        ]
        """Code objects of the memoised functions, whose results are noted."""
        self._returned: dict[int, tuple[object, str | None]] = {}

    def note_result(self, value: object) -> None:
        """Note a result that a memoised function has computed."""
        try:
            digest = self._digest(value)
        except NotDeterministic:
            digest = None

        # An object that was returned twice with different contents is not known by content.
        before = self._returned.get(id(value), (value, digest))
        self._returned[id(value)] = (value, digest if before[1] == digest else None)

    def earlier_entries(
        self,
        remembering: object,
        entries: Sequence[tuple[object, object]],
    ) -> list[tuple[object, object]]:
        """Return the entries without those that the trace has added."""
        return [
            (key, result) for key, result in entries if not self._is_new(remembering, key, result)
        ]

    def _is_new(
        self,
        remembering: object,
        key: object,
        result: object,
    ) -> bool:
        before = self._before.get(id(remembering))
        return (
            before is not None
            and not any(key is k for k, _ in before)
            and id(result) in self._returned
        )

    def check(self) -> None:
        """Check that the results are still what they were when they were computed.

        Raises:
            NotDeterministic: A result has changed, or cannot be compared by content.
        """
        for one, key, result in self._new():
            self._digest(key)
            digest = self._returned[id(result)][1]
            if digest is None:
                raise NotDeterministic(
                    f"`{name_of(one)}` memoises values that cannot be identified by content"
                )
            if digest != self._digest(result):
                raise NotDeterministic(f"what `{name_of(one)}` remembers is changed")

    def remember(self) -> None:
        """Record the new entries as the results of these functions, for as long as their reads are
        the same.
        """
        for one, key, result in self._new():
            known = _KNOWN.setdefault(one, set())
            fn = self._digest(one.__wrapped__)
            known.add((fn, self._digest(key), self._digest(result)))

    def _new(self) -> Iterator[tuple[Memoised, object, object]]:
        for one in self._remembering:
            yield from (
                (one, key, result)
                for key, result in LruCacheContents.of(one).entries
                if self._is_new(one, key, result)
            )


def is_as_computed(
    remembering: Memoised,
    entries: Sequence[tuple[object, object]],
    digest: Callable[[object], str],
) -> bool:
    """Return whether all given entries are known to be what the function would compute now."""
    known = _KNOWN.get(remembering)
    if not entries or known is None:
        return not entries
    try:
        fn = digest(remembering.__wrapped__)
        return all((fn, digest(key), digest(result)) in known for key, result in entries)
    except NotDeterministic:
        return False


def attributes_of(remembering: object) -> list[tuple[str, object]]:
    """Return the attributes that the user has set on a memoised function."""
    return [
        (name, part) for name, part in sorted(vars(remembering).items()) if name not in _OF_PYTHON
    ]


_OF_PYTHON = (
    "cache_parameters",
    "__wrapped__",
    "__doc__",
    "__annotations__",
    "__type_params__",
    "__annotate__",
)


def is_lru_cache(value: object) -> TypeGuard[Memoised]:
    """Return whether a value is an `lru_cache` wrapper, and not of a subclass."""
    return isinstance(value, REMEMBERING) and type(value) is REMEMBERING
