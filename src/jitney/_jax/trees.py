"""JAX's functions of trees and dtypes, with the types that JAX leaves out. The same functions, so a
call costs nothing more.
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
"""Whether JAX's trees go on inside of a class: it was registered, is a named tuple, or is one of
Python's own.
"""
_jax: Any = jax
device_put: Callable[..., Any] = _jax.device_put
issubdtype: Callable[[Any, Any], bool] = _dtypes.issubdtype
canonicalize_dtype: Callable[[Any], Any] = _dtypes.canonicalize_dtype
extended: Any = _dtypes.extended
is_a: Callable[[Any, Any], bool] = isinstance
"""`isinstance`, for what holds values of any type: pyright would go on with a container of unknown
type.
"""
type_of: Callable[[Any], Any] = type
_usual: Any = object.__getattribute__


space_of: Callable[[Any], Mapping[str, Any]] = vars
"""The names in a module, a class or an instance."""


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """What lies in a value, or in its class, under a name such as `__qualname__`. A `__getattr__`
    is not asked: it may know every name, or raise a `KeyError`, as that of a dict whose keys are
    attributes does.
    """
    try:
        return _usual(value, name)
    except AttributeError:
        # a method answers for its function
        return getattr(value, name, default) if is_a(value, types.MethodType) else default


def is_number(value: Any) -> bool:
    """Whether it is a number that can be compared with others, Python's or NumPy's, and no bool."""
    return is_a(value, (int, float, np.integer, np.floating)) and not is_a(value, bool)


def is_of_numbers(dtype: Any) -> bool:
    """Whether JAX computes with a dtype of NumPy's: not with text, objects, times, records and raw
    bytes, nor numbers beyond 64 bits or in the byte order of other machines.
    """
    wide = dtype.kind in "fc" and dtype.itemsize > (16 if dtype.kind == "c" else 8)
    return not wide and dtype.isnative and (issubdtype(dtype, np.number) or dtype == np.bool_)


def words_of_keys(keys: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The numbers that random keys are made of; inside of a trace too, where taking them out of an
    array that is there would be traced.
    """
    with jax.ensure_compile_time_eval():
        return np.asarray(_jax.random.key_data(keys))


def is_whole(value: Any) -> bool:
    """Whether it is an int, Python's or NumPy's."""
    return is_a(value, (int, np.integer)) and not is_a(value, bool)
