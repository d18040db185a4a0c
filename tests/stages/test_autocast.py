"""`precision="bf16"` and its kin: products in the low type, accumulated in float32, and everything
else as it is.
"""

import itertools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import lax
from jax.extend import core
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import OptionError
from tests._examples import examples
from tests.stages._products import LOW, W, X, lines, products, rounded
from tests.stages._products import native as native

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("policy", LOW)
def test_a_product_is_that_of_the_rounded_factors_in_single_precision(policy):
    """The sum of the exact products of rounded factors, which float32 holds to seven digits: a low
    sum would be off by 1e-3.
    """
    f = optimize(precision=policy)(lambda x, w: x @ w)
    out = f(X, W)
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, rounded(X, policy) @ rounded(W, policy), rtol=2e-6, atol=2e-6)
    assert products(f, X, W) == [(str(np.dtype(LOW[policy])), "float32")]


def test_many_small_terms_do_not_vanish_in_the_sum():
    """4096 ones: a sum held in bfloat16 stops at 256."""
    ones = jnp.ones((1, 4096))
    assert optimize(precision="bf16")(lambda a, b: a @ b)(ones, ones.T) == 4096


@pytest.mark.rest
@pytest.mark.parametrize("policy", LOW)
def test_a_convolution_is_cast_in_both_directions(policy):
    """Its gradient too, which plain JAX cannot take of low factors with a float32 result."""
    image, kernel = X[None, None], W[None, None, :2, :2]

    def conv(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), "VALID")

    f = optimize(precision=policy)(conv)
    expected = sum(
        rounded(image, policy)[0, 0, i : i + 2, j : j + 5] * rounded(kernel, policy)[0, 0, i, j]
        for i in range(2)
        for j in range(2)
    )
    np.testing.assert_allclose(f(image, kernel)[0, 0], expected, rtol=1e-5, atol=1e-5)
    grad = jax.grad(lambda k: (f(image, k) ** 2).sum())(kernel)
    assert grad.dtype == jnp.float32
    np.testing.assert_allclose(
        grad, jax.grad(lambda k: (conv(image, k) ** 2).sum())(kernel), rtol=0.05, atol=0.2
    )


def test_everything_but_products_is_as_it_was():
    """To the bit: exponentials, softmax, norms, sums, inner products, and what asks for a precision
    of its own.
    """

    def body(x, w):
        y = jax.nn.softmax(x) + jnp.exp(x).sum() + jnp.linalg.norm(x) + jax.nn.logsumexp(x)
        own = jnp.matmul(x, w, precision=lax.Precision.HIGHEST)
        return (
            y,
            jnp.cumsum(x, 0),
            x[0] @ x[1],
            jnp.einsum("bi,bi->b", x, x),
            own,
            jnp.outer(x[0], x[1]),
        )

    for out, expected in zip(
        optimize(precision="bf16")(body)(X, W), jax.jit(body)(X, W), strict=True
    ):
        np.testing.assert_array_equal(out, expected)


def test_other_types_are_left_alone():
    """Products of doubles, of integers, of complex numbers, and of what is low already."""
    with jax.enable_x64(True):
        double = np.linspace(0, 1, 9).reshape(3, 3)
        np.testing.assert_array_equal(
            optimize(precision="bf16")(lambda a: a @ a)(double), jax.jit(lambda a: a @ a)(double)
        )
    for array in (
        jnp.arange(9).reshape(3, 3),
        jnp.eye(3, dtype=jnp.complex64),
        jnp.eye(3, dtype=jnp.float16),
    ):
        f = optimize(precision="bf16")(lambda a: a @ a)
        assert products(f, array) == [(str(array.dtype), str(array.dtype))]


@pytest.mark.rest
def test_gradients_are_float32_and_near_from_inside_and_outside():
    """`jax.grad` of a program, the program of a gradient, and `f.grad`: NumPy's chain rule in
    doubles, within the type's rounding.
    """

    def small(ws, x):
        return jnp.mean((jnp.tanh(x @ ws[0]) @ ws[1]) ** 2)

    ws, f = (W, W.T), optimize(precision="bf16")(small)
    first, second, x = (np.asarray(a, np.float64) for a in (*ws, X))
    h = np.tanh(x @ first)
    back = 2 * (h @ second) / 18
    expected = x.T @ ((back @ second.T) * (1 - h**2)), h.T @ back
    inside = optimize(precision="bf16")(jax.grad(small))
    for grad in (jax.jit(jax.grad(f))(ws, X), inside(ws, X), f.grad(ws, X, wrt="ws")):
        for leaf, exact in zip(grad, expected, strict=True):
            assert leaf.dtype == jnp.float32
            assert np.linalg.norm(leaf - exact) < 2e-2 * np.linalg.norm(exact)
    for way in (jax.grad(f), inside):
        assert {factors for factors, _ in products(way, ws, X)} == {"bfloat16"}


def test_forward_and_second_derivatives():
    """`jax.jvp`, and `jax.hessian` which goes forward over backward: those of the plain function,
    within rounding.
    """

    def body(x):
        return jnp.sum(jnp.tanh(x @ W[:3]) ** 2)

    f, x = optimize(precision="bf16")(body), X[:, :3]
    for way in (lambda fn: jax.jvp(fn, (x,), (x,))[1], lambda fn: jax.hessian(fn)(x)):
        np.testing.assert_allclose(
            *(jax.jit(lambda fn=fn, way=way: way(fn))() for fn in (f, body)), rtol=0.1, atol=0.15
        )


def looped(x, w):
    return lax.scan(lambda c, r: (jnp.tanh(c @ w[:4]), c.sum() + r), x, jnp.arange(2.0))


def whiled(x, w):
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] @ w[:4]), (0, x))[1]


def branched(x, w):
    return lax.cond(x.sum() > 0, lambda x: x @ w[:4], lambda x: x @ w[:4].T, x)


def rematted(x, w):
    return jax.checkpoint(lambda x: jnp.sin(x @ w[:4]))(x)


def called(x, w):
    return jax.jit(lambda x: x @ w[:4])(x) + jnp.einsum("ij,jk->ik", x, w[:4])


@pytest.mark.core("whiled")
@pytest.mark.parametrize("body", [looped, whiled, branched, rematted, called])
def test_products_inside_of_other_operations_are_cast(body):
    """In loops, branches, rematerialised parts and inner calls; what comes out is near, and so is a
    gradient.
    """
    x = X[:, :4]
    f = optimize(precision="bf16")(body)
    assert {factors for factors, _ in products(f, x, W)} == {"bfloat16"}
    for out, expected in zip(jax.tree.leaves(f(x, W)), jax.tree.leaves(body(x, W)), strict=True):
        np.testing.assert_allclose(out, expected, rtol=0.05, atol=0.1)
    if body is not whiled:
        grads = [
            jax.grad(lambda w, fn=fn: jax.tree.leaves(fn(x, w))[0].sum())(W) for fn in (f, body)
        ]
        np.testing.assert_allclose(*grads, rtol=0.1, atol=0.1)


def test_a_rematerialised_part_of_a_gradient_stays_one():
    """In the program of a gradient the part that is computed again keeps what tells the compiler
    not to merge it with the first time.
    """
    f = optimize(precision="bf16")(jax.grad(lambda x: rematted(x, W).sum()))
    (again,) = [
        eqn
        for eqn in _equations(jax.make_jaxpr(f)(X[:, :4]))
        if eqn.primitive.name in ("remat2", "checkpoint")
    ]
    assert again.params["differentiated"]


def _equations(jaxpr):
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for value in eqn.params.values():
            if isinstance(value, (core.Jaxpr, core.ClosedJaxpr)):
                yield from _equations(value)


@jax.custom_jvp
def straight(x, w):
    return jnp.sign(x @ w)


straight.defjvp(
    lambda primals, tangents: (
        straight(*primals),
        7 * tangents[0].sum(-1, keepdims=True) * jnp.ones(4),
    )
)


@jax.custom_vjp
def doubled(x, w):
    return x @ w


doubled.defvjp(lambda x, w: (x @ w, None), lambda _, g: (5 * jnp.ones((3, 6)), None))


@pytest.mark.parametrize(("own", "slope"), [(straight, 28.0), (doubled, 5.0)])
def test_a_function_with_its_own_derivative_keeps_rule_and_type(own, slope):
    """The rule is wrong on purpose, so that it shows; the plan names the function."""
    f = optimize(precision="bf16")(lambda x, w: own(x, w))
    assert products(f, X, W)[0] == ("float32", "float32")
    np.testing.assert_array_equal(jax.grad(lambda x: f(x, W).sum())(X), np.full((3, 6), slope))
    assert any(f"{own.__name__} (1 product)" in line for line in lines(f, X, W))


@pytest.mark.rest
def test_solves_and_what_stands_next_to_them_stay():
    """Normal equations and their solution equal those of the plain function; a product behind a
    nonlinearity is cast.
    """

    def body(x, w):
        a = x @ x.T + jnp.eye(3)
        return (
            jnp.linalg.solve(a, x @ w),
            jnp.linalg.cholesky(a),
            jnp.linalg.lstsq(x.T, w)[0],
            jnp.tanh(x) @ w,
        )

    f = optimize(precision="bf16")(body)
    out, expected = f(X, W), body(X, W)
    for mine, plain in zip(out[:3], expected[:3], strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[3], rounded(np.tanh(X)) @ rounded(W), rtol=1e-5, atol=1e-5)
    assert any("a solve or factorisation is next to it" in line for line in lines(f, X, W))


def test_a_newton_iteration_stays():
    """A loop that solves at each turn converges to eight digits, as in float32."""

    def root(a):
        def turn(carry):
            i, x = carry
            residual = a @ jnp.tanh(x) - 1
            return i + 1, x - jnp.linalg.solve(a * (1 - jnp.tanh(x) ** 2), residual)

        return lax.while_loop(lambda carry: carry[0] < 8, turn, (0, jnp.zeros(3)))[1]

    a = 2.5 * jnp.eye(3) + 0.1 * X[:, :3]
    f = optimize(precision="bf16")(root)
    np.testing.assert_allclose(
        np.asarray(a, np.float64) @ np.tanh(np.asarray(f(a), np.float64)), np.ones(3), atol=1e-5
    )
    assert any("iteration of Newton's kind" in line for line in lines(f, a))


@pytest.mark.core("cholesky-cholesky", "*-triangular_solve")
@pytest.mark.parametrize(
    ("body", "name"),
    [
        (jnp.linalg.qr, "qr"),
        (jnp.linalg.svd, "svd"),
        (jnp.linalg.eigh, "eigh"),
        (jnp.linalg.cholesky, "cholesky"),
        (jnp.linalg.inv, "lu"),
        (lambda a: jax.scipy.linalg.solve_triangular(a, a), "triangular_solve"),
    ],
)
def test_casting_all_refuses_solves_and_factorisations(body, name):
    """With the operation, the line, and the policy that leaves it in float32; that one computes
    it.
    """

    def fn(a: Float[Array, "n n"]):
        return body(a)

    a = jnp.eye(3) * 2
    with pytest.raises(
        OptionError, match=rf'(?s)`{name}` at test_autocast.py.*bfloat16.*precision="bf16"'
    ):
        optimize(precision="bf16-all")(fn)(a)
    for out, expected in zip(
        jax.tree.leaves(optimize(precision="bf16")(fn)(a)), jax.tree.leaves(fn(a)), strict=True
    ):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.rest
@settings(max_examples=12)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    seed=st.integers(0, 99),
    policy=st.sampled_from(["bf16", "fp16"]),
    first=st.booleans(),
)
@examples(
    {"sizes": [1, 1], "seed": 0, "policy": "bf16", "first": False},
    {"sizes": [3, 4], "seed": 1, "policy": "fp16", "first": True},  # the only layer is pinned
    {"sizes": [2, 5, 3], "seed": 2, "policy": "fp16", "first": False},
    {"sizes": [5, 1, 4, 2], "seed": 3, "policy": "bf16", "first": True},
)
def test_any_chain_of_products_is_that_of_rounded_factors(sizes, seed, policy, first):
    """Against NumPy's doubles, layer by layer; the first layer may be pinned."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(2, sizes[0])).astype(np.float32)
    ws = [draw.normal(size=(a, b)).astype(np.float32) for a, b in itertools.pairwise(sizes)]
    f = optimize(precision={"default": policy, "ws[0]": "f32" if first else policy})(chain)
    expected = np.asarray(x, np.float64)
    for i, w in enumerate(ws):
        low = not (first and i == 0)
        expected = np.cos(
            (rounded(expected, policy) @ rounded(w, policy))
            if low
            else expected @ np.asarray(w, np.float64)
        )
    # A float32 value next to a tie may round the other way: by one unit of the low type, times the
    # sum of a row.
    unit = (
        (2.0**-8 if policy == "bf16" else 2.0**-11)
        * len(ws)
        * max(1.0, max(np.abs(w).sum(0).max() for w in ws)) ** max(0, len(ws) - 1)
    )
    np.testing.assert_allclose(f(x, ws), expected, rtol=0, atol=1e-5 + (unit if len(ws) > 1 else 0))


def chain(x, ws):
    for w in ws:
        x = jnp.cos(x @ w)
    return x
