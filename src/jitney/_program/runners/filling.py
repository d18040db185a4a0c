"""Filling of arrays to the size of a bucket, and cutting of results to their true size, on the host
or on their device, whichever is cheaper.

A device needs a program for each shape, of 20 to 30 ms, which the cache keeps. The host needs none,
but an array of another device crosses to it and back. So arrays of one size go through the host
until their crossings have cost as much as a program, and use a program from then on. On a CPU a
device array is host memory: it is read in place, and results are views of the padded result. But
JAX takes longer to make a view into an array of its own than a program takes to copy a small one,
so small results that are cut often get a program too. A view also keeps the whole padded result
alive, so a result that is less than half of it is copied.

A padded result is kept for a while together with the part that was cut from it. The next padded
program on the axis takes the padded result as it is: padded programs never look at the padding,
which may hold anything.

Random keys are filled and cut on their device in each call, as NumPy has no dtype for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, Self, cast

import jax
import numpy as np

from ..._jax.mesh import explicit_mesh, reshape_sharded
from ..._jax.settings import x64_is_on
from ..._jax.trees import Tracer, canonicalize_dtype, device_put, is_key
from ..._jax.typed import Array, DType, NumPyArray
from ..._stages.sharding import adapt_sharding
from ..._view.layout import MAX_ENTRIES

PROGRAM = 25e-3
"""Seconds to compile a filling or a cutting."""
# Seconds for one transfer between the host and a device, and its bandwidth.
_CROSSING, _BYTES_A_SECOND = 50e-6, 1e10
# Seconds that a view takes longer than a copy by a program, for arrays up to this many bytes.
_VIEW, _SMALL = 60e-6, 2**16
# A view may keep at most this many times its own bytes in memory.
_HELD = 2
# How many padded results are kept together with their parts, and the most bytes of one: 256 MiB in
# all.
_KEPT, _LARGEST = 16, 2**24


def is_near(array: jax.Array) -> bool:
    """Return whether a device array is host memory."""
    return next(iter(array.devices())).platform == "cpu"


_Slices = tuple[slice, ...]
# Types of arrays on devices, as results bring them. JAX has no public name for them.
DEVICE_ARRAYS: set[type] = set()
# Of an array on one device, in the host's memory: what `Filling._place` returns.
_HERE = (True, True)


_Shape = tuple[int, ...]
_Edges = tuple[tuple[_Slices, _Slices], ...]
FillPlan = tuple[int, _Shape, DType, bool, _Slices, _Edges]
"""Filling of one array of calls with the same shapes: its place among the arguments; its filled
shape; its dtype; whether its padding may hold anything; where the array stands in the filled one;
and for each axis what is filled, and the elements that fill it. A plain tuple, since Python unpacks
one in half the time of a named one.
"""


def fill_plan(
    at: int,
    array: Array,
    shape: _Shape,
    *,
    takes: bool,
) -> FillPlan:
    """Return how an array at a place among the arguments is filled."""
    leading, edges = _edges(tuple(array.shape), shape)
    return at, shape, array.dtype, takes, leading, edges


def _forget(part: _PaddedOriginal) -> None:
    part.whole = None


class _PaddedOriginal(weakref.ref["jax.Array"]):
    """Weak reference to the part that was cut from a padded result, with that result, which lives
    as long as the part.
    """

    __slots__ = ("whole",)
    whole: jax.Array | None

    def __new__(cls, part: jax.Array, whole: jax.Array) -> Self:
        out = super().__new__(cls, part, _forget)
        out.whole = whole
        return out

    def __init__(self, part: jax.Array, whole: jax.Array):
        """Do nothing: `__new__` has set all."""


class Filling:
    """Filling and cutting for padded calls. One instance serves all programs, since the result of
    one may be an argument of another.

    Args:
        near: Whether a device array is host memory.
        program: Seconds to compile a filling or a cutting.

    Attributes:
        crossings: How many arrays went from a device to the host, or back.
        programs: How many were filled or cut on their device.
        kept: How many were not filled, since the padded original was there.
    """

    def __init__(
        self,
        near: Callable[[jax.Array], bool] = is_near,
        program: float = PROGRAM,
    ):
        self.near, self.program = near, program
        self.crossings = self.programs = self.kept = 0
        # Seconds spent so far by going through the host, for each size.
        self._spent: dict[Hashable, float] = {}
        # The latest padded results, by the `id` of the part that was cut from each.
        self._beside: dict[int, _PaddedOriginal] = {}
        # Of each sharding, the answers of `_place`.
        self._places: dict[jax.sharding.Sharding, tuple[bool, bool]] = {}
        # One of them, on one device in the host's memory.
        self._here: jax.sharding.Sharding | None = None
        # Cuts on one device whose programs are paid for -> whether the padded result may be kept.
        self._paid: dict[Hashable, bool] = {}

    def fill(
        self,
        array: object,
        shape: tuple[int, ...],
        *,
        stays: bool = True,
        takes: bool = False,
    ) -> Array:
        """Return an array with its last element along each axis repeated up to a shape. Zeros would
        give NaNs to a body that divides by them.

        Args:
            array: An array or a tracer.
            shape: As long as the array along each axis, or longer.
            stays: Whether the result is to be on the device on which the array was put on purpose,
                as JAX's results are.
            takes: Whether the padding may hold anything, so that a padded original serves.
        """
        if isinstance(array, Tracer):
            return _fill_tracers(array, shape)
        if not isinstance(array, jax.Array):
            return repeat_edges(np.asarray(array), shape)
        if is_key(array):
            return _fill_on_device(array, shape)

        # The padded result that this array was cut from, if it is still there.
        if takes and self._beside:
            whole = self._whole(array, shape)
            if whole is not None:
                self.kept += 1
                return whole

        # Through the host, or by a program on the device.
        alone, near = self._place(array)
        if (
            near
            or not _has_its_type(array)
            or self._is_host_cheaper(
                array,
                shape,
                self._crossing(array),
                alone=alone,
            )
        ):
            self.crossings += 0 if near else 2
            out = repeat_edges(np.asarray(array), shape)
            if stays and alone and array.committed:
                return device_put(out, array.sharding)
            return out
        return _fill_on_device(array, shape)

    def fill_all(self, given: list[Array], plans: Sequence[FillPlan]) -> None:
        """Fill arrays in place of a list as `fill` does, in a third of its time for those whose
        memory NumPy reads.
        """
        beside, here = self._beside, self._here
        empty = np.empty
        for at, shape, dtype, takes, leading, edges in plans:
            array: Any = given[at]
            if type(array) is not np.ndarray:
                if beside and takes and id(array) in beside:
                    whole = self._whole(array, shape)
                    if whole is not None:
                        self.kept += 1
                        given[at] = whole
                        continue
                # Most arrays of a process have one object as their sharding.
                sharding = array.sharding
                is_here = sharding is here or self._is_here(sharding)
                if not is_here or array.committed:
                    given[at] = self.fill(array, shape)
                    continue
            # New memory for each call: JAX may read it in place until the program is done.
            out = empty(shape, dtype)
            out[leading] = array
            for behind, last in edges:
                out[behind] = out[last]
            given[at] = out

    def _is_here(self, sharding: jax.sharding.Sharding) -> bool:
        """Return whether this is the place of an array that was seen on one device, in the host's
        memory.
        """
        if self._places.get(sharding) != _HERE:
            return False
        self._here = sharding
        return True

    def cut(
        self,
        result: object,
        shape: tuple[int, ...],
        *,
        keeps: bool = False,
    ) -> Array:
        """Return the leading part of an array.

        Args:
            result: Result of a padded program.
            shape: Its true shape.
            keeps: Whether the padded result is kept together with the part.
        """
        key = _cut_key(cast("jax.Array", result), shape) if self._paid else None
        may_keep = None if key is None else self._paid.get(key)
        if may_keep is None:
            return self._cut(result, shape, keeps=keeps)
        self.programs += 1
        part = _cut_in(result, shape)
        if keeps and may_keep:
            self._keep(part, cast("jax.Array", result))
        return part

    def _cut(self, result: object, shape: tuple[int, ...], *, keeps: bool) -> Array:
        if isinstance(result, Tracer):
            cut = _cut_in if explicit_mesh([result]) else _leading
            return cut(result, shape)
        # An argument from the host, which JAX returns unchanged under an outer transform.
        if not isinstance(result, jax.Array):
            return _leading_on_host(np.asarray(result), shape)
        alone, near = self._place(result)
        if is_key(result):
            part = _cut_in(result, shape)
            return part if alone else device_put(part, adapt_sharding(result.sharding, shape))

        part = self._part(result, shape, alone=alone, near=near)

        # Weakly typed results are not cached: JAX would trace the next program once more for them.
        may_keep = alone and _bytes(result) <= _LARGEST and not result.weak_type
        if may_keep and keeps:
            self._keep(part, result)
        spent = self._spent.get((result.shape, shape, result.dtype), -1.0)
        if spent >= self.program and alone and not result.weak_type:
            DEVICE_ARRAYS.add(type(result))
            if len(self._paid) >= MAX_ENTRIES:
                self._paid = {}
            self._paid[_cut_key(result, shape)] = may_keep
        return part

    def _keep(self, part: jax.Array, whole: jax.Array) -> None:
        """Keep a padded result with the part that was cut from it, and drop the oldest."""
        self._beside[id(part)] = _PaddedOriginal(part, whole)
        if len(self._beside) > _KEPT:
            oldest, *_ = self._beside
            # Another thread may do so meanwhile.
            self._beside.pop(oldest, None)

    def _place(self, array: jax.Array) -> tuple[bool, bool]:
        """Return whether an array is on one device, and whether in the host's memory."""
        sharding = array.sharding
        place = self._places.get(sharding)
        if place is None:
            if len(self._places) >= MAX_ENTRIES:
                self._places = {}
            place = self._places[sharding] = len(array.devices()) == 1, self.near(array)
        return place

    def _part(
        self,
        result: jax.Array,
        shape: tuple[int, ...],
        *,
        alone: bool,
        near: bool,
    ) -> jax.Array:
        # An array from the host is never weakly typed.
        if alone and result.weak_type:
            return _cut_in(result, shape)

        # What the host would cost: two crossings, or the time of a view.
        seconds = _VIEW if _bytes(result) <= _SMALL else 0.0
        if not near:
            seconds = self._crossing(result)
        if _has_its_type(result) and not self._is_host_cheaper(result, shape, seconds, alone=alone):
            return _cut_in(result, shape)

        # Through the host, and back to where the result was.
        self.crossings += 0 if near else 2
        part = _leading_on_host(np.asarray(result), shape)
        if not alone:
            return device_put(part, adapt_sharding(result.sharding, shape))
        # `device_put`, as `jnp.asarray` compiles a program.
        if not result.committed:
            return device_put(part)
        return device_put(part, next(iter(result.devices())))

    def _whole(
        self,
        part: jax.Array,
        shape: tuple[int, ...],
    ) -> jax.Array | None:
        """Return the padded result that an array was cut from, if it has this shape and can be
        used.
        """
        beside = self._beside.get(id(part))
        whole = None if beside is None or beside() is not part else beside.whole
        if whole is None or whole.shape != shape:
            return None
        if part.is_deleted() or whole.is_deleted():
            return None
        return whole if _has_its_type(whole) and not _stops_at_nan() else None

    def _crossing(self, array: Array) -> float:
        """Seconds to the host and back."""
        return 2 * (_CROSSING + array.nbytes / _BYTES_A_SECOND)

    def _is_host_cheaper(
        self,
        array: Array,
        shape: tuple[int, ...],
        seconds: float,
        *,
        alone: bool,
    ) -> bool:
        """Return whether to go through the host, and add its seconds to those spent on this size.
        Arrays over several devices always go through the host.
        """
        if not seconds or not alone:
            return True

        # The rent-or-buy rule: go through the host until that has cost as much as the program. It
        # costs at most about twice the best choice in hindsight.
        key = (array.shape, shape, array.dtype)
        spent = self._spent.get(key, 0.0)
        if spent >= self.program:
            self.programs += 1
            return False
        if len(self._spent) >= MAX_ENTRIES:
            self._spent = {}
        self._spent[key] = spent + seconds
        return True


FILLING = Filling()


def _cut_key(result: jax.Array, shape: tuple[int, ...]) -> Hashable:
    if type(result) not in DEVICE_ARRAYS or result.weak_type:
        return None
    # Under the other setting of JAX a program may not take an array of 64 bits.
    is_wide = x64_is_on()
    return result.sharding, result.shape, result.dtype, shape, is_wide


def _bytes(array: jax.Array) -> int:
    # `nbytes` computes the number of elements anew, and takes twice as long.
    return array.size * array.dtype.itemsize


def _has_its_type(array: jax.Array) -> bool:
    """Return whether programs take an array in its own type: not an array of 64 bits where JAX has
    32.
    """
    return array.dtype == canonicalize_dtype(array.dtype)


def _stops_at_nan() -> bool:
    """Return whether JAX raises on any number of a result that is not finite, the padding
    included.
    """
    config: Any = jax.config
    return config.jax_debug_nans or config.jax_debug_infs


def repeat_edges(host: NumPyArray, shape: Sequence[int]) -> NumPyArray:
    """Return a NumPy array with its last element along each axis repeated up to a shape."""
    out = np.empty(shape, host.dtype)
    leading, edges = _edges(host.shape, tuple(shape))
    out[leading] = host
    for behind, last in edges:
        out[behind] = out[last]
    return out


@lru_cache(maxsize=MAX_ENTRIES)
def _edges(
    old: tuple[int, ...],
    new: tuple[int, ...],
) -> tuple[_Slices, _Edges]:
    """Return where an array of the old shape stands in one of the new shape; and for each axis that
    is longer, what is filled, and the last elements that fill it.
    """
    edges: list[tuple[_Slices, _Slices]] = []
    # One axis after another, so that corners repeat elements that were repeated before.
    for axis, (size, length) in enumerate(zip(old, new, strict=True)):
        if size < length:
            before = (slice(None),) * axis
            padding, last = slice(size, None), slice(size - 1, size)
            edges.append(((*before, padding), (*before, last)))
    return tuple(slice(0, size) for size in old), tuple(edges)


def _leading_on_host(host: NumPyArray, shape: Sequence[int]) -> NumPyArray:
    """Return the leading part of a NumPy array: a view, or a copy if a view would keep more than
    twice its own bytes in memory.
    """
    part = host[tuple(slice(0, size) for size in shape)]
    return part if _HELD * part.nbytes >= host.nbytes else part.copy()


@partial(jax.jit, static_argnums=1)
def _fill_tracers(array: object, shape: tuple[int, ...]) -> jax.Array:
    """Fill arrays that an outer transform traces; no derivative flows through the padding."""
    return reshape_sharded(array, shape, repeat_edges_in_jax)


@partial(jax.jit, static_argnums=1)
def _fill_on_device(array: Array, shape: tuple[int, ...]) -> jax.Array:
    """Fill arrays on a device; the result is strongly typed, as arrays from the host are, so that
    both share one program.
    """
    return jax.lax.convert_element_type(
        reshape_sharded(array, shape, repeat_edges_in_jax), array.dtype
    )


def repeat_edges_in_jax(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return an array with its last element along each axis repeated up to a shape; no derivative
    flows through the padding.
    """
    for axis, size in enumerate(array.shape):
        if size < shape[axis]:
            last = jax.lax.stop_gradient(jax.lax.slice_in_dim(array, size - 1, size, axis=axis))
            missing = [*last.shape]
            missing[axis] = shape[axis] - size
            behind = jax.lax.broadcast_in_dim(last, missing, range(last.ndim))
            array = jax.lax.concatenate([array, behind], axis)
    return array


@partial(jax.jit, static_argnums=1)
def _cut_in(array: object, shape: tuple[int, ...]) -> jax.Array:
    """Cut arrays on a device, or on a mesh with explicit axes."""
    return reshape_sharded(array, shape, _leading)


def _leading(array: jax.Array, shape: Sequence[int]) -> jax.Array:
    return jax.lax.slice(array, [0] * len(shape), shape)
