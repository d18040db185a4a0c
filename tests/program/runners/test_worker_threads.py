"""The threads behind `workers`: who works, what an exception does, forks, signals and the end of
Python.
"""

import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

from jitney._program.runners.workers.worker_threads import WorkerThreads
from tests._patience import patience


def test_as_many_threads_as_asked_for_work_at_once():
    """Each of three tasks waits for the other two."""
    barrier = threading.Barrier(3)
    seen = []

    def task():
        barrier.wait(patience(60))
        seen.append(threading.get_ident())

    WorkerThreads().run([task] * 3, 3)
    assert len(set(seen)) == 3
    assert threading.get_ident() in seen


def test_all_tasks_are_done_when_it_returns():
    """Those that other threads have taken too."""
    threads, done = WorkerThreads(), []
    for _ in range(50):
        done.clear()
        threads.run([lambda number=number: done.append(number) for number in range(7)], 3)
        assert sorted(done) == [*range(7)]


def test_an_exception_of_another_thread_is_raised_with_its_traceback():
    """The line that raised is in it."""
    barrier = threading.Barrier(2)

    def fails_elsewhere():
        barrier.wait(patience(60))
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError("in a part")

    with pytest.raises(ZeroDivisionError, match="in a part") as raised:
        WorkerThreads().run([fails_elsewhere] * 2, 2)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert "fails_elsewhere" in names


def test_after_an_exception_no_task_begins():
    """The queue is emptied."""
    done = []

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        WorkerThreads().run([fails, lambda: done.append(1)], 1)
    assert done == []


def test_an_interrupt_is_raised_here():
    """`KeyboardInterrupt` of the main thread, and the threads serve the next call."""
    threads = WorkerThreads()

    def interrupted():
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)

    barrier = threading.Barrier(2)

    def both():
        barrier.wait(patience(60))
        interrupted()

    # Whoever runs the tests may have another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run([both] * 2, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    done = []
    threads.run([lambda: done.append(1)] * 4, 2)
    assert len(done) == 4


def test_a_call_ends_while_all_threads_are_busy():
    """It does all of its parts itself."""
    threads, free, done = WorkerThreads(), threading.Event(), []
    threads._start([], free.wait, 50)
    pool = threads._pools[os.getpid()]
    pool._max_workers = len(pool._threads)
    threads.run([lambda: done.append(threading.current_thread())] * 3, 3)
    free.set()
    assert set(done) == {threading.main_thread()}


def run(code):
    """Run it in a process that loads no program: jax 0.10.0 logs each that the cache has."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
        capture_output=True,
        text=True,
        timeout=patience(180),
        check=False,
    )


SQUARED = """
import os, sys
import jax, numpy as np
from jaxtyping import Array, Float
import jitney
@jitney.optimize(vmap="row", workers=2)
def squared(x: Float[Array, ""]) -> Float[Array, ""]:
    return x * x
X = np.arange(9, dtype=np.float32)
def right():
    np.testing.assert_array_equal(squared(X), X * X)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_threads_of_its_own():
    """A child of a process whose threads have helped with calls; JAX starts in the child only."""
    code = """
import os, sys, threading
from jitney._program.runners.workers.worker_threads import THREADS
def work():
    barrier = threading.Barrier(2)
    seen = []
    def task():
        barrier.wait(60)
        seen.append(threading.get_ident())
    THREADS.run([task, task], 2)
    assert len(set(seen)) == 2
work()
child = os.fork()
if child == 0:
    work()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(code)
    assert (done.stdout.strip(), done.returncode) == ("7", 0), done.stderr


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_program_runs_in_a_fork():
    """Of a process that has decorated it and not started JAX."""
    code = f"""{SQUARED}
import multiprocessing
process = multiprocessing.get_context("fork").Process(target=right)
process.start()
process.join()
print(process.exitcode)
"""
    done = run(code)
    assert (done.stdout.strip(), done.returncode) == ("0", 0), done.stderr


def test_python_ends_after_a_call():
    """The threads do not keep it, and a call at its end works too, in one thread."""
    code = f"""{SQUARED}
import atexit
atexit.register(lambda: (right(), print("right at the end")))
right()
"""
    done = run(code)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("right at the end", "", 0)
