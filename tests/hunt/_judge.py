"""Whether two results are the same: to the bit where that is promised, else to what rounding
explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._recipe import Exact

# Of float8 and bfloat16 a sum of a few elements is all that is comparable; a longer one is computed
# in another type or is wrong.
TOLERANCE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
EIGHT_BITS = 0.26
LOOSE = 30.0
DRAWS = 4


def leaves_of(out: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result, on the host."""
    found = []
    for leaf in jax.tree.leaves(out):
        dtype = getattr(leaf, "dtype", None)
        found.append(
            np.asarray(
                jax.random.key_data(leaf)
                if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
                else leaf
            )
        )
    return found


def difference(got: Sequence[Any], want: Sequence[Any], exact: Exact) -> str | None:
    """What is different, in a few words; None if nothing is."""
    if len(got) != len(want):
        return f"{len(got)} arrays for {len(want)}"
    for a, b in zip(got, want, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        apart = _apart(a, b, exact)
        if apart.any():
            where = tuple(int(k[0]) for k in np.nonzero(apart)) if a.ndim else ()
            return (
                f"{a[where]!r} for {b[where]!r} at {list(where)}, {int(apart.sum())} of"
                f" {apart.size} elements of {a.dtype}"
            )
    return None


def unblurred(got: Sequence[Any], want: Sequence[Any]) -> list[Any]:
    """`got` with what plain JAX has where that is not finite, and where ours is not and some other
    element of plain JAX is not.

    Its type is that of plain JAX too: `jax.jacfwd` takes that of the result, `jax.jacrev` that of
    the argument.
    """
    made = []
    for a, b in zip(got, want, strict=True):
        if a.shape == b.shape and jax.dtypes.issubdtype(b.dtype, np.inexact):
            a = a.astype(b.dtype)
            wide = np.complex128 if b.dtype.kind == "c" else np.float64
            holes = ~np.isfinite(b.astype(wide))
            a = np.where(holes | (~np.isfinite(a.astype(wide)) & holes.any()), b, a)
        made.append(a)
    return made


def _apart(a: Any, b: Any, exact: Exact) -> Any:
    """Which elements are too far from each other."""
    if a.dtype.kind == "c":
        apart = _apart(a.real, b.real, exact) | _apart(a.imag, b.imag, exact)
        # An infinity times a number has a NaN in it, and the next product two: which one comes
        # first goes by the order of the products.
        return apart if exact == "bits" else apart & (np.isfinite(a) | np.isfinite(b))
    if not _is_float(a.dtype):
        return a != b
    with np.errstate(all="ignore"):
        wide = np.float64
        x, y = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
        both = np.isnan(x) & np.isnan(y)
        if exact == "bits":
            return ~(both | ((x == y) & (np.signbit(x) == np.signbit(y))))
        tolerance = TOLERANCE.get(str(a.dtype), EIGHT_BITS) * (LOOSE if exact == "loose" else 1)
        finite = np.abs(y[np.isfinite(y)])
        scale = finite.max() if finite.size else 0.0
        near = np.abs(x - y) <= tolerance * np.maximum(
            np.abs(y), min(scale, 1e3 * np.median(finite)) if finite.size else 0.0
        ) + _tiny(a.dtype)
    # a long product overflows, or underflows and is multiplied by what did, as its order has it
    if exact == "loose":
        both |= ~np.isfinite(x) & ~np.isfinite(y)
    return ~(both | (x == y) | near)


def _is_float(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, np.floating)


def _tiny(dtype: Any) -> float:
    return float(jax.numpy.finfo(dtype).tiny)


def is_unstable(
    theirs: Callable[[Mapping[str, Any]], Any],
    arrays: Mapping[str, Any],
    got: Sequence[Any],
    exact: Exact,
) -> bool:
    """Whether plain JAX itself moves as far as this difference, once its arguments move by a
    rounding error.

    It is what tells a sum that cancels, or a comparison of two sums that are equal but for
    rounding, from a fault.
    """
    want = leaves_of(theirs(arrays))
    if len(got) != len(want) or any(
        (a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(got, want, strict=True)
    ):
        return False
    rng = np.random.default_rng(0)
    moved = [
        leaves_of(theirs({name: _moved(rng, x) for name, x in arrays.items()}))
        for _ in range(DRAWS)
    ]
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        apart = _apart(a, b, exact)
        if not apart.any():
            continue
        others = np.stack([each[k] for each in moved])
        with np.errstate(all="ignore"):
            if not _is_float(a.dtype) and a.dtype.kind != "c":
                if not (others != b).any():
                    return False
                continue
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            x, y, z = a.astype(wide), b.astype(wide), others.astype(wide)
            # A NaN where plain JAX has a number, or the reverse, is rounding only if moving makes
            # one too.
            holes = np.isnan(x) != np.isnan(y)
            if holes.any() and not (np.isnan(z) != np.isnan(y)).any():
                return False
            spread = np.nanmax(np.abs(z - y)[np.isfinite(z - y)], initial=0.0)
            far = np.abs(x - y)[apart & np.isfinite(x) & np.isfinite(y)]
            if far.size and far.max() > 30 * spread:
                return False
            if not far.size and not holes.any():
                return False
    return True


def _moved(rng: Any, x: Any) -> Any:
    dtype = np.asarray(x).dtype
    if not jax.dtypes.issubdtype(dtype, np.inexact):
        return x
    eps = 2 * float(jax.numpy.finfo(dtype).eps)
    with np.errstate(all="ignore"):
        wide = np.asarray(x).astype(np.complex128 if dtype.kind == "c" else np.float64)
        return (wide * (1 + eps * rng.uniform(-1, 1, np.shape(x)))).astype(dtype)
