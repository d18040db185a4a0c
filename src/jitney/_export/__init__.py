"""Programs as files: lowered programs with their contract and plan, without the Python code.

Input of `export` in `writing/export.py`: a `Program` and the sizes to export. Output: one file, of
which `load` in `loading/loaded.py` builds a function again.

    f.export("fit.jitney", x, sizes={"batch": (64, range(128, 1025))}, vjp_order=1)
    g = jitney.load("fit.jitney")     # two programs: batch=64, and batch=128 to 1024
    g(x)                              # checks arguments as `f` does; `jax.grad` works once

    "jitney program 0001" | SHA-256 | length of header | header (JSON) | members  # container.py

Begin with `writing/export.py` and `loading/loaded.py`. The header consists of trees of arguments
and results (`trees.py`), static values (`values.py`) and the contract (`contract_data.py`);
`header.py` validates it on loading.
"""
