"""Functions that are written in NumPy, traced by JAX.

Such a function is called with an `Array`: NumPy's functions and operators hand what they are given
to it, and it calls those of `jax.numpy`. A copy of the function, and of those that it calls, has
`numpy` replaced by `_Numpy` among its globals (`_rebound.py`), so that `np.array([x[0], x[1]])` and
assignment into `np.zeros(3)` go there too. Slices are views, as in NumPy: what is written to one is
written to its base. What has no counterpart raises `Untraceable` or an error of JAX's, and the
caller runs the function as it is.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

MADE = frozenset(
    ["zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "eye"]
)
ITSELF = frozenset(["asarray", "asanyarray", "ascontiguousarray"])
VIEWS = frozenset(["reshape", "ravel", "transpose", "squeeze", "swapaxes"])
# They give views in NumPy, of kinds that are not written through here.
LENDING = frozenset(
    [
        "split",
        "array_split",
        "hsplit",
        "vsplit",
        "moveaxis",
        "rollaxis",
        "expand_dims",
        "diagonal",
        "broadcast_to",
        "flip",
        "fliplr",
        "flipud",
        "rot90",
        "broadcast_arrays",
        "real",
        "imag",
        "atleast_2d",
        "atleast_3d",
        "diag",
        "nan_to_num",
    ]
)
OF_SEQUENCES = frozenset(
    (
        "stack",
        "concatenate",
        "hstack",
        "vstack",
        "column_stack",
        "dstack",
        "block",
        "meshgrid",
        "broadcast_arrays",
        "select",
        "piecewise",
    )
)
# Their lists are of numbers, and not shapes or axes.
OF_NUMBERS = frozenset(
    ("interp", "polyval", "dot", "vdot", "inner", "outer", "kron", "cross", "convolve", "correlate")
)
REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


class Untraceable(TypeError):
    """NumPy does here what `jax.numpy` cannot do with values that are not known."""


class Array(NDArrayOperatorsMixin):
    """A value that may be traced, with NumPy's interface; whole, or a view of another one."""

    __slots__ = ("_at", "_base", "_get", "_lent", "_own")
    __array_priority__ = 1000.0
    __pandas_priority__ = 5000  # above a table's, so that `series * array` comes here

    def __init__(self, own: Any, base: "Array | None" = None, get: Any = None, at: Any = None):
        self._own, self._base, self._get, self._lent, self._at = own, base, get, False, at

    @property
    def value(self) -> Any:
        """What it holds now."""
        return self._own if self._base is None else self._get(self._base.value)

    def _write(self, value: Any) -> None:
        """Replace all that it holds."""
        old = self.value
        if self._lent:
            raise Untraceable("an array is written to that others are views of")
        if _kind(value) > _kind(old):
            raise Untraceable("numbers are written to an array of a smaller type")
        if isinstance(value, np.ndarray | np.generic | float | int) and isinstance(old, np.ndarray):
            value = np.broadcast_to(value, old.shape).astype(old.dtype)
        else:
            value = jnp.broadcast_to(jnp.asarray(value, old.dtype), old.shape)
        if self._base is None:
            self._own = value
            return
        whole = self._base.value
        places = self._get(np.arange(whole.size).reshape(whole.shape))
        self._base._write(_placed(jnp.asarray(whole), places, jnp.asarray(value)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if isinstance(self.value, jax.core.Tracer):
            raise Untraceable("NumPy asks for the numbers of a traced array")
        return np.array(self.value, dtype)

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(self.value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        values = [_value(one) for one in inputs]
        if not _any_traced((values, options)):
            made = getattr(ufunc, method)(*values, **options)
        else:
            values = [_stacked(one) for one in values]
            values = [np.asarray(one) if isinstance(one, list | tuple) else one for one in values]
            made = _ufunc(ufunc, method)(*values, **options)
        if out is None:
            return _wrapped(made) if _any_traced(made) else made
        if len(out) != 1 or not isinstance(out[0], Array):
            raise Untraceable("a traced result is written to an array of NumPy's")
        out[0]._write(made)
        return out[0]

    def __array_function__(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        return applied(func, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        index = _value(index)
        first = self.value[index]
        if np.ndim(first) == 0 or _is_advanced(index):
            return Array(first)
        return Array(None, self, lambda whole: whole[index], (index,))

    def __setitem__(self, index: Any, value: Any) -> None:
        index = _value(index)
        if isinstance(value, Array) and value._base is self and value._at == (index,):
            return  # `x[1:] += y` has written to the slice before it puts it here
        value, whole = _value(value), self.value
        if _kind(value) > _kind(whole):
            raise Untraceable("numbers are written to an array of a smaller type")
        if not _is_advanced(index):
            places = np.arange(whole.size).reshape(whole.shape)[index]
            if np.ndim(value) <= np.ndim(places):
                value = jnp.broadcast_to(jnp.asarray(value, whole.dtype), np.shape(places))
                self._write(_placed(jnp.asarray(whole), places, value))
                return
        self._write(jnp.asarray(whole).at[index].set(value))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return self.value.__index__()

    __hash__ = None  # as arrays of NumPy

    @property
    def T(self) -> "Array":
        """The axes reversed: a view."""
        return self._view(lambda whole: whole.T)

    def _view(self, get: Callable[[Any], Any]) -> "Array":
        return Array(None, self, get)

    def copy(self, order: str = "C") -> "Array":
        """The same, and nobody else's."""
        del order
        return Array(self.value)

    def flatten(self, order: str = "C") -> "Array":
        """In one axis, a copy."""
        return Array(self.value.reshape(-1, order=order))

    def astype(self, dtype: Any, **options: Any) -> "Array":
        """Of another type."""
        del options
        return Array(self.value.astype(dtype))

    def fill(self, value: Any) -> None:
        """All of it."""
        self._write(_value(value))

    def __getattr__(self, name: str) -> Any:
        if name in VIEWS:
            return lambda *args, **options: self._view(
                lambda whole: getattr(whole, name)(*args, **options)
            )
        if name in ("tolist", "item", "tobytes", "sort", "put", "resize", "flat", "data"):
            raise Untraceable(f"`{name}` of a traced array")
        found = getattr(self.value, name)
        if not callable(found):
            return found
        return lambda *args, **options: _wrapped(found(*_value(args), **_value(options)))


def _ufunc(ufunc: Any, method: str) -> Callable[..., Any]:
    """JAX's own of that name."""
    name = ufunc.__name__
    if method == "reduce" and name in REDUCED:
        reduce = getattr(jnp, REDUCED[name])
        return lambda values, axis=0, **options: reduce(values, axis=axis, **options)
    home = jnp if getattr(np, name, None) is ufunc else jax.scipy.special
    names = {"divide": "true_divide", "conjugate": "conj"}
    found = getattr(home, name, None) or getattr(home, names.get(name, name), None)
    found = found if method == "__call__" else getattr(found, method, None)
    if found is None:
        raise Untraceable(f"there is no {name} for traced arrays")
    return found


def applied(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function of NumPy gives, by its counterpart where a value is traced."""
    name = func.__name__
    if name in ("copyto", "put", "place", "fill_diagonal", "put_along_axis") or "out" in kwargs:
        raise Untraceable(f"`{name}` writes to an array")
    first = args[0] if args else None
    if isinstance(first, Array):
        if name in VIEWS and len(args) + len(kwargs) <= 2:
            return getattr(first, name)(*args[1:], **kwargs)
        if (name in ITSELF or name == "atleast_1d") and len(args) == 1 and not kwargs:
            return first if first.ndim else first.reshape(1)
        if name in LENDING:
            first._lent = True
    values, options = _value(tuple(args)), _value(dict(kwargs))
    if not _any_traced((values, options)):
        return func(*values, **options)
    home = jnp
    for part in (getattr(func, "__module__", None) or "numpy").split(".")[1:]:
        home = getattr(home, part, jnp)
    found = getattr(home, name, None)
    if found is None:
        raise Untraceable(f"there is no {name} for traced arrays")
    if name == "piecewise":
        values = (*values[:2], [_unwrapped(one) for one in values[2]], *values[3:])
    if name not in OF_SEQUENCES:
        values = tuple(_stacked(value) for value in values)
    if name in OF_NUMBERS:
        values = tuple(np.asarray(one) if isinstance(one, list | tuple) else one for one in values)
    return _wrapped(found(*values, **options), lent=name in LENDING)


def _unwrapped(part: Any) -> Any:
    """A part of a piecewise function as JAX calls it; a number as it is."""
    if not callable(part):
        return part
    return lambda x, *args, **options: jnp.asarray(_value(part(Array(x), *args, **options)))


def _piecewise(x: Any, where: Any, parts: Any, *args: Any, **options: Any) -> Any:
    """Each part at its own points where numbers decide, as NumPy does; else at all of them."""
    points, holds = _value(x), _value(where)
    if _any_traced((points, holds)):
        return applied(np.piecewise, (x, where, parts, *args), options)
    holds = np.asarray(holds, bool)
    holds = holds if holds.ndim > np.ndim(points) else holds[None]
    if len(parts) == len(holds) + 1:
        holds = np.concatenate([holds, ~holds.any(0, keepdims=True)])
    if len(parts) != len(holds) or not np.ndim(points):
        raise Untraceable("so many parts and conditions of `piecewise`")
    made = Array(np.zeros_like(points))
    for part, held in zip(parts, holds, strict=True):
        if held.any():
            made[held] = part(points[held], *args, **options) if callable(part) else part
    return made


class _Numpy:
    """NumPy, whose functions look into lists too, and whose new arrays can be written to."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return _patched(name, found)


def _patched(name: str, found: Any) -> Any:
    if name in MADE or name == "identity":

        def made(*args: Any, **options: Any) -> Any:
            if name.endswith("_like"):
                first, *rest = args
                shape = options.pop("shape", np.shape(first))
                dtype = options.pop("dtype", getattr(first, "dtype", None))
                return Array(np.array(getattr(np, name[:-5])(shape, *_value(rest), dtype=dtype)))
            if _any_traced(_value(args)):
                return Array(getattr(jnp, name)(*_value(args), **options))
            return Array(np.array(found(*_value(args), **options)))

        return made
    if name in ITSELF or name == "array":

        def array(values: Any, dtype: Any = None, **options: Any) -> Any:
            if isinstance(values, Array) and name != "array" and dtype is None:
                return values
            if not _any_traced(_value(values)):
                return found(_value(values), dtype, **options)
            made = _stacked(_value(values))
            return Array(jnp.array(made, dtype))

        return array
    if name == "piecewise":
        return _piecewise
    if name == "poly1d":

        def polynomial(of: Any, *rest: Any) -> Any:
            if rest or not _any_traced(_value(of)):
                return found(_value(of), *rest)
            return lambda x: NUMPY.polyval(of, x)

        return polynomial
    if isinstance(found, np.ufunc | type) or not callable(found):
        if found in (np.float64, np.float32):
            return lambda value=0.0: (
                _wrapped(jnp.asarray(_value(value), found))
                if _any_traced(_value(value))
                else found(_value(value))
            )
        return found

    @functools.wraps(found)
    def function(*args: Any, **kwargs: Any) -> Any:
        if _any_traced(_value((args, kwargs))):
            return applied(found, args, kwargs)
        return found(*_value(args), **_value(kwargs))

    return function


NUMPY = _Numpy()


def _value(tree: Any) -> Any:
    """The same with the values of arrays in their place."""
    if isinstance(tree, Array):
        return tree.value
    if type(tree) in (list, tuple):
        return type(tree)(_value(one) for one in tree)
    if type(tree) is dict:
        return {name: _value(one) for name, one in tree.items()}
    if isinstance(tree, slice):
        return slice(_value(tree.start), _value(tree.stop), _value(tree.step))
    if isinstance(tree, np.ndarray | jax.Array | type) or not hasattr(tree, "__array__"):
        return tree
    numbers = np.asarray(tree)  # of a series or a table
    return numbers if numbers.ndim and numbers.dtype.kind in "biufc" else tree


def _stacked(value: Any) -> Any:
    """A list of numbers and traced arrays as one array, and one of floats, which is no shape."""
    if type(value) not in (list, tuple):
        return value
    if _any_traced(value):
        return jnp.stack([jnp.asarray(_stacked(one)) for one in value])
    floats = any(isinstance(leaf, float) for leaf in jax.tree.leaves(value))
    return np.asarray(value) if floats else value


def _any_traced(tree: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def _wrapped(made: Any, *, lent: bool = False) -> Any:
    if isinstance(made, tuple | list):
        return type(made)(_wrapped(one, lent=lent) for one in made)
    if not isinstance(made, jax.Array | np.ndarray):
        return made
    array = Array(made)
    array._lent = lent
    return array


def _is_advanced(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list | np.ndarray | jax.Array) for part in parts)


def _placed(whole: jax.Array, places: Any, value: jax.Array) -> jax.Array:
    """The array with values at these places, which count all of its elements.

    A block of it is put there at once: a scatter is a loop over its elements on CPUs, which takes
    long to run and to compile.
    """
    flat = np.reshape(places, -1)
    if flat.size and whole.ndim:
        first, last = (np.array(np.unravel_index(flat[i], whole.shape)) for i in (0, -1))
        box = tuple(last - first + 1)
        if min(box) > 0 and np.prod(box) == flat.size:
            inside = tuple(map(slice, first, last + 1))
            own = np.arange(whole.size).reshape(whole.shape)[inside]
            if np.array_equal(own.reshape(-1), flat):
                starts = [int(i) for i in first]
                return jax.lax.dynamic_update_slice(whole, value.reshape(box), starts)
    return whole.reshape(-1).at[flat].set(value.reshape(-1)).reshape(whole.shape)


def _kind(value: Any) -> int:
    """Whole numbers before real ones, and those before complex ones."""
    dtype = jnp.result_type(value)
    return 2 if dtype.kind == "c" else 1 if jnp.issubdtype(dtype, jnp.floating) else 0


def result(made: Any) -> jax.Array:
    """What the function gave, as an array of JAX's."""
    return jnp.asarray(_stacked(_value(made)))


def solved(lower: np.ndarray, rows: Any, by_numpy: Callable[..., Any]) -> Any:
    """Solve L z = rows, traced or not."""
    if not _any_traced(_value(rows)):
        return by_numpy(lower, np.asarray(rows), lower=True)
    return Array(jax.scipy.linalg.solve_triangular(lower, result(rows), lower=True))
