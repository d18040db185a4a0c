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
    rounding, from a fault. Whole numbers cannot move: of these, whether ours is as near as plain
    JAX to what it computes in 64 bits.
    """
    want = leaves_of(theirs(arrays))
    if len(got) != len(want) or any(
        (a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(got, want, strict=True)
    ):
        return False
    is_whole = not any(
        jax.dtypes.issubdtype(np.asarray(x).dtype, np.inexact) for x in jax.tree.leaves(arrays)
    )
    if exact != "bits" and is_whole:
        return _is_nearer(theirs, arrays, got, want)
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


def _is_nearer(
    theirs: Callable[[Mapping[str, Any]], Any],
    arrays: Mapping[str, Any],
    got: Sequence[Any],
    want: Sequence[Any],
) -> bool:
    # JAX divides the small integers in 32 bits, whatever is on.
    wide = {
        k: x if x.dtype == np.bool_ else np.asarray(x).astype(np.int64) for k, x in arrays.items()
    }
    with jax.enable_x64(True):
        exact = leaves_of(theirs(wide))
    for a, b, c in zip(got, want, exact, strict=True):
        if c.dtype != np.float64 or not c.size:
            if not np.array_equal(a, b):
                return False
            continue
        ours, plain = np.abs(a - c), np.abs(b - c)
        # More than a hundredth is no rounding: in 64 bits it is another function.
        if plain.max() > 1e-2 * np.abs(c).max():
            return False
        if not np.all((ours <= plain) | (ours <= 1e-5 * np.abs(c))):
            return False
    return True


def is_overflow(
    ours: Callable[[Mapping[str, Any]], Any],
    theirs: Callable[[Mapping[str, Any]], Any],
    arrays: Mapping[str, Any],
    got: Sequence[Any],
    exact: Exact,
) -> bool:
    """Whether two results differ only where one of them overflowed: beside rounding, each differing
    pair has a number that is not finite beside one that is not or is very large, and with the
    mantissas alone as arguments the two agree.

    A product near the end of the range overflows or not as its order has it, and devices multiply
    in another order. If an element is zero, that is 0 beside NaN: then the two agree in 64 bits.
    """
    want = leaves_of(theirs(arrays))
    like = [(b.shape, b.dtype) for b in want]
    if exact == "bits" or [(a.shape, a.dtype) for a in got] != like:
        return False
    lost = [
        _apart(a, b, exact) & _is_zero_of_infinity(a, b) for a, b in zip(got, want, strict=True)
    ]
    rest = [
        np.where(_apart(a, b, exact) & (_is_extreme(a, b) | c), b, a)
        for a, b, c in zip(got, want, lost, strict=True)
    ]
    if difference(got, rest, exact) is None:
        return False  # nothing overflowed

    if any(map(np.any, lost)):
        wide = {name: _widened(x) for name, x in arrays.items()}
        with jax.enable_x64(True):
            made = leaves_of(ours(wide))
            are_finite = all(np.isfinite(x).all() for x in made if _is_float(x.dtype))
            return (
                are_finite
                and _agree(theirs, arrays, rest, exact)
                and difference(made, leaves_of(theirs(wide)), exact) is None
            )

    tame = {name: _mantissas(x) for name, x in arrays.items()}
    return _agree(theirs, arrays, rest, exact) and _agree(
        theirs, tame, leaves_of(ours(tame)), exact
    )


def _agree(
    theirs: Callable[[Mapping[str, Any]], Any],
    arrays: Mapping[str, Any],
    got: Sequence[Any],
    exact: Exact,
) -> bool:
    return difference(got, leaves_of(theirs(arrays)), exact) is None or is_unstable(
        theirs, arrays, got, exact
    )


def _is_extreme(a: Any, b: Any) -> Any:
    """Of each pair, whether one is not finite, and the other is not finite or is beyond the root of
    the largest number.
    """
    if not jax.dtypes.issubdtype(a.dtype, np.inexact):
        return np.zeros(a.shape, bool)
    large = float(jax.numpy.finfo(a.dtype).max) ** 0.5
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        holes = ~np.isfinite(x) | ~np.isfinite(y)
        beyond = (~np.isfinite(x) | (abs(x) > large)) & (~np.isfinite(y) | (abs(y) > large))
    return holes & beyond


def _is_zero_of_infinity(a: Any, b: Any) -> Any:
    """Return the pairs of which one is zero and the other NaN."""
    if not _is_float(a.dtype):
        return np.zeros(a.shape, bool)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return ((x == 0) & np.isnan(y)) | (np.isnan(x) & (y == 0))


def _widened(x: Any) -> Any:
    """Numbers of 64 bits in place of narrower ones, but for whole numbers."""
    if isinstance(x, list):
        return [_widened(each) for each in x]
    return np.asarray(x).astype(np.float64) if _is_float(np.asarray(x).dtype) else x


def _mantissas(x: Any) -> Any:
    """The numbers of an array without their powers of two, so from 1/2 to 1 in magnitude."""
    dtype = np.asarray(x).dtype
    if not jax.dtypes.issubdtype(dtype, np.inexact):
        return x
    wide = np.asarray(x).astype(np.complex128 if dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        _, powers = np.frexp(np.where(np.isfinite(abs(wide)), abs(wide), 1.0))
        return (wide * np.exp2(-powers.astype(np.float64))).astype(dtype)


def _moved(rng: Any, x: Any) -> Any:
    if isinstance(x, list):  # rows of unlike lengths
        return [_moved(rng, row) for row in x]
    dtype = np.asarray(x).dtype
    if not jax.dtypes.issubdtype(dtype, np.inexact):
        return x
    eps = 2 * float(jax.numpy.finfo(dtype).eps)
    with np.errstate(all="ignore"):
        wide = np.asarray(x).astype(np.complex128 if dtype.kind == "c" else np.float64)
        return (wide * (1 + eps * rng.uniform(-1, 1, np.shape(x)))).astype(dtype)
