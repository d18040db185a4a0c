"""What operations do along an axis: identities, refusals, positions, order, matrices, draws, chunks, and decisions by a size."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_RULES = "src/jitney/_axes/rules"
_PADDED = "tests/axes/test_padded.py::test_padded_equals_exact"
_REFUSED = "tests/axes/test_padded.py::test_what_cannot_be_proven_is_refused"
_CHUNKED = "tests/axes/test_chunked.py::test_chunks_equal_the_whole_or_are_refused"

IDENTITIES = [
    Mutation(
        "a sum is padded with ones", "src/jitney/_axes/monoids.py",
        '"add": Monoid("sum", zero,', '"add": Monoid("sum", one,',
        (f"{_PADDED}[mean]",),
    ),
    Mutation(
        "a sum starts from plus zero", "src/jitney/_axes/monoids.py",
        "minus_zero = np.asarray(-0.0, np.float32)", "minus_zero = np.asarray(0.0, np.float32)",
        ("tests/axes/test_monoids.py::test_a_part_of_an_axis_that_is_added_to_keeps_the_sign_of_zero",),
    ),
    Mutation(
        "a maximum is padded with zero", "src/jitney/_axes/monoids.py",
        '"max": Monoid("max", lowest,', '"max": Monoid("max", zero,',
        ("tests/axes/test_padded.py::test_identities_of_every_dtype[float32]",),
    ),
    Mutation(
        "a minimum of integers is padded with the largest but one", "src/jitney/_axes/monoids.py",
        "int(info.max if sign > 0 else info.min)", "int(info.max - 1 if sign > 0 else info.min)",
        ("tests/axes/test_padded.py::test_identities_of_every_dtype[int8]",),
    ),
    Mutation(
        "a product is padded with zeros", "src/jitney/_axes/monoids.py",
        '"mul": Monoid("product", one,', '"mul": Monoid("product", zero,',
        (f"{_PADDED}[product]",),
    ),
    Mutation(
        "a bitwise and is padded with zeros", "src/jitney/_axes/monoids.py",
        '"and": Monoid("and", all_bits,', '"and": Monoid("and", zero,',
        (f"{_PADDED}[any and all]",),
    ),
    Mutation(
        "low types accumulate in their own type", "src/jitney/_axes/monoids.py",
        'lax.add, lax.reduce_sum, "psum", rounds=True', 'lax.add, lax.reduce_sum, "psum", rounds=False',
        ("tests/axes/test_monoids.py::test_a_sum_of_bfloat16_counts_further_than_bfloat16_does",),
    ),
    Mutation(
        "the place of the least is that of the largest padding", "src/jitney/_axes/monoids.py",
        '"argmin": "min"', '"argmin": "max"',
        (f"{_PADDED}[min and argmin]",),
    ),
    Mutation(
        "a sum along the axis is not masked", f"{_RULES}/reduce.py",
        'return walk.bind(op, [walk.keep(x, op.ins[0], op.params["axes"], monoid.identity(x.dtype))])\n\n    return Rule(uses, pad, Across(way,',
        "return walk.bind(op, [x])\n\n    return Rule(uses, pad, Across(way,",
        (f"{_PADDED}[mean]",),
    ),
    Mutation(
        "a cumulative sum from the end is not masked", f"{_RULES}/reduce.py",
        'return walk.bind(op, [walk.keep(x, op.ins[0], [op.params["axis"]], monoid.identity(x.dtype))])',
        "return walk.bind(op, [x])",
        (f"{_PADDED}[cumulative sum from the end]",),
    ),
    Mutation(
        "the left factor of a product is not masked", f"{_RULES}/linear.py",
        "a = walk.keep(a, op.ins[0], left, _zero(a))", "a = walk.keep(a, op.ins[0], (), _zero(a))",
        (f"{_PADDED}[dot]",),
    ),
    Mutation(
        "the array of a convolution is not masked", f"{_RULES}/linear.py",
        "lhs = walk.keep(lhs, op.ins[0], numbers.lhs_spec[1:], _zero(lhs))",
        "lhs = walk.keep(lhs, op.ins[0], numbers.lhs_spec[:2], _zero(lhs))",
        (f"{_PADDED}[convolution along it]",),
    ),
    Mutation(
        "windows reach into what is not there", f"{_RULES}/windows.py",
        "x = walk.keep(x, op.ins[0], [axis], first)", "x = walk.keep(x, op.ins[0], [], first)",
        (f"{_PADDED}[moving sum]",),
    ),
    Mutation(
        "a sum over a mapped axis by its name is not masked", f"{_RULES}/mapped.py",
        "x = walk.keep(values[0], op.ins[0], axes, monoid.identity(values[0].dtype))", "x = values[0]",
        (f"{_PADDED}[mean over a mapped axis]",),
    ),
    Mutation(
        "one row too many is valid", "src/jitney/_axes/walk.py",
        "return lax.lt(positions, lax.broadcast(self.count(dims[axis]), positions.shape))",
        "return lax.le(positions, lax.broadcast(self.count(dims[axis]), positions.shape))",
        (f"{_PADDED}[mean]",),
    ),
]  # fmt: skip

REFUSALS = [
    Mutation(
        "a Fourier transform is not refused", f"{_RULES}/linear.py",
        'yield refuse(op, dims, "transforms along it")', 'yield use(op, dims, "mixed", "transformed along it")',
        (f"{_REFUSED}[fft]",),
    ),
    Mutation(
        "eigenvalues are not refused", f"{_RULES}/matrices.py",
        "    **{name: _refusing(why) for name, why in _OTHERS.items()},", '    **{name: Rule(_uses("mixed"), same) for name in _OTHERS},',
        (f"{_REFUSED}[eigenvalues]",),
    ),
    Mutation(
        "singular vectors are not refused", f"{_RULES}/matrices.py",
        'if op.params["compute_uv"]:', 'if op.params["compute_uv"] and op.params["full_matrices"]:',
        (f"{_REFUSED}[singular vectors]",),
    ),
    Mutation(
        "a callback sees padding", f"{_RULES}/callback.py",
        "if dims and not is_of_check(op.eqn):", "if not dims and not is_of_check(op.eqn):",
        (f"{_REFUSED}[callback]",),
    ),
    Mutation(
        "a reshape interleaves the axis with another", f"{_RULES}/shape.py",
        "        if not _leading(group):", "        if not _leading(group) and len(group[1]) > 1:",
        (f"{_REFUSED}[interleave]",),
    ),
    Mutation(
        "other generators of random numbers are not refused", f"{_RULES}/random.py",
        'if dims and not (options.jax_threefry_partitionable and', 'if dims and not (options.jax_threefry_partitionable or',
        ("tests/axes/test_random.py::test_other_generators_are_refused",),
    ),
    Mutation(
        "a sum that begins with a number is reduced", f"{_RULES}/reduce.py",
        "if monoid is None or not (monoid in _ONCE_OR_OFTEN or begins_with_nothing(op, monoid)):", "if monoid is None:",
        (f"{_REFUSED}[sum from a number on]",),
    ),
    Mutation(
        "complex extremes are not refused", "src/jitney/_axes/monoids.py",
        "return not dtypes.issubdtype(dtype, np.complexfloating) and not", "return not",
        ("tests/axes/test_monoids.py::test_extremes_without_an_order_are_refused",),
    ),
    Mutation(
        "places in a type that cannot count the axis are not refused", f"{_RULES}/reduce.py",
        "if dtype is None or all(", "if dtype is not None or all(",
        ("tests/axes/test_positions.py::test_places_in_a_type_that_cannot_count_the_axis_are_refused",),
    ),
    Mutation(
        "a decision by a size is answered for a symbol", "src/jitney/_axes/witness/watch.py",
        "return not float(other).is_integer() or _never_equal(size - int(other))", "return True",
        ("tests/axes/test_watch.py::test_no_decision_goes_unnoticed",),
    ),
    Mutation(
        "a size in a dict is not watched", "src/jitney/_axes/witness/watch.py",
        '    "__hash__": "looks the size {0} up in a set or a dict",\n', "",
        ("tests/axes/test_watch.py::test_no_decision_goes_unnoticed",),
    ),
]  # fmt: skip

MOVES = [
    Mutation(
        "a start of a slice is clamped to the bucket", f"{_RULES}/index.py",
        "walk.count(dim) - walk.count(window))\n\n\n# dynamic_slice",
        "np.int32(walk.shape([dim])[0]) - walk.count(window))\n\n\n# dynamic_slice",
        ("tests/axes/test_positions.py::test_positions_of_every_type",),
    ),
    Mutation(
        "reading beyond the end is off by one", f"{_RULES}/index.py",
        "beyond = columns[i] > last", "beyond = columns[i] > last + 1",
        ("tests/axes/test_positions.py::test_what_is_read_beyond_the_end_is_filled_in_and_not_what_stands_there",),
    ),
    Mutation(
        "rows of padding are scattered", f"{_RULES}/index.py",
        "indices = lax.select(walk.inside(op.ins[1], axis), indices, _outside(indices))", "indices = indices",
        ("tests/axes/test_positions.py::test_as_many_positions_as_rows_into_as_many",),
    ),
    Mutation(
        "what is set over a part of the axis is set by its padding too", f"{_RULES}/index.py",
        "        updates = lax.select(walk.inside(op.ins[2], axis), updates, old)", "        updates = lax.select(walk.inside(op.ins[2], axis), updates, updates)",
        (f"{_PADDED}[set before the last]", f"{_PADDED}[set behind the first]"),
    ),
    Mutation(
        "padding sorts in front", f"{_RULES}/order.py",
        "behind = lax.convert_element_type(lax.bitwise_not(walk.inside(op.ins[0], axis)), np.uint8)",
        "behind = lax.convert_element_type(walk.inside(op.ins[0], axis), np.uint8)",
        (f"{_PADDED}[sort]",),
    ),
    Mutation(
        "padding is among the largest", f"{_RULES}/order.py",
        "return walk.bind(op, [walk.keep(x, op.ins[0], [axis], last)], k=count)", "return walk.bind(op, [x], k=count)",
        (f"{_PADDED}[largest]",),
    ),
    Mutation(
        "reversed from the end of the bucket", f"{_RULES}/shape.py",
        "walk.count(dims[axis]) - 1 - jnp.arange(x.shape[axis], dtype=np.int32)",
        "x.shape[axis] - 1 - jnp.arange(x.shape[axis], dtype=np.int32)",
        (f"{_PADDED}[flip]",),
    ),
    Mutation(
        "a second part stands behind the padding of the first", f"{_RULES}/shape.py",
        "        at = at + walk.count(dims[axis])\n", "        at = at + np.int32(part.shape[axis])\n",
        (f"{_PADDED}[concatenate]",),
    ),
    Mutation(
        "a size as a number is that of the bucket", f"{_RULES}/shape.py",
        'evaluate(op.params["dim"], walk.whole)', 'evaluate(op.params["dim"], walk.allocated)',
        (f"{_PADDED}[mean]",),
    ),
    Mutation(
        "a loop from the end begins in the padding", f"{_RULES}/control.py",
        "first = jnp.asarray(allocated - 1 if reverse else 0, np.int32)", "first = jnp.asarray(0, np.int32)",
        (f"{_PADDED}[scan from the end]",),
    ),
    Mutation(
        "a loop goes on over the padding", f"{_RULES}/control.py",
        "new = [lax.select(lax.broadcast(inside, a.shape), a, b) for a, b in zip(new, held, strict=True)]", "new = list(new)",
        (f"{_PADDED}[scan]",),
    ),
    Mutation(
        "a row goes on when it is done", f"{_RULES}/control.py",
        "return [lax.select(lax.broadcast_in_dim(going, a.shape, range(len(dims))), a, b) for a, b in zip(new, carry, strict=True)]",
        "return new",
        (f"{_PADDED}[vmap of a loop]",),
    ),
    Mutation(
        "a matrix is padded with zeros and no identity", f"{_RULES}/matrices.py",
        "return lax.select(behind, lax.full(x.shape, 1, x.dtype), x)", "return x",
        (f"{_PADDED}[solve along it]", f"{_PADDED}[cholesky along it]"),
    ),
    Mutation(
        "pivots are counted from the identity block", f"{_RULES}/matrices.py",
        "places = [lax.sub(_moved(each, rows, front), lax.broadcast(front, each.shape)) for each in (pivots, permutation)]",
        "places = [_moved(each, rows, front) for each in (pivots, permutation)]",
        (f"{_PADDED}[LU along it]",),
    ),
    Mutation(
        "draws behind an axis are counted by the bucket", f"{_RULES}/random.py",
        "sizes = [evaluate(dim, walk.whole) for dim in shape]", "sizes = [evaluate(dim, walk.allocated) for dim in shape]",
        (f"{_PADDED}[draws behind another axis]",),
    ),
]  # fmt: skip

CHUNKS = [
    Mutation(
        "the last chunk that is shorter is left out of sums", "src/jitney/_axes/chunks/chunked.py",
        "            if rest and not turn.back:\n                state, (tail, carried_in) = again(remainder)(state, before_rest)",
        "            if rest and not turn.back:\n                _, (tail, carried_in) = again(remainder)(state, before_rest)",
        (f"{_CHUNKED}[mean]",),
    ),
    Mutation(
        "chunks of a draw begin anew", f"{_RULES}/random.py",
        "begins = walk.start_of(dim) if is_ragged(dim) and walk.start else np.int32(0)", "begins = np.int32(0)",
        ("tests/axes/test_random.py::test_draws_are_those_of_the_whole",),
    ),
    Mutation(
        "positions begin anew in each chunk", f"{_RULES}/shape.py",
        "whole = lax.add(positions, lax.full(positions.shape, lax.convert_element_type(start, np.int32)))", "whole = positions",
        (f"{_CHUNKED}[positions]",),
    ),
    Mutation(
        "the place of an extreme is that in its chunk", "src/jitney/_axes/chunks/chunked.py",
        "lax.select(better, part + lax.convert_element_type(start, part.dtype), index)", "lax.select(better, part, index)",
        (f"{_CHUNKED}[min and argmin]",),
    ),
    Mutation(
        "of equal extremes the last chunk has the place", "src/jitney/_axes/chunks/chunked.py",
        "above, below = (lax.ge, lax.le) if back else (lax.gt, lax.lt)", "above, below = (lax.ge, lax.le)",
        (f"{_CHUNKED}[argmax with ties]",),
    ),
    Mutation(
        "a cumulative sum forgets the chunk before", "src/jitney/_axes/chunks/chunked.py",
        "whole = combine(part, jnp.broadcast_to(state[0], part.shape))", "whole = part",
        (f"{_CHUNKED}[cumulative sum]",),
    ),
    Mutation(
        "what a loop starts with is added in each chunk", "src/jitney/_axes/chunks/chunked.py",
        "begins[i] = lax.select(is_first, begins[i], _begun(monoid, begins[i].shape, begins[i].dtype))", "begins[i] = begins[i]",
        (f"{_CHUNKED}[sums of a loop]",),
    ),
    Mutation(
        "what a table holds is added to by each chunk", "src/jitney/_axes/chunks/chunked.py",
        'return [None], rule.pad(walk, op, [state[0], values[1], _as(values[2], state[0].dtype)])',
        'return [None], rule.pad(walk, op, [_as(values[0], state[0].dtype), values[1], _as(values[2], state[0].dtype)])',
        (f"{_CHUNKED}[segment sum]",),
    ),
    Mutation(
        "a part of a product counts as a part of a sum", f"{_RULES}/additive.py",
        "return sum(map(is_fixed, given)) == len(given) - 1", "return any(parts)",
        ("tests/axes/test_chunked.py::test_a_loop_that_reads_what_it_adds_up_is_refused",),
    ),
]  # fmt: skip

MUTATIONS = [*IDENTITIES, *REFUSALS, *MOVES, *CHUNKS]
