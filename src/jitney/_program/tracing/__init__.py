"""Traces of a body for JAX, and what is recorded of each.

    traced_calls.py     one trace at a time for each key of a call: planned, checked, traced
    held_numbers.py     numbers that the body needs while it is traced
    leaked_tracers.py   arrays of the trace that the body leaves in objects
    call_record.py      the record of the trace, which later traces are compared with
    limit.py            `max_compiles`

Begin with `traced_calls.py`; `_program/lowering.py` has JAX call it.
"""
