"""Derivatives, states and loops, streams, files, kept programs."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_SPARSITY = "src/jitney/_sparsity"
_STREAM = "src/jitney/_stream"

DERIVATIVES = [
    Mutation(
        "columns that share a row have one colour", f"{_SPARSITY}/compressed.py",
        "self.scheme.colours[cross] * width + line - line_start", "self.scheme.colours[cross] * width + cross - line_start",
        ("tests/sparsity/test_sparsity.py::test_jacobians_are_those_of_jax",),
    ),
    Mutation(
        "outside of the pattern everything is zero", f"{_SPARSITY}/compressed.py",
        "rest = _jnp.where(odd, _jnp.asarray(np.nan, stack.dtype), _jnp.zeros((), stack.dtype))",
        "rest = _jnp.where(odd, _jnp.zeros((), stack.dtype), _jnp.zeros((), stack.dtype))",
        ("tests/sparsity/test_known_values.py", "tests/sparsity/test_padded_jacobians.py::test_derivatives_that_are_nan_spread_as_without_padding"),
    ),
    Mutation(
        "a Hessian is read at its own place though it is at the mirror image", f"{_SPARSITY}/compressed.py",
        "line, cross = np.where(mirrored, cross, line), np.where(mirrored, line, cross)", "line, cross = line, cross",
        ("tests/sparsity/test_star.py::test_hessians_are_those_of_jax",),
    ),
    Mutation(
        "rules of one's own are symmetric", f"{_SPARSITY}/colours/star.py",
        "return all(eqn.primitive.name in _PROVEN and all(map(has_symmetric_hessian, _inside(eqn))) for eqn in opened(traced)[0].eqns)",
        "return True",
        ("tests/sparsity/test_star.py::test_a_rule_of_ones_own_keeps_columns_apart",
         "tests/sparsity/test_star.py::test_symmetry_is_not_known_of_rules_and_of_what_is_odd_at_a_point"),
    ),
    Mutation(
        "a loop depends on what its first turn depends on", f"{_SPARSITY}/dependence.py",
        "        if after == carried:\n            break\n        carried = after\n", "        break\n",
        ("tests/sparsity/test_sparsity.py::test_jacobians_are_those_of_jax", "tests/sparsity/test_sparsity.py::test_patterns_hold_and_are_tight"),
    ),
    Mutation(
        "an index of a sparse Jacobian is that of its transpose", f"{_SPARSITY}/compressed.py",
        "flat = here.rows * math.prod(taken) + here.columns", "flat = here.columns * math.prod(out) + here.rows",
        ("tests/sparsity/test_sparsity.py::test_jacobians_are_those_of_jax", "tests/interface/test_derivatives.py::test_derivatives_are_those_of_jax"),
    ),
    Mutation(
        "a Jacobian in batches is stacked along the other axis", f"{_SPARSITY}/directions.py",
        "return [_jnp.moveaxis(stack, 0, axis) for stack in stacks]", "return [_jnp.moveaxis(stack, 0, -1 - axis) for stack in stacks]",
        ("tests/sparsity/test_sparsity.py::test_directions_are_chunked_to_fit_memory",),
    ),
    Mutation(
        "a Hessian of two arguments is transposed", "src/jitney/_stages/derive.py",
        "self._by_name({b: rows[b][a] for b in self.names})", "self._by_name({b: rows[a][b] for b in self.names})",
        ("tests/interface/test_derivatives.py::test_derivatives_are_those_of_jax", "tests/interface/test_derivatives.py::test_modes_give_the_same"),
    ),
    Mutation(
        "the product with a Hessian is that with the gradient", "src/jitney/_stages/derive.py",
        "return self._by_name(_jax.jvp(_jax.grad(self._scalar), (self.at,), (self._tangents(),))[1])",
        "return self._by_name(_jax.jvp(_jax.grad(self._scalar), (self.at,), (self._tangents(),))[0])",
        ("tests/interface/test_derivatives.py::test_derivatives_are_those_of_jax",),
    ),
    Mutation(
        "an argument left out of a derivative is in it", "src/jitney/_stages/derive.py",
        "if name not in self.derived.skip and any(", "if any(",
        ("tests/interface/test_derivatives.py::test_defaults_are_said_once",),
    ),
    Mutation(
        "a gradient of complex numbers is not refused", "src/jitney/_stages/derive.py",
        "        self._check_real()\n", "",
        ("tests/interface/test_derivatives.py::test_what_has_no_derivative_is_refused",),
    ),
    Mutation(
        "a derivative is donated what its function is", "src/jitney/_interface/derivatives.py",
        "replace(options, donate=(), remat=None, memory=memory)", "replace(options, remat=None, memory=memory)",
        ("tests/interface/test_derivatives.py::test_donated_arguments_live",),
    ),
    Mutation(
        "a derivative shares its program with another argument's", "src/jitney/_interface/derivatives.py",
        "key = (self.what, names, single, aux)", "key = (self.what, single, aux)",
        ("tests/interface/test_derivatives.py::test_derivatives_are_those_of_jax", "tests/interface/test_derivatives.py::test_defaults_are_said_once"),
    ),
]  # fmt: skip

LOOPS = [
    Mutation(
        "numbers that stand next to each other are put in front of arrays", "src/jitney/_interface/state_vector.py",
        "if not shape and runs and runs[-1][1] == i and not shapes[runs[-1][0]]:", "if not shape and runs and not shapes[runs[-1][0]]:",
        ("tests/interface/test_state.py",),
    ),
    Mutation(
        "a derived field is not computed anew after a change in place", "src/jitney/_interface/derived.py",
        "yield value.dtype, value.shape, value.tobytes()", "yield value.dtype, value.shape, id(value)",
        ("tests/interface/test_state.py::test_an_array_that_is_changed_in_place_has_other_values",),
    ),
    Mutation(
        "a derived field is known whatever the settings", "src/jitney/_interface/derived.py",
        "key, trace = (rule, settings()), _core.get_opaque_trace_state()", "key, trace = (rule, None), _core.get_opaque_trace_state()",
        ("tests/interface/test_state.py::test_a_field_is_computed_anew_under_other_settings",),
    ),
    Mutation(
        "a field that is missing is None to a rule", "src/jitney/_interface/state.py",
        "            if value is None:\n                _check_there(self, name)\n", "",
        ("tests/interface/test_state.py::test_missing_inputs_are_an_error",),
    ),
    Mutation(
        "a vector and its state share memory", "src/jitney/_interface/state_vector.py",
        "array: Any = np.array(vector)", "array: Any = np.asarray(vector)",
        ("tests/interface/test_state.py::test_a_vector_and_its_state_share_no_memory",),
    ),
    Mutation(
        "steps of a loop are one too few", "src/jitney/_interface/scan_steps.py",
        "data, length=self.n)", "data, length=self.n - (not self.over))",
        ("tests/interface/test_scan_steps.py",),
    ),
    Mutation(
        "a step may hand on another dtype", "src/jitney/_interface/scan_steps.py",
        "(old.shape, old.dtype) == (new.shape, new.dtype)", "old.shape == new.shape",
        ("tests/interface/test_scan_steps.py::test_a_step_that_does_not_fit_the_next_one_is_refused",),
    ),
    Mutation(
        "data for other numbers of steps are cut", "src/jitney/_interface/scan_steps.py",
        "if leaf.ndim == 0 or leaf.shape[0] != self.n:", "if leaf.ndim == 0 or leaf.shape[0] < self.n:",
        ("tests/interface/test_scan_steps.py::test_data_with_another_number_of_elements_is_refused",),
    ),
    Mutation(
        "a loss that is no sum is accumulated", "src/jitney/_stages/derive.py",
        "            if not use.is_sum:\n", "            if use.refused:\n",
        ("tests/stream/test_accumulate.py::test_what_is_no_sum_is_refused_with_its_line",),
    ),
    Mutation(
        "a statistic of the whole batch is accumulated", "src/jitney/_stages/derive.py",
        "            if passes.levels > 1:\n", "            if passes.levels > 9:\n",
        ("tests/stream/test_accumulate.py::test_what_is_no_sum_is_refused_with_its_line",),
    ),
    Mutation(
        "microbatches go with `pad`", f"{_STREAM}/accumulate.py",
        '        ("pad", core.options.pad, "leave it out: a last microbatch that is shorter needs no padding."),\n', "",
        ("tests/stream/test_accumulate.py::test_what_contradicts_itself_is_refused_at_once",),
    ),
]  # fmt: skip

STREAMS = [
    Mutation(
        "the last chunk of a stream is dropped if it is shorter", f"{_STREAM}/resume.py",
        "        return [piece for piece in pieces if piece[0] >= done]\n",
        "        return [piece for piece in pieces if piece[0] >= done and piece[1] == pieces[0][1]]\n",
        ("tests/stream/test_stream.py::test_any_source_gives_the_results_of_one_call",),
    ),
    Mutation(
        "a run goes on with the chunk that was done", f"{_STREAM}/stream.py",
        "over = steps.total - start if turn.back else start + count", "over = steps.total - start if turn.back else start",
        ("tests/stream/test_stream.py::test_a_run_that_breaks_off_goes_on",),
    ),
    Mutation(
        "a pass from the end goes on one chunk too late", f"{_STREAM}/resume.py",
        "return [piece for piece in pieces[::-1] if sum(piece) <= total - done]", "return [piece for piece in pieces[::-1] if sum(piece) < total - done]",
        ("tests/stream/test_stream.py::test_a_broken_pass_from_the_end_goes_on", "tests/stream/test_stream.py::test_a_pass_may_run_from_the_end"),
    ),
    Mutation(
        "a checkpoint of another run is gone on with", f"{_STREAM}/resume.py",
        "            if key != self.key:\n", "            if key.keys() != self.key.keys():\n",
        ("tests/stream/test_stream.py::test_a_checkpoint_of_another_run_is_refused",),
    ),
    Mutation(
        "a damaged checkpoint is read", f"{_STREAM}/resume.py",
        "if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:", "if not content.startswith(_MAGIC):",
        ("tests/stream/test_stream.py::test_a_damaged_checkpoint_is_refused",),
    ),
    Mutation(
        "the size of a chunk is no part of a checkpoint", f"{_STREAM}/stream.py",
        '            "the size of a chunk": repr([steps.size, steps.laid.key]),\n', "",
        ("tests/stream/test_stream.py::test_a_checkpoint_of_another_run_is_refused",),
    ),
    Mutation(
        "narrow floats of a checkpoint come back as whole numbers", f"{_STREAM}/resume.py",
        "return x.view(np.dtype(dtype)) if dtype else x", "return x",
        ("tests/stream/test_stream.py::test_narrow_floats_are_kept",),
    ),
    Mutation(
        "rows that change between passes are mixed", f"{_STREAM}/reading.py",
        "if self._seen[j] and mark != self._marks[i, j]:", "if self._seen[j] and mark == 0 != self._marks[i, j]:",
        ("tests/stream/test_changed_data.py::test_rows_that_change_between_two_passes_are_an_error",),
    ),
    Mutation(
        "a reading that failed is not made again", f"{_STREAM}/reading.py",
        "if tried == retries or is_a(", "if tried <= retries or is_a(",
        ("tests/stream/test_stream.py::test_a_reading_that_fails_is_made_again",),
    ),
    Mutation(
        "a finished run leaves its checkpoint", f"{_STREAM}/stream.py",
        "        if kept is not None:\n            kept.remove()\n", "",
        ("tests/stream/test_stream.py::test_a_run_that_breaks_off_goes_on",),
    ),
]  # fmt: skip

FILES = [
    Mutation(
        "the digest of a file is not compared", "src/jitney/_export/container.py",
        "    if hashlib.sha256(line + body).digest() != digest:\n", "    if len(digest) != _DIGEST:\n",
        ("tests/export/test_container.py::test_no_flipped_bit_is_loaded",),
    ),
    Mutation(
        "a file of a later JAX is loaded", "src/jitney/_export/versions.py",
        "if _number(jax.__version__) < _number(header[\"jax\"]):", "if _number(jax.__version__)[:1] < _number(header[\"jax\"])[:1]:",
        ("tests/export/test_container.py::test_a_file_of_a_later_jax_is_a_sentence",),
    ),
    Mutation(
        "the dtype of an argument of a loaded program is not compared", "src/jitney/_export/sizes.py",
        'if any(str(dtype) != aval["dtype"] or weak != aval["weak"] or', "if any(",
        ("tests/export/test_loaded.py", ),
    ),
    Mutation(
        "a static value of a loaded program is not compared", "src/jitney/_export/trees.py",
        '            if not is_same(tree["value"], tree["held"], value):\n', '            if not is_same(tree["value"], tree["held"], tree["held"]):\n',
        ("tests/export/test_loaded.py::test_another_static_value_is_a_sentence_not_another_number",),
    ),
    Mutation(
        "a size beyond the range is taken", "src/jitney/_export/sizes.py",
        "if any(not low <= known.get(symbol, low) <= high for", "if any(not low <= known.get(symbol, low) for",
        ("tests/export/test_loaded.py::test_one_program_takes_all_sizes_of_a_range",),
    ),
    Mutation(
        "a float64 program is loaded into float32", "src/jitney/_export/loaded.py",
        'return x64(True) if self._header["f64"] else nullcontext()', "return nullcontext()",
        ("tests/export/test_loaded.py::test_a_float64_program_stays_one",),
    ),
    Mutation(
        "a result of a loaded program is strongly typed", "src/jitney/_export/running.py",
        "return _convert.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)", "return x",
        ("tests/export/test_loaded.py::test_results_are_those_of_the_program",),
    ),
    Mutation(
        "a loaded program keeps a check that failed to itself", "src/jitney/_export/running.py",
        "    if failed:\n        check, index", "    if failed < 0:\n        check, index",
        ("tests/export/test_loaded.py::test_a_check_raises_as_it_did",),
    ),
    Mutation(
        "a field that was not exported is left out", "src/jitney/_export/trees.py",
        'and _set(value) == {*items, *static}', 'and _set(value) >= {*items, *static}',
        ("tests/export/test_foreign.py::test_a_field_that_was_not_exported_is_not_left_out",),
    ),
]  # fmt: skip

KEPT = [
    Mutation(
        "settings of JAX are no part of the key of a kept program", "src/jitney/_kept/key.py",
        "repr([_versions(), _settings(), _machine(laid), registered_anywhere()])", "repr([_versions(), _machine(laid), registered_anywhere()])",
        ("tests/kept/test_kept.py::test_other_settings_are_other_programs",),
    ),
    Mutation(
        "the function is no part of the key of a kept program", "src/jitney/_kept/key.py",
        '    walk.add(fn, "")\n', "",
        ("tests/kept/test_edits.py",),
    ),
    Mutation(
        "annotations are no part of the key of a kept program", "src/jitney/_kept/key.py",
        '    walk.add([(p.name, int(p.kind), p.hint, p.has_default) for p in contract.parameters], "annotations")\n', "",
        ("tests/kept/test_kept.py::test_a_contract_behind_a_name_is_that_of_now",),
    ),
    Mutation(
        "the shapes of arguments are no part of the key of a kept program", "src/jitney/_kept/key.py",
        "abstract.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))", "abstract.append(jax.ShapeDtypeStruct((), dtype, weak_type=weak))",
        ("tests/kept/test_kept.py",),
    ),
    Mutation(
        "edited libraries are taken as they were", "src/jitney/_kept/asked.py",
        "changed = stored.libraries.changed() or self._unreadable(stored)", "changed = self._unreadable(stored)",
        ("tests/kept/test_kept.py::test_a_patched_function_that_a_library_uses_is_seen",),
    ),
    Mutation(
        "names that are looked up are not asked again", "src/jitney/_kept/asked.py",
        "        return None if is_same else \"a name that it looks up stands for something else\"\n", "        return None\n",
        ("tests/kept/test_looked_up.py::test_what_is_looked_up_by_name_is_asked_for_again",),
    ),
    Mutation(
        "a damaged entry is run", "src/jitney/_kept/stored.py",
        "        if len(exported) != said[\"bytes\"]:\n            return None\n", "",
        ("tests/kept/test_kept.py::test_an_entry_that_is_damaged_or_foreign_is_not_run",),
    ),
    Mutation(
        "a float of a kept result is a rounded text", "src/jitney/_kept/form.py",
        'return ["float", value.hex()]', 'return ["float", float(f"{value:.6g}").hex()]',
        ("tests/kept/test_kept.py::test_a_result_comes_back_as_it_was",),
    ),
    Mutation(
        "debug_nans is kept", "src/jitney/_kept/key.py",
        '"debug_nans": options.debug_nans, ', "",
        ("tests/kept/test_kept.py::test_options_whose_programs_are_not_kept_say_so",),
    ),
    Mutation(
        "an entry that others may write is run", "src/jitney/_jax/compile_cache/own_entries.py",
        "return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)", "return status.st_uid == os.geteuid()",
        ("tests/kept/test_kept.py::test_an_entry_that_is_damaged_or_foreign_is_not_run", "tests/jax/compile_cache/test_entries.py"),
    ),
]  # fmt: skip

MUTATIONS = [*DERIVATIVES, *LOOPS, *STREAMS, *FILES, *KEPT]
