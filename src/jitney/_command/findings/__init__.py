"""Kinds of changes that save time or memory, and `lines.py`, the recorder of events.

    for row in rows:                # arrays of NumPy
        params = step(params, row)  # a function under jax.jit

`lines.py` records the calls of `step` and the arrays in its arguments while the program runs.
`call_arguments.py` turns the record into a `ProposedChange`: "row, up to 4.0 KiB of NumPy, are put
on the device anew for step at each of 100 calls", with the seconds that this took, the line, and
the code to write instead.
"""
