"""What programs of equal functions with equal options share: layouts, entries, and all that
`Function` is.
"""

from __future__ import annotations

import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from .._body.function import Function, can_be_weak
from .._contract.contract import UNRESOLVED_FIX, UNRESOLVED_RULE
from .._diagnosis.counters import LISTENER
from .._diagnosis.static_variety import Variety
from .._errors import JitneyWarning, few, name_fix, sentence
from .._jax.trees import is_a, tree_flatten, tree_unflatten
from .._owners import users_level
from .._signature.annotations import missing_in
from .._signature.hints import AnyHint, StaticHint
from .._signature.known_values import Known
from .._signature.options import Options, fail
from .._signature.reads import Statics
from .._signature.static_values import Opaque, Unkeyed, unkeyed
from .._signature.told_apart import exactly
from .._signature.watching import unwatched
from .._stages.derive import Derived
from .._view.fitting import demand_whole_numbers_fit
from .._view.flatten import Flattener, constants_in
from .._view.layout import MAX_ENTRIES, Layout, wrap_statics
from .._view.taking import Argument, Taker, arrays_taker, no_call, taker
from .advice import Advice
from .entry import Entry

Direct = tuple[tuple[Entry, Taker], ...]
"""What may run calls of one pattern, and what makes its arrays of the arguments: None of another's
call.
"""

Called = tuple[tuple[Any, ...], Mapping[str, Any]]
_NOBODY: tuple[Any, Taker] = (None, no_call)
# calls of one pattern until it is given up that a later one may be taken apart by a function of its
# own
_TRIES = 32
# more such calls is one for which such a function was written: calls that are like none before need
# it in vain
_WRITTEN = 3
_KEPT = 4  # such functions of one pattern, the latest first


def called_with(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of such calls; of one without keywords, the types alone."""
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))


class Core(Function):
    """The compiled side of a function."""

    def __init__(
        self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None
    ):
        super().__init__(fn, options, namespace)
        self.layouts: dict[Hashable, Layout] = {}
        self.entries: dict[Hashable, Entry] = {}
        self.direct: dict[tuple[Any, ...], Direct] = {}  # none where a call has to be taken apart
        # that of the latest call which has one, asked first
        self.usual: tuple[Any, Taker] = _NOBODY
        self.lock = threading.RLock()
        # how many calls of a pattern had to be taken apart
        self.tried: dict[tuple[Any, ...], int] = {}
        self.flattener: Flattener | None = None  # once a module has been among the arguments
        self._variety = Variety(self.where, self.positions)
        names = [parameter.name for parameter in self.binder.parameters]
        self._static_at = {names.index(name): Known() for name in options.static if name in names}
        self._static_rest = {name: Known() for name in options.static if name not in names}
        self._kinds = [parameter.kind for parameter in self.binder.parameters]
        self.tails = {} if options.static else self.binder.tails
        self.counters.advise = Advice(self)
        _check_names(self)
        LISTENER.register()

    def adopt(self, fn: Callable[..., Any]) -> Core:
        """Serve a function that is equal to the first too, which may be gone before it."""
        with self.lock:
            self.serve(fn)
        return self

    def of(self, fn: Callable[..., Any], options: Options) -> Core:
        """The core of another function of the same arguments, whose result may be anything."""
        same = super().of(fn, options)
        # a layout knows its entry
        same.layouts, same.entries, same.direct, same.tried = {}, {}, {}, {}
        same.usual = _NOBODY
        return same

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value per parameter; whole static arguments are wrapped."""
        values = self.binder.bind(args, kwargs)
        if not self.options.static:
            return values
        try:
            return wrap_statics(values, self._static_at, self._static_rest)
        except Unkeyed:
            given: dict[str, Any] = self.binder.named(values)
            if self._static_rest:
                given |= values[-1]
            raise unkeyed(
                self.where, ((name, given[name]) for name in self.options.static if name in given)
            ) from None

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, Sequence[Any]]:
        """What runs a call, which `usual` does not, and its arrays."""
        direct = self.direct.get(called_with(args, kwargs))
        for known in direct or ():
            arrays = known[1](args, kwargs)
            if arrays is not None:
                self.usual = known
                return known[0], arrays
        tail = None if kwargs else self.tails.get(len(args))
        values = self.bind(args, kwargs) if tail is None else args + tail
        if self.flattener is None:
            leaves, treedef = tree_flatten(values)
            key = (treedef, *map(type, leaves))
        else:
            leaves, key = self.flattener(values)
        layout = self.layouts.get(key)
        if layout is None:
            layout = self.layout(key, values)
        entry = layout.only or self.entry_of(layout, leaves)
        arrays = layout.pick(leaves)
        with entry.numbers():
            demand_whole_numbers_fit(self.where, entry.paths, arrays)
        if direct is None or direct:
            self.remember(layout, entry, (args, kwargs), values, arrays)
        return entry, arrays

    def entry_of(self, layout: Layout, leaves: Sequence[Any]) -> Entry:
        """The entry of a call, which the layout knows if there was one like it and its objects hold
        the same still.
        """
        key = layout.key(leaves)
        try:
            entry = layout.entries.get(key)
        except (TypeError, ValueError):
            layout.check_hashes(leaves)
            raise
        if entry is None or not entry.holds():
            entry = layout.remember(key, self.entry(layout, leaves))
        return entry

    def layout(self, key: tuple[Hashable, ...], values: tuple[Any, ...]) -> Layout:
        """The layout of a call, made if this is the first of its kind.

        It is found by the key alone, as warm calls look for it, only if no call of another kind can
        have an equal key.
        """
        told = exactly(key)
        with self.lock:
            # names that the annotations use may have been defined since the decoration
            if self.contract.unresolved:
                self.resolve()
            place = (key, told) if told else key
            layout = self.layouts.get(place)
            if layout is None:
                if len(self.layouts) >= MAX_ENTRIES:
                    self._drop_layouts()
                if self.flattener is None and any(
                    isinstance(value, eqx.Module) for value in values
                ):
                    self.flattener = Flattener()
                layout = self.layouts[place] = Layout(
                    self.binder, self.contract, values, self.options.donate, constants_in(key)
                )
            return layout

    def entry(self, layout: Layout, leaves: Sequence[Any]) -> Entry:
        """The entry of a call, made if this is the first of its kind."""
        key = (layout.form, layout.nested and self.differs_nested, layout.key(leaves))
        with self.lock, unwatched():
            entry = known = self.entries.get(key)
            while entry is not None and not entry.holds():
                entry = entry.other
            if entry is None:
                layout.refuse_unreadable(leaves)
                if known is None and len(self.entries) >= MAX_ENTRIES:
                    oldest = [*self.entries][0]  # noqa: RUF015 - in one step: garbage may be collected between two
                    self.history.drop(self.entries.pop(oldest).key)
                body = None if self.options.cache == "program" else self.fn()
                statics = Statics.of(layout.statics(leaves), layout.loose, body, self.where)
                entry = self.entries[key] = Entry(self, layout, statics, (layout.form, key[-1]))
                entry.place = key
                for stand_in in statics.identities:
                    stand_in.tell(entry)
                entry.follows(known)
                if layout.static:
                    self._variety.count(layout, leaves, self.counters.total)
            return entry

    def remember(
        self,
        layout: Layout,
        entry: Entry,
        called: Called,
        values: tuple[Any, ...],
        arrays: Sequence[Any],
    ) -> None:
        """Find the entry of a call by the types of its arguments from now on, if these tell it, or
        what a function of its own asks of them.

        Args:
            layout: Of the call.
            entry: Which it has.
            called: Its arguments, and those by keyword.
            values: One for each parameter.
            arrays: What it was taken apart to.
        """
        key = called_with(*called)
        with self.lock:
            if len(self.direct) >= MAX_ENTRIES:
                self.direct.clear()
                self.tried.clear()
                self.usual = _NOBODY
            tried = self.tried[key] = self.tried.get(key, 0) + 1
            if tried > _TRIES:
                self.direct.setdefault(key, ())
                return
            direct = self._direct(layout, entry, called, values, arrays)
            if direct is not None:
                self.direct[key] = (direct + self.direct.get(key, ()))[:_KEPT]
                self.tried[key] += _WRITTEN

    def _direct(
        self,
        layout: Layout,
        entry: Entry,
        called: Called,
        values: tuple[Any, ...],
        arrays: Sequence[Any],
    ) -> Direct | None:
        """What is to run calls like this one; None if a later call may tell more."""
        args, kwargs = called
        if any(
            is_a(value, Opaque) and kind in _OPEN
            for kind, value in zip(self._kinds, values, strict=True)
        ):
            return ()  # `*args` or `**kwargs` that are static as a whole
        placed = self.binder.placed(values, len(args), tuple(kwargs))
        order = tuple(place for _, place in placed if place is not None)
        if len(order) == len(placed) and all(_is_array(value) for value, _ in placed):
            return (
                (
                    layout.only,
                    arrays_taker(
                        (*map(type, args), *map(type, kwargs.values())), tuple(kwargs), order
                    ),
                ),
            )
        if layout.nested or not layout.called_again:
            layout.called_again = True
            return None
        if entry.reads is not None:  # what objects hold is compared at each call
            return None
        leaves, treedef = tree_flatten(values)
        if (
            not layout.has(treedef, leaves, arrays)
            or layout.entries.get(layout.key(leaves)) is not entry
        ):
            return None  # another thread has changed them since they were taken apart
        twins = self.binder.placed(tree_unflatten(treedef, leaves), len(args), tuple(kwargs))
        arguments = [
            Argument(twin, place, value)
            for (twin, place), (value, _) in zip(twins, placed, strict=True)
        ]
        take = taker(args, kwargs, arguments, frozenset(layout.dynamic), arrays)
        return take and ((entry, take),)

    def drop(self, entry: Entry) -> None:
        """Drop an entry whose object is gone, and those of the same key. It runs where garbage is
        collected, so it waits for no lock.
        """
        for layout in [*self.layouts.values()]:
            layout.entries.pop(entry.place[-1], None)
        self.entries.pop(entry.place, None)

    def forget(self) -> None:
        """Drop every layout and entry, and with them JAX's functions; and whatever else remembers
        what calls were given.
        """
        with self.lock:
            self._drop_layouts()
            self.entries.clear()
            self.flattener = None if self.flattener is None else Flattener()
            for known in (*self._static_at.values(), *self._static_rest.values()):
                known.forget()
            self.history.forget()

    def _drop_layouts(self) -> None:
        self.layouts.clear()
        self.direct.clear()
        self.tried.clear()
        self.usual = _NOBODY

    def resolve(self) -> None:
        """Read annotations that name what was not there at decoration; a warning tells those that
        still do.
        """
        namespace = self.namespace
        if not self.read_again():
            return
        _check_names(self)
        if self.contract.unresolved:
            warnings.warn(_unresolved(self, namespace), JitneyWarning, stacklevel=users_level())


class Registry:
    """Cores by function and options, so that decorating equal functions twice compiles once. It
    keeps no function alive.
    """

    def __init__(self) -> None:
        self._cores: weakref.WeakKeyDictionary[Any, dict[Options, Core]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def core(
        self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None
    ) -> Core:
        if not can_be_weak(fn):
            return Core(fn, options, namespace)
        with self._lock:
            cores = self._cores.setdefault(fn, {})
        core = cores.get(options) or Core(fn, options, namespace)
        return cores.setdefault(options, core).adopt(fn)

    def clear(self) -> None:
        """Decorate equal functions anew from now on."""
        with self._lock:
            self._cores.clear()

    def cores(self) -> list[Core]:
        """Those of functions that somebody still holds."""
        with self._lock:
            return [core for each in list(self._cores.values()) for core in list(each.values())]


REGISTRY = Registry()
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray or (
        isinstance(value, jax.Array) and not isinstance(value, Tracer)
    )


def _unresolved(core: Core, namespace: Mapping[str, Any] | None) -> str:
    """The warning of annotations that are of no use."""
    fn: Any = core.fn()
    missing = missing_in(fn.fn if is_a(fn, Derived) else fn, namespace)
    of = {each.of: "the result" if each.of == "return" else repr(each.of) for each in missing}
    parts = [f"the annotation `{each.text}` of {of[each.of]} ({each.error})" for each in missing]
    near = [f"did you mean `{each.near}`?" for each in missing if each.near]
    options = [name for name in ("pad", "chunk", "vmap") if getattr(core.options, name)]
    without = f" Here `{'` and `'.join(options)}` may do less than was asked." if options else ""
    return sentence(
        core.where,
        f"{few(parts)} cannot be resolved.",
        UNRESOLVED_RULE + without,
        " ".join([*dict.fromkeys(near), UNRESOLVED_FIX]),
    )


def _check_names(core: Core) -> None:
    """Whether the options name parameters that exist and an axis that does not, which can be known
    at decoration.
    """
    parameters = {parameter.name for parameter in core.binder.parameters}
    open_ended = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in core.binder.parameters
    )
    mapped = tuple(name for axis in core.options.vmap for name, _ in axis.dims or ())
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
    known = {*core.contract.axes, *(axis.name for axis in core.options.vmap)}
    for option, name in (
        *(("pad", name) for name, _ in core.options.pad),
        *(("chunk", name) for name, _ in core.options.chunk),
    ):
        if name not in known and not core.contract.unresolved:
            fail(
                core.where,
                f"`{option}` names {name!r}, which is no axis.",
                "The axes of the signature and of `vmap` are"
                f" {', '.join(sorted(known)) or 'none'}.",
                (
                    name_fix(name, known)
                    if known
                    else f'annotate the arrays that have it: x: Float[Array, "{name}"].'
                ),
                code="J202",
            )
    for axis in core.options.vmap:
        if axis.name in core.contract.axes:
            fail(
                core.where,
                f"vmap={axis.name!r} names an axis that the signature has already.",
                "An annotation says what the body sees; `vmap` adds an axis that it does not name.",
                f"drop {axis.name!r} from the annotations of a function of one element, or choose"
                " another name.",
                code="J203",
            )
    if core.options.vmap and core.options.vmap[0].dims is None and len(core.options.vmap) == 1:
        _check_rank_rule(core)


def _check_rank_rule(core: Core) -> None:
    """The rank rule needs at least one annotation with a rank."""
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
