"""Remedies against a new trace or compile, by the difference between two calls.

A remedy is a line to paste, and true: `tests/diagnosis/test_catalogue.py` applies each, and counts
fewer compiles. An empty remedy means that nothing helps, or that a later step proves one that may
(`_program/advice/`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._errors import repr_of
from ..._host.switches import OF_PROGRAMS
from ..._jax.trees import extended, issubdtype
from ..._signature.options import Options
from ..._values.identity import kind_of
from ..._view.view import Leaf


@dataclass(frozen=True)
class AuthorContext:
    """Axes of the signature, and options that the author has written."""

    axes: tuple[str, ...]
    options: Options
    positions: tuple[str, ...] = ()
    """Arguments that jitney treats as static, for the structure of a sparse derivative."""

    def can_pad(self, axis: str) -> bool:
        """Return whether `pad` accepts the axis."""
        return axis in self.axes or axis in [mapped.name for mapped in self.options.vmap]


def for_size(
    asked: AuthorContext,
    leaf: Leaf,
    axis: str,
    old: int,
    new: int,
) -> str:
    """Remedy for a named axis whose size differs; empty if buckets may help, which is proven
    later.
    """
    if min(old, new) < 2:
        return (
            f"sizes 0 and 1 of {axis!r} are never padded; leave such calls out, or repeat the"
            " element and weigh it"
        )
    if not asked.can_pad(axis):
        return (
            f"annotate {leaf.argument!r} with {axis!r} as well, or keep the size of {leaf.path!r};"
            " it is part of the program"
        )
    return ""


def for_shape(leaf: Leaf, old: Sequence[int], new: Sequence[int]) -> str:
    """Remedy for a shape without names of axes; empty if names and buckets may help, which is
    proven later.
    """
    if len(old) != len(new):
        return f"pass {leaf.path!r} with as many axes in each call"
    if leaf.path != leaf.argument:
        return f"keep the shape of {leaf.path!r}; it is part of the program"
    return ""


def for_dtype(leaf: Leaf, old: object, new: object) -> str:
    """Remedy for another dtype: the wider of the two."""
    if issubdtype(old, extended) or issubdtype(new, extended):
        return (
            f"make the keys of {leaf.path!r} with one implementation: jax.random.key(seed,"
            " impl=...)"
        )
    return _suggest_cast(leaf, max(old, new, key=_width))


_ORDER = (np.bool_, np.integer, np.floating, np.complexfloating)


def _width(dtype: Any) -> tuple[int, int]:
    return (
        max(
            i
            for i, kind in enumerate((object, *_ORDER))
            if kind is object or issubdtype(dtype, kind)
        ),
        dtype.itemsize,
    )


def _suggest_cast(leaf: Leaf, dtype: object) -> str:
    name = "bool_" if str(dtype) == "bool" else str(dtype)
    maker = "np" if hasattr(np, name) else "jnp"
    if leaf.path != leaf.argument:
        return f"make {leaf.path!r} as {maker}.asarray(..., {maker}.{name})"
    return f"{leaf.path} = {maker}.asarray({leaf.path}, {maker}.{name}), where it is made"


def for_weak_type(leaf: Leaf) -> str:
    """Remedy for a Python number in one call and an array in another."""
    if leaf.path != leaf.argument:
        return f"make {leaf.path!r} as jnp.asarray(..., jnp.{leaf.dtype})"
    return f"{leaf.path} = jnp.asarray({leaf.path}, jnp.{leaf.dtype})"


def for_attribute(path: str) -> str:
    """Remedy for an attribute of a static object."""
    return (
        f"make {path!r} an argument, as an array, or keep its value: what the body reads of an"
        " object is part of the program"
    )


def for_positions(argument: str) -> str:
    """Remedy for positions of a sparse derivative that change from call to call."""
    return (
        f"each structure has a program: keep {argument!r} for many calls, or leave out `sparse`,"
        " which takes them as they come"
    )


def for_static(
    asked: AuthorContext,
    path: str,
    argument: str,
    old: Any,
    new: Any,
) -> str:
    """Remedy for a static value; empty for a number that may be an array, which is proven later."""
    if argument in asked.positions:
        return for_positions(argument)
    listed = argument in asked.options.static
    out_of = f"take {argument!r} out of `static`, and " if listed else ""
    both = (old, new)
    if any(isinstance(value, enum.Enum) for value in both):
        return (
            f"each member of {type(new).__name__} has a program; pass the one that is meant, or"
            " branch on an array with jax.lax.switch"
        )
    # Before numbers: `bool` is a subclass of `int`.
    if all(isinstance(value, bool) for value in both):
        return (
            f'{out_of}annotate {argument}: Bool[Array, ""], pass an array, and choose with'
            " jnp.where"
        )
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in both):
        return (
            ""
            if path == argument
            else f"pass an array in place of {path!r}, if the body does not need it as a number"
        )
    if all(isinstance(value, (str, bytes, type)) for value in both):
        return (
            f"each value of {path!r} has a program; pass what the numbers depend on, and keep names"
            " outside"
        )
    if all(isinstance(value, (list, tuple, set, frozenset)) for value in both):
        if any(callable(part) for value in both for part in value):
            return (
                f"each choice of functions has a program; make those of {path!r} once, outside of"
                " the loop, and pass them"
            )
        return f"{out_of}pass {path!r} as an array"
    if listed and all(isinstance(value, (np.ndarray, jax.Array)) for value in both):
        return f"take {argument!r} out of `static`: arrays are traced"
    if all(any("__call__" in vars(base) for base in kind_of(value).__mro__) for value in both):
        return (
            "each function has a program; choose between them inside with jax.lax.switch if"
            f" {path!r} varies often"
        )
    # The default `repr`: an object without fields to compare, which is equal to itself only.
    if "object at 0x" in repr_of(new):
        return (
            f"pass the same {kind_of(new).__name__} each time, or make its class a frozen"
            " dataclass, which is compared by its fields"
        )
    return f"pass {path!r} as arrays, or the same value each time"


def for_function_argument(path: str, changed: Sequence[str]) -> str:
    """Remedy for a function argument that is created anew for each call, around other values or
    not.
    """
    if changed:
        return (
            f"hoist {path!r}: make it once, and pass {', '.join(map(repr, changed))} as an argument"
            " of its own, an array"
        )
    return (
        f"hoist {path!r}: make the lambda, closure or partial once, outside of the loop, and pass"
        " that"
    )


def for_number_or_array(leaf_path: str, argument: str) -> str:
    """Remedy for an argument that is an array in one call and static in another."""
    if leaf_path == argument:
        return (
            f'annotate {argument}: Float[Array, ""], and pass an array each time:'
            f" jnp.asarray({argument})"
        )
    return f"pass {leaf_path!r} as an array each time"


def for_structure(
    come: Sequence[str],
    gone: Sequence[str],
    argument: str,
) -> str:
    """Remedy for leaves that are present in one call and absent in another."""
    if not come and not gone:
        return f"pass {argument!r} as the same container each time"
    if argument in (*come, *gone):
        if come and gone:
            return f"pass {argument!r} with parts of the same types each time"
        return f"pass {argument!r} in each call: an array that changes nothing in place of None"
    which = ", ".join(repr(path) for path in [*come, *gone][:3])
    return f"pass {which} in each call, or in none"


def for_setting(name: str, value: object) -> str:
    """Remedy for a setting of JAX, or of jitney."""
    if name in OF_PROGRAMS:
        return f"jitney.configure({name}=...), once, before the first call"
    if name == "jax_default_device" and value is not None:
        return "jax.config.update('jax_default_device', ...), once, before the first call"
    return f"jax.config.update({name!r}, {value!r}), once, before the first call"


def for_placement(path: str, *, committed: bool) -> str:
    """Remedy for an array on another device, or with another sharding."""
    if committed:
        return (
            f"put {path!r} on its device in each call or in none: {path} = jax.device_put({path},"
            " jax.devices()[0])"
        )
    return (
        f"{path} = jax.device_put({path}, sharding), once, before the loop, with the same sharding"
        " for each call"
    )


MESH = "enter one mesh around all calls, or give it to the decorator: mesh=mesh"
OUTER = (
    "call it in one way: by itself, or within the outer transform; jitney.optimize takes the place"
    " of an outer `jit`"
)
CLEARED = "do not call clear_cache() between calls"
JAX_CLEARED = "do not call jax.clear_caches() between calls"
FULL = "fewer static values: pass what varies as an array"


def for_hoisting(name: str, changed: Sequence[str]) -> str:
    """Remedy for a decorated function that was created anew."""
    if changed:
        return (
            f"pass {', '.join(map(repr, changed))} as an argument, and hoist {name}: decorate it"
            " once, at module level"
        )
    return f"hoist {name}: decorate it once, at module level, and call that"
