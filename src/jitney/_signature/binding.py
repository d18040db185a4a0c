"""Arguments of a call in normal form, one value per parameter, and the way back to a call of the
body.

`f(1, y=2)` and `f(1, 2)` are the same call and must share a program. Both become the same tuple:
one value per parameter in the order of the signature, defaults filled in, `*args` as a tuple and
`**kwargs` as a dict. The recipe depends only on the number of positional arguments and the names of
the others, so it is computed once for each such pattern.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import jax

from .._errors import ContractError, Where, misfit
from .._jax.trees import attribute
from .._owners import short
from .._values.static_values import Opaque

_ANY_CALL = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
_R = TypeVar("_R")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Default(enum.Enum):
    """Placeholder for an argument that the caller left out and whose default only the function
    knows. It is left out again when the body is called.
    """

    OWN = "its own default"

    def __repr__(self) -> str:
        return self.value


def signature_of(fn: Callable[..., object]) -> inspect.Signature:
    """Signature of a callable, or `(*args, **kwargs)` for builtins without one.

    A wrapper with `functools.wraps` shows the signature of the function it wraps, but the wrapper
    is what is called. So the wrapper's own default counts, and an omitted argument that the wrapper
    does not name is left to it.
    """
    try:
        shown = inspect.signature(fn)
    except ValueError:
        return _ANY_CALL

    # Skip wrappers that cannot change a default.
    while _passes_all_on(fn):
        fn = getattr(fn, "__wrapped__")  # noqa: B009 - no attribute of functions as such
    if not isinstance(fn, types.FunctionType) or not (
        hasattr(fn, "__wrapped__") or hasattr(fn, "__signature__")
    ):
        return shown

    # A bare copy has neither `__wrapped__` nor `__signature__`, so `inspect.signature` reads the
    # wrapper's own parameters.
    bare = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    bare.__kwdefaults__ = fn.__kwdefaults__
    own = inspect.signature(bare).parameters
    return shown.replace(
        parameters=[_with_own_default(parameter, own) for parameter in shown.parameters.values()]
    )


def _passes_all_on(fn: object) -> bool:
    """Return whether a function is a wrapper that changes no argument: of jaxtyping, beartype,
    `contextlib`, or `jax.named_scope` (Equinox's layers).
    """
    if not isinstance(fn, types.FunctionType) or not hasattr(fn, "__wrapped__"):
        return False
    of = str(fn.__globals__.get("__name__")).partition(".")[0]
    return (
        of in ("jaxtyping", "contextlib")
        or fn.__code__ is _IN_SCOPE
        or fn.__code__.co_filename.startswith("<@beartype(")
    )


_IN_SCOPE: types.CodeType = jax.named_scope("")(lambda: None).__code__


def _with_own_default(
    parameter: inspect.Parameter,
    own: Mapping[str, inspect.Parameter],
) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    if parameter.default is empty:
        return parameter
    known = own[parameter.name].default if parameter.name in own else empty
    return parameter.replace(default=Default.OWN if known is empty else known)


def where_of(fn: Callable[..., object]) -> Where:
    """Location of a function for messages: its qualified name without `<locals>`, file and line."""
    target = inspect.unwrap(fn)
    name = attribute(target, "__qualname__", None) or type(target).__qualname__

    code = attribute(target, "__code__", None)
    name = name.rsplit("<locals>.", 1)[-1]
    if code is None:
        return Where(name)
    return Where(name, short(code.co_filename), code.co_firstlineno)


@dataclass(frozen=True)
class _Take:
    """Source of the value of one parameter: a position, a name, a default, or the remaining
    arguments.
    """

    index: int | None = None
    name: str | None = None
    default: object = None
    rest: slice | None = None
    names: tuple[str, ...] | None = None

    def __call__(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        if self.index is not None:
            return args[self.index]
        if self.name is not None:
            return kwargs[self.name]
        if self.rest is not None:
            return args[self.rest]
        if self.names is not None:
            return {name: kwargs[name] for name in self.names}
        return self.default


def _tails(parameters: tuple[inspect.Parameter, ...]) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Pairs of a number of positional arguments that may come alone, and the defaults that complete
    them.
    """
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        return
    most = sum(kind in _POSITIONAL for kind in kinds)
    for count in range(most + 1):
        defaults = tuple(parameter.default for parameter in parameters[count:])
        if all(default is not inspect.Parameter.empty for default in defaults):
            yield count, defaults


_Pattern = tuple[int, tuple[str, ...]]
"""Number of positional arguments of a call, and the names of the others."""


class Binder:
    """Brings calls of one signature into their normal form."""

    def __init__(
        self,
        where: Where,
        signature: inspect.Signature,
        elsewhere: Mapping[str, str] | None = None,
    ):
        self.where = where
        self.signature = signature
        self._elsewhere = elsewhere or {}
        self.parameters = tuple(signature.parameters.values())
        self._recipes: dict[_Pattern, tuple[_Take, ...]] = {}
        self.tails = dict(_tails(self.parameters))

    def bind(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> tuple[Any, ...]:
        """Bind the arguments of a call, one value per parameter.

        Raises:
            ContractError: The arguments do not fit the signature, as Python would say.
        """
        pattern = (len(args), tuple(kwargs))
        recipe = self._recipes.get(pattern)
        if recipe is None:
            recipe = self._recipes[pattern] = self._recipe(*pattern)
        return tuple([take(args, kwargs) for take in recipe])

    def _recipe(
        self,
        count: int,
        names: tuple[str, ...],
    ) -> tuple[_Take, ...]:
        # Bind the positions themselves in place of the values, so that the result says which
        # argument goes to which parameter. A keyword is bound to None.
        try:
            bound = self.signature.bind(*range(count), **dict.fromkeys(names))
        except TypeError as error:
            raise self.misfit(error, names) from None
        given = bound.arguments
        return tuple(self._take(parameter, given) for parameter in self.parameters)

    def misfit(
        self,
        error: TypeError,
        keywords: Sequence[str],
    ) -> ContractError:
        """Error for a call that does not fit the signature.

        Args:
            error: Python's error for the call.
            keywords: Names of the call's keyword arguments.
        """
        return ContractError(
            misfit(self.where, self.signature, error, keywords, self._elsewhere), code="J215"
        )

    def _take(
        self,
        parameter: inspect.Parameter,
        given: Mapping[str, Any],
    ) -> _Take:
        value = given.get(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            if not value:
                return _Take(rest=slice(0, 0))
            first = value[0]
            return _Take(rest=slice(first, first + len(value)))
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return _Take(names=tuple(value or ()))
        if parameter.name not in given:
            # Python 3.13 binds `f(x=1)` for `f(x, /, **rest)`, with no value for `x`.
            if parameter.default is inspect.Parameter.empty:
                raise TypeError(
                    f"{self.where}: missing a required positional-only argument: {parameter.name!r}"
                )
            return _Take(default=parameter.default)
        return _Take(name=parameter.name) if value is None else _Take(index=value)

    def call(
        self,
        fn: Callable[..., _R],
        values: tuple[Any, ...],
    ) -> _R:
        """Call the body with values in normal form."""
        args: list[object] = []
        kwargs: dict[str, object] = {}

        # Once a default is left out, later values can no longer be passed by position.
        complete = True

        for parameter, value in zip(self.parameters, values, strict=True):
            if value is Default.OWN:
                complete = False
            elif parameter.kind in _POSITIONAL and (
                complete or parameter.kind is inspect.Parameter.POSITIONAL_ONLY
            ):
                args.append(value)
            elif parameter.kind in _POSITIONAL:
                kwargs[parameter.name] = value
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            else:
                kwargs[parameter.name] = value

        return fn(*args, **kwargs)

    def flat_values(
        self,
        values: tuple[Any, ...],
        count: int,
        names: tuple[str, ...],
    ) -> list[tuple[object, int | None]]:
        """Values in normal form one by one, `*args` and `**kwargs` included, in JAX's order.

        Args:
            values: One for each parameter.
            count: Number of positional arguments of the call; the arguments after them are by
                keyword.
            names: Names of the keyword arguments.

        Returns:
            Pairs of a value and the index of its argument in the call, None for a default.
        """
        placed: list[tuple[object, int | None]] = []
        for i, (parameter, value) in enumerate(zip(self.parameters, values, strict=True)):
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                placed += [(part, i + k) for k, part in enumerate(value)]
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                # JAX sorts the keys of a dict when it flattens one.
                placed += [(value[name], count + names.index(name)) for name in sorted(value)]
            elif i < count and parameter.kind in _POSITIONAL:
                placed.append((value, i))
            else:
                is_named = parameter.name in names
                if is_named and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
                    placed.append((value, count + names.index(parameter.name)))
                else:
                    placed.append((value, None))

        return placed

    def arguments(self, values: tuple[object, ...]) -> Iterator[tuple[str, object]]:
        """Names and values of all arguments, those of `*args` and `**kwargs` one by one, unless
        they are static as a whole.
        """
        for parameter, value in zip(self.parameters, values, strict=True):
            if isinstance(value, Opaque):
                yield parameter.name, value
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                parts = cast("tuple[object, ...]", value)
                yield from ((parameter.name, part) for part in parts)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                yield from cast("dict[str, object]", value).items()
            else:
                yield parameter.name, value

    def values_by_name(self, values: tuple[object, ...]) -> dict[str, object]:
        """Values in normal form by parameter name."""
        names = [parameter.name for parameter in self.parameters]
        return dict(zip(names, values, strict=True))


_classmethod: Any = classmethod


class ClassBound(_classmethod):
    """Class method over a compiled program; read from the class, it gives the program bound to the
    class.

    Since Python 3.13 a plain `classmethod` gives a bound method, through which `Model.fit.grad`
    would find the unbound program.
    """

    def __get__(self, instance: object, owner: object = None, /) -> object:
        program = self.__func__
        return program.__get__(type(instance) if owner is None else owner, None)


def around_method(
    fn: object,
    decorate: Callable[[Callable[..., object]], Callable[..., object]],
) -> object:
    """Decorate the function inside a static or class method, and wrap the result the same way. None
    if `fn` is neither.
    """
    if isinstance(fn, staticmethod):
        return staticmethod(decorate(fn.__func__))
    if isinstance(fn, classmethod):
        return ClassBound(decorate(fn.__func__))
    return None
