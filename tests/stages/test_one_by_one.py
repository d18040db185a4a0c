"""`chunk={axis: 1}` of a mapped axis. References: `jax.lax.map`, `jax.vmap` and JAX's own
derivatives of the plain function.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key

from jitney import optimize
from tests._arrays import array
from tests._monitor import listening

RNG = np.random.default_rng(0)
X = array(RNG.normal(size=(7, 5)), np.float32)
W = array(RNG.normal(size=5), np.float32)


def branching(
    x: Float[Array, "n"], w: Float[Array, "n"]
) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    top = jax.lax.cond(x[0] > 0, lambda: jnp.sum(jnp.sin(x * w)), lambda: jnp.max(x))
    return top, jnp.cumsum(x) * w


def halved(x: Float[Array, ""]) -> Float[Array, ""]:
    return jax.lax.while_loop(lambda s: s > 1.0, lambda s: s * 0.5, x)


def test_results_are_those_of_a_loop_to_the_bit():
    """And what is not mapped is shared."""
    got = optimize(vmap="lane", chunk={"lane": 1})(branching)(X, W)
    want = jax.jit(lambda x, w: jax.lax.map(lambda x: branching(x, w), x))(X, W)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_it_ends_where_a_loop_ends():
    """One element that never does is no matter of the others: here all elements but one need no
    turn.
    """
    f = optimize(vmap="lane", chunk={"lane": 1})(halved)
    np.testing.assert_array_equal(f(jnp.asarray([0.5, 8.0, 3.0])), [0.5, 1.0, 0.75])
    jaxpr = str(f.trace(jnp.ones(3)).jaxpr)
    assert "while" in jaxpr
    assert "bool[3]" not in jaxpr


def test_a_branch_stays_one():
    """Under `vmap` it is a select."""
    mapped, looped = (
        optimize(vmap="lane")(branching),
        optimize(vmap="lane", chunk={"lane": 1})(branching),
    )
    assert "cond" not in str(mapped.trace(X, W).jaxpr)
    assert "cond" in str(looped.trace(X, W).jaxpr)


@pytest.mark.core("2")
@pytest.mark.parametrize("size", [1, 2, 7])
def test_any_number_of_elements(size):
    """One too: a `vmap` over one would compute every branch."""
    f = optimize(vmap="lane", chunk={"lane": 1})(branching)
    got, want = f(X[:size], W), jax.vmap(branching, in_axes=(0, None))(X[:size], W)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)
    assert "cond" in str(f.trace(X[:size], W).jaxpr)


def test_none_at_all_is_a_map():
    """Nothing runs, and results have their shapes."""
    top, rest = optimize(vmap="lane", chunk={"lane": 1})(branching)(X[:0], W)
    assert top.shape == (0,)
    assert rest.shape == (0, 5)


@pytest.mark.rest
@pytest.mark.parametrize("axis", ["a", "b"])
def test_of_several_mapped_axes_one_is_the_loop(axis):
    """The outer or the inner one, at any position."""

    def total(x: Float[Array, "n"], s: Float[Array, ""]) -> Float[Array, ""]:
        return jax.lax.cond(s > 0, jnp.sum, jnp.max, x) * s

    x, s = jnp.stack([X, -X, 2 * X], 1), jnp.asarray([1.0, -1.0, 0.5])  # [a=7, b=3, n], [b]
    f = optimize(vmap={"b": {"x": 1, "s": 0}, "a": {"x": 0}}, chunk={axis: 1})(total)
    want = jax.vmap(jax.vmap(total, in_axes=(0, None)), in_axes=(1, 0))(x, s)
    np.testing.assert_allclose(f(x, s), want, rtol=1e-6)


def test_keys_and_integers_are_mapped():
    """What an element draws is what it draws alone."""

    def drawn(key: Key[Array, ""], n: Int[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
        return jax.random.normal(key), n + 1

    keys, n = jax.random.split(jax.random.key(0), 4), jnp.arange(4)
    got = optimize(vmap="lane", chunk={"lane": 1})(drawn)(keys, n)
    jax.tree.map(np.testing.assert_array_equal, got, jax.vmap(drawn)(keys, n))


def test_results_keep_their_types():
    """Weak ones, those that no element changes, and what is not an array."""

    def mixed(x: Float[Array, ""]):
        return {
            "weak": jnp.where(x > 0, 1.0, 2.0),
            "fixed": np.arange(3),
            "text": "as it is",
            "bool": x > 0,
        }

    got, want = (optimize(vmap="lane", **o)(mixed)(X[:, 0]) for o in ({"chunk": {"lane": 1}}, {}))
    assert got["text"] == want["text"]
    for name in ("weak", "fixed", "bool"):
        np.testing.assert_array_equal(got[name], want[name])
        assert got[name].aval == want[name].aval


def test_nan_of_a_low_type_keeps_its_sign():
    """XLA for CPUs moves these types in wider ones."""

    def same(x: Float[Array, ""]) -> Float[Array, ""]:
        return x

    x = jax.lax.bitcast_convert_type(
        jnp.asarray([0xFF, 0x7F, 0x3C, 0xFE], jnp.uint8), jnp.float8_e5m2
    )
    got = optimize(vmap="lane", chunk={"lane": 1})(same)(x)
    np.testing.assert_array_equal(np.asarray(got).view(np.uint8), np.asarray(x).view(np.uint8))


def loss(x, w):
    return sum(
        jnp.sum(part**2) for part in optimize(vmap="lane", chunk={"lane": 1})(branching)(x, w)
    )


@pytest.mark.rest
def test_outer_derivatives_are_those_of_a_map():
    """Of mapped arguments and of shared ones, under `jit` and twice."""
    plain = lambda x, w: sum(
        jnp.sum(part**2) for part in jax.vmap(branching, in_axes=(0, None))(x, w)
    )
    for order in (
        lambda f: jax.grad(f, (0, 1)),
        lambda f: jax.jit(jax.grad(f, (0, 1))),
        lambda f: jax.hessian(f, 1),
    ):
        got, want = order(loss)(X, W), order(plain)(X, W)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), got, want)


@pytest.mark.rest
def test_what_an_outer_derivative_keeps_are_the_arguments():
    """The rest is computed again on the way back, as other chunks are."""

    def long(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(jnp.exp(jnp.tanh(x[:, None] * x))))

    def kept(f):
        x = jnp.ones((40, 60))
        return (
            jax.jit(jax.grad(lambda x: jnp.sum(f(x))))
            .lower(x)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    looped = kept(optimize(vmap="lane", chunk={"lane": 1})(long))
    assert looped < kept(jax.vmap(long)) / 8
    assert looped < kept(lambda x: jax.lax.map(long, x)) / 4


@pytest.mark.core("jit")
@pytest.mark.parametrize(
    "transform", [jax.grad, lambda f: jax.jit(jax.grad(f))], ids=["grad", "jit"]
)
def test_a_body_that_prints_does_so_once(transform, capfd):
    """It is not run again on the way back."""

    def told(x: Float[Array, ""]) -> Float[Array, ""]:
        jax.debug.print("at {}", x)
        return jnp.sin(x) ** 2

    f = optimize(vmap="lane", chunk={"lane": 1})(told)
    got = transform(lambda x: jnp.sum(f(x)))(jnp.arange(2.0))
    jax.effects_barrier()
    np.testing.assert_allclose(got, np.sin(2 * np.arange(2.0)), rtol=1e-6)
    assert capfd.readouterr().out.split("\n") == ["at 0.0", "at 1.0", ""]


def test_a_derivative_of_ours_is_one_for_each_element():
    """In the loop."""

    def square(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jax.lax.cond(x[0] > 0, lambda: jnp.sum(x**2), lambda: jnp.sum(x))

    got = optimize(vmap="lane", chunk={"lane": 1})(square).grad(X)["x"]
    np.testing.assert_allclose(got, jax.vmap(jax.grad(square))(X), rtol=1e-6)


def test_it_acts_inside_of_an_outer_program():
    """Where longer chunks do not: it needs no proof and no measure, and nothing is said."""
    f = optimize(vmap="lane", chunk={"lane": 1})(branching)
    got = jax.jit(lambda x: f(x, W))(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, f(X, W))
    assert "cond" in str(jax.make_jaxpr(lambda x: f(x, W))(X))


def test_one_program_serves_the_warm_calls():
    """It is a part of the program."""
    f, other = optimize(vmap="lane", chunk={"lane": 1})(branching), X + 1
    f(X, W)
    with listening() as seen:
        f(other, W)
    assert seen.count("compile") == 0


def lines(f, *args):
    return [d["why"] for d in f.plan(*args).to_dict()["decisions"] if d["name"] == "lanes"]


def test_the_plan_says_which_branches_all_elements_compute():
    """With the user's line, and not those whose predicate all elements share."""

    @optimize(vmap="lane")
    def f(x: Float[Array, ""], k: Float[Array, ""]) -> Float[Array, ""]:
        y = jax.lax.cond(k > 0, jnp.sin, jnp.cos, x)
        return jax.lax.switch(jnp.int32(x > 3), [jnp.sin, jnp.cos], y)

    (said,) = lines(f, X[:, 0], W[0])
    at = f.__wrapped__.__code__.co_firstlineno
    assert said.startswith(f"each lane computes every branch: test_one_by_one.py:{at + 3} (f)")
    assert said.endswith('; chunk={"lane": 1} works on one at a time, and computes one')


def test_the_plan_says_which_loops_wait_for_the_slowest():
    """And, where the loop is over the elements, nothing."""
    (said,) = lines(optimize(vmap="lane")(halved), X[:, 0])
    assert said.startswith("each lane goes on until the slowest ends: test_one_by_one.py:")
    assert lines(optimize(vmap="lane", chunk={"lane": 1})(halved), X[:, 0]) == []


@pytest.mark.parametrize(
    "options", [{"pad": {"lane": [8]}}, {"chunk": {"lane": 2}}], ids=["pad", "chunk"]
)
def test_what_cannot_stand_beside_it_is_not_advised(options):
    """The line is there all the same."""
    (said,) = lines(optimize(vmap="lane", **options)(halved), X[:, 0])
    assert "chunk=" not in said


def test_a_body_without_branches_has_no_such_line():
    """Nor has one that is not mapped."""
    assert lines(optimize(vmap={"lane": {"x": 0}})(lambda x: x + 1), X[:, 0]) == []
    assert lines(optimize(halved), X[0, 0]) == []
