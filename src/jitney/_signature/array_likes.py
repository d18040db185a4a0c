"""What looks like an array and is none: a data set of an open file, a table, another library's
tensor, an array with a mask or a unit.

What is no array is static, so its numbers would become part of the program, and those that the file
has later would never be seen. And of a NumPy array whose class means more than its numbers, JAX
takes the numbers alone. Both are refused wherever arguments hold them. The rule asks for no library
by name: it asks whether a value offers its numbers to NumPy or to JAX.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from .._errors import ContractError, Where
from .._jax.trees import is_a, is_node, type_of
from .._owners import owner_of_class
from .plain_objects import is_plain, parts_of
from .static_values import PLAIN

_PROTOCOLS = (
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__cuda_array_interface__",
    "__dlpack__",
    "__jax_array__",
)
_ARRAYS = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
_OF_JAX = ("jax", "jaxlib", "equinox")  # references and abstract arrays
_MEANINGS = ("__array_finalize__", "__array_ufunc__", "__array_function__", "__array_wrap__")
_PLAIN_NUMBERS = (np.ndarray, np.memmap, np.matrix)


def looks_like_array(value: Any) -> bool:
    """Whether a value that is no array of JAX's or NumPy's, and no node of a tree, offers its
    numbers as one.

    Objects that have no more than a shape and a dtype may be a description of an array. They pass
    where they are equal by value, and where they are of a class of the user's own that cannot be
    indexed.
    """
    kind = type_of(value)
    if (
        kind in PLAIN
        or is_a(value, (type, *_ARRAYS))
        or is_node(kind)
        or owner_of_class(kind) in _OF_JAX
    ):
        return False
    if any(hasattr(kind, name) for name in _PROTOCOLS):
        return True
    if not (_has(value, "shape") and _has(value, "dtype")) or kind.__hash__ is None:
        return False
    by_identity = kind.__hash__ is object.__hash__
    return by_identity and (
        hasattr(kind, "__getitem__") or not (is_plain(kind) and owner_of_class(kind) == "user")
    )


def _has(value: Any, name: str) -> bool:
    """Whether a name is in a value or its class; a property is not run."""
    return inspect.getattr_static(value, name, None) is not None


def means_more(kind: type[Any]) -> bool:
    """Whether arrays of a subclass of NumPy's are more than their numbers: a mask, a unit, fields
    by name.
    """
    if kind in _PLAIN_NUMBERS or not issubclass(kind, np.ndarray):
        return False
    bases = kind.__mro__[: kind.__mro__.index(np.ndarray)]
    return any(
        name in vars(base) for base in bases if base not in _PLAIN_NUMBERS for name in _MEANINGS
    )


def array_likes(value: Any, seen: tuple[int, ...] = ()) -> Iterator[Any]:
    """What looks like an array in a static value."""
    if looks_like_array(value):
        yield value
    elif id(value) not in seen and type_of(value) not in PLAIN and not is_plain(type_of(value)):
        for part in parts_of(value):
            yield from array_likes(part, (*seen, id(value)))


def a_kind(value: Any) -> str:
    """Its class, with the article."""
    kind = type_of(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").rpartition(
        "<locals>."
    )[2]
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def array_like_error(where: Where, what: str, value: Any, name: str) -> ContractError:
    """That something, "'x' is", is such a value."""
    return ContractError(
        where,
        f"{what} {a_kind(value)}, which looks like an array and is none.",
        "What is no array of JAX's or NumPy's is static: its numbers would stay what they were when"
        " it was traced.",
        f"{numbers_of(value, name)}; if it holds no data, name its argument in `static`.",
        code="J213",
    )


def numbers_of(value: Any, name: str) -> str:
    """What to pass in place of such a value."""
    kind = type_of(value)
    if is_a(value, np.ma.MaskedArray):
        return f"pass `{name}.filled(...)`, or `{name}.data` and `{name}.mask` as two arguments"
    if is_a(value, np.ndarray):
        return f"pass `np.asarray({name})`, its numbers alone"
    if hasattr(kind, "to_numpy"):
        return f"pass `{name}.to_numpy()`"
    if hasattr(kind, "__getitem__") and not hasattr(kind, "__dlpack__"):
        return f"pass `{name}[:]`, which reads it"
    return f"pass `jnp.asarray({name})`"
