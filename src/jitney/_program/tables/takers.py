"""Generated functions that take the arrays of a warm call out of its arguments.

A pattern is the types of the arguments of a call. For each one there are a few candidates, each of
which returns None for a call of another entry. A call tries the latest, `usual`, first.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array
from ..._signature.options import Options
from ..._values.static_values import Opaque
from ..._view.call_codegen import Argument, Taker, arrays_taker, no_call, taker
from ..._view.layout import MAX_ENTRIES, Layout
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization

Direct = tuple[tuple[Specialization, Taker], ...]
"""Candidates for the calls of one pattern: an entry, and the function that takes its arrays out of
the arguments. That function returns None for a call of another entry.
"""

Called = tuple[tuple[object, ...], Mapping[str, object]]
Pattern = tuple[Hashable, ...]
"""Types of the arguments of a call, with its keywords."""
_NOBODY: tuple[Any, Taker] = (None, no_call)
# A pattern gets no more generated functions after this many flattened calls.
_TRIES = 32
# A generated function counts as this many further calls: where no call is like an earlier one, they
# are generated in vain.
_WRITTEN = 3
# Generated functions of one pattern, the latest first.
_KEPT = 4


def call_pattern(args: Sequence[object], kwargs: Mapping[str, object]) -> Pattern:
    """Return the key of calls with these argument types and keywords; without keywords, the types
    alone.
    """
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))


class TakenFunction(SpecializedFunction[Specialization], ABC):
    """A function with takers for the patterns of its calls."""

    def __init__(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ):
        super().__init__(fn, options, namespace)
        self.lock = threading.RLock()
        self._kinds = [parameter.kind for parameter in self.binder.parameters]
        self.begin_takers()

    def begin_takers(self) -> None:
        """Have no taker yet."""
        # Empty for a pattern whose calls always have to be flattened.
        self.direct: dict[Pattern, Direct] = {}
        # The entry and taker of the latest call that has them; the hot path tries these first.
        self.usual: tuple[Any, Taker] = _NOBODY
        # How many calls of a pattern had to be flattened.
        self.tried: dict[Pattern, int] = {}

    def forget_takers(self) -> None:
        """Have each call looked up by its layout: it may have another entry now."""
        with self.lock:
            self.direct.clear()
            self.tried.clear()
            self.usual = _NOBODY

    def remember(
        self,
        layout: Layout,
        entry: Specialization,
        called: Called,
        values: tuple[object, ...],
        arrays: Sequence[Array],
    ) -> None:
        """Generate a function that finds the entry of such calls, if the types of their arguments,
        and what that function checks of them, determine it.

        Args:
            layout: Layout of the call.
            entry: Entry of the call.
            called: Its positional arguments, and those by keyword.
            values: One value for each parameter.
            arrays: The arrays that the call was flattened to.
        """
        key = call_pattern(*called)
        with self.lock:
            if len(self.direct) >= MAX_ENTRIES:
                self.direct.clear()
                self.tried.clear()
                self.usual = _NOBODY

            tried = self.tried[key] = self.tried.get(key, 0) + 1
            if tried > _TRIES:
                self.direct.setdefault(key, ())
                return

            direct = self._direct(
                layout,
                entry,
                called,
                values,
                arrays,
            )
            if direct is not None:
                self.direct[key] = (direct + self.direct.get(key, ()))[:_KEPT]
                self.tried[key] += _WRITTEN

    def _direct(
        self,
        layout: Layout,
        entry: Specialization,
        called: Called,
        values: tuple[object, ...],
        arrays: Sequence[Array],
    ) -> Direct | None:
        """Return the candidates for calls like this one: `()` if such calls have to be flattened,
        None if a later call may decide it.
        """
        args, kwargs = called
        if any(
            isinstance(value, Opaque) and kind in _OPEN
            for kind, value in zip(self._kinds, values, strict=True)
        ):
            # `*args` or `**kwargs` that are static as a whole.
            return ()
        placed = self.binder.flat_values(values, len(args), tuple(kwargs))
        order = tuple(place for _, place in placed if place is not None)

        # Plain arrays only: their types are the whole key, and reordering them is all there is to
        # do.
        if len(order) == len(placed) and all(_is_array(value) for value, _ in placed):
            types = (*map(type, args), *map(type, kwargs.values()))
            take = arrays_taker(types, tuple(kwargs), order)
            return ((layout.only, take),)

        # Generating code pays from the second call of a layout on.
        is_called_again = layout.is_called_again()
        if layout.nested or not is_called_again:
            return None
        # The entry depends on what objects hold, which is compared at each call.
        if entry.reads is not None:
            return None

        # Another thread may have changed the arguments since they were flattened: the generated
        # function has to fit this very call.
        leaves, treedef = tree_flatten(values)
        if (
            not layout.has(treedef, leaves, arrays)
            or layout.entries.get(layout.key(leaves)) is not entry
        ):
            return None

        twins = self.binder.flat_values(tree_unflatten(treedef, leaves), len(args), tuple(kwargs))
        arguments = [
            Argument(twin, place, value)
            for (twin, place), (value, _) in zip(twins, placed, strict=True)
        ]
        take = taker(
            args,
            kwargs,
            arguments,
            frozenset(layout.dynamic),
            arrays,
        )
        return take and ((entry, take),)


_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray or (
        isinstance(value, jax.Array) and not isinstance(value, Tracer)
    )
