"""Each option made a no-op, or wrong in one place."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_OPTIONS = "src/jitney/_signature/options.py"
_STAGES = "src/jitney/_stages"
_PROGRAM = "src/jitney/_program"

MAPPED = [
    Mutation(
        "static is not read", _OPTIONS,
        'static=_names(where, "static", raw.get("static")),', "static=(),",
        ("tests/view/test_layout.py::test_a_static_argument_may_hold_arrays",),
    ),
    Mutation(
        "the last axis is mapped over", f"{_STAGES}/vmap.py",
        "dims = tuple(0 if leaf.declared_rank is not None", "dims = tuple(len(leaf.shape) - 1 if leaf.declared_rank is not None",
        ("tests/stages/test_vmap.py::test_an_array_one_above_its_annotation_is_mapped",),
    ),
    Mutation(
        "the innermost of several mapped axes comes first", f"{_STAGES}/vmap.py",
        "for dims in reversed(self.levels):", "for dims in self.levels:",
        ("tests/stages/test_vmap.py::test_several_axes_are_outermost_first", "tests/stages/test_vmap.py::test_two_axes_of_one_argument"),
    ),
    Mutation(
        "a position from the end is taken for the first", f"{_STAGES}/vmap.py",
        "return dim % rank", "return max(dim, 0)",
        ("tests/stages/test_vmap.py::test_the_dict_form_says_the_position",),
    ),
    Mutation(
        "of a tree some arrays may be mapped", f"{_STAGES}/vmap.py",
        "if mapped and len(mapped) < len(declared):", "if mapped and len(mapped) > len(declared):",
        ("tests/stages/test_vmap.py::test_a_tree_with_the_axis_in_some_arrays_only_is_an_error_that_names_two",),
    ),
    Mutation(
        "the annotation of a result is held against the whole batch", "src/jitney/_body/body.py",
        "check_result(self.core.contract, outcome.inner(flat), planned.sizes, planned.named)",
        "check_result(self.core.contract, outcome.whole(flat), planned.sizes, planned.named)",
        ("tests/stages/test_vmap.py",),
    ),
    Mutation(
        "`vmap` may name an axis of the signature", "src/jitney/_program/core.py",
        "if axis.name in core.contract.axes:", "if axis.name in core.contract.axes and axis.dims is None:",
        ("tests/signature/test_options.py::test_an_option_against_the_signature_is_refused_at_decoration",),
    ),
]  # fmt: skip

DONATED = [
    Mutation(
        "nothing is donated", f"{_STAGES}/jit.py",
        "donate_argnums=self.donate or None", "donate_argnums=None",
        ("tests/stages/test_jit.py::test_a_donated_buffer_becomes_the_result",),
    ),
    Mutation(
        "of a model no array is donated", "src/jitney/_view/layout.py",
        "if self.names[i][0] in donate)", "if self.names[i][1] in donate)",
        ("tests/stages/test_jit.py::test_using_a_donated_buffer_again_names_its_path",),
    ),
    Mutation(
        "buffers are donated with debug_nans", "src/jitney/_body/body.py",
        "donated = () if core.options.debug_nans else layout.donated", "donated = layout.donated",
        ("tests/stages/test_jit.py::test_donation_is_dropped_with_debug_nans_and_says_so",),
    ),
    Mutation(
        "a buffer passed twice is looked for in front of the donated one only", "src/jitney/_diagnosis/tracer_errors.py",
        "for j, other in enumerate(pointers):", "for j, other in enumerate(pointers[:i]):",
        ("tests/stages/test_jit.py::test_one_buffer_passed_twice_names_both_arguments",),
    ),
    Mutation(
        "the plan says that every donated buffer is reused", "src/jitney/_report/plan_report.py",
        "if free[leaf.shape, leaf.dtype] >= 0:", "if free[leaf.shape, leaf.dtype] >= -1:",
        ("tests/stages/test_jit.py::test_a_donated_buffer_that_no_result_can_take_over_stands_in_the_plan",),
    ),
    Mutation(
        "a short compile is a usual one", f"{_STAGES}/jit.py",
        "cls(request.donated, FAST if fast else (),", "cls(request.donated, (),",
        ("tests/stages/test_jit.py::test_fast_is_compiled_by_itself",),
    ),
]  # fmt: skip

RECOMPUTED = [
    Mutation(
        "nothing is recomputed", f"{_STAGES}/remat.py",
        "return _jax.checkpoint(fn, policy=policy)", "return fn",
        ("tests/stages/test_remat.py::test_true_keeps_the_arguments_only",),
    ),
    Mutation(
        "remat=True keeps products", _OPTIONS,
        'return "nothing_saveable"', 'return "dots_saveable"',
        ("tests/stages/test_remat.py::test_true_keeps_the_arguments_only",),
    ),
    Mutation(
        "remat is left out of a derivative", "src/jitney/_interface/derivatives.py",
        "                options.remat,\n", "                None,\n",
        ("tests/stages/test_remat.py::test_the_forward_pass_is_computed_again",),
    ),
    Mutation(
        "equal layers stay as they are", f"{_STAGES}/roll.py",
        "return rolling(fn, differentiated=self.nested)", "return fn",
        ("tests/stages/test_roll.py::test_a_step_that_takes_its_gradient_itself_has_loops_both_ways[plain]",),
    ),
    Mutation(
        "layers are equal whatever their parameters", "src/jitney/_saving/layers.py",
        "params = step.rule or tuple((name, _identity(value)) for name, value in sorted(step.eqn.params.items()))", "params = step.rule",
        ("tests/stages/test_roll.py::test_what_is_not_equal_or_not_worth_it_stays_and_the_plan_says_why",
         "tests/stages/test_roll.py::test_rules_that_differ_are_each_layers_own"),
    ),
    Mutation(
        "what fits is cut, and what does not is not", f"{_STAGES}/chunk.py",
        "        if whole <= budget:\n", "        if whole > budget:\n",
        ("tests/jax/test_memory.py::test_what_fits_is_not_cut",),
    ),
    Mutation(
        "memory is that of the whole", f"{_STAGES}/chunk.py",
        "return Cut(stage.axis, passes, fitting.width, fitting,", "return Cut(stage.axis, passes, stage.size, fitting,",
        ("tests/jax/test_memory.py::test_the_compiled_program_stays_under_it",),
    ),
    Mutation(
        "the shortest axis is cut first", f"{_STAGES}/chunk.py",
        "names = sorted(long, key=lambda name: -sizes[name])", "names = sorted(long, key=lambda name: sizes[name])",
        ("tests/jax/test_memory.py::test_of_two_axes_that_can_be_cut_memory_takes_the_longer_one",),
    ),
]  # fmt: skip

PRECISION = [
    Mutation(
        "results stay in the low type", f"{_STAGES}/precision.py",
        "return [_astype(out, np.dtype(self.back)) if _dtype(out) == low else out for out in outs]", "return outs",
        ("tests/stages/test_precision.py::test_the_body_computes_in_the_type_and_the_result_comes_back",),
    ),
    Mutation(
        "an exact annotation is cast", f"{_STAGES}/precision.py",
        "return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low) and not _exact(leaf)",
        "return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low)",
        ("tests/stages/test_precision.py::test_an_exact_annotation_keeps_its_type",),
    ),
    Mutation(
        "results come back in the narrowest type", f"{_STAGES}/precision.py",
        "return max((np.dtype(dtype) for dtype in dtypes)", "return min((np.dtype(dtype) for dtype in dtypes)",
        ("tests/stages/test_precision.py::test_results_come_back_in_the_widest_type_that_was_cast",),
    ),
    Mutation(
        "tf32 is full precision", f"{_STAGES}/precision.py",
        'jax.default_matmul_precision("tensorfloat32")', 'jax.default_matmul_precision("float32")',
        ("tests/stages/test_precision.py::test_tf32_sets_the_precision_of_products",),
    ),
    Mutation(
        "f64 runs without its scope", f"{_PROGRAM}/wrappers.py",
        'return _in_x64(body, jitted, run) if options.precision == "f64" else run', "return run",
        ("tests/stages/test_precision.py::test_f64_needs_no_global_flag",),
    ),
    Mutation(
        "a factorisation in a low type is not refused", f"{_STAGES}/precision.py",
        "        if broken is not None:\n            raise self._refusal(*broken)\n", "",
        ("tests/stages/test_autocast.py::test_casting_all_refuses_solves_and_factorisations",),
    ),
    Mutation(
        "products add up in the low type", "src/jitney/_precision/products.py",
        "return plain(x, y, SINGLE, rest)", "return _as(plain(x, y, low, rest), SINGLE)",
        ("tests/stages/test_autocast.py::test_a_product_is_that_of_the_rounded_factors_in_single_precision",),
    ),
    Mutation(
        "products in a loop stay as they are", "src/jitney/_precision/low_products.py",
        'if name == "scan" or name in REMATS:', "if name in REMATS:",
        ("tests/stages/test_autocast.py::test_products_inside_of_other_operations_are_cast",),
    ),
]  # fmt: skip

PADDED = [
    Mutation(
        "a power of two is padded to the next one", "src/jitney/_signature/buckets.py",
        "high = 1 << (size - 1).bit_length()", "high = 1 << size.bit_length()",
        ("tests/signature/test_buckets.py::test_ranges",),
    ),
    Mutation(
        "size 1 is padded", "src/jitney/_signature/buckets.py",
        "        if size < 2:\n            return None\n", "        if size < 1:\n            return None\n",
        ("tests/signature/test_buckets.py::test_ranges",),
    ),
    Mutation(
        "a bucket begins at the one before it", "src/jitney/_signature/buckets.py",
        "return (steps[at - 1] + 1 if at else 2)", "return (steps[at - 1] if at else 2)",
        ("tests/signature/test_buckets.py::test_ranges",),
    ),
    Mutation(
        "fewer buckets than waste allows", "src/jitney/_signature/buckets.py",
        "if size * (1 + waste) < buckets[-1]]", "if size * (1 + waste) <= buckets[-1] * (1 - waste)]",
        ("tests/signature/test_buckets.py::test_fit_takes_the_fewest",),
    ),
    Mutation(
        "arrays are filled with zeros", f"{_PROGRAM}/filling.py",
        "out[tuple(behind)] = out[tuple(last)]", "out[tuple(behind)] = np.zeros((), host.dtype)",
        ("tests/stages/test_pad.py::test_along_a_mapped_axis_rows_of_the_data_are_filled_in",),
    ),
    Mutation(
        "results are not cut", f"{_PROGRAM}/padded_calls.py",
        "    return None if shape == was else shape\n", "    return None\n",
        ("tests/stages/test_pad.py::test_sizes_in_one_bucket_share_one_trace",),
    ),
    Mutation(
        "each size has a program of its own", f"{_PROGRAM}/padded_calls.py",
        "key = padded_key([(shape, leaf.dtype, leaf.weak_type) for leaf, shape in leaves])",
        "key = padded_key([(leaf.shape, leaf.dtype, leaf.weak_type) for leaf, shape in leaves])",
        ("tests/stages/test_pad.py::test_sizes_in_one_bucket_share_one_trace",),
    ),
    Mutation(
        "a refusal to pad is silent", f"{_PROGRAM}/padded_calls.py",
        'if core.counters.warn_once(f"pad {refusal.place}"):', 'if not core.counters.warn_once(f"pad {refusal.place}"):',
        ("tests/stages/test_pad.py::test_a_decision_by_size_runs_exact_and_warns_once",),
    ),
    Mutation(
        "the plan counts padding from the bucket", f"{_STAGES}/fill.py",
        "{self.high / self.size - 1:.0%} padding", "{1 - self.size / self.high:.0%} padding",
        ("tests/stages/test_pad.py::test_the_plan_tells_buckets_and_facts", "tests/test_docs.py::test_code_of_a_page_runs[docs/options/pad.md]"),
    ),
    Mutation(
        "what a program returned is kept beside a donated argument", f"{_PROGRAM}/padded_calls.py",
        "tuple(not looks and i not in entry.request.donated for i in range(count))", "tuple(not looks for i in range(count))",
        ("tests/program/test_filling.py::test_a_donated_argument_is_filled",),
    ),
]  # fmt: skip

CUT = [
    Mutation(
        "an axis of one chunk is cut", f"{_STAGES}/chunk.py",
        "stage.part <= stage.chunk)", "stage.part < stage.chunk)",
        ("tests/report/test_plan_report.py::test_what_was_asked_for_and_not_taken_stays_a_line",),
    ),
    Mutation(
        "an automatic chunk is all of the axis", f"{_STAGES}/chunk.py",
        "return min(self.part, max(_LEAST, most - most % _LEAST))", "return self.part",
        ("tests/stages/test_chunk.py::test_auto_takes_what_suits_caches",),
    ),
    Mutation(
        "an axis of two sizes is cut", f"{_STAGES}/chunk.py",
        "        if clash is not None:\n", "        if clash is not None and request.options.check:\n",
        ("tests/stages/test_chunk.py::test_an_axis_of_two_sizes_is_not_cut_though_nothing_is_checked",),
    ),
    Mutation(
        "under an outer transform chunks are dropped without a word", f"{_PROGRAM}/outer_transforms.py",
        "if body.core.counters.warn_once(what):", "if not body.core.counters.warn_once(what):",
        ("tests/stages/test_chunk.py::test_under_outer_transforms_that_it_does_not_act_in_it_is_told_of_the_remedy",),
    ),
]  # fmt: skip

AROUND = [
    Mutation(
        "cache=False uses the persistent cache", f"{_PROGRAM}/wrappers.py",
        "        if not options.cache:\n            run = _without_cache(run)\n", "",
        ("tests/program/test_wrappers.py::test_cache_false_uses_no_persistent_cache",),
    ),
    Mutation(
        "check=False checks all the same", "src/jitney/_body/body.py",
        "        if not self.core.options.check:\n            return Planned(view, plan)\n", "",
        ("tests/program/test_entry.py::test_check_false_checks_nothing",),
    ),
    Mutation(
        "a check is looked at now though it may be later", f"{_PROGRAM}/checked_calls.py",
        "calls.waits = waits(body.core.options) is not None", "calls.waits = True",
        ("tests/checks/test_later.py::test_a_call_whose_check_fails_returns_and_wait_raises",),
    ),
    Mutation(
        "a check that fails is not raised", f"{_PROGRAM}/checked_calls.py",
        "        if failed:\n            self.table.fail(failed)\n", "",
        ("tests/program/test_checked_calls.py::test_a_failed_check_raises_whatever_stands_around_it",),
    ),
    Mutation(
        "verify compares with nothing", "src/jitney/_verify/verification.py",
        "    if difference is None:\n        verification.body",
        "    if difference is None or said:\n        verification.body",
        ("tests/verify/test_verify.py::test_a_wrong_rule_of_padding_is_caught",),
    ),
    Mutation(
        "verify looks at one size of a bucket", "src/jitney/_verify/verification.py",
        "return (*map(described, arrays), shardings,", "return (*(described(x)[1:] for x in arrays), shardings,",
        ("tests/verify/test_verify.py::test_each_size_of_a_bucket_is_compared",),
    ),
    Mutation(
        "what padding computes element by element may be apart in the last bits", "src/jitney/_verify/difference.py",
        '_BITS = ("pad",)', "_BITS = ()",
        ("tests/verify/test_verify.py::test_elementwise_results_of_padding_are_equal_to_the_bit",),
    ),
    Mutation(
        "a NaN where there was a number is no difference", "src/jitney/_verify/difference.py",
        "        wrong = ~(apart <= limits)\n", "        wrong = apart > limits\n",
        ("tests/verify/test_verify.py::test_nan_and_infinities_are_equal_or_a_difference",),
    ),
    Mutation(
        "one program more than the limit", f"{_PROGRAM}/limit.py",
        "core.counters.compile_events < limit.count", "core.counters.compile_events <= limit.count",
        ("tests/program/test_limit.py::test_a_limit_may_be_an_error",),
    ),
    Mutation(
        "past the limit a call that may run eagerly raises", "src/jitney/_interface/program.py",
        'if limit is None or limit.past != "eager":', 'if limit is None or limit.past == "eager":',
        ("tests/program/test_limit.py::test_past_the_limit_calls_may_run_eagerly",),
    ),
    Mutation(
        "debug_nans looks at nothing", f"{_PROGRAM}/wrappers.py",
        "        if options.debug_nans:\n            run = _finite(body, jitted, run)\n", "",
        ("tests/program/test_wrappers.py::test_debug_nans_names_operation_and_line",),
    ),
    Mutation(
        "debug_nans stops at an infinity that came in with an argument", "src/jitney/_program/wrappers.py",
        "            if finding is not None:  # else", "            if finding is None or finding:  # else",
        ("tests/program/test_wrappers.py::test_debug_nans_lets_meant_infinities_pass",),
    ),
    Mutation(
        "what cannot be traced is an error under eager too", "src/jitney/_interface/program.py",
        'if entry.state == "eager" or core.options.on_trace_error == "raise":', "if True:",
        ("tests/diagnosis/test_tracer_errors.py::test_eager_gives_the_numbers_of_the_function_and_warns_once",),
    ),
    Mutation(
        "eager does not say so", "src/jitney/_interface/program.py",
        'if core.counters.warn_once("eager"):', 'if not core.counters.warn_once("eager"):',
        ("tests/diagnosis/test_tracer_errors.py::test_eager_gives_the_numbers_of_the_function_and_warns_once",),
    ),
    Mutation(
        "JITNEY_DISABLE pads", "src/jitney/_body/plain.py",
        "options, donate=(), pad=(), chunk=(),", "options, donate=(), chunk=(),",
        ("tests/body/test_disable.py",),
    ),
    Mutation(
        "arrays of a function with `shard` need no mesh", f"{_STAGES}/place.py",
        "            if request.options.mesh != OPTIONAL:\n                raise no_mesh(request.where)\n", "",
        ("tests/stages/test_place.py::test_without_a_mesh_it_is_an_error_that_says_where_one_comes_from",),
    ),
    Mutation(
        "an axis of a mesh that is not there is laid along it", f"{_STAGES}/place.py",
        "            if axis not in mesh.shape:\n", "            if not axis:\n",
        ("tests/stages/test_place.py::test_an_axis_that_the_mesh_does_not_have_is_named",),
    ),
    Mutation(
        "`pad` goes with check=False", _OPTIONS,
        "lambda o: o.pad and not o.check,", "lambda o: o.pad and o.check is None,",
        ("tests/signature/test_options.py::test_a_bad_option_is_refused_above_the_function",),
    ),
    Mutation(
        "`roll` goes with `shard`", _OPTIONS,
        "lambda o: o.roll is not None and o.shard is not None,", "lambda o: False,",
        ("tests/stages/test_roll.py::test_what_it_cannot_go_with_is_refused_at_decoration",),
    ),
    Mutation(
        "an option of jax.jit is answered without what to write", _OPTIONS,
        "    if name in _ELSEWHERE:\n", "    if name in _ELSEWHERE and not where:\n",
        ("tests/signature/test_options.py::test_a_bad_option_is_refused_above_the_function",),
    ),
    Mutation(
        "an axis of `shard` that no array has is ignored", f"{_STAGES}/place.py",
        "        if name not in known:\n", "        if name not in known and not known:\n",
        ("tests/stages/test_place.py::test_an_axis_that_no_array_has_is_named",),
    ),
    Mutation(
        "with an optional mesh there has to be one", f"{_STAGES}/place.py",
        "if request.options.mesh != OPTIONAL:", "if True:",
        ("tests/stages/test_place.py::test_an_optional_mesh_may_be_missing",),
    ),
    Mutation(
        "a misspelt option is ignored", _OPTIONS,
        "    if name not in NAMES:\n        fail(", "    if name not in NAMES and name in _ELSEWHERE:\n        fail(",
        ("tests/signature/test_options.py::test_a_bad_option_is_refused_above_the_function",),
    ),
]  # fmt: skip

MUTATIONS = [*MAPPED, *DONATED, *RECOMPUTED, *PRECISION, *PADDED, *CUT, *AROUND]
