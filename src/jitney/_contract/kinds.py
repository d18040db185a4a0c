"""Kinds of values: whether a value is of a hint's kind, its children, and its description in
messages.

It builds on `_signature/hints.py`, and `_contract/check.py`, which compares shapes and dtypes,
builds on it.
"""

from __future__ import annotations

import dataclasses
from abc import ABCMeta
from collections.abc import Hashable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Protocol, TypeGuard, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import jax.tree_util
import numpy as np

from .._errors import repr_of
from .._jax.trees import Path
from .._jax.typed import DType
from .._signature.annotations import fields_of
from .._signature.hints import (
    AnyHint,
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    TreeHint,
    UnionHint,
    dtype_name,
)
from .sizes import Mismatch

# Metaclass methods under which `isinstance` has its ordinary meaning.
_OF_CLASSES = (type.__instancecheck__, ABCMeta.__instancecheck__)


class AnyArray(Protocol):
    """Value with a shape and a dtype: an array, a tracer, or `jax.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...


Child = tuple[Hint, object, str]
"""Part of a value, with its hint and its path."""


def is_array(value: object) -> TypeGuard[AnyArray]:
    """Return whether a value has a shape and a dtype, as jaxtyping does."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_number(value: object) -> bool:
    """Return whether a value is a Python number."""
    return isinstance(value, bool | int | float | complex)


def _is_node(value: object) -> bool:
    """Return whether a value is a pytree node. A dataclass that is not registered has fields, but
    no leaves.
    """
    return not jax.tree_util.all_leaves([value])


def arrays_in(hint: Hint) -> Iterator[ArrayHint]:
    """Array annotations inside a hint, except those of module fields."""
    match hint:
        case ArrayHint():
            yield hint
        case UnionHint(options=inner) | ContainerHint(items=inner):
            for item in inner:
                yield from arrays_in(item)
        case TreeHint(leaf=leaf):
            yield from arrays_in(leaf)
        case _:
            return


def children_of(
    hint: Hint,
    value: object,
    path: str,
) -> Iterator[Child]:
    """Children of a value with their hints and paths; none if the value is of another kind than the
    hint.
    """
    match hint:
        case TreeHint(leaf=leaf):
            for keys, child in flatten_to(leaf, value)[0]:
                yield leaf, child, path + jax.tree_util.keystr(keys)
        case ContainerHint(kind=kind) if isinstance(value, kind):
            if isinstance(value, Mapping):
                yield from _entries(hint, value, path)
            else:
                yield from _items(hint, value, path)
        case ModuleHint() if _is_node(value) and dataclasses.is_dataclass(value):
            hints = fields_of(type(value))
            for item in dataclasses.fields(value):
                if not item.metadata.get("static") and hasattr(value, item.name):
                    yield hints[item.name], getattr(value, item.name), f"{path}.{item.name}"
        case _:
            return


def _items(
    hint: ContainerHint,
    value: Any,
    path: str,
) -> Iterator[Child]:
    for index, child in enumerate(value):
        if hint.variadic or index < len(hint.items):
            name = f".{hint.keys[index]}" if hint.keys else f"[{index}]"
            position = 0 if hint.variadic else index
            yield hint.items[position], child, path + name


def _entries(
    hint: ContainerHint,
    value: Mapping[object, object],
    path: str,
) -> Iterator[Child]:
    for key, child in value.items():
        if hint.variadic or key in hint.keys:
            position = 0 if hint.variadic else hint.keys.index(key)
            yield hint.items[position], child, f"{path}[{key!r}]"


def flatten_to(leaf: Hint, tree: object) -> tuple[list[tuple[Path, object]], Hashable]:
    """Flatten a tree down to values of the leaf hint's kind, whatever their shape and dtype, as
    jaxtyping does.
    """

    def stop(node: object) -> bool:
        # An `AnyHint` accepts every node, so flattening would stop at the root.
        return not isinstance(leaf, AnyHint) and accepts(leaf, node)

    return jax.tree_util.tree_flatten_with_path(tree, is_leaf=stop)


def accepts(hint: Hint, value: object) -> bool:
    """Return whether a value is of the hint's kind, ignoring shapes and dtypes."""
    match hint:
        case ArrayHint():
            return is_array(value) or (hint.array_like and is_number(value))
        case ScalarHint():
            return fit_scalar(hint, value, "") is None
        case UnionHint(options=options):
            return any(accepts(option, value) for option in options)
        case ContainerHint(kind=kind):
            return isinstance(value, kind) and all(
                accepts(inner, child) for inner, child, _ in children_of(hint, value, "")
            )
        case StaticHint(hint=wanted):
            return bearable(value, wanted) is not False
        case ModuleHint(cls=cls):
            return bearable(value, cls) is not False
        case TreeHint() | AnyHint():
            return True


def fit_scalar(
    hint: ScalarHint,
    value: Any,
    path: str,
) -> Mismatch | None:
    """Mismatch if a value is not a number of rank 0, or None."""
    rule = f"`{hint.kind}` is a number of rank 0: a Python number, or an array without axes."
    if not is_array(value):
        kinds = (int, float) if hint.kind == "float" else (int, float, complex)
        if isinstance(value, kinds) and not isinstance(value, bool):
            return None
        return Mismatch(
            f"{path!r} is {describe(value)}, not a `{hint.kind}`.",
            rule,
            f"pass a {hint.kind}.",
            "J213",
        )
    if len(value.shape) != 0:
        return Mismatch(
            f"{path!r} is {describe(value)}, not a `{hint.kind}`.",
            rule,
            f'pass a number, annotate `{suggest(value.dtype)}[Array, "..."]`, or give the extra'
            " axis to `vmap`.",
            "J211",
        )

    # An array of integers fits `float`, as a Python int does.
    kinds = (np.floating, np.integer)
    if hint.kind == "complex":
        kinds = (*kinds, np.complexfloating)
    if any(jnp.issubdtype(value.dtype, kind) for kind in kinds):
        return None
    suggestion = f'annotate `{suggest(value.dtype)}[Array, ""]`, or cast it with `.astype(...)`.'
    return Mismatch(
        f"{path!r} has dtype {dtype_text(value)}, and is annotated `{hint.kind}`.",
        rule,
        suggestion,
        "J212",
    )


def bearable(value: object, hint: Any) -> bool | None:
    """Return whether a value satisfies a hint according to beartype; None if beartype cannot read
    the hint.

    For plain classes this is `isinstance`, without beartype, whose import takes as long as tracing
    a small function.
    """
    # `isinstance` does not take None as a class.
    hint = NoneType if hint is None else hint
    if _is_plain(hint):
        return isinstance(value, hint)
    from beartype.door import is_bearable
    from beartype.roar import BeartypeException

    try:
        return is_bearable(value, hint)
    except BeartypeException:
        return None


def _is_plain(hint: object) -> bool:
    """Return whether a hint is a class (or a union of classes) that `isinstance` decides.

    A generic class also specifies its contents (in `__orig_bases__`), and a protocol overrides
    `isinstance`.
    """
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_plain, get_args(hint)))
    return (
        isinstance(hint, type)
        and type(hint).__instancecheck__ in _OF_CLASSES
        and not hasattr(hint, "__orig_bases__")
    )


def describe(value: object) -> str:
    """Short description of a value, for messages."""
    if is_array(value):
        return f"an array of dtype {dtype_text(value)} and shape {tuple(value.shape)}"
    if value is None:
        return "None"
    if is_number(value) or isinstance(value, str):
        return f"the {type(value).__name__} {repr_of(value)}"
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeio" else "a"
    return f"{article} {name}"


def with_article(kind: str) -> str:
    """Name of a type with its article, for messages."""
    article = "an" if kind[:1].lower() in ("a", "e", "i", "o") else "a"
    return f"{article} `{kind}`"


def dtype_text(value: AnyArray) -> str:
    """Name of the dtype of an array, for messages."""
    return str(value.dtype)


def wider(dtype: DType) -> DType | None:
    """The 64-bit dtype (complex: 128) that JAX converts to this one while x64 is disabled; None if
    there is none.
    """
    names = {"int32": "int64", "uint32": "uint64", "float32": "float64", "complex64": "complex128"}
    options: Any = jax.config
    name = names.get(str(dtype))
    if name is None or options.jax_enable_x64:
        return None
    return np.dtype(name)


def suggest(dtype: DType) -> str:
    """Name of a dtype in jaxtyping."""
    name = dtype_name(dtype)
    starts = {
        "bool": "Bool",
        "uint": "UInt",
        "int": "Int",
        "float": "Float",
        "bfloat": "Float",
        "complex": "Complex",
    }
    return next(
        (hint for start, hint in starts.items() if name.startswith(start)),
        "Key" if "key" in name else "Shaped",
    )
