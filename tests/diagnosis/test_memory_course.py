"""Memory over time, as `jitney.watch(memory=True)` shows it."""

import json
import re
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney._diagnosis.memory_course import draw, sparkline
from jitney.errors import MemoryWarning, OptionError
from jitney.types import MemoryCourse, MemoryPeak

MIB = 2**20


def hold(mib, seen=None):
    """Hold memory while a sample is taken."""
    held = np.ones(mib * MIB // 8)
    if seen is not None:
        seen._memory.sampler.sample()
    return held.sum()


def course(**changes):
    peak = MemoryPeak("the process", "fit.py:3 (fit)", 1.0, 300 * MIB, 100 * MIB, exact=True)
    points = ((0.0, 100 * MIB), (1.0, 300 * MIB), (2.0, 150 * MIB))
    given = {
        "source": "/proc",
        "seconds": 2.0,
        "points": points,
        "peak": peak,
        "highest": 300 * MIB,
        "devices": (),
        "compiling": (),
        "budget": None,
        "missed": 0,
    }
    return MemoryCourse(**{**given, **changes})


def test_the_peak_has_the_line_of_the_program():
    """What a function held comes on top of what was held before, and its line is named."""
    with jitney.watch(memory=True) as seen:
        hold(64, seen)
    peak = seen.memory.peak
    assert 62 * MIB < peak.added < 80 * MIB
    assert re.fullmatch(r"test_memory_course.py:\d+ \(hold\)", peak.place)
    assert seen.memory.highest >= peak.bytes


@pytest.mark.rest
def test_without_memory_nothing_is_sampled():
    """And nothing is in the table or the data."""
    with jitney.watch() as seen:
        jnp.ones(3)
    assert seen.memory is None
    assert "memory" not in seen.to_dict()


@pytest.mark.rest
def test_it_may_be_entered_again_and_goes_on():
    """Points of both blocks are in one course."""
    seen = jitney.watch(memory=True)
    with seen:
        pass
    first = len(seen.memory.points)
    with seen, seen:
        pass
    assert len(seen.memory.points) > first
    assert json.loads(json.dumps(seen.to_dict()))["memory"]["peak"]["of"] == "the process"


@pytest.mark.rest
def test_a_budget_warns_at_the_line():
    """While it runs, once."""
    seen = jitney.watch(memory="1MiB")
    with pytest.warns(MemoryWarning, match="The budget is 1 MiB") as told, seen:
        hold(8)
    assert len(told) == 1
    assert seen.memory.budget == MIB
    assert "exceeded" in str(seen)


@pytest.mark.rest
def test_a_budget_that_is_an_error_is_raised_where_the_block_ends():
    """The thread that samples would raise it to nobody; an error of the block comes first."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MemoryWarning, match="is 1 MiB"), jitney.watch(memory="1MiB"):
            hold(8)
        with pytest.raises(ZeroDivisionError), jitney.watch(memory="1MiB"):
            1 / 0  # noqa: B018


@pytest.mark.rest
@pytest.mark.parametrize("memory", ["much", 0, -1, None, "auto", 1.5])
def test_what_is_no_size_is_refused(memory):
    """With what it may be."""
    with pytest.raises(OptionError, match=re.escape(f"memory={memory!r}")):
        jitney.watch(memory=memory)


@pytest.mark.rest
def test_the_text_and_the_picture_show_the_course():
    """The peak is at its time, and what is unknown is named."""
    assert sparkline([(0.0, 100), (1.0, 300), (2.0, 150)]).startswith("▃" * 30 + "█" * 29 + "▅")
    whole = course(
        budget=200 * MIB,
        compiling=(MemoryPeak("step", "fit.py:9 (fit)", 0.5, 120 * MIB, 100 * MIB, exact=False),),
        missed=2,
    )
    shown = str(whole)
    for text in ("300 MiB", "fit.py:3 (fit)", "unknown", "compiling step", "+20 MiB", "exceeded"):
        assert text in shown
    drawn = whole.svg()
    assert drawn == draw(json.loads(json.dumps(whole.to_dict())))
    assert "fit.py:3 (fit)" in drawn
    nothing = course(peak=None, points=(), highest=None, source="pip install psutil")
    assert "pip install psutil" in str(nothing)
    assert nothing.svg().startswith("<svg")
