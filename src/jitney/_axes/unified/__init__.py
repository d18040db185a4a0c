"""Programs with symbolic sizes, made of traces at known sizes.

    traces at 5, 6 and 32     slice [1:5], slice [1:6], slice [1:32]
    one program               slice [1:n]

`example_sizes.py` has the sizes, `unify_traces.py` pairs the operations of the traces, and
`unify_bodies.py` those of their loops and branches; `unify_numbers.py` and `fitted_dims.py` find
the expression of each number that differs. A number that no expression fits is computed by Python
in each call (`number_of_size.py`).
"""
