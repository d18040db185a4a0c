"""`auto` in processes that are forked, killed, traced by a debugger, or end while it learns."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jitney import optimize
from jitney._jax.compile_cache.own_entries import UNFINISHED
from tests._patience import patience
from tests.program.auto.test_auto_calls import (
    AUTO,
    FAST_64,
    ROWS,
    W,
    auto_line,
    by_hand,
    learnt,
    residual,
)

FORKED = "whole, since this process was forked from one that had not chosen"
HERE = Path(__file__).parents[3]
HEAD = """
import atexit, multiprocessing, os, signal, sys, threading
import numpy as np, jax, jax.numpy as jnp
import jitney
from tests._machine import Machine, run_by

@jitney.optimize(vmap={"row": {"y": 0}}, auto=True)
def double(y):
    return 2 * jnp.sin(y)

Y = np.linspace(0, 1, 900, dtype=np.float32).reshape(300, 3)

def right():
    np.testing.assert_allclose(double(Y), 2 * np.sin(Y), rtol=1e-6)

def line():
    lines = double.plan(Y).to_dict()["decisions"]
    return next(line["why"] for line in lines if line["name"] == "auto")

def in_a_fork():
    def child():
        for _ in range(12):
            right()
        print(line(), flush=True)
        os._exit(7)  # JAX does not end well in a process that was forked
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(float(sys.argv[1]))
    process.kill()
    print(process.exitcode)

machine = Machine()
machine.rates, machine.compiling = {"64 at a time": 0.1, "64 at a time in threads": 0.05}, 1e-3
"""


def run(code, **more):
    """Run a script in a process of its own, and return what it printed, by lines."""
    dropped = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    wait = patience(60)
    command = [sys.executable, "-W", "ignore", "-c", HEAD + code, str(wait)]
    done = subprocess.run(
        command,
        env={**env, "JITNEY_CACHE": "off", **more},
        capture_output=True,
        text=True,
        timeout=3 * wait,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines(), done.returncode


def test_a_fork_of_a_process_that_learns_does_not_learn(machine):
    """It would compile, and XLA's threads are not there to do so. Here its number is changed."""
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    for _ in range(2):
        f(W, ROWS)
    f._core.usual[0].auto._process = -1
    np.testing.assert_allclose(learnt(f, W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert machine.tried == []
    assert auto_line(f, W, ROWS) == FORKED


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_it_learns_is_answered_by_the_whole():
    """As `jax.jit` answers there what it has compiled before."""
    lines, status = run("""
machine.compiling = 1e6
with run_by(machine):
    right(); right()
    in_a_fork()
    print(line())
""")
    assert status == 0
    assert lines[:2] == [FORKED, "7"]
    assert lines[2].startswith("whole, while it learns")


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_after_the_choice_has_the_choice():
    """In threads of its own."""
    lines, status = run("""
with run_by(machine):
    for _ in range(20):
        right()
    in_a_fork()
    right()
    print(line())
""")
    assert status == 0
    assert lines[1] == "7"
    assert lines[0].startswith("64 at a time in threads: ")
    assert lines[0] == lines[2]


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_of_a_process_that_chose_devices_runs_whole():
    """XLA would run them in threads that a fork does not have, and wait for ever."""
    lines, status = run("""
jax.config.update("jax_num_cpu_devices", 2)
machine.rates["64 at a time over devices"] = 0.01
with run_by(machine):
    for _ in range(20):
        right()
    in_a_fork()
    right()
    print(line())
""")
    assert status == 0
    told = "whole, since this process was forked, and has no threads for several devices"
    assert lines[:2] == [told, "7"]
    assert lines[2].startswith("64 at a time over devices: ")


LEARNS = """
with run_by(machine):
    for _ in range(20):
        right()
    print(line())
"""


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_process_that_is_killed_while_it_writes_leaves_no_record(tmp_path):
    """The next one learns, writes its own, and deletes what was left."""
    settings = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": str(tmp_path)}
    kill = """
import pathlib
replace = pathlib.Path.replace
def killed(path, target):
    if "double" in str(target):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)
pathlib.Path.replace = killed
"""
    assert run(kill + LEARNS, **settings) == ([], -signal.SIGKILL)
    (unfinished,) = (tmp_path / "auto" / "double").iterdir()
    assert unfinished.name.endswith(UNFINISHED)

    [told], status = run(LEARNS, **settings)
    assert status == 0
    assert told.startswith("64 at a time in threads: ")
    (record,) = (tmp_path / "auto" / "double").iterdir()
    assert not record.name.endswith(UNFINISHED)
    assert "as an earlier process has measured" in run(LEARNS, **settings)[0][0]


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_process_that_is_killed_while_it_learns_leaves_nothing(tmp_path):
    """The next one learns as if there had been none."""
    settings = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": str(tmp_path)}
    kill = """
run = Machine.run
def killed(it, way, elements):
    run(it, way, elements)
    if it.tried:
        os.kill(os.getpid(), signal.SIGKILL)
Machine.run = killed
"""
    assert run(kill + LEARNS, **settings) == ([], -signal.SIGKILL)
    assert not (tmp_path / "auto").exists()
    [told], status = run(LEARNS, **settings)
    assert status == 0
    assert told.startswith("64 at a time in threads: ")


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_another_thread_tries_is_answered_by_the_whole():
    """As of a loader of data that starts its workers from a thread of its own: the thread that
    tries holds a lock in the process that was forked, for ever.
    """
    lines, status = run("""
from jitney._program.auto.trials import Trials
tries, done = threading.Event(), threading.Event()
begin = Trials.try_next
def stops(*args):
    tries.set()
    done.wait()
    return begin(*args)
Trials.try_next = stops
with run_by(machine):
    thread = threading.Thread(target=lambda: [right() for _ in range(4)])
    thread.start()
    tries.wait()
    in_a_fork()
    done.set()
    thread.join()
""")
    assert status == 0
    assert lines == [FORKED, "7"]


@pytest.mark.rest
def test_python_ends_while_it_learns():
    """A thread waits for a result, and another one tries a way."""
    lines, status = run("""
from jitney._program.auto.auto_calls import AutoCalls
AutoCalls.compile_seconds = lambda calls, measured: 1e-3
def long(y):
    return jax.lax.fori_loop(0, 20_000, lambda _, x: jnp.sin(x), y)
slow = jitney.optimize(long, vmap={"row": {"y": 0}}, auto=True)
atexit.register(lambda: (right(), print("right at the end")))
for _ in range(4):
    slow(Y)  # nobody waits for it
tries = threading.Thread(target=lambda: [slow(Y) for _ in range(6)])
tries.start()
""")
    assert (lines, status) == (["right at the end"], 0)


@pytest.mark.rest
def test_a_debugger_changes_nothing():
    """One that stops at each line of each thread, and looks at all that is there."""
    lines, status = run("""
def looks(frame, event, arg):
    if "auto" in frame.f_code.co_filename or "worker" in frame.f_code.co_filename:
        dict(frame.f_locals)
    return looks
threading.settrace(looks)
sys.settrace(looks)
with run_by(machine):
    for _ in range(20):
        right()
sys.settrace(None)
print(line())
""")
    assert status == 0
    assert lines[0].startswith("64 at a time in threads: ")


@pytest.mark.rest
def test_pdb_stops_in_calls_that_try_and_decide():
    """At each run of a way, and goes on line by line."""
    lines, status = run("""
import io, pdb
from jitney._program.auto.way_runs import WayRuns
stops = []
class Steps(pdb.Pdb):
    def user_line(self, frame):
        stops.append(frame.f_code.co_name)
        return super().user_line(frame)
code, out = WayRuns.once.__code__, io.StringIO()
with run_by(machine):
    for _ in range(20):
        pressed = "continue\\n" + 100 * "next\\nstep\\nnext\\ncontinue\\n"
        steps = Steps(stdin=io.StringIO(pressed), stdout=out)
        steps.set_break(code.co_filename, code.co_firstlineno + 3)
        steps.runcall(right)
        sys.settrace(None)
print(line())
print(stops.count("once") > 3)
""")
    assert status == 0
    assert lines[0].startswith("64 at a time in threads: ")
    assert lines[1] == "True"


@pytest.mark.rest
def test_a_thread_that_calls_while_python_ends_has_its_result():
    """Threads of jitney's are waited for, and none can be started any more."""
    lines, status = run("""
with run_by(machine):
    for _ in range(20):
        right()
def late():
    threading.main_thread().join()
    right()
    print("right while Python ends")
for _ in range(3):
    threading.Thread(target=late).start()
print(line())
""")
    assert status == 0
    assert lines[0].startswith("64 at a time in threads: ")
    assert lines[1:] == ["right while Python ends"] * 3


@pytest.mark.parametrize("moment", ["trial", "decision"])
def test_control_c_in_a_call_that_learns_leaves_the_rest_to_the_next(machine, moment):
    """It ends that call. Those after it are right, and the choice falls."""
    machine.rates = FAST_64
    f, run_, pressed = optimize(**AUTO)(residual), machine.run, []

    def interrupted(way, elements):
        run_(way, elements)
        is_now = len(machine.tried) == 1 if moment == "trial" else len(machine.tried) == 3
        if is_now and not pressed and (moment == "trial" or way.carrier == ""):
            pressed.append(str(way))
            raise KeyboardInterrupt

    machine.run = interrupted
    with pytest.raises(KeyboardInterrupt):
        learnt(f, W, ROWS)
    np.testing.assert_allclose(learnt(f, W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")
    assert len(pressed) == 1
