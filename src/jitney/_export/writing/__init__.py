"""Writer of programs into files.

    f.export("fit.jitney", x, sizes={"n": (64, range(128, 1025))})

    exportable.py         what cannot be exported, and which options are left out
    export_sizes.py       n=64, then n=128 to 1024: arrays of the examples at these sizes
    lowering.py           a program of exact sizes, or of all sizes of a range
    padded_programs.py    the program of a bucket
    row_programs.py       the programs of rows of unlike lengths
    parts.py              the bytes of a program, its arguments and bound arrays, as data
    program_entries.py    the entry of a program in the header
    export.py             all of it, into one file

Begin with `export.py`.
"""
