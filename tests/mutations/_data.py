"""Derivatives, states and loops, streams, files, cached programs."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_CONTAINER = "tests/export/test_container.py::test_"
_LOADED = "tests/export/test_loaded.py::test_"
_BUCKETS = "tests/export/test_padded.py::test_"
_DERIVATIVES = "tests/interface/test_derivatives.py::test_"
_SCAN_STEPS = "tests/interface/test_scan_steps.py::test_"
_STATE = "tests/interface/test_state.py::test_"
_KEPT = "tests/serialized/test_kept.py::test_"
_LOOKED_UP = "tests/serialized/test_dynamic_reads.py::test_"
_PADDED_JACOBIANS = "tests/sparsity/test_padded_jacobians.py::test_"
_SPARSITY = "tests/sparsity/test_sparsity.py::test_"
_STAR = "tests/sparsity/test_star.py::test_"
_ACCUMULATE = "tests/stream/test_accumulate.py::test_"
_CHANGED_DATA = "tests/stream/test_changed_data.py::test_"
_STREAM = "tests/stream/test_stream.py::test_"
_CHUNK_MEMORY = "tests/stream/test_chunk_memory.py::test_"

DERIVATIVES = [
    Mutation(
        "columns that share a row have one colour",
        "src/jitney/_sparsity/compressed.py",
        "self.scheme.colours[cross] * width + line - line_start",
        "self.scheme.colours[cross] * width + cross - line_start",
        (f"{_SPARSITY}jacobians_are_those_of_jax",),
    ),
    Mutation(
        "outside of the pattern everything is zero",
        "src/jitney/_sparsity/compressed.py",
        "jnp.where(odd, nan, jnp.zeros((), stack.dtype))",
        "jnp.where(odd, jnp.zeros((), stack.dtype), jnp.zeros((), stack.dtype))",
        (
            "tests/sparsity/test_constant_folding.py",
            f"{_PADDED_JACOBIANS}derivatives_that_are_nan_spread_as_without_padding",
        ),
    ),
    Mutation(
        "a Hessian is read at its own place though it is at the mirror image",
        "src/jitney/_sparsity/compressed.py",
        "line, cross = np.where(mirrored, cross, line), np.where(mirrored, line, cross)",
        "line, cross = line, cross",
        (f"{_STAR}hessians_are_those_of_jax",),
    ),
    Mutation(
        "rules of one's own are symmetric",
        "src/jitney/_sparsity/colours/colouring.py",
        "eqn.primitive.name in _PROVEN and all(",
        "eqn.primitive.name in _PROVEN or all(",
        (
            f"{_STAR}a_rule_of_ones_own_keeps_columns_apart",
            f"{_STAR}symmetry_is_not_known_of_rules_and_of_what_is_odd_at_a_point",
        ),
    ),
    Mutation(
        "of a branch the first alternative is all that a result depends on",
        "src/jitney/_sparsity/dependence.py",
        "return union(there) if there else None",
        "return there[0] if there else None",
        (f"{_SPARSITY}jacobians_are_those_of_jax", f"{_SPARSITY}patterns_hold_and_are_tight"),
    ),
    Mutation(
        "a Jacobian in batches is stacked along the other axis",
        "src/jitney/_sparsity/directions.py",
        "return [jnp.moveaxis(stack, 0, axis) for stack in stacks]",
        "return [jnp.moveaxis(stack, 0, -1 - axis) for stack in stacks]",
        (f"{_SPARSITY}directions_are_chunked_to_fit_memory",),
    ),
    Mutation(
        "a Hessian of two arguments is transposed",
        "src/jitney/_stages/derivatives/jacobians.py",
        "self._by_name({b: rows[b][a] for b in self.names})",
        "self._by_name({b: rows[a][b] for b in self.names})",
        (f"{_DERIVATIVES}derivatives_are_those_of_jax[hessian-{{}}]",),
    ),
    Mutation(
        "an argument left out of a derivative is in it",
        "src/jitney/_stages/derivatives/arguments.py",
        "if name not in self.derived.skip and any(map(_is_real, jax.tree.leaves(value)))",
        "if any(map(_is_real, jax.tree.leaves(value)))",
        (f"{_DERIVATIVES}defaults_are_said_once",),
    ),
    Mutation(
        "a derivative is donated what its function is",
        "src/jitney/_interface/derivatives/derivative.py",
        "replace(options, vmap=mapped, donate=(), remat=None, memory=memory)",
        "replace(options, vmap=mapped, remat=None, memory=memory)",
        (f"{_DERIVATIVES}donated_arguments_live",),
    ),
    Mutation(
        "a derivative shares its program with another argument's",
        "src/jitney/_interface/derivatives/derivative.py",
        "key = (self.what, names, single, aux)",
        "key = (self.what, single, aux)",
        (f"{_DERIVATIVES}each_argument_has_a_derivative_of_its_own",),
    ),
]

LOOPS = [
    Mutation(
        "a matrix of a state is put into its vector by columns",
        "src/jitney/_interface/state_vector.py",
        "xp.reshape(one, (-1,))",
        "xp.reshape(one.T, (-1,))",
        (f"{_STATE}a_vector_and_back",),
    ),
    Mutation(
        "a derived field is not computed anew after a change in place",
        "src/jitney/_interface/derived.py",
        "yield value.dtype, value.shape, value.tobytes()",
        "yield value.dtype, value.shape, id(value)",
        (f"{_STATE}an_array_that_is_changed_in_place_has_other_values",),
    ),
    Mutation(
        "a derived field is known whatever the settings",
        "src/jitney/_interface/derived.py",
        "key, trace = (rule, settings()), core.get_opaque_trace_state()",
        "key, trace = (rule, None), core.get_opaque_trace_state()",
        (f"{_STATE}a_field_is_computed_anew_under_other_settings",),
    ),
    Mutation(
        "a field that is missing is None to a rule",
        "src/jitney/_interface/state.py",
        "            if value is None:\n                _check_present(self, name)\n",
        "",
        (f"{_STATE}missing_inputs_are_an_error",),
    ),
    Mutation(
        "a vector and its state share memory",
        "src/jitney/_interface/state_vector.py",
        "array = np.array(vector)",
        "array = np.asarray(vector)",
        (f"{_STATE}a_vector_and_its_state_share_no_memory",),
    ),
    Mutation(
        "steps of a loop are one too few",
        "src/jitney/_interface/scan_steps.py",
        "data, length=self.n)",
        "data, length=self.n - (not self.over))",
        ("tests/interface/test_scan_steps.py",),
    ),
    Mutation(
        "a step may hand on another dtype",
        "src/jitney/_interface/scan_steps.py",
        "(old.shape, old.dtype) == (new.shape, new.dtype)",
        "old.shape == new.shape",
        (f"{_SCAN_STEPS}a_step_that_does_not_fit_the_next_one_is_refused",),
    ),
    Mutation(
        "a loss that is no sum is accumulated",
        "src/jitney/_stages/derivatives/gradients.py",
        "        if not use.is_sum:\n",
        "        if use.refused:\n",
        (f"{_ACCUMULATE}what_is_no_sum_is_refused_with_its_line",),
    ),
]

STREAMS = [
    Mutation(
        "memory of a chunk is used again though a derivative holds it",
        "src/jitney/_stream/stream_run.py",
        "run.reader.memory.keep_chunks()",
        "pass",
        (f"{_CHUNK_MEMORY}a_derivative_around_a_stream_has_each_chunk",),
    ),
    Mutation(
        "a chunk is read into the memory of the one whose step runs",
        "src/jitney/_stream/data/chunk_memory.py",
        "_CHUNKS = 2",
        "_CHUNKS = 1",
        (f"{_CHUNK_MEMORY}memory_of_a_chunk_is_that_before_the_last",),
    ),
    Mutation(
        "what the last step gives is not fetched",
        "src/jitney/_stream/stream_run.py",
        "            outputs.fetch()\n",
        "",
        (f"{_CHUNK_MEMORY}results_along_the_axis_are_each_chunks_own",),
    ),
    Mutation(
        "the last chunk of a stream is dropped if it is shorter",
        "src/jitney/_stream/resume.py",
        "return [piece for piece in pieces if piece[0] >= done",
        "return [piece for piece in pieces if piece[0] >= done and piece[1] == pieces[0][1]",
        (f"{_STREAM}any_source_gives_the_results_of_one_call",),
    ),
    Mutation(
        "a run goes on with the chunk that was done",
        "src/jitney/_stream/stream_run.py",
        "over = steps.total - start if turn.back else start + count",
        "over = steps.total - start if turn.back else start",
        (f"{_STREAM}a_run_that_breaks_off_goes_on",),
    ),
    Mutation(
        "a pass from the end goes on one chunk too late",
        "src/jitney/_stream/resume.py",
        "return [piece for piece in pieces[::-1] if sum(piece) <= total - done]",
        "return [piece for piece in pieces[::-1] if sum(piece) < total - done]",
        (f"{_STREAM}a_broken_pass_from_the_end_goes_on", f"{_STREAM}a_pass_may_run_from_the_end"),
    ),
    Mutation(
        "a checkpoint of another run is gone on with",
        "src/jitney/_stream/resume.py",
        "            if key != self.key:\n",
        "            if key.keys() != self.key.keys():\n",
        (f"{_STREAM}a_checkpoint_of_another_run_is_refused",),
    ),
    Mutation(
        "a damaged checkpoint is read",
        "src/jitney/_stream/resume.py",
        "if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:",
        "if not content.startswith(_MAGIC):",
        (f"{_STREAM}a_damaged_checkpoint_is_refused",),
    ),
    Mutation(
        "narrow floats of a checkpoint come back as whole numbers",
        "src/jitney/_stream/resume.py",
        "return x.view(np.dtype(dtype)) if dtype else x",
        "return x",
        (f"{_STREAM}narrow_floats_are_kept",),
    ),
    Mutation(
        "rows that change between passes are mixed",
        "src/jitney/_stream/data/reading.py",
        "if is_known and mark != self._marks[i, j]:",
        "if is_known and mark == 0 != self._marks[i, j]:",
        (f"{_CHANGED_DATA}rows_that_change_between_two_passes_are_an_error",),
    ),
    Mutation(
        "a reading that failed is not made again",
        "src/jitney/_stream/data/reading.py",
        "if tried == retries or isinstance(error, _FINAL):",
        "if tried <= retries or isinstance(error, _FINAL):",
        (f"{_STREAM}a_reading_that_fails_is_made_again",),
    ),
]

FILES = [
    Mutation(
        "the digest of a file is not compared",
        "src/jitney/_export/container.py",
        "    if hashlib.sha256(line + body).digest() != digest:\n",
        "    if len(digest) != _DIGEST:\n",
        (f"{_CONTAINER}no_flipped_bit_is_loaded",),
    ),
    Mutation(
        "a file of a later JAX is loaded",
        "src/jitney/_export/loading/versions.py",
        'if _number(jax.__version__) < _number(header["jax"]):',
        'if _number(jax.__version__)[:1] < _number(header["jax"])[:1]:',
        (f"{_CONTAINER}a_file_of_a_later_jax_is_a_sentence",),
    ),
    Mutation(
        "the dtype of an argument of a loaded program is not compared",
        "src/jitney/_export/loading/sizes.py",
        (
            "    if any(\n"
            '        str(dtype) != aval["dtype"] or weak != aval["weak"] or len(shape) != len(aval["shape"])\n'
            "        for i, (aval, shape, dtype, weak) in enumerate(pairs)\n"
        ),
        (
            "    if any(\n"
            '        len(shape) != len(aval["shape"])\n'
            "        for i, (aval, shape, dtype, weak) in enumerate(pairs)\n"
        ),
        ("tests/export/test_loaded.py",),
    ),
    Mutation(
        "a static value of a loaded program is not compared",
        "src/jitney/_export/trees.py",
        '            if not is_same(tree["value"], tree["held"], value):\n',
        '            if not is_same(tree["value"], tree["held"], tree["held"]):\n',
        (f"{_LOADED}another_static_value_is_a_sentence_not_another_number",),
    ),
    Mutation(
        "a size beyond the range is taken",
        "src/jitney/_export/loading/sizes.py",
        "if not low <= known.get(symbol, low) <= high:",
        "if not low <= known.get(symbol, low):",
        (f"{_LOADED}one_program_takes_all_sizes_of_a_range",),
    ),
    Mutation(
        "a loaded bucket takes a size at which Python does something else",
        "src/jitney/_export/loading/sizes.py",
        "    return next((values for at, values in numbers if at == own), None)",
        "    return next((values for at, values in numbers if at == own), numbers[0][1])",
        (f"{_BUCKETS}a_size_at_which_python_does_something_else_is_not_taken",),
    ),
    Mutation(
        "a loaded bucket takes its own size for the true one",
        "src/jitney/_export/loading/running.py",
        "np.asarray(sizes[name], np.int32) for name",
        "np.asarray(max(sizes[name], told['sizes'][name][1]), np.int32) for name",
        (f"{_BUCKETS}a_bucket_is_right_without_jitney_too",),
    ),
    Mutation(
        "an array that a bucket is bound to may have another size",
        "src/jitney/_export/loading/sizes.py",
        "    return all(size == _at(told, known) for size, told in axes)",
        "    return all(size == _at(told, known) for size, told in axes[-1:])",
        (f"{_BUCKETS}what_a_program_is_bound_to_keeps_its_size",),
    ),
    Mutation(
        "a float64 program is loaded into float32",
        "src/jitney/_export/loading/loaded.py",
        'return x64(True) if self._header["f64"] else nullcontext()',
        "return nullcontext()",
        (f"{_LOADED}a_float64_program_stays_one",),
    ),
    Mutation(
        "a result of a loaded program is strongly typed",
        "src/jitney/_export/loading/running.py",
        "set_weak_type(x, is_weak=True) if is_weak else x",
        "x",
        (f"{_LOADED}results_are_those_of_the_program",),
    ),
    Mutation(
        "a loaded program keeps a check that failed to itself",
        "src/jitney/_export/loading/running.py",
        "    if failed:\n        check, index",
        "    if failed < 0:\n        check, index",
        (f"{_LOADED}a_check_raises_as_it_did",),
    ),
]

KEPT = [
    Mutation(
        "settings of JAX are no part of the key of a cached program",
        "src/jitney/_serialized/key.py",
        "around = [_versions(), _settings(), _machine(laid), registered_anywhere()]",
        "around = [_versions(), _machine(laid), registered_anywhere()]",
        (f"{_KEPT}other_settings_are_other_programs",),
    ),
    Mutation(
        "the function is no part of the key of a cached program",
        "src/jitney/_serialized/key.py",
        '    walk.add(fn, "")\n',
        "",
        ("tests/serialized/test_edits.py",),
    ),
    Mutation(
        "the shapes of arguments are no part of the key of a cached program",
        "src/jitney/_serialized/key.py",
        "abstract.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))",
        "abstract.append(jax.ShapeDtypeStruct((), dtype, weak_type=weak))",
        (f"{_KEPT}other_shapes_dtypes_and_ranks_are_other_programs",),
    ),
    Mutation(
        "an entry of another key is run",
        "src/jitney/_serialized/stored.py",
        "if stored is None or stored.key != key:",
        "if stored is None:",
        (f"{_KEPT}an_entry_that_is_damaged_or_foreign_is_not_run",),
    ),
    Mutation(
        "edited libraries are taken as they were",
        "src/jitney/_serialized/request.py",
        (
            "        changed = (\n"
            "            stored.libraries.first_change()\n"
            "            or self._unreadable(stored)\n"
            "            or self._changed_reads(stored)\n"
        ),
        (
            "        changed = (\n"
            "            self._unreadable(stored)\n"
            "            or self._changed_reads(stored)\n"
        ),
        (f"{_KEPT}a_patched_function_that_a_library_uses_is_seen",),
    ),
    Mutation(
        "names that are looked up are not asked again",
        "src/jitney/_serialized/request.py",
        'None if is_same else "a name that it looks up stands for something else"',
        "None",
        (f"{_LOOKED_UP}what_is_looked_up_by_name_is_asked_for_again",),
    ),
    Mutation(
        "an entry that others may write is run",
        "src/jitney/_jax/compile_cache/own_entries.py",
        " os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)",
        " os.geteuid()",
        (
            f"{_KEPT}an_entry_that_is_damaged_or_foreign_is_not_run",
            "tests/jax/compile_cache/test_entries.py",
        ),
    ),
]

MUTATIONS = [*DERIVATIVES, *LOOPS, *STREAMS, *FILES, *KEPT]
