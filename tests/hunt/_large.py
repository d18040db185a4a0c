"""Few elements in buckets of thousands. XLA for CPUs computes an array of 4,096 and more elements
with other kernels than a small one, so a padded program may differ where its operands are special.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jitney import optimize

from ._options import Option, Way, _filled, equations, plain
from ._program import Program
from ._sizes import pick

BUCKETS = (4096, 5000, 8192, 20_000)
SMALLER = (64, 128, 512)  # of programs with an array of n times n elements, or with long loops
MOST_VALID = 64
MOST_ELEMENTS = 2**21  # of the largest array of a program
SLOW = ("cholesky", "eig", "eigh", "householder_product", "lu", "qr", "schur", "svd", "while")


def pad_large(rng: Any, fn: Callable[..., Any], program: Program, n: int) -> Way | None:
    """Padded to a bucket of thousands of elements, as far as that takes no gigabytes."""
    if n > MOST_VALID:
        return None
    buckets = [int(pick(rng, BUCKETS)), *sorted((int(pick(rng, SMALLER)), 64), reverse=True)]
    bucket = next((size for size in buckets if _is_cheap(fn, program, size)), None)
    if bucket is None:
        return None
    padded = optimize(pad={"n": [bucket]})(fn)
    return Way(
        lambda arrays: padded(**arrays),
        plain(fn),
        f'optimize(pad={{"n": [{bucket}]}})(f)',
        _filled(padded),
    )


def _is_cheap(fn: Callable[..., Any], program: Program, size: int) -> bool:
    """Return whether a program at a size has no array of millions of elements, and no slow loop."""
    structs = {name: _struct(name, axes, size) for name, axes in program.takes}
    try:
        ops = [*equations(jax.make_jaxpr(fn)(**structs))]
    except Exception:  # noqa: BLE001 # of other dtypes than these, or its Python looks at the size
        return size <= max(SMALLER)
    if size > max(SMALLER) and any(op.primitive.name in SLOW for op in ops):
        return False
    sizes = [np.prod(var.aval.shape, dtype=np.int64) for op in ops for var in op.outvars]
    return max(sizes, default=0) <= MOST_ELEMENTS


def _struct(name: str, axes: str, size: int) -> jax.ShapeDtypeStruct:
    shape = tuple(size if part == "n" else int(part) for part in axes.split())
    dtype = {"i": np.int32, "j": np.int32, "b": np.bool_}.get(name[0], np.float32)
    return jax.ShapeDtypeStruct(shape, dtype)


LARGE = {"pad large": Option(pad_large, together=False)}
