"""The windows of a convolution along its spatial axes, and its evaluation window by window or tap
by tap, in which no zero behind a true size meets a value that exact size does not multiply by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ..._jax.typed import NumPyArray
from ..dims import Dim, evaluate, is_ragged, symbols
from ..interpreter import Op, PaddedInterpreter, Ranges, zero_of
from ..typed_jax import jnp, lax
from .windows import reach

CutOut = Callable[
    [PaddedInterpreter, Op, Sequence[jax.Array], Sequence[int], Sequence[tuple[int, int]]],
    jax.Array,
]
"""From the array and the kernel, the spatial axes along which windows are cut out, and the padding
of all spatial axes, to the result.
"""


@dataclass(frozen=True)
class ConvolvedAxis:
    """A spatial axis of a convolution, and the windows along it.

    Args:
        length: Size of the array along the axis.
        size: Size of the kernel.
        count: Number of the windows, which is the size of the result.
        low: Zeros in front of the array.
        high: Zeros behind it.
        stride: Steps from window to window.
        apart: Dilation of the array.
        dilation: Dilation of the kernel.
    """

    length: Dim
    size: Dim
    count: Dim
    low: Dim
    high: Dim
    stride: int
    apart: int
    dilation: int

    def behind_kernel(self, ranges: Ranges) -> int:
        """The number of the array's last elements that zeros behind a padded kernel may meet, at
        most. Those zeros begin where the true kernel ends in the first window.
        """
        if not is_ragged(self.count) and self.count == 0:
            return 0
        return self._behind(self.size, self.dilation, ranges)

    def behind_results(self, ranges: Ranges) -> int:
        """The number of the array's last elements that windows behind the last true one may read,
        at most. Those windows begin behind the beginning of the last true one.
        """
        return self._behind(self.count, self.stride, ranges)

    def _behind(self, size: Dim, step: int, ranges: Ranges) -> int:
        """The number of the array's elements from `size * step` on, zeros in front counted."""
        if not is_ragged(size):
            return 0
        names = symbols(size)
        names |= symbols(self.length)
        names |= symbols(self.low)
        if len(names) != 1:
            most = {}
            for name in names:
                _, most[name] = ranges[name]
            return evaluate(self.length, most)
        (name,) = names
        least, largest = ranges[name]
        each = {name: np.arange(least, largest + 1)}
        begins = evaluate(size, each) * step - evaluate(self.low, each)
        length = evaluate(self.length, each)
        met = reach(length, self.apart) - begins
        return max(int(np.max(met)), 0)

    def windows(self, allocated: Mapping[str, int]) -> _CutWindows:
        """The windows of the array that the kernel meets."""
        return _CutWindows(
            self.size,
            evaluate(self.size, allocated),
            evaluate(self.count, allocated),
            self.stride,
            self.dilation,
        )

    def taps(self, allocated: Mapping[str, int]) -> _CutWindows:
        """The windows of the array that the elements of the kernel meet, one for each element."""
        return _CutWindows(
            self.count,
            evaluate(self.count, allocated),
            evaluate(self.size, allocated),
            self.dilation,
            self.stride,
        )


def spatial_axes(op: Op) -> list[ConvolvedAxis]:
    numbers = op.params["dimension_numbers"]
    lhs, rhs = op.ins
    (out,) = op.outs
    sizes = zip(
        (lhs[axis] for axis in numbers.lhs_spec[2:]),
        (rhs[axis] for axis in numbers.rhs_spec[2:]),
        (out[axis] for axis in numbers.out_spec[2:]),
        strict=True,
    )
    steps = zip(
        op.params["window_strides"],
        op.params["lhs_dilation"],
        op.params["rhs_dilation"],
        strict=True,
    )
    padding = op.params["padding"]
    parts = zip(sizes, padding, steps, strict=True)
    return [ConvolvedAxis(*sized, low, high, *stepped) for sized, (low, high), stepped in parts]


def ends_finite(
    walk: PaddedInterpreter,
    x: jax.Array,
    axis: int,
    length: Dim,
    most: int,
) -> jax.Array:
    """Return whether the last elements along an axis, `most` of them, are finite: a scalar."""
    size = min(most, x.shape[axis])
    # A negative start would count from the end of what is allocated.
    start = walk.count(length) - np.int32(size)
    start = lax.max(start, np.int32(0))
    last = lax.dynamic_slice_in_dim(x, start, size, axis)
    return jnp.isfinite(last).all()


def window_by_window(
    walk: PaddedInterpreter,
    op: Op,
    operands: Sequence[jax.Array],
    along: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """Convolve with one window after the other, cleared behind the true size of the kernel. So no
    more than a window is held; and in JAX 0.10 a branch that holds all of them made calls that do
    not take it 1.4 times as slow.
    """
    lhs, rhs = operands
    axes = spatial_axes(op)
    parts = {i: axes[i].windows(walk.allocated) for i in along}
    x = _padded(op, lhs, parts, padding)
    counts = [part.count for part in parts.values()]
    made = [*_spatial(op, along, "out_spec").values()]

    def one(at: jax.Array) -> jax.Array:
        window = _window(walk, op, x, parts, at)
        (out,) = _bind(walk, op, [window, rhs], along, padding)
        return lax.squeeze(out, made)

    out = lax.map(one, _grid(parts))
    out = lax.reshape(out, (*counts, *out.shape[1:]))
    return jnp.moveaxis(out, range(len(counts)), made)


def tap_by_tap(
    walk: PaddedInterpreter,
    op: Op,
    operands: Sequence[jax.Array],
    along: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """Convolve with one element of the kernel after the other. Zeros stand in place of what windows
    behind the last true one would read, and of all that an element behind the true kernel would.
    """
    lhs, rhs = operands
    axes = spatial_axes(op)
    parts = {i: axes[i].taps(walk.allocated) for i in along}
    true = jnp.stack([walk.count(axes[i].size) for i in along])
    x = _padded(op, lhs, parts, padding)
    of_kernel = [*_spatial(op, along, "rhs_spec").values()]
    (aval,) = op.eqn.outvars

    def one(total: jax.Array, at: jax.Array) -> tuple[jax.Array, None]:
        tap = rhs
        for axis, start in zip(of_kernel, at, strict=True):
            tap = lax.dynamic_slice_in_dim(tap, start, 1, axis)
        window = _window(walk, op, x, parts, at)
        window = jnp.where((at < true).all(), window, zero_of(x))
        (out,) = _bind(walk, op, [window, tap], along, padding)
        return total + out, None

    shape = walk.shape(op.outs[0])
    start = jnp.zeros(shape, aval.aval.dtype)
    total, _ = lax.scan(one, start, _grid(parts))
    return total


@dataclass(frozen=True)
class _CutWindows:
    """`count` windows of an array along one axis: `allocated` elements each, of which `valid` are
    kept, `apart` from element to element; the next window is `step` elements farther.
    """

    valid: Dim
    allocated: int
    count: int
    step: int
    apart: int

    @property
    def span(self) -> int:
        return reach(self.allocated, self.apart)


def _spatial(op: Op, along: Sequence[int], spec: str) -> dict[int, int]:
    """Number of a spatial axis -> its position in an array, a kernel or a result."""
    positions = getattr(op.params["dimension_numbers"], spec)[2:]
    return {i: positions[i] for i in along}


def _grid(parts: Mapping[int, _CutWindows]) -> NumPyArray:
    """The grid of the windows' numbers, the last one fastest, in rows."""
    counts = [part.count for part in parts.values()]
    each = np.meshgrid(*map(np.arange, counts), indexing="ij")
    rows = np.stack(each, axis=-1).reshape(-1, len(counts))
    return rows.astype(np.int32)


def _padded(
    op: Op,
    lhs: jax.Array,
    parts: Mapping[int, _CutWindows],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """The array with its own zeros in front, behind and between its elements."""
    config = [(0, 0, 0)] * lhs.ndim
    apart = op.params["lhs_dilation"]
    axes = _spatial(op, [*parts], "lhs_spec")
    for i, part in parts.items():
        axis = axes[i]
        low, _ = padding[i]
        needed = (part.count - 1) * part.step + part.span
        behind = needed - low - reach(lhs.shape[axis], apart[i])
        config[axis] = (low, behind, apart[i] - 1)
    return lax.pad(lhs, zero_of(lhs), config)


def _window(
    walk: PaddedInterpreter,
    op: Op,
    x: jax.Array,
    parts: Mapping[int, _CutWindows],
    at: jax.Array,
) -> jax.Array:
    """Cut one window out of an array, with zeros in place of its padding; `at` has its numbers."""
    dims = list(op.ins[0])
    axes = _spatial(op, [*parts], "lhs_spec")
    for (i, part), place in zip(parts.items(), at, strict=True):
        start = place * np.int32(part.step)
        axis = axes[i]
        # A dynamic slice has no stride: the span first, then every `apart`-th element of it.
        x = lax.dynamic_slice_in_dim(x, start, part.span, axis)
        x = lax.slice_in_dim(x, 0, part.span, part.apart, axis)
        dims[axis] = part.valid
    return walk.within().keep(x, dims, [*axes.values()], zero_of(x))


def _bind(
    walk: PaddedInterpreter,
    op: Op,
    operands: Sequence[jax.Array],
    along: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> list[jax.Array]:
    """The convolution of what was cut out: along these axes it is dense and has no zeros."""

    def dense(name: str) -> tuple[int, ...]:
        return tuple(1 if i in along else n for i, n in enumerate(op.params[name]))

    return walk.bind(
        op,
        operands,
        padding=tuple((0, 0) if i in along else pair for i, pair in enumerate(padding)),
        window_strides=dense("window_strides"),
        lhs_dilation=dense("lhs_dilation"),
        rhs_dilation=dense("rhs_dilation"),
    )
