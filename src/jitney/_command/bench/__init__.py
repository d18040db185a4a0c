"""Time and memory of a function by the size of its axes, for `python -m jitney bench`.

    python -m jitney bench fit.py:residual --sizes points=1e3:1e6

- `parsing.py` parses the sizes: `{"points": (1000, ..., 1000000)}`, ten of them, evenly spaced on a
  logarithmic scale.
- `target.py` imports `fit.py` and finds `residual`.
- `inputs.py` creates arguments of each size from the annotations.
- `measuring.py` compiles and calls each size, and returns a `SizeRun` for each.
- `growth.py` fits exponents: `warm call grows as points^(0.98 ± 0.02) over 10 sizes`.
- `command.py` prints the table or JSON, and `plot.py` draws the SVG.
"""
