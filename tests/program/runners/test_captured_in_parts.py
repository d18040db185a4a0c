"""Large arrays that a function captures where it runs in parts: in threads, over devices, for rows
of unlike lengths, in a stream. References: NumPy.
"""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import JitneyError
from tests._arrays import array
from tests._monitor import listening

REST = pytest.mark.rest
SIDE = 600
WEIGHT = (np.arange(SIDE * SIDE, dtype=np.float32) % 7 - 2).reshape(SIDE, SIDE)
DATA = (np.arange(12 * SIDE, dtype=np.float32) % 5).reshape(12, SIDE)
ROWS = [DATA[0, :n] for n in (3, 4)]


def products(weight):
    def body(x: Float[Array, "k"]) -> Float[Array, "k"]:
        return jnp.asarray(weight) @ x

    return body


def scaled(weight):
    def body(x: Float[Array, "n"]) -> Float[Array, "600"]:
        return jnp.sum(x) * jnp.asarray(weight).sum(0)

    return body


def total(weight):
    def body(x: Float[Array, "n k"]) -> Float[Array, "k"]:
        return jnp.sum(x @ jnp.asarray(weight), 0)

    return body


def in_threads(weight, **options):
    return optimize(vmap="b", workers=2, **options)(products(weight))


def over_devices(weight, **options):
    mesh = jitney.mesh(data=1, devices=jax.devices()[:1])
    return optimize(vmap="b", shard={"b": "data"}, mesh=mesh, **options)(products(weight))


def of_rows(weight, **options):
    return optimize(vmap="b", pad={"n": "pow2"}, **options)(scaled(weight))


def streamed(weight, **options):
    f = optimize(**options)(total(weight))

    def run(x):
        return jitney.stream(f, x, chunk={"n": 4}).result

    return run


def of_data(weight):
    return DATA @ weight.T


def of_row_sums(weight):
    return np.array([row.sum() * weight.sum(0) for row in ROWS])


def of_sums(weight):
    return (DATA @ weight).sum(0)


WAYS = [
    pytest.param(in_threads, DATA, of_data, id="workers"),
    pytest.param(over_devices, DATA, of_data, id="shard", marks=REST),
    pytest.param(of_rows, ROWS, of_row_sums, id="rows"),
    pytest.param(streamed, DATA, of_sums, id="stream"),
]
every_way = pytest.mark.parametrize(("way", "given", "expected"), WAYS)
in_threads_alone = pytest.mark.core("workers")


def holds(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def misses(way, given, expected, weight):
    """How many programs XLA's cache lacks."""
    with listening() as events:
        holds(way(weight)(given), expected(np.asarray(weight)))
    return events.count("persistent miss")


@every_way
def test_one_program_serves_other_numbers(way, given, expected):
    """XLA's cache has it, since it holds none of them; on the host and on a device."""
    misses(way, given, expected, WEIGHT)
    for weight in (WEIGHT + 1, array(WEIGHT + 2)):
        assert misses(way, given, expected, weight) == 0


@in_threads_alone
@every_way
def test_known_call_has_the_numbers_of_its_trace(way, given, expected):
    """As with `jax.jit`, whatever becomes of the array: changed in place, or donated."""
    weight = WEIGHT.copy()
    f = way(weight, cache=False)
    f(given)
    weight[:] = 7
    holds(f(given), expected(WEIGHT))
    held = array(WEIGHT + 1)
    f = way(held, cache=False)
    f(given)
    jax.jit(lambda w: w + 1, donate_argnums=0)(held).block_until_ready()
    assert held.is_deleted()
    holds(f(given), expected(WEIGHT + 1))


@in_threads_alone
@every_way
def test_threads_that_call_first_have_the_numbers(way, given, expected):
    """Of their own function each, of one function all."""
    weights = [WEIGHT + i for i in range(3)]
    shared = way(weights[0], cache=False)
    results = {}

    def call(i):
        results[i] = way(weights[i], cache=False)(given), shared(given)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, weight in enumerate(weights):
        own, common = results[i]
        holds(own, expected(weight))
        holds(common, expected(WEIGHT))


@pytest.mark.core("rows")
@pytest.mark.parametrize(("way", "given", "expected"), WAYS[:3])
def test_plan_names_it(way, given, expected):
    """As of other calls."""
    f = way(WEIGHT, cache=False)
    holds(f(given), expected(WEIGHT))
    (line,) = [line for line in f.plan(given).lines if line.name == "captured array"]
    assert line.taken
    assert line.why.startswith("`weight` (float32[600, 600], 1.373 MiB) is an argument")


@REST
def test_rows_whose_traces_jax_has_dropped_are_captured_anew():
    """After `jax.clear_caches` an array that was changed in place has its new numbers."""
    weight = WEIGHT.copy()
    f = of_rows(weight, cache=False)
    f(ROWS)
    weight[:] = WEIGHT + 1
    jax.clear_caches()
    holds(f(ROWS), of_row_sums(WEIGHT + 1))


@REST
def test_array_that_each_trace_makes_is_a_constant():
    """Devices that share rows trace twice, and no copy stands for both arrays."""

    def body(x: Float[Array, "n"]) -> Float[Array, "600"]:
        return jnp.sum(x) * jnp.asarray(WEIGHT + 0).sum(0)

    mesh = jitney.mesh(data=1, devices=jax.devices()[:1])
    f = optimize(vmap="b", pad={"n": "pow2"}, shard={"b": "data"}, mesh=mesh, cache=False)(body)
    holds(f(ROWS), of_row_sums(WEIGHT))


@REST
def test_threads_with_run_time_checks_and_a_captured_array():
    """The array comes after those of a part."""

    def body(x: Float[Array, "k"]) -> Float[Array, "k"]:
        x = eqx.error_if(x, x[0] < 0, "below zero")
        return jnp.asarray(WEIGHT) @ x

    f = optimize(vmap="b", workers=2, cache=False)(body)
    holds(f(DATA), of_data(WEIGHT))
    with pytest.raises(RuntimeError, match="below zero"):
        f(DATA - 9)


def test_stream_of_another_array_does_not_go_on(tmp_path):
    """What it captures is in the key of a checkpoint."""

    class Stop:
        """Data whose third chunk cannot be read."""

        shape, dtype, fails = DATA.shape, DATA.dtype, True

        def __getitem__(self, rows):
            if self.fails and rows.start >= 8:
                raise KeyboardInterrupt
            return DATA[rows]

    def stream(weight, data):
        f = optimize(cache=False)(total(weight))
        return jitney.stream(f, data, chunk={"n": 4}, checkpoint=tmp_path / "saved").result

    data = Stop()
    with pytest.raises(KeyboardInterrupt):
        stream(WEIGHT, data)
    data.fails = False
    with pytest.raises(JitneyError, match="the function"):
        stream(WEIGHT + 1, data)
    holds(stream(WEIGHT, data), of_sums(WEIGHT))


@REST
def test_captured_array_is_not_in_the_memory_of_a_chunk():
    """`memory` bounds what a step takes besides, as before."""
    f = optimize(cache=False, memory="64KiB")(total(WEIGHT))
    run = jitney.stream(f, np.tile(DATA, (20, 1)), chunk={"n": "auto"})
    holds(run.result, of_sums(WEIGHT) * 20)
