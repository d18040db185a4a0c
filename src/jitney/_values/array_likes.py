"""Values that look like arrays but are not: a data set of an open file, a table, another library's
tensor, an array with a mask or a unit.

A value that is not an array is static, so its numbers would be compiled into the program and later
changes would be missed. From a NumPy array whose class carries more than numbers, JAX takes the
numbers alone. Both are refused wherever arguments contain them. The rule names no library: it tests
whether a value offers its numbers to NumPy or JAX by a protocol.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import jax
import numpy as np

from .._errors import ContractError, Where
from .._jax.trees import is_node
from .._owners import owner_of_class
from .kinds import children
from .mutable_objects import is_plain
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
# Packages whose references and abstract arrays are not refused.
_OF_JAX = ("jax", "jaxlib", "equinox")
_MEANINGS = ("__array_finalize__", "__array_ufunc__", "__array_function__", "__array_wrap__")
_PLAIN_NUMBERS = (np.ndarray, np.memmap, np.matrix)


def looks_like_array(value: object) -> bool:
    """Return whether a value offers its numbers as an array, but is neither an array of JAX or
    NumPy nor a node of a pytree.

    An object that has only a shape and a dtype may merely describe an array. It passes if it is
    equal by value, or if its class is the user's own and cannot be indexed.
    """
    kind = type(value)
    if (
        kind in PLAIN
        or isinstance(value, (type, *_ARRAYS))
        or is_node(kind)
        or owner_of_class(kind) in _OF_JAX
    ):
        return False

    # A protocol of arrays decides at once.
    if any(hasattr(kind, name) for name in _PROTOCOLS):
        return True

    # Without a protocol a shape and a dtype are needed. A value without a hash is left to its
    # static key.
    if not (_has(value, "shape") and _has(value, "dtype")) or kind.__hash__ is None:
        return False
    by_identity = kind.__hash__ is object.__hash__
    return by_identity and (
        hasattr(kind, "__getitem__") or not (is_plain(kind) and owner_of_class(kind) == "user")
    )


def _has(value: object, name: str) -> bool:
    """Return whether a value or its class has a name, without running properties."""
    return inspect.getattr_static(value, name, None) is not None


def means_more(kind: type[object]) -> bool:
    """Return whether a subclass of NumPy's arrays carries more than numbers: a mask, a unit, named
    fields.
    """
    if kind in _PLAIN_NUMBERS or not issubclass(kind, np.ndarray):
        return False
    bases = kind.__mro__[: kind.__mro__.index(np.ndarray)]
    return any(
        name in vars(base) for base in bases if base not in _PLAIN_NUMBERS for name in _MEANINGS
    )


def array_likes(
    value: object,
    seen: tuple[int, ...] = (),
) -> Iterator[object]:
    """Values inside a static value that look like arrays."""
    if looks_like_array(value):
        yield value
    elif id(value) not in seen and type(value) not in PLAIN and not is_plain(type(value)):
        for part in children(value):
            yield from array_likes(part, (*seen, id(value)))


def a_kind(value: object) -> str:
    """Name of a value's class, with the article."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").rpartition(
        "<locals>."
    )[2]
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def array_like_error(
    where: Where,
    what: str,
    value: object,
    name: str,
) -> ContractError:
    """Error for a value that looks like an array.

    Args:
        where: The function that refuses the value.
        what: The beginning of the sentence, such as "'x' is".
        value: The value that looks like an array.
        name: An expression for the value, which the fix mentions.
    """
    return ContractError(
        where,
        f"{what} {a_kind(value)}, which looks like an array and is not one.",
        "What is not an array of JAX's or NumPy's is static: its numbers would stay what"
        " they were when"
        " it was traced.",
        f"{numbers_of(value, name)}; if it holds no data, name its argument in `static`.",
        code="J213",
    )


def numbers_of(value: object, name: str) -> str:
    """Advice on the expression to pass in place of such a value."""
    kind = type(value)
    if isinstance(value, np.ma.MaskedArray):
        return f"pass `{name}.filled(...)`, or `{name}.data` and `{name}.mask` as two arguments"
    if isinstance(value, np.ndarray):
        return f"pass `np.asarray({name})`, its numbers alone"
    if hasattr(kind, "to_numpy"):
        return f"pass `{name}.to_numpy()`"
    if hasattr(kind, "__getitem__") and not hasattr(kind, "__dlpack__"):
        return f"pass `{name}[:]`, which reads it"
    return f"pass `jnp.asarray({name})`"
