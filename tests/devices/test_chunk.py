"""`shard=` with `chunk=` and `memory=`: each device works on its own part in chunks, and sums are
put together over the devices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

import jitney
from tests._examples import examples

RNG = np.random.default_rng(0)


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.fixture
def mesh():
    return jitney.mesh(data=4, model=2, devices=jax.devices()[:8])


@dataclass(frozen=True)
class Body:
    """A function of one element's rows, and what it is in NumPy's float64 (or ints)."""

    fn: Callable[..., Any]
    want: Callable[..., Any]


def pointwise(x: Float[Array, "n k"]) -> Float[Array, "n k"]:
    return jnp.tanh(x) * jnp.arange(x.shape[0], dtype=x.dtype)[:, None]


def moments(
    x: Float[Array, "n k"],
) -> tuple[Float[Array, "k"], Float[Array, "k"], Float[Array, ""]]:
    return jnp.mean(x, 0), jnp.var(x, 0), x.sum() / x.shape[0]


def softened(x: Float[Array, "n k"]) -> tuple[Float[Array, "n k"], Float[Array, "k"]]:
    return jax.nn.softmax(x, 0), jax.nn.logsumexp(x, 0)


def gram(x: Float[Array, "n k"]) -> Float[Array, "k k"]:
    centred = x - x.mean(0)
    return centred.T @ centred


def extremes(x: Float[Array, "n k"]):
    return jnp.max(x, 0), jnp.min(x), jnp.argmax(x, 0), jnp.argmin(x, 0), jnp.any(x > 1)


def gradient(x: Float[Array, "n k"], w: Float[Array, "k"]) -> Float[Array, "k"]:
    return jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(w)


def looped(x: Float[Array, "n k"]):
    """Over the columns, from a number that is added once."""
    total, each = jax.lax.scan(lambda c, a: (c + jnp.sum(a), (jnp.sum(a), jnp.max(a))), 1.0, x.T)
    return total, each


def _softmax(x):
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


BODIES = [
    Body(pointwise, lambda x: np.tanh(x) * np.arange(len(x))[:, None]),
    Body(moments, lambda x: (x.mean(0), x.var(0), x.sum() / len(x))),
    Body(softened, lambda x: (_softmax(x), np.logaddexp.reduce(x, 0))),
    Body(gram, lambda x: (x - x.mean(0)).T @ (x - x.mean(0))),
    Body(extremes, lambda x: (x.max(0), x.min(), x.argmax(0), x.argmin(0), (x > 1).any())),
    Body(looped, lambda x: (1 + x.sum(), (x.sum(0), x.max(0)))),
    Body(gradient, lambda x, w: 2 * x.T @ (x @ w - 1) / len(x)),
]
WEIGHTS = rows(3)
BOTH = ("data", "model")


@settings(max_examples=14, deadline=None)
@given(
    body=st.sampled_from(BODIES),
    chunk=st.sampled_from([1, 3, 4]),
    along=st.sampled_from(["data", BOTH]),
    remat=st.booleans(),
    donate=st.booleans(),
    mapped=st.booleans(),
    odd=st.sampled_from([np.nan, np.inf, -np.inf, 0.0]),
    place=st.integers(0, 39),
)
@examples(
    {"body": BODIES[0], "chunk": 3, "along": "data", "donate": True, "mapped": True}
    | {"remat": True, "odd": np.nan, "place": 0},
    {"body": BODIES[1], "chunk": 1, "along": BOTH, "donate": False, "mapped": False}
    | {"remat": False, "odd": 0.0, "place": 39},
    {"body": BODIES[2], "chunk": 4, "along": BOTH, "donate": False, "mapped": True}
    | {"remat": False, "odd": -np.inf, "place": 9},
    {"body": BODIES[3], "chunk": 4, "along": "data", "donate": True, "mapped": False}
    | {"remat": True, "odd": 0.0, "place": 20},
    {"body": BODIES[4], "chunk": 3, "along": "data", "donate": False, "mapped": True}
    | {"remat": True, "odd": np.nan, "place": 39},
    {"body": BODIES[4], "chunk": 4, "along": BOTH, "donate": False, "mapped": False}
    | {"remat": False, "odd": np.inf, "place": 30},
    {"body": BODIES[5], "chunk": 3, "along": "data", "donate": False, "mapped": False}
    | {"remat": False, "odd": np.inf, "place": 12},
    {"body": BODIES[6], "chunk": 4, "along": BOTH, "donate": False, "mapped": True}
    | {"remat": True, "odd": 0.0, "place": 5},
)
def test_any_combination_equals_one_device(body, chunk, along, remat, donate, mapped, odd, place):
    """Options, chunks that do not divide a part, and numbers that are none: as NumPy has it in
    float64.
    """
    x = RNG.normal(size=(40, 3)).astype(np.float32)
    x[place, 1] = odd
    x = np.stack([x, -x]) if mapped else x
    takes = [x] + ([WEIGHTS] if body.fn is gradient else [])
    options = {"vmap": {"batch": {"x": 0}}} if mapped else {}
    with np.errstate(all="ignore"):
        want = [body.want(each.astype(np.float64), *takes[1:]) for each in (x if mapped else [x])]
    want = jax.tree.map(lambda *each: np.stack(each), *want) if mapped else want[0]
    f = jitney.optimize(
        body.fn,
        shard={"n": along},
        mesh=jitney.mesh(data=4, model=2),
        chunk={"n": chunk},
        remat=remat,
        donate="x" if donate and body.fn is pointwise else (),
        **options,
    )
    got = jax.block_until_ready(f(*takes))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


def test_every_monoid(mesh):
    """Integers that overflow, bools, products, what is added into at places, choices, and a narrow
    float: as on one device.
    """

    def f(i: Int[Array, "n"], x: Float[Array, "n"], b: Bool[Array, "n"], start: Float[Array, "5"]):
        at = i % 5
        found = (
            jax.lax.reduce_xor(i, axes=(0,)),
            jax.lax.reduce_and(i, axes=(0,)),
            jax.lax.reduce_or(i, axes=(0,)),
            jnp.all(b),
            jnp.any(b),
        )
        small = (
            jnp.sum(i.astype(np.uint8), dtype=np.uint8),
            jnp.max(i.astype(np.int16)),
            jnp.sum(x.astype(jnp.bfloat16)),
        )
        spread = (
            start.at[at].add(x),
            start.at[at].max(x),
            start.at[at].multiply(x),
            jnp.argmin(i // 2),
            jnp.prod(1 + x / 8),
        )
        chosen = jnp.where(x > 0, x, 0.0), jnp.nanmean(x), jax.ops.segment_sum(x, at, 5)
        return found, small, spread, chosen, i.sum(), 7.0, start

    i = RNG.integers(0, 99, 16).astype(np.int32)
    x, b, start = rows(16), RNG.random(16) > 0.1, rows(5)
    got = jax.block_until_ready(
        jitney.optimize(f, shard={"n": "data"}, chunk={"n": 3}, mesh=mesh)(i, x, b, start)
    )
    want = jax.jit(f)(i, x, b, start)
    for a, c in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        exact = {np.dtype(np.float32): 1e-5, np.dtype(jnp.bfloat16): 1e-2}.get(
            jnp.result_type(a), 0
        )
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(c, np.float64), rtol=exact, atol=exact / 10
        )
        assert jnp.result_type(a) == jnp.result_type(c)


def test_elements_alone_cost_no_communication(mesh):
    """Nor a gather of what is spread, with positions that count from the front of the whole."""
    f = jitney.optimize(pointwise, shard={"n": "data"}, chunk={"n": 3}, mesh=mesh)
    x = rows(32, 3)
    assert jitney.analysis.communication(f, x).collectives == ()
    y = f(x)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh.mesh, P("data")), 2)


def test_what_is_sent_is_what_is_accumulated(mesh):
    """A Gram matrix of centred rows: a sum of rows and one of their products, at the ends of two
    passes; the plan says so.
    """
    f = jitney.optimize(gram, shard={"n": "data"}, chunk={"n": 3}, mesh=mesh)
    found = jitney.analysis.communication(f, rows(32, 3))
    assert found.bytes == {"all-reduce": 4 * (3 + 9)}
    assert not any(each.in_loop for each in found.collectives)
    lines = {line.name: line.why for line in f.plan(rows(32, 3)).lines}
    assert lines["chunk"] == "n=32 in chunks of 3 on each of 4 devices along 'data', by `shard_map`"
    assert (
        lines["passes"]
        == "2 over the data, 3 of n at a time on each of 4 devices along 'data'; 2 values by psum"
        " at the end of a pass"
    )


def test_another_axis_lies_along_the_mesh(mesh):
    """The loop over the chunks is XLA's to spread: nothing is gathered."""

    @jitney.optimize(shard={"hidden": "model"}, chunk={"n": 4}, mesh=mesh)
    def f(
        x: Float[Array, "n k"], w: Float[Array, "k hidden"]
    ) -> tuple[Float[Array, "n hidden"], Float[Array, "hidden"]]:
        y = jnp.tanh(x @ w)
        return y, y.mean(0)

    x, w = rows(18, 3), rows(3, 6)
    y, mean = jax.block_until_ready(f(x, w))
    np.testing.assert_allclose(y, np.tanh(x @ w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean, np.tanh(x @ w).mean(0), rtol=1e-4, atol=1e-6)
    assert jitney.analysis.communication(f, x, w).collectives == ()


def test_both_kinds_of_axes(mesh):
    """One cut by hand along `data`, the other spread by XLA along `model`."""

    @jitney.optimize(shard={"n": "data", "hidden": "model"}, chunk={"n": 4}, mesh=mesh)
    def f(
        x: Float[Array, "n k"], w: Float[Array, "k hidden"]
    ) -> tuple[Float[Array, "n hidden"], Float[Array, "hidden"]]:
        y = jnp.tanh(x @ w)
        return y, y.mean(0)

    x, w = rows(24, 3), rows(3, 6)
    y, mean = jax.block_until_ready(f(x, w))
    np.testing.assert_allclose(y, np.tanh(x @ w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean, np.tanh(x @ w).mean(0), rtol=1e-4, atol=1e-6)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh.mesh, P("data", "model")), 2)
    assert "all-gather" not in jitney.analysis.communication(f, x, w).bytes


def test_what_goes_on_from_device_to_device_is_refused(mesh):
    """With the line and what to do."""

    @jitney.optimize(shard={"n": "data"}, chunk={"n": 2}, mesh=mesh)
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.cumsum(x)

    with pytest.raises(
        jitney.errors.AxisError,
        match=r"where it is sharded over 'data': test_chunk.py:\d+ \(f\) goes on .* \(`cumsum`\)",
    ):
        f(rows(32))


def test_memory_is_that_of_one_device(mesh):
    """What does not fit on one fits on four, and the chunk is one of a device's part."""

    spread = jitney.optimize(wide, shard={"n": "data"}, mesh=mesh, memory="300KiB")
    x = rows(512)
    np.testing.assert_allclose(spread(x), x.sum() * 32 * 32, rtol=1e-4)
    lines = {line.name: line.why for line in spread.plan(x).lines}
    assert "on each of 4 devices" in lines["passes"]
    assert 1 < int(lines["passes"].split()[4]) < 128
    compiled = spread.lower(x).compile().memory_analysis()
    assert compiled.temp_size_in_bytes + compiled.argument_size_in_bytes <= 300 * 1024


def model_loss(
    model: eqx.nn.Linear, x: Float[Array, "batch i"], y: Float[Array, "batch o"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def test_a_gradient_is_put_together_once_for_any_number_of_microbatches(mesh):
    """Inside a training step too; the gradient is that of the batch."""
    model, x, y = eqx.nn.Linear(3, 2, key=jax.random.key(0)), rows(64, 3), rows(64, 2)
    counts: list[int] = []
    for microbatch in (2, 8):
        loss = jitney.optimize(model_loss, shard={"batch": "data"}, mesh=mesh)
        f = jitney.accumulate(loss, axis="batch", microbatch=microbatch, wrt="model")
        found = jitney.analysis.communication(f, model, x, y).collectives
        assert {each.kind for each in found} == {"all-reduce"}
        assert not any(each.in_loop for each in found)
        counts.append(sum(each.count for each in found))

        @jitney.optimize(donate="model", shard={"batch": "data"}, mesh=mesh)
        def step(model: eqx.nn.Linear, x: Float[Array, "batch i"], y: Float[Array, "batch o"], f=f):
            value, grads = f(model, x, y)
            return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads)), value

    with mesh:
        value, grads = jax.block_until_ready(f(model, x, y))
        after, again = jax.block_until_ready(step(jax.tree.map(jnp.copy, model), x, y))
    want, expected = jax.value_and_grad(model_loss)(model, jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose([value, again], [want, want], rtol=1e-5)
    np.testing.assert_allclose(grads.weight, expected.weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        after.weight, model.weight - 0.1 * expected.weight, rtol=1e-4, atol=1e-6
    )
    assert counts[0] == counts[1]


def wide(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sort(jnp.outer(jnp.ones(32), jnp.ones(32)) * x[:, None, None], axis=1))


def test_a_strategy_is_that_of_one_device(mesh):
    """What it finds for a chunk is what `chunk=` takes on each."""
    found = jitney.analysis.strategy(
        jitney.optimize(wide, shard={"n": "data"}, mesh=mesh), sizes={"n": 512}, memory="300KiB"
    )
    alone = jitney.analysis.strategy(jitney.optimize(wide), sizes={"n": 512}, memory="300KiB")
    assert [way.name for way in found.ways if way.fits] == ["chunked", "streamed"]
    (whole, cut, _), one = found.ways, alone.ways[0]
    assert one.bytes / 5 < whole.bytes < one.bytes / 3
    compiled = (
        jitney.optimize(wide, shard={"n": "data"}, mesh=mesh, chunk={"n": cut.chunk})
        .lower(rows(512))
        .compile()
        .memory_analysis()
    )
    assert abs(compiled.temp_size_in_bytes + compiled.argument_size_in_bytes - cut.bytes) < 1024


def test_a_frontier_is_that_of_one_device(mesh):
    """A quarter of the batch lies on each of four."""

    def deep(x: Float[Array, "n k"], w: Float[Array, "k k"]) -> Float[Array, ""]:
        for _ in range(4):
            x = jnp.sin(x @ w)
        return jnp.mean(x)

    options = {"sizes": {"n": 4096, "k": 8}, "wrt": "w", "memory": "1GiB"}
    one, four = (
        jitney.analysis.frontier(f, **options)
        for f in (jitney.optimize(deep), jitney.optimize(deep, shard={"n": "data"}, mesh=mesh))
    )
    assert one.ways[0].bytes / 5 < four.ways[0].bytes < one.ways[0].bytes / 3


def test_microbatches_under_an_outer_trace_with_explicit_axes():
    """Inside, the axes are automatic."""
    mesh, model = (
        jitney.mesh(data=4, explicit=True, devices=jax.devices()[:4]),
        eqx.nn.Linear(3, 2, key=jax.random.key(0)),
    )
    f = jitney.accumulate(
        jitney.optimize(model_loss, shard={"batch": "data"}),
        axis="batch",
        microbatch=2,
        wrt="model",
    )
    x, y = rows(16, 3), rows(16, 2)
    with mesh:
        _, found = jax.jit(lambda x, y: f(model, x, y))(x, y)
    np.testing.assert_allclose(
        found.weight, eqx.filter_grad(model_loss)(model, x, y).weight, rtol=1e-5
    )


def test_arrays_without_elements_in_chunks(mesh):
    """Another axis of size 0."""
    f = jitney.optimize(pointwise, shard={"n": "data"}, chunk={"n": 3}, mesh=mesh)
    assert f(rows(32, 0)).shape == pointwise(jnp.asarray(rows(32, 0))).shape
