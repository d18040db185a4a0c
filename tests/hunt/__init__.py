"""A standing hunt for wrong numbers: `python -m tests.hunt --minutes 10 --seed 1`.

Programs are generated as source text, run under an option of jitney, and compared with `jax.jit` of
the plain function at exact size. A seed and an index name a case; what falls is shrunk to a few
lines that stand alone. In the order of the data: `_recipe.py` (what a line of a program may be),
`_elementwise.py`, `_arrays.py`, `_structure.py`, `_libraries.py` (the tables), `_looks.py` (lines
of which `test_hunt.py` draws alone), `_overlaps.py` (updates of an array by a part of itself, which
`--among overlaps` takes one by one), `_infinite.py` and `_derivatives.py` (lines with infinite
slopes, which `--only derivatives` takes alone), `_sizes.py` (arithmetic with sizes), `_values.py` (dtypes and
numbers), `_program.py` (source text that runs), `_draw.py` (a case from a seed), `_options.py`
(what jitney is asked for), `_combined.py` (several options at once), `_judge.py`, `_hunt.py` (a
case from end to end), `_shrink.py`, `_worker.py` (a process that hunts), `_report.py`, `_table.py`
(what is refused, for the docs), `__main__.py`.
"""
