"""Warm padded calls. References: the plain function, and NumPy."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Shaped

from jitney import optimize
from jitney.errors import TransformWarning
from tests._tracing import count_traces

RNG = np.random.default_rng(0)
PAD = {"n": [8, 16]}


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * x)


def double(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


def warm(f, *args, calls=3):
    """The function, with its calls of these arguments warm."""
    for _ in range(calls):
        f(*args)
    return f


def test_sizes_take_turns():
    """Each call has the recipe of its own size, on the host and on the device."""
    f = optimize(pad=PAD)(total)
    data = [rows(n) for n in (5, 12, 6, 5, 8, 12)] * 3
    for x in data:
        want = np.sum(x.astype(np.float64) ** 2)
        np.testing.assert_allclose(f(x), want, rtol=1e-5)
        np.testing.assert_allclose(f(jnp.asarray(x)), want, rtol=1e-5)
    assert f.stats.traces == 2


def test_memory_that_is_written_after_a_call_is_not_that_of_its_result():
    """NumPy arrays are written as soon as a call has returned; results keep their numbers."""
    f = warm(optimize(pad=PAD)(double), rows(5))
    x = np.zeros(5, np.float32)
    results = []
    for i in range(40):
        x[:] = i
        results.append(f(x))
        x[:] = -1
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(5, 2.0 * i, np.float32))


def test_an_argument_that_is_returned_keeps_its_numbers():
    """JAX may return an argument's own memory, which later calls must not fill."""

    def same(x: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
        return x

    f = optimize(pad={"n": [16]})(same)
    data = [rows(10 + i % 5) for i in range(40)]
    results = [f(x) for x in data]
    for x, result in zip(data, results, strict=True):
        np.testing.assert_array_equal(result, x)


def test_residuals_keep_their_numbers():
    """The pullbacks of many calls are used after the last one."""
    f = optimize(pad=PAD)(total)
    data = [rows(5 + i % 4) for i in range(24)]
    pulls = [jax.vjp(f, jnp.asarray(x))[1] for x in data]
    for x, pull in zip(data, pulls, strict=True):
        np.testing.assert_allclose(pull(jnp.float32(1))[0], 2 * x, rtol=1e-6)


def test_threads_share_a_warm_function():
    f = warm(optimize(pad=PAD)(double), rows(5))
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.normal(size=5 + seed).astype(np.float32)
            if not np.array_equal(f(x), 2 * x):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_warm_function_is_traced_by_others():
    """Under `jit`, `grad` and `vmap` of its own shapes."""
    x = jnp.asarray(rows(5))
    f = warm(optimize(pad=PAD)(total), x)
    want = np.sum(np.asarray(x) ** 2)
    with pytest.warns(TransformWarning, match="it is not padded inside"):
        np.testing.assert_allclose(jax.jit(f)(x), want, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(f)(x), 2 * x, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(x[None])[0], want, rtol=1e-5)
    # An array of no trace, within one.
    np.testing.assert_allclose(jax.jit(lambda y: f(x) + y)(1.0), want + 1, rtol=1e-5)


def test_a_warm_function_runs_without_jit():
    """Each call then runs the body once, on the array of its true size."""
    seen = []

    def body(x: Float[Array, "n"]) -> Float[Array, ""]:
        seen.append(x.shape)
        return jnp.sum(x)

    x = jnp.asarray(rows(5))
    f = warm(optimize(pad=PAD)(body), x)
    seen.clear()
    with jax.disable_jit():
        for calls in range(1, 4):
            got = f(x)
            assert seen == [(5,)] * calls
    np.testing.assert_allclose(got, np.sum(x), rtol=1e-6)


def test_64_bits_come_and_go():
    """NumPy's float64 is float64 where JAX has it, and float32 elsewhere."""
    x = rows(5).astype(np.float64)
    f = warm(optimize(pad=PAD)(double), x)
    for _ in range(3):
        with jax.enable_x64(True):
            assert f(x).dtype == np.float64
            np.testing.assert_array_equal(f(x), 2 * x)
        assert f(x).dtype == np.float32


def test_weak_and_strong_arrays_take_turns():
    """The results have the types of the plain function."""

    def mixed(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sin(x)

    f = optimize(pad=PAD)(mixed)
    strong = jnp.asarray(rows(5))
    weak = jax.lax.full((5,), 1.5)
    assert weak.weak_type
    for x in [strong, weak] * 3:
        got, want = f(x), mixed(x)
        assert (got.dtype, got.weak_type) == (want.dtype, want.weak_type)
        np.testing.assert_array_equal(got, want)


def test_traces_that_jax_dropped_are_made_again():
    """After `jax.clear_caches` a warm call traces its body, with numbers that Python makes of its
    sizes.
    """

    def scaled(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x) * (1 - x.shape[0] / (x.shape[0] + 1))

    body = count_traces(scaled)
    f = optimize(pad=PAD)(body)
    x = rows(5)
    want = np.sum(x, dtype=np.float64) * (1 - 5 / 6)
    for _ in range(3):
        np.testing.assert_allclose(f(x), want, rtol=1e-5)
    jax.clear_caches()
    np.testing.assert_allclose(f(x), want, rtol=1e-5)
    np.testing.assert_allclose(f(rows(6) * 0), 0)


def test_arrays_on_a_device_by_name_stay_there():
    """A committed array has a committed result."""
    device = jax.devices()[0]
    f = optimize(pad=PAD)(double)
    for _ in range(3):
        x = jax.device_put(rows(5), device)
        got = f(x)
        assert got.committed
        np.testing.assert_array_equal(got, 2 * x)
        assert not f(jnp.asarray(rows(5))).committed


def test_results_of_one_size_are_cut_by_a_program_once_that_pays():
    """A thousand calls of one size, each with the numbers of its own argument."""
    f = optimize(pad=PAD)(double)
    x = rows(5)
    for i in range(1000):
        got = f(x + i)
        if i % 50 == 0:
            np.testing.assert_array_equal(got, 2 * (x + i))


def test_calls_are_counted():
    f = optimize(pad=PAD)(total)
    for n in (5, 5, 5, 6):
        f(rows(n))
    assert f.stats.calls == 4
    assert f._core.counters.sizes["n"] == {5: 3, 6: 1}


def test_calls_of_several_axes_and_rows_are_counted():
    """What is counted in passing adds up, for one function and for several."""

    def outer(x: Float[Array, "n"], y: Float[Array, "k"]) -> Float[Array, ""]:
        return jnp.sum(x) * jnp.sum(y)

    f = optimize(pad={"n": [8, 16], "k": [4]})(outer)
    for n, k in [(5, 3), (5, 3), (5, 2), (12, 3), (5, 3)]:
        f(rows(n), rows(k))
    assert f.stats.sizes == {"n": {5: 4, 12: 1}, "k": {3: 4, 2: 1}}
    assert f.stats.padding == {"n": (4 * 8 + 16) / 32 - 1, "k": 20 / 14 - 1}


def test_result_that_gets_the_axis_in_a_new_trace_is_cut():
    """After `jax.clear_caches` a warm call traces anew, and the body returns something else."""
    whole = False

    def either(x: Float[Array, "n"]):
        return x * 2 if whole else jnp.sum(x)

    f = optimize(pad=PAD)(either)
    x = rows(5)
    for _ in range(4):
        np.testing.assert_allclose(f(x), np.sum(x), rtol=1e-5)
    whole = True
    jax.clear_caches()
    for _ in range(3):
        np.testing.assert_array_equal(f(x), 2 * x)


def test_a_chain_of_many_sizes_compiles_one_program_a_bucket():
    """The second function takes the first one's padded results, whatever their size."""
    first, second = optimize(pad={"n": "pow2"})(double), optimize(pad={"n": "pow2"})(total)
    for n in range(2, 67):
        x = rows(n)
        want = 4 * np.sum(x.astype(np.float64) ** 2)
        np.testing.assert_allclose(second(first(x)), want, rtol=1e-5)
    buckets = 7  # 2, 4, ..., 128
    assert first.stats.traces == second.stats.traces == buckets
    assert max(first.stats.compiles, second.stats.compiles) <= buckets


def test_a_size_that_fills_its_bucket_takes_turns_with_others():
    """Nothing is cut off the results of 8 and 16 elements."""
    f = optimize(pad=PAD)(double)
    for n in (8, 5, 16, 8, 12, 8, 16):
        x = rows(n)
        np.testing.assert_array_equal(f(x), 2 * x)
