"""The sums from disk over several devices as one writes them without jitney: `shard_map`, and one `psum` at the end.

It is what `tests/devices/examples/test_homodyne.py` compares `streamed(..., mesh=mesh)` with.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.homodyne._data import Data
from examples.homodyne.model import NAMES, Setup, gram

UPPER = np.triu_indices(len(NAMES) + 1)  # the products are symmetric
CUTS = (P("points"), P("points"), P(None, "points"))  # of the two times and of what was measured


def programs(mesh: Mesh) -> tuple[Any, Any]:
    """What adds a piece to what each device has, without a word to the others; and the sum over the devices."""

    def step(sums: Any, vector: Any, phi: Any, *piece: Any) -> Any:
        found = jax.vmap(gram, (None, None, 0, None, None, 0))(vector, Setup(), phi, *(each.astype(jnp.float64) for each in piece))
        return sums + found[:, *UPPER][None]

    def end(sums: Any) -> Any:
        return jax.lax.psum(sums[0], "points")

    own, none = P("points"), P()
    # Unchecked: the check of jax 0.12.0.1 refuses `jnp.sinc`, "Primitive polynomial requires varying manual axes to match".
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(own, none, none, *CUTS), out_specs=own, check_vma=False)
    return jax.jit(mapped), jax.jit(jax.shard_map(end, mesh=mesh, in_specs=own, out_specs=none))


def products(data: Data, mesh: Mesh, chunk: int) -> Callable[[np.ndarray], np.ndarray]:
    """Sum J^T J, J^T r and r^T r over pieces; the last points, which the devices do not divide, on one of them."""
    step, end = programs(mesh)
    alone, ended = programs(Mesh(mesh.devices.flat[:1], ("points",)))
    arrays, parts, phi = [data.mapped(name) for name in ("t1", "t2", "measured")], mesh.size, data.phi.astype(np.float32).astype(float)

    def summed(vector: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            sums: Any = np.zeros((parts, data.angles, len(UPPER[0])))
            for start in range(0, data.pairs - data.pairs % parts, chunk):
                stop = min(start + chunk, data.pairs - data.pairs % parts)
                piece = (jax.device_put(x[..., start:stop], NamedSharding(mesh, cut)) for x, cut in zip(arrays, CUTS, strict=True))
                sums = jax.block_until_ready(step(sums, vector, phi, *piece))
            found = np.asarray(end(sums))
            if data.pairs % parts:
                piece = (np.asarray(x[..., -(data.pairs % parts) :]) for x in arrays)
                found = found + np.asarray(ended(alone(np.zeros((1, *found.shape)), vector, phi, *piece)))
        out = np.zeros((len(NAMES) + 1, len(NAMES) + 1))
        out[UPPER] = found.sum(0)
        return out + np.triu(out, 1).T

    return summed
