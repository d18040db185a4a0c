"""Many parameter draws in one program: the steady state, the derivatives there, and a perfect-foresight path, mapped by `vmap="draw"`.

On a mesh of devices each has its share of the draws.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples.equilibrium import _path, _steady
from examples.equilibrium._model import Model
from examples.equilibrium._newton import CONVERGED
from examples.equilibrium._variables import Layout


@dataclass(frozen=True, eq=False)
class Sweep:
    """What each draw gives, rows are draws.

    Args:
        converged: Whether steady state and path of a draw were found. Where not, its other numbers mean nothing.
        theta: Parameters as vectors.
        u: Controls in the steady state.
        x: States in the steady state.
        blocks: Jacobian blocks there, by name.
        path_u: Controls at each date.
        path_x: States at each date.
    """

    model: Model
    converged: np.ndarray
    theta: np.ndarray
    u: np.ndarray
    x: np.ndarray
    blocks: dict[str, np.ndarray]
    path_u: np.ndarray
    path_x: np.ndarray


def one_draw(model: Model) -> Any:
    """What is done for one draw of parameters."""

    def draws(
        theta: Float[Array, "p"],
        targets: _steady.Calibration,
        u0: Float[Array, "u"],
        x0: Float[Array, "x"],
        off: Float[Array, "x"],
        z0: Float[Array, "z"],
        dates: Float[Array, "dates"],
    ) -> Any:
        steady = _steady.search(model, theta, targets, u0, x0)
        z = z0 * steady.rho ** dates[:, None]
        u, x = steady.u, steady.x
        end = (u, x, jnp.zeros((u.size, x.size)), jnp.zeros((u.size, z0.size)))
        guess = jnp.broadcast_to(jnp.concatenate([u, x]), (dates.size - 1, u.size + x.size))
        moved, _, _, status = _path.search(model, steady.theta, end, x + off, z, guess)
        path_u = jnp.concatenate([moved[:, : u.size], u[None]])
        path_x = jnp.concatenate([(x + off)[None], moved[:, u.size :]])
        return steady, path_u, path_x, (steady.status == CONVERGED) & (status == CONVERGED)

    return draws


@lru_cache(maxsize=64)
def program(model: Model, mesh: jitney.Mesh | None = None) -> Any:
    """The compiled sweep. `theta` has an axis more than its annotation says, so it is mapped; all else is shared."""
    shard: Any = None if mesh is None else {"draw": tuple(mesh.shape)}
    return jitney.optimize(vmap="draw", shard=shard, mesh=mesh)(one_draw(model))


def sweep(model: Model, params: Any, off: Any = None, z0: Any = None, dates: int = 41, mesh: jitney.Mesh | None = None) -> Sweep:
    """Solve a model for many parameters at once.

    Args:
        model: The model.
        params: Parameters; those that vary have a leading axis of draws.
        off: How far states are from the steady state at the first date. Default: not at all.
        z0: Shocks at the first date. Default: none.
        dates: How many; the path ends at the steady state.
        mesh: Devices that share the draws, `jitney.mesh(draw=-1)`; their number divides that of the draws.

    Raises:
        MeshError: The devices of `mesh` do not divide the draws.
    """
    given = arguments(model, params, off, z0, dates)
    with jax.enable_x64(True):
        steady, path_u, path_x, converged = jax.device_get(program(model, mesh)(*given))
    blocks = model.local.blocks(steady.entries)
    return Sweep(model, converged, steady.theta, steady.u, steady.x, blocks, path_u, path_x)


def arguments(model: Model, params: Any, off: Any, z0: Any, dates: int) -> tuple[Any, ...]:
    """What the program is called with."""
    _, x_layout, z_layout = model.layouts
    first = _path.vector(x_layout, off, 0.0), _path.vector(z_layout, z0, 0.0)
    return _drawn(model.parameters, params), _steady.calibration(model, {}), *model.guess, *first, np.arange(dates, dtype=np.float64)


def _drawn(layout: Layout, params: Any) -> np.ndarray:
    """Parameters as rows of a matrix."""
    leaves = [np.asarray(leaf, np.float64) for leaf in layout.treedef.flatten_up_to(params)]
    draws = max(leaf.shape[0] for leaf, shape in zip(leaves, layout.shapes, strict=True) if leaf.ndim > len(shape))
    rows = [
        np.broadcast_to(leaf, (draws, *shape)) if leaf.ndim <= len(shape) else leaf
        for leaf, shape in zip(leaves, layout.shapes, strict=True)
    ]
    return np.concatenate([row.reshape(draws, -1) for row in rows], 1)
