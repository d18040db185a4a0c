"""Operations along an axis: identities, refusals, positions, order, matrices, draws, chunks."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_CHUNKED = "tests/axes/test_chunked.py::test_"
_TURNS = "tests/axes/test_turns.py::test_"
_LOOPS = "tests/axes/test_loop_passes.py::test_"
_MONOIDS = "tests/axes/test_monoids.py::test_"
_OUTER = "tests/program/test_outer_transforms.py::test_"
_PADDED = "tests/axes/test_padded.py::test_"
_POSITIONS = "tests/axes/test_positions.py::test_"
_RANDOM = "tests/axes/test_random.py::test_"
_WATCH = "tests/axes/test_dim_hooks.py::test_"

_CONVOLUTIONS = "tests/axes/test_convolutions.py::test_the_"
_DIMS = "tests/axes/test_dims.py::test_"

SIZES = [
    Mutation(
        "a product of sizes that may be negative counts as one that grows",
        "src/jitney/_axes/dims.py",
        "return _is_monotone(node, least) and Expression(ast.unparse(node), node).at(least) >= 0",
        "return _is_monotone(node, least)",
        (f"{_DIMS}what_is_negative_at_small_sizes_is_not_cut_off[squared]",),
    ),
    Mutation(
        "padding in front that may be negative counts as one that is not",
        "src/jitney/_axes/rules/shape.py",
        "extent(low).grows_from_zero(",
        "extent(low).grows(",
        (f"{_DIMS}what_is_negative_at_small_sizes_is_not_cut_off[cut_in_front]",),
    ),
]

IDENTITIES = [
    Mutation(
        "a sum is padded with ones",
        "src/jitney/_axes/monoids.py",
        '"add": Monoid("sum", zero,',
        '"add": Monoid("sum", one,',
        (f"{_PADDED}padded_equals_exact[mean]",),
    ),
    Mutation(
        "a sum starts from plus zero",
        "src/jitney/_axes/monoids.py",
        "minus_zero = np.asarray(-0.0, np.float32)",
        "minus_zero = np.asarray(0.0, np.float32)",
        (f"{_MONOIDS}a_part_of_an_axis_that_is_added_to_keeps_the_sign_of_zero",),
    ),
    Mutation(
        "a maximum is padded with zero",
        "src/jitney/_axes/monoids.py",
        '"max": Monoid("max", lowest,',
        '"max": Monoid("max", zero,',
        (f"{_PADDED}identities_of_every_dtype[float32]",),
    ),
    Mutation(
        "a minimum of integers is padded with the largest but one",
        "src/jitney/_axes/monoids.py",
        "int(info.max if sign > 0 else info.min)",
        "int(info.max - 1 if sign > 0 else info.min)",
        (f"{_PADDED}identities_of_every_dtype[int8]",),
    ),
    Mutation(
        "a product is padded with zeros",
        "src/jitney/_axes/monoids.py",
        '"mul": Monoid("product", one,',
        '"mul": Monoid("product", zero,',
        (f"{_PADDED}padded_equals_exact[product]",),
    ),
    Mutation(
        "low types accumulate in their own type",
        "src/jitney/_axes/monoids.py",
        'lax.add, lax.reduce_sum, "psum", rounds=True',
        'lax.add, lax.reduce_sum, "psum", rounds=False',
        (f"{_MONOIDS}a_sum_of_bfloat16_counts_further_than_bfloat16_does",),
    ),
    Mutation(
        "a sum along the axis is not masked",
        "src/jitney/_axes/rules/reduce.py",
        'masked = walk.keep(x, op.ins[0], op.params["axes"], identity)',
        "masked = x",
        (f"{_PADDED}padded_equals_exact[mean]",),
    ),
    Mutation(
        "a cumulative sum from the end is not masked",
        "src/jitney/_axes/rules/reduce.py",
        'masked = walk.keep(x, op.ins[0], [op.params["axis"]], identity)',
        "masked = x",
        (f"{_PADDED}padded_equals_exact[cumulative sum from the end]",),
    ),
    Mutation(
        "the left factor of a product is not masked",
        "src/jitney/_axes/rules/linear.py",
        "a = walk.keep(a, a_dims, left, zero_of(a))",
        "a = walk.keep(a, a_dims, (), zero_of(a))",
        (f"{_PADDED}padded_equals_exact[dot]",),
    ),
    Mutation(
        "the array of a convolution is not masked",
        "src/jitney/_axes/rules/linear.py",
        "lhs = walk.keep(lhs, lhs_dims, numbers.lhs_spec[1:], zero_of(lhs))",
        "lhs = walk.keep(lhs, lhs_dims, numbers.lhs_spec[:2], zero_of(lhs))",
        (f"{_PADDED}padded_equals_exact[convolution along it]",),
    ),
    Mutation(
        "zeros behind a padded kernel meet infinities",
        "src/jitney/_axes/rules/convolution_windows.py",
        "return self._behind(self.size, self.dilation, ranges)",
        "return 0",
        (f"{_CONVOLUTIONS}gradient_for_a_kernel_has_the_infinities_of_plain_jax[one]",),
    ),
    Mutation(
        "zeros of a padded cotangent meet infinities",
        "src/jitney/_axes/rules/convolution_windows.py",
        "return self._behind(self.count, self.stride, ranges)",
        "return 0",
        (f"{_CONVOLUTIONS}derivative_of_a_padded_program_has_the_infinities_of_plain_jax[one]",),
    ),
    Mutation(
        "windows reach into what is not there",
        "src/jitney/_axes/rules/windows.py",
        "x = walk.keep(x, op.ins[0], [axis], first)",
        "x = walk.keep(x, op.ins[0], [], first)",
        (f"{_PADDED}padded_equals_exact[moving sum]",),
    ),
    Mutation(
        "a sum over a mapped axis by its name is not masked",
        "src/jitney/_axes/rules/reduce.py",
        "x = walk.keep(x, op.ins[0], axes, monoid.identity(x.dtype))",
        "x = values[0]",
        (f"{_PADDED}padded_equals_exact[mean over a mapped axis]",),
    ),
    Mutation(
        "of two padded axes one is masked",
        "src/jitney/_axes/interpreter.py",
        "[self.inside(dims, axis) for axis in axes]",
        "[self.inside(dims, axis) for axis in axes[:1]]",
        (f"{_MONOIDS}a_matrix_that_is_padded_along_both_axes_is_masked_along_both",),
    ),
    Mutation(
        "one row too many is valid",
        "src/jitney/_axes/interpreter.py",
        "return lax.lt(positions, lax.broadcast(self.count(dims[axis]), positions.shape))",
        "return lax.le(positions, lax.broadcast(self.count(dims[axis]), positions.shape))",
        (f"{_PADDED}padded_equals_exact[mean]",),
    ),
]

REFUSALS = [
    Mutation(
        "a Fourier transform is not refused",
        "src/jitney/_axes/rules/linear.py",
        'yield refuse(op, dims, "transforms along it")',
        'yield use(op, dims, "mixed", "transformed along it")',
        (f"{_PADDED}what_cannot_be_proven_is_refused[fft]",),
    ),
    Mutation(
        "singular vectors are not refused",
        "src/jitney/_axes/rules/matrices.py",
        'if op.params["compute_uv"]:',
        'if op.params["compute_uv"] and op.params["full_matrices"]:',
        (f"{_PADDED}what_cannot_be_proven_is_refused[singular vectors]",),
    ),
    Mutation(
        "a callback sees padding",
        "src/jitney/_axes/rules/callback.py",
        "if dims and not is_of_check(op.eqn):",
        "if not dims and not is_of_check(op.eqn):",
        (f"{_PADDED}what_cannot_be_proven_is_refused[callback]",),
    ),
    Mutation(
        "a reshape that interleaves the axis counts the padding of another",
        "src/jitney/_axes/rules/shape.py",
        "count = lax.max(walk.count(dim), np.int32(1))",
        "count = np.int32(evaluate(dim, walk.allocated))",
        (f"{_PADDED}padded_equals_exact[interleave]",),
    ),
    Mutation(
        "other generators of random numbers are not refused",
        "src/jitney/_axes/rules/random.py",
        'options.jax_threefry_partitionable and _key_dtype(op) == "key<fry>"',
        'options.jax_threefry_partitionable or _key_dtype(op) == "key<fry>"',
        (f"{_RANDOM}other_generators_are_refused",),
    ),
    Mutation(
        "a chunk draws from its own first key",
        "src/jitney/_jax/programs/jaxprs.py",
        '"random_bits": ("key<fry>",),',
        '"random_bits": ("key<fry>", "key<rbg>"),',
        (f"{_RANDOM}keys_of_its_own_for_each_element[draw-rbg]",),
    ),
    Mutation(
        "complex extremes are not refused",
        "src/jitney/_axes/monoids.py",
        "return not dtypes.issubdtype(dtype, np.complexfloating) and not",
        "return not",
        (f"{_MONOIDS}extremes_without_an_order_are_refused",),
    ),
    Mutation(
        "places in a type that cannot count the axis are not refused",
        "src/jitney/_axes/rules/reduce.py",
        "last = dtypes.iinfo(dtype).max",
        "last = 2**63",
        (f"{_POSITIONS}places_in_a_type_that_cannot_count_the_axis_are_refused",),
    ),
    Mutation(
        "a decision by a size is answered for a symbol",
        "src/jitney/_axes/symbolic/dim_hooks.py",
        "return not float(other).is_integer() or _never_equal(size - int(other))",
        "return True",
        (f"{_WATCH}no_decision_goes_unnoticed",),
    ),
]

MOVES = [
    Mutation(
        "a start of a slice is clamped to the bucket",
        "src/jitney/_axes/rules/indexing/fixed_windows.py",
        "return walk.count(dim) - walk.count(window)\n",
        "return np.int32(walk.shape([dim])[0]) - walk.count(window)\n",
        (f"{_POSITIONS}positions_of_every_type",),
    ),
    Mutation(
        "each chunk reads and writes the front of a buffer",
        "src/jitney/_axes/rules/indexing/fixed_windows.py",
        "at = start + begin(walk, window)",
        "at = start + np.int32(0)",
        ("tests/stages/test_buffers.py::test_in_chunks_and_streamed",),
    ),
    Mutation(
        "reading beyond the end is off by one",
        "src/jitney/_axes/rules/indexing/positions.py",
        "beyond = column > last",
        "beyond = column > last + 1",
        (f"{_POSITIONS}what_is_read_beyond_the_end_is_filled_in_and_not_what_stands_there",),
    ),
    Mutation(
        "rows of padding are scattered",
        "src/jitney/_axes/rules/indexing/scatter.py",
        "indices = lax.select(inside, indices, out_of_bounds(indices))",
        "indices = indices",
        (f"{_POSITIONS}as_many_positions_as_rows_into_as_many",),
    ),
    Mutation(
        "padding sorts in front",
        "src/jitney/_axes/rules/order.py",
        "padding = lax.bitwise_not(walk.inside(op.ins[0], axis))",
        "padding = walk.inside(op.ins[0], axis)",
        (f"{_PADDED}padded_equals_exact[sort]",),
    ),
    Mutation(
        "padding is among the largest",
        "src/jitney/_axes/rules/order.py",
        "masked = here.keep(x, dims, [axis], last)",
        "masked = x",
        (f"{_PADDED}padded_equals_exact[largest]",),
    ),
    Mutation(
        "padding of top_k is a NaN on GPUs",
        "src/jitney/_axes/rules/order.py",
        "return lax.platform_dependent(x, cpu=by_value, default=by_keys)",
        "return by_value(x)",
        ("tests/axes/test_monoids.py::test_padding_of_top_k_is_no_nan_on_a_gpu",),
    ),
    Mutation(
        "negative numbers keep their order as bits",
        "src/jitney/_axes/rules/order.py",
        "lax.select(is_negative, lax.bitwise_not(bits), bits | sign)",
        "lax.select(is_negative, bits, bits | sign)",
        ("tests/axes/test_monoids.py::test_the_keys_of_top_k_on_a_gpu_have_its_order[float32]",),
    ),
    Mutation(
        "reversed from the end of the bucket",
        "src/jitney/_axes/rules/shape.py",
        "last = walk.count(dims[axis]) - 1",
        "last = x.shape[axis] - 1",
        (f"{_PADDED}padded_equals_exact[flip]",),
    ),
    Mutation(
        "a second part stands behind the padding of the first",
        "src/jitney/_axes/rules/shape.py",
        "        at = at + walk.count(dims[axis])\n",
        "        at = at + np.int32(part.shape[axis])\n",
        (f"{_PADDED}padded_equals_exact[concatenate]",),
    ),
    Mutation(
        "a size as a number is that of the bucket",
        "src/jitney/_axes/rules/shape.py",
        'evaluate(op.params["dim"], walk.whole)',
        'evaluate(op.params["dim"], walk.allocated)',
        (f"{_PADDED}padded_equals_exact[mean]",),
    ),
    Mutation(
        "a loop from the end begins in the padding",
        "src/jitney/_axes/rules/control.py",
        "first = jnp.asarray(allocated - 1 if reverse else 0, np.int32)",
        "first = jnp.asarray(0, np.int32)",
        (f"{_PADDED}padded_equals_exact[scan from the end]",),
    ),
    Mutation(
        "a loop goes on over the padding",
        "src/jitney/_axes/rules/control.py",
        "out[k] = lax.select(lax.broadcast(inside, old.shape), out[k], old)",
        "out[k] = lax.select(lax.broadcast(inside, old.shape), out[k], out[k])",
        (f"{_PADDED}padded_equals_exact[scan]",),
    ),
    Mutation(
        "a row goes on when it is done",
        "src/jitney/_jax/programs/control.py",
        "carry.append(jax.lax.select(goes_on, x, y))",
        "carry.append(x)",
        (f"{_PADDED}padded_equals_exact[vmap of a loop]",),
    ),
    Mutation(
        "a matrix is padded with zeros and no identity",
        "src/jitney/_axes/rules/matrices.py",
        "return lax.select(walk.inside_all(dims, [rows, rows + 1]), x, identity)",
        "return lax.select(walk.inside_all(dims, [rows, rows + 1]), x, lax.full_like(x, 0))",
        (
            f"{_PADDED}padded_equals_exact[solve along it]",
            f"{_PADDED}padded_equals_exact[cholesky along it]",
        ),
    ),
    Mutation(
        "a padded maximum drops a NaN where XLA's library does",
        "src/jitney/_axes/xla_faults/lost_nans.py",
        'return [with_nans(out, meets_nan(x, eqn.params["axes"]))]',
        "return [out]",
        ("tests/axes/test_lost_nans.py::test_lax_reduce_to_a_maximum_keeps_a_nan",),
    ),
    Mutation(
        "a maximum beside a sum drops a NaN where XLA's library does",
        "src/jitney/_axes/xla_faults/library_fusions.py",
        "return [_with_nan(eqn, values, bind(values)[0])]",
        "return bind(values)",
        ("tests/axes/test_library_fusions.py::test_a_nan_is_kept[relu_then_sum]",),
    ),
    Mutation(
        "a conversion to bytes is fused with the sum behind it",
        "src/jitney/_axes/xla_faults/library_fusions.py",
        "is_of_bytes = name in (*_OF_BYTES, CONVERSION) and dtype in _BYTES",
        "is_of_bytes = name in _OF_BYTES and dtype in _BYTES",
        ("tests/axes/test_library_fusions.py::test_a_conversion_to_int8_truncates",),
    ),
    Mutation(
        "pivots are counted from the identity block",
        "src/jitney/_axes/rules/matrices.py",
        "lax.sub(_rotate(each, rows, front), lax.broadcast(front, each.shape))",
        "_rotate(each, rows, front)",
        (f"{_PADDED}padded_equals_exact[LU along it]",),
    ),
    Mutation(
        "draws behind an axis are counted by the bucket",
        "src/jitney/_axes/rules/random.py",
        "sizes = [evaluate(dim, walk.whole) for dim in shape]",
        "sizes = [evaluate(dim, walk.allocated) for dim in shape]",
        (f"{_PADDED}padded_equals_exact[draws behind another axis]",),
    ),
]

CHUNKS = [
    Mutation(
        "the last chunk that is shorter is left out of sums",
        "src/jitney/_axes/chunks/in_memory.py",
        "self.rest and not back:\n            state, at_end =",
        "self.rest and not back:\n            _, at_end =",
        (f"{_CHUNKED}chunks_equal_the_whole_or_are_refused[mean]",),
    ),
    Mutation(
        "chunks of a draw begin anew",
        "src/jitney/_axes/rules/random.py",
        "begins = walk.start_of(dim) if is_ragged(dim) and walk.start else np.int32(0)",
        "begins = np.int32(0)",
        (f"{_RANDOM}draws_are_those_of_the_whole",),
    ),
    Mutation(
        "the place of an extreme is that in its chunk",
        "src/jitney/_axes/carriers/extremes.py",
        "lax.select(better, part + lax.convert_element_type(start, part.dtype), index)",
        "lax.select(better, part, index)",
        (f"{_CHUNKED}chunks_equal_the_whole_or_are_refused[min and argmin]",),
    ),
    Mutation(
        "sizes that a narrow position does not hold are not looked at",
        "src/jitney/_axes/symbolic/symbolic_trace.py",
        "        for known in narrow.outside(ranges):",
        "        for known in ():",
        ("tests/axes/test_narrow_sizes.py::test_each_size_is_as_plain_jax_has_it",),
    ),
    Mutation(
        "of equal extremes the last chunk has the place",
        "src/jitney/_axes/carriers/extremes.py",
        "above, below = (lax.ge, lax.le) if chunk.back else (lax.gt, lax.lt)",
        "above, below = (lax.ge, lax.le)",
        (f"{_CHUNKED}chunks_equal_the_whole_or_are_refused[argmax with ties]",),
    ),
    Mutation(
        "a cumulative sum forgets the chunk before",
        "src/jitney/_axes/carriers/folds.py",
        "whole = self.monoid.combine(part, jnp.broadcast_to(state[0], part.shape))",
        "whole = part",
        (f"{_CHUNKED}chunks_equal_the_whole_or_are_refused[cumulative sum]",),
    ),
    Mutation(
        "what a loop starts with is added in each chunk",
        "src/jitney/_axes/chunks/chunk_evaluator.py",
        "begins[i] = lax.select(is_first, x, monoid.filled(x.shape, x.dtype))",
        "begins[i] = x",
        (f"{_CHUNKED}chunks_equal_the_whole_or_are_refused[sums of a loop]",),
    ),
    Mutation(
        "a chunk stops where it is done, though others go on",
        "src/jitney/_axes/chunks/turns.py",
        "return lax.lt(k, least) | goes_on",
        "return goes_on",
        (f"{_TURNS}all_that_is_carried_equals_the_whole[begin_again]",),
    ),
    Mutation(
        "iterations are counted once, not until they stay as they are",
        "src/jitney/_stream/stream_run.py",
        "if not _are_known(reached_counts, counts):",
        "if counts is None and not _are_known(reached_counts, counts):",
        (f"{_TURNS}a_stream_counts_until_no_chunk_takes_more",),
    ),
    Mutation(
        "a maximum that may be NaN is compared chunk by chunk",
        "src/jitney/_axes/chunks/partial_results.py",
        "if not issubdtype(dtype, np.integer) or sum(map(is_fixed, given)) != 1:",
        "if sum(map(is_fixed, given)) != 1:",
        (f"{_TURNS}what_is_not_the_same_for_each_chunk_is_refused[a float's maximum]",),
    ),
    Mutation(
        "a loop that is counted loses its callbacks",
        "src/jitney/_axes/chunks/turns.py",
        "new = interpret(program, [*of_body, *carry], rebind)",
        "new = self._step(of_body, carry, list(range(len(carry))))",
        (f"{_TURNS}checks_raise_and_prints_appear_as_often_as_in_plain_jax",),
    ),
    Mutation(
        "a derivative takes the numbers before its own",
        "src/jitney/_axes/padded.py",
        "values[self.first : last]",
        "values[self.first - 1 : last - 1]",
        (f"{_OUTER}a_gradient_of_what_python_computes_of_the_size_is_padded",),
    ),
    Mutation(
        "the passes of an iteration leave out the rest",
        "src/jitney/_axes/chunks/in_memory.py",
        "        size = int(outer.size)\n",
        "        size = int(outer.size) // chunk * chunk\n",
        (f"{_LOOPS}a_solver_stops_where_numpy_does",),
    ),
    Mutation(
        "a part of a product counts as a part of a sum",
        "src/jitney/_axes/rules/partials.py",
        "return sum(map(is_fixed, given)) == len(given) - 1",
        "return any(parts)",
        (f"{_CHUNKED}a_loop_that_reads_what_it_adds_up_is_refused",),
    ),
]

MUTATIONS = [*SIZES, *IDENTITIES, *REFUSALS, *MOVES, *CHUNKS]
