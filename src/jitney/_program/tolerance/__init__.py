"""Choice of `precision="auto:1e-2"`, and precision reports: the accuracy that bfloat16 costs on
given data, against a float64 shadow of the function, and which products to keep in float32.

    decide.py             choose a policy for a call that finds none, or report on a call
    shadowed_function.py  the function under sets of rounded products, beside its shadow
    precision_report.py   the report, as data and as a table
"""
