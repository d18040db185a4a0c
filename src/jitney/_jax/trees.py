"""JAX's functions of pytrees and dtypes, with the types that JAX leaves out. They are the same
function objects, so a call costs nothing extra.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer as Tracer

_tree: Any = jax.tree_util
_dtypes: Any = jax.dtypes

Path = tuple[Any, ...]
tree_flatten: Callable[[Any], tuple[list[Any], Hashable]] = _tree.tree_flatten
tree_flatten_with_path: Callable[[Any], tuple[list[tuple[Path, Any]], Hashable]] = (
    _tree.tree_flatten_with_path
)
tree_unflatten: Callable[[Any, Iterable[Any]], Any] = _tree.tree_unflatten
tree_map: Callable[..., Any] = _tree.tree_map
keystr: Callable[[Path], str] = _tree.keystr
register_pytree_node: Callable[
    [type, Callable[[Any], tuple[Any, Hashable]], Callable[[Any, Any], Any]], None
] = _tree.register_pytree_node
is_node: Callable[[type], bool] = _tree.default_registry.is_node
"""Return whether a class is an inner node of JAX's pytrees: registered, a named tuple, or one of
Python's own containers.
"""
_jax: Any = jax
device_put: Callable[..., Any] = _jax.device_put
issubdtype: Callable[[Any, Any], bool] = _dtypes.issubdtype
canonicalize_dtype: Callable[[Any], Any] = _dtypes.canonicalize_dtype
extended: Any = _dtypes.extended
is_a: Callable[[Any, Any], bool] = isinstance
"""`isinstance` for values of any type. Pyright would narrow to a container of unknown
element type.
"""
type_of: Callable[[Any], Any] = type
_usual: Any = object.__getattribute__


space_of: Callable[[Any], Mapping[str, Any]] = vars
"""The namespace of a module, a class or an instance."""


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that is stored in a value or its class, such as `__qualname__`.

    A `__getattr__` is not called: it may answer to every name, or raise `KeyError`, as that of a
    dict with attribute access does.
    """
    try:
        return _usual(value, name)
    except AttributeError:
        # a bound method forwards attributes to its function, past `object.__getattribute__`
        return getattr(value, name, default) if is_a(value, types.MethodType) else default


def is_number(value: Any) -> bool:
    """Return whether a value is a real number of Python or NumPy, and not a bool."""
    return is_a(value, (int, float, np.integer, np.floating)) and not is_a(value, bool)


def is_of_numbers(dtype: Any) -> bool:
    """Return whether JAX can compute with a dtype of NumPy: not text, objects, times, records or
    raw bytes, nothing above 64 bits (complex: 128), and only native byte order.
    """
    wide = dtype.kind in "fc" and dtype.itemsize > (16 if dtype.kind == "c" else 8)
    return not wide and dtype.isnative and (issubdtype(dtype, np.number) or dtype == np.bool_)


def words_of_keys(keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the words of random keys as a NumPy array, inside of a trace too, where `key_data` of
    a concrete array would be staged.
    """
    with jax.ensure_compile_time_eval():
        return np.asarray(_jax.random.key_data(keys))


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or NumPy, and not a bool."""
    return is_a(value, (int, np.integer)) and not is_a(value, bool)
