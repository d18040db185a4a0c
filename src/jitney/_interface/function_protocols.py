"""Protocols of a function of Python: methods, wrappers, printing, equality and copying."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import ParamSpec, Self, TypeVar, cast

from .._program.core import CompiledFunction
from .._public import completed_names
from .._signature.options import option_texts
from .._signature.resolving import innermost
from .bound import Bound
from .calling import CallableProgram

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def _function_calling(program: FunctionProtocols[P, R]) -> Callable[P, R]:
    """A function of Python with the signature of a program."""

    @functools.wraps(program)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return program(*args, **kwargs)

    return call


class FunctionProtocols(CallableProgram[P, R]):
    """A program where Python expects a function."""

    def decorated(self) -> Self:
        """Return this program, for a line below beartype. That decorates `program.__call__` in
        place of an object that is not a function, and what it finds there is a program; or, where
        beartype is to check in place of the contract, a function that calls it.
        """
        same = self._with()
        if not self.__no_type_check__:
            vars(self)["__call__"] = _function_calling(same)
        else:
            vars(self)["__call__"] = same
        return self

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The decorated object: the function, the bound method, the module or the partial."""
        fn, args = self._fn, self._args
        if not args and not self._kwargs:
            return fn
        if len(args) == 1 and not self._kwargs:
            instance = cast("Callable[P, R]", args[0])
            return instance if is_call_of(fn, instance) else types.MethodType(fn, instance)
        return functools.partial(fn, *args, **self._kwargs)

    @property
    def __globals__(self) -> dict[str, object]:
        """Globals of the function, where a type checker looks names up."""
        return getattr(innermost(self._fn)[0], "__globals__", {})

    @property
    def __no_type_check__(self) -> bool:
        """True if a type checker that stands above has nothing to check, by the mark of
        `typing.no_type_check`: the contract is checked, and the annotations say what the body sees,
        which under `vmap` is not what is passed.
        """
        return self._core.options.contracts

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__)

    def __repr__(self) -> str:
        chosen = option_texts(self._core.options)
        options = f" {', '.join(chosen)}" if chosen else ""
        return f"<jitney program {self._core.where}{options}>"

    def __dir__(self) -> list[str]:
        """Return the public names, for completion, without those for jitney's own modules."""
        return completed_names(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionProtocols):
            return NotImplemented
        if self._core is not other._core or tuple(self._kwargs) != tuple(other._kwargs):
            return False

        # Bound arguments are compared by identity: `==` of arrays is an array.
        mine = (*self._args, *self._kwargs.values())
        theirs = (*other._args, *other._kwargs.values())
        return len(mine) == len(theirs) and all(map(operator.is_, mine, theirs))

    def __hash__(self) -> int:
        mine = (self._core, *self._args, *self._kwargs.values())
        return hash(tuple(map(id, mine)))

    def flattened(self) -> tuple[Bound, _Function]:
        """Return the children and the auxiliary data of the pytree node: bound arguments, and the
        function.
        """
        return (self._args, self._kwargs), _Function(self._core, self._fn)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        if not self._args and not self._kwargs:
            # A plain function copies to itself, too.
            return self
        args, kwargs = copy.deepcopy((self._args, self._kwargs), memo)
        return type(self)(self._core, self._fn, args, kwargs, defaults=self._defaults)


def is_call_of(fn: object, instance: object) -> bool:
    """Return whether calling `instance` runs `fn`."""
    return callable(instance) and type(instance).__call__ is fn


class _Function:
    """Auxiliary data of a program as a pytree node: everything but its bound arrays. It keeps the
    function alive.
    """

    def __init__(self, core: CompiledFunction, fn: Callable[..., object]):
        self.core = core
        self.fn = fn

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self.core is other.core

    def __hash__(self) -> int:
        return hash(id(self.core))
