"""Shared state of equal functions with equal options: layouts, entries, and all that `FunctionInfo`
is.

A call goes `Program.__call__` -> `CompiledFunction.find` -> `Specialization.run`. `find` has three
ways to an entry, the fastest first: a generated function for this pattern of types (`direct`), a
known `Layout`, and a new one.
"""

from __future__ import annotations

import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from .._body.call_key import trace_key
from .._body.function import can_be_weak
from .._body.known_axes import demand_known_axes
from .._contract.contract import UNRESOLVED_FIX, UNRESOLVED_RULE
from .._diagnosis.counters import LISTENER
from .._diagnosis.static_variety import Variety
from .._errors import AnnotationWarning, ContractError, format_error, name_fix, shortlist
from .._host.switches import OF_PROGRAMS, SETTINGS, Settings
from .._jax.trees import tree_flatten, tree_unflatten
from .._jax.typed import Array
from .._owners import users_level
from .._signature.annotations import missing_in
from .._signature.hints import AnyHint, StaticHint
from .._signature.options import Options, fail
from .._stages.derivatives.derive import Derived
from .._values.attribute_reads import Statics
from .._values.read_hooks import suspend_readers
from .._values.recent_statics import RecentStatics
from .._values.static_values import Opaque, Unkeyed, static_key_error
from .._values.strict_keys import strict_key
from .._view.call_codegen import Argument, Taker, arrays_taker, no_call, taker
from .._view.fitting import demand_whole_numbers_fit
from .._view.flatten import Flattener, constants_in
from .._view.layout import MAX_ENTRIES, Layout, wrap_statics
from .._view.taken_apart import take_apart
from .advice import Advice
from .compiled_calls import SpecializedFunction
from .entry import Specialization
from .held_numbers import Held, attempt, hold, numbers_to_hold
from .rows.lengths import LENGTHS, takes_lengths
from .rows.row_kinds import cuts_rows, has_rows, may_be_rows, may_have_rows

if TYPE_CHECKING:
    from .rows.row_calls import RowCall, RowCalls

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


class CompiledFunction(SpecializedFunction[Specialization]):
    """Compiled side of a function: finds the entry of a call."""

    def __init__(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ):
        super().__init__(fn, options, namespace)
        self.layouts: dict[Hashable, Layout] = {}
        self.entries: dict[Hashable, Specialization] = {}

        # Empty for a pattern whose calls always have to be flattened.
        self.direct: dict[Pattern, Direct] = {}
        # The entry and taker of the latest call that has them; the hot path tries these first.
        self.usual: tuple[Any, Taker] = _NOBODY
        # Settings, options, and the options under these settings.
        self._settled: tuple[Settings, Options, Options] | None = None
        self.lock = threading.RLock()
        # How many calls of a pattern had to be flattened.
        self.tried: dict[Pattern, int] = {}
        # Set once a module has been among the arguments.
        self.flattener: Flattener | None = None
        # Lists of rows are looked for where there is an axis for them, and sizes are padded.
        self.may_have_rows = may_have_rows(options)
        self.row_calls: RowCalls | None = None

        self._variety = Variety(self.where, self.positions)
        names = [parameter.name for parameter in self.binder.parameters]
        self._static_at = {
            names.index(name): RecentStatics() for name in options.static if name in names
        }
        self._static_rest = {name: RecentStatics() for name in options.static if name not in names}
        self._kinds = [parameter.kind for parameter in self.binder.parameters]
        self.tails = {} if options.static else self.binder.tails
        self.counters.advise = Advice(self)
        _check_names(self)
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
        same.layouts, same.entries, same.direct, same.tried = {}, {}, {}, {}
        same.usual = _NOBODY
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

    def _statics(
        self,
        layout: Layout,
        leaves: Sequence[object],
        body: Callable[..., object] | None,
    ) -> Statics:
        return Statics.of(layout.statics(leaves), layout.loose, body, self.where)

    def forget_takers(self) -> None:
        """Have each call looked up by its layout: it may have another entry now."""
        with self.lock:
            self.direct.clear()
            self.tried.clear()
            self.usual = _NOBODY

    def entry_of(
        self,
        layout: Layout,
        leaves: Sequence[object],
    ) -> Specialization:
        """Return the entry of a call: the one that its layout knows, if the objects among the
        static values are unchanged, else one that is looked up or created.
        """
        key = layout.key(leaves)
        try:
            entry = layout.entries.get(key)
        except (TypeError, ValueError):
            layout.check_hashes(leaves)
            raise
        if entry is None:
            SETTINGS.read_environment(self.where)
        if entry is None or not entry.holds():
            entry = layout.remember(key, self.entry(layout, leaves))
        return entry

    def layout(
        self,
        key: tuple[Hashable, ...],
        values: tuple[object, ...],
    ) -> Layout:
        """Return the layout of a call, created if this is the first of its kind.

        It is stored under the key alone, which is what warm calls look up, only if no call of
        another kind can have an equal key.
        """
        # Differences that `==` of keys ignores, such as 1 and 1.0, are added to the key.
        strict = strict_key(key)
        with self.lock:
            # Names that the annotations use may have been defined since the decoration.
            if self.contract.unresolved:
                self.resolve()

            place = (key, strict) if strict else key
            layout = self.layouts.get(place)
            if layout is None:
                if len(self.layouts) >= MAX_ENTRIES:
                    self._drop_layouts()
                if self.flattener is None and any(
                    isinstance(value, eqx.Module) for value in values
                ):
                    self.flattener = Flattener()
                layout = self.layouts[place] = Layout(
                    self.binder,
                    self.contract,
                    values,
                    self.options.donate,
                    constants_in(key),
                )
            return layout

    def entry(
        self,
        layout: Layout,
        leaves: Sequence[object],
        options: Options | None = None,
    ) -> Specialization:
        """Return the entry of a call, created if this is the first of its kind, under the settings
        of now; or under those of `options`.
        """
        if options is None:
            options = self._settled_options()
        under = tuple(getattr(options, name) for name in OF_PROGRAMS)
        is_nested = layout.nested and options.depends_on_nesting
        key = (layout.form, is_nested, under, layout.key(leaves))
        with self.lock, suspend_readers():
            # Entries of one key form a list, one for each state of the mutable objects, the newest
            # first.
            entry = known = self.entries.get(key)
            while entry is not None and not entry.holds():
                entry = entry.other
            if entry is None:
                layout.refuse_unreadable(leaves)
                wider = None if layout.wider is None else self.entry_of(layout.wider, leaves)
                if known is None and len(self.entries) >= MAX_ENTRIES:
                    oldest = [*self.entries][0]  # noqa: RUF015 - in one step: garbage may be collected between two
                    self.history.drop(self.entries.pop(oldest).key)

                # With `cache="program"` the reads of the body are not watched.
                body = None if self.options.cache == "program" else self.fn()
                statics = self._statics(layout, leaves, body)
                entry = self.entries[key] = Specialization(
                    self, layout, statics, (layout.form, under, key[-1]), options, wider, key
                )

                # Drop the entry when one of its objects is gone.
                for stand_in in statics.identities:
                    stand_in.tell(entry)
                entry.follows(known)

                if layout.static:
                    self._variety.count(layout, leaves, self.counters.total)
            return entry

    def _settled_options(self) -> Options:
        """Return the options under the settings of now, which are made anew only if one changed."""
        made = self._settled
        if made is None or made[0] is not SETTINGS.now or made[1] is not self.options:
            made = self._settled = (SETTINGS.now, self.options, self.options.settled())
        return made[2]

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
        if layout.nested or not layout.called_again:
            layout.called_again = True
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

    def drop(self, entry: Specialization) -> None:
        """Drop an entry whose object is gone, and all others of its key.

        Runs during garbage collection, so it must not wait for a lock.
        """
        waiting = [*self.layouts.values()]
        while waiting:
            layout = waiting.pop()
            layout.entries.pop(entry.place[-1], None)
            waiting += layout.holding.values()
        self.entries.pop(entry.place, None)

    def forget(self) -> None:
        """Drop every layout and entry, and with them JAX's functions; also the recent static values
        and the history of calls.
        """
        with self.lock:
            self._drop_layouts()
            self.entries.clear()
            self.row_calls = None
            self.flattener = None if self.flattener is None else Flattener()
            for known in (*self._static_at.values(), *self._static_rest.values()):
                known.forget()
            self.history.forget()

    def reset_decision(self) -> None:
        """Look for the entry of each call anew: a setting has changed, which is part of its key."""
        self._drop_layouts()
        self.row_calls = None

    def _drop_layouts(self) -> None:
        self.layouts.clear()
        self.forget_takers()

    def resolve(self) -> None:
        """Read annotations that use names which were undefined at decoration; warn about names that
        are still undefined.
        """
        namespace = self.namespace
        if not self.reread_annotations():
            return
        _check_names(self)
        if self.contract.unresolved:
            warnings.warn(
                _resolution_warning(self, namespace), AnnotationWarning, stacklevel=users_level()
            )


class Registry:
    """Cores by function and options, so that decorating equal functions twice compiles once. The
    registry keeps no function alive.
    """

    def __init__(self) -> None:
        self._cores: weakref.WeakKeyDictionary[
            Callable[..., object], dict[Options, CompiledFunction]
        ] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def core(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ) -> CompiledFunction:
        if not can_be_weak(fn):
            return CompiledFunction(fn, options, namespace)
        with self._lock:
            cores = self._cores.setdefault(fn, {})
        core = cores.get(options) or CompiledFunction(fn, options, namespace)
        return cores.setdefault(options, core).adopt(fn)

    def clear(self) -> None:
        """Forget all cores: equal functions decorated from now on get new ones."""
        with self._lock:
            self._cores.clear()

    def cores(self) -> list[CompiledFunction]:
        """Cores of functions that are still referenced."""
        with self._lock:
            return [core for each in list(self._cores.values()) for core in list(each.values())]


REGISTRY = Registry()
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_array(value: object) -> bool:
    return type(value) is np.ndarray or (
        isinstance(value, jax.Array) and not isinstance(value, Tracer)
    )


def _resolution_warning(core: CompiledFunction, namespace: Mapping[str, object] | None) -> str:
    """Return the warning about annotations that cannot be used."""
    fn = core.fn()
    missing = missing_in(fn.fn if isinstance(fn, Derived) else fn, namespace)
    of = {each.of: "the result" if each.of == "return" else repr(each.of) for each in missing}
    parts = [f"the annotation `{each.text}` of {of[each.of]} ({each.error})" for each in missing]
    near = [f"did you mean `{each.near}`?" for each in missing if each.near]
    options = [name for name in ("pad", "chunk", "vmap") if getattr(core.options, name)]
    without = f" Here `{'` and `'.join(options)}` may do less than was asked." if options else ""
    return format_error(
        core.where,
        f"{shortlist(parts)} cannot be resolved.",
        UNRESOLVED_RULE + without,
        " ".join([*dict.fromkeys(near), UNRESOLVED_FIX]),
    )


def _check_names(core: CompiledFunction) -> None:
    """Check that the options name parameters that exist, and a new axis for `vmap`: both are known
    at decoration.
    """
    parameters = {parameter.name for parameter in core.binder.parameters}
    # `**kwargs` may take any name.
    open_ended = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in core.binder.parameters
    )
    mapped = tuple(name for axis in core.options.vmap for name in axis.arguments)
    for option, names in (
        ("static", core.options.static),
        ("donate", core.options.donate),
        ("vmap", mapped),
    ):
        for name in names:
            if name not in parameters and not open_ended:
                fail(
                    core.where,
                    f"`{option}` names {name!r}, which is not a parameter.",
                    f"The parameters are {', '.join(sorted(parameters)) or 'none'}.",
                    name_fix(name, parameters),
                    code="J202",
                )

    demand_known_axes(core)

    # `vmap` adds an axis that the signature must not have.
    for axis in core.options.vmap:
        if axis.name in core.axes:
            owner = "the signature has"
            if axis.name not in core.contract.axes:
                owner = "the fields of its classes have"
            fail(
                core.where,
                f"vmap={axis.name!r} names an axis that {owner} already.",
                "An annotation says what the body sees; `vmap` adds an axis that it does not name.",
                f"drop {axis.name!r} from the annotations of a function of one element, or choose"
                " another name.",
                code="J203",
            )
    levels = core.options.vmap
    if len(levels) == 1 and levels[0].dims is None:
        _check_rank_rule(core)


def _check_rank_rule(core: CompiledFunction) -> None:
    """Check that an annotation has a rank, which the rank rule of `vmap` needs."""
    if core.contract.unresolved or any(
        not isinstance(p.hint, (AnyHint, StaticHint)) for p in core.contract.parameters
    ):
        return
    axis = core.options.vmap[0].name
    fail(
        core.where,
        f"vmap={axis!r} has no annotation to go by.",
        "An array is mapped if it has one axis more than its annotation.",
        f'annotate the arrays (x: Float[Array, "n"]), or say it outright: vmap={{"{axis}": {{"x":'
        " 0}}.",
        code="J203",
    )
