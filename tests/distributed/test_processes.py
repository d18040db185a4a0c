"""Runs of several real processes on this machine, against one, and against each other."""

import re
import time

import jax
import numpy as np
import pytest

import jitney
from jitney._processes.channel import Channel
from tests._patience import patience

from ._jobs import W, X
from ._processes import free_port, start


def slurm():
    """As `srun` tells its processes; the coordinator is process 0's host, at a port of JAX's
    choice.
    """
    return {
        **dict.fromkeys(("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")),
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "4",
        "JAX_COORDINATOR_PORT": str(free_port()),
        "SLURM_PROCID": "{i}",
        "SLURM_LOCALID": "{i}",
    }


def ompi():
    """As `mpirun` of Open MPI 4 tells its processes."""
    return {
        **dict.fromkeys(("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")),
        "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "{i}",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{i}",
        "OMPI_VERSION": "4.1.6",
        "JAX_COORDINATOR_PORT": str(free_port()),
    }


@pytest.fixture(scope="module", params=[2, 4])
def run(request):
    """Two processes of two devices by variables, four of one by SLURM."""
    return start("basics", 2) if request.param == 2 else start("basics", 4, devices=1, env=slurm())


def test_each_process_knows_its_place(run):
    """And says what it is and how it was found."""
    assert [process["index"] for process in run] == list(range(len(run)))
    assert {process["count"] for process in run} == {len(run)}
    assert f"process 1 of {len(run)}" in run[1]["printed"]
    assert ("SLURM" if len(run) == 4 else "JAX_COORDINATOR_ADDRESS") in run[1]["printed"]
    assert all(process.code == 0 for process in run), run[0].err


def test_parts_of_processes_are_one_array(run):
    """The loss and its gradient are those of all rows at once, in float64."""
    y = np.tanh(X.astype(np.float64) @ W)
    grad = X.T.astype(np.float64) @ (2 * y * (1 - y**2)) / y.size
    for process in run:
        assert process["shape"] == [8, 4]
        np.testing.assert_allclose(process["loss"], np.mean(y**2), rtol=1e-6)
        np.testing.assert_allclose(process["grad"], grad, rtol=1e-4, atol=1e-6)


def test_equal_sets_are_equal_in_every_process(run):
    """Though each process goes through them in its own order."""
    total = np.sum(np.tanh(X[:4].astype(np.float64) @ W) ** 2)
    for process in run:
        np.testing.assert_allclose(process["sets"], [total, total], rtol=1e-6)


def test_arrays_that_are_whole_in_each_process_serve_too(run):
    """Of JAX, and the same everywhere; that traces nothing anew."""
    for process in run:
        np.testing.assert_allclose(process["whole"], process["loss"], rtol=1e-6)
        assert process["traces"] == 1


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("value", "w has other numbers in process"),
        ("static", "mode is 'sum' in process 0 and 'mean' in process"),
        ("ragged", r"argument is float32\[4,5\] in process 0 and float32\[8,5\] in process 1"),
        ("program", "the traced program is another in process"),
        ("rule", r"the place of w is .*'data'.* in process 0 and \(\(\), \(\)\) in process"),
    ],
)
def test_a_difference_stops_each_process(run, what, says):
    """With an error that names it, before anything runs."""
    for process in run:
        assert "its processes differ" in process[what]
        assert re.search(says, process[what]), process[what]


def test_numpy_arrays_are_neither_part_nor_whole(run):
    """The error names the argument and says how to tell."""
    assert "x is a NumPy array" in run[0]["numpy"]
    assert "jitney.processes.from_processes" in run[0]["numpy"]


def test_padding_is_refused(run):
    """It fills on the host, which has only its part."""
    assert all("pad" in process["pad"] and "several processes" in process["pad"] for process in run)


def test_programs_of_one_process_are_its_own(run):
    """Without `shard`, or on a mesh of local devices, processes compare nothing."""
    for process in run:
        np.testing.assert_allclose(process["alone"], process["expected"], rtol=1e-5)
    assert run[0]["local"] != run[1]["local"]


def test_a_difference_that_nobody_catches_ends_all():
    """Each process shows it and fails, soon."""
    run = start("apart", 2, first="loss(small, W)", second="loss(narrow, W[:2])", env=ompi())
    for process in run:
        assert process.code not in (0, -1000)
        assert "x is float32[4,4]" in process.err
        assert "float32[4,2]" in process.err
        assert process.seconds < patience(40)


def test_a_process_that_does_not_come_is_an_error():
    """One waits in a step, the other with a new key: it says so after the time given, and both
    end.
    """
    timeout = round(patience(5))  # it has to do for the start of both
    run = start(
        "apart",
        2,
        first="loss(small, W)",
        second="stray(x)",
        arguments={"timeout": timeout, "grace": 1.0},
    )
    assert f"have come to this call within {timeout} s" in run[0].err
    assert "process 0 has stopped by ProcessError" in run[1].err
    assert all(process.code not in (0, -1000) for process in run)


def test_the_others_stop_when_process_0_is_killed():
    """In a few seconds, with jitney's sentence or the message with which JAX aborts them, whichever
    comes first.
    """
    victim, survivor = start("killed", 2, victim=0, grace=2.0)
    assert survivor.code not in (0, -1000)
    assert survivor.seconds - victim.seconds < patience(10)
    assert survivor["step"] < 100
    said = "process 0 has stopped: its connection is cut"
    assert said in survivor.err or "JAX distributed service detected fatal errors" in survivor.err


def test_one_process_alone_is_a_run():
    """The same script runs without a launcher, and an address where nobody listens is an error in
    time.
    """
    (process,) = start("beginnings", 1)
    assert "has not reached process 0 at 127.0.0.1:" in process["unreachable"]
    assert process["waited"] < patience(10)
    assert "num_processes and process_id" in process["missing"]
    assert process["count"] == 1
    assert "alone" in process["printed"]
    np.testing.assert_allclose(
        process["loss"], np.mean(np.tanh(X.astype(np.float64) @ W) ** 2), rtol=1e-6
    )


def test_processes_that_do_not_come_are_an_error_in_time():
    """JAX would wait for five minutes and abort."""
    (process,) = start("lonely", 1)
    assert process.code == 1
    assert "not all processes of the run came within 1 s" in process.err


def test_it_comes_first():
    """After JAX has started there is no joining."""
    jax.devices()
    with pytest.raises(jitney.errors.ProcessError, match="has started its devices already"):
        jitney.processes.distributed()


NONSENSE = {
    "no process 2 of 2": ("h:1", 2, 2),
    "num_processes=0": ("h:1", 0, 0),
    "has no port": ("h", 2, 0),
    "is not a number": ("h:1", 2, "0"),
}


@pytest.mark.parametrize("says", NONSENSE)
def test_arguments_that_make_no_sense(says):
    """Are refused before anything is started."""
    with pytest.raises(jitney.errors.ProcessError, match=says):
        jitney.processes.distributed(*NONSENSE[says])


def test_a_process_that_is_left_alone_says_so(capfd):
    """And not once it has ended itself, within three times as long."""

    def alone():
        channel = Channel(0, timeout=1.0, grace=0.05)
        channel.serve(2, "127.0.0.1", lambda _: "").leave(1, "")
        return channel

    says, printed, began = "process 1 has ended in order, this one has not", "", time.monotonic()
    left = alone()
    while says not in printed and time.monotonic() - began < patience(60):
        time.sleep(0.01)
        printed += capfd.readouterr().err
    took = time.monotonic() - began
    assert says in printed
    left.leave()
    alone().leave()
    time.sleep(3 * took)
    assert says not in capfd.readouterr().err


def test_axes_of_parts_are_counted_from_the_front():
    """One from the back is another for each rank."""
    with (
        jitney.mesh(data=1, devices=jax.devices()[:1]),
        pytest.raises(jitney.errors.MeshError, match="axis=-1"),
    ):
        jitney.processes.from_processes(X, "data", axis=-1)
