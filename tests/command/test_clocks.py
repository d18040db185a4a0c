"""`jitney run` says which of a program's own figures are wrong: those of calls that nobody waits
for.
"""

import json

import pytest

from jitney._command.findings.clocks import wrong_timings
from tests.command._scripts import watched

HEAD = """import functools, time, timeit
import jax, jax.numpy as jnp, numpy as np
from time import perf_counter as clock

@functools.partial(jax.jit, static_argnums=1)
def power(x, n):
    return x ** n

f = jax.jit(lambda x: x @ x)
x = jnp.ones((9, 9))
"""
WRONG = {
    "one call": "t = time.perf_counter()\ny = f(x)\nprint(time.perf_counter() - t)\n",
    "a loop": (
        "t = time.time()\nfor _ in range(9):\n    x = f(x)\nt1 = time.time()\nprint(t1 - t)\n"
    ),
    "in a function": "def bench():\n    t = clock()\n    power(x, 3)\n    return clock() - t\n",
    "timeit": "timeit.timeit(lambda: f(x), number=9)\n",
}
WELL = {
    "waited for": "t = clock()\ny = f(x).block_until_ready()\nprint(clock() - t)\n",
    "waited for behind": (
        "t = clock()\nfor _ in range(9):\n    y = f(x)\njax.block_until_ready(y)\nprint(clock() -"
        " t)\n"
    ),
    "read back": "t = clock()\ny = float(f(x)[0, 0])\nprint(clock() - t)\n",
    "decided by": "t = clock()\nwhile f(x)[0, 0] < 1:\n    x = f(x)\nprint(clock() - t)\n",
    "formatted": 't = clock()\ny = f"{f(x)}"\nprint(clock() - t)\n',
    "unknown": "t = clock()\ny = helper(f(x))\nprint(clock() - t)\n",
    "not compiled": "t = clock()\ny = np.sum(np.ones(3))\nprint(clock() - t)\n",
    "no figure": "t = clock()\ny = f(x)\nprint(clock())\n",
    "timeit that waits": "timeit.timeit(lambda: f(x).block_until_ready(), number=9)\n",
    "padded": (
        "import jitney\ng = jitney.optimize(pad={'n': 'pow2'})(f)\nt = clock()\ny ="
        " g(x)\nprint(clock() - t)\n"
    ),
}


def found(tmp_path, body):
    """In a file of the program's, from which JAX was called."""
    (tmp_path / "bench.py").write_text(HEAD + body)
    return wrong_timings(
        [{"frames": [(str(tmp_path / "bench.py"), 9, "<module>", 1)]}, {"kind": "hit"}]
    )


@pytest.mark.parametrize("name", WRONG)
def test_seconds_of_calls_that_nobody_waits_for_are_wrong(tmp_path, name):
    """With the lines, and what to write."""
    (figure,) = found(tmp_path, WRONG[name])
    assert "bench.py:" in figure.where
    assert figure.what.startswith("wrong: nothing waits for what ")
    assert figure.write.startswith("jax.block_until_ready(")


@pytest.mark.parametrize("name", WELL)
def test_nothing_is_said_where_something_may_wait(tmp_path, name):
    """Reads, decisions, calls that nobody knows."""
    assert found(tmp_path, WELL[name]) == ()


@pytest.mark.rest
def test_a_run_says_so(tmp_path):
    """On stderr, and as data."""
    (tmp_path / "bench.py").write_text(HEAD + WRONG["one call"])
    seen = watched(tmp_path, "bench.py", report=str(tmp_path / "out.json"))
    assert (
        "the program's own figures\n 1. bench.py:11 to 13: wrong: nothing waits for what f()"
        " returns" in seen.err
    )
    (told,) = json.loads((tmp_path / "out.json").read_text())["unwaited"]
    assert told["where"] == "bench.py:11 to 13"
