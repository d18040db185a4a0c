"""`stats`: what JAX reports, counted for each program."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney._body.body as body_module
from jitney import JitneyWarning, lazy_derivatives, optimize
from jitney._sparsity import jacobian_mode
from tests._arrays import array
from tests._monitor import listening

X = array(np.ones(5))


def annotated(fn):
    def body(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return fn(x)

    return body


def named(name, fn=lambda x: jnp.sin(x) + 1):
    def body(x):
        return fn(x)

    body.__name__ = name
    return body


def test_stats_say_after_how_many_calls_a_compile_is_repaid():
    """Tracing, lowering and compiling took 2 s; calls that save nothing repay nothing."""
    f = optimize(named("repaid"))
    f(X)
    stats = dataclasses.replace(
        f.stats, trace_seconds=0.25, lower_seconds=0.25, compile_seconds=1.5, own_seconds=0.125
    )
    assert stats.repaid_after(0.25) == 8
    assert stats.repaid_after(0.3) == 7
    assert stats.repaid_after(0.0) is stats.repaid_after(-1.0) is None


def test_own_seconds_are_those_of_a_trace_beyond_the_body(monkeypatch):
    """By a clock that stands still but for 5 s of each run of the body and 2 s of each contract
    that is checked.
    """
    now = [0.0]

    def passing(seconds, fn):
        def later(*args, **kwargs):
            now[0] += seconds
            return fn(*args, **kwargs)

        return later

    f = optimize(pad={"n": "pow2"})(annotated(passing(5.0, jnp.sin)))
    check = passing(2.0, body_module.check_arguments)
    monkeypatch.setattr(body_module, "check_arguments", check)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    f(jnp.ones(5))
    runs = round(now[0] - 2) // 5
    assert runs > 1  # a body that is padded is traced for all sizes, and for the one at hand
    assert f.stats.own_seconds == 2 + 5 * (runs - 1)


class Clock:
    """One that stands still but for what is said to pass."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def passing(self, seconds, fn):
        def later(*args, **kwargs):
            self.now += seconds
            return fn(*args, **kwargs)

        return later


def test_a_refused_proof_is_jitneys_own(monkeypatch):
    """The function runs for all sizes, is refused, and runs once more for JAX: that run alone is
    not jitney's.
    """
    clock = Clock(monkeypatch)
    f = optimize(pad={"n": "pow2"})(
        annotated(clock.passing(5.0, lambda x: jnp.abs(jnp.fft.fft(x))))
    )
    with pytest.warns(JitneyWarning, match="cannot be padded"):
        f(jnp.ones(5))
    assert clock.now > 5
    assert f.stats.own_seconds == clock.now - 5


@pytest.mark.parametrize("what", ["scheme_of", "fold_decisions"])
def test_the_search_for_the_structure_of_a_jacobian_is_jitneys_own(monkeypatch, what):
    """Not the run of the function, which JAX needs as well."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(jacobian_mode, what, clock.passing(7.0, getattr(jacobian_mode, what)))
    f = lazy_derivatives(wrt="x", sparse=True)(annotated(clock.passing(5.0, lambda x: x**2)))
    f.jacobian(np.ones(64, np.float32))
    assert (clock.now, f.jacobian.stats.own_seconds) == (12, 7)


def test_what_an_inner_function_spends_is_jitneys_in_the_outer_one(monkeypatch):
    """Each knows its own, and the outer one what both are."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(
        body_module, "check_arguments", clock.passing(2.0, body_module.check_arguments)
    )
    inner = optimize(annotated(clock.passing(5.0, jnp.sin)))
    outer = optimize(annotated(clock.passing(3.0, lambda x: 2 * inner(x))))
    outer(jnp.ones(5))
    assert (clock.now, inner.stats.own_seconds, outer.stats.own_seconds) == (12, 2, 4)


def test_what_is_compiled_to_find_what_fits_is_in_no_sum_twice():
    """Its seconds are part of the trace; those of compiling are of the program alone."""

    def searched(x):
        return jnp.sum(jnp.sin(jnp.sin(x)))

    f = optimize(remat="auto", memory="1GiB")(searched)
    with listening() as events:
        f.grad(jnp.ones(5))
    assert events.count("compile") > events.count("compile", "searched")
    assert f.grad.stats.compile_seconds == pytest.approx(events.seconds("compile", "searched"))


def test_counts_and_seconds_are_those_of_jax_monitoring():
    """Two shapes, three calls each, heard by a second listener."""
    f = optimize(named("heard"))
    args = [jnp.ones(2), jnp.ones(3)] * 3
    with listening() as events:
        for x in args:
            f(x)
    stats = f.stats
    assert stats.calls == 6
    assert stats.traces == 2 == events.count("trace", "heard")
    assert stats.compiles + stats.persistent_hits == 2 == events.count("compile", "heard")
    assert stats.hits == 4
    assert stats.trace_seconds == pytest.approx(events.seconds("trace", "heard"))
    assert stats.lower_seconds == pytest.approx(events.seconds("lower", "heard"))
    assert stats.compile_seconds == pytest.approx(events.seconds("compile", "heard"))
    assert min(stats.trace_seconds, stats.lower_seconds, stats.compile_seconds) > 0


def test_a_jitted_helper_is_part_of_the_program_that_calls_it():
    """`jnp.linalg.norm` is jitted: its trace is not one of ours, and it compiles with us."""
    f = optimize(named("helped", jnp.linalg.norm))
    f(X)
    assert (f.stats.traces, f.stats.compiles + f.stats.persistent_hits) == (1, 1)


def test_a_nested_program_has_its_own_counts():
    """The inner one is traced inside the outer one, and compiled as a part of it."""
    inner = optimize(named("inner_one"))
    outer = optimize(named("outer_one", lambda x: 2 * inner(x)))
    outer(X)
    outer(X)
    assert (
        outer.stats.calls,
        outer.stats.traces,
        outer.stats.compiles + outer.stats.persistent_hits,
    ) == (2, 1, 1)
    assert (
        inner.stats.calls,
        inner.stats.traces,
        inner.stats.compiles + inner.stats.persistent_hits,
    ) == (1, 1, 0)


def test_what_runs_beside_a_program_is_not_its_own():
    """Compiles of others are nobody's."""
    f = optimize(named("alone"))
    f(X)
    before = f.stats
    jax.jit(named("other"))(jnp.ones(17))
    assert f.stats == before


def test_ahead_of_time_work_is_counted():
    """`compile` and `lower` are calls of JAX for this program."""
    f = optimize(named("ahead"))
    f.compile(X)
    assert (f.stats.calls, f.stats.traces, f.stats.compiles + f.stats.persistent_hits) == (0, 1, 1)
    f.lower(jnp.ones(3))
    assert (f.stats.traces, f.stats.compiles + f.stats.persistent_hits) == (2, 1)


def test_equal_functions_with_equal_options_share_their_counts():
    """Two decorations of one function."""
    body = named("shared")
    one, two = optimize(body), optimize(body)
    one(X)
    two(X)
    assert one.stats == two.stats
    assert (one.stats.calls, one.stats.traces) == (2, 1)
    assert optimize(remat=True)(body).stats.calls == 0


def test_stats_read_as_text_and_as_data():
    """Every number and each cause stands in both."""
    f = optimize(named("read"))
    f(X)
    f(jnp.ones(3))
    text, data = str(f.stats), f.stats.to_dict()
    assert "2: 0 in-process hits" in text
    assert [line.split(maxsplit=2)[2] for line in text.splitlines()[-2:]] == [
        "first call",
        "'x' float32[5] -> float32[3]",
    ]
    assert json.loads(json.dumps(data)) == data
    assert (data["calls"], data["traces"], data["retraces"]) == (
        2,
        2,
        ["first call", "'x' float32[5] -> float32[3]"],
    )


def test_a_call_that_fails_to_trace_is_no_hit():
    """The errors of a body count as traces."""

    @optimize
    def f(x):
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError):
            f(X)
    assert (f.stats.calls, f.stats.traces, f.stats.hits) == (2, 2, 0)


SCRIPT = """
import json, sys
import jax, jax.numpy as jnp
from jitney import optimize
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
x = jnp.ones(5).block_until_ready()
hits.clear()
f = optimize(cache=sys.argv[1] == "True")(lambda x: jnp.tanh(x) * 3)
f(x)
print(json.dumps([f.stats.compiles, f.stats.persistent_hits, len(hits)]))
"""


def in_a_process(folder, *args):
    env = {
        **os.environ,
        "JITNEY_CACHE_DIR": str(folder),
        "JITNEY_CACHE": "on",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *args],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def programs(folder):
    return {path.name for path in folder.rglob("*lambda*")}


@pytest.mark.rest
def test_a_second_process_hits_the_persistent_cache(tmp_path):
    """Compiled in the first, read in the second; `cache=False` neither writes nor reads."""
    assert in_a_process(tmp_path, "False") == [1, 0, 0]
    assert not programs(tmp_path)
    assert in_a_process(tmp_path, "True") == [1, 0, 0]
    assert programs(tmp_path)
    assert in_a_process(tmp_path, "True") == [0, 1, 1]
    assert in_a_process(tmp_path, "False") == [1, 0, 0]


def test_warm_calls_report_nothing():
    """No trace, no compile, no other event of JAX's."""
    f = optimize(named("quiet"))
    f(X)
    with listening() as events:
        for _ in range(5):
            np.testing.assert_allclose(f(X), np.sin(1) + 1, rtol=1e-6)
    assert [events.count(what) for what in ("trace", "lower", "compile")] == [0, 0, 0]


def test_programs_of_the_function_are_counted_apart_from_incidental_ones():
    """What the body computes of no argument while it is traced is compiled too, and is no program
    of the function.
    """

    @optimize
    def f(x):
        with jax.ensure_compile_time_eval():
            table = jnp.cumsum(jnp.arange(7.0)) + 0.123
        return x * table[2]

    f(jnp.ones(3))
    assert f.stats.compiles + f.stats.persistent_hits == 1
    assert f.stats.incidental > 0


def test_stats_are_a_table():
    """A line for each figure; in a notebook, HTML."""
    f = optimize(lambda x: x)
    f(jnp.ones(3))
    assert [line.split()[0] for line in str(f.stats).splitlines()] == [
        "stats",
        "calls",
        "traces",
        "compiles",
        "trace",
    ]
    assert f.stats._repr_html_().startswith('<div class="jitney-report">')


def test_a_program_of_plain_jax_that_is_kept_is_no_hit_of_the_next_program():
    """What JAX says of its cache belongs to the compile that ends next, whoever's it is."""
    from jitney._diagnosis.counters.counters import COMPILED, HIT
    from jitney._diagnosis.counters.listener import LISTENER

    @optimize
    def f(x):
        return x * 3 + 1

    LISTENER._event(HIT)
    LISTENER._duration(COMPILED, 0.0, fun_name="jit(other)")  # nothing of ours on the stack
    f(np.arange(7.0))
    assert (f.stats.compiles + f.stats.persistent_hits, LISTENER._was_hit()) == (1, False)
