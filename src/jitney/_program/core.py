"""What programs of equal functions with equal options share: layouts, entries, and all that `Function` is."""

from __future__ import annotations

import inspect
import operator
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from .._body.function import Function, can_be_weak
from .._diagnosis.counters import LISTENER
from .._diagnosis.static_variety import Variety
from .._signature.hints import AnyHint, ModuleHint, StaticHint
from .._signature.known_values import Known
from .._signature.options import Options, fail
from .._signature.reads import Statics
from .._signature.static_values import Unkeyed, unkeyed
from .._signature.told_apart import exactly
from .._signature.watching import unwatched
from .._view.flatten import Flattener, constants_in
from .._view.layout import MAX_ENTRIES, Layout, wrap_statics
from .._view.taking import taker
from .entry import Entry

Direct = tuple[Entry, Callable[[tuple[Any, ...]], Any] | None]
"""What runs calls of one pattern, and what makes its arrays of the arguments where these are not they: None of a call that is another's."""

Called = tuple[tuple[Any, ...], Mapping[str, Any]]
_TRIES = 32  # calls of one pattern until it is given up that a later one may be taken apart by a function of its own


def called_with(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of such calls; of one without keywords, the types alone."""
    return (*map(type, args), *kwargs, *map(type, kwargs.values()))


class Core(Function):
    """The compiled side of a function."""

    def __init__(self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None):
        super().__init__(fn, options, namespace)
        self.layouts: dict[Hashable, Layout] = {}
        self.entries: dict[Hashable, Entry] = {}
        self.direct: dict[tuple[Any, ...], Direct | Literal[False]] = {}  # False where a call has to be taken apart
        self.lock = threading.RLock()
        self.tried: dict[tuple[Any, ...], int] = {}  # how many calls of a pattern had to be taken apart
        self.flattener: Flattener | None = None  # once a module has been among the arguments
        self._variety = Variety(self.where)
        self._parameters = names = [parameter.name for parameter in self.binder.parameters]
        self._static_at = {names.index(name): Known() for name in options.static if name in names}
        self._static_rest = {name: Known() for name in options.static if name not in names}
        self.tails = {} if options.static else self.binder.tails
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
        same.layouts, same.entries, same.direct, same.tried = {}, {}, {}, {}  # a layout knows its entry
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
            raise unkeyed(self.where, ((name, given[name]) for name in self.options.static if name in given)) from None

    def layout(self, key: tuple[Hashable, ...], values: tuple[Any, ...]) -> Layout:
        """The layout of a call, made if this is the first of its kind.

        It is found by the key alone, as warm calls look for it, only if no call of another kind can have an equal key.
        """
        told = exactly(key)
        with self.lock:
            if self.contract.unresolved:  # names that the annotations use may have been defined since the decoration
                self._resolve()
            place = (key, told) if told else key
            layout = self.layouts.get(place)
            if layout is None:
                if len(self.layouts) >= MAX_ENTRIES:
                    self._drop_layouts()
                if self.flattener is None and any(isinstance(value, eqx.Module) for value in values):
                    self.flattener = Flattener()
                layout = self.layouts[place] = Layout(self.binder, self.contract, values, self.options.donate, constants_in(key))
            return layout

    def entry(self, layout: Layout, leaves: Sequence[Any]) -> Entry:
        """The entry of a call, made if this is the first of its kind."""
        key = (layout.form, layout.nested and self.differs_nested, layout.key(leaves))
        with self.lock, unwatched():
            entry = known = self.entries.get(key)
            while entry is not None and not entry.holds():
                entry = entry.other
            if entry is None:
                if known is None and len(self.entries) >= MAX_ENTRIES:
                    oldest = next(iter(self.entries))
                    self.history.drop(self.entries.pop(oldest).key)
                body = None if self.options.cache == "program" else self.fn()
                statics = Statics.of(layout.statics(leaves), layout.loose, body, self.where)
                entry = self.entries[key] = Entry(self, layout, statics, (layout.form, key[-1]))
                entry.follows(known)
                if layout.static:
                    self._variety.count(layout, leaves, self.counters.total)
            return entry

    def remember(self, layout: Layout, entry: Entry, called: Called, values: tuple[Any, ...], arrays: Sequence[Any]) -> None:
        """Find the entry of a call by the types of its arguments from now on, if these and what is in modules tell it, and what was left
        out is None.

        Args:
            layout: Of the call.
            entry: Which it has.
            called: Its arguments, and those by keyword.
            values: One for each parameter.
            arrays: What it was taken apart to.
        """
        key = called_with(*called)
        with self.lock:
            tried = self.tried[key] = self.tried.get(key, 0) + 1
            if tried > _TRIES:
                return
            if len(self.direct) >= MAX_ENTRIES:
                self.direct.clear()
                self.tried.clear()
            found = self._direct(layout, entry, called, values, arrays)
            if found is not None:
                self.direct[key] = found
            elif tried == _TRIES:
                self.direct.setdefault(key, False)

    def _direct(
        self, layout: Layout, entry: Entry, called: Called, values: tuple[Any, ...], arrays: Sequence[Any]
    ) -> Direct | Literal[False] | None:
        """What `direct` holds of such calls; None if a later call may tell more."""
        args, kwargs = called
        names = [*self._parameters[: len(args)], *kwargs]
        is_open = any(parameter.kind in _OPEN for parameter in self.binder.parameters)
        left_out = [name for name, value in zip(self._parameters, values, strict=True) if name not in names and value is None]
        if is_open or self.options.static or sorted([*names, *left_out]) != sorted(self._parameters):
            return False
        order = [names.index(name) for name in self._parameters if name not in left_out]
        values = tuple(value for name, value in zip(self._parameters, values, strict=True) if name not in left_out)
        if all(map(_is_array, values)):
            if not kwargs:
                return layout.only, None
            return layout.only, operator.itemgetter(*order) if len(order) > 1 else tuple
        if layout.nested:
            return None
        if entry.reads is not None:  # what objects hold is compared at each call
            return False
        flattener = self.flattener
        if flattener is None:
            flattener = Flattener()
            flattener(values)  # so that it knows which types are arrays
        take = taker(flattener, arrays, values, order)
        return take and (entry, take)

    def forget(self) -> None:
        """Drop every layout and entry, and with them JAX's functions."""
        with self.lock:
            self._drop_layouts()
            self.entries.clear()
            self.history.forget()

    def _drop_layouts(self) -> None:
        self.layouts.clear()
        self.direct.clear()
        self.tried.clear()

    def _resolve(self) -> None:
        if self.read_again():
            _check_names(self)


class Registry:
    """Cores by function and options, so that decorating equal functions twice compiles once. It keeps no function alive."""

    def __init__(self) -> None:
        self._cores: weakref.WeakKeyDictionary[Any, dict[Options, Core]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def core(self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None) -> Core:
        if not can_be_weak(fn):
            return Core(fn, options, namespace)
        with self._lock:
            cores = self._cores.setdefault(fn, {})
        core = cores.get(options) or Core(fn, options, namespace)
        return cores.setdefault(options, core).adopt(fn)

    def cores(self) -> list[Core]:
        """Those of functions that somebody still holds."""
        with self._lock:
            return [core for each in list(self._cores.values()) for core in list(each.values())]


REGISTRY = Registry()
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray or (isinstance(value, jax.Array) and not isinstance(value, Tracer))


def _check_names(core: Core) -> None:
    """Whether the options name parameters that exist and an axis that does not, which can be known at decoration."""
    parameters = {parameter.name for parameter in core.binder.parameters}
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in core.binder.parameters)
    mapped = tuple(name for axis in core.options.vmap for name, _ in axis.dims or ())
    for option, names in (("static", core.options.static), ("donate", core.options.donate), ("vmap", mapped)):
        for name in names:
            if name not in parameters and not open_ended:
                fail(core.where, f"`{option}` names {name!r}, which is not a parameter.",
                     f"The parameters are {', '.join(sorted(parameters)) or 'none'}.", "correct the name.")  # fmt: skip
    known = {*core.contract.axes, *(axis.name for axis in core.options.vmap)}
    for option, name in (*(("pad", name) for name, _ in core.options.pad), *(("chunk", name) for name, _ in core.options.chunk)):
        if name not in known and not core.contract.unresolved:
            fail(core.where, f"`{option}` names {name!r}, which is no axis.",
                 f"The axes of the signature and of `vmap` are {', '.join(sorted(known)) or 'none'}.", "correct the name.")  # fmt: skip
    for axis in core.options.vmap:
        if axis.name in core.contract.axes:
            fail(core.where, f"vmap={axis.name!r} names an axis that the signature has already.",
                 "An annotation says what the body sees; `vmap` adds an axis that it does not name.",
                 f"drop {axis.name!r} from the annotations of a function of one element, or choose another name.")  # fmt: skip
    if core.options.vmap and core.options.vmap[0].dims is None and len(core.options.vmap) == 1:
        _check_rank_rule(core)


def _check_rank_rule(core: Core) -> None:
    """The rank rule needs at least one annotation with a rank."""
    if core.contract.unresolved or any(not isinstance(p.hint, (AnyHint, ModuleHint, StaticHint)) for p in core.contract.parameters):
        return
    axis = core.options.vmap[0].name
    fail(core.where, f"vmap={axis!r} has no annotation to go by.",
         "An array is mapped if it has one axis more than its annotation.",
         f'annotate the arrays (x: Float[Array, "n"]), or say it outright: vmap={{"{axis}": {{"x": 0}}}}.')  # fmt: skip
