"""Symbolic sizes of mapped axes, which code reads by the axis name, as `jax.lax.pmean` does under
`jax.vmap(..., axis_name="batch")`.

JAX converts such a size to a Python integer (`psum(1, "batch")`), which fails for a symbol, though
most code only divides by it, as in batch normalisation. So the public `jax.lax.pmean`, `psum` of an
integer and `axis_size` are monkeypatched for the time of one trace: in the thread that traces, they
return the symbol where the size is one. Code with `from jax.lax import pmean` has JAX's own
function, and is refused. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import jax

from ..dims import Dim, is_symbolic, symbolic_class


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
