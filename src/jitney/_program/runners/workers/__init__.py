"""Calls whose mapped axis is split into parts, for threads (`workers`) or CPU devices.

    size 9, two workers  ->  rows 0 to 4 in this thread, 4 to 8 in another, one array of 9 results

`worker_calls.py` decides how a call is split and runs it, `parts.py` cuts arrays and joins results,
`worker_threads.py` has the threads, and `device_parts.py` runs parts on devices instead.
"""
