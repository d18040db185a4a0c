"""Which cases a run of the tests takes, how they are compiled, and what it prints: `_selection.py`,
`_compiles.py`, `_text/console.py`.
"""

import re

import jax
import numpy as np
import pytest

FLAG = "jax_disable_most_optimizations"

CASES = """
import jax
import numpy as np
import pytest

def test_alone(): pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.core), 3])
def test_of_which_one_is_named(n): pass

@pytest.mark.core("1-b", "2-*")
@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_which_ids_are_named(n, letter): pass

@pytest.mark.parametrize("n", [1, 2])
def test_with_all_its_cases(n): pass

@pytest.mark.rest
def test_left(): pass

@pytest.mark.sweep
@pytest.mark.parametrize("n", range(8))
def test_swept(n): pass

def test_quick(): assert jax.config.values["jax_disable_most_optimizations"]

@pytest.mark.skip(reason="the moon is full")
def test_skipped(): pass

@pytest.mark.skip(reason="the moon is full")
def test_skipped_too(): pass
"""
MARKERS = "\n".join(f"    {name}: one" for name in ("core", "rest", "sweep", "real_xla"))


@pytest.fixture
def run(pytester, monkeypatch):
    """Run the cases with options."""
    pytester.makefile(".ini", pytest=f"[pytest]\nmarkers =\n{MARKERS}\n")
    pytester.makepyfile(test_some=CASES)
    monkeypatch.delenv("JITNEY_NOX_SESSION", raising=False)
    plugins = [
        word for name in ("_selection", "_compiles", "_console") for word in ("-p", f"tests.{name}")
    ]
    before = jax.config.values[FLAG]

    def run(*options):
        done = pytester.runpytest_inprocess("-p", "no:cacheprovider", *plugins, *options)
        return done.stdout.str() + done.stderr.str()

    yield run
    jax.config.update(FLAG, before)


def names(output):
    return set(re.findall(r"test_some.py::(test_\S+)", output))


def test_the_core_and_the_rest_are_all(run):
    """The core: a test with all its cases, or those that are named; nothing that is marked `rest`
    or `sweep`.
    """
    core, rest, everything = (
        names(run("--co", "-q", *options)) for options in (["--core"], ["--rest"], [])
    )
    assert {
        name
        for name in core
        if name.startswith(("test_of", "test_with", "test_left", "test_swept"))
    } == {
        "test_of_which_one_is_named[2]",
        "test_of_which_ids_are_named[1-b]",
        "test_of_which_ids_are_named[2-a]",
        "test_of_which_ids_are_named[2-b]",
        "test_with_all_its_cases[1]",
        "test_with_all_its_cases[2]",
    }
    assert core | rest == everything
    assert not core & rest


def test_a_name_that_fits_no_case_is_an_error(run, pytester):
    """Else a case that is renamed would be gone from the core without a word."""
    pytester.makepyfile(test_some=CASES.replace('"1-b"', '"1-c"'))
    assert (
        "test_some.py::test_of_which_ids_are_named: no case has the id '1-c' that `core` names"
        in run("--core", "--co")
    )


def test_parts_are_all_and_do_not_overlap(run):
    """By a checksum of the id, so that a new case moves no other one."""
    parts = [names(run("--co", "-q", f"--part={k}/3")) for k in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(names(run("--co", "-q")))
    assert all(parts)


def test_sweeps_are_taken_in_parts_of_their_own(run):
    """All else runs."""
    everything = names(run("--co", "-q"))
    taken = names(run("--co", "-q", "--sweeps=1/4"))
    assert {name for name in everything - taken if not name.startswith("test_swept")} == set()
    assert 0 < len([name for name in taken if name.startswith("test_swept")]) < 8


def test_a_seed_is_an_order(run):
    """The same one each time."""
    first, again, other = (
        re.findall(r"::(test_\S+)", run("--co", "-q", f"--shuffle={seed}")) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert sorted(first) == sorted(other)


def test_a_part_that_is_none_is_a_sentence(run):
    """Not a traceback."""
    output = run("--part=5/4")
    assert "5/4 is not a part, as 1/4 is" in output
    assert "Traceback" not in output


def test_files_are_compiled_quickly_but_for_a_share(run):
    """A file has one way: that of its checksum."""
    verdicts = {"1 failed" in run("-k", "test_quick", f"--quick-xla={k}/2") for k in (1, 2)}
    assert verdicts == {True, False}


def test_skips_are_one_line_and_a_failure_says_how_to_run_it_alone(run):
    """With the options of the run that decide it."""
    output = run("--core", "--shuffle=3", "--tb=no")
    assert output.count("the moon is full") == 1
    assert "skipped: 2 the moon is full" in output
    assert "python -m pytest --shuffle=3 test_some.py::test_quick" in output


def test_in_a_session_of_nox_a_failure_is_run_alone_in_that_session(run, monkeypatch):
    """It has the environment, and the variables."""
    monkeypatch.setenv("JITNEY_NOX_SESSION", "tests-cpu8")
    assert "python -m nox -s tests-cpu8 -- test_some.py::test_quick" in run("--core", "--tb=no")


RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("again", [False, True])
def test_numbers_of_a_modules_generator_are_the_same_in_any_order(again):
    """Each test starts with those that the module was imported with (`conftest.py`)."""
    np.testing.assert_array_equal(RANDOM.normal(size=3), np.random.default_rng(3).normal(size=3))
