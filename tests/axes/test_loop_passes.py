"""Loops that read, in each iteration, what is put together over all of a cut axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import AxisError

RNG = np.random.default_rng(0)
N = 23
Vector = Float[Array, "n"]
Rows = Float[Array, "n k"]
Weights = Float[Array, "k"]


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def until_small(w: Weights, x: Rows, y: Vector):
    """Gradient descent until the gradient is small: of NumPy below."""

    def body(state):
        w, _, k = state
        g = x.T @ (x @ w - y) / N
        return w - 0.5 * g, g, k + 1

    def goes_on(state):
        return (jnp.linalg.norm(state[1]) > 1e-2) & (state[2] < 50)

    return jax.lax.while_loop(goes_on, body, (w, w, 0))


def until_small_by_numpy(w, x, y):
    w, g, k = w.astype(float), w, 0
    while np.linalg.norm(g) > 1e-2 and k < 50:
        g = x.T.astype(float) @ (x @ w - y) / N
        w, k = w - 0.5 * g, k + 1
    return w, g, k


def carries_residuals(w: Weights, x: Rows, y: Vector):
    """What is carried has the axis, and so do the outputs of each iteration."""

    def step(state, _):
        w, r = state
        w = w - x.T @ (r - r.mean()) / N
        r = jnp.tanh(x @ w) - y
        return (w, r), (r * 2, r.max())

    return jax.lax.scan(step, (w, y), None, length=3)


def condition_reads_all(w: Weights, x: Rows, y: Vector):
    return jax.lax.while_loop(lambda c: c < jnp.abs(y).sum(), lambda c: c + 1, 0.5)


def columns_from_the_end(w: Weights, x: Rows, y: Vector):
    def step(c, column):
        return jnp.cos(c + column.mean()), column * c

    return jax.lax.scan(step, 0.0, x.T, reverse=True)


def loop_in_a_loop(w: Weights, x: Rows, y: Vector):
    def outer(c, _):
        d = jax.lax.fori_loop(0, 3, lambda i, d: jnp.sin(d + (y * d).mean()), c)
        return d + jnp.sort(y * d)[3] + jnp.cumsum(y * d)[-1] / N, jnp.argmax(y * d)

    return jax.lax.scan(outer, 0.5, None, length=2)


def made_before(w: Weights, x: Rows, y: Vector):
    """What the loop reads is made of a sum, so its chunks are collected first."""
    z = jnp.sin(x) * y.mean()

    def step(w, _):
        return w - z.T @ (jnp.tanh(z @ w) - y) / N, None

    w, _ = jax.lax.scan(step, w, None, length=3)
    return w, (z @ w).sum()


def batch(w: Weights, x: Rows, y: Vector):
    """Each element of the batch stops by itself."""

    def one(a):
        return jax.lax.while_loop(lambda c: c < 3, lambda c: c + 1 + jnp.abs((y * c).mean()), a)

    return jax.vmap(one)(w)


def solve(w: Weights, x: Rows, y: Vector):
    """JAX's conjugate gradients: a loop inside of `custom_linear_solve`."""
    found, _ = jax.scipy.sparse.linalg.cg(lambda v: x.T @ (x @ v) + v, x.T @ y, w, maxiter=4)
    return found


def branches(w: Weights, x: Rows, y: Vector):
    def step(c, _):
        at = (lambda c: jnp.sin(c + y.mean()), lambda c: jnp.cos(c + (y * y).mean()))
        return jax.lax.cond(c > 0.3, *at, c), None

    return jax.lax.scan(step, 0.1, None, length=4)[0]


def factorises(w: Weights, x: Rows, y: Vector):
    """Gauss-Newton steps by QR and by SVD, as minimisers take them."""

    def step(w, _):
        r = jnp.tanh(x @ w) - y
        slopes = (1 - jnp.tanh(x @ w) ** 2)[:, None] * x
        q, upper = jnp.linalg.qr(slopes)
        by_qr = jax.scipy.linalg.solve_triangular(upper, q.T @ r)
        return w - 0.1 * by_qr - 0.1 * jnp.linalg.lstsq(slopes, r)[0], (r**2).sum()

    return jax.lax.scan(step, w, None, length=3)


def windows_at_computed_places(w: Weights, x: Rows, y: Vector):
    """Each turn reads and writes where it computes to, in a branch: the loop runs at once."""

    def step(state):
        k, out = state
        at = jnp.argmax(jnp.abs(out)) % N
        new = jax.lax.cond(
            out[at] > 0.5,
            lambda out: jax.lax.dynamic_update_slice(
                out, -jax.lax.dynamic_slice(y, (at,), (2,)), (at,)
            ),
            lambda out: out.at[at].multiply(0.5),
            out,
        )
        return k + 1, new

    return jax.lax.while_loop(lambda state: state[0] < 9, step, (0, jnp.sin(y)))[1]


BODIES = (
    factorises,
    windows_at_computed_places,
    carries_residuals,
    condition_reads_all,
    columns_from_the_end,
    loop_in_a_loop,
    made_before,
    batch,
    solve,
    branches,
)


def test_a_solver_stops_where_numpy_does():
    """Its sums over the data come from chunks, in each iteration."""
    w, x, y = rows(3), rows(N, 3), rows(N)
    w_found, g, k = optimize(chunk={"n": 4})(until_small)(w, x, y)
    w_want, g_want, k_want = until_small_by_numpy(w, x, y)
    np.testing.assert_allclose(w_found, w_want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(g, g_want, rtol=1e-3, atol=1e-5)
    assert k == k_want


@pytest.mark.rest
@pytest.mark.parametrize("chunk", [1, 4, 22])
@pytest.mark.parametrize("body", BODIES)
def test_a_loop_of_passes_is_that_of_the_whole(body, chunk):
    """Beside plain JAX, with a rest behind the chunks."""
    w, x, y = rows(3), rows(N, 3), rows(N)
    got = optimize(chunk={"n": chunk})(body)(w, x, y)
    want = jax.jit(body)(w, x, y)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def at_fixed_turns(w: Weights, x: Rows, y: Vector):
    """The windows of `windows_at_computed_places`, in a loop that is differentiated backward."""

    def step(out, k):
        at = jnp.argmax(jnp.abs(out)) % N
        window = jax.lax.dynamic_slice(y * w[0], (at,), (2,))
        return jax.lax.cond(
            out[at] > 0.5,
            lambda out: jax.lax.dynamic_update_slice(out, -window, (at,)),
            lambda out: out.at[at].multiply(0.5),
            out,
        ), out[k]

    out, rows = jax.lax.scan(step, jnp.sin(x @ w), jnp.arange(5))
    return (out, rows), None


@pytest.mark.rest
@pytest.mark.parametrize("body", [carries_residuals, factorises, at_fixed_turns])
def test_a_gradient_through_a_loop_of_passes_is_that_of_the_whole(body):
    """Back through the iterations, which keep their residuals whole."""

    def loss(w: Weights, x: Rows, y: Vector) -> Float[Array, ""]:
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(body(w, x, y)))

    w, x, y = rows(3), rows(N, 3), rows(N)
    value, gradient = optimize(chunk={"n": 4})(loss).value_and_grad(w, x, y)
    want, along = jax.value_and_grad(loss, argnums=(0, 1, 2))(w, x, y)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    for name, each in zip("wxy", along, strict=True):
        np.testing.assert_allclose(gradient[name], each, rtol=1e-3, atol=1e-4)


@pytest.mark.rest
@pytest.mark.real_xla
def test_an_iteration_holds_a_chunk_of_what_it_makes():
    """Temporaries are those of a chunk, where the whole takes as much for each element."""

    def fit(w: Weights, x: Vector) -> Weights:
        def step(_, w):
            wide = jnp.sort(jnp.sin(x[:, None] * w[:, None, None] * jnp.arange(64.0)), axis=-1)
            return w - 0.1 * wide.mean((1, 2))

        return jax.lax.fori_loop(0, 5, step, w)

    def temporaries(fn, n):
        shapes = jax.ShapeDtypeStruct((2,), np.float32), jax.ShapeDtypeStruct((n,), np.float32)
        lowered = getattr(fn, "lower", jax.jit(fn).lower)(*shapes)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    sizes = (1024, 4096)
    of_whole = [temporaries(fit, n) for n in sizes]
    of_cut = [temporaries(optimize(chunk={"n": 64})(fit), n) for n in sizes]
    assert of_whole[1] > 3 * of_whole[0]
    assert of_cut[1] < 1.2 * of_cut[0] < of_whole[0] / 4


@pytest.mark.rest
def test_the_plan_tells_of_the_passes_in_each_iteration():
    """And of what is there as a whole, which is nothing beside the arguments here."""
    f = optimize(chunk={"n": 4})(until_small)
    said = " ".join(str(f.plan(rows(3), rows(N, 3), rows(N))).split())
    assert "`jax.lax.while_loop` at test_loop_passes.py:" in said
    assert "takes 1 in each iteration" in said
    assert "as a whole" not in said

    f = optimize(chunk={"n": 4})(made_before)
    said = " ".join(str(f.plan(rows(3), rows(N, 3), rows(N))).split())
    assert "276 B are there as a whole, for `jax.lax.scan`" in said


@pytest.mark.rest
@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            lambda x: jax.lax.scan(
                lambda c, _: (jnp.sin(c + jnp.outer(x, x * c).sum()), None), 0.0, None, length=3
            )[0],
            r"makes an array with n and n elements along it .*, inside `jax.lax.scan`",
        ),
        (
            lambda x: jax.lax.while_loop(
                lambda c: c < 9, lambda c: c + 1 + 0 * jnp.abs(jnp.fft.fft(x + c)).sum(), 0.0
            ),
            r"looks along it: transforms .*, inside `jax.lax.while_loop`",
        ),
    ],
)
def test_a_body_that_cannot_be_cut_is_refused_with_its_loop(body, what):
    """Its line, and the loop it is in."""

    @optimize(chunk={"n": 2})
    def f(x: Vector):
        return body(x)

    with pytest.raises(AxisError, match=what):
        f(jnp.ones(5))
