"""Checks of the results of measured functions: those that differ are not compared in speed, and
XLA may compute a constant result at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._errors import TraceError, VerificationError
from .._jax.programs.jaxprs import is_literal, open_jaxpr, runs
from .._jax.trees import attribute, extended, issubdtype, keystr, tree_flatten_with_path
from .._jax.typed import AnyJaxpr, Atom, NumPyArray
from .._verify.difference import numbers, tree_of
from .arguments import Put

TOLERANCES = {2: 2e-2, 4: 1e-5, 8: 1e-11}
"""Tolerance relative to the largest element of the array, by the bytes of a real number: bfloat16
and float16, float32, float64.
"""
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)
_WHERE = "jitney.measure()"
_RULE = "What is faster has to compute the same."
_FIX = (
    "correct one of them; or give `tolerance=`, as a part of the largest element, if it is meant;"
    " math.inf compares nothing."
)


def largest_difference(
    ours: object,
    theirs: object,
    names: tuple[str, str],
    tolerance: float | None,
) -> float:
    """Return the largest difference of two results, relative to the largest element of each array.

    Raises:
        VerificationError: The difference exceeds the tolerance, or structure, shape or kind of
            dtype differ.
    """
    left, right = tree_flatten_with_path(tree_of(ours)), tree_flatten_with_path(tree_of(theirs))
    if left[1] != right[1]:
        raise _different(names, f"the results are built differently, {left[1]} and {right[1]}")
    worst = 0.0
    for (path, a), (_, b) in zip(left[0], right[0], strict=True):
        worst = max(worst, _leaf(f"result{keystr(path)}", _array(a), _array(b), names, tolerance))
    return worst


def _leaf(
    path: str,
    a: Any,
    b: Any,
    names: tuple[str, str],
    tolerance: float | None,
) -> float:
    if not hasattr(a, "dtype") or not hasattr(b, "dtype"):
        if a is b or (type(a) is type(b) and bool(a == b)):
            return 0.0
        raise _different(names, f"{path} is {a!r}, and {b!r}")
    if a.shape != b.shape or _kind(a) != _kind(b):
        raise _different(names, f"{path} is {a.dtype}{list(a.shape)}, and {b.dtype}{list(b.shape)}")

    # Integers, booleans and keys have no rounding: any difference is the full 1.
    inexact = issubdtype(a.dtype, np.inexact)
    allowed = (_dtype_tolerance(a, b) if tolerance is None else tolerance) if inexact else 0.0
    x, y = numbers(a), numbers(b)
    if not x.size:
        return 0.0
    with np.errstate(all="ignore"):
        # Equal infinities and pairs of NaN count as equal. A difference that is NaN, of a number
        # and NaN or of unlike infinities, counts as infinite.
        are_equal = (x == y) | ((x != x) & (y != y))
        apart = np.abs(x - y) if inexact else 1.0
        off = np.where(are_equal, 0.0, apart)
        off = np.where(np.isnan(off), np.inf, off)

        # Differences are relative to the largest finite element, not to their own.
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


def _array(leaf: object) -> Any:
    """Convert Python numbers to NumPy arrays, which compare with arrays of shape ()."""
    return np.asarray(leaf) if isinstance(leaf, (bool, int, float, complex)) else leaf


def _kind(array: NumPyArray) -> object:
    if issubdtype(array.dtype, extended):
        return array.dtype
    return next((kind for kind in _KINDS if issubdtype(array.dtype, kind)), array.dtype)


def _dtype_tolerance(a: NumPyArray, b: NumPyArray) -> float:
    """Return the tolerance of the less precise of two dtypes."""
    # A complex number is two real ones.
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


def is_constant(f: object, given: Put) -> bool:
    """Return whether no result of a compiled function depends on an array among its arguments.

    The answer comes from the jaxpr of the measured call. It is False for functions that are not
    compiled, whose jaxpr is unknown, and for padded functions, which depend on their size.
    """
    trace = attribute(f, "trace", None)
    pads = attribute(attribute(f, "options", None), "pad", ())
    if trace is None or attribute(f, "lower", None) is None or pads:
        return False
    try:
        program = trace(*given.args, **given.kwargs).jaxpr
    # The function runs without `jit`.
    except TraceError:
        return False
    results = _dependent_results(program, [True] * len(open_jaxpr(program)[0].invars))
    return bool(results) and not any(results)


def _dependent_results(program: AnyJaxpr, given: Sequence[bool]) -> list[bool]:
    """Return for each result whether it depends on one of the marked arguments.

    A forward pass over the jaxpr. Equations with effects count as dependent, since they may return
    anything.
    """
    jaxpr, _ = open_jaxpr(program)
    known: dict[Atom, bool] = dict(zip(jaxpr.invars, given, strict=True))

    def is_fed(atom: Atom) -> bool:
        return not is_literal(atom) and known.get(atom, False)

    for eqn in jaxpr.eqns:
        # A call with a sub-jaxpr (`jit`, `custom_jvp_call`, ...) is entered; any other primitive
        # depends on all of its operands, loops and branches included.
        operands, inner = [is_fed(atom) for atom in eqn.invars], runs(eqn)
        made = (
            [bool(eqn.effects) or any(operands)] * len(eqn.outvars)
            if inner is None
            else _dependent_results(inner, operands)
        )
        known.update(zip(eqn.outvars, made, strict=True))
    return [is_fed(atom) for atom in jaxpr.outvars]
