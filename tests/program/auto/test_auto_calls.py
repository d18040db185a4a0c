"""`auto=True`: lazy, honest, and the results of the whole."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._program.auto.auto_calls import AutoCalls
from jitney._program.auto.search import WHOLE, RunWay
from jitney.errors import NonFiniteError
from tests._arrays import array
from tests._patience import patience
from tests._switched import configured, environment

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(160, 5)).astype(np.float32)
W = RNG.normal(size=(5,)).astype(np.float32)
AUTO = {"vmap": "row", "auto": True}
FAST_64 = MappingProxyType({"64 at a time": 0.1, "whole in threads": 0.5})
# Of which 64 at a time in two threads have a slice.
LONG = np.tile(ROWS, (4, 1))
MANY = 40


def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.exp(-w * w) - y


def by_hand(w, y):
    return np.exp(-(np.float64(w) ** 2)) - y


def auto_line(f, *args):
    lines = f.plan(*args).to_dict()["decisions"]
    return next(line["why"] for line in lines if line["name"] == "auto")


def decide(f, rows, runs):
    """Call it until its choice has fallen; what runs is noted in `runs`, of the last call alone."""
    f(W, rows)
    while "learns" in auto_line(f, W, rows):
        runs.clear()
        f(W, rows)


def learnt(f, *args):
    """Call it until its choice has fallen, and return the last result."""
    for _ in range(MANY):
        out = f(*args)
    assert "learns" not in auto_line(f, *args)
    return out


def compile_slowly(machine, seconds, *ways):
    """Have these ways compile in so many seconds, all but the whole if none is named; others take
    100.
    """
    compile_, machine.compiling = machine.compile, 100.0

    def slow_compile(way, elements):
        is_slow = str(way) in ways if ways else str(way) != "whole"
        machine.compiling = seconds if is_slow else 100.0
        compile_(way, elements)

    machine.compile = slow_compile


def mislead(machine):
    """Have slices of a call run quicker by chunks of 64 than the call itself does."""
    run = machine.run

    def misleading(way, elements):
        machine.rates["64 at a time"] = 0.1 if elements < len(LONG) else 1.0
        run(way, elements)

    machine.run = misleading


def test_arrays_of_a_call_are_let_go(machine):
    """While it learns, and after."""
    f = optimize(**AUTO)(residual)
    rows = jnp.asarray(ROWS)
    seen = weakref.ref(rows)
    learnt(f, W, rows)
    del rows
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(
    "reads",
    [
        "array",
        *(pytest.param(each, marks=pytest.mark.rest) for each in ("global", "inside", "counter")),
    ],
)
@pytest.mark.parametrize("cache", [True, pytest.param("program", marks=pytest.mark.rest)])
def test_what_the_body_reads_may_change(machine, reads, cache):
    """`jax.jit` keeps what its trace has read, and so do calls with `auto`."""
    machine.rates = {"64 at a time": 0.1}
    state = {"array": np.zeros(5, np.float32), "count": 0}

    def body(y: Float[Array, "n"]) -> Float[Array, "n"]:
        state["count"] += reads == "counter"
        if reads == "inside":
            return jax.jit(lambda x: jnp.sin(x) + state["array"])(y)
        return jnp.sin(y) + state["array"] + state["count"]

    f = optimize(**AUTO, cache=cache)(body)
    first = np.asarray(f(ROWS))
    if reads == "global":
        state["array"] = np.ones(5, np.float32)
    state["array"][:] = 1
    for _ in range(MANY):
        np.testing.assert_array_equal(f(ROWS), first)
    assert f.stats.traces == 1
    assert auto_line(f, ROWS).startswith("whole: the body now computes something else")


def test_an_optional_mesh_comes_before_what_was_chosen(machine):
    """Without a mesh it is as if `shard` was not there; within one the devices share all."""
    machine.rates = {"64 at a time": 0.1}
    f = optimize(**AUTO, shard={"row": "*"}, mesh="optional")(residual)
    out = learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")
    np.testing.assert_allclose(out, by_hand(W, ROWS), rtol=1e-6, atol=1e-5)

    with jitney.mesh(rows=-1):
        assert auto_line(f, W, ROWS) == "the mesh divides the calls, all at once"
        inside = f(W, ROWS)
    assert inside.sharding.mesh.axis_names == ("rows",)
    assert machine.runs[-1][0] == "whole"
    np.testing.assert_allclose(inside, out, rtol=1e-6)
    f(W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


def test_nothing_is_tried_before_calls_have_taken_as_long_as_their_compile(machine):
    """A compile of 1,000 seconds and calls of 160: the first call, and seven more."""
    machine.compiling = 1000.0
    f = optimize(**AUTO)(residual)
    for number in range(1, 12):
        f(W, ROWS)
        assert bool(machine.tried) == (number > 8)


def test_a_slice_is_a_sixteenth_or_whole_chunks_or_5_milliseconds(machine):
    """Whichever is most, of the elements, and two chunks; here an element takes a second. Half of
    all elements are no slice.
    """
    big = np.zeros((4096, 5), np.float32)
    f = optimize(**AUTO)(residual)
    learnt(f, W, big)
    sizes = dict(machine.runs[::-1])
    assert sizes["64 at a time in threads"] == 256
    assert sizes["whole in threads"] == 4096
    assert sizes["1,024 at a time in threads"] == 4096

    machine.runs.clear()
    machine.rates = dict.fromkeys(("whole", "64 at a time", "64 at a time in threads"), 4e-6)
    machine.compiling = 0.03
    for _ in range(10):
        f(W, np.zeros((2000, 5), np.float32))
    assert dict(machine.runs[::-1])["64 at a time in threads"] == 1280


def in_all_ways(seconds):
    """Seconds of an element, the same in each way."""
    widths = [f"{width:,} at a time" for width in (1, 16, 64, 256, 1024)]
    return dict.fromkeys(
        [f"{way}{how}" for way in [*widths, "whole"] for how in ("", " in threads")], seconds
    )


def test_a_slice_takes_5_milliseconds_in_the_best_way_so_far(machine):
    """Else the start of threads is much of it where a way is quick."""
    machine.rates = in_all_ways(4e-6) | {"64 at a time in threads": 1e-6}
    machine.compiling = 0.1
    f, rows = optimize(**AUTO)(residual), np.zeros((20_000, 5), np.float32)
    for _ in range(7):
        f(W, rows)
    sizes = dict(machine.runs[::-1])
    assert sizes["64 at a time in threads"] == 1280
    assert sizes["256 at a time in threads"] == 5120


def test_a_slow_first_run_does_not_decide(machine):
    """It starts threads and takes new memory: Kepler's equation."""
    machine.rates = in_all_ways(1e-5) | {"64 at a time in threads": 0.7e-5}
    machine.rates |= {"64 at a time": 3e-5}
    machine.compiling = 0.04
    f, run, warm = optimize(**AUTO)(residual), machine.run, set()

    def cold(way, elements):
        machine.now += 0.0 if way in warm else 1.4e-5 * elements
        warm.add(way)
        run(way, elements)

    machine.run = cold
    learnt(f, W, LONG)
    assert auto_line(f, W, LONG).startswith("64 at a time in threads: ")


def test_a_way_that_is_16_times_slower_costs_one_slice(machine):
    """No first run is so slow for being the first."""
    machine.rates = in_all_ways(1e-5) | {"64 at a time in threads": 16e-5}
    machine.compiling = 0.04
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        f(W, LONG)
    assert [way for way, _ in machine.runs].count("64 at a time in threads") == 1


def test_a_way_is_compared_with_what_calls_usually_take(machine):
    """Every fourth call of the whole is quicker than all ways, say as it finds memory that was
    freed: the others count.
    """
    machine.rates = in_all_ways(3e-5) | {"64 at a time in threads": 1.2e-5}
    machine.compiling = 1.0
    f, run, wholes = optimize(**AUTO)(residual), machine.run, []

    def unsteady(way, elements):
        if way == WHOLE:
            wholes.append(elements)
            machine.rates["whole"] = 1e-5 if len(wholes) % 4 == 0 else 2.5e-5
        run(way, elements)

    machine.run = unsteady
    for _ in range(200):
        f(W, LONG)
    told = auto_line(f, W, LONG)
    assert told.startswith("64 at a time in threads: 7.68 ms, whole 16 ms; ")


def test_a_call_that_is_short_beside_its_compile_is_its_own_slice(machine):
    """It is compiled once for each way, and not once more where the choice falls."""
    machine.rates = {"whole": 1e-5, "64 at a time": 1e-6, "64 at a time in threads": 1e-5}
    machine.compiling = 0.2
    f = optimize(**AUTO)(residual)
    for _ in range(40):
        f(W, np.zeros((2000, 5), np.float32))
    runs = set(machine.runs)
    assert ("64 at a time", 2000) in runs
    assert {elements for _, elements in runs} == {2000}


@pytest.mark.core("rates3-*")
@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({}, "whole: "),
        ({"64 at a time": 0.1}, "64 at a time: "),
        ({"whole in threads": 0.5}, "whole in threads: "),
        ({"64 at a time": 0.6, "64 at a time in threads": 0.4}, "64 at a time in threads: "),
        (
            {"64 at a time": 0.5, "16 at a time": 0.2, "1 at a time": 0.1}
            | {"1 at a time in threads": 0.5},
            "1 at a time: ",
        ),
    ],
)
def test_any_choice_gives_the_rows_of_the_whole(machine, rates, chosen):
    """In each call, before the choice falls and after."""
    machine.rates = rates
    f = optimize(**AUTO)(residual)
    for number in range(MANY):
        rows = ROWS + np.float32(number)
        np.testing.assert_allclose(f(W, rows), by_hand(W, rows), rtol=1e-6, atol=1e-5)
    assert auto_line(f, W, ROWS).startswith(chosen)


@pytest.fixture
def mark(monkeypatch):
    """Results say by which way they were made: the function returns 0 for the whole, the width, and
    one more in threads.
    """
    run = AutoCalls.run_entry

    def by(entry, arrays):
        (width,) = [width for _, width in entry.options.chunk] or [0]
        return run(entry, arrays) + 100.0 * (width + (entry.options.workers is not None))

    monkeypatch.setattr(AutoCalls, "run_entry", staticmethod(by))
    return lambda out, rows: round(float(np.mean(out - by_hand(W, rows))) / 100)


@pytest.mark.rest
def test_a_value_changes_once_at_most(machine, mark):
    """All calls before the choice are answered by the whole, and all after it by the choice."""
    machine.rates = FAST_64
    f, rows = optimize(**AUTO)(residual), np.tile(ROWS, (10, 1))
    answers = [mark(f(W, rows), rows) for _ in range(MANY)]
    fell = answers.index(64)
    assert fell > 0
    assert answers == [0] * fell + [64] * (MANY - fell)


@pytest.mark.rest
def test_a_value_does_not_change_while_a_search_is_given_up_for_now(machine, mark):
    """The whole answers until the choice falls at last."""
    f = optimize(**AUTO)(residual)
    machine.rates = {"whole in threads": 0.5}
    compile_slowly(machine, 1500.0, "64 at a time in threads")
    answers = [mark(f(W, ROWS), ROWS) for _ in range(300)]
    fell = answers.index(1)
    assert fell > 60
    assert answers == [0] * fell + [1] * (300 - fell)


def test_the_call_that_decides_has_the_result_of_the_choice(machine, monkeypatch):
    """Each result says by which way it was made."""
    run = AutoCalls.run_way
    marked = lambda calls, way, arrays: run(calls, way, arrays) + (0.0 if way == WHOLE else 100.0)
    monkeypatch.setattr(AutoCalls, "run_way", marked)
    monkeypatch.setattr(
        AutoCalls, "run_entry", staticmethod(lambda entry, arrays: entry.run(*arrays) + 100.0)
    )
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    chosen = []
    for _ in range(MANY):
        mark = float(np.mean(f(W, ROWS) - by_hand(W, ROWS)))
        chosen.append("learns" not in auto_line(f, W, ROWS))
        assert (mark > 50) == chosen[-1]
    assert set(chosen) == {False, True}


def test_the_whole_stays_if_the_call_itself_is_no_quicker(machine):
    """A slice may be misleading: the last comparison is of the call."""
    machine.rates = {"64 at a time": 0.1}
    f = optimize(**AUTO)(residual)
    mislead(machine)
    learnt(f, W, LONG)
    assert auto_line(f, W, LONG).startswith("whole: 64 at a time 6.4e+05 ms, whole 6.4e+05 ms; ")


def test_what_is_left_is_tried_where_the_best_on_slices_is_no_quicker_in_the_call(machine):
    """The next call goes on with the second best, and with the best on slices once more."""
    machine.rates = {**FAST_64}
    f = optimize(**AUTO)(residual)
    mislead(machine)
    learnt(f, W, LONG)
    told = auto_line(f, W, LONG)
    each = "whole in threads: 3.2e+05 ms, 64 at a time 6.4e+05 ms, whole 6.4e+05 ms; "
    assert told.startswith(each)


def slowed_once(machine, way, elements=None):
    """Let a way take twice as long in the first call that runs it (with so many elements), as if
    something else had taken a core. Returns the numbers of the calls that run it; the number of
    each call is to be added to the second list.
    """
    run, rate, seen, calls = machine.run, machine.rates[way], [], []

    def slowed(ran, count):
        if str(ran) == way and elements in (None, count):
            seen.extend(calls[-1:] if calls[-1] not in seen else [])
            machine.rates[way] = rate * (2 if seen[0] == calls[-1] else 1)
        run(ran, count)
        machine.rates[way] = rate

    machine.run = slowed
    return seen, calls


def test_a_trial_that_was_disturbed_is_repeated_in_another_call(machine):
    """Something else takes a core while threads have their trial."""
    machine.rates = {"64 at a time in threads": 0.6, "whole in threads": 0.8}
    _, calls = slowed_once(machine, "64 at a time in threads")
    f = optimize(**AUTO)(residual)
    for number in range(MANY):
        calls.append(number)
        f(W, LONG)
    told = auto_line(f, W, LONG)
    assert told.startswith("64 at a time in threads: ")
    assert "64 at a time in threads 7.68e+05" in told
    assert "64 at a time in threads again 3.84e+05" in told


@pytest.mark.parametrize("second", [None, 0.8])
def test_a_call_that_decides_and_was_disturbed_is_repeated(machine, second):
    """Alone, or together with the second best. The whole answers the first."""
    machine.rates, machine.compiling = {"64 at a time in threads": 0.5}, 4000.0
    if second:
        machine.rates["whole in threads"] = second
    seen, calls = slowed_once(machine, "64 at a time in threads", len(LONG))
    f = optimize(**AUTO)(residual)
    for number in range(MANY):
        calls.append(number)
        out = f(W, LONG)
        np.testing.assert_allclose(out, by_hand(W, LONG), rtol=1e-6, atol=1e-5)
    assert auto_line(f, W, LONG).startswith("64 at a time in threads: 3.2e+05 ms, ")
    assert len(seen) >= 2


def test_a_second_trial_that_fails_leaves_the_whole(machine):
    """As a first one does."""
    machine.rates = {"64 at a time in threads": 1.2}
    f, run, trials, calls = optimize(**AUTO)(residual), machine.run, [], []

    def failing(way, elements):
        if str(way) == "64 at a time in threads":
            trials.append(calls[-1])
            if trials[0] != calls[-1]:
                raise RuntimeError
        run(way, elements)

    machine.run = failing
    for number in range(MANY):
        calls.append(number)
        out = f(W, LONG)
        np.testing.assert_allclose(out, by_hand(W, LONG), rtol=1e-6, atol=1e-5)
    told = auto_line(f, W, LONG)
    assert told.startswith("whole: ")
    assert "64 at a time in threads: RuntimeError" in told


def test_a_search_that_is_put_off_traces_nothing(machine, monkeypatch):
    """Its seconds would put it off once more, for ever: a trace is for each call that tries."""
    traces, is_changed = [], AutoCalls.is_changed

    def slow_trace(calls, of_size, arrays):
        machine.now += 50.0
        traces.append(of_size.times.calls)
        return is_changed(calls, of_size, arrays)

    monkeypatch.setattr(AutoCalls, "is_changed", slow_trace)
    f = optimize(**AUTO)(residual)
    machine.rates = {"whole in threads": 0.5}
    compile_slowly(machine, 1500.0, "64 at a time in threads")
    calls = 0
    while calls < 400 and (calls < 9 or "learns" in auto_line(f, W, ROWS)):
        f(W, ROWS)
        calls += 1
    assert auto_line(f, W, ROWS).startswith("whole in threads: ")
    assert len(traces) == 3  # two trials, and the call that decides


def test_what_could_not_be_repaid_is_given_up(machine):
    """Compiles of chunks that take ten times as long as the first."""
    f = optimize(**AUTO)(residual)
    compile_slowly(machine, 1000.0)
    for _ in range(MANY):
        f(W, ROWS)
    assert machine.tried == ["64 at a time in threads"]
    told = "given up for now, as whole in threads could not be repaid in time"
    assert told in auto_line(f, W, ROWS)
    assert f.stats.saved_seconds == pytest.approx(MANY * 160 - machine.now)


def test_the_best_so_far_is_taken_where_the_rest_is_given_up(machine):
    """What was spent is spent."""
    f = optimize(**AUTO)(residual)
    machine.rates = FAST_64
    compile_slowly(machine, 1000.0)
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")
    assert "given up" in auto_line(f, W, ROWS)


def test_a_search_that_was_given_up_goes_on_when_calls_have_taken_ten_times_as_long(machine):
    """As its next step will: nothing was gained so far, so the whole answers meanwhile. The next
    compile is expected to take as long as that of the trial.
    """
    f = optimize(**AUTO)(residual)
    machine.rates = {"whole in threads": 0.5}
    compile_slowly(machine, 1500.0, "64 at a time in threads")
    for _ in range(60):
        f(W, ROWS)
    assert machine.tried == ["64 at a time in threads"]
    told = auto_line(f, W, ROWS)
    assert told.startswith("whole, while it learns: ")
    assert "given up for now, as whole in threads could not be repaid in time" in told

    calls = 60
    while "learns" in auto_line(f, W, ROWS):
        taken = calls * 160
        assert calls < 400
        f(W, ROWS)
        calls += 1
        if len(machine.tried) == 1:
            assert taken < 10 * (1500 + 1000)
    assert machine.tried == ["64 at a time in threads", "whole in threads"]
    assert taken > 10 * 1500
    assert auto_line(f, W, ROWS).startswith("whole in threads: ")


def test_one_compile_tells_of_a_width_in_threads_and_in_one(machine):
    """The program of a part with one worker: only what is chosen is compiled for itself."""
    machine.rates = {"64 at a time": 0.1, "64 at a time in threads": 0.12}
    f = optimize(**AUTO)(residual)
    learnt(f, W, np.tile(ROWS, (8, 1)))
    compiled = {str(way) for way, _ in machine.compiled if way.carrier == ""}
    assert compiled == {"64 at a time"}
    assert auto_line(f, W, np.tile(ROWS, (8, 1))).startswith("64 at a time: ")


@pytest.mark.parametrize("quicker", ["64 at a time", "256 at a time"])
def test_what_is_nearly_the_best_on_slices_runs_the_call_that_decides_too(machine, quicker):
    """On the slices 64 is a little quicker than 256; in the call it may be either."""
    rows = np.zeros((16384, 5), np.float32)
    rates = {"64 at a time": 0.5, "256 at a time": 0.52}
    f, run = optimize(**AUTO)(residual), machine.run

    def of_call(way, elements):
        machine.rates = {**rates, quicker: 0.4} if elements == len(rows) else rates
        run(way, elements)

    machine.rates, machine.run = rates, of_call
    learnt(f, W, rows)
    told = auto_line(f, W, rows)
    assert told.startswith(f"{quicker}: 6.55e+06 ms, ")
    assert "whole 1.64e+07 ms; " in told


@pytest.mark.parametrize(("compiling", "turns"), [(0.2, 7), (2.0, 17), (5.0, 21)])
def test_ways_take_turns_more_often_where_that_is_cheap_beside_a_compile(machine, compiling, turns):
    """A call of 20 ms at the end: three times after the first, and ten at most; and again, ten at
    most, since two are close.
    """
    widths = [f"{width:,} at a time" for width in (1, 16, 64, 256, 1024)]
    ways = [f"{way}{how}" for way in [*widths, "whole"] for how in ("", " in threads")]
    machine.rates = dict.fromkeys(ways, 1e-5) | {"64 at a time": 9e-6}
    machine.compiling = compiling
    f, rows = optimize(**AUTO)(residual), np.zeros((2000, 5), np.float32)
    decide(f, rows, machine.runs)
    assert machine.runs.count(("whole", 2000)) == turns
    assert auto_line(f, W, rows).startswith("64 at a time: ")


@pytest.mark.parametrize("second", [1e-5, 5.2e-6])
def test_a_whole_that_is_clearly_slower_has_one_turn_at_the_end(machine, second):
    """More would change nothing; ways that are nearly as quick as each other take all turns."""
    machine.rates = in_all_ways(1e-5) | {"64 at a time": 5e-6, "256 at a time": second}
    machine.compiling = 2.0
    f, rows = optimize(**AUTO)(residual), np.zeros((2000, 5), np.float32)
    decide(f, rows, machine.runs)
    assert machine.runs.count(("whole", 2000)) == 1
    turns = 2 if second == 1e-5 else 8
    assert machine.runs.count(("64 at a time", 2000)) == turns
    assert "whole 20 ms; " in auto_line(f, W, rows)


def test_the_one_turn_of_the_whole_may_be_disturbed(machine):
    """What it usually takes is told then, and is what each call saves by."""
    machine.rates = in_all_ways(1e-5) | {"64 at a time": 5e-6}
    machine.compiling = 2.0
    f, rows, run = optimize(**AUTO)(residual), np.zeros((2000, 5), np.float32), machine.run
    ran = []

    def slow_at_the_end(way, elements):
        ran.append(str(way))
        last = ran[-3:] == ["64 at a time", "64 at a time", "whole"]
        machine.rates["whole"] = 3e-5 if last else 1e-5
        run(way, elements)

    machine.run = slow_at_the_end
    decide(f, rows, ran)
    assert "whole 20 ms; " in auto_line(f, W, rows)
    before = f.stats.saved_seconds
    f(W, rows)
    assert f.stats.saved_seconds - before == pytest.approx(0.01)


def test_what_is_close_to_the_whole_has_more_turns(machine):
    """Something else takes a core for the first turns of the whole; then it is as quick."""
    machine.rates = in_all_ways(1e-5) | {"whole": 1e-5, "64 at a time": 0.9e-5}
    machine.compiling = 0.15
    f, rows, run = optimize(**AUTO)(residual), np.zeros((2000, 5), np.float32), machine.run
    ran = []

    def disturbed(way, elements):
        ran.append(str(way))
        # On all elements 64 at a time gain nothing.
        of_all = elements == 2000 and "64 at a time" in ran
        first = ran.count("whole") <= 3 and of_all
        machine.rates["whole"] = 1.2e-5 if first else 1e-5
        machine.rates["64 at a time"] = 1e-5 if elements == 2000 else 0.9e-5
        run(way, elements)

    machine.run = disturbed
    decide(f, rows, ran)
    assert auto_line(f, W, rows).startswith("whole: "), auto_line(f, W, rows)


@pytest.mark.parametrize("late", [3, 6])
def test_threads_that_wake_on_one_core_run_until_they_have_more(machine, late):
    """The first runs of a trial take as long as its program with one worker."""
    machine.rates = in_all_ways(1e-5) | {"64 at a time": 1e-5, "whole in threads": 1e-5}
    machine.compiling = 0.1
    f, rows, run = optimize(**AUTO)(residual), np.zeros((2000, 5), np.float32), machine.run
    ran = []

    def woken(way, elements):
        ran.append(str(way))
        one_core = ran.count("64 at a time in threads") <= late
        machine.rates["64 at a time in threads"] = 1e-5 if one_core else 5e-6
        run(way, elements)

    machine.run = woken
    decide(f, rows, ran)
    assert "64 at a time in threads 10, 64 at a time 20" in auto_line(f, W, rows)


def branches(y: Float[Array, "n"]) -> Float[Array, "n"]:
    """Elements wait for each other, so 1 at a time is tried early."""
    return jax.lax.cond(y[0] > 0, jnp.sin, jnp.cos, y)


def test_threads_that_had_one_core_probably_have_their_second_trial_at_once(machine):
    """Before the whole in threads, which is compiled. 64 gain by threads, and 1 would be best."""
    machine.rates = {"64 at a time in threads": 0.55, "1 at a time in threads": 0.3}
    machine.rates |= {"64 at a time": 1.0, "1 at a time": 0.6}
    _, calls = slowed_once(machine, "1 at a time in threads")
    f = optimize(**AUTO)(branches)
    for number in range(MANY):
        calls.append(number)
        f(LONG)
    told = auto_line(f, LONG)
    assert told.startswith("1 at a time in threads: ")
    assert told.index("1 at a time in threads again") < told.index("whole in threads")


def test_a_way_that_cannot_be_repaid_does_not_end_the_search(machine):
    """1 at a time has a slice, and is compiled for all elements once more if it is the best; the
    whole in threads has one compile.
    """
    machine.rates = {"64 at a time in threads": 0.6, "whole in threads": 0.3}
    machine.compiling = 1000.0
    f, compiled = optimize(**AUTO)(branches), machine.compile

    def slow_compile(way, elements):
        machine.compiling = 3500.0 if str(way) != "whole" else 1000.0
        compiled(way, elements)

    machine.compile = slow_compile
    for _ in range(MANY):
        np.testing.assert_allclose(
            f(LONG), np.where(LONG[:, :1] > 0, np.sin(LONG), np.cos(LONG)), rtol=1e-5, atol=1e-6
        )
    assert machine.tried == ["64 at a time in threads", "whole in threads"]
    told = auto_line(f, LONG)
    assert told.startswith("whole in threads: ")
    assert "given up, as 1 at a time in threads could not be repaid in time" in told


def test_short_calls_are_left_alone(machine):
    """Below a millisecond: the second call that was timed says so."""
    machine.rates = {"whole": 1e-6}
    f = optimize(**AUTO)(residual)
    for _ in range(5):
        f(W, ROWS)
    assert machine.tried == []
    assert auto_line(f, W, ROWS) == "whole: calls take less than 1 ms"


def test_a_function_that_gains_nothing_runs_as_without_auto(machine):
    """Warm calls go past all this, until a new size comes."""
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    f(W, ROWS)
    entry = f._core.usual[0]
    assert entry.auto.is_idle
    assert "Auto" not in type(entry.run).__name__

    before = len(machine.runs)
    f(W, ROWS)
    assert len(machine.runs) == before
    f(W, ROWS[:20])
    f(W, ROWS[:20])
    assert len(machine.runs) > before


def test_each_size_learns_by_itself_and_sizes_of_a_bucket_share_their_choice(machine):
    """160 and 130 are counted as 256, 100 as 128."""
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    machine.runs.clear()
    np.testing.assert_allclose(f(W, ROWS[:130]), by_hand(W, ROWS[:130]), rtol=1e-6, atol=1e-6)
    assert auto_line(f, W, ROWS[:130]).startswith("64 at a time: ")
    f(W, ROWS[:100])
    assert "learns" in auto_line(f, W, ROWS[:100])


def test_exact_says_nothing_of_another_size(machine):
    """Bits were compared at 160, not at 130."""
    machine.rates = FAST_64
    f = optimize(**{**AUTO, "auto": "exact"})(residual)
    learnt(f, W, ROWS)
    f(W, ROWS[:130])
    assert "learns" in auto_line(f, W, ROWS[:130])


@pytest.mark.parametrize("size", [0, 1])
def test_what_is_not_worth_a_choice_is_whole(machine, size):
    """An axis without elements, and one of one."""
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        out = f(W, ROWS[:size])
    np.testing.assert_allclose(out, by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)
    assert machine.tried == []
    assert auto_line(f, W, ROWS[:size]) == f"whole, since row={size}"


def test_the_plan_has_what_was_tried(machine):
    """Before, while and after; in milliseconds of a whole call."""
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    assert auto_line(f, W, ROWS) == (
        "nothing is tried before calls of this size have taken as long as a compile"
    )
    f(W, ROWS)
    assert auto_line(f, W, ROWS) == (
        "whole, while it learns: calls have taken 0 ms, their compile 1e+04 ms"
    )
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS) == (
        "64 at a time: 1.6e+04 ms, whole 1.6e+05 ms; 64 at a time in threads 1.6e+05,"
        " 64 at a time 1.6e+04, whole in threads 8e+04, 16 at a time in threads 1.6e+05;"
        " finding took 3.76e+05 ms"
    )
    assert auto_line(f, array(W), array(ROWS)) == auto_line(f, W, ROWS)


def test_stats_have_what_it_saved(machine):
    """Less what finding took."""
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    before = f.stats.saved_seconds
    for _ in range(5):
        f(W, ROWS)
    assert f.stats.saved_seconds - before == pytest.approx(5 * 0.9 * 160)
    assert jitney.optimize(vmap="row")(residual).stats.saved_seconds == 0


def test_exact_takes_only_equal_bits(machine, monkeypatch):
    """A width that rounds otherwise on the slice is not taken, however quick."""
    run = AutoCalls.run_way
    other = lambda calls, way, arrays: (
        jnp.nextafter(run(calls, way, arrays), np.float32(9))
        if way == RunWay(64)
        else run(calls, way, arrays)
    )
    monkeypatch.setattr(AutoCalls, "run_way", other)
    machine.rates = {"64 at a time": 0.1, "whole in threads": 0.5}
    f = optimize(**{**AUTO, "auto": "exact"})(residual)
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("whole in threads: ")
    assert "64 at a time: other bits" in auto_line(f, W, ROWS)

    machine.rates = {"64 at a time": 0.1}
    g = optimize(**AUTO)(residual)
    learnt(g, W, ROWS)
    assert auto_line(g, W, ROWS).startswith("64 at a time: ")


def test_exact_compares_the_whole_call_too(machine, monkeypatch):
    """Rows that are not in the slice count as well."""
    run = AutoCalls.run_way

    def other(calls, way, arrays):
        out = run(calls, way, arrays)
        full = out.shape[0] == len(LONG) and way != WHOLE
        return out.at[1].add(1.0) if full else out

    monkeypatch.setattr(AutoCalls, "run_way", other)
    machine.rates = FAST_64
    f = optimize(**{**AUTO, "auto": "exact"})(residual)
    out = learnt(f, W, LONG)
    assert auto_line(f, W, LONG).startswith("whole: 64 at a time has other bits")
    np.testing.assert_allclose(out, by_hand(W, LONG), rtol=1e-6, atol=1e-6)


@pytest.mark.rest
def test_nan_is_equal_to_itself(machine):
    """By its bits."""
    machine.rates = FAST_64
    f = optimize(**{**AUTO, "auto": "exact"})(residual)
    learnt(f, W, np.full_like(ROWS, np.nan))
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


def test_options_by_hand_are_left_alone(machine):
    """`chunk` given: threads only. `workers` given: widths only. Both: nothing."""
    for options, tried in (
        ({"chunk": {"row": 16}}, {"whole in threads"}),
        ({"workers": 2}, {"64 at a time", "16 at a time", "1 at a time"}),
        ({"workers": 2, "chunk": {"row": 16}}, set()),
        ({"chunk": {"row": "fast"}}, set()),
    ):
        machine.runs.clear()
        f = optimize(vmap={"row": {"y": 0}}, auto=True, **options)(residual)
        for _ in range(12):
            np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
        assert set(machine.tried) <= tried
        assert bool(machine.tried) == bool(tried), auto_line(f, W, ROWS)


@pytest.mark.core(
    "{'vmap'*",
    "{'donate'*",
    "{'pad'*",
    "{'memory'*",
    "{'max_compiles'*",
    "{'precision'*",
    "{'runtime_checks'*",
    "{'chunk': {'n'*",
    "{'verify'*",
)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"vmap": None}, "no `vmap` axis, whose elements are proven to be computed each alone"),
        ({"donate": "y"}, "not together with `donate`"),
        ({"pad": {"n": "pow2"}}, "not together with `pad`"),
        ({"memory": "1GiB", "remat": "auto"}, 'not together with `remat="auto"`'),
        ({"max_compiles": 3}, "not together with `max_compiles`"),
        ({"precision": "auto:1e-2"}, 'not together with `precision="auto:..."`'),
        ({"runtime_checks": "later"}, 'not together with `runtime_checks="later"`'),
        ({"chunk": {"n": 2}}, "`chunk` cuts 'n', and one axis is cut at a time"),
        ({"workers": 2, "chunk": {"row": 4}}, "`chunk` and `workers` are given"),
        ({"chunk": {"row": "fast"}}, '`chunk="fast"` measures by itself'),
        ({"verify": True}, "`verify` compares what it runs, and all at once"),
    ],
    ids=str,
)
def test_where_it_cannot_act_the_plan_says_why(machine, options, why):
    """Nothing is tried, and nothing refused."""
    f = optimize(**{**AUTO, **options})(residual)
    rows = ROWS if f.options.vmap else W
    assert auto_line(f, W, rows) == why
    for _ in range(3):
        f(W, np.array(rows))
    assert machine.tried == []


def test_callbacks_are_called_once_each(machine, capfd):
    """Nothing is tried: that would call them again."""

    def printing(y: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.print("{}", y[0])
        return y + 1

    f = optimize(**AUTO)(printing)
    for _ in range(6):
        f(ROWS[:40])
    jax.effects_barrier()
    assert len(capfd.readouterr().out.split()) == 6 * 40
    assert machine.tried == []
    assert auto_line(f, ROWS[:40]).startswith("whole: test_auto_calls.py")


@pytest.mark.rest
def test_draws_from_one_key_are_not_divided(machine):
    """`rbg` draws for all elements at once."""

    def noisy(key, y: Float[Array, "n"]) -> Float[Array, "n"]:
        return y + jax.random.normal(key, y.shape)

    keys = jax.random.split(jax.random.key(0, impl="rbg"), len(ROWS))
    f = optimize(vmap={"row": {"key": 0, "y": 0}}, auto=True)(noisy)
    want = jax.jit(jax.vmap(noisy))(keys, ROWS)
    for _ in range(6):
        np.testing.assert_allclose(f(keys, ROWS), want, rtol=1e-5, atol=1e-6)
    assert machine.tried == []
    assert "draws for all elements at once" in auto_line(f, keys, ROWS)


def test_a_rule_for_vmap_that_sees_all_elements_stays_whole(machine):
    """In threads each part would subtract its own mean."""
    machine.rates = {"whole in threads": 0.1}

    def centred(x: Float[Array, ""]) -> Float[Array, ""]:
        same = jax.custom_batching.custom_vmap(lambda x: x * 0)
        same.def_vmap(lambda size, are_mapped, x: (x - jnp.mean(x), True))
        return same(x)

    f = optimize(**AUTO)(centred)
    x = ROWS[:, 0]
    np.testing.assert_allclose(learnt(f, x), x - x.mean(), rtol=1e-5, atol=1e-6)
    assert not machine.tried
    assert "has its own rule for `jax.vmap`" in auto_line(f, x)


@pytest.mark.rest
def test_keys_of_each_element_draw_the_same(machine):
    """In any width, and in threads."""
    machine.rates = FAST_64

    def noisy(key, y: Float[Array, "n"]) -> Float[Array, "n"]:
        return y + jax.random.normal(key, y.shape)

    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), len(ROWS))
    f = optimize(vmap={"row": {"key": 0, "y": 0}}, auto="exact")(noisy)
    want = jax.jit(jax.vmap(noisy))(keys, ROWS)
    np.testing.assert_allclose(learnt(f, keys, ROWS), want, rtol=1e-5, atol=1e-6)
    assert auto_line(f, keys, ROWS).startswith("64 at a time: ")


def test_threads_are_not_tried_where_workers_refuse(machine):
    """LAPACK on many numbers, in which XLA may hang: no thread runs it, even on a slice; on few,
    one matrix at a time, threads do.
    """

    def solved(y: Float[Array, "n n"]) -> Float[Array, "n"]:
        return jnp.linalg.cholesky(y @ y.T + 17 * jnp.eye(17))[0]

    f = optimize(**AUTO)(solved)
    rows = RNG.normal(size=(320, 17, 17)).astype(np.float32)
    for _ in range(12):
        f(rows)
    assert [way for way in machine.tried if "threads" in way] == ["1 at a time in threads"]
    assert "above 4,096 XLA may hang" in auto_line(f, rows)


def test_with_one_core_threads_are_not_tried(machine, monkeypatch):
    """There is nothing to share with."""
    from jitney._host.limits import HostLimit
    from jitney._program.auto import auto_calls

    monkeypatch.setattr(auto_calls, "allowed_cores", lambda: HostLimit("the machine", 1))
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    assert not any("threads" in way for way in machine.tried)


def test_under_transforms_it_is_whole(machine):
    """Of the user's `jit`, `grad` and `vmap`: nothing is tried."""
    f, theirs = optimize(**AUTO)(residual), jax.jit(jax.vmap(residual, (None, 0)))
    w, y = array(W), array(ROWS)
    for _ in range(6):
        np.testing.assert_allclose(jax.jit(f)(w, y), theirs(w, y), rtol=1e-6)
        np.testing.assert_allclose(jax.jit(lambda: f(w, y))(), theirs(w, y), rtol=1e-6)
        ours = jax.grad(lambda w: f(w, y).sum())(w)
        np.testing.assert_allclose(ours, jax.grad(lambda w: theirs(w, y).sum())(w), rtol=1e-5)
        np.testing.assert_allclose(jax.vmap(f, (None, 0))(w, y[None])[0], theirs(w, y), rtol=1e-6)
    with jax.disable_jit():
        np.testing.assert_allclose(f(w, y), theirs(w, y), rtol=1e-6)
    assert machine.tried == []


@pytest.mark.rest
def test_under_transforms_it_is_whole_after_the_choice_too(machine):
    """The choice is of calls that stand alone."""
    machine.rates = FAST_64
    f, theirs = optimize(**AUTO)(residual), jax.jit(jax.vmap(residual, (None, 0)))
    learnt(f, W, ROWS)
    w, y = array(W), array(ROWS)
    machine.runs.clear()
    np.testing.assert_allclose(jax.jit(lambda: f(w, y))(), theirs(w, y), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f, (None, 0))(w, y[None])[0], theirs(w, y), rtol=1e-6)
    assert machine.tried == []


@pytest.mark.rest
def test_derivatives_learn_too(machine):
    """Each is a program of its own."""
    machine.rates = FAST_64

    def loss(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum((jnp.sin(w) - y) ** 2)

    f = optimize(**AUTO)(loss)
    for _ in range(MANY):
        gradient = f.grad(W, ROWS, wrt="w")
    expected = 2 * (np.sin(W) - ROWS) * np.cos(W)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
    assert "64 at a time" in machine.tried


@pytest.mark.rest
def test_a_check_raises_its_own_error_in_any_call(machine):
    """In those that try, in that which decides, and in later ones."""
    machine.rates = FAST_64

    def checked(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return eqx.error_if(jnp.sqrt(y), y[0] < 0, "the first is negative")

    f, good = optimize(**AUTO)(checked), np.abs(ROWS)
    bad = good.copy()
    bad[::7, 0] = -1
    for _ in range(20):
        np.testing.assert_allclose(f(good), np.sqrt(good), rtol=1e-6)
        with pytest.raises(eqx.EquinoxRuntimeError, match="the first is negative"):
            f(bad)
    assert auto_line(f, good).startswith("64 at a time: ")


def test_a_way_that_fails_by_itself_is_dropped(machine, monkeypatch):
    """As with too little memory: the call has the result of the whole."""
    run = AutoCalls.run_way

    def failing(calls, way, arrays):
        if str(way) == "64 at a time":
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return run(calls, way, arrays)

    monkeypatch.setattr(AutoCalls, "run_way", failing)
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert auto_line(f, W, ROWS).startswith("whole in threads: ")
    assert "64 at a time: JaxRuntimeError" in auto_line(f, W, ROWS)


@pytest.mark.rest
def test_a_nan_is_named(machine):
    """`debug_nans` looks at the result of the call."""
    machine.rates = FAST_64

    def root(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.log(y)

    f = optimize(**AUTO, debug_nans=True)(root)
    for _ in range(MANY):
        with pytest.raises(NonFiniteError, match="log"):
            f(ROWS)


@pytest.mark.rest
def test_numbers_that_the_body_needs_are_static(machine):
    """As without `auto`."""
    machine.rates = FAST_64

    @optimize(**AUTO)
    def powers(y: Float[Array, "n"], factor: float, times):
        for _ in range(times):
            y = y * factor
        return y

    for times in (2, 3) * 20:
        np.testing.assert_allclose(powers(ROWS, 2.0, times), ROWS * 2.0**times, rtol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [
        {"compiler": "fast"},
        {"contracts": False},
        {"precision": "f64"},
        {"on_trace_error": "eager"},
        {"remat": True},
        {"static": "w"},
    ],
    ids=str,
)
def test_other_options_act_as_usual(machine, options):
    """Results are those of the same function without `auto`."""
    machine.rates = FAST_64
    f = optimize(**AUTO, **options)(residual)
    g = optimize(vmap="row", **options)(residual)
    np.testing.assert_allclose(learnt(f, W, ROWS), g(W, ROWS), rtol=1e-6)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


@pytest.mark.rest
def test_compiled_ahead_it_still_learns(machine):
    """The first call has no compile, so that of `compile` counts."""
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    f.compile(W, ROWS)
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


@pytest.mark.rest
def test_threads_of_the_user_do_not_wait_for_a_trial(machine):
    """One tries, and the others are answered by the whole."""
    machine.rates, machine.compiling = FAST_64, 10_000.0
    f, barrier = optimize(**AUTO)(residual), threading.Barrier(4)

    def call(number):
        barrier.wait(patience(60))
        return [f(W, ROWS + np.float32(number)) for _ in range(MANY)]

    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(call, range(4)))
    for number, some in enumerate(outs):
        for out in some:
            want = by_hand(W, ROWS + np.float32(number))
            np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-5)
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


@pytest.mark.rest
@pytest.mark.parametrize("sizes", [(160,), (160, 130, 100)])
def test_six_threads_that_learn_at_once_see_one_choice_for_a_size(machine, mark, sizes):
    """A value changes once at most in each thread, and to the same."""
    machine.rates = FAST_64
    f, barrier = optimize(**AUTO)(residual), threading.Barrier(6)

    def call(_):
        barrier.wait(patience(60))
        rows = {size: ROWS[:size] for size in sizes}
        return {size: [mark(f(W, rows[size]), rows[size]) for _ in range(MANY)] for size in sizes}

    with ThreadPoolExecutor(6) as pool:
        outs = list(pool.map(call, range(6)))
    for size in sizes:
        for out in outs:
            kinds = out[size]
            assert set(kinds) <= {0, 64}
            assert sum(a != b for a, b in pairwise(kinds)) <= 1
        last = learnt(f, W, ROWS[:size])
        assert mark(last, ROWS[:size]) == 64


@pytest.mark.rest
def test_an_axis_that_cannot_be_cut_stays_whole(machine):
    """A width without a proof is dropped, and says so."""

    def spectrum(y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.abs(jnp.fft.fft(y))

    f = optimize(**AUTO)(spectrum)
    np.testing.assert_allclose(learnt(f, ROWS), np.abs(np.fft.fft(ROWS)), rtol=1e-4, atol=1e-5)


@pytest.mark.rest
def test_results_of_several_kinds_keep_their_types(machine):
    """Integers, booleans, static values beside them, one of NumPy, and an empty array."""
    machine.rates = FAST_64

    def several(y: Float[Array, "n"]):
        arrays = {"argmax": jnp.argmax(y), "positive": y > 0, "none": y[:0], "two": np.ones(2)}
        return arrays | {"name": "row", "number": 1.5, "nothing": None}

    f, g = optimize(**AUTO)(several), optimize(vmap="row")(several)
    out, want = learnt(f, ROWS), g(ROWS)
    assert (out["name"], out["number"], out["nothing"]) == ("row", 1.5, None)
    for name in ("argmax", "positive", "none", "two"):
        assert out[name].dtype == want[name].dtype
        np.testing.assert_array_equal(out[name], want[name])
    assert auto_line(f, ROWS).startswith("64 at a time: ")


def test_with_a_real_clock_results_are_the_same():
    """Whatever is chosen."""
    f = optimize(**AUTO)(residual)
    for _ in range(4):
        np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)


def test_configure_and_the_variable_turn_it_on(machine):
    """For functions with `vmap` whose decorator does not say; an option comes first."""
    with configured(auto=True):
        f = optimize(vmap="row")(residual)
        g = optimize(vmap="row", auto=False)(residual)
        learnt(f, W, ROWS)
        assert machine.tried
        g(W, ROWS)
        assert not any(line["name"] == "auto" for line in g.plan(W, ROWS).to_dict()["decisions"])
    assert not any(line["name"] == "auto" for line in f.plan(W, ROWS).to_dict()["decisions"])

    for text, options in (("1", True), ("exact", "exact"), ("0", False)):
        with environment(JITNEY_AUTO=text):
            h = optimize(vmap="row")(residual)
            assert h.options.settled().auto == options
    optimize(vmap="row")(residual)


def test_what_is_not_a_choice_is_refused(machine):
    """At the decorator, in `configure`, and in the variable."""
    with pytest.raises(jitney.errors.OptionError, match="auto='always' is not a choice"):
        optimize(vmap="row", auto="always")(residual)
    with pytest.raises(jitney.errors.OptionError, match="auto=2 is not understood"):
        jitney.configure(auto=2)
    with environment(JITNEY_AUTO="always"), pytest.raises(jitney.errors.OptionError, match="exact"):
        optimize(vmap="row")(residual)
    optimize(vmap="row")(residual)
