"""Each seeded cause is named, and nothing else; its remedy spares the program."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney.types import Cause

from ._catalogue import CASES, ones


def causes_of(programs):
    """Those of the last new program."""
    return (programs[-1] if isinstance(programs, list) else programs).stats.causes[-1]


def programs_of(programs):
    """How many there were."""
    return sum(
        len(program.stats.causes)
        for program in (programs if isinstance(programs, list) else [programs])
    )


def as_expected(cause: Cause, expected):
    return all(
        want in ("...", is_)
        for want, is_ in zip(
            expected, (cause.kind, cause.argument, cause.axis, cause.old, cause.new), strict=True
        )
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_cause_is_named_and_nothing_else(case):
    """Kind, argument, axis, old and new value."""
    found = causes_of(case.before())
    assert len(found) == len(case.expected), found
    for expected in case.expected:
        assert any(as_expected(cause, expected) for cause in found), found
    assert any(case.remedy in cause.remedy for cause in found), found


@pytest.mark.core(
    "a size along a named axis",
    "a shape without names",
    "another bucket",
    "an axis of vmap",
    "a dtype",
    "a weak type",
    "a static int",
    "a static list",
    "a keyword",
    "a key of a dict",
    "a closure that is decorated anew",
    "a matmul precision",
    "clear_cache",
    "a number for an array",
)
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.after is not None], ids=lambda case: case.name
)
def test_its_remedy_spares_the_program(case):
    """Two programs before, one after."""
    assert case.after is not None
    assert programs_of(case.before()) == 2
    assert programs_of(case.after()) == 1


def test_there_are_forty_of_them():
    """And none is unknown."""
    assert len(CASES) >= 40
    assert "unknown" not in {expected[0] for case in CASES for expected in case.expected}


@pytest.mark.filterwarnings("ignore:.*takes its 3rd value")
def test_too_many_static_values(monkeypatch):
    """The oldest program goes, and is told when it is made again."""
    monkeypatch.setattr("jitney._program.tables.entries.MAX_ENTRIES", 2)
    monkeypatch.setattr("jitney._view.layout.MAX_ENTRIES", 2)
    program = jitney.optimize(lambda x, n: x + n)
    for n in (1, 2, 3, 1):
        program(ones(3), n)
    (found,) = program.stats.causes[-1]
    assert found.kind == "cache eviction"
    assert "sets of static values" in str(found)
    assert "as an array" in found.remedy


def test_a_trace_that_failed_is_no_program():
    """The same call afterwards is told apart from an unknown cause."""
    works = []

    @jitney.optimize
    def f(x):
        if not works:
            raise ValueError
        return x * 2

    with pytest.raises(ValueError):
        f(ones(3))
    works.append(1)
    f(ones(3))
    assert [[cause.kind for cause in each] for each in f.stats.causes] == [
        ["first call"],
        ["decision"],
    ]


def test_seconds_are_of_the_whole_program():
    """Of the trace and the compile; a compile without a trace has its own."""
    program = jitney.optimize(lambda x: x * 3)
    for x in (jnp.ones(3), jax.device_put(jnp.ones(3), jax.devices()[0])):
        program(x)
    stats = program.stats
    spent = [each[0].seconds for each in stats.causes]
    assert len(spent) == 2
    assert min(spent) > 0
    np.testing.assert_allclose(
        sum(spent), stats.trace_seconds + stats.lower_seconds + stats.compile_seconds
    )


def test_what_is_made_ahead_of_time_is_compiled_for_its_trace():
    """`lower`, and then a call: one program, with one cause."""
    program = jitney.optimize(lambda x: x * 5)
    for n in (3, 4):
        program.lower(ones(n))
        program(ones(n))
    assert [[cause.kind for cause in each] for each in program.stats.causes] == [
        ["first call"],
        ["shape"],
    ]


@pytest.mark.filterwarnings("ignore:.*takes its 3rd value")
def test_the_remedies_stand_in_stats_by_what_they_cost():
    """As text, and as data."""
    program = jitney.optimize(lambda x, n: x + n)
    for n in (1, 2, 3):
        program(ones(3, dtype=np.int32), n)
    assert 'annotate n: Int[ArrayLike, ""]' in str(program.stats)
    assert json.loads(json.dumps(program.stats.to_dict()["causes"]))[1][0]["kind"] == "static value"
