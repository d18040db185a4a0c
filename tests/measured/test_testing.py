"""What `jitney.testing` asserts, and what its failures say. Where a clock decides, the work differs
twenty times.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney import JitneyWarning
from jitney._measured.verdict import faster
from jitney.errors import OptionError, VerificationError
from jitney.testing import Temporaries, assert_faster, assert_memory, assert_no_recompile

pytestmark = pytest.mark.real_xla

X = np.linspace(0.0, 1.0, 64, dtype=np.float32)


def spin(times: int):
    """A function whose time is that of a loop."""

    def run(x=1):
        for _ in range(times):
            pass
        return x

    return run


class Clock:
    """A way that takes the same time in every lap, or those given in turn."""

    needs_preparation = False

    def __init__(self, *seconds: float):
        self.seconds, self.laps = seconds, 0

    def lap(self) -> float:
        self.laps += 1
        return self.seconds[self.laps % len(self.seconds)]


def test_calls_of_one_kind_compile_once():
    """Of plain `jax.jit` for one shape, and of padded calls for a bucket."""
    plain = jax.jit(lambda x: jnp.sin(x) * 2)
    first = assert_no_recompile(plain, [X, X + 1, (X,)])
    assert first.traces == 1
    padded = jitney.optimize(lambda x: jnp.sin(x) * 2)
    assert_no_recompile(padded, [(X,), (X * 2,)])


def test_a_call_that_compiles_again_is_named_with_what_changed():
    """Which call, what was compiled where, and which argument was what."""
    f = jax.jit(lambda x, y: {"r": x * y["scale"]})
    calls = [(X, {"scale": 1.0}), (X + 1, {"scale": 2.0}), (X[:5], {"scale": 1.0})]
    with pytest.raises(
        AssertionError,
        match=r"^call 3 of <lambda>\(\): .* \[0\] was float32\[64\] and is float32\[5\]",
    ):
        assert_no_recompile(f, calls)


def test_a_call_alone_shows_nothing():
    """It may compile."""
    with pytest.raises(OptionError, match="1 calls"):
        assert_no_recompile(jnp.sin, [X])


@pytest.mark.rest
def test_what_is_faster_passes():
    """By less than it is, in the first try."""
    found = assert_faster(spin(1000), spin(20_000), by=2.0)
    assert (found.outcome, found.tries) == ("yes", 1)
    assert found.low >= 2.0


@pytest.mark.rest
def test_what_is_slower_fails():
    """After all tries, with what was measured."""
    with pytest.raises(
        AssertionError,
        match=(
            r"assert_faster\(run \(1\), run \(2\), by=2\): run \(1\) is between (.|\n)*3"
            r" measurements"
        ),
    ):
        assert_faster(spin(20_000), spin(1000), by=2.0)


def test_what_differs_is_not_compared_in_speed():
    """Whichever is faster."""
    with pytest.raises(VerificationError, match="1, and 2"):
        assert_faster(lambda: 1, lambda: 2)


@pytest.mark.rest
def test_one_bad_measurement_is_no_failure():
    """The next try is measured anew; by clocks of the test's own, of which one is slow at first."""
    slow_at_first = Clock(1.0)
    slow_at_first.lap = lambda: (
        3.0 if (laps := Clock.lap(slow_at_first)) and slow_at_first.laps < 40 else laps
    )
    found = faster([slow_at_first, Clock(2.5)], 2.0, 3, 60.0)
    assert (found.outcome, found.tries) == ("yes", 2)


@pytest.mark.rest
def test_what_lies_on_both_sides_is_unknown():
    """After the last look; it warns, or fails where that is asked for."""
    found = faster([Clock(1.0), Clock(1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0)], 2.0, 3, 60.0)
    assert (found.outcome, found.low, found.high, found.rounds) == ("unknown", 1.0, 3.0, 64)


def test_the_unknown_warns_or_fails(monkeypatch: pytest.MonkeyPatch):
    """With the interval, and what helps."""
    from jitney._measured.verdict import Faster

    monkeypatch.setattr("jitney.testing.faster", lambda *_: Faster("unknown", 1.0, 3.0, 1, 64))
    with pytest.warns(JitneyWarning, match="between 1 and 3 times as fast"):
        assert assert_faster(spin(1), spin(1), by=2.0).outcome == "unknown"
    with pytest.raises(AssertionError, match="unknown"):
        assert_faster(spin(1), spin(1), by=2.0, unknown="fail")


@pytest.mark.parametrize(
    "compiles", [jax.jit, jitney.optimize, lambda f: f], ids=["jit", "optimize", "plain"]
)
def test_memory_is_what_xla_plans(compiles):
    """What is sorted is a temporary of its own size. (A product that is only added up XLA may fuse
    away.)
    """
    f = compiles(lambda x: jnp.sum(jnp.sort(jnp.sin(x), axis=0) @ x))
    size = 4 * 256 * 256
    took = assert_memory(f, jax.ShapeDtypeStruct((256, 256), jnp.float32), temp_mb=4 * size / 1e6)
    assert size <= took <= 4 * size
    with pytest.raises(AssertionError, match=r"its temporaries take .* MB, where 0\.2 are allowed"):
        assert_memory(f, np.ones((256, 256), np.float32), temp_mb=0.2)


@pytest.mark.rest
def test_temporaries_of_what_is_compiled_are_seen():
    """Also of a program that is gone when the test ends, and that the persistent cache has; what
    was compiled before is not.
    """

    def run():
        jax.jit(lambda x: jnp.sum(jnp.sort(jnp.cos(x), axis=0) @ x))(
            np.ones((128, 128), np.float32)
        )

    for _ in range(2):
        jax.clear_caches()
        with Temporaries() as seen:
            run()
        assert seen.largest.temp_bytes >= 4 * 128 * 128
        assert "lambda" in seen.largest.name
        assert seen.largest.place.startswith("test_testing.py:")
    f = jax.jit(lambda x: x * 7)
    f(X)
    with Temporaries() as seen:
        f(X)
    assert seen.largest is None


@pytest.mark.parametrize("wrong", [{"by": 0}, {"tries": 0}, {"unknown": "pass"}])
def test_an_option_that_makes_no_sense_is_an_error(wrong):
    """With its name."""
    with pytest.raises(OptionError, match=next(iter(wrong))):
        assert_faster(spin(1), spin(1), **wrong)


def held(mib: int) -> np.ndarray:
    """A result of this size, and temporaries of twice that."""
    return np.ones(mib * 2**18)[: mib * 2**17].copy()


def test_a_measured_peak_knows_what_no_plan_knows():
    """What NumPy holds: 32 MiB, of which 16 are the results and the rest is gone before."""
    took = assert_memory(held, 16, peak_mb=60)
    assert 47 * 2**20 < took < 50 * 2**20


@pytest.mark.rest
def test_a_measured_peak_that_is_too_high_fails():
    """With both figures."""
    with pytest.raises(AssertionError, match=r"takes 50\.?\d* MB, where 20 are allowed"):
        assert_memory(held, 16, peak_mb=20)
