"""Dtypes of positions in a trace with symbolic sizes.

With x64, JAX narrows positions to int32 along an axis whose size is a number below 2**31, and keeps
int64 where it does not know the size:

    x[i], i of int64    size 5      convert_element_type i -> int32, then a gather
                        size n      a gather at int64 positions

The programs differ for a position beyond 32 bits, which int32 wraps. So a symbolic trace has to
choose as an exact one does. JAX asks of a size by `operator.index` whether it is a number, and then
compares it with the largest int32. The class of symbolic sizes is given an `__index__` that answers
this one question, in the thread that traces, where the range of the size has the answer. Tried on
jax 0.10.0, 0.10.2 and 0.12.0.1; if JAX renames its functions, nothing is answered, and the witness
of a trace refuses positions of 64 bits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType

from .._owners import owner_of
from .dims import LARGEST, Dim, symbolic_class
from .typed_jax import InconclusiveDimensionOperation

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
