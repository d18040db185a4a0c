"""Declarations of the author as data: type hints, arguments, static values, options, buckets.

def predict(weights: Float[Array, "d"], rows: Float[Array, "n d"], order: int = 2): ...

hints_of(predict)               rows: ArrayHint with the named axes n and d; order: StaticHint
binder.bind((w,), {"rows": x})  (w, x, 2), one value per parameter
static_key(2)                   (int, 2)
read_options("predict()", {"pad": {"n": "pow2"}})
                                Options(pad=(("n", Bucket(ladder="pow2")),))
"""
