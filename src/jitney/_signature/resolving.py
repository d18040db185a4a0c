"""Annotations of functions and classes as written, and their resolution: names in strings are
looked up in the scope where the string was written.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Mapping

import equinox as eqx
import jax

from .._values.attributes import closure_variables


class _WithMethod(eqx.Module):
    def method(self) -> None: ...


# Equinox has its own type for bound methods.
_BOUND: tuple[type, ...] = (types.MethodType, type(_WithMethod().method))
_jitted = (jax.jit(len), eqx.filter_jit(len))
_look_through = {*map(type, _jitted), jax.custom_jvp, jax.custom_vjp}
# Under EQX_ON_ERROR=breakpoint Equinox turns the result of `jax.jit` into a plain function with
# `__wrapped__`. Plain functions have that for other reasons too, so their type is left out.
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


def resolved_fields(cls: type) -> dict[str, object]:
    """Annotations of the fields of a class, inherited ones included, each resolved in the scope of
    the class that declares it.
    """
    hints: dict[str, object] = {}
    for owner in reversed(cls.__mro__):
        module = sys.modules.get(owner.__module__)
        for name, raw in raw_annotations(owner).items():
            try:
                # An object that stands in for a module may have no namespace: a TypeError.
                namespace = vars(module) if module else {}
                hints[name] = resolve(raw, namespace, {**vars(owner), owner.__name__: owner})
            except UNRESOLVED:
                hints[name] = raw

    if not dataclasses.is_dataclass(cls):
        return hints
    names = [field.name for field in dataclasses.fields(cls)]
    # A field without an annotation may hold any object.
    return {name: hints.get(name, object) for name in names}


def resolve(
    raw: object,
    globalns: dict[str, object],
    localns: Mapping[str, object],
) -> object:
    """Look up the names in an annotation. Raises one of `UNRESOLVED` if a name is missing."""

    # `typing.get_type_hints` takes an object with annotations, not a single annotation.
    def holder() -> None: ...

    holder.__annotations__ = {"value": raw}
    return typing.get_type_hints(holder, globalns, dict(localns), include_extras=True)["value"]


def raw_annotations(obj: object) -> Mapping[str, object]:
    """Annotations as written, some of them strings."""
    # On Python 3.14 annotations are lazy: names that are missing become ForwardRefs.
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(obj, format=annotationlib.Format.FORWARDREF)
    if isinstance(obj, type) or callable(obj):
        return inspect.get_annotations(obj)
    return {}


def innermost(fn: object) -> tuple[object, type | None]:
    """Function whose annotations count, below partials, bound methods, wrappers, instances and
    classes; and the class that it is a method of, or None.
    """
    owner: type | None = None
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


def rewrites(fn: object) -> bool:
    """Return whether a callable is `jax.grad(f)`, `eqx.filter_vmap(f)` or the like, which show the
    signature of `f` but have another.
    """
    if not hasattr(fn, "__wrapped__") or isinstance(fn, (*_BOUND, *_LOOK_THROUGH)):
        return False
    home = fn.__class__.__module__
    if isinstance(fn, types.FunctionType):
        home = fn.__globals__.get("__name__", "")
    return home.partition(".")[0] in ("jax", "jaxlib", "equinox")


def closure_of(fn: object) -> dict[str, object]:
    """Names that a function sees besides those of its module: type parameters and closed-over
    variables.
    """
    names = {str(param): param for param in getattr(fn, "__type_params__", ())}
    if isinstance(fn, types.FunctionType):
        names.update(closure_variables(fn))
    return names


def class_scope(fn: object, owner: type | None) -> dict[str, object]:
    """Names that the annotations of a method see: those of its class body, and the class itself."""
    path = getattr(fn, "__qualname__", "").split(".")[:-1]
    scope: object = None

    # The defining class is the base with the qualified name of the method's enclosing scope.
    for cls in () if owner is None else owner.__mro__:
        if cls.__qualname__.split(".") == path:
            scope = cls

    # Otherwise, as for a plain function in a class body, follow the qualified name from the module.
    if scope is None and path and "<locals>" not in path:
        scope = getattr(fn, "__globals__", {}).get(path[0])
        for name in path[1:]:
            scope = getattr(scope, name, None)
    if not isinstance(scope, type):
        return {}
    params = {str(param): param for param in getattr(scope, "__type_params__", ())}

    # A class attribute called like a builtin (`list`, `type`) would shadow it in annotations.
    body = {name: value for name, value in vars(scope).items() if not hasattr(builtins, name)}
    return {
        **params,
        **body,
        scope.__name__: scope,
    }
