"""The three ways to sum of `_fit.py` as one writes them without jitney.

At once, by `vmap`; in chunks, by a loop over slices, and what is left over after it; from disk,
over one device or several, by `shard_map`, and one `psum` at the end. It is what
`examples/homodyne/tests/test_fit.py` and `tests/devices/examples/test_homodyne.py` compare with.
There are no checkpoints and there is no progress.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ._data import Data
from ._fit import CHUNK
from .model import NAMES, Setup, gram

UPPER = np.triu_indices(len(NAMES) + 1)  # the products are symmetric
CUTS = (P("points"), P("points"), P(None, "points"))  # of the two times and of what was measured


def over_angles(vector: Any, phi: Any, *arrays: Any) -> Any:
    """The products of each angle, in float64."""
    wide = (each.astype(jnp.float64) for each in arrays)
    return jax.vmap(gram, (None, None, 0, None, None, 0))(vector, Setup(), phi, *wide)


@jax.jit
def at_once(vector: Any, phi: Any, *arrays: Any) -> Any:
    """Of all points, summed over the angles."""
    return over_angles(vector, phi, *arrays).sum(0)


@jax.jit
def in_chunks(vector: Any, phi: Any, *arrays: Any) -> Any:
    """The same, of `CHUNK` points at a time, and of those that are left over."""
    size = min(CHUNK, arrays[0].shape[-1])
    whole = arrays[0].shape[-1] // size * size

    def add(i: Any, sums: Any) -> Any:
        chunk = (jax.lax.dynamic_slice_in_dim(x, i * size, size, -1) for x in arrays)
        return sums + over_angles(vector, phi, *chunk).sum(0)

    sums = jax.lax.fori_loop(0, whole // size, add, jnp.zeros((len(NAMES) + 1, len(NAMES) + 1)))
    return sums + over_angles(vector, phi, *(x[..., whole:] for x in arrays)).sum(0)


def programs(mesh: Mesh) -> tuple[Any, Any]:
    """What adds a piece to what each device has, without a word to the others; and the sum over the
    devices.
    """

    def step(sums: Any, vector: Any, phi: Any, *piece: Any) -> Any:
        return sums + over_angles(vector, phi, *piece)[:, *UPPER][None]

    def end(sums: Any) -> Any:
        return jax.lax.psum(sums[0], "points")

    own, none = P("points"), P()
    # Unchecked: the check of jax 0.12.0.1 refuses `jnp.sinc`, "Primitive polynomial requires
    # varying manual axes to match".
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(own, none, none, *CUTS), out_specs=own, check_vma=False
    )
    return jax.jit(mapped), jax.jit(jax.shard_map(end, mesh=mesh, in_specs=own, out_specs=none))


def in_memory(data: Data, program: Any = at_once) -> Callable[[np.ndarray], np.ndarray]:
    """At once or in chunks, from arrays that are read once."""
    arrays = jax.device_put([np.array(data.mapped(name)) for name in ("t1", "t2", "measured")])

    def summed(vector: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(program(vector, data.phi.astype(np.float32).astype(float), *arrays))

    return summed


def streamed(
    data: Data, chunk: int, mesh: Mesh | None = None
) -> Callable[[np.ndarray], np.ndarray]:
    """Over pieces that are read from disk; the last points, which the devices do not divide, on one
    of them.
    """
    mesh = mesh or Mesh(np.array(jax.devices()[:1]), ("points",))
    step, end = programs(mesh)
    alone, ended = programs(Mesh(mesh.devices.flat[:1], ("points",)))
    arrays, parts, phi = (
        [data.mapped(name) for name in ("t1", "t2", "measured")],
        mesh.size,
        data.phi.astype(np.float32).astype(float),
    )

    def summed(vector: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            sums: Any = np.zeros((parts, data.angles, len(UPPER[0])))
            for start in range(0, data.pairs - data.pairs % parts, chunk):
                stop = min(start + chunk, data.pairs - data.pairs % parts)
                piece = (
                    jax.device_put(x[..., start:stop], NamedSharding(mesh, cut))
                    for x, cut in zip(arrays, CUTS, strict=True)
                )
                sums = jax.block_until_ready(step(sums, vector, phi, *piece))
            found = np.asarray(end(sums))
            if data.pairs % parts:
                piece = (np.asarray(x[..., -(data.pairs % parts) :]) for x in arrays)
                found = found + np.asarray(
                    ended(alone(np.zeros((1, *found.shape)), vector, phi, *piece))
                )
        out = np.zeros((len(NAMES) + 1, len(NAMES) + 1))
        out[UPPER] = found.sum(0)
        return out + np.triu(out, 1).T

    return summed
