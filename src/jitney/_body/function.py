"""Decorated functions: where one is defined, its options, arguments, contract and counters.

The log of its traces is for reports: sizes, and the abstract arrays of the calls. It keeps no array
alive.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from .._contract.contract import Contract, contract_of
from .._diagnosis.counters.counters import Counters
from .._diagnosis.retraces.history import History
from .._diagnosis.retraces.remedies import AuthorContext
from .._errors import Where
from .._jax.debug_names import Flat, rename
from .._signature.annotations import annotated_names
from .._signature.binding import Binder, signature_of, where_of
from .._signature.hints import AnyHint
from .._signature.options import Options
from .._stages.derivatives.derive import KEYWORDS, KEYWORDS_OF_DERIVATIVES, Derived
from .._values.static_values import has_hash
from .._view.field_axes import declared_axes

# Traces that are kept of one function.
_KEPT = 256


@dataclass(frozen=True)
class TraceInputs:
    """Inputs of one trace.

    Args:
        key: A hash of the static values and the structure.
        arrays: Abstract arrays of the call; None where an outer transform called, or they are
            unknown.
        sizes: Sizes of the named axes of the program: of a padded axis its bucket.
        true: True sizes of the padded axes.
        decided: Name, whether it acts, and the reason, of each stage of its plan.
    """

    key: int
    arrays: tuple[Any, ...] | None
    sizes: Mapping[str, int]
    true: Mapping[str, int]
    decided: tuple[tuple[str, bool, str], ...] = ()


class TraceLog:
    """The latest traces of a function."""

    def __init__(self) -> None:
        self._made: list[TraceInputs] = []
        # Whether traces were dropped, since there were too many.
        self.dropped = False

    def add(self, trace: TraceInputs) -> None:
        """Append a trace."""
        self._made.append(trace)
        self.dropped = self.dropped or len(self._made) > _KEPT
        del self._made[:-_KEPT]

    @property
    def traces(self) -> Sequence[TraceInputs]:
        """Logged traces, the latest last."""
        return tuple(self._made)


_NO_TREES = (bool, int, float, complex, str, bytes)


class FunctionInfo:
    """A function with its options, referenced weakly: the programs that a user holds keep it
    alive.
    """

    def __init__(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ):
        self._fns = (_reference(fn),)
        self.options = options
        self.where: Where
        self.positions: tuple[str, ...]
        if isinstance(fn, Derived):
            self.where, self.positions, keywords = fn.where, fn.positions, KEYWORDS
        else:
            self.where, self.positions, keywords = where_of(fn), (), KEYWORDS_OF_DERIVATIVES
        self.recomputes = isinstance(fn, Derived) and fn.what in ("grad", "value_and_grad", "vjp")
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self.binder = Binder(self.where, signature_of(fn), keywords)

        self.contract: Contract = self._read(fn, namespace)
        unresolved = self.contract.unresolved
        self._namespace = _annotation_namespace(fn, namespace or {}) if unresolved else None

        self.counters = Counters(self.name)
        self.log = TraceLog()
        self.history = History(self.where, self.counters, self._alive, self.author_context)

    @property
    def declared_axes(self) -> tuple[frozenset[str], bool]:
        """Axes that its annotations name, those of the fields of their classes too; and whether its
        arguments may have others.
        """
        # A default such as 2 says as much as an annotation.
        parameters = [
            parameter.hint
            for parameter in self.contract.parameters
            if not (
                isinstance(parameter.hint, AnyHint) and isinstance(parameter.default, _NO_TREES)
            )
        ]
        axes, is_open = declared_axes(parameters)
        return axes | declared_axes([self.contract.result])[0], is_open

    @property
    def axes(self) -> frozenset[str]:
        """Axes that its annotations name, those of the fields of their classes too."""
        return self.declared_axes[0]

    def fn(self) -> Callable[..., Any]:
        """Return the function.

        Raises:
            ReferenceError: Nothing references it any more.
        """
        for reference in self._fns:
            fn = reference()
            if fn is not None:
                return fn
        raise ReferenceError(f"{self.where} is gone")

    def with_user_names(self, flat: Flat, paths: Sequence[str]) -> Flat:
        """Return this function of flat arrays, with the name and the argument paths of the user's
        function in JAX's messages.
        """
        fn = self.fn()
        return rename(flat, fn.fn if isinstance(fn, Derived) else fn, paths)

    def author_context(self) -> AuthorContext:
        """Return the axes and options that the author has written."""
        return AuthorContext(tuple(self.axes), self.options, self.positions)

    def _alive(self) -> Any:
        alive = (reference() for reference in self._fns)
        return next((fn for fn in alive if fn is not None), None)

    def serve(self, fn: Callable[..., object]) -> None:
        """Stand for another function that is equal to the first, and may outlive it."""
        alive = [reference for reference in self._fns if reference() is not None]
        if not any(reference() is fn for reference in alive):
            self._fns = (*alive, _reference(fn))

    def serve_as(self, other: FunctionInfo) -> None:
        """Stand for the functions that another record stands for."""
        self._fns = other._fns

    def of(self, fn: Callable[..., object], options: Options) -> Self:
        """Return the record of another function of the same arguments, whose result may be
        anything.
        """
        same = copy.copy(self)
        same.options = options
        same.contract = replace(self.contract, result=AnyHint("anything"))
        same.begin_anew(fn)
        return same

    def begin_anew(self, fn: Callable[..., object]) -> None:
        """Stand for a function alone, which has had no call."""
        self._fns = (lambda: fn,)
        self.counters = Counters(self.name)
        self.log = TraceLog()
        self.history = History(self.where, self.counters, self._alive, self.author_context)

    def reread_annotations(self) -> bool:
        """Read the annotations with undefined names once more, and return whether there were
        any.
        """
        if self._namespace is None:
            return False
        self.contract = self._read(self.fn(), self._namespace)
        self._namespace = None
        return True

    def _read(
        self,
        fn: Callable[..., object],
        namespace: Mapping[str, object] | None,
    ) -> Contract:
        if isinstance(fn, Derived):
            return fn.contract(namespace)
        return contract_of(fn, self.binder.signature, self.where, namespace)

    @property
    def namespace(self) -> Mapping[str, object] | None:
        """Names that annotations use and that were undefined at decoration."""
        return self._namespace


def _annotation_namespace(
    fn: Callable[..., object], namespace: Mapping[str, object]
) -> dict[str, object]:
    """Return the names that annotations may mean.

    The rest of the namespace is dropped: one of its values may be the function itself, which
    nothing here may keep alive.
    """
    names = annotated_names(fn)
    return {name: value for name, value in namespace.items() if name in names}


def can_be_weak(fn: object) -> bool:
    """Return whether a function can be referenced weakly."""
    return type(fn).__weakrefoffset__ != 0 and has_hash(fn)


def _reference(fn: object) -> Callable[[], Any]:
    return weakref.ref(fn) if can_be_weak(fn) else lambda: fn
