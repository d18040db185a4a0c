"""What `jitney.watch` sees of JAX's work, beside a listener of the tests' own; and what
`jitney.no_compiles` forbids.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney import optimize
from jitney.errors import CompileError
from tests._monitor import listening
from tests._patience import patience


def fresh(name="step"):
    """A function that JAX has not seen."""

    def step(x):
        return jnp.linalg.norm(jnp.sin(x))

    step.__name__ = name
    return jax.jit(step)


ONES = [np.ones(n, np.float32) for n in range(9)]


def test_all_compiles_are_seen_by_function_and_line():
    """Of code that is not decorated; a warm call reports nothing."""
    step = fresh()
    with listening() as heard, jitney.watch() as seen:
        for x in (ONES[3], ONES[4], ONES[3]):
            step(x)
    assert seen.lowers == heard.count("lower") == 2
    assert seen.compiles + seen.cache_hits == 2
    (work,) = [work for work in seen.work if work.name == "step"]
    assert work.traces == 2
    assert work.place.startswith("test_jax_work.py:")
    with jitney.watch() as warm:
        step(ONES[3])
    assert (warm.work, warm.traces, warm.seconds) == ((), 0, 0)


def test_decorated_functions_are_seen_too():
    """By their names."""
    f = optimize(lambda x: x * 3)
    f.stats  # noqa: B018
    with jitney.watch() as seen:
        f(ONES[3])
    assert [work.traces for work in seen.work if "lambda" in work.name] == [1]


def test_each_second_is_counted_once():
    """What is compiled while something is traced is not counted in both: all together take no
    longer than the clock says.
    """
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, a: jnp.linalg.inv(a @ a), x))

    @jax.jit
    def outer(x):
        with jax.ensure_compile_time_eval():
            slow(np.eye(5, dtype=np.float32))
        return x * 2

    began = time.time()
    with jitney.watch() as seen:
        outer(ONES[5])
    assert 0 < seen.seconds <= time.time() - began
    assert sum(work.compile_seconds for work in seen.work if work.name != "outer") > 0


def test_programs_of_the_persistent_cache_are_hits():
    """And no compiles."""
    body = lambda x: jnp.cosh(x) * 1.25
    jax.jit(body)(ONES[7])
    jax.clear_caches()
    with jitney.watch() as seen:
        jax.jit(body)(ONES[7])
    assert (seen.compiles, seen.cache_hits) == (0, 1)


def test_other_threads_are_seen():
    """The counts of all threads add up."""
    steps = [fresh(f"step{i}") for i in range(4)]
    with jitney.watch() as seen:
        threads = [threading.Thread(target=step, args=(ONES[3],)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {f"step{i}" for i in range(4)} <= {work.name for work in seen.work}
    assert seen.lowers == 4


def test_watches_nest_and_go_on():
    """Each sees what happened while it was entered."""
    step, outer = fresh(), jitney.watch()
    with outer:
        step(ONES[2])
        with jitney.watch() as inner, outer:
            step(ONES[3])
        step(ONES[4])
    step(ONES[5])
    with outer:
        step(ONES[6])
    assert (inner.lowers, outer.lowers) == (1, 4)


def test_a_decorated_function_keeps_what_was_seen():
    """Over all its calls."""

    @jitney.watch()
    def train(x):
        """Train."""
        return step(x)

    step = fresh()
    train(ONES[3])
    train(ONES[4])
    assert train.watch.lowers == 2
    assert train.__doc__ == "Train."


def test_what_was_seen_is_shown_as_a_table_and_as_data():
    """Transfers are unknown, which is not none."""
    with jitney.watch() as seen:
        fresh("shown")(ONES[3])
    assert "shown" in str(seen) == repr(seen)
    assert "transfers unknown" in str(seen)
    assert "shown" in seen._repr_html_()
    data = json.loads(json.dumps(seen.to_dict()))
    assert data["transfers"] is None
    assert "shown" in [work["name"] for work in data["work"]]


def test_the_table_of_many_functions_ends():
    """With what the rest come to."""
    with jitney.watch() as seen:
        for i in range(25):
            seen.saw("compiles", f"f{i}", "fit.py:1 (fit)", 1.0, hit=False)
    assert "and 5 more" in str(seen)


@pytest.mark.parametrize(
    "decorate",
    [lambda _: fresh("step"), lambda _: optimize(lambda x: jnp.sin(x) * 2)],
    ids=["jit", "optimize"],
)
def test_a_compile_that_is_forbidden_is_an_error(decorate):
    """With the name and the line; a warm call passes, and afterwards all is as before."""
    step = decorate(None)
    want = step(ONES[3])
    with jitney.no_compiles():
        np.testing.assert_array_equal(step(ONES[3]), want)
        with pytest.raises(CompileError, match=r"at test_jax_work.py:\d+ (.|\n)*no_compiles"):
            step(ONES[4])
    step(ONES[4])
    with jitney.watch() as seen:
        step(ONES[4])
    assert seen.work == ()


def test_other_threads_may_compile():
    """What is forbidden is forbidden to one thread."""
    step, failed = fresh(), []

    def elsewhere():
        try:
            step(ONES[3])
        except CompileError as error:
            failed.append(error)

    with jitney.no_compiles():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert not failed


def test_threads_may_share_what_forbids_compiling():
    """Each leaves what it has entered itself, in whatever order they leave."""
    forbids, both = jitney.no_compiles(), threading.Barrier(2, timeout=patience(30))

    def elsewhere():
        with forbids:
            both.wait()

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(elsewhere)
        with forbids:
            both.wait()
            left.result()
    fresh()(ONES[3])


def test_a_function_may_be_forbidden_to_compile():
    """And one that it calls in turn."""
    step = fresh()

    @jitney.no_compiles()
    def fit(x):
        return step(x)

    for _ in range(2):
        with pytest.raises(CompileError, match="step"):
            fit(ONES[3])
    step(ONES[3])
    fit(ONES[3])
