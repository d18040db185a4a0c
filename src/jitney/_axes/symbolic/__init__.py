"""Tracing with symbolic sizes.

`symbolic_trace.trace` traces a function with symbols for sizes and watches the code that runs
(`dim_hooks.py`, `executed_code.py`, `bytecode_audit.py`): what Python does with a size at one size
may be something else at another. Then the function is traced at known sizes, and the traces are
compared with the program (`_axes/witness/`), or a program is made of them (`_axes/unified/`).
"""
