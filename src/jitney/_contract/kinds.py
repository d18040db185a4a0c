"""A value beside a hint: whether it is of the hint's kind, what of it lies below, and how messages
name it.

It stands after `_signature/hints.py`, and before `_contract/check.py`, which compares shapes and
dtypes.
"""

from __future__ import annotations

import dataclasses
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import jax.tree_util
import numpy as np

from .._errors import repr_of
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

_jtu: Any = jax.tree_util  # parts of its types are unknown to pyright
_OF_CLASSES = (type.__instancecheck__, ABCMeta.__instancecheck__)


def is_array(value: Any) -> bool:
    """Whether a value has a shape and a dtype, as jaxtyping asks."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_number(value: Any) -> bool:
    """Whether it is a Python number."""
    return isinstance(value, bool | int | float | complex)


def _is_node(value: Any) -> bool:
    """Whether a value is a pytree node: a dataclass that is not registered has fields, but no
    leaves.
    """
    return not _jtu.all_leaves([value])


def arrays_in(hint: Hint) -> Iterator[ArrayHint]:
    """Every array annotation inside a hint, but not those of module fields."""
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


def children_of(hint: Hint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    """What lies one level below; nothing where the value is of another kind than the hint."""
    match hint:
        case TreeHint(leaf=leaf):
            for keys, child in flatten_to(leaf, value)[0]:
                yield leaf, child, path + _jtu.keystr(keys)
        case ContainerHint(kind=kind) if isinstance(value, kind):
            yield from (
                _items(hint, value, path)
                if not isinstance(value, Mapping)
                else _entries(hint, value, path)
            )
        case ModuleHint() if _is_node(value) and dataclasses.is_dataclass(value):
            hints = fields_of(type(value))
            for item in dataclasses.fields(value):
                if not item.metadata.get("static") and hasattr(value, item.name):
                    yield hints[item.name], getattr(value, item.name), f"{path}.{item.name}"
        case _:
            return


def _items(hint: ContainerHint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    for index, child in enumerate(value):
        if hint.variadic or index < len(hint.items):
            name = f".{hint.keys[index]}" if hint.keys else f"[{index}]"
            yield hint.items[0 if hint.variadic else index], child, path + name


def _entries(hint: ContainerHint, value: Any, path: str) -> Iterator[tuple[Hint, Any, str]]:
    for key, child in value.items():
        if hint.variadic or key in hint.keys:
            yield (
                hint.items[0 if hint.variadic else hint.keys.index(key)],
                child,
                f"{path}[{key!r}]",
            )


def flatten_to(leaf: Hint, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Flatten down to what the leaf hint takes, whatever its shape and dtype: that is where
    jaxtyping stops.
    """

    def stop(node: Any) -> bool:
        return not isinstance(leaf, AnyHint) and accepts(leaf, node)

    return _jtu.tree_flatten_with_path(tree, is_leaf=stop)


def accepts(hint: Hint, value: Any) -> bool:
    """Whether a value is of the right kind, shapes and dtypes apart."""
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


def fit_scalar(hint: ScalarHint, value: Any, path: str) -> Mismatch | None:
    """What keeps a value from being a number of rank 0."""
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
    kinds = (np.floating, np.integer, *((np.complexfloating,) if hint.kind == "complex" else ()))
    if any(jnp.issubdtype(value.dtype, kind) for kind in kinds):
        return None
    suggestion = f'annotate `{suggest(value.dtype)}[Array, ""]`, or cast it with `.astype(...)`.'
    return Mismatch(
        f"{path!r} has dtype {dtype_text(value)}, and is annotated `{hint.kind}`.",
        rule,
        suggestion,
        "J212",
    )


def bearable(value: Any, hint: Any) -> bool | None:
    """What beartype says; None where it cannot say. Of plain classes that is `isinstance`, and
    nothing is asked: to import beartype takes as long as tracing a small function.
    """
    hint = NoneType if hint is None else hint
    if _is_plain(hint):
        return isinstance(value, hint)
    from beartype.door import is_bearable
    from beartype.roar import BeartypeException

    try:
        return is_bearable(value, hint)
    except BeartypeException:
        return None


def _is_plain(hint: Any) -> bool:
    """Whether a hint is a class that says no more than its name, or several of these: a generic one
    says what it holds (which stands in `__orig_bases__`), a protocol asks `isinstance` in its own
    way.
    """
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_plain, get_args(hint)))
    return (
        isinstance(hint, type)
        and type(hint).__instancecheck__ in _OF_CLASSES
        and not hasattr(hint, "__orig_bases__")
    )


def describe(value: Any) -> str:
    """A value in a few words, for a message."""
    if is_array(value):
        return f"an array of dtype {dtype_text(value)} and shape {tuple(value.shape)}"
    if value is None:
        return "None"
    if is_number(value) or isinstance(value, str):
        return f"the {type(value).__name__} {repr_of(value)}"
    return f"{'an' if type(value).__name__[:1].lower() in 'aeio' else 'a'} {type(value).__name__}"


def named(kind: str) -> str:
    """A type with its article, for a message."""
    return f"{'an' if kind[:1].lower() in ('a', 'e', 'i', 'o') else 'a'} `{kind}`"


def dtype_text(value: Any) -> str:
    """Its dtype, for a message."""
    return str(value.dtype)


def wider(dtype: Any) -> np.dtype[Any] | None:
    """The dtype of 64 bits (complex: 128) that JAX takes as this one, while it has none of so
    many.
    """
    names = {"int32": "int64", "uint32": "uint64", "float32": "float64", "complex64": "complex128"}
    options: Any = jax.config
    name = names.get(str(dtype))
    return None if name is None or options.jax_enable_x64 else np.dtype(name)


def suggest(dtype: Any) -> str:
    """The jaxtyping name for a dtype."""
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
