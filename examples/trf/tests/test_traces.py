"""Fits inside JAX's transformations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.trf import curve_fit, least_squares

T = np.linspace(0, 4, 30)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)
P0 = np.array([1.0, 1.0, 0.0])
FINE = {"gtol": 1e-13, "ftol": 1e-15}


def decay(t, a, b, c):
    return a * jnp.exp(-b * t) + c


def amplitude(y):
    return curve_fit(decay, T, y, P0, **FINE).x[0]


@pytest.mark.rest
@pytest.mark.parametrize("x64", [False, True])
def test_under_jit_and_vmap(x64):
    """Inside `jax.jit` and `jax.vmap` a fit gives what it gives outside, in float64, with the
    global flag on or off.
    """
    outside = curve_fit(decay, T, Y.astype(np.float32), P0).x
    with jax.enable_x64(x64):
        y = jnp.asarray(Y, jnp.float32)
        jitted = jax.jit(lambda y: curve_fit(decay, T, y, P0).x)(y)
        mapped = jax.vmap(lambda y: curve_fit(decay, T, y, P0).x)(jnp.stack([y, y]))
    assert jitted.dtype == mapped.dtype == np.float64
    np.testing.assert_allclose(np.asarray(jitted), outside, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(mapped), np.stack([outside, outside]), rtol=1e-9)


@pytest.mark.rest
@pytest.mark.parametrize(
    "options", [{}, {"loss": "cauchy", "f_scale": 0.1, "x_scale": "jac"}], ids=["linear", "cauchy"]
)
def test_bounds_under_a_float32_jit(options):
    """With the global flag off, a bounded fit inside `jax.jit` is the one outside: nothing of it is
    lowered to float32.
    """
    box = scipy.optimize.Bounds([0, 0, 0], [2.2, 5, 5])
    jitted = jax.jit(lambda y: curve_fit(decay, T, y, P0, bounds=box, **options))(
        jnp.asarray(Y, jnp.float32)
    )
    outside = curve_fit(decay, T, Y.astype(np.float32), P0, bounds=box, **options)
    np.testing.assert_allclose(np.asarray(jitted.x), outside.x, rtol=1e-9)
    assert list(jitted.active_mask) == [1, 0, 0]


@pytest.mark.rest
def test_fit_of_fixed_data_inside_a_jit():
    """A fit all of whose arguments are concrete may stand inside a trace, and leaves nothing behind
    for the calls after it.
    """
    outside = curve_fit(decay, T, Y, P0, ftol=2e-9).x
    with jax.enable_x64(True):
        for bounds in ((-np.inf, np.inf), (-9, 9)):
            inside = jax.jit(
                lambda s, bounds=bounds: s * curve_fit(decay, T, Y, P0, bounds=bounds, ftol=3e-9).x
            )(2.0)
            np.testing.assert_allclose(inside, 2 * outside, rtol=1e-6)
    np.testing.assert_allclose(curve_fit(decay, T, Y, P0, ftol=3e-9).x, outside, rtol=1e-6)


@pytest.mark.rest
def test_stand_ins_deep_inside_a_function():
    """A function may hold what an outer trace stands for in any way: in a closure of a closure, in
    a partial.
    """

    def nested(y):
        misfit = functools.partial(lambda y, p: decay(T, *p) - y, y)
        return least_squares(lambda p: misfit(p), P0).x

    with jax.enable_x64(True):
        np.testing.assert_allclose(
            jax.jit(nested)(jnp.asarray(Y)), curve_fit(decay, T, Y, P0).x, rtol=1e-7
        )


def test_options_are_checked_in_a_trace():
    """A loss or scale that does not exist is found there too."""
    for option in ({"loss": "hubris"}, {"x_scale": "jacobian"}):
        with pytest.raises(ValueError, match=r"`x_scale` is|`loss` is"):
            jax.jit(lambda y, option=option: curve_fit(decay, T, y, P0, **option).x)(Y)


@pytest.mark.rest
def test_result_can_be_read_inside_and_after_a_jit():
    """Inside, the message says that it is not known yet and the history is NaN behind its end;
    after, both are as ever.
    """
    inside = {}

    def fit(y):
        result = curve_fit(decay, T, y, P0, history=True)
        inside.update(message=result.message, text=repr(result))
        return result, result.history

    with jax.enable_x64(True):
        after, history = jax.jit(fit)(jnp.asarray(Y))
    outside = curve_fit(decay, T, Y, P0, history=True)
    assert "Known when" in inside["message"]
    assert "Known when" in inside["text"]
    assert (after.message, after.nfev) == (outside.message, outside.nfev)
    np.testing.assert_allclose(after.history.cost, outside.history.cost, rtol=1e-9)
    np.testing.assert_allclose(history.cost[: after.nfev - 1], outside.history.cost, rtol=1e-9)
    assert np.isnan(history.cost[after.nfev - 1 :]).all()


@pytest.mark.rest
def test_result_leaves_a_jit():
    """A result returned from a jitted function is the same, lazily computed parts too."""
    with jax.enable_x64(True):
        inside = jax.jit(lambda y: curve_fit(decay, T, y, P0))(jnp.asarray(Y))
        covariance, fun = np.asarray(inside.covariance), np.asarray(inside.fun)
    outside = curve_fit(decay, T, Y, P0)
    np.testing.assert_allclose(covariance, outside.covariance, rtol=1e-9)
    np.testing.assert_allclose(fun, outside.fun, rtol=1e-9, atol=1e-12)


@pytest.mark.rest
def test_derivative_with_respect_to_data():
    """The gradient of a fitted parameter with respect to y is that of finite differences, forward
    and backward.
    """
    with jax.enable_x64(True):
        y = jnp.asarray(Y)
        backward, forward = jax.grad(amplitude)(y), jax.jacfwd(amplitude)(y)
    steps = 1e-3 * np.eye(T.size)[[0, 7, 20]]  # wide: a fit is known to about nine digits
    differences = [(amplitude(Y + step) - amplitude(Y - step)) / 2e-3 for step in steps]
    np.testing.assert_allclose(np.asarray(backward)[[0, 7, 20]], differences, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backward, forward, rtol=1e-9)


@pytest.mark.rest
def test_derivative_through_a_closure():
    """What `fun` closes over carries derivatives too: the cost of residuals times s grows as s
    squared.
    """

    def cost(s):
        return least_squares(lambda p: s * (decay(T, *p) - Y), P0).cost

    with jax.enable_x64(True):
        slope = jax.grad(cost)(2.0)
    np.testing.assert_allclose(
        slope, 4 * least_squares(lambda p: decay(T, *p) - Y, P0).cost, rtol=1e-7
    )


@pytest.mark.rest
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
def test_second_derivative_of_the_cost_of_a_line(outer):
    """In closed form: I - P, with the projection P on the columns of the design. A parameter at its
    bound takes its column out of it.
    """

    def cost(y, bounds=(-np.inf, np.inf)):
        return curve_fit(lambda t, a, b: a * t + b, T, y, [1.0, 1.0], bounds=bounds, **FINE).cost

    y = 0.5 * T - 0.2 + 0.01 * np.cos(9 * T)
    design = np.column_stack([T, np.ones_like(T)])
    with jax.enable_x64(True):
        free = outer(jax.grad(cost))(jnp.asarray(y))
        held = outer(jax.grad(lambda y: cost(y, ([0, 0], [9, 9]))))(jnp.asarray(y))
    for found, columns in ((free, design), (held, design[:, :1])):
        expected = np.eye(T.size) - columns @ np.linalg.pinv(columns)
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.rest
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_higher_derivatives_of_a_parameter(backward):
    """Of a proportion a = (t . y) / (t . t) that is fitted as exp(p): of p = log a, to third
    order.
    """
    y = 0.7 * T + 0.01 * np.cos(9 * T)

    def p(s):
        return curve_fit(lambda t, p: jnp.exp(p) * t, T, y + s, [0.1], **FINE).x[0]

    def known(s):
        return jnp.log(jnp.sum(T * (y + s)) / jnp.sum(T**2))

    slope = jax.jacrev if backward else jax.jacfwd
    with jax.enable_x64(True):
        for order in range(1, 4):
            p, known = slope(p), slope(known)
            np.testing.assert_allclose(p(0.05), known(0.05), rtol=1e-7, err_msg=str(order))


@pytest.mark.rest
def test_derivative_with_respect_to_a_bound_that_holds():
    """The parameter moves with its bound, and the others as if it were fixed there."""

    def held(c):
        bounds = (jnp.zeros(3), jnp.stack([9.0, 9.0, c]))
        return curve_fit(decay, T, jnp.asarray(Y), [1.0, 1.0, 0.2], bounds=bounds, **FINE).x

    def fixed(c):
        model = lambda t, a, b: decay(t, a, b, c)
        return curve_fit(model, T, jnp.asarray(Y), [1.0, 1.0], **FINE).x

    with jax.enable_x64(True):
        slopes, expected = jax.jacfwd(held)(0.4), jax.jacfwd(fixed)(0.4)
    np.testing.assert_allclose(slopes[:2], expected, rtol=1e-5)
    np.testing.assert_array_equal(slopes[2], 1.0)


@pytest.mark.rest
@pytest.mark.parametrize("k", [2, 18])
def test_derivative_of_the_covariance(k):
    """Of polynomials it is (X^T X)^-1 with the cost in front, and X that moves with a scale s of
    the data goes by 1 / s^2. Few and many parameters have a triangle each by a way of its own.
    """
    powers = np.cos(np.arange(k) * np.linspace(0, 3, 40)[:, None])
    y = np.cos(9 * np.linspace(0, 3, 40))

    def covariance(s):
        return least_squares(lambda p: s * powers @ p - y, np.zeros(k), **FINE).covariance

    with jax.enable_x64(True):
        found, slope = covariance(2.0), jax.jacfwd(covariance)(2.0)
    np.testing.assert_allclose(slope, -found, rtol=1e-6, atol=1e-9)


@pytest.mark.rest
def test_derivative_at_a_bound():
    """A parameter held by its bound does not move with the data; the free ones move as if it were
    fixed there.
    """

    def held(y):
        return curve_fit(decay, T, y, [1.0, 1.0, 0.2], bounds=([0, 0, 0], [9, 9, 0.4]), **FINE).x

    def fixed(y):
        return curve_fit(lambda t, a, b: decay(t, a, b, 0.4), T, y, [1.0, 1.0], **FINE).x

    with jax.enable_x64(True):
        slopes, expected = jax.jacfwd(held)(jnp.asarray(Y)), jax.jacfwd(fixed)(jnp.asarray(Y))
    np.testing.assert_allclose(slopes[2], 0, atol=1e-12)
    np.testing.assert_allclose(slopes[:2], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.rest
def test_robust_fit_differentiates():
    """The implicit derivative takes the whole Hessian of a robust cost, not its Gauss-Newton
    part.
    """
    spoiled = Y.copy()
    spoiled[5] += 2

    def robust(y):
        return curve_fit(decay, T, y, P0, loss="soft_l1", f_scale=0.1, **FINE).x[1]

    with jax.enable_x64(True):
        slope = np.asarray(jax.grad(robust)(jnp.asarray(spoiled)))
    steps = 1e-3 * np.eye(T.size)[[0, 5, 7]]
    differences = [(robust(spoiled + step) - robust(spoiled - step)) / 2e-3 for step in steps]
    np.testing.assert_allclose(slope[[0, 5, 7]], differences, rtol=1e-3, atol=1e-4)


@pytest.mark.rest
def test_non_finite_start_under_a_trace_is_a_status():
    """Where nothing can be raised, the status says that the start is not finite."""
    with jax.enable_x64(True):
        status = jax.jit(lambda y: curve_fit(decay, T, y, P0).status)(jnp.asarray(Y * np.nan))
    assert int(status) == -1
