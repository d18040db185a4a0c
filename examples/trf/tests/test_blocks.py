"""Many points block by block: the numbers of the whole, and functions that must not be cut."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from .. import _blocks, curve_fit, least_squares
from .._curve import Residual
from .._pointwise import at_points, is_pointwise
from .._problem import Data, Setup, model_at
from .._run import prepare

M = 5003  # a prime: the last block is another size
SETUP = Setup(
    Residual(lambda t, a, b, c: a * jnp.exp(-b * t) + c, "vector"),
    None,
    "linear",
    False,
    True,
    None,
)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes are cut too, into several blocks."""
    monkeypatch.setattr(_blocks, "MANY", 1000)
    monkeypatch.setattr(_blocks, "BLOCK", 300)
    prepare.cache_clear()


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(0.0, 4.0, M)
    return t, 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * np.random.default_rng(0).normal(size=M)


@pytest.mark.parametrize(
    ("loss", "masked"),
    [("linear", False), pytest.param("cauchy", True, marks=pytest.mark.rest)],
)
def test_triangle_is_that_of_lapack(
    data: tuple[np.ndarray, np.ndarray], loss: str, masked: bool
) -> None:
    t, y = data
    mask = jnp.asarray(t < 3.0) if masked else None
    with jax.enable_x64(True):
        x, sigma = jnp.asarray([2.0, 1.0, 0.3]), jnp.linspace(0.5, 2.0, M)
        numbers = jnp.asarray([0.0, 0.0, 0.0, 0.1, 0.0])
        of = Data(None, None, None, numbers, mask, (jnp.asarray(t), jnp.asarray(y), sigma), {})
        cut, whole = (
            jax.jit(partial(model_at, replace(SETUP, loss=loss, blocks=blocks)))(x, of)
            for blocks in (True, False)
        )
    np.testing.assert_allclose(cut.cost, whole.cost, rtol=1e-13)
    # Q^T r is a small part of r: its error is a part of |r|
    size = np.abs(np.asarray(whole.triangle)).max()
    np.testing.assert_allclose(cut.triangle, whole.triangle, rtol=1e-12, atol=1e-13 * size)
    if loss == "linear" and not masked:
        a, b, _ = np.asarray(x)
        falling = np.exp(-b * t)
        J = np.column_stack([falling, -a * t * falling, np.ones(M)]) / np.asarray(sigma)[:, None]
        R = np.linalg.qr(J, mode="r")
        np.testing.assert_allclose(cut.R, R * np.sign(np.diag(R))[:, None], rtol=1e-12, atol=1e-11)


def test_ill_conditioned_columns_are_as_good_as_lapacks(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    """Products J^T J would lose the smallest singular value, 1e-10 of the greatest."""
    t, y = data

    def line(t: Array, a: Array, b: Array) -> Array:
        return a * t + b * (t + 1e-10 * t**2)

    with jax.enable_x64(True):
        setup = replace(SETUP, fun=Residual(line, "no"))
        of = Data(None, None, None, jnp.zeros(5), None, (jnp.asarray(t), jnp.asarray(y), None), {})
        found = jax.jit(partial(model_at, setup))(jnp.ones(2), of)
    J = np.column_stack([t, t + 1e-10 * t**2])
    exact = np.linalg.svd(J, compute_uv=False)
    np.testing.assert_allclose(
        np.linalg.svd(np.asarray(found.R), compute_uv=False)[1], exact[1], rtol=1e-5
    )


@pytest.mark.rest
def test_fit_is_that_of_the_whole(
    data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    t, y = data
    cut = curve_fit(lambda t, a, b, c: a * jnp.exp(-b * t) + c, t, y, [1.0, 1.0, 0.1])
    monkeypatch.setattr(_blocks, "MANY", 10**9)
    whole = curve_fit(lambda t, a, b, c: a * jnp.exp(-b * t) + c, t, y, [1.0, 1.0, 0.1])
    assert cut.nfev == whole.nfev
    np.testing.assert_allclose(cut.x, whole.x, rtol=1e-10)
    np.testing.assert_allclose(cut.covariance, whole.covariance, rtol=1e-8)


@pytest.mark.rest
def test_residuals_that_hold_their_data_are_cut(data: tuple[np.ndarray, np.ndarray]) -> None:
    t, y = data
    found = least_squares(lambda x: x[0] * jnp.exp(-x[1] * t) + x[2] - y, [1.0, 1.0, 0.1])
    np.testing.assert_allclose(
        found.x, curve_fit(SETUP.fun.model, t, y, [1.0, 1.0, 0.1]).x, rtol=1e-7
    )


TABLE = np.arange(7.0)
POINTWISE: dict[str, Callable[..., Any]] = {
    "sums of other axes": lambda t: jnp.sum(jnp.stack([t, t**2]), axis=0),
    "product": lambda t: jnp.stack([t, t**2], axis=1) @ jnp.asarray([2.0, 3.0]),
    "product, transposed": lambda t: jnp.asarray([2.0, 3.0]) @ jnp.stack([t, t**2]),
    "size": lambda t: t / t.size,
    "jit inside": lambda t: jax.nn.sigmoid(t) + jnp.where(t > 1, t, 2.0),
    "closure": lambda t: t * jnp.asarray(np.linspace(0, 1, M)),
    "column": lambda t: jnp.transpose(t[:, None] * jnp.asarray([1.0, 2.0]))[1],
    "reshaped": lambda t: (t.reshape(1, -1) * 2).reshape(-1),
    "unstacked": lambda t: list(jnp.stack([t, 2 * t]))[1],
    "own derivative": lambda t: jax.nn.relu(t - 1.0) + jnp.sinc(t),
    "part of a longer axis": lambda t: jnp.sum(
        (t[:, None] * jnp.arange(M + 40.0))[:, M - 9 : M], axis=1
    ),
    "constant": lambda t: jnp.full_like(t, 3.0),
}
NOT_POINTWISE: dict[str, Callable[..., Any]] = {
    "positions": lambda t: t * jnp.arange(M),
    "sum": lambda t: t / jnp.sum(t),
    "sorted": jnp.sort,
    "cumulative": jnp.cumsum,
    "reversed": lambda t: t[::-1],
    "shifted": lambda t: jnp.concatenate([t[1:], t[:1]]),
    "first": lambda t: t - t[0],
    "looked up": lambda t: jnp.asarray(TABLE)[jnp.clip(t, 0, 6).astype(int)],
    "every with every": lambda t: jnp.exp(-((t[:, None] - t) ** 2)) @ t,
    "halves": lambda t: jnp.pad(t[: M // 2], (0, M - M // 2)),
    "random": lambda t: t + jax.random.normal(jax.random.key(0), (M,)),
    "scanned": lambda t: jax.lax.scan(lambda c, v: (c + v, c * v), 0.0, t)[1],
    "own derivative of a sum": lambda t: t - jax.nn.logsumexp(t),
    "branches": lambda t: jax.lax.cond(t[0] > 0, jnp.sort, jnp.sin, t),
    "told": lambda t: (jax.debug.callback(lambda v: None, t), t)[1],
    "told of a parameter": lambda t: (jax.debug.callback(lambda v: None, 1.0), t)[1],
    "called back": lambda t: jax.pure_callback(np.sort, jax.ShapeDtypeStruct(t.shape, t.dtype), t),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", POINTWISE)
def test_points_apart_are_those_of_the_whole(name: str) -> None:
    t = jnp.linspace(0.1, 4.0, M)
    traced = jax.make_jaxpr(POINTWISE[name])(t)
    assert is_pointwise(traced, M)
    found = at_points(traced, (t,), M, 1234, 77)[0]
    np.testing.assert_allclose(found, POINTWISE[name](t)[1234:1311], rtol=1e-6)


@pytest.mark.parametrize("name", NOT_POINTWISE)
def test_what_mixes_points_is_not_cut(name: str) -> None:
    assert not is_pointwise(jax.make_jaxpr(NOT_POINTWISE[name])(jnp.linspace(0.1, 4.0, M)), M)


@pytest.mark.rest
def test_curve_that_mixes_points_is_fitted_as_a_whole(data: tuple[np.ndarray, np.ndarray]) -> None:
    """A cumulative sum: in blocks it would begin anew in each."""
    t, _ = data
    y = 2.0 * np.cumsum(t) / M + 0.5
    found = curve_fit(lambda t, a, b: a * jnp.cumsum(t) / M + b, t, y, [1.0, 1.0])
    np.testing.assert_allclose(found.x, [2.0, 0.5], rtol=1e-8)


def test_a_point_that_is_not_finite_is_seen(data: tuple[np.ndarray, np.ndarray]) -> None:
    t, y = data
    y = np.where(np.arange(M) == M - 1, np.nan, y)
    with pytest.raises(ValueError, match="y"):
        curve_fit(SETUP.fun.model, t, y, [1.0, 1.0, 0.1])
