"""Diagnosis of a running program: counters, causes of retraces, tracer errors, the first NaN.

For calls `step(x[3])`, `step(x[4])` of `step(x: Float[Array, "n"])`, `counters.py` counts two
traces, `history.py` finds the nearest earlier call, `retraces.py` compares the two, and
`remedies.py` gives the line to write. Printed as `step.stats.causes`, these are:

    Cause("first call")
    Cause("shape", "x", "n", old="3", new="4", remedy='pad={"n": "pow2"}')

Apart from these: `needed_values.py` and `tracer_errors.py` (errors of JAX in the user's words),
`nonfinite/` (`debug_nans`), `jax_work.py` (`jitney.watch`), `static_variety.py` (static arguments
with many values).
"""
