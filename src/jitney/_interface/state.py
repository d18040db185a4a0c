"""The `State`: named quantities that are one vector where mathematics wants one, with core fields
and fields `derived` from them.

This module is independent of the decorators: a state is an Equinox module like any other.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

import equinox as eqx
import jax
import numpy as np

from .._errors import OptionError, StateError
from .._jax.trees import Tracer, keystr, tree_flatten
from .._owners import shorten
from .._public import public_in
from .._signature.annotations import fields_of
from .derived import KEPT, DerivedCaches
from .state_vector import core_leaves, from_vector, join_leaves, like

S = TypeVar("S")
R = TypeVar("R")


@public_in("jitney.states")
class DerivedField(Generic[R]):
    """A field that is computed when it is read; see `derived`."""

    def __init__(self, rule: Callable[[Any], R]):
        if not inspect.isroutine(rule) or not hasattr(rule, "__name__"):
            raise OptionError(
                "jitney.states.derived()",
                f"a {type(rule).__name__} is not a rule.",
                "A rule is a function of the state, with a name.",
                "write it with `def` in the class, and @jitney.states.derived above it.",
                code="J204",
            )
        self.rule = rule
        self.__doc__ = rule.__doc__
        self.__isabstractmethod__ = getattr(rule, "__isabstractmethod__", False)
        self.name = rule.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, state: None, owner: type) -> DerivedField[R]: ...
    @overload
    def __get__(self, state: object, owner: type | None = None) -> R: ...
    def __get__(self, state: object, owner: type | None = None) -> object:
        if state is None:
            return self
        try:
            with _reading(state, self) as reading:
                return reading.values.value(state, self.rule)
        except Exception as error:
            shorten(error)
            raise


def derived(rule: Callable[[Any], R]) -> DerivedField[R]:
    """Declare a field of a `State` that follows from others: computed when it is read, never
    stored, passed, or differentiated as an argument.

    A rule reads core fields and other derived ones; a rule that overrides a parent's reads that one
    as `super().name`. The value is computed once for each state and trace, however often it is
    read; and anew under other settings of JAX (x64), and after a NumPy array of the state was
    changed in place.

    Raises:
        StateError: When it is read and a field that it needs is missing, or it needs itself.
    """
    return DerivedField(rule)


_Read = tuple[object, DerivedField[Any]]
"""A state, and one of its derived fields."""


@dataclass
class _Reading:
    """The derived fields that are being computed, and the caches of their states."""

    fields: list[_Read] = field(default_factory=list[_Read])
    values: DerivedCaches = field(default_factory=DerivedCaches)


_READING: ContextVar[_Reading | None] = ContextVar("reading", default=None)


@contextmanager
def _reading(state: object, asked: DerivedField[Any]) -> Generator[_Reading]:
    reading = _READING.get()
    token = None
    if reading is None:
        token = _READING.set(reading := _Reading())
    chain = [field for other, field in reading.fields if other is state]
    # The same field twice is a cycle. Two fields of one name are not: a field may read the one that
    # it overrides, by `super()`.
    if any(field is asked for field in chain):
        cycle = [*chain[chain.index(asked) :], asked]
        names = [field.name for field in cycle]
        raise StateError(
            _field_name(state, asked.name),
            f"it is derived from itself: {' -> '.join(names)}.",
            "A derived field follows from core fields in the end.",
            "make one of them a core field.",
        )
    reading.fields.append((state, asked))
    try:
        yield reading
    finally:
        reading.fields.pop()
        if token is not None:
            _READING.reset(token)


class _Of:
    """Descriptor of `State.of(vector)` and `state.of(vector)`."""

    def __get__(self, state: S | None, owner: type[S]) -> Callable[..., S]:
        if state is not None:
            return functools.partial(like, state)
        return functools.partial(from_vector, owner)


@public_in("jitney.states")
class State(eqx.Module):
    """An Equinox module of named quantities that is also one vector.

    Its annotated fields are core: floating-point arrays of one dtype, or modules and containers of
    them. Fields under `@derived` follow from them and are no part of the vector, nor of what `jit`,
    `grad` and `vmap` see.

        class Economy(jitney.states.State):
            log_capital: Float[Array, "sector"]
            labour: Float[Array, ""]

            @jitney.states.derived
            def capital(self): return jnp.exp(self.log_capital)

        economy.array        # [sector + 1]
        economy.of(vector)   # the same fields, from a vector; shapes as here
        Economy.of(vector)   # shapes from the annotations: one unknown size follows from the length
        print(economy)       # every quantity by name
    """

    # A slot for the cache of derived fields: it is not in `__dict__`, where Equinox would see it.
    __slots__ = (KEPT,)

    of = _Of()

    @property
    def array(self) -> Any:
        """Core fields as one vector, in the order of their declaration. Missing fields (None) are
        left out.

        Raises:
            StateError: They are not floating-point arrays of one dtype.
        """
        return join_leaves([leaf for _, leaf in core_leaves(self)])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the elements of `array`: `labour`, `log_capital[2]`."""
        names: list[str] = []
        for path, leaf in core_leaves(self):
            name = keystr(path).removeprefix(".")
            for at in np.ndindex(*leaf.shape):
                index = ",".join(map(str, at))
                names.append(f"{name}[{index}]" if at else name)
        return tuple(names)

    def __getattribute__(self, name: str) -> Any:
        try:
            value = object.__getattribute__(self, name)
            # A missing core field is an error only while a derived field is computed from it.
            if value is None:
                _check_present(self, name)
        except StateError as error:
            shorten(error)
            raise
        return value

    def __getstate__(self) -> dict[str, object]:
        # Without the cache of derived fields.
        return dict(self.__dict__)

    def __str__(self) -> str:
        leaves = tree_flatten(self)[0]
        if not all(map(_has_numbers, leaves)):
            return repr(self)
        rows: list[tuple[str, str]] = []
        for name in fields_of(type(self)):
            value = object.__getattribute__(self, name)
            rows.append((name, _text(value)))
        for name in _derived_names(type(self)):
            try:
                rows.append((name, f"{_text(getattr(self, name))}  (derived)"))
            except StateError as error:
                rows.append((name, str(error).splitlines()[0]))
        width = max((len(name) for name, _ in rows), default=0)
        indented = "\n" + " " * (width + 2)
        lines = [f"{name:{width}}  {text}".replace("\n", indented) for name, text in rows]
        return "\n".join([type(self).__name__, *lines])


def _has_numbers(leaf: object) -> bool:
    """Return whether a leaf is an array or a float with a value."""
    is_array = isinstance(leaf, (jax.Array, np.ndarray, np.generic, float))
    return is_array and not isinstance(leaf, Tracer)


def _check_present(state: State, name: str) -> None:
    reading = _READING.get()
    if reading is not None and name in fields_of(type(state)):
        raise StateError(
            _field_name(state, reading.fields[-1][1].name),
            f"it needs {name!r}, which is missing.",
            "A derived field can be read when every field that its rule reads is there.",
            f"give {name!r} a value.",
        )


def _field_name(state: object, name: str) -> str:
    return f"{type(state).__name__}.{name}"


def _derived_names(cls: type) -> list[str]:
    bases = reversed(cls.__mro__)
    names = dict.fromkeys(name for base in bases for name in vars(base))
    return [name for name in names if isinstance(getattr(cls, name, None), DerivedField)]


def _text(value: object) -> str:
    leaves = tree_flatten(value)[0]
    if len(leaves) == 1 and leaves[0] is value and hasattr(value, "shape"):
        return np.array2string(np.asarray(value), precision=6, threshold=20)
    return "missing" if value is None else str(value)
