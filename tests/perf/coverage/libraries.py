"""Losses that call solvers and other libraries along the data axis, whose Python looks at sizes:
minimisers, linear solvers, differential equations, layers, losses, statistics and signals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
import optimistix as optx
from jaxtyping import Array, Float

from ._arrays import KEY, normal, uniform
from ._model import PAIRS, SQUARE, Model, never

Vector = Float[Array, "points"]
Params = dict[str, Array]
Loss = Callable[[Params, Vector, Vector], Float[Array, ""]]


def _decay(k: Any, t: Any) -> Any:
    return k[0] * jnp.exp(-k[1] * t)


def _least_squares(solver: Any) -> Loss:
    def loss(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        found = optx.least_squares(
            lambda k, _: _decay(k, t) - y, solver, p["k"], max_steps=64, throw=False
        )
        return jnp.sum(found.value**2)

    return loss


def _minimise(solver: Any) -> Loss:
    def loss(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        found = optx.minimise(
            lambda k, _: jnp.mean((_decay(k, t) - y) ** 2),
            solver,
            p["k"],
            max_steps=64,
            throw=False,
        )
        return jnp.sum(found.value**2)

    return loss


def root(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    found = optx.root_find(
        lambda z, _: z - 0.3 * jnp.tanh(z) - p["k"][0] * t * y,
        optx.Newton(1e-5, 1e-5),
        y,
        max_steps=16,
        throw=False,
    )
    return jnp.sum(found.value)


def fixed_point(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    found = optx.fixed_point(
        lambda z, _: 0.3 * jnp.tanh(p["k"][0] * z) + t,
        optx.FixedPointIteration(1e-5, 1e-5),
        y,
        max_steps=32,
        throw=False,
    )
    return jnp.sum(found.value)


def _design(p: Params, t: Any) -> Any:
    return jnp.stack([jnp.ones_like(t), p["k"][0] * t, t**2], axis=1)


def _tall(solver: Any) -> Loss:
    def loss(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        operator = lx.MatrixLinearOperator(_design(p, t))
        return jnp.sum(lx.linear_solve(operator, y, solver, throw=False).value ** 2)

    return loss


def _square(solver: Any, *, positive: bool = False) -> Loss:
    def loss(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        matrix = jnp.eye(t.shape[0], dtype=t.dtype) + 0.1 * p["k"][0] * jnp.outer(y, y)
        tags = lx.positive_semidefinite_tag if positive else ()
        operator = lx.MatrixLinearOperator(matrix, tags)
        return jnp.sum(lx.linear_solve(operator, t, solver, throw=False).value ** 2)

    return loss


def tridiagonal(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    operator = lx.TridiagonalLinearOperator(2 + p["k"][0] * t, 0.1 * t[1:], 0.1 * t[1:])
    return jnp.sum(lx.linear_solve(operator, y, throw=False).value ** 2)


def _field(p: Params) -> Any:
    return dfx.ODETerm(lambda t, y, args: -p["k"] * y)


def _solve(p: Params, **options: Any) -> Any:
    given = {"stepsize_controller": dfx.PIDController(1e-3, 1e-5), "terms": _field(p), **options}
    terms, solver = given.pop("terms"), given.pop("solver", dfx.Tsit5())
    start = jnp.ones(2, p["k"].dtype)
    return dfx.diffeqsolve(
        terms, solver, 0.0, 1.0, 0.05, start, max_steps=256, throw=False, **given
    )


def saved_at(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    ys = _solve(p, saveat=dfx.SaveAt(ts=t)).ys
    return jnp.mean((ys[:, 0] - y) ** 2)


def saved_at_fixed_steps(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    steps = dfx.ConstantStepSize()
    ys = _solve(p, saveat=dfx.SaveAt(ts=t), stepsize_controller=steps).ys
    return jnp.mean((ys[:, 0] - y) ** 2)


def linear_control(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    control = dfx.LinearInterpolation(t, y)
    term = dfx.ODETerm(lambda s, z, args: -p["k"] * z + control.evaluate(s))
    return jnp.sum(_solve(p, terms=term).ys)


def cubic_control(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    control = dfx.CubicInterpolation(t, dfx.backward_hermite_coefficients(t, y))
    term = dfx.ODETerm(lambda s, z, args: -p["k"] * z + control.evaluate(s))
    return jnp.sum(_solve(p, terms=term).ys)


class _Field(eqx.Module):
    rate: Array

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        return -args * y


def adjoint(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    terms = dfx.ODETerm(_Field(jnp.ones(())))
    ys = _solve(
        p, terms=terms, args=p["k"], saveat=dfx.SaveAt(ts=t), adjoint=dfx.BacksolveAdjoint()
    ).ys
    return jnp.mean((ys[:, 0] - y) ** 2)


def direct(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    ys = _solve(p, saveat=dfx.SaveAt(ts=t), adjoint=dfx.DirectAdjoint()).ys
    return jnp.mean((ys[:, 0] - y) ** 2)


def noise(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    path = dfx.VirtualBrownianTree(0.0, 1.0, 1e-2, (2,), KEY)
    drift = dfx.ODETerm(lambda s, z, args: -p["k"] * z)
    diffusion = dfx.ControlTerm(
        lambda s, z, args: lx.DiagonalLinearOperator(0.1 * jnp.ones(2, p["k"].dtype)), path
    )
    ys = _solve(
        p,
        terms=dfx.MultiTerm(drift, diffusion),
        solver=dfx.Euler(),
        saveat=dfx.SaveAt(ts=t),
        stepsize_controller=dfx.ConstantStepSize(),
    ).ys
    return jnp.mean((ys[:, 0] - y) ** 2)


def rotary(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    rows = p["k"][0] * jnp.stack([t, y, t * y, t + y], axis=1)
    return jnp.sum(eqx.nn.RotaryPositionalEmbedding(4)(rows) ** 3)


def attention(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    rows = p["k"][0] * jnp.stack([t, y, t * y, t + y], axis=1)
    layer = eqx.nn.MultiheadAttention(2, 4, key=KEY)
    return jnp.mean(layer(rows, rows, rows) ** 2)


def convolution(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    layer = eqx.nn.Conv1d(1, 2, 3, padding=1, key=KEY)
    return jnp.mean(layer(p["k"][0] * (t + y)[None]) ** 2)


def pooled(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.mean(eqx.nn.AvgPool1d(2, 2)(p["k"][0] * (t + y)[None]) ** 2)


def adaptive_pool(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.mean(eqx.nn.AdaptiveAvgPool1d(3)(p["k"][0] * (t + y)[None]) ** 2)


def layer_norm(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    rows = p["k"][0] * jnp.stack([t, y, t * y, t + y], axis=1)
    return jnp.sum(jax.vmap(eqx.nn.LayerNorm(4))(rows) ** 3)


def huber(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.mean(optax.losses.huber_loss(_decay(p["k"], t), y))


def cross_entropy(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    logits = jnp.outer(t, jnp.concatenate([p["k"], -p["k"]]))
    labels = (jnp.abs(3 * y) % 4).astype(jnp.int32)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def cosine(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return optax.losses.cosine_distance(_decay(p["k"], t), y)


def ctc(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    logits = jnp.outer(t, jnp.concatenate([p["k"], -p["k"]]))[None]
    labels = jnp.ones((1, 3), jnp.int32)
    return jnp.mean(
        optax.losses.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, jnp.zeros(labels.shape))
    )


def density(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.sum(jax.scipy.stats.gaussian_kde(p["k"][0] * t)(jnp.arange(4, dtype=t.dtype)))


def mode(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return p["k"][0] * jax.scipy.stats.mode(jnp.round(4 * t)).mode


def ranks(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.sum(p["k"][0] * t * jax.scipy.stats.rankdata(y))


def standard_error(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jax.scipy.stats.sem(_decay(p["k"], t) * y)


def detrend(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.sum(jax.scipy.signal.detrend(p["k"][0] * t * y) ** 2)


def convolve(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.sum(jax.scipy.signal.convolve(p["k"][0] * t, jnp.ones(3, t.dtype), "same") ** 2)


def correlate(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    return jnp.sum(jax.scipy.signal.correlate(p["k"][0] * t, y, "full", "direct") ** 2)


def window(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    import numpy as np

    return jnp.sum(p["k"][0] * t * np.hanning(len(t)).astype(t.dtype))


def halves(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
    half = len(t) // 2
    return jnp.sum(p["k"][0] * t[:half]) - jnp.sum(y[half:] ** 2)


_CHUNK = ("chunk",)
_NEVER = {
    **{
        f"lineax, {solver}": never("points", _CHUNK, SQUARE)
        for solver in ("LU", "Cholesky", "CG", "GMRES", "BiCGStab")
    },
    "optimistix, root": never("points", _CHUNK, SQUARE),
    "optimistix, fixed point": {("points", "chunk", "gradient"): SQUARE},
    "Equinox, attention": never("points", _CHUNK, PAIRS),
}
"""Rows that mathematics does not allow."""


def curve(n: Mapping[str, int]) -> dict[str, Any]:
    """Times in order from 0.05 to 0.95, and a decay that was measured at them."""
    size = n["points"]
    t = uniform(size) * 0 + (0.05 + 0.9 * (jnp.arange(size) / size)).astype("float32")
    y = 2 * jnp.exp(-0.7 * t) + 0.05 * normal(size)
    return {"p": {"k": jnp.asarray([1.5, 0.6], "float32")}, "t": t, "y": y}


def _model(name: str, loss: Loss) -> Model:
    return Model(
        name,
        loss,
        curve,
        {"points": 11},
        "p",
        _NEVER.get(name, {}),
        tolerance=2e-3,
        group="libraries",
        ways=("pad", "chunk"),
    )


_POSITIVE = {"positive": True}
MODELS = tuple(
    _model(name, loss)
    for name, loss in {
        "optimistix, Levenberg-Marquardt": _least_squares(optx.LevenbergMarquardt(1e-5, 1e-5)),
        "optimistix, Gauss-Newton": _least_squares(optx.GaussNewton(1e-5, 1e-5)),
        "optimistix, dogleg": _least_squares(optx.Dogleg(1e-5, 1e-5)),
        "optimistix, BFGS": _minimise(optx.BFGS(1e-5, 1e-5)),
        "optimistix, nonlinear CG": _minimise(optx.NonlinearCG(1e-5, 1e-5)),
        "optimistix, root": root,
        "optimistix, fixed point": fixed_point,
        "lineax, QR": _tall(lx.QR()),
        "lineax, SVD": _tall(lx.SVD()),
        "lineax, LU": _square(lx.LU()),
        "lineax, Cholesky": _square(lx.Cholesky(), **_POSITIVE),
        "lineax, tridiagonal": tridiagonal,
        "lineax, CG": _square(lx.CG(1e-5, 1e-5), **_POSITIVE),
        "lineax, GMRES": _square(lx.GMRES(1e-5, 1e-5)),
        "lineax, BiCGStab": _square(lx.BiCGStab(1e-5, 1e-5)),
        "diffrax, saved at times": saved_at,
        "diffrax, saved at times, fixed steps": saved_at_fixed_steps,
        "diffrax, linear interpolation": linear_control,
        "diffrax, cubic interpolation": cubic_control,
        "diffrax, backsolve adjoint": adjoint,
        "diffrax, direct adjoint": direct,
        "diffrax, Brownian tree": noise,
        "Equinox, rotary embedding": rotary,
        "Equinox, attention": attention,
        "Equinox, convolution": convolution,
        "Equinox, average pool": pooled,
        "Equinox, adaptive pool": adaptive_pool,
        "Equinox, layer norm": layer_norm,
        "optax, Huber": huber,
        "optax, cross entropy": cross_entropy,
        "optax, cosine": cosine,
        "optax, CTC": ctc,
        "JAX stats, density": density,
        "JAX stats, mode": mode,
        "JAX stats, ranks": ranks,
        "JAX stats, standard error": standard_error,
        "JAX signal, detrend": detrend,
        "JAX signal, convolve": convolve,
        "JAX signal, correlate": correlate,
        "NumPy, window": window,
        "Python, halves": halves,
    }.items()
)
