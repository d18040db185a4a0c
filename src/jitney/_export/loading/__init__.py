"""Functions loaded from files, without the Python code of the original.

    g = jitney.load("fit.jitney")    `loaded.py`; `versions.py` compares the file with this process
    g(x)                             `sizes.py` finds the program that fits, `running.py` calls it
    g([x, y])                        rows of unlike lengths: `loaded_rows.py`

Begin with `loaded.py`.
"""
