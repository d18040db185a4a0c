"""The pytest plugin, in runs of its own."""

import tomllib
from pathlib import Path

import pytest

import pytest_jitney

PROGRAM = """
    import jax, jax.numpy as jnp, numpy as np, pytest
    X = np.ones((64, 64), np.float32)
    def fresh():
        return jax.jit(lambda x: jnp.linalg.norm(jnp.sort(jnp.sin(x), axis=0)))
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    """The tests in this process, with the plugin and no others that are installed."""
    pytester.makepyfile(PROGRAM + tests)
    return pytester.runpytest_inprocess(
        "-p", "pytest_jitney", "-p", "no:cacheprovider", "--strict-markers", *options
    )


def test_pytest_finds_the_plugin():
    """By the entry point of the wheel, which is this module."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"pytest_jitney": pytest_jitney.__name__}


def test_nothing_of_jax_is_imported_unless_it_is_used(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """A project that knows nothing of jitney collects and runs as fast as before."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(pytest_jitney.__file__).parent))
    pytester.makepyfile("""
        import sys
        def test_other():
            assert "pytest_jitney" in sys.modules
            assert not {"jax", "jitney", "numpy"} & set(sys.modules)
        """)
    pytester.runpytest_subprocess("-p", "pytest_jitney", "--strict-markers").assert_outcomes(
        passed=1
    )


def test_the_file_of_a_benchmark_has_the_counts(pytester: pytest.Pytester):
    """Where a test has the fixture of pytest-benchmark too, in either order."""
    result = run(
        pytester,
        """
    SEEN = {}
    class Benchmark:
        extra_info = SEEN
    @pytest.fixture
    def benchmark():
        return Benchmark()
    def test_one(compiles, benchmark):
        fresh()(X)
    def test_two():
        assert SEEN["jitney"]["compiles"] == 1
    """,
    )
    result.assert_outcomes(passed=2)


def test_the_fixture_watches_the_test(pytester: pytest.Pytester):
    """From where it is asked for."""
    result = run(
        pytester,
        """
    def test_one(compiles):
        step = fresh()
        step(X), step(X)
        assert (compiles.lowers, compiles.traces) == (1, 1)
        step(X[:5])
        assert compiles.lowers == 2
    """,
    )
    result.assert_outcomes(passed=1)


def test_a_budget_is_held(pytester: pytest.Pytester):
    """Fixtures are not counted, nor what is traced inside of a program; the marker nearest to the
    test wins, one limit at a time.
    """
    result = run(
        pytester,
        """
    pytestmark = pytest.mark.budget(compiles=0, temp_mb=1)
    @pytest.fixture
    def warm():
        step = fresh()
        step(X)
        return step
    def test_warm(warm):
        warm(X)
    @pytest.mark.budget(compiles=1, traces=1)
    def test_cold():
        fresh()(X)
    """,
    )
    result.assert_outcomes(passed=2)


def test_what_is_over_its_budget_fails(pytester: pytest.Pytester):
    """With each figure past its limit, and what was compiled where."""
    result = run(
        pytester,
        """
    @pytest.mark.budget(compiles=1, traces=1, temp_mb=0.01)
    def test_many():
        step = fresh()
        step(X), step(X[:60])
    """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r".*test_many: over its budget: 2 compiles, where 1 are allowed; 2 traces, where 1 are"
            r" allowed; "
            r"0\.0\d+ MB of temporaries in .*lambda.* at"
            r" test_what_is_over_its_budget_fails\.py:\d+.*where 0\.01 are allowed\.",
            r"Fix: .*",
            r".*lambda.*test_what_is_over_its_budget_fails\.py:\d+ \(test_many\).*",
        ]
    )


def test_what_is_said_over_a_budget_helps(pytester: pytest.Pytester):
    """Sizes that share a program under `pad=`, and a budget that allows more."""
    result = run(
        pytester,
        """
    import jitney
    from jaxtyping import Array, Float
    def total(x: Float[Array, "n m"]):
        return jnp.sum(x**2)
    @pytest.mark.budget(compiles=1)
    def test_padded():
        step = jitney.optimize(pad={"n": [64]})(total)
        assert [float(step(X)), float(step(X[:60]))] == [64 * 64, 60 * 64]
    @pytest.mark.budget(compiles=2)
    def test_more():
        step = fresh()
        step(X), step(X[:60])
    """,
    )
    result.assert_outcomes(passed=2)


def test_a_test_that_fails_says_why_and_not_its_budget(pytester: pytest.Pytester):
    """Its own error is the cause."""
    result = run(
        pytester,
        """
    @pytest.mark.budget(compiles=0)
    def test_wrong():
        fresh()(X)
        assert 1 == 2
    """,
    )
    result.assert_outcomes(failed=1)
    assert "budget:" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("transfers=0", "`transfers` cannot be counted"),
        ("compile=1", "`compile` is not known"),
        ("3", "it takes limits by name"),
        ("", "it takes limits by name"),
        ("traces='few'", "traces='few' is not a limit"),
        ("compiles=True", "compiles=True is not a limit"),
    ],
)
def test_a_budget_that_makes_no_sense_is_an_error_of_its_test(
    pytester: pytest.Pytester, budget: str, told: str
):
    """What cannot be seen is refused: a limit on it would always hold."""
    result = run(
        pytester, f"\n    @pytest.mark.budget({budget})\n    def test_one():\n        pass\n"
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*@pytest.mark.budget: {told}*"])


def test_the_report_lists_seconds_by_test(pytester: pytest.Pytester):
    """Fixtures included, the slowest first; a test that compiles nothing is not there."""
    result = run(
        pytester,
        """
    @pytest.fixture
    def warm():
        step = fresh()
        step(X)
        return step
    def test_fixture(warm):
        warm(X)
    def test_idle():
        pass
    """,
        "--jitney-report",
    )
    result.assert_outcomes(passed=2)
    result.stdout.re_match_lines(
        [
            r"=+ seconds of tracing.*",
            r" +seconds +compiled +cached",
            r" +\d+\.\d\d +\d+ +\d+  .*::test_fixture",
        ]
    )
    result.stdout.re_match_lines([r" +\d+\.\d\d +\d+ +\d+  in 1 tests"])


def test_without_the_option_there_is_no_report(pytester: pytest.Pytester):
    """Nothing is on unless it is asked for."""
    result = run(pytester, "\n    def test_one():\n        fresh()(X)\n")
    result.assert_outcomes(passed=1)
    assert "tracing" not in result.stdout.str()
