"""What programs of equal functions with equal options share: contract, layouts, entries and counters."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx

from .._contract.contract import Contract, contract_of
from .._diagnosis.counters import LISTENER, Counters
from .._diagnosis.retraces import Traced
from .._diagnosis.static_variety import Variety
from .._errors import Where
from .._signature.annotations import annotated_names
from .._signature.binding import Binder, signature_of, where_of
from .._signature.hints import AnyHint
from .._signature.options import AUTO, Options, fail
from .._signature.static_values import has_hash
from .._stages.derive import Derived
from .._view.flatten import Flattener
from .._view.layout import MAX_ENTRIES, Layout, wrap_statics
from .entry import Entry


class Core:
    """The compiled side of a function. It holds the function weakly: the programs that a user holds keep it alive."""

    def __init__(self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None):
        self._fns = (_reference(fn),)
        self.options = options
        self.where: Where = fn.where if isinstance(fn, Derived) else where_of(fn)
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self.binder = Binder(self.where, signature_of(fn))
        self.contract: Contract = self._read(fn, namespace)
        self._namespace = _mentioned(fn, namespace or {}) if self.contract.unresolved else None
        self.counters = Counters(self.name)
        self.layouts: dict[Hashable, Layout] = {}
        self.entries: dict[Hashable, Entry] = {}
        self.lock = threading.RLock()
        self.flattener: Flattener | None = None  # once a module has been among the arguments
        self.last: Traced | None = None
        self._variety = Variety(self.where)
        names = [parameter.name for parameter in self.binder.parameters]
        self._static_at = tuple(names.index(name) for name in options.static if name in names)
        self._static_rest = tuple(name for name in options.static if name not in names)
        self.tails = {} if options.static else self.binder.tails
        _check_names(self)
        LISTENER.register()

    def fn(self) -> Callable[..., Any]:
        for reference in self._fns:
            fn = reference()
            if fn is not None:
                return fn
        raise ReferenceError(f"{self.where} is gone")

    def adopt(self, fn: Callable[..., Any]) -> Core:
        """Serve a function that is equal to the first too, which may be gone before it."""
        with self.lock:
            alive = [reference for reference in self._fns if reference() is not None]
            if not any(reference() is fn for reference in alive):
                self._fns = (*alive, _reference(fn))
        return self

    def of(self, fn: Callable[..., Any], options: Options) -> Core:
        """The core of another function of the same arguments, whose result may be anything."""
        same = copy.copy(self)
        same._fns, same.options = (lambda: fn,), options
        same.contract = replace(self.contract, result=AnyHint("anything"))
        same.counters, same.entries, same.last = Counters(self.name), {}, None
        return same

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value per parameter; whole static arguments are wrapped."""
        values = self.binder.bind(args, kwargs)
        return wrap_statics(values, self._static_at, self._static_rest) if self.options.static else values

    def layout(self, key: Hashable, values: tuple[Any, ...]) -> Layout:
        """The layout of a call, made if this is the first of its kind."""
        with self.lock:
            if self.contract.unresolved:  # names that the annotations use may have been defined since the decoration
                self._resolve()
            found = self.layouts.get(key)
            if found is None:
                if self.flattener is None and any(isinstance(value, eqx.Module) for value in values):
                    self.flattener = Flattener()
                found = self.layouts[key] = Layout(self.binder, self.contract, values, self.options.donate)
            return found

    def entry(self, layout: Layout, leaves: Sequence[Any]) -> Entry:
        """The entry of a call, made if this is the first of its kind."""
        key = (layout.form, layout.nested and self.differs_nested, layout.key(leaves))
        with self.lock:
            found = self.entries.get(key)
            if found is None:
                if len(self.entries) >= MAX_ENTRIES:
                    del self.entries[next(iter(self.entries))]
                found = self.entries[key] = Entry(self, layout, layout.statics(leaves), (layout.form, key[-1]))
                if layout.static:
                    self._variety.count(layout, leaves, self.counters.total)
            return found

    def _resolve(self) -> None:
        if self._namespace is not None:
            self.contract = self._read(self.fn(), self._namespace)
            self._namespace = None
            _check_names(self)

    def _read(self, fn: Callable[..., Any], namespace: Mapping[str, Any] | None) -> Contract:
        if isinstance(fn, Derived):
            return fn.contract(namespace)
        return contract_of(fn, self.binder.signature, self.where, namespace)

    @property
    def namespace(self) -> Mapping[str, Any] | None:
        """Names that annotations use and that were not defined yet."""
        return self._namespace

    @property
    def differs_nested(self) -> bool:
        options = self.options
        nested = (
            options.donate,
            options.chunk,
            options.shard is not None,
            options.remat == AUTO,
            options.compiler == "fast",
            options.debug_nans,
        )
        return any(map(bool, nested))


class Registry:
    """Cores by function and options, so that decorating equal functions twice compiles once. It keeps no function alive."""

    def __init__(self) -> None:
        self._cores: weakref.WeakKeyDictionary[Any, dict[Options, Core]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def core(self, fn: Callable[..., Any], options: Options, namespace: Mapping[str, Any] | None = None) -> Core:
        if not _can_be_weak(fn):
            return Core(fn, options, namespace)
        with self._lock:
            cores = self._cores.setdefault(fn, {})
        core = cores.get(options) or Core(fn, options, namespace)
        return cores.setdefault(options, core).adopt(fn)


REGISTRY = Registry()


def _mentioned(fn: Any, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The names that annotations may mean. Another name may well be the function's own, and nothing here may keep it alive."""
    names = annotated_names(fn)
    return {name: value for name, value in namespace.items() if name in names}


def _can_be_weak(fn: Any) -> bool:
    return type(fn).__weakrefoffset__ != 0 and has_hash(fn)


def _reference(fn: Any) -> Callable[[], Any]:
    return weakref.ref(fn) if _can_be_weak(fn) else lambda: fn


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
    from .._signature.hints import AnyHint, ModuleHint, StaticHint

    if core.contract.unresolved or any(not isinstance(p.hint, (AnyHint, ModuleHint, StaticHint)) for p in core.contract.parameters):
        return
    axis = core.options.vmap[0].name
    fail(core.where, f"vmap={axis!r} has no annotation to go by.",
         "An array is mapped if it has one axis more than its annotation.",
         f'annotate the arrays (x: Float[Array, "n"]), or say it outright: vmap={{"{axis}": {{"x": 0}}}}.')  # fmt: skip
