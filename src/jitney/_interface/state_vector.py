"""Conversion between the fields of a module and one vector, with a single split or concatenation,
and with shapes from annotations where there is no instance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .._contract.sizes import Unknown, evaluate
from .._errors import StateError
from .._jax.trees import (
    Path,
    issubdtype,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from .._jax.typed import Array
from .._owners import public
from .._signature.annotations import fields_of
from .._signature.hints import ArrayHint, Hint, ScalarHint

S = TypeVar("S")
Shape = tuple[int, ...]


def core_leaves(state: object) -> list[tuple[Path, Array]]:
    """Return path and array of each leaf.

    Raises:
        StateError: The leaves are not floating-point arrays of one dtype.
    """
    cls = type(state).__name__
    leaves = tree_flatten_with_path(state)[0]
    own_dtypes = (leaf.dtype for _, leaf in leaves if hasattr(leaf, "dtype"))
    default = next(own_dtypes, None) or jnp.result_type(float)
    leaves = [
        (path, np.asarray(leaf, default) if isinstance(leaf, float) else leaf)
        for path, leaf in leaves
    ]
    for path, leaf in leaves:
        if not hasattr(leaf, "dtype") or not issubdtype(leaf.dtype, np.inexact):
            what = f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)
            raise StateError(
                f"{cls}{keystr(path)}",
                f"it is {what}.",
                "The core fields of a state are floating-point arrays.",
                "make it an array of floats, or mark the field with eqx.field(static=True).",
                code="J310",
            )
    dtypes = {str(leaf.dtype): keystr(path) for path, leaf in leaves}
    if len(dtypes) > 1:
        listed = ", ".join(f"{dtype} ({path.removeprefix('.')})" for dtype, path in dtypes.items())
        raise StateError(
            cls,
            f"its fields have several dtypes: {listed}.",
            "One vector has one dtype.",
            "convert the fields to one dtype.",
            code="J310",
        )
    return leaves


def _runs(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """Return start and stop of each piece of the vector; adjacent scalars are one piece."""
    runs: list[tuple[int, int]] = []
    for i, shape in enumerate(shapes):
        start = runs[-1][0] if runs else i
        if not shape and start < i and not shapes[start]:
            runs[-1] = (start, i + 1)
        else:
            runs.append((i, i + 1))
    return runs


def join_leaves(leaves: Sequence[Array]) -> Array:
    """Return the arrays as one vector. NumPy arrays give a NumPy array, in memory of its own."""
    xp = np if all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves) else jnp
    dtype = leaves[0].dtype if leaves else jnp.result_type(float)
    leaves = [leaf for leaf in leaves if leaf.size]

    # One operation for each piece: a stack of scalars, or a reshape.
    pieces: list[Array] = []
    for start, stop in _runs([leaf.shape for leaf in leaves]):
        one = leaves[start]
        if stop > start + 1:
            pieces.append(xp.stack(leaves[start:stop]))
        elif one.ndim == 1:
            pieces.append(one)
        else:
            pieces.append(xp.reshape(one, (-1,)))
    if not pieces:
        return np.zeros(0, dtype)
    return pieces[0] if len(pieces) == 1 and xp is jnp else xp.concatenate(pieces)


def _split(vector: Array, shapes: Sequence[Shape]) -> list[Array]:
    # jax 0.10.2 on CPUs: XLA crashes on an empty piece after others, so empty fields are split off
    # here.
    full = [shape for shape in shapes if math.prod(shape)]
    xp = np if isinstance(vector, np.ndarray) else jnp
    fields: list[Array] = []
    if len(full) < len(shapes):
        parts = iter(_split(vector, full))
        for shape in shapes:
            is_empty = math.prod(shape) == 0
            fields.append(xp.zeros(shape, vector.dtype) if is_empty else next(parts))
        return fields

    # The pieces, in one split.
    runs = _runs(shapes)
    sizes = [math.prod(shape) for shape in shapes]
    lengths = [sum(sizes[start:stop]) for start, stop in runs]
    if isinstance(vector, np.ndarray):
        pieces = np.split(vector, np.cumsum(lengths)[:-1]) if runs else []
    elif len(runs) > 1:
        pieces = jax.lax.split(vector, lengths)
    else:
        pieces = [vector][: len(runs)]

    # Then the scalars of each stacked piece.
    for (start, stop), piece in zip(runs, pieces, strict=True):
        if stop == start + 1:
            shape = shapes[start]
            fields.append(piece if shape == piece.shape else piece.reshape(shape))
        elif isinstance(piece, np.ndarray):
            fields += [piece[i, ...] for i in range(len(piece))]
        else:
            fields += jnp.unstack(piece)
    return fields


@public
def like(state: S, vector: object) -> S:
    """Return a state with the shapes of another one, from a vector."""
    leaves = core_leaves(state)
    shapes = [leaf.shape for _, leaf in leaves]
    is_complex = any(np.iscomplexobj(leaf) for _, leaf in leaves)
    kind = np.inexact if is_complex else np.floating

    length = sum(map(math.prod, shapes))
    array = _vector(type(state), vector, length, kind)
    parts = _split(array, shapes)
    treedef = tree_flatten(state)[1]
    return tree_unflatten(treedef, parts)


@public
def from_vector(
    cls: type[S],
    vector: object,
    *,
    sizes: Mapping[str, int] | None = None,
) -> S:
    """Return a state from a vector and the annotations of its class."""
    hints = fields_of(cls)
    static = _static_names(cls)
    dims = {name: _dims(cls, name, hint) for name, hint in hints.items() if name not in static}
    if sizes is not None and not isinstance(sizes, Mapping):
        rule = "Sizes are given by names of axes."
        raise StateError(
            f"{cls.__name__}.of()", f"sizes={sizes!r}.", rule, 'write sizes={"k": 3}.', code="J310"
        )

    # One unknown size follows from the length of the vector.
    known = dict(sizes or {})
    axes = {name for hint in dims.values() for name in (*hint.names, *hint.mentions)}
    unknown = sorted(axes - set(known))
    if len(unknown) == 1:
        known[unknown[0]] = _solve_size(cls, dims, known, unknown[0], vector)
    elif unknown:
        raise StateError(
            f"{cls.__name__}.of()",
            f"the sizes of {', '.join(map(repr, unknown))} are not known.",
            "One unknown size follows from the length of the vector.",
            f"pass sizes={{{unknown[0]!r}: ...}}, or use an instance.",
            code="J310",
        )

    shapes = [_shape(cls, hint, known) for hint in dims.values()]
    kind = np.inexact if any(map(_may_be_complex, hints.values())) else np.floating
    length = sum(map(math.prod, shapes))
    array = _vector(cls, vector, length, kind)
    fields = dict(zip(dims, _split(array, shapes), strict=True))

    make: Callable[..., S] = cls
    return make(**fields)


def _may_be_complex(hint: object) -> bool:
    """Return whether the annotation of a field admits complex numbers."""
    if isinstance(hint, ScalarHint):
        return hint.kind == "complex"
    return isinstance(hint, ArrayHint) and (
        hint.dtypes is None or any("complex" in str(dtype) for dtype in hint.dtypes)
    )


def _vector(
    cls: type,
    vector: object,
    length: int,
    kind: type[np.generic],
) -> Array:
    """Return a vector of this length and kind of floats, as an array."""
    try:
        # A copy, as the owner may write to it: SciPy hands out the same vector at each step.
        if isinstance(vector, np.ndarray):
            array = np.array(vector)
        elif isinstance(vector, jax.Array):
            array = vector
        else:
            array = np.asarray(vector, jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise _no_vector(cls, f"a {type(vector).__name__} is not a vector: {error}") from None
    if not issubdtype(array.dtype, kind):
        raise _no_vector(cls, f"the vector is {array.dtype}")
    if array.shape != (length,):
        raise StateError(
            f"{cls.__name__}.of()",
            f"the vector has shape {tuple(array.shape)}, and the fields take {length} elements.",
            "A state is made of one vector that fits.",
            f"pass a vector of length {length}.",
            code="J310",
        )
    return array


def _no_vector(cls: type, what: str) -> StateError:
    return StateError(
        f"{cls.__name__}.of()",
        f"{what}.",
        "A state is made of one vector of floating-point numbers.",
        "pass vector.astype(float).",
        code="J310",
    )


def _static_names(cls: type) -> set[str]:
    static = {item.name for item in dataclasses.fields(cls) if item.metadata.get("static", False)}
    without = [
        item.name
        for item in dataclasses.fields(cls)
        if item.name in static and not _has_default(item)
    ]
    if without:
        raise _needs_instance(cls, without[0], "is static and has no default")
    return static


def _has_default(item: dataclasses.Field[object]) -> bool:
    return (
        item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
    )


def _dims(cls: type, name: str, hint: Hint) -> ArrayHint:
    if isinstance(hint, ScalarHint):
        return ArrayHint((), None, "float")
    if not isinstance(hint, ArrayHint) or hint.rank is None:
        raise _needs_instance(cls, name, f"is annotated {hint.text}, which does not give a shape")
    return hint


def _needs_instance(cls: type, name: str, what: str) -> StateError:
    return StateError(
        f"{cls.__name__}.of()",
        f"{name!r} {what}.",
        "Without an instance the fields come from their annotations.",
        "take the shapes from an instance: state.of(vector).",
        code="J310",
    )


def _shape(cls: type, hint: ArrayHint, sizes: Mapping[str, int]) -> Shape:
    shape: list[int] = []
    for dim in hint.dims:
        expr = dim.expr or dim.name or "?"
        size = dim.size if dim.kind == "fixed" else evaluate(expr, sizes, {})
        if isinstance(size, Unknown) or not isinstance(size, int):
            raise _needs_instance(cls, dim.text, f"in {hint.text} has no size")
        shape.append(size)
    return tuple(shape)


def _solve_size(
    cls: type,
    dims: Mapping[str, ArrayHint],
    known: Mapping[str, int],
    name: str,
    vector: Any,
) -> int:
    """Return the size at which the fields are as long as the vector, by bisection: the length grows
    with the size.
    """
    wanted = math.prod(getattr(vector, "shape", np.shape(vector)))

    def length(size: int) -> int:
        shapes = [_shape(cls, hint, {**known, name: size}) for hint in dims.values()]
        return sum(map(math.prod, shapes))

    low, high = 0, wanted + 1
    while low < high:
        middle = (low + high) // 2
        if length(middle) < wanted:
            low = middle + 1
        else:
            high = middle

    if length(low) != wanted:
        raise StateError(
            f"{cls.__name__}.of()",
            f"no size of {name!r} makes the fields {wanted} elements long.",
            "A state is made of one vector that fits.",
            f"pass a vector that fits, such as one of {length(low)} elements.",
            code="J310",
        )
    return low
