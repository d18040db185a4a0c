"""Where padded calls fill and cut their arrays. References: the plain function. A device that is
not the host is a CPU, called none.
"""

import gc
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key, Shaped

from jitney import optimize
from jitney._program.runners import padded_calls, padding_recipes
from jitney._program.runners.filling import Filling
from tests._monitor import listening

RNG = np.random.default_rng(0)
PAD = {"n": [8, 16]}


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def spoilt(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Twice the array. Padded, NaN stands behind its true size: these positions are none of the
    array's.
    """
    return jnp.where(jnp.arange(x.shape[0]) < x.shape[0], 2 * x, jnp.nan)


def shares(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.cumsum(x) / jnp.sum(x * x) + jnp.max(x)


def filling(monkeypatch, **options):
    """The counts of all padded calls from now on."""
    made = Filling(**options)
    for module in (padded_calls, padding_recipes):
        monkeypatch.setattr(module, "FILLING", made)
    return made


def test_a_size_crosses_to_the_host_until_a_program_is_cheaper(monkeypatch):
    """Three calls through the host, an argument and a result each, there and back; then nothing
    crosses, and nothing is compiled.
    """
    counts = filling(monkeypatch, near=lambda _: False, program=250e-6)
    f, x = optimize(pad=PAD)(shares), jnp.asarray(rows(5))
    want = shares(x)
    for crossings, programs in ((4, 0), (8, 0), (12, 0), (12, 2), (12, 4)):
        np.testing.assert_allclose(f(x), want, rtol=1e-5)
        assert (counts.crossings, counts.programs) == (crossings, programs)
    with listening() as seen:
        f(x)
    assert seen.count("compile") == 0
    f(jnp.asarray(rows(6)))
    assert counts.crossings == 16


@pytest.mark.rest
def test_on_a_cpu_no_size_has_a_program():
    """Arrays of seven sizes of one bucket, on the host or the device, are filled, run and cut
    without a compile.
    """
    f = optimize(pad={"n": [16]})(shares)
    f(rows(16))
    data = [rows(n) for n in range(9, 16)]
    given = [*data, *map(jnp.asarray, data)]
    with listening() as seen:
        got = [f(x) for x in given]
    assert seen.count("compile") == 0
    for x, y in zip(given, got, strict=True):
        np.testing.assert_allclose(y, shares(x), rtol=1e-5)


@pytest.mark.rest
def test_small_results_of_one_size_are_cut_by_a_program_once_that_pays(monkeypatch):
    """On a CPU too: after as many calls as take as long as its compilation. Large ones are
    views.
    """
    counts = filling(monkeypatch, program=250e-6)
    f = optimize(pad={"n": [16, 100_000]})(shares)
    for x in (rows(11), rows(99_000)):
        for _ in range(6):
            np.testing.assert_allclose(f(x), shares(x), rtol=1e-3)
    assert (counts.crossings, counts.programs) == (0, 1)


@pytest.mark.core("<class 'numpy.float32'>", "<class 'bool'>", "<class 'jax.numpy.bfloat16'>")
@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, jnp.bfloat16, np.complex64], ids=str)
def test_programs_fill_and_cut_as_the_host_does(monkeypatch, dtype):
    """True arrays of the true size, along each axis, from the first call on, and in one program of
    the body.
    """
    filling(monkeypatch, near=lambda _: False, program=0)

    def f(x: Shaped[Array, "n m"]) -> tuple[Shaped[Array, "n m"], Shaped[Array, "m n"]]:
        return x, x.T

    padded = optimize(pad={"n": [8], "m": [4]})(f)
    x = jnp.asarray(rows(5, 3) * 9).astype(dtype)
    for got in (padded(x), padded(np.asarray(x))):
        for a, b in zip(got, f(x), strict=True):
            assert type(a) is type(b)
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
            np.testing.assert_array_equal(a, b)
    assert padded.stats.traces == 1


def test_numpy_arrays_are_filled_on_the_host(monkeypatch):
    """They cross but once, padded, with the call."""
    counts = filling(monkeypatch, near=lambda _: False, program=0)

    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    optimize(pad=PAD)(total)(rows(5))
    assert (counts.crossings, counts.programs) == (0, 0)


@pytest.mark.rest
def test_a_chain_is_not_filled_in_between(monkeypatch):
    """The second program takes what the first returned, NaN behind the true size and all, and gives
    the plain numbers.
    """
    counts = filling(monkeypatch)
    f, g = optimize(pad=PAD)(spoilt), optimize(pad=PAD)(shares)
    for n in (5, 7, 11):
        x = rows(n)
        np.testing.assert_allclose(g(f(x)), shares(spoilt(x)), rtol=1e-5)
    assert counts.kept == 3
    g(f(x)[:-1])
    assert counts.kept == 3


def test_a_chain_of_another_bucket_is_filled(monkeypatch):
    counts = filling(monkeypatch)
    x = rows(5)
    got = optimize(pad={"n": [16]})(shares)(optimize(pad={"n": [8]})(spoilt)(x))
    np.testing.assert_allclose(got, shares(spoilt(x)), rtol=1e-5)
    assert counts.kept == 0


def test_a_donated_argument_is_filled(monkeypatch):
    """Of the original, which is kept for others, nothing is given up."""
    counts = filling(monkeypatch)
    y = optimize(pad=PAD)(spoilt)(rows(5))
    want = shares(y)
    np.testing.assert_allclose(optimize(pad=PAD, donate="x")(shares)(y), want, rtol=1e-5)
    assert counts.kept == 0
    np.testing.assert_allclose(optimize(pad=PAD)(shares)(y), want, rtol=1e-5)
    assert counts.kept == 1


def test_a_mapped_axis_is_filled(monkeypatch):
    """The body runs on each element that is there, so a check would raise for what is none of the
    array's.
    """
    counts = filling(monkeypatch)

    @optimize(vmap="n", pad=PAD)
    def root(x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sqrt(eqx.error_if(x, jnp.isnan(x), "NaN"))

    x = np.abs(rows(5))
    np.testing.assert_allclose(root(optimize(pad=PAD)(spoilt)(x)), np.sqrt(2 * x), rtol=1e-6)
    assert counts.kept == 0


@pytest.mark.rest
def test_under_an_outer_derivative_arrays_are_filled(monkeypatch):
    """The value and the gradient are those of the plain function."""
    counts = filling(monkeypatch)

    def loss(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(w * x)) / jnp.max(x * x)

    y, w = optimize(pad=PAD)(spoilt)(rows(5)), jnp.float32(0.3)
    got = jax.value_and_grad(optimize(pad=PAD)(loss))(w, y)
    np.testing.assert_allclose(got, jax.value_and_grad(loss)(w, y), rtol=1e-5)
    assert counts.kept == 0
    np.testing.assert_allclose(
        optimize(pad=PAD)(loss).grad(w, y)["w"], jax.grad(loss)(w, y), rtol=1e-5
    )


def test_nothing_is_taken_where_jax_looks_for_nan(monkeypatch):
    """It would raise for a NaN behind the true size."""
    filling(monkeypatch)
    y = optimize(pad=PAD)(spoilt)(rows(5))
    with jax.debug_nans(True):
        np.testing.assert_allclose(doubled(y), 2 * y)


@optimize(pad=PAD)
def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


@pytest.mark.rest
def test_what_is_kept_goes_with_the_result(monkeypatch):
    """No longer than what was cut from it, and no more than sixteen at a time."""
    filling(monkeypatch, near=lambda _: False, program=0)

    def held():
        # JAX catches errors while it traces; their frames, among them the first call's, are a
        # circle
        gc.collect()
        return sum(x.shape == (1021,) for x in jax.live_arrays())

    f = optimize(pad={"n": [1021]})(shares)
    results = [f(rows(900 + i % 2)) for i in range(20)]
    kept = held()
    del results
    assert kept == 16
    assert held() == 0


@pytest.mark.parametrize(("size", "copied"), [(10, True), (49_000, True), (51_000, False)])
def test_what_is_less_than_half_of_its_buffer_is_copied(size, copied):
    """A view would keep the whole bucket for as long as the result is there."""
    whole = jnp.asarray(rows(100_000))
    part = Filling().cut(whole, (size,))
    np.testing.assert_array_equal(part, whole[:size])
    assert np.shares_memory(np.asarray(part), np.asarray(whole)) is not copied


@pytest.mark.parametrize(
    "options",
    [{"pad": {"n": [100_000]}}, {"vmap": "n", "pad": {"n": [100_000]}}],
    ids=["body", "mapped"],
)
def test_small_results_do_not_hold_their_bucket(options, monkeypatch):
    """What the program returned is freed once nothing is kept beside its results: no result lies
    where it lay.
    """
    counts = filling(monkeypatch)

    def twice(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return 2 * x

    def one(x: Float[Array, ""]) -> Float[Array, ""]:
        return 2 * x

    f = optimize(one if "vmap" in options else twice, **options)
    results = [f(rows(10)) for _ in range(3)]
    wholes = [kept.whole for kept in counts._beside.values()]
    assert [whole.shape for whole in wholes] == [(100_000,)] * 3
    assert not any(np.shares_memory(np.asarray(a), np.asarray(b)) for a in results for b in wholes)


def test_a_deleted_array_is_an_error(monkeypatch):
    """Though what it was cut from is there."""
    filling(monkeypatch)
    y = doubled(jnp.asarray(rows(5)))
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        doubled(y)


def test_threads_keep_their_own(monkeypatch):
    """Four threads, each with a chain of its own size: the numbers are each thread's."""
    filling(monkeypatch)
    f, g = optimize(pad=PAD)(spoilt), optimize(pad=PAD)(shares)
    wrong = []

    def work(n):
        for i in range(20):
            x = np.full(n, i + n, np.float32)
            if not np.allclose(
                g(f(x)), np.cumsum(2 * x) / np.sum(4 * x * x) + 2 * (i + n), rtol=1e-4
            ):
                wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in (5, 6, 7, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.core("weak")
@pytest.mark.parametrize("weak", [True, False], ids=["weak", "strong"])
def test_results_are_as_weakly_typed_as_those_of_jit(weak):
    """Of full and of cut results, whether the argument or a number in the body is weak: with
    bfloat16 they give what plain ones give.
    """

    def f(x: Float[Array, "n"]) -> dict[str, Array]:
        steps = jnp.where(x > 0, 1.0, 0.0)
        return {
            "steps": steps,
            "twice": 2 * x,
            "sum": jnp.sum(x),
            "first": x[0],
            "sorted": jnp.sort(x),
            "whole": jnp.full(3, 1.0),
        }

    x = jnp.full(5, 1.5) if weak else jnp.asarray(np.full(5, 1.5, np.float32))
    got, want = optimize(pad=PAD)(f)(x), jax.jit(f)(x)
    assert {name: y.weak_type for name, y in got.items()} == {
        name: y.weak_type for name, y in want.items()
    }
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)


def each_drawn(keys: Key[Array, "n"]) -> tuple[Float[Array, ""], Key[Array, "n"]]:
    """A sum of what is drawn for each element, and the keys of the next step."""
    drawn = jax.vmap(jax.random.normal)(keys)
    return jnp.sum(drawn), jax.vmap(lambda key: jax.random.fold_in(key, 7))(keys)


@pytest.mark.core("program")
@pytest.mark.parametrize("cached", [True, "program"])
def test_keys_are_filled_and_cut(cached):
    """Two steps with seven keys of a bucket of eight, in one program for all sizes of it."""
    program = optimize(each_drawn, pad=PAD, cache=cached)
    for size in (5, 7):
        keys = wanted = jax.random.split(jax.random.key(size), size)
        for _ in range(2):
            got, keys = program(keys)
            want, wanted = each_drawn(wanted)
            np.testing.assert_allclose(got, want, rtol=1e-5)
            np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(wanted))
    assert program.stats.traces == 1


def test_keys_that_a_padded_body_makes_are_cut():
    """From one key, as many as the array has elements."""

    def split(x: Float[Array, "n"], key: Key[Array, ""]) -> Key[Array, "n"]:
        return jax.random.split(key, x.shape[0])

    got = optimize(pad=PAD)(split)(rows(5), jax.random.key(0))
    want = jax.random.split(jax.random.key(0), 5)
    np.testing.assert_array_equal(jax.random.key_data(got), jax.random.key_data(want))
