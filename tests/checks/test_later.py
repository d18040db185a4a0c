"""`runtime_checks="later"`: an error of a run-time check is raised by a later call, by `jitney.wait()`, or
at the end of Python, and never lost.
"""

import gc
import os
import subprocess
import sys
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import no_compiles, optimize
from jitney._checks.outstanding import MOST, OUTSTANDING
from jitney._checks.table import CheckTable
from tests._checked import V, X, positive, total
from tests._patience import patience
from tests._tracing import count_traces


def small(x: V) -> V:
    return eqx.error_if(x, jnp.any(x > 100), "must not be large")


def mapped(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sqrt(eqx.error_if(x, x < 0, "must not be negative"))


def waited(f, *args):
    """A call, and all that is left for later."""
    f(*args)
    jitney.wait()


def called(g, make):
    """Calls, until one raises or as many were made as are left for later."""
    for _ in range(MOST):
        g(make())


@pytest.fixture(autouse=True)
def nothing_left():
    """No test leaves an error to the next."""
    yield
    jitney.wait()


CALLS = {
    "plain": lambda: optimize(runtime_checks="later")(positive),
    "vmap": lambda: optimize(runtime_checks="later", vmap="n")(mapped),
    "pad": lambda: optimize(runtime_checks="later", pad={"n": [16]})(positive),
    "chunk": lambda: optimize(runtime_checks="later", chunk={"n": 4})(total),
    "f64": lambda: optimize(runtime_checks="later", precision="f64")(positive),
    "fast": lambda: optimize(runtime_checks="later", compiler="fast")(positive),
    "donate": lambda: (lambda f: lambda x: f(x + 0))(
        optimize(runtime_checks="later", donate="x")(positive)
    ),
    "no cache": lambda: optimize(runtime_checks="later", cache=False)(positive),
    "grad": lambda: optimize(runtime_checks="later", remat=True)(total).grad,
    "hessian": lambda: optimize(runtime_checks="later")(total).hessian,
}


@pytest.mark.core("plain", "chunk", "pad", "vmap", "grad", "no cache")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_check_fails_returns_and_wait_raises(name):
    """Twice, with a good call before each, whose numbers are those of a function that waits."""
    f = CALLS[name]()
    for _ in range(2):
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(f(X)))
        f(-X)
        with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
            jitney.wait()
        jitney.wait()


def test_a_later_call_of_any_such_function_raises():
    """Of this thread, and before anything of that call runs: its donated buffers are there
    still.
    """
    f, g = (
        optimize(runtime_checks="later")(positive),
        optimize(runtime_checks="later", donate="x")(small),
    )
    g(X + 0)
    f(-X)
    given = []
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        called(g, lambda: given.append(X + 1) or given[-1])
    assert not given[-1].is_deleted()
    assert all(x.is_deleted() for x in given[:-1])


def test_the_error_says_which_call_and_what_else_failed():
    """In notes, which a traceback shows."""
    f, g = optimize(runtime_checks="later")(positive), optimize(runtime_checks="later")(small)
    large = X * 1000
    f(X)
    g(X)
    made = f.stats.calls
    f(-X)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative") as caught:
        waited(g, large)
    late, *others = caught.value.__notes__
    assert (
        f'Found late, since runtime_checks="later": this is of call {made + 1} of {f.core.where}.'
        in late
    )
    if others:  # else the call of `g` has raised, and was not made
        assert others == [
            f"Failed behind it: call {g.stats.calls} of {g.core.where} (must not be large)."
        ]


def test_each_thread_has_its_own_and_wait_looks_at_all():
    """Calls of this thread do not raise the errors of one that has ended; they are raised in the
    order of the calls.
    """
    f, g = optimize(runtime_checks="later")(positive), optimize(runtime_checks="later")(small)
    f(X)
    g(X)
    for call in (lambda: g(X * 1000), lambda: f(-X)):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    for _ in range(2 * MOST):
        f(X)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be large") as caught:
        jitney.wait()
    assert f"of {f.core.where} (must not be negative)" in caught.value.__notes__[1]


def test_many_threads_leave_only_what_failed():
    """Numbers of calls that went well are dropped when the next thread comes."""
    f = optimize(runtime_checks="later")(positive)
    f(X)
    for _ in range(20):
        thread = threading.Thread(target=lambda: f(X).block_until_ready())
        thread.start()
        thread.join()
    assert len(OUTSTANDING._threads) < 15


def test_a_function_that_is_gone_is_heard_of():
    """What it takes to raise its error stays."""
    optimize(runtime_checks="later")(
        lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative")
    )(-X)
    gc.collect()
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        jitney.wait()


class Interrupting:
    """A number that somebody interrupts the wait for, once."""

    def __init__(self):
        self.left = 1

    def is_ready(self):
        return True

    def __array__(self, dtype=None, copy=None):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return np.zeros((), np.int32)


@pytest.mark.parametrize("by", ["wait", "call"])
def test_who_is_interrupted_while_he_waits_loses_nothing(by):
    """The error of a call before it is there for the next, if `wait` was interrupted or a call that
    looks.
    """
    f = optimize(runtime_checks="later")(positive)
    jax.block_until_ready(f(-X))
    OUTSTANDING.add(Interrupting(), CheckTable(), "f()", 1)
    with pytest.raises(KeyboardInterrupt):
        jitney.wait() if by == "wait" else called(f, lambda: X)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        jitney.wait()


class Stopping(CheckTable):
    """Checks of which somebody interrupts the error, once."""

    def fail(self, code):
        self.fail = super().fail
        raise SystemExit


def test_who_is_interrupted_while_an_error_is_made_loses_none():
    """Nobody has been told, so the next who waits is."""
    OUTSTANDING.add(np.int32(1 << 16), Stopping(), "f()", 1)
    OUTSTANDING.add(np.int32(0), CheckTable(), "g()", 1)
    with pytest.raises(SystemExit):
        jitney.wait()
    with pytest.raises(IndexError):  # there is no such check in that table
        jitney.wait()


def test_a_handler_of_signals_may_wait():
    """Also where it interrupts who looks: here it waits where the lock is held."""
    OUTSTANDING.wait()
    with OUTSTANDING._lock:
        jitney.wait()


def test_another_error_of_the_device_is_raised_late_too():
    """Here of a callback of the user's. It is raised once."""

    def fails(x):
        raise RuntimeError("no such file")

    @optimize(runtime_checks="later")
    def f(x: V) -> V:
        x = eqx.error_if(x, jnp.any(x < 0), "must not be negative")
        return jax.lax.cond(
            x[0] > 50,
            lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
            lambda x: x,
            x,
        )

    f(X)
    with pytest.raises(Exception, match="no such file"):
        waited(f, X * 100)


def test_a_late_error_traces_and_compiles_nothing():
    """The program is the one that a function that waits has."""
    body = count_traces(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative") + 2)
    f = optimize(body, cache=False, runtime_checks="later")
    negative = -X
    f.compile(X)
    with no_compiles(), pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        waited(f, negative)
    assert (body.traces, f.stats.compiles) == (1, 1)


@pytest.mark.core("{'debug_nans*")
@pytest.mark.parametrize(
    "options", [{"debug_nans": True}, {"verify": True, "pad": {"n": [16]}}], ids=str
)
def test_what_waits_anyway_raises_at_once(options):
    """And the plan says so."""
    f = optimize(runtime_checks="later", **options)(positive)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(-X)
    (line,) = (line for line in f.plan(X).lines if line.name == "late checks")
    assert not line.taken
    assert line.asked
    assert "waits" in line.why


@pytest.mark.core("jit")
@pytest.mark.parametrize("outer", [jax.jit, jax.grad, jax.vmap], ids=lambda f: f.__name__)
def test_under_an_outer_transform_the_check_is_equinoxs_own(outer):
    """It raises there, the plan says so, and nothing is left for later."""
    lines = []

    @optimize(runtime_checks="later")
    def f(x):
        return eqx.error_if(x, jnp.any(x < 0), "must not be negative").sum()

    def planned(x):
        lines.extend(line for line in f.plan(x).lines if line.name == "late checks")
        return f(x)

    f(X)
    with pytest.raises(Exception, match="must not be negative"):
        jax.block_until_ready(outer(planned)(-X))
    assert [(line.taken, line.why) for line in lines] == [
        (False, "under an outer trace checks are Equinox's own callbacks")
    ]


def test_the_plan_says_who_raises():
    """Of a function that waits there is nothing to say."""
    assert "late checks  a later call raises" in str(
        optimize(runtime_checks="later")(positive).plan(X)
    )
    (line,) = (line for line in optimize(positive).plan(X).lines if line.name == "late checks")
    assert (line.taken, line.asked) == (False, False)


SCRIPT = """
import os, sys, equinox as eqx, jax.numpy as jnp, jitney
f = jitney.optimize(lambda x: eqx.error_if(x * 2, jnp.any(x < 0), "must not be negative"), runtime_checks="later")
f(jnp.ones(2))
f(-jnp.ones(2))
child = os.fork()
if not child:
    jitney.wait()
    os._exit(3)  # JAX does not end well in a process that was forked
print("the child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
written = open(sys.argv[1], "w")
written.write("all of it")
"""


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_at_the_end_of_python_the_error_is_printed_and_the_status_is_120(tmp_path):
    """What was written is there; a process that was forked has nothing to say of calls of its
    parent.
    """
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "file")]
    done = subprocess.run(
        command, text=True, capture_output=True, env=env, timeout=patience(120), check=False
    )
    assert done.returncode == 120, done.stderr
    assert (tmp_path / "file").read_text() == "all of it"
    assert "the child: 3" in done.stderr
    assert done.stderr.count("equinox.EquinoxRuntimeError: must not be negative") == 1
    assert done.stderr.rstrip().endswith(
        "this is of call 2 of <lambda>() at <string>:3. What was made of its results is wrong too."
    )


@pytest.mark.rest
def test_a_failed_check_is_a_status_where_standard_error_is_closed():
    """As of a daemon: there is nowhere to print, and the status says it still."""
    script = SCRIPT.partition("child")[0] + "sys.stderr.close()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=patience(120), check=False
    )
    assert done.returncode == 120


@pytest.mark.parametrize("when", ["now", "later"])
def test_a_check_that_nothing_reads_runs_within_disable_jit(when):
    """Its number is no output of a compiled program then, and no array of its own accord."""

    def dead(x: V) -> V:
        eqx.error_if(x, jnp.any(x > 100), "nobody reads it")
        return x * 2

    f = optimize(runtime_checks=when)(dead)
    np.testing.assert_array_equal(f(X), X * 2)
    with jax.disable_jit():
        for _ in range(2):
            np.testing.assert_array_equal(f(X), X * 2)
