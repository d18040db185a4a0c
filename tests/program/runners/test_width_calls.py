"""`chunk={"row": "fast"}`: a width that is measured, equal results, and one choice for a size."""

import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._program.runners import width_calls
from jitney.errors import NonFiniteError, OptionError
from tests._arrays import array
from tests._tracing import count_traces

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 5)).astype(np.float32)
W = RNG.normal(size=(5,)).astype(np.float32)
FAST = {"vmap": "row", "chunk": {"row": "fast"}}


def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.exp(-w * w) - y


def by_hand(w, y):
    return np.exp(-(np.float64(w) ** 2)) - y


@pytest.fixture
def quickest(monkeypatch):
    """Make one width the quickest of all, without a clock; None is the whole."""

    def choose(best):
        measured = []

        def seconds(calls, width, arrays):
            jax.block_until_ready(calls._run(width, arrays))
            measured.append(width)
            return 1.0 if width == best else 2.0

        monkeypatch.setattr(width_calls.WidthCalls, "seconds", seconds)
        return measured

    return choose


def chunk_line(f, *args):
    lines = f.plan(*args).to_dict()["decisions"]
    return next(line["why"] for line in lines if line["name"] == "chunk")


@pytest.mark.core("40-16", "17-None", "2-1")
@pytest.mark.parametrize("best", [None, 1, 16])
@pytest.mark.parametrize("size", [2, 17, 40])
def test_any_choice_gives_the_rows_of_the_whole(quickest, best, size):
    """In the call that measures, and in later ones."""
    quickest(best)
    f = optimize(**FAST)(residual)
    for _ in range(3):
        out = f(array(W), array(ROWS[:size]))
        np.testing.assert_allclose(out, by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1])
def test_what_is_not_worth_a_choice_is_whole(size):
    """An axis without elements, and one of one."""
    f = optimize(**FAST)(residual)
    out = f(array(W), array(ROWS[:size]))
    np.testing.assert_allclose(out, by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)
    assert chunk_line(f, array(W), array(ROWS[:size])).startswith(f"whole, since row={size}")


def test_with_a_real_clock_results_are_the_same():
    """Whatever is quickest here."""
    f, x = optimize(**FAST)(residual), RNG.normal(size=(3000, 5)).astype(np.float32)
    first, second = f(W, x), f(W, x)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, by_hand(W, x), rtol=1e-6, atol=1e-6)


def test_a_size_is_measured_once(quickest):
    """All widths below it, the best of them and the whole on the call itself; then nothing."""
    measured = quickest(16)
    body = count_traces(residual)
    f = optimize(**FAST)(body)
    f(W, ROWS)
    assert measured == [1, 16, None, 16]
    traces = body.traces
    f(W, ROWS)
    assert measured == [1, 16, None, 16]
    assert body.traces == traces
    f(W, ROWS[:20])
    assert measured[4:] == [1, 16, None, 16]


def test_the_whole_stays_if_the_call_itself_is_no_quicker(monkeypatch):
    """A sample may be quick in narrow chunks, and the call not."""
    times = iter([5.0, 1.0, 3.0, 4.0])

    def seconds(calls, width, arrays):
        jax.block_until_ready(calls._run(width, arrays))
        return next(times)

    monkeypatch.setattr(width_calls.WidthCalls, "seconds", seconds)
    f = optimize(**FAST)(residual)
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert chunk_line(f, W, ROWS).startswith(
        "whole, measured: 16 at a time 4e+03 ms, whole 3e+03 ms"
    )


def test_a_value_does_not_change_from_one_call_to_the_next(quickest):
    """The call that measures has the result of the width that it chooses, to the bit."""
    quickest(16)

    def solved(a: Float[Array, "n n"], w: Float[Array, "n m"]):
        return jnp.linalg.solve(a, jnp.sum(a @ w, axis=1))

    a = RNG.normal(size=(50, 6, 6)).astype(np.float32)
    w = RNG.normal(size=(6, 9)).astype(np.float32)
    f = optimize(**FAST)(solved)
    outs = [np.asarray(f(a, w)) for _ in range(3)]
    fixed = optimize(vmap="row", chunk={"row": 16})(solved)(a, w)
    for out in outs:
        np.testing.assert_array_equal(out, fixed)


def test_a_width_is_kept_from_the_first_call_on(quickest, monkeypatch):
    """The call that measures is run once more in it, for its result."""
    quickest(16)
    runs: list[tuple[int | None, int]] = []
    run = width_calls.WidthCalls._run

    def noted(self, width, arrays):
        runs.append((width, len(arrays[1])))
        return run(self, width, arrays)

    monkeypatch.setattr(width_calls.WidthCalls, "_run", noted)
    f = optimize(**FAST)(residual)
    f(W, ROWS)
    f(W, ROWS)
    # whole; a sample of each; whole and the best as measured; its result; the second call
    assert [width for width, _ in runs] == [None, 1, 16, None, 16, 16, 16]


def test_the_plan_has_what_was_measured(quickest):
    """Nothing before the first call, then the choice with all figures."""
    quickest(16)
    f = optimize(**FAST)(residual)
    assert chunk_line(f, W, ROWS) == (
        "the first call of this size measures which width is quickest"
    )
    f(W, ROWS)
    assert chunk_line(f, W, ROWS) == (
        "16 at a time, measured: 16 at a time 1e+03 ms, whole 2e+03 ms; on 40 elements, in us each:"
        " 1: 5e+04, 16: 2.5e+04"
    )
    quickest(None)
    f(W, ROWS[:30])
    assert chunk_line(f, W, ROWS[:30]).startswith("whole, measured: 1 at a time 2e+03 ms, whole")


def test_a_body_that_cannot_be_cut_runs_one_at_a_time_or_whole(quickest):
    """A width without a proof is not tried further."""
    quickest(16)

    def spectrum(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.abs(jnp.fft.fft(y))

    f = optimize(**FAST)(spectrum)
    np.testing.assert_allclose(f(ROWS), np.abs(np.fft.fft(ROWS)), rtol=1e-4, atol=1e-5)


def test_callbacks_are_called_once_each(capfd):
    """Nothing is measured: that would call them again."""

    def printing(y: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.print("{}", y[0])
        return y + 1

    f = optimize(**FAST)(printing)
    np.testing.assert_array_equal(f(ROWS), ROWS + 1)
    jax.effects_barrier()
    assert len(capfd.readouterr().out.split()) == 40
    assert chunk_line(f, ROWS).startswith("whole, since test_width_calls.py")


@pytest.mark.core("2")
@pytest.mark.parametrize("workers", [2, 3])
def test_threads_work_on_chunks_of_the_width(quickest, workers):
    """With `workers` each width is measured with as many threads."""
    quickest(16)
    f = optimize(**FAST, workers=workers)(residual)
    for _ in range(2):
        np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)


def test_a_check_raises_in_any_call(quickest):
    """In that which measures, and in later ones."""
    quickest(16)

    def checked(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return eqx.error_if(jnp.sqrt(y), y[0] < 0, "the first is negative")

    f, good = optimize(**FAST)(checked), np.abs(ROWS)
    bad = good.copy()
    bad[7, 0] = -1
    with pytest.raises(eqx.EquinoxRuntimeError, match="the first is negative"):
        f(bad)
    for _ in range(2):
        np.testing.assert_allclose(f(good), np.sqrt(good), rtol=1e-6)
        with pytest.raises(eqx.EquinoxRuntimeError, match="the first is negative"):
            f(bad)


@pytest.mark.rest
def test_a_nan_is_named(quickest):
    """`debug_nans` looks at the result of the call."""
    quickest(16)

    def root(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.log(y)

    f = optimize(**FAST, debug_nans=True)(root)
    for _ in range(2):
        with pytest.raises(NonFiniteError, match="log"):
            f(ROWS)


@pytest.mark.rest
def test_numbers_that_the_body_needs_are_static(quickest):
    """As without chunks."""
    quickest(16)

    @optimize(**FAST)
    def powers(y: Float[Array, "n"], factor: float, times):
        for _ in range(times):
            y = y * factor
        return y

    for times in (2, 3, 2):
        np.testing.assert_allclose(powers(ROWS, 2.0, times), ROWS * 2.0**times, rtol=1e-6)


def test_under_transforms_it_is_whole(quickest):
    """Of the user's `jit`, `grad` and `vmap`: nothing is measured."""
    measured = quickest(16)
    f, theirs = optimize(**FAST)(residual), jax.jit(jax.vmap(residual, (None, 0)))
    w, y = array(W), array(ROWS)
    np.testing.assert_allclose(jax.jit(f)(w, y), theirs(w, y), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda: f(w, y))(), theirs(w, y), rtol=1e-6)
    ours = jax.grad(lambda w: f(w, y).sum())(w)
    np.testing.assert_allclose(ours, jax.grad(lambda w: theirs(w, y).sum())(w), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(f, (None, 0))(w, y[None])[0], theirs(w, y), rtol=1e-6)
    with jax.disable_jit():
        np.testing.assert_allclose(f(w, y), theirs(w, y), rtol=1e-6)
    assert measured == []


def test_derivatives_are_measured_too(quickest):
    """Each is a program of its own."""
    quickest(16)

    def loss(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum((jnp.sin(w) - y) ** 2)

    f = optimize(**FAST)(loss)
    for _ in range(2):
        gradient = f.grad(W, ROWS, wrt="w")
        expected = 2 * (np.sin(W) - ROWS) * np.cos(W)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.core(
    "{'cache': False}", "{'contracts'*", "{'verify'*", "{'runtime_checks'*", "{'on_trace_error'*"
)
@pytest.mark.parametrize(
    "options",
    [
        {"compiler": "fast"},
        {"cache": False},
        {"cache": "program"},
        {"contracts": False},
        {"verify": True},
        {"precision": "f64"},
        {"runtime_checks": "later"},
        {"on_trace_error": "eager"},
    ],
    ids=str,
)
def test_other_options_act_as_usual(quickest, options):
    """Results are those of the same function without chunks."""
    quickest(16)
    f, g = optimize(**FAST, **options)(residual), optimize(vmap="row", **options)(residual)
    for _ in range(2):
        np.testing.assert_allclose(f(W, ROWS), g(W, ROWS), rtol=1e-6)


def test_threads_of_the_user_measure_once(quickest):
    """Eight of them with one new size."""
    measured = quickest(16)
    f, barrier = optimize(**FAST)(residual), threading.Barrier(8)

    def call(number):
        barrier.wait(60)
        return f(W, ROWS + np.float32(number))

    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(call, range(8)))
    for number, out in enumerate(outs):
        np.testing.assert_allclose(out, by_hand(W, ROWS + np.float32(number)), rtol=1e-6, atol=1e-5)
    assert measured == [1, 16, None, 16]


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": {"n": "fast"}},
        {"chunk": {"n": "fast"}, "vmap": "b"},
        {"chunk": {"b": "fast"}, "vmap": "b", "donate": "y"},
        {"chunk": {"b": "fast"}, "vmap": "b", "shard": {"n": "data"}},
        {"chunk": {"b": "quick"}, "vmap": "b"},
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused_at_decoration(options):
    """Axes of the signature, donated buffers, and words that mean nothing."""
    with pytest.raises(OptionError):
        optimize(**options)(residual)
