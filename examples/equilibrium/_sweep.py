"""Many parameter draws in one program: the steady state, the derivatives there, and a
perfect-foresight path, mapped by `vmap="draw"`.

Within a mesh of devices each has its share of the draws.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from . import _path, _steady
from ._calibration import Calibration, calibration
from ._ends import SETTLED, off
from ._fail import ModelError, NotSettled, message
from ._given import count, made_by, numbers
from ._implicit import VERDICTS, Solution, solved
from ._model import Model
from ._newton import CONVERGED
from ._persistence import decay
from ._variables import Layout

AT_ONCE = 250  # draws of `solutions` in one call


@dataclass(frozen=True, eq=False)
class Sweep:
    """What each draw gives, rows are draws.

    Args:
        settled: Whether the path of a draw is near the steady state at its last date; see
            `NotSettled`.
        converged: Whether steady state and path of a draw were found. Where not, its other numbers
            mean nothing.
        theta: Parameters as vectors.
        u: Controls in the steady state.
        x: States in the steady state.
        blocks: Jacobian blocks there, by name.
        path_u: Controls at each date.
        path_x: States at each date.
    """

    model: Model
    settled: np.ndarray
    converged: np.ndarray
    theta: np.ndarray
    u: np.ndarray
    x: np.ndarray
    blocks: dict[str, np.ndarray]
    path_u: np.ndarray
    path_x: np.ndarray


def one_draw(model: Model) -> Any:
    """What is done for one draw of parameters."""
    local, moving, rho = model.local, model.moving, model.rho

    def draws(
        theta: Float[Array, "p"],
        targets: Calibration,
        u0: Float[Array, "u"],
        x0: Float[Array, "x"],
        off: Float[Array, "x"],
        z0: Float[Array, "z"],
        dates: Float[Array, "dates"],
    ) -> Any:
        steady = _steady.search(local, rho, theta, targets, u0, x0)
        if steady.rho.ndim == 1:
            z = z0 * steady.rho ** dates[:, None]
        else:
            z = decay(steady.rho, z0, dates.size)
        u, x = steady.u, steady.x
        end = (u, x, jnp.zeros((u.size, x.size)), jnp.zeros((u.size, z0.size)))
        guess = jnp.broadcast_to(jnp.concatenate([u, x]), (dates.size - 1, u.size + x.size))
        moved, _, _, status = _path.search(moving, steady.theta, end, x + off, z, guess)
        path_u = jnp.concatenate([moved[:, : u.size], u[None]])
        path_x = jnp.concatenate([(x + off)[None], moved[:, u.size :]])
        return steady, path_u, path_x, (steady.status == CONVERGED) & (status == CONVERGED)

    return draws


@lru_cache(maxsize=64)
def program(model: Model) -> Any:
    """The compiled sweep. `theta` has an axis more than its annotation says, so it is mapped; all
    else is shared.
    """
    from jitney import optimize

    return optimize(vmap="draw", shard={"draw": "*"}, mesh="optional", auto=True)(one_draw(model))


def sweep(model: Model, params: Any, off: Any = None, z0: Any = None, dates: int = 41) -> Sweep:
    """Solve a model for many parameters at once.

    Within `with jitney.mesh(draw=-1):` devices share the draws, which their number divides.

    Args:
        model: The model.
        params: Parameters; those that vary have a leading axis of draws.
        off: How far states are from the steady state at the first date. Default: not at all.
        z0: Shocks at the first date. Default: none.
        dates: How many; the path ends at the steady state.

    Raises:
        MeshError: The devices of the mesh around the call do not divide the draws.
    """
    made_by("sweep", "model", model, Model, "Model(...)")
    given = arguments(model, params, off, z0, dates)
    with jax.enable_x64(True):
        steady, path_u, path_x, converged = jax.device_get(program(model)(*given))
    blocks = model.local.blocks(steady.entries)
    settled = _settled(model, steady, path_x[:, -1], given[-2], dates, converged)
    return Sweep(
        model, settled, converged, steady.theta, steady.u, steady.x, blocks, path_u, path_x
    )


@dataclass(frozen=True, eq=False)
class Draws:
    """The solution of each draw, rows are draws.

    Args:
        solution: Steady states and policies; NaN where there is not exactly one.
        verdict: In words, of `VERDICTS`.
        value: That of the function that was given, if one was.
        gradient: Its derivatives, a group like the parameters.
    """

    solution: Solution
    verdict: np.ndarray
    value: np.ndarray | None
    gradient: PyTree


def solutions(
    model: Model, params: PyTree, of: Callable[[Solution], Float[Array, ""]] | None = None
) -> Draws:
    """Steady state, policy and verdict for many parameters in one program, and the gradient of a
    number that is made of them.

    Args:
        model: The model.
        params: Parameters; those that vary have a leading axis of draws.
        of: From a `Solution` to a number; pass the same function again for the same program.
    """
    made_by("solutions", "model", model, Model, "Model(...)")
    theta = _drawn(model.parameters, params, f"{model.name}, solutions, parameters")
    _ = model.theta(model.params)
    with jax.enable_x64(True):
        program, targets = _solutions(model, of), calibration(model, {})
        found, value, slopes = _in_parts(lambda some: program(some, targets), theta)
    words = np.array(VERDICTS)[found.verdict]
    if of is None:
        return Draws(found, words, None, None)
    return Draws(found, words, value, model.parameters.group(slopes))


def _in_parts(run: Callable[[np.ndarray], PyTree], theta: np.ndarray) -> PyTree:
    """Run a program on some draws at a time, all parts of one size. With 1,000 at once, whose
    matrices go to LAPACK on the host, jax 0.10.2 hangs on two cores; with 500 it does not.
    """
    parts: list[PyTree] = []
    for begin in range(0, max(len(theta), 1), AT_ONCE):
        part = theta[begin : begin + AT_ONCE]
        missing = AT_ONCE - len(part) if begin else 0
        filled = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
        parts.append(jax.device_get(run(filled)))

    def joined(*some: np.ndarray) -> np.ndarray:
        return np.concatenate(some)[: len(theta)]

    return jax.tree.map(joined, *parts)


@lru_cache(maxsize=64)
def _solutions(
    model: Model, of: Callable[[Solution], Float[Array, ""]] | None
) -> Callable[..., PyTree]:
    import jitney

    @jitney.optimize(vmap="draw")
    def draws(theta: Float[Array, "p"], targets: Calibration) -> PyTree:
        if of is None:
            found = solved(model, theta, targets)
            return found, jnp.zeros(()), jnp.zeros_like(theta)

        def value(theta: Float[Array, "p"]) -> tuple[Float[Array, ""], Solution]:
            found = solved(model, theta, targets)
            return of(found), found

        (number, found), slopes = jax.value_and_grad(value, has_aux=True)(theta)
        return found, number, slopes

    return draws


def arguments(model: Model, params: Any, off: Any, z0: Any, dates: int) -> tuple[Any, ...]:
    """What the program is called with."""
    (_, x_layout, z_layout), where = model.layouts, f"{model.name}, sweep"
    first = (
        _path.vector(x_layout, off, 0.0, f"{where}, states"),
        _path.vector(z_layout, z0, 0.0, f"{where}, shocks"),
    )
    periods = np.arange(count(where, "dates", dates, 2), dtype=np.float64)
    return (
        _drawn(model.parameters, params, f"{where}, parameters"),
        calibration(model, {}),
        *model.guess,
        *first,
        periods,
    )


def _settled(
    model: Model, steady: Any, x: np.ndarray, z0: np.ndarray, dates: int, converged: np.ndarray
) -> np.ndarray:
    """Which draws end near their steady state; a warning counts the others."""
    if steady.rho.ndim == 3:
        z = np.linalg.matrix_power(steady.rho, dates - 1) @ z0
    else:
        z = z0 * steady.rho ** (dates - 1)
    left = off(steady.x, x, z)
    settled = converged & (left <= SETTLED)
    away = converged & ~settled
    if np.any(away):
        warnings.warn(
            message(
                f"{model.name}, sweep",
                f"at the last date {away.sum()} of {away.size} draws are up to"
                f" {left[away].max():.2g} off the steady state.",
                "A path ends at the steady state, which is right only near it.",
                "take more dates and compare, or leave out draws that are not `settled`.",
            ),
            NotSettled,
            stacklevel=3,
        )
    return settled


def _drawn(layout: Layout, params: Any, where: str) -> np.ndarray:
    """Parameters as rows of a matrix."""
    leaves = [
        numbers(where, path, leaf)
        for path, leaf in zip(layout.paths, layout.leaves(params, where), strict=True)
    ]
    lengths = {
        path: leaf.shape[0]
        for path, leaf, shape in zip(layout.paths, leaves, layout.shapes, strict=True)
        if leaf.ndim > len(shape)
    }
    if len(set(lengths.values())) != 1 or not min(lengths.values()):
        found = (
            ", ".join(f"{path} has {length}" for path, length in lengths.items())
            or "no parameter has an axis of draws"
        )
        raise ModelError(
            message(
                where,
                f"{found}.",
                "Parameters that vary have one axis more than in the model, and all as many draws.",
                "pass arrays of equal length, with one draw or more.",
            )
        )
    draws = next(iter(lengths.values()))
    rows = []
    for i, (leaf, shape) in enumerate(zip(leaves, layout.shapes, strict=True)):
        if leaf.ndim <= len(shape):
            rows.append(np.broadcast_to(layout.spread(where, i, leaf), (draws, *shape)))
        else:
            layout.spread(where, i, leaf[0])
            rows.append(leaf)
    return np.concatenate([row.reshape(draws, -1) for row in rows], 1)
