"""A chunk of a mapped axis, which is `jax.vmap` of the body. References: `jax.vmap` of the plain
function, and what the rules of operations say of the same axis.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Key

from jitney import optimize
from jitney._jax.programs.jaxprs import equations, inside
from jitney._stages import MappedChunks
from jitney.errors import AxisError
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces

RNG = np.random.default_rng(0)
X = array(RNG.normal(size=(37, 5)), np.float32)
W = array(RNG.normal(size=5), np.float32)
CHUNK = {"chunk": {"lane": 16}}


def halved(x: Float[Array, ""]) -> Float[Array, ""]:
    return jax.lax.while_loop(lambda s: s > 1.0, lambda s: s * 0.5, x)


def described(f, *args):
    return {line["name"]: line["why"] for line in f.plan(*args).to_dict()["decisions"]}


@pytest.mark.parametrize("size", [37, 32])
def test_results_keep_their_values_and_types(size):
    """Weak ones, low ones, keys, those that no element changes, and what is not an array."""

    def mixed(x: Float[Array, ""], key: Key[Array, ""], w: Float[Array, "k"]):
        return {
            "weak": jnp.where(x > 0, 1.0, 2.0),
            "low": x.astype(jnp.float8_e4m3fn),
            "complex": jax.lax.complex(x, x),
            "empty": jnp.zeros((0, 2)) * x,
            "key": jax.random.split(key),
            "same": x,
            "shared": w,
            "of what is shared": w.sum() * 2,
            "shared key": jax.random.key_data(jax.random.key(3)),
            "fixed": np.arange(3),
            "weak and fixed": jnp.full((), 3.0),
            "text": "as it is",
            "number": 2.5,
        }

    args = X[:size, 0], jax.random.split(jax.random.key(0), size), W
    want, got = (optimize(vmap="lane", **o)(mixed)(*args) for o in ({}, CHUNK))
    assert (want.pop("text"), want.pop("number")) == (got.pop("text"), got.pop("number"))
    data = jax.random.key_data
    np.testing.assert_array_equal(data(got["key"]), data(want["key"]))
    for name, leaf in want.items():
        assert got[name].aval == leaf.aval, name
        if name != "key":
            assert np.asarray(got[name]).tobytes() == np.asarray(leaf).tobytes(), name


@pytest.mark.rest
@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 70), width=st.integers(2, 70))
@examples({"size": 33, "width": 32}, {"size": 64, "width": 16}, {"size": 3, "width": 2})
def test_any_size_and_width(size, width):
    """Each element is there once."""
    x = jnp.arange(size * 2.0).reshape(2, size)
    f = optimize(vmap={"lane": {"x": 1}}, chunk={"lane": width})(lambda x: x * 2 + 1)
    np.testing.assert_array_equal(f(x), x.T * 2 + 1)


def test_the_body_is_traced_once_and_compiled_once():
    """A size that no chunk divides too: the last chunk begins earlier."""
    body = count_traces(halved)
    f = optimize(vmap="lane", **CHUNK)(body)
    np.testing.assert_array_equal(f(jnp.full(37, 3.0)), np.full(37, 0.75))
    assert body.traces == 1
    assert str(f.trace(jnp.ones(37)).jaxpr).count("while[") == 1


def test_a_loop_ends_with_the_slowest_of_its_chunk():
    """In the other chunks nothing waits for it, and nothing counts its iterations beforehand."""
    f = optimize(vmap="lane", **CHUNK)(halved)
    x = jnp.asarray([2.0] * 36 + [1e30])
    np.testing.assert_array_equal(f(x)[:36], np.ones(36))
    assert described(f, x)["passes"] == "1 over the data, 16 of lane at a time by `jax.vmap`"


@pytest.mark.rest
def test_what_elements_share_is_computed_once():
    """Outside of the loop, also where it is inside of a call."""

    def solved(a: Float[Array, "k k"], b: Float[Array, "k"]) -> Float[Array, "k"]:
        return jnp.linalg.solve(a, b)

    f = optimize(vmap={"lane": {"b": 0}}, **CHUNK)(solved)
    a = jnp.eye(5) + 0.1
    np.testing.assert_allclose(f(a, X), np.linalg.solve(a, np.asarray(X).T).T, rtol=1e-4)
    loops = [eqn for eqn in equations(f.trace(a, X).jaxpr) if eqn.primitive.name == "scan"]
    assert loops
    assert not any(eqn.primitive.name == "lu" for loop in loops for eqn in inside(loop))


@pytest.mark.rest
@pytest.mark.parametrize("axis", ["a", "b"])
def test_of_several_mapped_axes_one_is_cut(axis):
    """The outermost by `jax.vmap`, the inner one by proof."""

    def total(x: Float[Array, "n"], s: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(x)) * s

    x, s = jnp.stack([X, -X, 2 * X], 1), jnp.asarray([1.0, -1.0, 0.5])  # [a=37, b=3, n], [b]
    f = optimize(vmap={"b": {"x": 1, "s": 0}, "a": {"x": 0}}, chunk={axis: 2})(total)
    want = jax.vmap(jax.vmap(total, in_axes=(0, None)), in_axes=(1, 0))(x, s)
    np.testing.assert_allclose(f(x, s), want, rtol=1e-5)
    assert ("by `jax.vmap`" in described(f, x, s)["passes"]) == (axis == "b")


# Bodies whose elements may know of one another, or that do more than compute: the rules of
# operations decide, as they do where nothing is known of `vmap`.


def centred(x: Float[Array, ""]) -> Float[Array, ""]:
    """Its own rule for `vmap` subtracts the mean of all elements."""
    same = jax.custom_batching.custom_vmap(lambda x: x * 0)

    @same.def_vmap
    def all_together(size, are_mapped, x):
        return x - jnp.mean(x), True

    return same(x)


def checked(x: Float[Array, ""]) -> Float[Array, ""]:
    return eqx.error_if(x, x > 100, "too large")


def printed(x: Float[Array, ""]) -> Float[Array, ""]:
    jax.debug.print("{}", x)
    return x


def called(x: Float[Array, ""]) -> Float[Array, ""]:
    shape = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(np.sin, shape, x, vmap_method="expand_dims")


def written(x: Float[Array, ""]) -> Float[Array, ""]:
    ref = jax.new_ref(x)
    ref[...] *= 2
    return ref[...]


def drawn(x: Float[Array, ""]) -> Float[Array, ""]:
    return x + jax.random.normal(jax.random.key(jnp.int32(x), impl="rbg"))


def joined(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(eqx.internal.unvmap_any(x > 1), x, -x)


@pytest.mark.core("centred", "printed")
@pytest.mark.parametrize(
    "body",
    [centred, checked, printed, called, written, drawn, joined],
    ids=lambda body: body.__name__,
)
def test_what_may_know_of_other_elements_is_cut_by_the_rules_of_operations(body, monkeypatch):
    """The same numbers as without chunks, or the same refusal, as if the axis were any axis."""

    def outcome():
        f = optimize(vmap="lane", **CHUNK, cache=False)(body)
        try:
            out = np.asarray(f(X[:, 0]))
        except AxisError as error:
            return type(error), str(error)
        assert "by `jax.vmap`" not in described(f, X[:, 0])["passes"]
        np.testing.assert_allclose(out, jax.vmap(body)(X[:, 0]), rtol=1e-5, atol=1e-6)
        return out.tobytes()

    ours = outcome()
    monkeypatch.setattr(MappedChunks, "fits", lambda *_: False)
    assert ours == outcome()


@pytest.mark.rest
def test_a_check_that_fails_in_the_last_chunk_is_raised():
    """It is found in every chunk."""
    f = optimize(vmap="lane", **CHUNK)(checked)
    with pytest.raises(Exception, match="too large"):
        jax.block_until_ready(f(jnp.arange(37.0).at[36].set(200.0)))
