"""Shared state of equal functions with equal options: layouts, entries, and all that `FunctionInfo`
is.

A call goes `Program.__call__` -> `CompiledFunction.find` -> `Specialization.run`. `find` has three
ways to an entry, the fastest first: a generated function for this pattern of types (`direct`), a
known `Layout`, and a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._body.call_key import trace_key
from .._body.decoration import check_names
from .._diagnosis.counters.listener import LISTENER
from .._errors import ContractError
from .._host.switches import SETTINGS
from .._jax.trees import tree_flatten
from .._jax.typed import Array
from .._signature.options import Options
from .._values.recent_statics import RecentStatics
from .._values.static_values import Unkeyed, static_key_error
from .._view.fitting import demand_whole_numbers_fit
from .._view.layout import Layout, wrap_statics
from .._view.taken_apart import take_apart
from .advice.advice import Advice
from .entry import Specialization
from .rows.lengths import LENGTHS, takes_lengths
from .rows.row_kinds import cuts_rows, has_rows, may_be_rows, may_have_rows
from .tables.entries import SpecializationTable
from .tables.takers import call_pattern
from .tracing.held_numbers import Held, attempt, hold, numbers_to_hold

if TYPE_CHECKING:
    from .rows.row_calls import RowCall, RowCalls


class CompiledFunction(SpecializationTable):
    """Compiled side of a function: finds the entry of a call."""

    def __init__(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ):
        super().__init__(fn, options, namespace)
        # Lists of rows are looked for where there is an axis for them, and sizes are padded.
        self.may_have_rows = may_have_rows(options)
        self.row_calls: RowCalls | None = None

        names = [parameter.name for parameter in self.binder.parameters]
        self._static_at = {
            names.index(name): RecentStatics() for name in options.static if name in names
        }
        self._static_rest = {name: RecentStatics() for name in options.static if name not in names}
        self.tails = {} if options.static else self.binder.tails
        self.counters.advise = Advice(self)
        check_names(self)
        LISTENER.register()
        SETTINGS.add_listener(self)

    def adopt(self, fn: Callable[..., object]) -> CompiledFunction:
        """Serve another function that is equal to the first, and may outlive it."""
        with self.lock:
            self.serve(fn)
        return self

    def of(
        self,
        fn: Callable[..., object],
        options: Options,
    ) -> CompiledFunction:
        """Return the core of another function of the same arguments, whose result may be
        anything.
        """
        same = super().of(fn, options)
        # Nothing is shared here, as a layout knows its entry.
        same.begin_tables()
        same.begin_takers()
        same.row_calls = None
        same.may_have_rows = may_have_rows(options)
        SETTINGS.add_listener(same)
        return same

    def with_options(
        self,
        options: Options,
        fn: Callable[..., object] | None = None,
    ) -> CompiledFunction:
        """Return the core of the same function with other options, or of another one that computes
        the same. It counts as this one, and keeps this function no more alive.
        """
        same = self.of(fn or self.fn(), options)
        if fn is None:
            same.serve_as(self)
        same.contract = self.contract
        same.counters, same.log, same.history = self.counters, self.log, self.history
        return same

    def bind(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> tuple[object, ...]:
        """Return one value per parameter; whole static arguments are wrapped."""
        values = self.binder.bind(args, kwargs)
        if not self.options.static:
            return values
        try:
            return wrap_statics(values, self._static_at, self._static_rest)
        except Unkeyed:
            given = self.binder.values_by_name(values)
            if self._static_rest:
                given |= values[-1]
            raise static_key_error(
                self.where, ((name, given[name]) for name in self.options.static if name in given)
            ) from None

    def find(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> tuple[Specialization, Sequence[Array]]:
        """Return the entry of a call that `usual` does not serve, and its arrays."""
        # Look the call up by the types of its arguments.
        direct = self.direct.get(call_pattern(args, kwargs))
        for known in direct or ():
            arrays = known[1](args, kwargs)
            if arrays is not None:
                self.usual = known
                return known[0], arrays

        # Flatten the call. A positional call skips the binding: the defaults of the rest are known.
        tail = None if kwargs else self.tails.get(len(args))
        lengths = None
        if self.may_have_rows:
            kwargs, lengths = self.without_lengths(kwargs)
        values = self.bind(args, kwargs) if tail is None else args + tail
        if self.may_have_rows and (lengths is not None or has_rows(self, values)):
            call = self.row_call(values, lengths)
            return call, call.arrays
        leaves, key = self._flatten(values)

        # Structure -> layout; static values -> entry.
        layout = self.layouts.get(key)
        if layout is None or layout.may_have_records:
            # Frozen dataclasses with numbers are taken apart.
            values = take_apart(values)
            leaves, key = self._flatten(values)
            layout = self.layouts.get(key) or self.layout(key, values)
        entry = layout.only or self.entry_of(layout, leaves)
        depends_on_shapes = False
        if layout.numbers and entry.choices.held_at:
            depends_on_shapes = entry.choices.depends_on_shapes
            layout, entry = self._holding(layout, entry, leaves)
        arrays = layout.pick(leaves)
        with entry.numbers():
            demand_whole_numbers_fit(self.where, entry.paths, arrays)

        if not depends_on_shapes and (direct is None or direct):
            self.remember(
                layout,
                entry,
                (args, kwargs),
                values,
                arrays,
            )
        return entry, arrays

    def _flatten(self, values: tuple[object, ...]) -> tuple[list[object], tuple[Hashable, ...]]:
        """Return the leaves of arguments, and the key of their structure and types."""
        if self.flattener is not None:
            return self.flattener(values)
        leaves, treedef = tree_flatten(values)
        return leaves, (treedef, *map(type, leaves))

    def without_lengths(
        self,
        kwargs: Mapping[str, object],
    ) -> tuple[Mapping[str, object], object]:
        """Return keywords without `lengths`, and that; None if the function takes it itself, or it
        is not given.
        """
        if LENGTHS not in kwargs or takes_lengths(self.contract.parameters):
            return kwargs, None
        rest = {name: value for name, value in kwargs.items() if name != LENGTHS}
        return rest, kwargs[LENGTHS]

    def row_call(
        self,
        values: tuple[object, ...],
        lengths: object = None,
    ) -> Any:
        """Return a call with rows of unlike lengths, a `RowCall`."""
        from .rows.row_calls import RowCalls

        if self.row_calls is None:
            self.row_calls = RowCalls(self)
        return self.row_calls.call(values, lengths)

    def rows_in(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> RowCall | None:
        """Return the call with these arguments, if it has rows of unlike lengths."""
        if not self.may_have_rows:
            return None
        kwargs, lengths = self.without_lengths(kwargs)
        is_plain = lengths is None and not cuts_rows(self.options)
        if is_plain and not any(map(may_be_rows, (*args, *kwargs.values()))):
            return None
        values = self.bind(args, kwargs)
        if is_plain and not has_rows(self, values):
            return None
        return self.row_call(values, lengths)

    def refuse_rows(self, values: tuple[object, ...]) -> None:
        """Check that arguments of a program that is not called have no rows of unlike lengths.

        Raises:
            ContractError: They have.
        """
        if self.may_have_rows and has_rows(self, values):
            raise ContractError(
                self.where,
                "a list of rows is given to a program that is not called.",
                "Rows are mapped by several programs, each of which a call compiles when it meets"
                " the first rows of a bucket.",
                "call it with such rows, or pass one array.",
                code="J221",
            )

    def _holding(
        self,
        layout: Layout,
        entry: Specialization,
        leaves: list[object],
    ) -> tuple[Layout, Specialization]:
        """Return the layout and entry of a call that hold the numbers which its body needs, as far
        as they are known.
        """
        while layout.numbers:
            held = entry.choices.held(layout.pick(leaves))
            if not held:
                break
            layout = hold(layout, held, leaves)
            entry = layout.only or self.entry_of(layout, leaves)
        return layout, entry

    def settled(
        self,
        layout: Layout,
        leaves: list[object],
        options: Options | None = None,
    ) -> tuple[Layout, Specialization]:
        """Return the layout and entry of a call that is not run: its numbers are traced on abstract
        values, where that has not been done yet. The entry is that under the settings of now, or
        under those of `options`.
        """

        def entry_of(layout: Layout, leaves: Sequence[object]) -> Specialization:
            if options is None:
                return self.entry_of(layout, leaves)
            return self.entry(layout, leaves, options)

        entry = entry_of(layout, leaves)
        while layout.numbers:
            arrays = layout.pick(leaves)
            key, choices = trace_key(arrays), entry.choices
            if key in choices.traced_at:
                break
            held = choices.held_at.get(key)
            if held is None:
                error = attempt(entry, arrays)
                if error is not None:
                    held = self._numbers_to_hold(layout, leaves, entry, error)
                if not held:
                    # Without an error all are data; another error is for whoever asks.
                    if error is None:
                        choices.traced_at.add(key)
                    break
                choices.held_at[key] = held
            layout = hold(layout, held, leaves)
            entry = entry_of(layout, leaves)
        return layout, entry

    def hold_numbers(
        self,
        entry: Specialization,
        values: tuple[object, ...],
        arrays: Sequence[Array],
        error: BaseException,
    ) -> bool:
        """Hold the numbers that a call needs, whose trace has failed, and return whether there are
        any.
        """
        layout = entry.layout
        leaves, treedef = tree_flatten(take_apart(values))
        if treedef != layout.treedef:
            return False
        held = self._numbers_to_hold(layout, leaves, entry, error)
        if not held:
            return False
        entry.choices.held_at[trace_key(arrays)] = held
        self.forget_takers()
        return True

    def _numbers_to_hold(
        self,
        layout: Layout,
        leaves: Sequence[object],
        entry: Specialization,
        error: BaseException,
    ) -> Held:
        def trial(other: Layout) -> Specialization:
            statics = self._statics(other, leaves, None)
            return Specialization(self, other, statics, entry.key, entry.options)

        return numbers_to_hold(layout, leaves, entry, error, trial)

    def forget(self) -> None:
        """Drop every layout and entry, and with them JAX's functions; also the recent static values
        and the history of calls.
        """
        with self.lock:
            self.forget_tables()
            self.row_calls = None
            for known in (*self._static_at.values(), *self._static_rest.values()):
                known.forget()
            self.history.forget()

    def reset_decision(self) -> None:
        """Look for the entry of each call anew: a setting has changed, which is part of its key."""
        self.drop_layouts()
        self.row_calls = None
