"""Steady states, policies and paths as functions of parameters that JAX differentiates.

Each is a search, or LAPACK on the host, with a rule for its derivative: the equations hold at the
parameters next to these too (the implicit function theorem). So no turn of a search is
differentiated, and derivatives are as exact as what was found. The rules are made of operations
that JAX differentiates, so they have derivatives themselves.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from . import _path, _steady
from ._calibration import Calibration, calibration
from ._doubling import stable
from ._elimination import factored, stepped
from ._given import count, in_float64, made_by, one_of, real
from ._linear import MOVING, UNIT, klein
from ._local import Local
from ._model import NAMES, Model
from ._newton import CONVERGED
from ._persistence import decay, full, largest
from ._rolled import elements
from ._sylvester import sylvester
from ._variables import Layout, joined, named

VERDICTS = ("determinate", "indeterminate", "no stable solution", "no steady state")

Vector = Float[Array, "size"]
Matrix = Float[Array, "rows columns"]


class Solution(NamedTuple):
    """A steady state and its linear policy at some parameters; arrays, traced or not.

    u = G_x x + G_z z, x' = H_x x + H_z z, z' = rho z + e, in deviations from the steady state.

    Args:
        verdict: A place in `VERDICTS`; unless it is 0 the policy is NaN, and where it is 3 all is.
    """

    theta: Vector
    u: Vector
    x: Vector
    rho: Vector | Matrix
    G_x: Matrix
    G_z: Matrix
    H_x: Matrix
    H_z: Matrix
    verdict: Int[Array, ""]


def solution(
    model: Model,
    params: PyTree,
    targets: dict[str, tuple[str, float]] | None = None,
    at: tuple[PyTree, PyTree] | None = None,
) -> Solution:
    """The steady state and the linear policy, under `jit`, `vmap`, `grad`, `jacfwd` and the like.

    Args:
        model: The model.
        params: Its parameters, traced or not.
        targets: As of `steady_state`; their values are constants.
        at: Controls and states of the steady state, if they are known as functions of the
            parameters, instead of a search: the way for models with a unit root. Nobody looks
            whether the equations hold there.

    Raises:
        ModelError: What is given does not fit the model, or JAX does not compute in float64.
    """
    made_by("solution", "model", model, Model, "Model(...)")
    theta = vector(model.parameters, params, f"{model.name}, parameters")
    wanted = calibration(model, {} if targets is None else targets)
    _ = model.theta(model.params)  # equations are looked at before there is a program
    if at is None:
        return program(model)(theta, wanted)
    u, x, _ = model.layouts
    where = f"{model.name}, steady state"
    given = vector(u, at[0], f"{where}, controls"), vector(x, at[1], f"{where}, states")
    return program(model, known=True)(theta, given)


def vector(layout: Layout, group: PyTree, where: str) -> Vector:
    """A group as one vector of float64, traced or not."""
    in_float64(where)
    leaves = layout.leaves(group, where)
    return joined(
        [
            layout.spread(where, i, jnp.asarray(real(where, layout.paths[i], leaf), jnp.float64))
            for i, leaf in enumerate(leaves)
        ]
    )


@lru_cache(maxsize=64)
def program(model: Model, *, known: bool = False) -> Callable[..., Solution]:
    """One program of the steady state and the policy; without it each operation would be one."""

    @jax.jit
    def found(theta: Vector, given: PyTree) -> Solution:
        if known:
            return policy(model, theta, *given, jnp.ones((), bool))
        return solved(model, theta, given)

    return found


def solved(model: Model, theta: Vector, targets: Calibration) -> Solution:
    """The solution at parameters as a vector."""
    theta, u, x, status = levels(model)(theta, targets, *model.guess)
    return policy(model, theta, u, x, status == CONVERGED)


def policy(model: Model, theta: Vector, u: Vector, x: Vector, found: Array) -> Solution:
    """The linear policy at a steady state, in which `rho` may be what `persistence` gives."""
    rho = model.rho(theta)
    at = entries(model.local, theta, u, x)
    blocks = {name: elements(at, model.local.index[name]) for name in NAMES[1:]}
    moving = tuple(blocks[name] for name in MOVING)
    ahead = tuple(model.local.columns("u_next").tolist())
    G_x, H_x, kind = transition(*moving, ahead)
    G_z, H_z = shocks(blocks, G_x, full(rho))
    bounded = largest(rho) < UNIT
    kind = jnp.where((kind == 0) & ~bounded, 2, kind)
    kind = jnp.where(found, kind, 3).astype(jnp.int32)
    steady = (jnp.where(kind < 3, part, jnp.nan) for part in (theta, u, x, rho))
    linear = (jnp.where(kind == 0, part, jnp.nan) for part in (G_x, G_z, H_x, H_z))
    return Solution(*steady, *linear, kind)


def entries(local: Local, theta: Vector, u: Vector, x: Vector) -> Vector:
    """Residuals and derivatives at a steady state."""
    z = jnp.zeros(local.sizes["z"])
    return local.entries(jnp.concatenate([theta, u, x, z, u, x, z])[:, None])[:, 0]


@lru_cache(maxsize=64)
def levels(model: Model) -> Callable[..., tuple[Array, ...]]:
    """Parameters with what targets free, controls and states in the steady state, and how the
    search ended, with the derivatives of these by parameters and targets' values.
    """
    local, rho = model.local, model.rho

    @jax.custom_jvp
    def search(theta: Vector, targets: Calibration, u0: Vector, x0: Vector) -> tuple[Array, ...]:
        found = _steady.search(local, rho, theta, targets, u0, x0)
        return found.theta, found.u, found.x, found.status

    @search.defjvp
    def moves(given: tuple[PyTree, ...], moved: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
        theta, targets, u0, x0 = given
        by_theta, by_targets = moved[:2]
        found = search(theta, targets, u0, x0)
        at = entries(local, *found[:3])
        block = {name: elements(at, local.index[name]) for name in NAMES}
        both = [block["u"] + block["u_next"], block["x"] + block["x_next"]]
        free, active = targets.free, targets.active
        held = jnp.concatenate([jnp.diag(1.0 - active), active[:, None] * targets.pick], 1)
        matrix = jnp.concatenate([jnp.concatenate([block["theta"] @ free, *both], 1), held])
        side = jnp.concatenate([-block["theta"] @ by_theta, active * by_targets.value])
        step = jnp.linalg.solve(matrix, side)
        slots, nu = active.size, local.sizes["u"]
        tau, v = step[:slots], step[slots:]
        return found, (by_theta + free @ tau, v[:nu], v[nu:], jnp.zeros_like(found[3]))

    return search


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def transition(
    F_u: Matrix, F_x: Matrix, F_u_next: Matrix, F_x_next: Matrix, ahead: tuple[int, ...]
) -> tuple[Array, ...]:
    """G_x and H_x from derivatives, and the verdict: by doubling where that proves that there is
    exactly one stable solution, else by LAPACK's generalised Schur form on the host.
    """
    given = (F_u, F_x, F_u_next, F_x_next)
    G, H, sure = stable(*given, ahead, UNIT)

    def judged(state: tuple[Array, ...]) -> tuple[Array, ...]:
        *_, doubt = state
        return (*_judged(doubt, *given), jnp.zeros((), bool))

    # a loop of no turn or one: of mapped draws the host is called for those in doubt alone
    begun = (G, H, jnp.zeros((), jnp.int32), ~sure)
    return lax.while_loop(lambda state: state[-1], judged, begun)[:3]


def _judged(doubt: Array, *given: Matrix) -> tuple[Array, ...]:
    """The same on the host, a draw after the other; of those that are in no doubt nothing."""
    n, nx = given[1].shape
    like = (
        jax.ShapeDtypeStruct((n - nx, nx, 2), np.uint32),
        jax.ShapeDtypeStruct((nx, nx, 2), np.uint32),
        jax.ShapeDtypeStruct((), np.int32),
    )
    # JAX calls the host in a thread of its own, where `jax.enable_x64` around the program is not
    # seen: float64 would be rounded to float32 on the way, and whole numbers of 32 bits are not
    bits = [lax.bitcast_convert_type(block, np.uint32) for block in given]
    *found, kind = jax.pure_callback(_on_host, like, doubt, *bits, vmap_method="broadcast_all")
    G, H = (lax.bitcast_convert_type(each, np.float64) for each in found)
    return G, H, kind


def _on_host(doubt: Array, *given: Array) -> tuple[np.ndarray, ...]:
    doubt = np.asarray(doubt)
    bits = (np.ascontiguousarray(block, np.uint32) for block in given)
    blocks = [block.view(np.float64)[..., 0] for block in bits]
    lead, (n, nx) = blocks[1].shape[:-2], blocks[1].shape[-2:]
    G, H = np.full((*lead, n - nx, nx, 1), np.nan), np.full((*lead, nx, nx, 1), np.nan)
    kind = np.full(lead, 3, np.int32)
    for draw in np.ndindex(*lead):
        own = [block[draw] for block in blocks]
        if not doubt[draw] or not all(np.all(np.isfinite(block)) for block in own):
            continue
        found = klein(*own)
        kind[draw] = VERDICTS.index(found.verdict)
        if kind[draw] == 0:
            G[draw], H[draw] = found.G_x[..., None], found.H_x[..., None]
    return G.view(np.uint32), H.view(np.uint32), kind


@transition.defjvp
def _transition_moves(
    ahead: tuple[int, ...], given: tuple[Matrix, ...], moved: tuple[Matrix, ...]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """F_u G + F_x + F_u' G H + F_x' H = 0 at parameters next to these too."""
    F_u, _, F_u_next, F_x_next = given
    by_u, by_x, by_u_next, by_x_next = moved
    G, H, kind = transition(*given, ahead)
    side = by_u @ G + by_x + by_u_next @ G @ H + by_x_next @ H
    step = sylvester(*_operator(F_u, F_u_next, F_x_next, G), H, -side)
    nu = G.shape[0]
    return (G, H, kind), (step[:nu], step[nu:], np.zeros((), jax.dtypes.float0))


def _operator(F_u: Matrix, F_u_next: Matrix, F_x_next: Matrix, G: Matrix) -> tuple[Matrix, Matrix]:
    """What multiplies (G; H), and what multiplies it before it is multiplied by the transition."""
    here = jnp.concatenate([F_u, F_x_next + F_u_next @ G], 1)
    return here, jnp.concatenate([F_u_next, jnp.zeros_like(F_x_next)], 1)


def shocks(blocks: dict[str, Matrix], G_x: Matrix, R: Matrix) -> tuple[Matrix, Matrix]:
    """The response to shocks that follow z' = R z + e."""
    operator = _operator(blocks["u"], blocks["u_next"], blocks["x_next"], G_x)
    found = sylvester(*operator, R, -(blocks["z"] + blocks["z_next"] @ R))
    return found[: G_x.shape[0]], found[G_x.shape[0] :]


def foresight(
    model: Model,
    found: Solution,
    x0: PyTree = None,
    z0: PyTree = None,
    dates: int = 41,
    terminal: str = "steady",
) -> dict[str, Vector]:
    """A perfect-foresight path as `perfect_foresight` finds it, by name, that JAX differentiates.

    Args:
        model: The model.
        found: What `solution` gives: where the path ends.
        x0: States at the first date. Default: those of the steady state.
        z0: Shocks at the first date. Default: none.
        dates: How many, the first and the last included.
        terminal: At the last date controls are those of the steady state, or on the linear policy.

    Returns:
        Each variable at each date; NaN where no path was found. Nobody looks whether it has settled
        by the last date.
    """
    made_by("foresight", "model", model, Model, "Model(...)")
    where = f"{model.name}, path"
    in_float64(where)
    made_by(where, "found", found, Solution, "solution(model, params)")
    one_of(where, "terminal", terminal, ("steady", "stable"))
    dates = count(where, "dates", dates, 2)
    _, x_layout, z_layout = model.layouts
    first = found.x if x0 is None else vector(x_layout, x0, f"{where}, states")
    begun = jnp.zeros(z_layout.size) if z0 is None else vector(z_layout, z0, f"{where}, shocks")
    z = decay(found.rho, begun, dates)
    G_x, G_z = found.G_x, found.G_z
    if terminal == "steady":  # a path that does not use a policy has a gradient where that is NaN
        G_x, G_z = jnp.zeros(G_x.shape), jnp.zeros(G_z.shape)
    end = (found.u, found.x, G_x, G_z)
    moved, status = path(model)(found.theta, end, first, z)
    u, x = moved[:, : found.u.size], moved[:, found.u.size :]
    x = jnp.concatenate([first[None], x])
    last = found.u + G_x @ (x[-1] - found.x) + G_z @ z[-1]
    rows = jnp.concatenate([jnp.concatenate([u, last[None]]), x, z], 1)
    rows = jnp.where(status == CONVERGED, rows, jnp.nan)
    names = (name for layout in model.layouts for name in layout.names)
    return dict(zip(names, rows.T, strict=True))


@lru_cache(maxsize=64)
def path(model: Model) -> Callable[..., tuple[Array, Array]]:
    """Controls and next states by date, and how the search ended, with their derivatives."""
    local = model.moving

    @jax.jit
    @jax.custom_jvp
    def search(theta: Vector, end: tuple[Array, ...], x0: Vector, z: Matrix) -> tuple[Array, Array]:
        guess = jnp.broadcast_to(jnp.concatenate(end[:2]), (len(z) - 1, local.rows))
        moved, _, _, status = _path.search(local, theta, end, x0, z, guess)
        return moved, status

    @search.__wrapped__.defjvp
    def moves(given: tuple[PyTree, ...], moved: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
        point, status = search(*given)
        at, by = jax.jvp(partial(_path.stacked, local, point), given, moved)
        factors = factored(local, at, given[1][2])
        step = stepped(local, factors, by[:, : local.rows])
        return (point, status), (step, jnp.zeros_like(status))

    return search


def variable(model: Model, found: Solution, name: str) -> Array:
    """A control or a state in the steady state, by name."""
    made_by("variable", "model", model, Model, "Model(...)")
    made_by("variable", "found", found, Solution, "solution(model, params)")
    u, x, _ = model.layouts
    place = named(f"{model.name}, steady state", (*u.names, *x.names), name)
    return jnp.concatenate([found.u, found.x], -1)[..., place]
