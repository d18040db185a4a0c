"""Declarations of the author as data: type hints, arguments, static values, options, buckets.

    def predict(weights: Float[Array, "d"], rows: Float[Array, "n d"], order: int = 2): ...

`annotations.hints_of(predict)` reads `rows` as an `ArrayHint` with the named axes `n` and `d`, and
`order` as a `StaticHint`. `binding.Binder.bind` brings `predict(w, rows=x)` into the normal form
`(w, x, 2)`. `static_values.static_key(2)` gives `(int, 2)`, the part of the call key that the
static argument adds. `options.read_options` turns `pad={"n": "pow2"}` into `Options(pad=(("n",
Bucket(ladder="pow2")),))`.
"""
