"""What was written as an annotation, on functions and in classes, with names that stand in strings
looked up where they were written.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax


class _Probe(eqx.Module):
    def method(self) -> None: ...


# Equinox has a type of its own for bound methods
_BOUND: tuple[type, ...] = (types.MethodType, type(_Probe().method))
_jitted: Any = (jax.jit(len), eqx.filter_jit(len))  # pyright: ignore[reportUnknownMemberType]
_look_through = {*map(type, _jitted), jax.custom_jvp, jax.custom_vjp}
# Under EQX_ON_ERROR=breakpoint Equinox makes a plain function of `jax.jit`'s result, with
# `__wrapped__` as others have.
_LOOK_THROUGH: tuple[type, ...] = tuple(_look_through - {types.FunctionType})
UNRESOLVED = (
    NameError,
    AttributeError,
    TypeError,
    ValueError,
    SyntaxError,
    LookupError,
    ImportError,
)


def resolved_fields(cls: type) -> dict[str, Any]:
    """The annotations of the fields of a class, inherited ones too, each looked up where it was
    written.
    """
    hints: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        module = sys.modules.get(owner.__module__)
        for name, raw in raw_annotations(owner).items():
            try:
                hints[name] = resolve(
                    raw, vars(module) if module else {}, {**vars(owner), owner.__name__: owner}
                )
            except UNRESOLVED:
                hints[name] = raw
    if not dataclasses.is_dataclass(cls):
        return hints
    return {item.name: hints.get(item.name, Any) for item in dataclasses.fields(cls)}


def resolve(raw: Any, globalns: dict[str, Any], localns: Mapping[str, Any]) -> Any:
    """An annotation with the names in it looked up; raises one of `UNRESOLVED` where one is
    missing.
    """

    def holder() -> None: ...

    holder.__annotations__ = {"value": raw}
    return typing.get_type_hints(holder, globalns, dict(localns), include_extras=True)["value"]


def raw_annotations(obj: Any) -> Mapping[str, Any]:
    """As written: some are strings."""
    # annotations are lazy there: names that are missing become ForwardRefs
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(obj, format=annotationlib.Format.FORWARDREF)
    if isinstance(obj, type) or callable(obj):
        return inspect.get_annotations(obj)
    return {}


def innermost(fn: Any) -> tuple[Any, type | None]:
    """The function whose annotations count, under partial, bound methods, wrappers, instances and
    classes.
    """
    owner: Any = None
    while not rewrites(fn):
        above = fn.__class__
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, _BOUND):
            receiver, fn = getattr(fn, "__self__", None), getattr(fn, "__func__", None)
            owner = receiver if isinstance(receiver, type) else receiver.__class__
        elif isinstance(fn, _LOOK_THROUGH) or (
            hasattr(fn, "__wrapped__") and not hasattr(fn, "__signature__")
        ):
            fn = getattr(fn, "__wrapped__")  # noqa: B009
        elif inspect.isclass(fn):
            return fn.__init__, fn
        elif not inspect.isroutine(fn) and inspect.isroutine(
            inspect.getattr_static(above, "__call__", None)
        ):
            owner, fn = above, inspect.getattr_static(above, "__call__")
        else:
            break
    return fn, owner


def rewrites(fn: Any) -> bool:
    """Whether this is `jax.grad(f)`, `eqx.filter_vmap(f)` or the like: they show the signature of
    `f`, but have another.
    """
    if not hasattr(fn, "__wrapped__") or isinstance(fn, (*_BOUND, *_LOOK_THROUGH)):
        return False
    home = (
        fn.__globals__.get("__name__", "")
        if isinstance(fn, types.FunctionType)
        else fn.__class__.__module__
    )
    return home.partition(".")[0] in ("jax", "jaxlib", "equinox")


def closure_of(fn: Any) -> dict[str, Any]:
    """Names that a function sees besides those of its module."""
    names = {str(param): param for param in getattr(fn, "__type_params__", ())}
    if isinstance(fn, types.FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell: the variable is not set yet
                names[name] = cell.cell_contents
    return names


def class_scope(fn: Any, owner: type | None) -> dict[str, Any]:
    """Names that a method's annotations see: those of its class body, and the class itself."""
    path = getattr(fn, "__qualname__", "").split(".")[:-1]
    scope: Any = None
    for cls in () if owner is None else owner.__mro__:
        if cls.__qualname__.split(".") == path:
            scope = cls
    if scope is None and path and "<locals>" not in path:
        scope = getattr(fn, "__globals__", {}).get(path[0])
        for name in path[1:]:
            scope = getattr(scope, name, None)
    if not isinstance(scope, type):
        return {}
    params = {str(param): param for param in getattr(scope, "__type_params__", ())}
    body = {name: value for name, value in vars(scope).items() if not hasattr(builtins, name)}
    return {**params, **body, scope.__name__: scope}
