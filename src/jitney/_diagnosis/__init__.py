"""Diagnosis of a running program: counters, causes of retraces, tracer errors, the first NaN.

For calls `step(x[3])`, `step(x[4])` of `step(x: Float[Array, "n"])`, `counters/` counts two
traces, and `retraces/` compares each with the nearest earlier one, and gives the line to write.
Printed as `step.stats.causes`, these are:

    Cause("first call")
    Cause("shape", "x", "n", old="3", new="4", remedy='pad={"n": "pow2"}')

Apart from these: `needed_values.py` and `tracer_errors.py` (errors of JAX in the user's words),
`nonfinite/` (`debug_nans`), `jax_work.py` (`jitney.watch`), `static_variety.py` (static arguments
with many values).
"""
