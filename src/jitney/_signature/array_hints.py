"""Arrays of jaxtyping read into data: `Float[Array, "n 3"]`, and unions that stand for one array.

    Float[Array, "batch 3"]     two `Dim`s, and the dtypes of `Float`
    Float[ArrayLike, ""]        a union of `Float[Array, ""]`, `Float[ndarray, ""]`, `float` and
                                other numbers, as jaxtyping has it: read as one array

jaxtyping parses shapes in private, so `read_dim` does it again, by the same rules.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any, TypeGuard

import jax
import jaxtyping
import numpy as np

from .hints import (
    AnyHint,
    ArrayHint,
    Dim,
    Hint,
    StaticHint,
    hint_text,
)


def named_array(axes: str) -> Hint:
    """Hint of an array of any dtype with these axes, in jaxtyping's notation."""
    return read_array(jaxtyping.Shaped[jax.Array, axes])


def array_of_kind(kind: str, axes: str) -> Hint:
    """Hint of an array such as `Float[Array, "n"]`.

    Args:
        kind: jaxtyping's name for the dtypes (`Float`, `Int32`).
        axes: The axes in jaxtyping's notation.
    """
    return read_array(getattr(jaxtyping, kind)[jax.Array, axes])


def is_copied_array(hint: object) -> bool:
    """Return whether a class is a copy of `jax.Array`.

    Its name does not lead to it, so picklers that copy what they do not find by name (cloudpickle)
    copy it where a function of `__main__` is annotated with it.
    """
    return (
        isinstance(hint, type)
        and hint is not jax.Array
        and (hint.__module__, hint.__qualname__) == (jax.Array.__module__, jax.Array.__qualname__)
    )


def read_array(hint: Any) -> Hint:
    if not hasattr(hint, "dim_str"):
        return AnyHint("`AbstractArray` has no shape", is_array=True)
    array_type = jax.Array if is_copied_array(hint.array_type) else hint.array_type
    if array_type is not Any and not issubclass(
        array_type, jax.Array | np.ndarray | jax.ShapeDtypeStruct
    ):
        return AnyHint(f"`{hint_text(array_type)}` is neither a JAX nor a NumPy array")

    dims = tuple(read_dim(token) for token in hint.dim_str.split())
    # Dtypes that cannot be iterated over are jaxtyping's mark for "any dtype".
    dtypes = tuple(hint.dtypes) if hasattr(hint.dtypes, "__iter__") else None
    return ArrayHint(
        dims, dtypes, f"{hint.dtype.__name__}[{hint_text(array_type)}, '{hint.dim_str}']"
    )


def one_array(members: Sequence[object], hints: Sequence[Hint]) -> ArrayHint | None:
    """The one array hint that a union stands for, or None.

    jaxtyping expands `Float[ArrayLike, ""]` to a union of array types and number types.

    Args:
        members: The members of the union.
        hints: The hint of each.
    """
    others = _beside_numbers(members, hints)
    arrays = {hint for hint in others if isinstance(hint, ArrayHint)}
    if len(arrays) != 1 or not all(isinstance(hint, ArrayHint) for hint in others):
        return None
    array = arrays.pop()
    numbers = [member for member in members if _is_number_type(member)]

    # Number types are folded into the array only if a number can have its rank and dtypes.
    takes_rank_0 = all(dim.variadic for dim in array.dims)
    takes_numbers = takes_rank_0 and all(_number_fits(number, array) for number in numbers)
    if numbers and not takes_numbers:
        return None

    # `int | Int[Array, ""]` was not expanded from `ArrayLike`, which has NumPy's numbers too: the
    # author wrote `int`, which stays static.
    has_python = bool({int, bool} & {*numbers})
    if has_python and not _has_numbers_of_numpy(members):
        return None
    text = array.text
    if len(members) > 1:
        text = re.sub(r"\[\w+,", "[ArrayLike,", text)
    return dataclasses.replace(array, text=text, array_like=bool(numbers))


def several_arrays(members: Sequence[object], hints: Sequence[Hint]) -> list[Hint] | None:
    """The array hints of a union of several `Float[ArrayLike, ""]`, which jaxtyping expands to
    array types and number types; None for another union.

    Args:
        members: The members of the union.
        hints: The hint of each.
    """
    if not _has_numbers_of_numpy(members):
        return None
    others = _beside_numbers(members, hints)
    if not all(isinstance(hint, ArrayHint) or hint == StaticHint(None, "None") for hint in others):
        return None
    return [
        dataclasses.replace(hint, array_like=True)
        if isinstance(hint, ArrayHint) and all(dim.variadic for dim in hint.dims)
        else hint
        for hint in others
    ]


def _beside_numbers(members: Sequence[object], hints: Sequence[Hint]) -> list[Hint]:
    """The hints of the members that are not types of numbers."""
    pairs = zip(members, hints, strict=True)
    return [hint for member, hint in pairs if not _is_number_type(member)]


def _has_numbers_of_numpy(members: Sequence[object]) -> bool:
    return any(member is np.number or member is np.generic for member in members)


def _is_number_type(hint: object) -> TypeGuard[type]:
    if not isinstance(hint, type):
        return False
    return hint in (bool, int, float, complex) or issubclass(hint, np.generic)


def _number_fits(number: type, array: ArrayHint) -> bool:
    if array.dtypes is None or number not in (bool, int, float, complex):
        return True
    names = (name for name in array.dtypes if isinstance(name, str))
    return any(name.startswith(number.__name__) for name in names)


def read_dim(written: str) -> Dim:
    """Parse one token of a shape string by the rules of jaxtyping."""
    if written == "...":
        return Dim(written, "anonymous", variadic=True)

    # Marks (`#`, `*`, `_`, `?`) and a label (`rows=4`) may come in any order before the size.
    marks: set[str] = set()
    rest = written

    while rest:
        if rest[0] in "#*_?":
            marks.add(rest[0])
            rest = rest[1:]
        elif rest.count("=") == 1:
            rest = rest.split("=")[1]
        else:
            break

    marked = functools.partial(
        Dim,
        written,
        broadcast="#" in marks,
        variadic="*" in marks,
        per_leaf="?" in marks,
    )
    if "_" in marks and rest.isidentifier():
        return marked("anonymous")
    if not rest:
        return marked("anonymous")
    if rest.isidentifier():
        return marked("named", name=rest)
    try:
        return marked("fixed", size=int(rest))
    except ValueError:
        return marked("symbolic", expr=rest)
