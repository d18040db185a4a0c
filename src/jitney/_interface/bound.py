"""A program as what it is bound to: a core, a function, and the arguments that it was bound with.

The other files of a program add to this class: its calls (`calling.py`), questions and compilation
ahead of time (`ahead_of_time.py`), and what it shares with a function of Python
(`function_protocols.py`). `program.py` joins them. `OF_CALLS` is how
the listener of compiles finds the program that one belongs to: by the frames of some methods, and
their local variables `self`, `entry` and `arrays`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, Self, TypeVar

from .._diagnosis.counters.counters import Counters
from .._diagnosis.counters.listener import Locals, Owner
from .._jax.typed import Array
from .._program.core import CompiledFunction
from .._public import CompletedType
from .._signature.options import Options
from .._sparsity import Mode


@dataclass(frozen=True)
class Defaults:
    """Settings of `@lazy_derivatives` for all derivatives of a function."""

    wrt: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    single: bool = False
    mode: Mode = "auto"
    sparse: bool = False


P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Bound = tuple[tuple[object, ...], dict[str, object]]
"""Arguments that a program is bound to: by position, and by name."""


class BoundProgram(Generic[P, R], metaclass=CompletedType):
    """A core and a function, with bound arguments."""

    _args: tuple[object, ...]
    _kwargs: dict[str, object]

    def __init__(
        self,
        core: CompiledFunction,
        fn: Callable[P, R],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        defaults: Defaults | None = None,
    ):
        self._core = core
        self._fn = fn
        self._args = args
        self._kwargs = dict(kwargs or {})
        self._defaults = defaults or Defaults()
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(fn, name):
                setattr(self, name, getattr(fn, name))

    @property
    def options(self) -> Options:
        """Options of the decoration."""
        return self._core.options

    @property
    def core(self) -> CompiledFunction:
        """State that is shared with programs of equal functions with equal options."""
        return self._core

    @property
    def body(self) -> Callable[..., object]:
        """The function itself, unbound."""
        return self._fn

    def arguments(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> dict[str, object]:
        """Return the arguments of a call by name."""
        values = self._core.bind(self._args + args, {**self._kwargs, **kwargs})
        names = [parameter.name for parameter in self._core.binder.parameters]
        return dict(zip(names, values, strict=True))

    @property
    def bound(self) -> Bound:
        """Arguments that this program is bound to: by position, and by name."""
        return self._args, self._kwargs

    @property
    def defaults(self) -> Defaults:
        """Defaults of its derivatives, for calls without `wrt`."""
        return self._defaults

    def parted(self) -> tuple[tuple[object, ...], Self]:
        """Return the bound positional arguments, and the unbound program."""
        return self._args, self.bound_to((), {})

    def bound_as(self, other: BoundProgram[..., object]) -> Self:
        """Return this program, bound to the same arguments as another one."""
        if not other._args and not other._kwargs:
            return self
        return self.bound_to(other._args, other._kwargs)

    def bound_to(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> Self:
        """Return the same program bound to these arguments. Cheap, since it happens on every call
        of a method.
        """
        same = object.__new__(type(self))
        held = vars(same)
        held.update(vars(self))
        held["_args"], held["_kwargs"] = args, kwargs
        held.pop("__call__", None)
        return same

    def _with(self, **changed: object) -> Self:
        same = self.bound_to(self._args, self._kwargs)
        vars(same).update(changed)
        return same


def _counters(names: Locals) -> Counters:
    return names["self"].core.counters


def _call_arrays(names: Locals) -> Sequence[Array]:
    return names["arrays"]


OF_CALLS = Owner(
    _counters,
    lambda names, call: names["entry"].compile_event(_call_arrays(names), call),
    _call_arrays,
)
