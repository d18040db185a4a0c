"""JAX's functions of pytrees and dtypes, with the types that JAX leaves out, and what JAX has no
function for. JAX's own are the same function objects, so a call costs nothing extra.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer as Tracer
from jax.extend.core import primitives

from .typed import DType

Path = tuple[Any, ...]
tree_flatten: Callable[[Any], tuple[list[Any], Hashable]] = jax.tree_util.tree_flatten
tree_flatten_with_path: Callable[[Any], tuple[list[tuple[Path, Any]], Hashable]] = (
    jax.tree_util.tree_flatten_with_path
)
tree_unflatten: Callable[[Any, Iterable[Any]], Any] = jax.tree_util.tree_unflatten
tree_map: Callable[..., Any] = jax.tree_util.tree_map
keystr: Callable[[Path], str] = jax.tree_util.keystr
register_pytree_node: Callable[
    [type, Callable[[Any], tuple[Any, Hashable]], Callable[[Any, Any], Any]], None
] = jax.tree_util.register_pytree_node
is_node: Callable[[type], bool] = jax.tree_util.default_registry.is_node
"""Return whether a class is an inner node of JAX's pytrees: registered, a named tuple, or one of
Python's own containers.
"""
device_put: Callable[..., Any] = jax.device_put
issubdtype: Callable[[Any, Any], bool] = getattr(jax.dtypes, "issubdtype")  # noqa: B009
extended: Any = jax.dtypes.extended
_usual: Any = object.__getattribute__
_convert: Any = primitives.convert_element_type_p


_WIDE = 8
"""Bytes of the types that JAX narrows where it has no numbers of 64 bits."""


def canonicalize_dtype(dtype: Any) -> Any:
    """Return the dtype that JAX has for a dtype, or for a type of Python's numbers."""
    # These are what they are, which JAX takes longer to say.
    if isinstance(dtype, np.dtype) and dtype.itemsize < _WIDE:
        return dtype
    return jax.dtypes.canonicalize_dtype(dtype)


def set_weak_type(
    x: Any,
    *,
    is_weak: bool,
    dtype: object = None,
) -> Any:
    """Give a result the weak type, and the dtype if one is given, of the user's program.

    Padded arrays and chunks are strongly typed, and so is whatever is computed from them; so are
    stacked values, carries, and the results of exported programs.
    """
    if not hasattr(x, "dtype"):
        # A result that is a literal of its program is a number of Python's.
        x = jnp.asarray(x)
    is_typed = getattr(x, "weak_type", False) == is_weak
    if dtype is None:
        dtype = x.dtype
        is_typed = is_typed or dtype != canonicalize_dtype(dtype)
    if is_typed and x.dtype == dtype:
        return x
    return _convert.bind(
        x,
        new_dtype=dtype,
        weak_type=is_weak,
        sharding=None,
    )


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that is stored in a value or its class, such as `__qualname__`.

    A `__getattr__` is not called: it may answer to every name, or raise `KeyError`, as that of a
    dict with attribute access does.
    """
    try:
        return _usual(value, name)
    except AttributeError:
        # a bound method forwards attributes to its function, past `object.__getattribute__`
        return getattr(value, name, default) if isinstance(value, types.MethodType) else default


def is_module(value: object) -> bool:
    """Return whether a value is a module of Equinox, without narrowing its type for the branches
    that follow.
    """
    return isinstance(value, eqx.Module)


def is_number(value: object) -> bool:
    """Return whether a value is a real number of Python or NumPy, and not a bool."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_of_numbers(dtype: DType) -> bool:
    """Return whether JAX can compute with a dtype of NumPy: not text, objects, times, records or
    raw bytes, nothing above 64 bits (complex: 128), and only native byte order.
    """
    wide = dtype.kind in "fc" and dtype.itemsize > (16 if dtype.kind == "c" else 8)
    return not wide and dtype.isnative and (issubdtype(dtype, np.number) or dtype == np.bool_)


def is_key(value: object) -> bool:
    """Return whether a value is an array of random keys, whose extended dtype NumPy does not
    have.
    """
    if not isinstance(value, jax.Array) or isinstance(value.dtype, np.dtype):
        return False
    return issubdtype(value.dtype, jax.dtypes.prng_key)


def words_of_keys(keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the words of random keys as a NumPy array, inside of a trace too, where `key_data` of
    a concrete array would be staged.
    """
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.key_data(keys))


def is_whole(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


Structure: Any = jax.tree_util.PyTreeDef


def aux_data(structure: Hashable) -> list[Any]:
    """Return the static data of a tree structure: keys of dicts, static fields of modules, and
    other auxiliary data of each node that has any, inner nodes first. That of a named tuple is its
    class.

    JAX's public functions show it node by node, which a call with a new module would pay for at
    each node. The pickled state of a `PyTreeDef` has all nodes at once, in a tenth of the time, but
    its form is not documented (jax 0.10.0 to 0.12): a test compares the two ways.
    """
    known: Any = structure
    # The state of a node is (kind, arity, auxiliary data, registered class, leaves, nodes).
    return [
        held
        for _, _, held, kind, *_ in known.__getstate__()[1]
        if held is not None and (kind is not None or type(held) is list)
    ]


def beside_leaves_by_node(structure: Hashable) -> list[Any]:
    """Compute the same by JAX's documented functions."""
    known: Any = structure
    held = [part for child in known.children() for part in beside_leaves_by_node(child)]
    node = known.node_data()
    return held if node is None or node[1] is None else [*held, node[1]]
