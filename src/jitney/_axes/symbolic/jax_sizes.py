"""JAX's functions that take a size for a number, monkeypatched for the time of a symbolic trace.
Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.

Sizes of mapped axes. Code reads them by the axis name, as `jax.lax.pmean` does under
`jax.vmap(..., axis_name="batch")`. JAX converts such a size to a Python integer
(`psum(1, "batch")`), which fails for a symbol, though most code only divides by it, as in batch
normalisation. So the public `jax.lax.pmean`, `psum` of an integer and `axis_size` return the symbol
where the size is one, in the thread that traces. Code with `from jax.lax import pmean` has JAX's
own function, and is refused.

Dtypes of positions. With x64, JAX narrows positions to int32 along an axis whose size is a number
below 2**31, and keeps int64 where it does not know the size:

    x[i], i of int64    size 5      convert_element_type i -> int32, then a gather
                        size n      a gather at int64 positions

The programs differ for a position beyond 32 bits, which int32 wraps. So a symbolic trace has to
choose as an exact one does. JAX asks of a size by `operator.index` whether it is a number, and then
compares it with the largest int32. The class of symbolic sizes is given an `__index__` that answers
this one question, in the thread that traces, where the range of the size has the answer. If JAX
renames its functions, nothing is answered, and the witness of a trace refuses positions of 64 bits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType

import jax

from ..._owners import owner_of
from ..dims import LARGEST, Dim, is_symbolic, symbolic_class
from ..typed_jax import InconclusiveDimensionOperation

_LOCK = threading.RLock()
_CHOICES = ("int_dtype_for_dim", "int_dtype_for_shape")


@contextmanager
def patched_sizes(methods: Mapping[str, Callable[..., object]]) -> Generator[None]:
    """Context in which JAX's class of symbolic sizes has these methods. One thread at a time is in
    such a context; it may enter another one, whose methods wrap and restore those of the first.
    """
    kind = symbolic_class()
    with _LOCK:
        before = {name: kind.__dict__.get(name) for name in methods}
        for name, method in methods.items():
            setattr(kind, name, method)
        try:
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, method)


@contextmanager
def exact_position_dtypes() -> Generator[None]:
    """Context in which JAX chooses the dtypes of positions for symbolic sizes as for numbers."""
    kind, tracing = symbolic_class(), threading.get_ident()

    def index(self: Dim) -> int:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if threading.get_ident() == tracing and _chooses_dtype(frame) and _is_32_bits(self):
            return LARGEST
        # What Python says of an object without this method, as a symbol is.
        raise TypeError(f"{kind.__name__!r} object cannot be interpreted as an integer")

    with patched_sizes({"__index__": index}):
        yield


def _chooses_dtype(frame: FrameType) -> bool:
    """Return whether a frame is JAX's question of whether a size is a number, asked to choose a
    dtype for positions. Nothing else that asks is answered.
    """
    caller = frame.f_back
    return (
        frame.f_code.co_name == "is_constant_dim"
        and caller is not None
        and caller.f_code.co_name in _CHOICES
        and owner_of(caller) == "jax"
    )


def _is_32_bits(size: Dim) -> bool:
    """Return whether a size is shown to fit into 32 bits in the ranges of its symbols."""
    try:
        return bool(size <= LARGEST)
    except InconclusiveDimensionOperation:
        return False


@contextmanager
def named_sizes() -> Generator[None]:
    """Let the sizes of mapped axes be symbols. The caller must hold the lock of traces."""
    tracing = threading.get_ident()
    psum, pmean, axis_size = before = jax.lax.psum, jax.lax.pmean, jax.lax.axis_size

    def symbol(axis_name: object) -> Dim | None:
        if threading.get_ident() != tracing:
            return None
        size = _intercept_size(lambda: psum(1, axis_name))
        return size if is_symbolic(size) else None

    # `psum(1, axis_name)` is JAX's idiom for the size of an axis, and `psum(k, ...)` is k times it.
    def sum_over(x: object, axis_name: object, **options: object) -> object:
        if type(x) is int and not options:
            size = symbol(axis_name)
            if size is not None:
                return size * x
        return psum(x, axis_name, **options)

    # A mean as `psum(x) / size`, so that the size stays a symbol.
    def mean_over(x: object, axis_name: object, **options: object) -> object:
        leaves = jax.tree.leaves(x)
        is_plain = (
            not options and bool(leaves) and all(isinstance(leaf, jax.Array) for leaf in leaves)
        )
        size = symbol(axis_name) if is_plain else None
        if size is None:
            return pmean(x, axis_name, **options)

        def share(total: jax.Array) -> jax.Array:
            return total / size

        return jax.tree.map(share, psum(x, axis_name))

    def size_of(axis_name: object) -> Dim:
        size = symbol(axis_name)
        return axis_size(axis_name) if size is None else size

    jax.lax.psum, jax.lax.pmean, jax.lax.axis_size = sum_over, mean_over, size_of
    try:
        yield
    finally:
        jax.lax.psum, jax.lax.pmean, jax.lax.axis_size = before


class _CarriesSymbol(Exception):
    """Control flow: carries a symbol out of JAX's conversion to an integer."""

    def __init__(self, size: Dim):
        super().__init__()
        self.size = size


def _intercept_size(size: Callable[[], Dim]) -> Dim:
    """The result of `size`, or the symbol that JAX tries to convert to an integer in it."""
    kind = symbolic_class()
    integer = kind.__int__

    # The conversion is intercepted for the time of one call, under the caller's lock.
    def tell(self: Dim) -> int:
        raise _CarriesSymbol(self)

    kind.__int__ = tell
    try:
        return size()
    except _CarriesSymbol as asked:
        return asked.size
    finally:
        kind.__int__ = integer
