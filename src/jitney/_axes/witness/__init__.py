"""The witness: the proof that a program with symbolic sizes is that of plain JAX at one size.

The program and a trace at that size are compared as graphs, from the results down. With n = 5 at
hand, for `x[1:]`:

    symbolic   gather: a window of n - 1 elements from position 1
    witness    slice [1:5]
    compared   both select elements 1, 2, 3, 4 of x: the same

Order of reading: `graph.py` (a program as a graph of values), `constants.py` (values that are known
while it is compared), `selections.py` and `layout_ops.py` (operations that only move elements),
`operation_parts.py` (parameters and functions), `compare_traces.py`.
"""
