import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import _axes, optimize
from jitney._stages.shard import Shard
from jitney.errors import VerificationError

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


def fresh():
    """A function whose programs no other test has."""

    def centred(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return x - jnp.mean(x, axis=0)

    return centred


def test_a_wrong_result_of_a_sharded_program_is_caught(monkeypatch):
    """The plain one runs on one device."""
    found = Shard.finish
    monkeypatch.setattr(Shard, "finish", lambda *args: [x.at[0].set(0) for x in found(*args)])
    with pytest.raises(VerificationError, match="Under shard over 'batch'"):
        optimize(shard={"batch": "data"}, mesh=jitney.mesh(data=8), verify=True)(fresh())(X)


def test_a_wrong_collective_of_chunks_is_caught(monkeypatch):
    """One device's part is missing."""
    found = _axes.run_chunked
    monkeypatch.setattr(
        _axes,
        "run_chunked",
        lambda passes, arrays, *rest: found(passes, [x.at[-2:].set(0) for x in arrays], *rest),
    )
    with pytest.raises(VerificationError, match="chunk over 'batch', shard over 'batch'"):
        optimize(
            shard={"batch": "data"}, chunk={"batch": 1}, mesh=jitney.mesh(data=8), verify=True
        )(fresh())(X)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk": {"batch": 1}},
        {"pad": {"batch": "pow2"}},
        {"precision": "bf16"},
        {"donate": "x"},
    ],
)
def test_what_is_right_is_verified(options):
    """On eight devices, from the host and from the devices."""
    with jitney.mesh(data=8):
        f = optimize(shard={"batch": "data"}, verify=True, **options)(fresh())
        out = f(f(X))
    np.testing.assert_allclose(out, X - X.mean(0), rtol=1e-5, atol=1e-6)
    assert f.stats.verified >= 1


def test_a_sharded_step_is_verified():
    """With what it donates, and a gradient whose parts are summed over the devices."""

    @optimize(shard={"batch": "data"})
    def loss(w: Float[Array, "n"], x: Float[Array, "batch n"]) -> Float[Array, ""]:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    with jitney.mesh(data=8):
        step = optimize(shard={"batch": "data"}, donate="w", verify=True)(lambda_step(loss))
        w = step(jnp.ones(3), X)
    want = 1 - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(X @ w) ** 2))(jnp.ones(3))
    np.testing.assert_allclose(w, want, rtol=1e-5)
    assert step.stats.verified == 1


def lambda_step(loss):
    def step(w: Float[Array, "n"], x: Float[Array, "batch n"]) -> Float[Array, "n"]:
        return w - 0.1 * loss.grad(w, x, wrt="w")

    return step


def test_a_sharded_stream_is_verified():
    """Each device has a part of each chunk."""

    @optimize(shard={"batch": "data"}, verify=True)
    def mean(x: Float[Array, "batch n"]) -> Float[Array, "n"]:
        return jnp.mean(x, axis=0)

    with jitney.mesh(data=8):
        found = jitney.stream(mean, X, chunk={"batch": 8}, progress=False)
    np.testing.assert_allclose(found.result, X.mean(0), rtol=1e-5)
    assert mean.stats.verified == 1
