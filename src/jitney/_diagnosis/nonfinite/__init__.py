"""Search for the operation that produced a NaN or an infinity (`debug_nans=True`).

It stands outside the pipeline: after a program has returned a value that is not finite, the
interpreter runs the equations one by one. Each value carries two marks, the operation that produced
its NaN and the one that produced its infinity. So a NaN that is masked later is never reported, and
one that reaches a result leads back to its origin. For `jnp.sum(jnp.log(x) * 0)` with a zero in
`x`:

    log x      inf, mark: log
    mul a 0    NaN, mark: mul, cause: log
    sum b      NaN, mark of its operand: mul

`marked_values.py` has the marks, `interpreter.py` runs a program, `loops.py` its loops, and
`message.py` says what was found.
"""
