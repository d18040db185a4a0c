"""Programs of buckets through a file: each size of the bucket gives what the function gives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key

import jitney
from jitney.errors import ContractError, PaddingWarning
from tests._arrays import array

from ._models import saved, to_the_bit

RNG = np.random.default_rng(11)
W = np.float32(0.3)


def row(n, *more):
    return RNG.normal(size=(n, *more)).astype(np.float32)


def score(w: Float[Array, ""], x: Float[Array, "t"]):
    z = x - jnp.mean(x)
    return {"each": w * z, "sum": jnp.sum(jax.nn.softmax(w * z) * z), "size": jnp.max(z)}


def gram(x: Float[Array, "n k"], y: Float[Array, "n"]):
    return x.T @ x, jnp.linalg.norm(y), jnp.sort(y), y[::-1]


def counted(x: Float[Array, "t"]):
    n = x.shape[0]
    return x * (1 - n / (n + 1)), jnp.sum(x) / n


def other_at_six(x: Float[Array, "t"]):
    return x * 100 if x.shape[0] == 6 else x + 1


def one(x: Float[Array, "k"]):
    return jnp.tanh(x) / jnp.sum(jnp.abs(x)), jnp.max(x)


def graph(x: Float[Array, "nodes 2"], at: Int[Array, "edges"], edge: Float[Array, "2*edges"]):
    return x + jnp.sum(x[at], axis=0), jnp.cumsum(edge), jnp.concatenate([at, at])


def drawn(x: Float[Array, "t"], key: Key[Array, ""]):
    return x * jax.random.normal(key), key


def weak(x: Float[Array, "t"], s: float):
    return s * 2, x * s, jnp.argmax(x), x > s


def padded(body, *axes, **options):
    return jitney.optimize(pad=dict.fromkeys(axes, "pow2"), **options)(body)


@pytest.mark.core("score", "counted", "graph")
@pytest.mark.parametrize(
    ("f", "given", "sizes"),
    [
        (padded(score, "t"), lambda n: (W, row(n)), range(9, 17)),
        (padded(gram, "n"), lambda n: (row(n, 3), row(n)), range(5, 9)),
        (padded(counted, "t"), lambda n: (row(n),), range(5, 9)),
        (padded(one, "b", vmap="b"), lambda n: (row(n, 3),), range(5, 9)),
        (padded(one, "b", "k", vmap="b"), lambda n: (row(n, 11 - n),), range(5, 7)),
        (
            padded(graph, "nodes", "edges"),
            lambda n: (row(n, 2), np.arange(n - 2, dtype=np.int32) % n, row(2 * (n - 2))),
            range(7, 9),
        ),
        (padded(drawn, "t"), lambda n: (row(n), jax.random.key(n)), range(3, 5)),
        (padded(weak, "t"), lambda n: (row(n), 0.5), range(5, 9)),
        (padded(score, "t", precision="bf16"), lambda n: (W, row(n)), range(5, 9)),
        (padded(score, "t", precision="f64"), lambda n: (W, row(n)), range(5, 9)),
    ],
    ids=[
        "score",
        "gram",
        "counted",
        "mapped",
        "both",
        "graph",
        "keys",
        "weak",
        "bf16",
        "f64",
    ],
)
def test_each_size_of_a_bucket_gives_what_the_function_gives(tmp_path, f, given, sizes):
    """To the bit, of a file that was exported at the least size, and at the largest."""
    for exported in (sizes[0], sizes[-1]):
        loaded = saved(tmp_path, f, *given(exported))
        assert len(loaded.programs) == 1
        for n in sizes:
            arguments = given(n)
            to_the_bit(loaded(*arguments), f(*arguments))


def test_a_bucket_is_right_without_jitney_too(tmp_path):
    """Against NumPy in float64; one program serves all sizes."""
    loaded = saved(tmp_path, padded(score, "t"), W, row(9))
    for n in range(9, 17):
        x = row(n)
        z = x.astype(float) - x.astype(float).mean()
        e = np.exp(W * z)
        out = loaded(W, x)
        np.testing.assert_allclose(out["each"], W * z, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out["sum"], np.sum(e / e.sum() * z), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(out["size"], z.max(), rtol=1e-5)
    with jitney.no_compiles():
        loaded(W, row(12))


def test_sizes_outside_of_the_buckets_are_refused(tmp_path):
    """With the range of the nearest program; 0 and 1 are sizes of their own."""
    loaded = saved(tmp_path, padded(score, "t"), W, sizes={"t": (16, 12, 1)})
    assert [dict(program.sizes) for program in loaded.programs] == [{"t": [9, 16]}, {"t": 1}]
    assert "left behind: pad" not in loaded.plan
    to_the_bit(loaded(W, row(1) * 0), padded(score, "t")(W, row(1) * 0))
    for n in (0, 8, 17):
        with pytest.raises(ContractError, match=r"takes x: float32\[t\] with t from 9 to 16"):
            loaded(W, row(n))


def test_a_size_at_which_python_does_something_else_is_not_taken(tmp_path):
    """The program of its bucket is not its own; exported too, it has one."""
    f = padded(other_at_six, "t")
    loaded = saved(tmp_path, f, sizes={"t": 5})
    for n in (5, 7, 8):
        to_the_bit(loaded(x := row(n)), f(x))
    with pytest.raises(ContractError, match="called at t=6, and its Python has not been looked at"):
        loaded(row(6))
    with pytest.warns(PaddingWarning):
        loaded = saved(tmp_path, f, sizes={"t": (5, 6)})
    for n in (5, 6, 7, 8):
        x = row(n)
        np.testing.assert_array_equal(loaded(x), x * 100 if n == 6 else x + 1)


@pytest.mark.rest
def test_of_a_large_bucket_the_sizes_that_were_asked_for_are_taken(tmp_path):
    """Where each size is looked at, which takes a trace of each."""
    f = padded(counted, "t")
    loaded = saved(tmp_path, f, sizes={"t": (200, 130)})
    assert len(loaded.programs) == 1
    for n in (130, 200):
        to_the_bit(loaded(x := row(n)), f(x))
    with pytest.raises(ContractError, match="called at t=150"):
        loaded(row(150))


def test_what_cannot_be_padded_is_exported_at_its_size(tmp_path):
    """With the warning of a call."""

    @jitney.optimize(pad={"t": "pow2"})
    def f(x: Float[Array, "t"]):
        return jnp.fft.fft(x).real

    with pytest.warns(PaddingWarning, match="cannot be padded"):
        loaded = saved(tmp_path, f, row(5))
    np.testing.assert_allclose(loaded(x := row(5)), np.fft.fft(x).real, rtol=1e-4, atol=1e-5)
    with pytest.raises(ContractError, match="no exported program takes"):
        loaded(row(6))


def squares(w: Float[Array, ""], x: Float[Array, "t"]):
    return jnp.sum(w * jnp.log(1 + x**2) / x.shape[0])


def test_gradients_of_a_bucket(tmp_path):
    """`jax.grad` around the loaded function, and an exported derivative, of each size."""
    f = padded(squares, "t")
    loaded = saved(tmp_path, f, W, row(6), vjp_order=1)
    f.value_and_grad.export(tmp_path / "g.jitney", W, row(6), wrt=("w", "x"))
    exported = jitney.load(tmp_path / "g.jitney")
    for n in (5, 6, 8):
        x = row(n)
        expected = jax.grad(squares, (0, 1))(W, x)
        for ours in (jax.grad(loaded, (0, 1))(W, x), tuple(exported(W, x)[1].values())):
            for a, b in zip(ours, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.rest
def test_two_derivatives_are_those_of_exact_sizes(tmp_path):
    """As under `jax.grad` of `jax.grad`, where a call is not padded."""
    loaded = saved(tmp_path, padded(squares, "t"), W, row(6), vjp_order=2)
    assert "left behind: pad" in loaded.plan
    second = jax.grad(lambda x: jnp.sum(jax.grad(loaded, 1)(W, x) ** 2))
    x = row(6)
    expected = jax.grad(lambda x: jnp.sum(jax.grad(squares, 1)(W, x) ** 2))(x)
    np.testing.assert_allclose(second(x), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.rest
def test_a_loaded_bucket_is_a_part_of_an_outer_jit(tmp_path):
    """Filled and cut there."""
    f = padded(score, "t")
    loaded = saved(tmp_path, f, W, row(6))
    x = row(7)
    out = jax.jit(lambda w, x: loaded(w, x)["each"] * 2)(W, x)
    np.testing.assert_allclose(out, 2 * np.asarray(f(W, x)["each"]), rtol=1e-6)


class Data(eqx.Module):
    y: Float[Array, "t"]

    @jitney.optimize(pad={"t": "pow2"})
    def off(self, x: Float[Array, "t"]):
        return jnp.sum((self.y - x) ** 2)


def test_what_a_program_is_bound_to_keeps_its_size(tmp_path):
    """An array of the object has the padded axis, so that other sizes do not fit it."""
    own = Data(array(row(5)))
    loaded = saved(tmp_path, own.off, row(5))
    x = row(5)
    np.testing.assert_allclose(loaded(x), np.sum((np.asarray(own.y) - x) ** 2), rtol=1e-6)
    for n in (4, 6, 8):
        with pytest.raises(ContractError):
            loaded(row(n))


@pytest.mark.rest
def test_run_time_checks_of_a_bucket(tmp_path):
    """They look at no padding."""

    @jitney.optimize(pad={"t": "pow2"})
    def f(x: Float[Array, "t"]):
        return eqx.error_if(x * 2, jnp.any(x < 0), "negative")

    loaded = saved(tmp_path, f, np.ones(6, np.float32))
    to_the_bit(loaded(x := np.abs(row(7))), f(x))
    with pytest.raises(RuntimeError, match="negative"):
        loaded(-x)
