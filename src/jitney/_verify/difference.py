"""Comparison of two results of one call, element by element: the tolerance by option and dtype, and
the elements beyond it.

A difference is judged in three steps, so that honest rounding raises no alarm and a wrong number
does.

1. It is small, by the table below.
2. Rounding explains it: the plain function, with the last bit of all its values changed at random
   (`rounding.py`), moves by a comparable amount in that element, as in a difference of nearly equal
   numbers.
3. Otherwise the results differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._body.plain import ProgramChange
from .._jax.arrays import is_bcoo
from .._jax.programs.linearized import Linear
from .._jax.trees import (
    extended,
    issubdtype,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    words_of_keys,
)
from .._jax.typed import Array, DType, NumPyArray
from .._signature.options import EQUAL, OPTIONS, SUMS_ROUNDED

Numbers = NumPyArray
"""An array as NumPy computes with it."""


@dataclass(frozen=True)
class Tolerance:
    """Allowed distance of two results.

    Args:
        unit: The rounding of one operation, relative to the largest element, since low products
            round the terms that they add up. None for the rounding of the result's dtype, relative
            to each element.
        factor: How many units are allowed.
        root: How many more, times the square root of the number of elements of the largest
            argument, since sums add in another order.
    """

    unit: float | None
    factor: float
    root: float = 0.0

    def of(self, dtype: DType, count: int) -> float:
        """Return the relative tolerance for a dtype."""
        unit = self.unit if self.unit is not None else _rounding(dtype)
        if self.unit is None and unit > _SINGLE:
            # A low dtype as written: sums are accumulated in float32, and rounded once.
            return _LOW_RESULT * unit
        return unit * (self.factor + self.root * math.sqrt(count))


_SINGLE = 2.0**-24
_LOW_RESULT = 4
_SUMS = Tolerance(None, 32, 4)
_CALLS = ("accumulate", "stream", "jacobian")
"""Changes by the way of a call, beside options."""
TOLERANCES = {
    **dict.fromkeys(_CALLS, _SUMS),
    **{name: _SUMS for name, option in OPTIONS.items() if option.tolerance != EQUAL},
    "precision=f32": Tolerance(2.0**-24, 32, 4),
    "precision=tf32": Tolerance(2.0**-11, 8),
    "precision=bf16": Tolerance(2.0**-8, 8),
    "precision=fp16": Tolerance(2.0**-11, 8),
    "precision=bf16-all": Tolerance(2.0**-8, 32),
    "precision=fp16-all": Tolerance(2.0**-11, 32),
}
"""Tolerances by option. Results without rounding (integers, booleans, random keys) are equal; so
are NaN and infinities.
"""
_EXPLAINED, _EXPLAINED_LOW = 64.0, 8.0
"""Rounding explains a difference up to this many times the effect of the last bit; the second
number is for low dtypes.
"""
_BITS = tuple(name for name, option in OPTIONS.items() if option.tolerance == SUMS_ROUNDED)
"""Options that leave elementwise results equal to the bit."""
_OVERFLOWS = ("precision=fp16", "precision=fp16-all")
"""Options under which an element is not compared where the low dtype has overflowed: `LossScale`
and `debug_nans` are for that.
"""


@dataclass(frozen=True)
class Allowed:
    """Allowed difference of a program from the plain one.

    Args:
        changes: The changes that jitney made to it.
        count: The number of elements of its largest argument.
        alone: Which results are elementwise.
        device: The option that rounds products as the device does (`rounding.py`).
    """

    changes: tuple[ProgramChange, ...]
    count: int
    alone: tuple[bool, ...] = ()
    device: str | None = None

    @property
    def options(self) -> list[str]:
        """What rounds: the changes, and the device."""
        changed = [change.option for change in self.changes]
        return [*changed, self.device] if changed and self.device else changed

    @property
    def tolerances(self) -> list[Tolerance]:
        return [TOLERANCES[option] for option in self.options]

    @property
    def low(self) -> bool:
        """True if anything is computed in a lower dtype than written."""
        return any(tolerance.unit is not None for tolerance in self.tolerances)

    @property
    def lowered(self) -> bool:
        """True if that is because of an option, and not of the device."""
        return replace(self, device=None).low

    def unit(self, all_: str = "") -> float:
        """Return the coarsest rounding of the options that end with `all_`.

        With "-all" these are the changes that round all operations.
        """
        units = [TOLERANCES[option].unit or 0.0 for option in self.options if option.endswith(all_)]
        return max(units, default=0.0)

    def to_the_bit(self, number: int) -> bool:
        """Return whether a result is promised to the bit."""
        return (
            all(change.option in _BITS for change in self.changes)
            and number < len(self.alone)
            and self.alone[number]
        )

    @property
    def overflows(self) -> bool:
        return any(change.option in _OVERFLOWS for change in self.changes)

    def of(self, dtype: DType) -> float:
        """Return the relative tolerance for a dtype."""
        return max((tolerance.of(dtype, self.count) for tolerance in self.tolerances), default=0.0)


@dataclass(frozen=True)
class Difference:
    """The largest difference between two results.

    Args:
        path: Path of the array, or the kind of difference.
        at: Index of the element; None if the difference is not in an element.
        ours, plain: The two values.
        allowed: The allowed distance.
        count: How many elements differ.
    """

    path: str
    at: tuple[int, ...] | None
    ours: object
    plain: object
    allowed: float = 0.0
    count: int = 1

    @property
    def text(self) -> str:
        if self.at is None:
            return f"result{self.path} is {self.ours}, and {self.plain} plainly"
        index = f"[{', '.join(map(str, self.at))}]" if self.at else ""
        many = f" (the largest of {self.count} differences)" if self.count > 1 else ""
        return f"result{self.path}{index} is {self.ours!r}, and {self.plain!r} plainly{many}"


def tree_of(result: object) -> object:
    """Return a result as arrays that can be compared: sparse arrays dense, and a linear function as
    its value in a random direction.
    """

    def plain(leaf: Any) -> object:
        if is_bcoo(leaf):
            return leaf.todense()
        if isinstance(leaf, Linear):
            return _probe_linear(leaf)
        return leaf

    def is_one(leaf: object) -> bool:
        return is_bcoo(leaf) or isinstance(leaf, Linear)

    return jax.tree.map(plain, result, is_leaf=is_one)


def _probe_linear(linear: Linear) -> object:
    return linear(linear.draw(np.random.default_rng(0)))


def compare_results(
    ours: object,
    plain: object,
    allowed: Allowed,
    spread: Callable[[], Iterable[object]] | None = None,
) -> Difference | None:
    """Return the largest difference between two results, if there is one.

    Args:
        ours, plain: The results, by `tree_of`.
        allowed: The allowed distance.
        spread: Yields results of the plain function with other last bits; called only if results
            differ by more.
    """
    (left, structure), (right, expected) = map(tree_flatten_with_path, (ours, plain))
    if structure != expected:
        return Difference("", None, structure, expected)
    pairs = [(keystr(path), a, b) for (path, a), (_, b) in zip(left, right, strict=True)]

    # Step 1: the table. A result that is promised to the bit is compared without any tolerance.
    exact = replace(allowed, changes=())
    differences: dict[int, Difference] = {}
    for i, (path, a, b) in enumerate(pairs):
        tolerated = exact if allowed.to_the_bit(i) else allowed
        difference = _leaf(
            path,
            a,
            b,
            tolerated,
            None,
        )
        if difference is not None:
            differences[i] = difference
    if not differences:
        return None

    # Step 2: rounding. Only elements can be explained, and no result that is promised to the bit.
    in_elements = all(difference.at is not None for difference in differences.values())
    if spread is None or not in_elements:
        return next(iter(differences.values()))
    changes = _changes([b for _, _, b in pairs], spread)
    unexplained: list[Difference] = []
    for i, difference in differences.items():
        if not allowed.to_the_bit(i):
            difference = _leaf(*pairs[i], allowed, changes[i])
        if difference is not None:
            unexplained.append(difference)
    return unexplained[0] if unexplained else None


def _leaf(
    path: str,
    ours: Any,
    plain: Any,
    allowed: Allowed,
    change: Numbers | None,
) -> Difference | None:
    if not _is_array(ours) or not _is_array(plain):
        return None if _is_same(ours, plain) else Difference(path, None, ours, plain)
    if (ours.shape, ours.dtype) != (plain.shape, plain.dtype):
        left, right = (f"{array.dtype}{list(array.shape)}" for array in (ours, plain))
        return Difference(path, None, left, right)

    a, b = numbers(ours), numbers(plain)
    if not a.size:
        return None

    inexact = issubdtype(plain.dtype, np.inexact)
    if not inexact:
        if allowed.lowered:
            # A comparison of low products may come out otherwise.
            return None
        wrong = a != b
        if change is not None:
            wrong &= change == 0
        return _worst(
            path,
            ours,
            plain,
            wrong,
            wrong.astype(float),
            0.0,
        )

    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))

        limits = _limits(b, plain.dtype, allowed)
        if change is not None:
            explained = _EXPLAINED_LOW if allowed.low else _EXPLAINED
            limits = limits + explained * change
        wrong = ~(apart <= limits)
        if allowed.overflows:
            wrong &= np.isfinite(a)

        distance = np.where(np.isnan(apart), np.inf, apart)
        excess = distance / np.where(limits > 0, limits, _TINIEST)
    return _worst(
        path,
        ours,
        plain,
        wrong,
        excess,
        limits,
    )


def _is_same(ours: object, plain: object) -> bool:
    """Return whether two results that are not arrays are equal, as far as their types define
    that.
    """
    if type(ours) is not type(plain):
        return False
    if not isinstance(plain, (int, float, complex, str, bytes)):
        return True
    both_nan = ours != ours and plain != plain
    return ours == plain or both_nan


_TINIEST = float(np.finfo(np.float64).tiny)


def _limits(
    plain: Numbers,
    dtype: DType,
    allowed: Allowed,
) -> Numbers:
    """Return the allowed distance of each element."""
    size = np.abs(plain)
    size = np.where(np.isfinite(size), size, 0.0)
    if allowed.low:
        size = np.full_like(size, size.max(initial=0.0))
    # XLA may or may not flush numbers below the smallest normal one to zero.
    return allowed.of(dtype) * size + float(jnp.finfo(dtype).tiny)


def _worst(
    path: str,
    ours: Array,
    plain: Array,
    wrong: Numbers,
    excess: Numbers,
    limits: Numbers | float,
) -> Difference | None:
    if not wrong.any():
        return None
    worst = np.argmax(np.where(wrong, excess, -1.0))
    at = tuple(int(i) for i in np.unravel_index(int(worst), wrong.shape))
    limit = float(np.broadcast_to(limits, wrong.shape)[at])
    count = int(wrong.sum())
    return Difference(
        path,
        at,
        _scalar(ours, at),
        _scalar(plain, at),
        limit,
        count,
    )


def _scalar(array: Array, at: tuple[int, ...]) -> object:
    return numbers(array)[at].item()


def _changes(plain: Sequence[Any], spread: Callable[[], Iterable[object]]) -> list[Numbers | None]:
    """Return how far each element moves with the last bits; infinity where it becomes or stops
    being a finite number.
    """
    moves: list[Numbers | None] = [np.zeros(b.shape) if _is_array(b) else None for b in plain]
    for other in spread():
        leaves = tree_flatten(other)[0]
        for i, (b, moved) in enumerate(zip(plain, leaves, strict=True)):
            largest = moves[i]
            if largest is None or moved.shape != b.shape:
                continue
            x, y = numbers(b), numbers(moved)
            with np.errstate(all="ignore"):
                both_nan = (x != x) & (y != y)
                same = (x == y) | both_nan
                distance = np.abs(x - y) if x.dtype != bool else 1.0
                apart = np.where(same, 0.0, distance)

            apart = np.where(np.isnan(apart), np.inf, apart)
            moves[i] = np.maximum(largest, apart)
    return moves


def numbers(array: Array) -> Numbers:
    """Return an array as NumPy computes with it, wide enough to hold every element."""
    if issubdtype(array.dtype, extended):
        array = words_of_keys(array)
    host: Numbers = np.asarray(array)
    if issubdtype(host.dtype, np.complexfloating):
        return host.astype(np.complex128)
    if issubdtype(host.dtype, np.floating) or jnp.issubdtype(host.dtype, np.floating):
        return host.astype(np.float64)
    if host.dtype == np.bool_:
        return host
    return host.astype(object if host.dtype == np.uint64 else np.int64)


def _rounding(dtype: DType) -> float:
    return float(jnp.finfo(dtype).eps) / 2


def _is_array(leaf: object) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
