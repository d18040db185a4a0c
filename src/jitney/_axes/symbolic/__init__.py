"""Tracing with symbolic sizes, and the proof that the program is that of plain JAX at each size.

`symbolic_trace.trace` traces a function with symbols for sizes and watches the code that runs
(`dim_hooks.py`, `executed_code.py`). Then it traces the function at known sizes, the witnesses, and
compares the programs as graphs (`compare_traces.py`). With n = 5 at hand, for `x[1:]`:

    symbolic   gather: a window of n - 1 elements from position 1
    witness    slice [1:5]
    compared   both select elements 1, 2, 3, 4 of x: the same
"""
