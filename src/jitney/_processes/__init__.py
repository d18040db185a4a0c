"""Several processes as one run: start, connections, comparison of programs, checkpoints.

`distributed.py` joins the run of JAX (`launch.py`) and opens a connection to process 0
(`channel.py`, `connection.py`). Before the first call of a new key, each process sends facts of it
(`compare_processes.py`), and process 0 compares them (`compare_facts.py`):

    process 0: ("array", "x", "float32[8,3]"), ("program", "", "9f...")
    process 1: ("array", "x", "float32[7,3]"), ("program", "", "41...")
    -> ProcessError in both: x is float32[8,3] in process 0 and float32[7,3] in process 1

`from_processes.py` builds global arrays from local parts; `checkpoints.py` saves and restores them.
"""
