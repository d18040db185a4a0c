"""A padded or chunked function under JAX's own transforms: as people train. References: the plain
function, numpy.
"""

import functools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize
from jitney.errors import NonFiniteError
from tests._monitor import listening

RNG = np.random.default_rng(0)


def rows(n, *shape):
    return RNG.normal(size=(n, *shape)).astype(np.float32)


def plain(w: Float[Array, "3"], x: Float[Array, "n 3"], y: Float[Array, "n"]):
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2) + jnp.max(x @ w)


def close(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


W = rows(3)


@pytest.mark.rest
def test_gradients_of_a_padded_loss_share_a_program():
    """`eqx.filter_value_and_grad` at seven sizes of one bucket: one trace of the body, and nothing
    is compiled after the first size.
    """
    loss = optimize(pad={"n": "pow2"})(plain)
    step = eqx.filter_value_and_grad(loss)
    jax.block_until_ready(step(W, rows(16, 3), rows(16)))
    data = [(rows(n, 3), rows(n)) for n in range(9, 16)]
    with listening() as seen:
        got = [step(W, x, y) for x, y in data]
        jax.block_until_ready(got)
    assert seen.count("compile") == 0
    assert loss.stats.traces == 1
    for result, (x, y) in zip(got, data, strict=True):
        close(result, jax.value_and_grad(plain)(W, x, y))


TRANSFORMS = {
    "grad": lambda f, w, x, y: jax.grad(f)(w, x, y),
    "grad of the data": lambda f, w, x, y: jax.grad(f, argnums=(1, 2))(w, x, y),
    "jvp": lambda f, w, x, y: jax.jvp(f, (w, x, y), (w, x, y)),
    "vjp": lambda f, w, x, y: jax.vjp(f, w, x, y)[1](jnp.float32(2)),
    "linearize": lambda f, w, x, y: jax.linearize(f, w, x, y)[1](w, x, y),
    "jacrev": lambda f, w, x, y: jax.jacrev(f)(w, x, y),
    "vmap": lambda f, w, x, y: jax.vmap(f, (0, None, None))(jnp.stack([w, 2 * w]), x, y),
    "vmap of the data": lambda f, w, x, y: jax.vmap(f, (None, 0, None))(
        w, jnp.stack([x, 2 * x]), y
    ),
    "vmap of grad": lambda f, w, x, y: jax.vmap(jax.grad(f), (0, None, None))(
        jnp.stack([w, 2 * w]), x, y
    ),
    "grad of vmap": lambda f, w, x, y: jax.grad(
        lambda w: jnp.sum(jax.vmap(f, (None, 0, None))(w, jnp.stack([x, 2 * x]), y))
    )(w),
}


def by_jax(transform, *arrays):
    """The same transform of the plain function, in one program."""
    return jax.jit(functools.partial(transform, plain))(*arrays)


@pytest.mark.core("grad")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_of_the_chunked_function_is_that_of_the_plain_one(transform):
    """And it is cut: nothing is said."""
    f, x, y = optimize(chunk={"n": 4})(plain), rows(11, 3), rows(11)
    close(transform(f, W, x, y), by_jax(transform, W, x, y))


@pytest.mark.core("grad")
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_of_the_padded_function_is_that_of_the_plain_one(transform):
    """And it is padded: the body is traced once for two sizes."""
    f = optimize(pad={"n": "pow2"})(plain)
    for n in (11, 13):
        x, y = rows(n, 3), rows(n)
        close(transform(f, W, x, y), by_jax(transform, W, x, y))
    assert f.stats.traces == 1


@pytest.mark.rest
def test_results_that_are_padded_are_cut():
    """Of a derivative too, whose tangents and cotangents have the true size."""

    def running(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.cumsum(jnp.sin(x))

    f, x = optimize(pad={"n": "pow2"})(running), rows(11)
    close(jax.jvp(f, (x,), (x,)), jax.jvp(running, (x,), (x,)))
    close(jax.vjp(f, x)[1](x), jax.vjp(running, x)[1](x))
    close(jax.jacrev(f)(x), jax.jacrev(running)(x))
    close(jax.vmap(f)(jnp.stack([x, -x])), jax.vmap(running)(jnp.stack([x, -x])))


HARD = {
    "the logarithm of a difference, which is 0 where the last element is repeated": lambda x: (
        jnp.sum(jnp.log(jnp.abs(x[1:] - x[:-1])))
    ),
    "a maximum that ties with what reductions put behind it": lambda x: jnp.max(
        jnp.where(x > 9, x, -jnp.inf) * 0 + x, initial=-jnp.inf
    ),
    "a maximum of infinities": lambda x: jnp.max(x - jnp.inf),
    "a norm at the origin": lambda x: jnp.linalg.norm(x - x) + jnp.sum(x**2),
    "a quotient by what is behind": lambda x: jnp.sum(x / (x - jnp.roll(x, 1))),
    "a root": lambda x: jnp.sum(jnp.sqrt(jnp.abs(jnp.diff(x)))),
    "log-sum-exp": lambda x: jax.nn.logsumexp(x),
    "a variance": lambda x: jnp.var(x),
    "a sort": lambda x: jnp.sum(jnp.sort(x) * jnp.arange(x.shape[0], dtype=x.dtype)),
}


@pytest.mark.core("the logarithm of a difference, which is 0 where the last element is repeated")
@pytest.mark.parametrize("fn", HARD.values(), ids=HARD)
def test_what_is_filled_in_reaches_no_derivative(fn):
    """Where a derivative of it would be infinite or tie, those of the function are JAX's at exact
    size, NaN for NaN.
    """

    def body(x: Float[Array, "n"]):
        return fn(x)

    x = rows(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitneyWarning)  # of those that are refused
        f = optimize(pad={"n": "pow2"})(body)
        close(jax.grad(f)(x), jax.grad(body)(x))
        close(jax.jvp(f, (x,), (x,)), jax.jvp(body, (x,), (x,)))


def test_what_is_kept_for_the_way_back_is_what_the_plain_function_keeps():
    """Neither masks nor constants for each operation, at the size of the bucket."""

    def loss(w: Float[Array, "8 8"], x: Float[Array, "n 8"]):
        for _ in range(4):
            x = jax.nn.relu(x @ w)
        return jnp.mean(x**2)

    def kept(f):
        _, back = jax.vjp(lambda w: f(w, x), w)
        return sum(leaf.nbytes for leaf in jax.tree.leaves(back) if hasattr(leaf, "nbytes"))

    w, x = rows(8, 8), rows(256, 8)
    assert kept(optimize(pad={"n": "pow2"})(loss)) < 1.2 * kept(jax.jit(loss))


def deep(w: Float[Array, "8 8"], x: Float[Array, "n 8"]):
    for _ in range(8):
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def test_of_chunks_nothing_is_kept_for_the_way_back():
    """But the arguments; plain JAX keeps all that the eight layers made."""

    def kept(f):
        _, back = jax.vjp(lambda w: f(w, x), w)
        return sum(leaf.nbytes for leaf in jax.tree.leaves(back) if hasattr(leaf, "nbytes"))

    w, x = rows(8, 8), rows(4096, 8)
    assert kept(optimize(chunk={"n": 64})(deep)) < 1.2 * x.nbytes < kept(jax.jit(deep)) / 5


@pytest.mark.rest
def test_a_mapped_function_is_cut_along_what_is_mapped():
    """`vmap` of its own, in chunks, under a derivative."""
    w, x = rows(8, 8), rows(11, 5, 8)
    f = optimize(vmap="batch", chunk={"batch": 4})(deep)
    close(
        jax.grad(lambda w: jnp.sum(f(w, x)))(w),
        jax.grad(lambda w: jnp.sum(jax.vmap(deep, (None, 0))(w, x)))(w),
    )


def test_equal_extremes_in_several_chunks_share_a_gradient_as_at_once():
    """JAX's own derivative of a maximum of chunks' maxima would halve at each."""

    def highest(x: Float[Array, "n"]):
        return jnp.max(x)

    x = np.array([1, 1, 0, 1, 1, 1, 0], np.float32)
    np.testing.assert_allclose(jax.grad(optimize(chunk={"n": 2})(highest))(x), x / 5, rtol=1e-6)


def test_what_calls_back_is_differentiated_at_once():
    """With a warning, as a chunk is worked on twice."""

    def printed(x: Float[Array, "n"]):
        jax.debug.print("once")
        return jnp.sum(x**2)

    x = rows(11)
    with pytest.warns(
        JitneyWarning, match=r"not cut into chunks under an outer transform: .*calls back"
    ):
        got = jax.grad(optimize(chunk={"n": 4})(printed))(x)
    close(got, jax.grad(printed)(x))


def test_what_is_closed_over_is_not_differentiated_through_chunks():
    """Its derivative would be that of the chunks: all of it at once, with a warning."""

    def loss(decorate, w):
        def body(x: Float[Array, "n 3"]):
            return jnp.max(jnp.tanh(x @ w))

        return decorate(body)(x)

    x = rows(11, 3)
    with pytest.warns(JitneyWarning, match="closes over a value that an outer transform traces"):
        got = jax.grad(functools.partial(loss, optimize(chunk={"n": 4})))(W)
    close(got, jax.grad(functools.partial(loss, lambda body: body))(W))


def by_length(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Its Python needs the size: for an array of NumPy, a number, and a part."""
    weights = np.linspace(1, 2, len(x), dtype=np.float32)
    share = len(x) / (len(x) + 1)
    return jnp.sum(jnp.sin(x) ** 2 / weights) * share + jnp.sum(x[: len(x) // 2] ** 3)


def test_a_gradient_of_what_python_computes_of_the_size_is_padded():
    """Two sizes with one program of the gradient, which is that of NumPy."""
    gradient = jax.grad(optimize(pad={"n": "pow2"})(by_length))
    jax.block_until_ready(gradient(rows(9)))
    x = rows(14)
    want = np.sin(2 * x) / np.linspace(1, 2, 14) * (14 / 15)
    want[:7] += 3 * x[:7] ** 2
    np.testing.assert_allclose(gradient(x), want, rtol=1e-5, atol=1e-6)


@jax.custom_jvp
def otherwise_at_13(x):
    return jnp.sin(x)


@otherwise_at_13.defjvp
def _rule(primals, tangents):
    (x,), (t,) = primals, tangents
    slope = jnp.exp(x) if len(x) == 13 else jnp.cos(x)
    return otherwise_at_13(x), t * slope * float(len(str(len(x))))


@pytest.mark.rest
@pytest.mark.parametrize("first", [9, 13])
def test_a_derivative_that_is_another_one_at_some_size_runs_exact_there(first):
    """The function itself is the same at all sizes: only the trace of the derivative tells."""

    def plain(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(otherwise_at_13(x) * y)

    loss = optimize(pad={"n": "pow2"})(plain)
    for n in (first, 13, 9, 15, 13):
        x, y = rows(n), rows(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JitneyWarning)
            got = [
                jax.vmap(loss)(x[None], y[None]),
                jax.grad(loss)(x, y),
                jax.grad(loss, argnums=(0, 1))(x, y),
                jax.vmap(jax.value_and_grad(loss))(x[None], y[None]),
                jax.jvp(loss, (x, y), (y, x)),
            ]
        want = [
            jax.vmap(plain)(x[None], y[None]),
            jax.grad(plain)(x, y),
            jax.grad(plain, argnums=(0, 1))(x, y),
            jax.vmap(jax.value_and_grad(plain))(x[None], y[None]),
            jax.jvp(plain, (x, y), (y, x)),
        ]
        close(got, want)


@pytest.mark.rest
def test_gradients_of_what_python_computes_share_a_program():
    """Nothing is compiled at a new size of the bucket; the function and its derivative are traced
    there.
    """
    gradient = jax.grad(optimize(pad={"n": "pow2"})(by_length))
    jax.block_until_ready(gradient(rows(16)))
    x = rows(16)
    with listening() as seen:
        jax.block_until_ready(gradient(x))
    assert seen.count("compile") == 0
    for n in (9, 12, 15):
        x = rows(n)
        close(gradient(x), jax.grad(by_length)(x))


def test_inside_an_outer_jit_it_says_that_it_is_not_padded():
    """Once, with the function that was jitted and the remedy; and the numbers are right."""
    f = optimize(pad={"n": "pow2"})(plain)

    @jax.jit
    def step(w, x, y):
        return jax.grad(f)(w, x, y)

    x, y = rows(11, 3), rows(11)
    with pytest.warns(
        JitneyWarning,
        match=(
            r"inside an outer `jit`(.|\n)*step"
            r" \(test_outer_transforms.py(.|\n)*@jitney.optimize\(pad="
        ),
    ):
        got = step(W, x, y)
    close(got, by_jax(TRANSFORMS["grad"], W, x, y))
    x, y = rows(13, 3), rows(13)
    close(step(W, x, y), by_jax(TRANSFORMS["grad"], W, x, y))  # no second one


def test_inside_a_scan_it_says_so_too():
    """The other way in which JAX traces a function as a whole."""

    def total(x: Float[Array, "n"]):
        return jnp.sum(x)

    f = optimize(pad={"n": "pow2"})(total)
    with pytest.warns(JitneyWarning, match="not padded inside an outer"):
        _, out = jax.lax.scan(lambda carry, x: (carry, f(x)), 0, rows(4, 5))
    assert out.shape == (4,)


@pytest.mark.rest
def test_inside_a_padded_function_it_is_a_part_of_that():
    """No warning, as the size is a symbol there; nor at sizes 0 and 1, which every padded function
    runs as they are.
    """
    inner = optimize(pad={"n": "pow2"})(plain)

    @optimize(pad={"n": "pow2"})
    def outer(w: Float[Array, "3"], x: Float[Array, "n 3"], y: Float[Array, "n"]):
        return jax.value_and_grad(inner)(w, x, y)

    for n in (1, 11, 13):
        x, y = rows(n, 3), rows(n)
        close(outer(W, x, y), jax.value_and_grad(plain)(W, x, y))


@pytest.mark.rest
def test_under_two_derivatives_it_says_that_it_is_not_padded():
    """What is proven is one derivative at a time: `hessian` of a Program takes two in one
    program.
    """
    f, x, y = optimize(pad={"n": "pow2"})(plain), rows(11, 3), rows(11)
    with pytest.warns(JitneyWarning, match=r"not padded under two derivatives(.|\n)*\.hessian"):
        close(jax.hessian(f)(W, x, y), jax.hessian(plain)(W, x, y))
    crossed = jax.grad(lambda w: jnp.sum(jax.grad(f, argnums=2)(w, x, y)))(W)
    close(crossed, jax.grad(lambda w: jnp.sum(jax.grad(plain, argnums=2)(w, x, y)))(W))


def test_what_is_closed_over_is_not_differentiated_through_a_padded_program():
    """Its derivative would be one of the padded program itself: it runs at exact size, with a
    warning.
    """

    def loss(decorate, w):
        def body(x: Float[Array, "n 3"]):
            return jnp.max(jnp.tanh(x @ w))

        return decorate(body)(x)

    x = rows(11, 3)
    with pytest.warns(JitneyWarning, match="closes over a value that an outer transform traces"):
        got = jax.grad(functools.partial(loss, optimize(pad={"n": "pow2"})))(W)
    close(got, jax.grad(functools.partial(loss, lambda body: body))(W))


def test_a_derivative_that_cannot_be_padded_runs_at_exact_size():
    """A loop of as many turns as there are elements has no reverse on an axis that is longer."""

    def looped(x: Float[Array, "n"]):
        return jax.lax.fori_loop(0, x.shape[0], lambda i, s: s + jnp.sin(x[i]), jnp.float32(0))

    f, x = optimize(pad={"n": "pow2"})(looped), rows(11)
    with pytest.warns(JitneyWarning, match="cannot go through backwards"):
        close(jax.grad(f)(x), jax.grad(looped)(x))


@pytest.mark.core("an axis of vmap-grad", "an axis of vmap-vjp")
@pytest.mark.parametrize("through", ["grad", "vjp", "vmap of grad"])
@pytest.mark.parametrize("padded", ["an axis of vmap", "an axis of the signature"])
def test_a_body_with_backward_rules_of_its_own_runs_at_exact_size(padded, through):
    """The derivative of a padded program is pushed forward before it is transposed: a
    `jax.custom_vjp` can only be transposed.
    """

    @jax.custom_vjp
    def square(x):
        return x * x

    # not the derivative, so that a look past the rule is seen
    square.defvjp(lambda x: (x * x, x), lambda x, t: (3 * x * t,))

    def vector(x: Float[Array, "n"]):
        return jnp.sum(square(x))

    def matrix(x: Float[Array, "n d"]):
        return jnp.sum(jnp.sin(x), axis=1) * square(x[:, 0])

    if padded == "an axis of vmap":
        f, want = optimize(vmap={"row": {"x": 0}}, pad={"row": "pow2"})(vector), jax.vmap(vector)
    else:
        f, want = optimize(pad={"n": "pow2"})(matrix), matrix
    x = rows(5, 2)

    def derivative(f):
        if through == "grad":
            return jax.grad(lambda x: jnp.sum(f(x)))(x)
        if through == "vjp":
            return jax.vjp(f, x)[1](jnp.ones(5, np.float32))
        return jax.vmap(jax.grad(lambda x: jnp.sum(f(x))))(jnp.stack([x, 2 * x]))

    with pytest.warns(JitneyWarning, match="custom_vjp"):
        close(derivative(f), derivative(want))


def logarithm(**options):
    """A function of its own each time: what has been said of one is not said of an equal one
    again.
    """

    def total(x: Float[Array, "n"]):
        return jnp.sum(jnp.log(x))

    return optimize(**options)(total)


OUTER = {
    "grad": jax.grad,
    "jit": jax.jit,
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None]),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, y: (c, f(y)), 0, x[None])[1],
    "jit around an array": lambda f: lambda x: jax.jit(lambda: f(x))(),
}
LOOKING = {"debug_nans": "`debug_nans` looks at nothing", "verify": "`verify` compares nothing"}
ASKED = {"debug_nans": {"debug_nans": True}, "verify": {"verify": True, "remat": True}}


@pytest.mark.core("grad-debug_nans", "jit around an array-debug_nans", "grad-verify")
@pytest.mark.parametrize("option", LOOKING)
@pytest.mark.parametrize("outer", OUTER.values(), ids=OUTER)
def test_under_an_outer_transform_it_says_that_nobody_looks_at_results(outer, option):
    """Once, with the remedy: there are no numbers yet, so a NaN is passed on and nothing is
    compared.
    """
    f = logarithm(**ASKED[option])
    with pytest.warns(
        JitneyWarning, match=rf"{LOOKING[option]} under an outer transform(.|\n)*outermost function"
    ):
        outer(f)(jnp.zeros(3))
    outer(f)(jnp.zeros(3))  # a second warning would be an error


@pytest.mark.parametrize("option", LOOKING)
def test_after_a_call_of_its_own_it_says_so_too(option):
    """Of numbers everything is looked at, and nothing is said."""
    f = logarithm(**ASKED[option])
    f(jnp.ones(3))
    with pytest.warns(JitneyWarning, match=LOOKING[option]):
        jax.grad(f)(jnp.ones(3))


@pytest.mark.parametrize("option", LOOKING)
def test_inside_a_function_that_is_looked_at_nothing_is_said(option):
    """Its results are what the outer program returns, and that is looked at."""
    inner = logarithm(**ASKED[option])

    @optimize(**ASKED[option])
    def outer(x: Float[Array, "n"]):
        return jax.grad(inner)(x)

    np.testing.assert_array_equal(outer(jnp.ones(3)), np.ones(3))


def test_of_a_program_that_is_not_compared_anyway_nothing_is_said():
    """Without an option that changes a program there is nothing to compare."""
    np.testing.assert_array_equal(jax.grad(logarithm(verify=True))(jnp.ones(3)), np.ones(3))


def test_a_nan_inside_of_a_function_that_is_looked_at_is_found():
    """The line of the inner one is named."""
    inner = logarithm(debug_nans=True)

    @optimize(debug_nans=True)
    def outer(x: Float[Array, "n"]):
        return jax.grad(inner)(x)

    with pytest.raises(NonFiniteError, match="`div` made the first inf"):
        outer(jnp.zeros(3))


def test_what_runs_un_jitted_inside_an_outer_jit_is_not_looked_at():
    """Of a function that turned out to need numbers: with numbers it is looked at, in a trace it
    says that nobody looks.
    """

    def counted(x: Float[Array, "n"]):
        return jnp.log(x) * len(set(np.asarray(x).tolist()))

    f, x = optimize(debug_nans=True, on_trace_error="eager")(counted), np.ones(3, np.float32)
    with pytest.warns(JitneyWarning, match="needs a concrete value"):
        f(x)
    with pytest.warns(JitneyWarning, match="`debug_nans` looks at nothing"):
        np.testing.assert_array_equal(jax.jit(lambda: f(x))(), np.zeros(3))


BRANCHES = {
    "cond": lambda x, s: jnp.sum(
        jax.lax.cond(s > 0.5, lambda z: jnp.sqrt(z * s), lambda z: z + s, x)
    ),
    "nested": lambda x, s: jnp.sum(
        jax.lax.cond(
            s > 0.5,
            lambda z: jax.lax.cond(s > 0.9, jnp.log, jnp.sqrt, z) * s,
            lambda z: z + s,
            x,
        )
    ),
    "switch": lambda x, s: jnp.sum(
        jax.lax.switch(jnp.int32(s * 3), [jnp.sin, jnp.sqrt, lambda z: z / s], x)
    ),
    "in a scan": lambda x, s: jax.lax.scan(
        lambda c, q: (jax.lax.cond(q > 1, lambda z: jnp.sqrt(z * q), lambda z: z + q, c), None),
        s,
        x,
    )[0],
    "by the carry": lambda x, s: jax.lax.scan(
        lambda c, q: (jax.lax.cond(c > 1, lambda z: jnp.sqrt(z * q), lambda z: z + q, c), None),
        s,
        x,
    )[0],
    "in a loop": lambda x, s: jax.lax.fori_loop(
        0, 3, lambda k, c: jax.lax.cond(c > 1, jnp.sqrt, lambda z: z + jnp.sum(x), c), s
    ),
}
OUTSIDE = {
    "grad": lambda f, x, s: jax.grad(lambda *at: jnp.sum(jax.vmap(f)(*at)), (0, 1))(x, s),
    "vjp of two maps": lambda f, x, s: jax.vjp(jax.vmap(jax.vmap(f, (None, 0)), (0, None)), x, s)[
        1
    ](jnp.ones((len(x), len(s)))),
    "jvp": lambda f, x, s: jax.jvp(jax.vmap(f), (x, s), (x, s)),
    "vmap of grad": lambda f, x, s: jax.vmap(jax.grad(f, (0, 1)))(x, s),
    "jit": lambda f, x, s: jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(f)(x, s))))(x),
    "hessian": lambda f, x, s: jax.hessian(lambda s: jnp.sum(jax.vmap(f)(x, s)))(s),
}


PAIRS = [
    *(("grad", name) for name in BRANCHES),
    *((how, name) for how in OUTSIDE if how != "grad" for name in ("nested", "in a scan")),
]


@pytest.mark.core("grad-cond", "grad-in a scan")
@pytest.mark.parametrize(("how", "name"), PAIRS)
@pytest.mark.filterwarnings("ignore:(.|\n)*it is not padded:jitney.JitneyWarning")
def test_branches_that_elements_of_a_map_choose(how, name):
    """Two elements choose another branch each; a branch that is not taken adds nothing, though its
    derivative is infinite or NaN.
    """

    def body(x: Float[Array, "n"], s: Float[Array, ""]):
        return BRANCHES[name](x, s)

    x = np.array([[1.6, 1.1, 0.0], [0.5, 1.2, 3.0]], np.float32)
    s = np.array([0.4, 0.7], np.float32)
    f = optimize(pad={"n": [8]})(body)
    close(OUTSIDE[how](f, x, s), OUTSIDE[how](body, x, s))


@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}], ids=["pad", "chunk"]
)
def test_a_derivative_of_a_map_with_a_branch_says_what_it_does(options):
    """A branch that all elements share is padded and cut, and nothing is said; one that each
    chooses runs at exact size, since JAX transposes no such select.
    """

    def body(x: Float[Array, "n"], s: Float[Array, ""]):
        return jnp.sum(jax.lax.cond(s > 0, jnp.sin, jnp.cos, x))

    f, x, s = optimize(**options)(body), rows(2, 5), rows(2)

    def total(axes, s):
        return jax.grad(lambda x: jnp.sum(jax.vmap(f, axes)(x, s)))(x)

    total((0, None), s[0])
    with pytest.warns(
        JitneyWarning, match=r"derivative of a map(.|\n)*`jax.vmap\(jax.grad\(f\)\)`"
    ):
        total((0, 0), s)
