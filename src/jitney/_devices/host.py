"""`jitney.host`: copy metrics of a step to the host without waiting for them.

`float(loss)` after each step waits for the step, so the device idles while Python prepares the next
one, and each number is a transfer of its own. Here a small program on the device concatenates the
bytes of all arrays of a pytree, their copy to the host starts at once, and the caller waits only
when the numbers are read:

    {"loss": f32[], "hits": bool[3]}  ->  u8[7]  ->  copy  ->  {"loss": 0.5, "hits": array([...])}
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import DonationError, TraceError, plural
from .._jax.mesh import automatic, is_within_trace, outside
from .._jax.trees import (
    Path,
    device_put,
    issubdtype,
    keystr,
    tree_flatten_with_path,
    tree_unflatten,
)
from .._jax.typed import DType, NumPyArray
from .._owners import public
from .._public import public_in

T = TypeVar("T")
Placed = tuple[int, jax.Array]
"""An array and its position among the leaves."""


@dataclass
class _Parcel:
    """Arrays on the same devices, packed: their position and type in the pytree, and their
    bytes.
    """

    places: Sequence[tuple[int, jax.ShapeDtypeStruct]]
    packed: Any


@public_in("jitney.types")
class Fetch(Generic[T]):
    """Pytree on its way to the host; returned by `jitney.host`."""

    def __init__(
        self,
        treedef: Hashable,
        leaves: list[object],
        parcels: Sequence[_Parcel],
    ):
        self._treedef = treedef
        self._leaves = leaves
        self._parcels = list(parcels)
        self._count = sum(len(parcel.places) for parcel in parcels)

    def done(self) -> bool:
        """Return whether the device has computed the arrays, so that `result` will not wait for
        it.
        """
        return all(parcel.packed.is_ready() for parcel in self._parcels)

    def result(self) -> T:
        """Wait for the arrays; return the pytree with Python numbers for rank 0 and NumPy arrays
        otherwise.
        """
        while self._parcels:
            # Pop a parcel only once it is unpacked, so that `result` can be called again after an
            # error.
            parcel = self._parcels[-1]
            types = [leaf for _, leaf in parcel.places]
            values = _unpack_leaves(np.asarray(parcel.packed), types)
            for (i, _), value in zip(parcel.places, values, strict=True):
                self._leaves[i] = value
            self._parcels.pop()
        return tree_unflatten(self._treedef, self._leaves)

    def __repr__(self) -> str:
        return (
            f"<jitney.host: {plural(self._count, 'array')},"
            f" {'here' if self.done() else 'on their way'}>"
        )


@public
def host(tree: T) -> Fetch[T]:
    """Start to copy all arrays of a tree to the host, in one transfer, and return at once.

        model, opt, metrics = step(model, opt, batch)
        logged.append(jitney.host(metrics))       # the next step can start
        ...
        print(logged[-10].result()["loss"])       # a float

    The arrays may be donated or deleted afterwards. Leaves that are not arrays stay as they are.

    Args:
        tree: Any pytree: a dict of metrics, a module, an array. Arrays on the same devices are one
            transfer.

    Raises:
        TraceError: It is called while a function is traced, when arrays have no values yet.
        DonationError: An array was donated, and has no numbers any more.
    """
    paths, treedef = tree_flatten_with_path(tree)
    leaves = [leaf for _, leaf in paths]
    for path, leaf in paths:
        if isinstance(leaf, Tracer):
            raise TraceError(
                "jitney.host()",
                f"{_name(path)} is traced: {leaf}.",
                "While a step is traced, its arrays have a shape and a dtype but no value.",
                "return the metrics from the step, and call jitney.host on what the call returned.",
                code="J273",
            )
    places = [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    for i, leaf in places:
        if leaf.is_deleted():
            raise DonationError(
                "jitney.host()",
                f"{_name(paths[i][0])} was deleted: its buffer was donated to a call that it was"
                " donated to.",
                "An array that is donated has no numbers afterwards.",
                "call jitney.host before the call that it is donated to, or on what that call"
                " returned.",
            )

    leaves = [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in leaves]
    # A program takes arrays of one set of devices only, so each set is packed by itself.
    groups: dict[Hashable, list[Placed]] = {}
    for i, leaf in places:
        group = groups.setdefault(_devices(leaf), [])
        group.append((i, _automatic(_plain(leaf))))
    # Uncommitted arrays may join any group.
    if len(groups) > 1:
        loose = groups.pop(None, [])
        next(iter(groups.values())).extend(loose)
    # An enclosing mesh or trace must not apply: these arrays have values and shardings of their
    # own.
    with _outside() if groups else nullcontext():
        return Fetch(treedef, leaves, [_parcel(group) for group in groups.values()])


def _parcel(group: Sequence[Placed]) -> _Parcel:
    arrays = [array for _, array in group]
    with _width(arrays):
        packed = _PACK(*arrays)
    # The copy starts when the device has computed the bytes; Python does not wait.
    packed.copy_to_host_async()
    places = [(i, jax.ShapeDtypeStruct(array.shape, array.dtype)) for i, array in group]
    return _Parcel(places, packed)


def _devices(array: jax.Array) -> Hashable:
    """Key of the arrays that a program can take together: their mesh, or their devices; None for an
    uncommitted array.
    """
    sharding = array.sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        return automatic(sharding.mesh)
    return frozenset(sharding.device_set) if array.committed else None


def _automatic(array: jax.Array) -> jax.Array:
    """The array on a mesh without explicit axes, in the same buffers."""
    sharding = array.sharding
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return array
    mesh = automatic(sharding.mesh)
    if mesh is sharding.mesh:
        return array
    # Explicit axes would be a part of the arrays' types, and `concatenate` cannot combine those of
    # arrays with different shapes.
    return device_put(array, jax.sharding.NamedSharding(mesh, sharding.spec))


@contextmanager
def _outside() -> Generator[None]:
    """Context without the surrounding mesh and outside of any trace: these arrays have values."""
    with jax.ensure_compile_time_eval() if is_within_trace() else nullcontext(), outside():
        yield


def _name(path: Path) -> str:
    return keystr(path).removeprefix(".") or "the array"


def _plain(array: jax.Array) -> jax.Array:
    """Random keys as their numbers."""
    return jax.random.key_data(array) if issubdtype(array.dtype, jax.dtypes.prng_key) else array


def _width(arrays: Sequence[jax.Array]) -> AbstractContextManager[object]:
    """Context in which 64-bit arrays keep their dtype."""
    if any(array.dtype.itemsize >= 8 for array in arrays):
        return jax.enable_x64(True)  # noqa: FBT003
    return nullcontext()


def _pack(*arrays: jax.Array) -> jax.Array:
    return jnp.concatenate([_bytes(array).reshape(-1) for array in arrays])


_PACK: Callable[..., jax.Array] = jax.jit(_pack)


def _bytes(array: jax.Array) -> jax.Array:
    if issubdtype(array.dtype, np.complexfloating):
        # `bitcast_convert_type` takes neither complex numbers nor booleans.
        array = jnp.stack([array.real, array.imag], -1)
    elif array.dtype == np.bool_ or _is_narrow(array.dtype):
        array = array.astype(_whole_byte_dtype(array.dtype))
    return jax.lax.bitcast_convert_type(array, np.uint8)


def _is_narrow(dtype: DType) -> bool:
    """Return whether the dtype has less than a byte, such as int4."""
    if dtype == np.bool_ or issubdtype(dtype, np.complexfloating):
        return False
    info = jnp.finfo if issubdtype(dtype, np.floating) else jnp.iinfo
    return info(dtype).bits < 8


def _whole_byte_dtype(dtype: DType) -> np.dtype:
    """Dtype of whole bytes that represents every value of a narrower one."""
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    if issubdtype(dtype, np.floating):
        return np.dtype(np.float32)
    return np.dtype(np.int8)


def _unpack_leaves(raw: NumPyArray, leaves: Sequence[jax.ShapeDtypeStruct]) -> list[object]:
    values: list[object] = []
    start = 0
    for leaf in leaves:
        dtype = stored = np.dtype(leaf.dtype)
        # The inverse of `_bytes`: narrow dtypes were widened to whole bytes.
        if dtype == np.bool_ or _is_narrow(dtype):
            stored = _whole_byte_dtype(dtype)
        count = int(np.prod(leaf.shape, dtype=int))
        stop = start + stored.itemsize * count

        flat = raw[start:stop].view(stored).astype(dtype, copy=stored != dtype)
        array = flat.reshape(leaf.shape)
        values.append(array.item() if array.ndim == 0 else array)
        start = stop
    return values
