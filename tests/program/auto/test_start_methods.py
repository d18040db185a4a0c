"""`auto` in workers that `multiprocessing` starts, in each of its ways: before the choice has
fallen in the process that starts them, after it, and where an earlier process left a record.
"""

import multiprocessing

import pytest

from tests.program.auto.test_processes import FORKED, HEAD, run

LEARNT = "64 at a time in threads: "
RECORD = "64 at a time in threads, as an earlier process has measured"
SWEEP = f"""{HEAD}
clock = run_by(machine)
clock.__enter__()

def work(calls):
    for _ in range(calls):
        right()
    return line()
"""
SCRIPT = """
sys.path.insert(0, {folder!r})
import sweep
def of_worker():
    with multiprocessing.get_context({how!r}).Pool(1) as pool:
        print(pool.apply_async(sweep.work, (20,)).get(float(sys.argv[1])))
of_worker()
for calls in {calls}:
    for _ in range(calls):
        sweep.right()
    of_worker()
print(sweep.work(1))
"""


@pytest.fixture
def workers(tmp_path):
    """Runs a script beside the module of the function, which workers import. A line is what the
    plan of a worker says after its calls; the last is that of the process that starts them.
    """
    (tmp_path / "sweep.py").write_text(SWEEP)

    def of(how, calls, **more):
        script = SCRIPT.format(folder=str(tmp_path), how=how, calls=calls)
        lines, status = run(script, **more)
        assert status == 0
        return lines

    return of


@pytest.mark.rest
@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_workers_are_right_and_end(workers, how):
    """Before the first call of the process that starts them, while it learns, and after. A new
    process learns by itself; a fork learns where JAX had not begun, and takes what was chosen.
    """
    before, learning, after, parent = workers(how, (2, 20))
    assert before.startswith(LEARNT)
    assert learning == FORKED if how == "fork" else learning.startswith(LEARNT)
    assert after.startswith(LEARNT)
    assert parent.startswith(LEARNT)


@pytest.mark.rest
@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_workers_begin_with_the_record_of_another(workers, tmp_path, how):
    """The first worker learns, and all processes after it take its choice, the next worker too."""
    settings = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": str(tmp_path / "cache")}
    first, second, parent = workers(how, (0,), **settings)
    assert first.startswith(LEARNT)
    assert second.startswith(RECORD)
    assert parent.startswith(RECORD)
