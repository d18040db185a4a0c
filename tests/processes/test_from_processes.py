"""`jitney.processes.from_processes` in one process; with several: `tests/distributed`."""

import numpy as np

import jitney


def test_a_global_array_has_memory_of_its_own():
    """JAX's `device_put` takes NumPy's on a CPU, and the next batch may be written there."""
    memory = np.ones(100_064, np.float32)
    rows = memory[-memory.ctypes.data % 64 // 4 :][:100_000]  # where XLA would take it
    with jitney.mesh(data=1):
        array = jitney.processes.from_processes(rows, "data")
    rows[:] = 2
    np.testing.assert_array_equal(array, 1)
