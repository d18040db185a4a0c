"""What `jitney.measure` times and says. Work is counted, not clocked; where a clock decides, the
work differs twenty times.
"""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney._measured.measure import Measurement, Timing
from jitney._measured.rounds import one_round
from jitney._measured.verdict import Verdict
from jitney.errors import OptionError, VerificationError
from tests._arrays import array

pytestmark = pytest.mark.real_xla

X = np.linspace(0.0, 1.0, 64, dtype=np.float32)
QUICK = {"seconds": 0.02, "rounds": 8}


def spin(times: int):
    """A function that counts its calls, whose time is that of a loop."""

    def run(x):
        run.calls += 1
        for _ in range(times):
            pass
        return x

    run.calls = 0
    return run


@pytest.mark.rest
def test_what_does_less_is_faster():
    """Twenty times the work; the interval of the ratio is on its side, and reversed it is
    slower.
    """
    found = jitney.measure(spin(1000), 1.0, against=spin(20_000), seconds=0.1)
    assert found.verdict.outcome == "faster"
    assert 2 < found.verdict.low <= found.verdict.high
    assert (
        jitney.measure(spin(20_000), 1.0, against=spin(1000), seconds=0.1).verdict.outcome
        == "slower"
    )


def test_results_are_compared_first():
    """A difference raises before anything is called warm: with where, and both values."""
    f, g = spin(1), spin(1)
    with pytest.raises(
        VerificationError,
        match=r"result\[3\] is 3\.0, and 4\.0: 1\.4e-01 of the largest element, where 1\.0e-05",
    ):
        jitney.measure(
            lambda x: f(x), np.arange(8, dtype=np.float32), against=lambda x: g(x).at[3].add(1.0)
        )
    assert (f.calls, g.calls) == (1, 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (array(np.ones(3)), array(np.ones(4)), r"float32\[3\], and float32\[4\]"),
        (array(np.ones(3)), array(np.ones(3), int), r"float32\[3\], and int32\[3\]"),
        ((array(np.ones(3)),), [array(np.ones(3))], "built differently"),
        (array([0, 1, 2]), array([0, 1, 9]), r"result\[2\] is 2, and 9"),
        (
            {"a": array([1.0, np.nan])},
            {"a": array([1.0, 2.0])},
            r"result\['a'\]\[1\] is nan, and 2\.0",
        ),
        ("adam", "sgd", "'adam', and 'sgd'"),
    ],
)
def test_other_results_are_a_difference(ours, theirs, why):
    """Of shape, kind, structure, value; whole numbers have no tolerance."""
    with pytest.raises(VerificationError, match=why):
        jitney.measure(lambda: ours, against=lambda: theirs, **QUICK)


@pytest.mark.rest
def test_equal_results_pass():
    """NaN where the other has it, keys, numbers of Python, and another width of the same kind, by
    the coarser one's digits.
    """
    one = {
        "nan": jnp.array([1.0, jnp.nan, jnp.inf]),
        "key": jax.random.key(0),
        "n": 3,
        "low": jnp.ones(3, jnp.bfloat16),
        "none": None,
    }
    two = {**one, "low": np.ones(3), "n": np.int32(3)}
    assert jitney.measure(lambda: one, against=lambda: two, **QUICK).apart == 0.0


@pytest.mark.rest
def test_the_tolerance_is_a_part_of_the_largest_element():
    """What a small element is off by, beside a large one, is rounding; `math.inf` compares
    nothing.
    """
    f, g = (lambda: np.array([1e6, 1.0])), (lambda: np.array([1e6, 1.1]))
    with pytest.raises(VerificationError, match=r"1\.0e-07"):
        jitney.measure(f, against=g, **QUICK)
    np.testing.assert_allclose(jitney.measure(f, against=g, tolerance=1e-6, **QUICK).apart, 1e-7)
    assert jitney.measure(f, against=lambda: "other", tolerance=math.inf, **QUICK).apart is None


@pytest.mark.rest
def test_compiling_is_in_the_first_call_alone():
    """With how many programs; a function that has been called before has none."""
    f = jax.jit(lambda x: jnp.tanh(x) * 1.5)
    found = jitney.measure(f, X, **QUICK).of
    assert found.compiles + found.cache_hits == 1
    assert 0 < found.work_seconds < found.first_seconds
    with jitney.watch() as seen:
        again = jitney.measure(f, X, **QUICK).of
    assert (again.compiles, again.cache_hits, again.work_seconds) == (0, 0, 0)
    assert seen.work == ()


@pytest.mark.rest
def test_arrays_of_the_host_are_put_on_the_device_before():
    """Once, and timed apart; `on_device=False` leaves them to each call."""
    kinds = []

    def f(x, y, mode):
        kinds.append((type(x), type(y), mode))
        return x

    found = jitney.measure(f, X, kwargs={"y": jnp.ones(3), "mode": "fast"}, **QUICK)
    assert (found.transfer_arrays, found.transfer_bytes) == (1, X.nbytes)
    assert found.transfer_seconds > 0
    assert {(issubclass(x, jax.Array), issubclass(y, jax.Array), mode) for x, y, mode in kinds} == {
        (True, True, "fast")
    }
    kinds.clear()
    found = jitney.measure(f, X, jnp.ones(3), "fast", on_device=False, **QUICK)
    assert {x for x, _, _ in kinds} == {np.ndarray}
    assert (found.transfer_arrays, found.transfer_seconds) == (0, 0)


@pytest.mark.rest
def test_donated_arguments_are_copied():
    """For each call of both, and the caller's own stay."""
    x = jnp.ones(8)
    found = jitney.measure(
        jax.jit(lambda x: x + 1, donate_argnums=0), x, against=jax.jit(lambda x: x + 1), **QUICK
    )
    assert found.of.copies
    assert found.against.copies
    assert not x.is_deleted()
    assert "copied, untimed" in str(found)


@pytest.mark.rest
def test_each_result_is_waited_for():
    """All of its leaves."""
    waited = []

    class Leaf:
        def block_until_ready(self):
            waited.append(self)
            return self

    made = []

    def f():
        made.append(Leaf())
        return {"a": made[-1]}

    jitney.measure(f, **QUICK)
    assert waited == made


def test_ways_are_called_in_turn():
    """A B B A, and the other way round in the next round; of the two laps the lesser counts."""
    order = []

    class Lap:
        def __init__(self, name, *seconds):
            self.name, self.seconds = name, list(seconds)

        def lap(self):
            order.append(self.name)
            return self.seconds.pop(0)

    ways = [Lap("a", 3.0, 1.0, 5.0, 6.0), Lap("b", 2.0, 9.0, 8.0, 7.0)]
    assert one_round(ways, turned=False) == [1.0, 2.0]
    assert one_round(ways, turned=True) == [5.0, 7.0]
    assert "".join(order) == "abbabaab"


@pytest.mark.rest
def test_one_function_alone_has_no_verdict():
    """It has its times."""
    found = jitney.measure(spin(10), 1, **QUICK)
    assert (found.against, found.verdict, found.apart, found.ratios) == (None, None, None, ())
    low, middle, high = found.of.quartiles
    assert 0 < low <= middle <= high
    assert str(found).startswith("run takes ")


@pytest.mark.rest
def test_it_says_when_the_compile_is_repaid():
    """By the medians of this measurement; not where a function was compiled before, was not
    compiled, or is not faster.
    """
    timing = lambda work, seconds, compiles: Timing(
        "f", 1.0, work, compiles, 0, (seconds,) * 9, 1, copies=False
    )
    faster = Verdict("faster", 2.0, 2.0)
    calls = lambda ours, theirs, verdict=faster: Measurement(ours, theirs, verdict, 0.0, 0.0, 0, 0)
    slow = timing(0.0, 3.0, 0)
    assert calls(timing(10.0, 1.0, 1), slow).repaid_after == 5
    assert calls(timing(10.0, 1.0, 1), timing(9.0, 3.0, 4)).repaid_after == 1
    assert calls(timing(2.0, 1.0, 1), timing(9.0, 3.0, 4)).repaid_after == 0
    words = " ".join(str(calls(timing(10.0, 1.0, 1), slow)).split())
    assert "what it compiled repaid after 5 calls" in words
    known = calls(timing(0.0, 1.0, 0), slow)
    assert known.repaid_after is None
    assert "unknown: it was compiled before" in str(known)
    slower = calls(timing(10.0, 3.0, 1), timing(0.0, 1.0, 0), Verdict("slower", 0.3, 0.4))
    assert slower.repaid_after is None
    assert "repaid" not in str(slower)
    assert slower.to_dict()["repaid_after"] is None
    assert calls(slow, None, None).repaid_after is None


@pytest.mark.rest
def test_it_is_a_table_and_data():
    """The verdict stands first; JSON can hold it."""
    found = jitney.measure(spin(10), 1, against=spin(200), **QUICK)
    assert str(found) == repr(found)
    assert str(found).startswith("run (1), against run (2): ")
    assert "warm call" in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict()))
    assert len(data["ratios"]) == len(data["of"]["seconds"]) >= 8
    assert data["verdict"]["text"] == str(found.verdict)


@pytest.mark.rest
def test_programs_and_modules_are_measured():
    """A decorated function, on a module, against `eqx.filter_jit`."""
    model = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    apply = lambda model, x: model(x)
    found = jitney.measure(
        jitney.optimize(apply), model, X[:2], against=eqx.filter_jit(apply), **QUICK
    )
    assert found.apart < 1e-6


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seconds": 0}, "seconds=0"),
        ({"rounds": 0.5}, "rounds=0.5"),
        ({"tolerance": -1}, "tolerance=-1"),
        ({"on_device": "no"}, "on_device='no'"),
        ({"against": 3}, "`against` is 3"),
        ({"kwargs": [1]}, r"kwargs=\[1\]"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error(options, named):
    """With its name and value."""
    with pytest.raises(OptionError, match=named):
        jitney.measure(spin(1), 1, **options)


def test_what_cannot_be_called_is_no_function():
    """Nothing of Python's own is raised."""
    with pytest.raises(OptionError, match="`f` is 'residual'"):
        jitney.measure("residual", X)


def test_nothing_is_measured_inside_of_a_trace():
    """There arguments have no value."""
    with pytest.raises(OptionError, match="no value"):
        jax.jit(lambda x: jitney.measure(spin(1), x))(X)


@pytest.mark.rest
def test_a_program_that_is_a_constant_is_said_to_be_one():
    """With nothing that its arguments reach, in calls inside of it too; and nobody else."""
    w = jnp.ones((8, 8))
    inner = jax.jit(lambda x, y: (x * 2, y @ y))
    sides = {
        "no argument": (jax.jit(lambda: w @ w), ()),
        "another's result": (jax.jit(lambda x: inner(x, w)[1]), (w,)),
        "decorated": (jitney.optimize(lambda x: jnp.sin(w)), (w,)),
        "reached": (jax.jit(lambda x: inner(x, w)[0]), (w,)),
        "in a branch": (jax.jit(lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, w)), (w,)),
        "not compiled": (lambda: w @ w, ()),
    }
    found = {
        name: jitney.measure(f, *args, seconds=1e-3, rounds=1) for name, (f, args) in sides.items()
    }
    assert [name for name, each in found.items() if each.of.constant] == [
        "no argument",
        "another's result",
        "decorated",
    ]
    said = "no result depends on an array that it is given"
    assert [said in " ".join(str(each).split()) for each in found.values()] == [
        each.of.constant for each in found.values()
    ]
    assert sides["decorated"][0].stats.traces == 1
