"""Data of one call: the layout of its leaves, their named axes, true sizes, and the form of its
result.

    def predict(weights: Float[Array, "d"], rows: Float[Array, "n d"], order: int = 2): ...

For `predict(w, x)` with `w` of shape (3,) and `x` of shape (5, 3), the three leaves `weights`,
`rows` and `order` form a `Layout` with `dynamic=(0, 1)` and `static=(2,)`. Its `view` has two
leaves, `weights: float32[3]` and `rows: float32[5,3]`. `named_axes` finds `d` in the first and `n`,
`d` in the second, and `sizes_of` gives `{"d": 3, "n": 5}`. `result.Outcome` flattens and rebuilds
the value that the body returns.
"""
