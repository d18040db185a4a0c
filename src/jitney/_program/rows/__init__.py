"""Rows of unlike lengths: `vmap` and `pad` together take a list of arrays.

    @optimize(vmap="row", pad={"n": "pow2"})
    f([x5, x700, x9])  ->  the program of one row, padded and mapped, once for each bucket

`ragged.py` is many rows in one array. `columns.py` finds rows among the arguments, `groups.py` puts
those of one bucket together, `blocks.py` fills them into arrays, `results.py` takes the results
apart. `lot_programs.py` runs the programs of a call, and `row_calls.py` is the call.
"""
