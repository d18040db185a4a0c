import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._arrays import array
from tests._monitor import listening
from tests._switched import environment

X = array(np.arange(1.0, 8.0))


@pytest.fixture(params=["1", "eager"], autouse=True)
def disabled(request):
    """Functions are decorated where jitney is off."""
    with environment(JITNEY_DISABLE=request.param):
        yield request.param


def spread(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x - jnp.mean(x)


def compiles(call, *args):
    with listening() as events:
        call(*args)
    return events.count("compile", "spread")


def test_nothing_is_padded(disabled):
    """Each size is a program of its own, or none."""

    @optimize(pad={"n": "pow2"})
    # of its own: JAX keeps programs by function
    def spread(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x - jnp.mean(x)

    calls = [compiles(spread, jnp.ones(n)) + compiles(spread, jnp.ones(n)) for n in (5, 6)]
    assert calls == ([1, 1] if disabled == "1" else [0, 0])
    assert spread.stats.sizes == {}


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": {"n": 2}},
        {"memory": "1MiB"},
        {"precision": "bf16-all"},
        {"remat": True},
        {"contracts": False},
    ],
)
def test_results_are_those_of_plain_jit(options):
    """To the bit, whatever the options."""
    got = optimize(**options)(spread)(X)
    np.testing.assert_allclose(got, jax.jit(spread)(X), rtol=1e-7)


def test_what_is_static_stays_static():
    """By annotation and by name."""

    @optimize(static="knots")
    def f(x: Float[Array, "n"], knots: list, power: int = 2) -> Float[Array, "n"]:
        assert type(power) is int
        return sum(x**power - knot for knot in knots)

    np.testing.assert_allclose(f(X, [0.5, 1.5], 3), 2 * np.asarray(X) ** 3 - 2)


def test_vmap_stays():
    """It is meaning: the signature says what one element is."""
    f = optimize(vmap="batch", pad={"batch": "pow2"})(spread)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_allclose(f(x), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_nothing_is_donated():
    """Buffers stay."""
    x = jnp.ones(4)
    optimize(donate="x")(spread)(x)
    assert not x.is_deleted()


@pytest.mark.core("1")
def test_derivatives_are_those_of_jax():
    """Dense, by `jax.jacfwd` and `jax.grad`; sparse ones stay sparse."""
    f = jitney.lazy_derivatives(wrt="x", sparse=True)(optimize(spread))
    want = np.eye(7) - 1 / 7
    np.testing.assert_allclose(f.jacobian(X).todense(), want, rtol=1e-6, atol=1e-6)
    loss = optimize(lambda_loss)
    np.testing.assert_allclose(loss.grad(X, wrt="x"), 2 * np.asarray(X) / 7, rtol=1e-6)
    value, gradient = jitney.accumulate(loss, axis="n", microbatch=2, wrt="x")(X)
    np.testing.assert_allclose((value, gradient[0]), (20.0, 2 / 7), rtol=1e-6)


def lambda_loss(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(x**2)


def test_a_stream_is_one_call():
    """On all of the data."""
    found = jitney.stream(optimize(lambda_loss), np.asarray(X), chunk={"n": 2}, progress=False)
    assert (float(found.result), found.stats.chunks) == (20.0, 1)


def test_arrays_of_numpy_are_arrays_of_jax_inside():
    """Else the eager function would compute in float64."""
    f = optimize(lambda x: x / 3)
    assert f(np.ones(3)).dtype == jnp.float32


def test_modules_and_results_that_are_no_arrays_go_through():
    """A model in, a model and a text out."""
    f = optimize(
        lambda model: (
            jax.tree.map(lambda leaf: 2 * leaf if eqx.is_array(leaf) else leaf, model),
            "text",
        )
    )
    model, text = f(eqx.nn.Linear(2, 2, key=jax.random.key(0)))
    assert text == "text"
    assert model(jnp.ones(2)).shape == (2,)


def test_programs_inside_programs_are_plain_too():
    """And under the transformations of JAX."""
    inner = optimize(chunk={"n": 2})(lambda_loss)
    outer = optimize(lambda x: inner(x) * 2)
    assert outer(X) == 40.0
    np.testing.assert_allclose(jax.grad(inner)(X), 2 * np.asarray(X) / 7, rtol=1e-6)


def test_the_plan_says_so():
    """And what one can ask still answers."""
    f = optimize(pad={"n": "pow2"})(spread)
    line = next(d for d in f.plan(X).to_dict()["decisions"] if d["name"] == "verify")
    assert "JITNEY_DISABLE" in line["why"]


def test_a_value_that_is_not_known_is_refused():
    """At decoration."""
    with (
        environment(JITNEY_DISABLE="2"),
        pytest.raises(jitney.errors.OptionError, match="JITNEY_DISABLE='2'"),
    ):
        optimize(spread)


def test_functions_decorated_before_stay_as_they_are():
    """And the other way round."""
    plain = optimize(pad={"n": "pow2"})(spread)
    with environment(JITNEY_DISABLE="0"):
        padded = optimize(pad={"n": "pow2"})(spread)
        plain(jnp.ones(5))
        assert plain.stats.sizes == {}
    padded(jnp.ones(5))
    assert set(padded.stats.sizes) == {"n"}
