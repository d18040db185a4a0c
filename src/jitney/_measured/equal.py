"""Whether two results are equal, up to rounding: what is not the same is not compared in speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import VerificationError
from .._jax.trees import extended, is_a, issubdtype, keystr, tree_flatten_with_path
from .._verify.difference import numbers, tree_of

TOLERANCES = {2: 2e-2, 4: 1e-5, 8: 1e-11}
"""By the bytes of a real number (bfloat16 and float16, float32, float64), as a part of the largest
element of the array.
"""
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)
_WHERE = "jitney.measure()"
_RULE = "What is faster has to compute the same."
_FIX = (
    "correct one of them; or give `tolerance=`, as a part of the largest element, if it is meant;"
    " math.inf compares nothing."
)


def apart(ours: Any, theirs: Any, names: tuple[str, str], tolerance: float | None) -> float:
    """By how much two results differ, as a part of the largest element of each array.

    Raises:
        VerificationError: By more than the tolerance, or they are not of one kind.
    """
    left, right = tree_flatten_with_path(tree_of(ours)), tree_flatten_with_path(tree_of(theirs))
    if left[1] != right[1]:
        raise _different(names, f"the results are built differently, {left[1]} and {right[1]}")
    worst = 0.0
    for (path, a), (_, b) in zip(left[0], right[0], strict=True):
        worst = max(worst, _leaf(f"result{keystr(path)}", _array(a), _array(b), names, tolerance))
    return worst


def _leaf(path: str, a: Any, b: Any, names: tuple[str, str], tolerance: float | None) -> float:
    if not hasattr(a, "dtype") or not hasattr(b, "dtype"):
        if a is b or (type(a) is type(b) and bool(a == b)):
            return 0.0
        raise _different(names, f"{path} is {a!r}, and {b!r}")
    if a.shape != b.shape or _kind(a) != _kind(b):
        raise _different(names, f"{path} is {a.dtype}{list(a.shape)}, and {b.dtype}{list(b.shape)}")
    inexact = issubdtype(a.dtype, np.inexact)
    allowed = (_allowed(a, b) if tolerance is None else tolerance) if inexact else 0.0
    x, y = numbers(a), numbers(b)
    if not x.size:
        return 0.0
    with np.errstate(all="ignore"):
        off = np.where((x == y) | ((x != x) & (y != y)), 0.0, np.abs(x - y) if inexact else 1.0)
        off = np.where(np.isnan(off), np.inf, off)
        sizes = np.maximum(np.abs(x), np.abs(y)) if inexact else np.ones(1)
        largest = float(np.max(np.where(np.isfinite(sizes), sizes, 0.0)))
        worst = float(np.max(off)) / largest if largest else float(np.max(off))
    if worst > allowed:
        at = np.unravel_index(int(np.argmax(off)), off.shape)
        index = f"[{', '.join(str(int(i)) for i in at)}]" if at else ""
        by = (
            f": {worst:.1e} of the largest element, where {allowed:.1e} is allowed"
            if inexact
            else ""
        )
        raise _different(names, f"{path}{index} is {x[at].item()!r}, and {y[at].item()!r}{by}")
    return worst


def _array(leaf: Any) -> Any:
    """Python's numbers as NumPy's, which compare with arrays without a shape."""
    return np.asarray(leaf) if is_a(leaf, (bool, int, float, complex)) else leaf


def _kind(array: Any) -> Any:
    if issubdtype(array.dtype, extended):
        return array.dtype
    return next((kind for kind in _KINDS if issubdtype(array.dtype, kind)), array.dtype)


def _allowed(a: Any, b: Any) -> float:
    """That of the type which holds fewer digits."""
    parts = 2 if issubdtype(a.dtype, np.complexfloating) else 1
    return TOLERANCES.get(
        min(a.dtype.itemsize, b.dtype.itemsize) // parts, max(TOLERANCES.values())
    )


def _different(names: tuple[str, str], what: str) -> VerificationError:
    return VerificationError(
        _WHERE,
        f"{names[0]} and {names[1]} give different results: {what}.",
        _RULE,
        _FIX,
        code="J316",
    )
