"""Each option made a no-op, or wrong in one place."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_ADVICE = "tests/program/test_advice.py::test_"
_COUNTERS = "tests/diagnosis/test_counters.py::test_"
_LATER = "tests/checks/test_later.py::test_"
_TRACER_ERRORS = "tests/diagnosis/test_tracer_errors.py::test_"
_MEMORY = "tests/jax/test_memory.py::test_"
_CHECKED_CALLS = "tests/program/runners/test_checked_calls.py::test_"
_ENTRY = "tests/program/test_entry.py::test_"
_LIMIT = "tests/program/test_limit.py::test_"
_FALLBACK = "tests/program/runners/test_fallback_calls.py::test_"
_FALLBACK_CALLS = "src/jitney/_program/runners/fallback_calls.py"
_WRAPPERS = "tests/program/runners/test_wrappers.py::test_"
_PLAN_REPORT = "tests/report/test_plan_report.py::test_"
_BUCKETS = "tests/signature/test_buckets.py::test_"
_OPTIONS = "tests/signature/test_options.py::test_"
_AUTOCAST = "tests/stages/test_autocast.py::test_"
_CHUNK = "tests/stages/test_chunk.py::test_"
_ENSEMBLES = "tests/stages/test_ensembles.py::test_"
_JIT = "tests/stages/test_jit.py::test_"
_PAD = "tests/stages/test_pad.py::test_"
_PLACE = "tests/stages/test_sharding.py::test_"
_PRECISION = "tests/stages/test_precision.py::test_"
_REMAT = "tests/stages/test_remat.py::test_"
_ROLL = "tests/stages/test_roll.py::test_"
_VMAP = "tests/stages/test_vmap.py::test_"
_VERIFY = "tests/verify/test_verify.py::test_"
_LAYOUT = "tests/view/test_layout.py::test_"

MAPPED = [
    Mutation(
        "static is not read",
        "src/jitney/_signature/options/table.py",
        "static: tuple[str, ...] = option(\n        default=(),\n        read_as=read_names,\n",
        "static: tuple[str, ...] = option(\n        default=(),\n        read_as=lambda *_: (),\n",
        (f"{_LAYOUT}a_static_argument_may_hold_arrays",),
    ),
    Mutation(
        "the last axis is mapped over",
        "src/jitney/_stages/vmap.py",
        "        0 if leaf.declared_rank is not None and len(leaf.shape) == leaf.declared_rank + 1 else None",
        (
            "        (\n"
            "            len(leaf.shape) - 1\n"
            "            if leaf.declared_rank is not None and len(leaf.shape) == leaf.declared_rank + 1\n"
            "            else None\n"
            "        )"
        ),
        (f"{_VMAP}an_array_one_above_its_annotation_is_mapped",),
    ),
    Mutation(
        "the innermost of several mapped axes comes first",
        "src/jitney/_stages/vmap.py",
        "in zip(reversed(self.axes), reversed(self.levels), strict=True):",
        "in zip(self.axes, self.levels, strict=True):",
        (f"{_VMAP}several_axes_are_outermost_first", f"{_VMAP}two_axes_of_one_argument"),
    ),
    Mutation(
        "a position from the end is taken for the first",
        "src/jitney/_stages/dict_form.py",
        "return dim % rank",
        "return max(dim, 0)",
        (f"{_VMAP}the_dict_form_says_the_position",),
    ),
    Mutation(
        "the shortest path counts",
        "src/jitney/_signature/options/values.py",
        "entries.sort(key=lambda entry: -len(entry[0]))",
        "entries.sort(key=lambda entry: len(entry[0]))",
        (f"{_ENSEMBLES}a_part_is_left_out_of_a_stack",),
    ),
    Mutation(
        "a path that leads nowhere maps nothing",
        "src/jitney/_stages/dict_form.py",
        "            refuse_unknown_part(view, path, steps, request.where)",
        "            pass",
        (f"{_ENSEMBLES}a_part_that_is_not_there_is_an_error_with_the_nearest",),
    ),
    Mutation(
        "a name that begins like a part is that part",
        "src/jitney/_signature/paths.py",
        "        if _text(step) != whole[count]:",
        "        if not _text(step).startswith(whole[count]):",
        ("tests/signature/test_paths.py::test_the_stem_is_the_part_with_these_steps",),
    ),
    Mutation(
        "a tangent of a part is shared",
        "src/jitney/_stages/derivatives/derive.py",
        "                    if root_of(path) == primal",
        "                    if path == primal",
        (f"{_ENSEMBLES}derivatives_along_directions_of_a_stack[part]",),
    ),
    Mutation(
        "the annotation of a result is held against the whole batch",
        "src/jitney/_body/body.py",
        "                outcome.inner(flat),\n                planned.sizes,",
        "                outcome.whole(flat),\n                planned.sizes,",
        ("tests/stages/test_vmap.py",),
    ),
    Mutation(
        "`vmap` may name an axis of the signature",
        "src/jitney/_body/decoration.py",
        "if axis.name in core.axes:",
        "if axis.name in core.axes and axis.dims is None:",
        (f"{_OPTIONS}an_option_against_the_signature_is_refused_at_decoration",),
    ),
    Mutation(
        "two instances that differ in an axis are padded alike",
        "src/jitney/_stages/fill.py",
        "            refuse_two_sizes(request.where, name, view, named)\n",
        "",
        (
            "tests/stages/test_axes_in_classes.py::test_two_instances_that_differ_are_refused_by_name",
        ),
    ),
    Mutation(
        "a stack of modules is padded by the names of one",
        "src/jitney/_view/named_axes.py",
        "    if leaf.hint is None and hint.rank not in (None, len(places)):\n",
        "    if False:\n",
        (
            "tests/stages/test_axes_in_classes.py::"
            "test_a_stack_of_modules_is_not_padded_by_the_names_of_one",
        ),
    ),
    Mutation(
        "a dataclass with arrays is a constant",
        "src/jitney/_view/layout.py",
        "        refuse_records(self._where, path, argument, leaf)\n",
        "",
        ("tests/signature/test_records.py::test_one_with_arrays_is_refused_at_its_first_call",),
    ),
]

DONATED = [
    Mutation(
        "nothing is donated",
        "src/jitney/_stages/jit.py",
        "donate_argnums=self.donate or None",
        "donate_argnums=None",
        (f"{_JIT}a_donated_buffer_becomes_the_result",),
    ),
    Mutation(
        "of a model no array is donated",
        "src/jitney/_view/layout.py",
        "if self.names[i][0] in donate and i not in self.numbers",
        "if self.names[i][1] in donate and i not in self.numbers",
        (f"{_JIT}using_a_donated_buffer_again_names_its_path",),
    ),
    Mutation(
        "a buffer passed twice is looked for in front of the donated one only",
        "src/jitney/_diagnosis/tracer_errors.py",
        "for j, other in enumerate(pointers):",
        "for j, other in enumerate(pointers[:i]):",
        (f"{_JIT}one_buffer_passed_twice_names_both_arguments",),
    ),
    Mutation(
        "the plan says that every donated buffer is reused",
        "src/jitney/_report/traced_lines.py",
        "if free[leaf.shape, leaf.dtype] >= 0:",
        "if free[leaf.shape, leaf.dtype] >= -1:",
        (f"{_JIT}a_donated_buffer_that_no_result_can_take_over_stands_in_the_plan",),
    ),
    Mutation(
        "a short compile is a usual one",
        "src/jitney/_stages/jit.py",
        "cls(request.donated, options, ",
        "cls(request.donated, (), ",
        (f"{_JIT}fast_is_compiled_by_itself",),
    ),
]

RECOMPUTED = [
    Mutation(
        "nothing is recomputed",
        "src/jitney/_stages/remat.py",
        "return jax.checkpoint(fn, policy=policy_function(self.policy))",
        "return fn",
        (f"{_REMAT}true_keeps_the_arguments_only",),
    ),
    Mutation(
        "remat is left out of a derivative",
        "src/jitney/_interface/derivatives/derivative.py",
        "                options.remat,\n",
        "                None,\n",
        (f"{_REMAT}a_derivative_of_the_function_computes_it_again_too",),
    ),
    Mutation(
        "equal layers stay as they are",
        "src/jitney/_stages/roll.py",
        "return rolling(fn, differentiated=self.nested)",
        "return fn",
        (f"{_ROLL}a_step_that_takes_its_gradient_itself_has_loops_both_ways[plain]",),
    ),
    Mutation(
        "layers are equal whatever their parameters",
        "src/jitney/_remat/layers.py",
        "params = sorted(eqn.params.items())",
        "params = sorted({}.items())",
        (f"{_ROLL}rules_that_differ_in_branches_are_each_layers_own",),
    ),
    Mutation(
        "memory is that of the whole",
        "src/jitney/_stages/chunking/chunk.py",
        "return Cut(stage.axis, passes, fitting.width, fitting,",
        "return Cut(stage.axis, passes, stage.size, fitting,",
        (f"{_MEMORY}the_compiled_program_stays_under_it",),
    ),
    Mutation(
        "the shortest axis is cut first",
        "src/jitney/_stages/chunking/chunk.py",
        "key=lambda name: (name not in own, -sizes[name])",
        "key=lambda name: (name not in own, sizes[name])",
        (f"{_MEMORY}of_two_axes_that_can_be_cut_memory_takes_the_longer_one",),
    ),
]

PRECISION = [
    Mutation(
        "results stay in the low type",
        "src/jitney/_stages/precision.py",
        (
            "            return [\n"
            "                _astype(out, np.dtype(self.back)) if _dtype(out) == low else out for out in outs\n"
            "            ]"
        ),
        "            return outs",
        (f"{_PRECISION}the_body_computes_in_the_type_and_the_result_comes_back",),
    ),
    Mutation(
        "an exact annotation is cast",
        "src/jitney/_stages/precision.py",
        "return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low) and not _exact(leaf)",
        "return _is_real(leaf.dtype) and leaf.dtype != np.dtype(low)",
        (f"{_PRECISION}an_exact_annotation_keeps_its_type",),
    ),
    Mutation(
        "tf32 is full precision",
        "src/jitney/_stages/precision.py",
        'jax.default_matmul_precision("tensorfloat32")',
        'jax.default_matmul_precision("float32")',
        (f"{_PRECISION}tf32_sets_the_precision_of_products",),
    ),
    Mutation(
        "f64 runs without its scope",
        "src/jitney/_program/runners/wrappers.py",
        'return _in_x64(body, jitted, run) if options.precision == "f64" else run',
        "return run",
        (f"{_PRECISION}f64_needs_no_global_flag",),
    ),
    Mutation(
        "a factorisation in a low type is not refused",
        "src/jitney/_stages/precision.py",
        "        if broken is not None:\n            raise self._refusal(*broken)\n",
        "",
        (f"{_AUTOCAST}casting_all_refuses_solves_and_factorisations",),
    ),
    Mutation(
        "products add up in the low type",
        "src/jitney/_precision/products.py",
        "return plain(x, y, SINGLE, rest)",
        "return _as(plain(x, y, low, rest), SINGLE)",
        (f"{_AUTOCAST}a_product_is_that_of_the_rounded_factors_in_single_precision",),
    ),
]

PADDED = [
    Mutation(
        "a power of two is padded to the next one",
        "src/jitney/_signature/buckets.py",
        "high = 1 << (size - 1).bit_length()",
        "high = 1 << size.bit_length()",
        (f"{_BUCKETS}ranges",),
    ),
    Mutation(
        "size 1 is padded",
        "src/jitney/_signature/buckets.py",
        "        if size < 2:\n            return None\n",
        "        if size < 1:\n            return None\n",
        (f"{_BUCKETS}ranges",),
    ),
    Mutation(
        "fewer buckets than waste allows",
        "src/jitney/_signature/buckets.py",
        "if size * (1 + waste) < buckets[-1]]",
        "if size * (1 + waste) <= buckets[-1] * (1 - waste)]",
        (f"{_BUCKETS}fit_takes_the_fewest",),
    ),
    Mutation(
        "arrays are filled with zeros",
        "src/jitney/_program/runners/filling.py",
        "                out[behind] = out[last]\n            given",
        "                out[behind] = np.zeros((), dtype)\n            given",
        (f"{_PAD}along_a_mapped_axis_rows_of_the_data_are_filled_in",),
    ),
    Mutation(
        "results are not cut",
        "src/jitney/_program/runners/padded_calls.py",
        "    return None if shape == was else shape\n",
        "    return None\n",
        (f"{_PAD}sizes_in_one_bucket_share_one_trace",),
    ),
    Mutation(
        "each size has a program of its own",
        "src/jitney/_program/runners/padding_recipes.py",
        "(shape, leaf.dtype, leaf.weak_type) for leaf, shape, _ in ",
        "(leaf.shape, leaf.dtype, leaf.weak_type) for leaf, shape, _ in ",
        (f"{_PAD}sizes_in_one_bucket_share_one_trace",),
    ),
    Mutation(
        "a refusal to pad is silent",
        "src/jitney/_program/runners/padding_recipes.py",
        'if core.counters.warn_once(f"pad {refusal.place}"):',
        'if not core.counters.warn_once(f"pad {refusal.place}"):',
        (f"{_PAD}a_decision_by_size_runs_exact_and_warns_once",),
    ),
    Mutation(
        "the plan counts padding from the bucket",
        "src/jitney/_stages/fill.py",
        "{self.high / self.size - 1:.0%} padding",
        "{1 - self.size / self.high:.0%} padding",
        (f"{_PAD}the_plan_tells_buckets_and_facts",),
    ),
]

CUT = [
    Mutation(
        "an axis of one chunk is cut",
        "src/jitney/_stages/chunking/chunk.py",
        "stage.part <= stage.chunk)",
        "stage.part < stage.chunk)",
        (f"{_PLAN_REPORT}what_was_asked_for_and_not_taken_stays_a_line",),
    ),
    Mutation(
        "an automatic chunk is all of the axis",
        "src/jitney/_stages/chunking/chunked_axis.py",
        "return min(self.part, max(_LEAST, most - most % _LEAST))",
        "return self.part",
        (f"{_CHUNK}auto_takes_what_suits_caches",),
    ),
    Mutation(
        "an axis of two sizes is cut",
        "src/jitney/_stages/chunking/chunk.py",
        "        refuse_two_sizes(request.where, axis, inside, named)\n",
        "        if request.options.contracts:\n"
        "            refuse_two_sizes(request.where, axis, inside, named)\n",
        (f"{_CHUNK}an_axis_of_two_sizes_is_not_cut_though_nothing_is_checked",),
    ),
    Mutation(
        "under an outer transform chunks are dropped without a word",
        "src/jitney/_program/outer_transforms.py",
        "if body.core.counters.warn_once(what):",
        "if not body.core.counters.warn_once(what):",
        (f"{_CHUNK}under_outer_transforms_that_it_does_not_act_in_it_is_told_of_the_remedy",),
    ),
]

AROUND = [
    Mutation(
        "cache=False uses the persistent cache",
        "src/jitney/_program/runners/wrappers.py",
        "    if not options.cache:\n        run = _without_cache(run)\n",
        "",
        (f"{_WRAPPERS}cache_false_uses_no_persistent_cache",),
    ),
    Mutation(
        "contracts=False checks all the same",
        "src/jitney/_body/body.py",
        "        if not self.core.options.contracts:\n            return Planned(view, plan)\n",
        "",
        (f"{_ENTRY}check_false_checks_nothing",),
    ),
    Mutation(
        "a check is looked at now though it may be later",
        "src/jitney/_program/runners/checked_calls.py",
        "calls.waits = waits(body.options) is not None",
        "calls.waits = True",
        (f"{_LATER}a_call_whose_check_fails_returns_and_wait_raises",),
    ),
    Mutation(
        "a check that fails is not raised",
        "src/jitney/_program/runners/checked_calls.py",
        "        if failed:\n            self.table.fail(failed)\n",
        "",
        (f"{_CHECKED_CALLS}a_failed_check_raises_whatever_stands_around_it",),
    ),
    Mutation(
        "verify compares with nothing",
        "src/jitney/_verify/verification.py",
        "    if difference is None:\n        verification.body",
        "    if difference is None or said:\n        verification.body",
        (f"{_VERIFY}a_wrong_rule_of_padding_is_caught",),
    ),
    Mutation(
        "verify looks at one size of a bucket",
        "src/jitney/_verify/verification.py",
        "            *map(aval_parts, arrays),",
        "            *(aval_parts(x)[1:] for x in arrays),",
        (f"{_VERIFY}each_size_of_a_bucket_is_compared",),
    ),
    Mutation(
        "a NaN where there was a number is no difference",
        "src/jitney/_verify/difference.py",
        "        wrong = ~(apart <= limits)\n",
        "        wrong = apart > limits\n",
        (f"{_VERIFY}nan_and_infinities_are_equal_or_a_difference",),
    ),
    Mutation(
        "one program more than the limit",
        "src/jitney/_program/tracing/limit.py",
        "core.counters.compile_events < limit.count",
        "core.counters.compile_events <= limit.count",
        (f"{_LIMIT}a_limit_may_be_an_error",),
    ),
    Mutation(
        "past the limit a call that may run eagerly raises",
        "src/jitney/_interface/calling.py",
        'if limit is None or limit.past != "eager":',
        'if limit is None or limit.past == "eager":',
        (f"{_LIMIT}past_the_limit_calls_may_run_eagerly",),
    ),
    Mutation(
        "debug_nans looks at nothing",
        "src/jitney/_program/runners/wrappers.py",
        "    if options.debug_nans:\n        run = _finite(body, jitted, run)\n",
        "",
        (f"{_WRAPPERS}debug_nans_names_operation_and_line",),
    ),
    Mutation(
        "what cannot be traced is an error under eager too",
        "src/jitney/_interface/calling.py",
        'if ran_eagerly(error) or core.options.on_trace_error == "raise":',
        "if True:",
        (f"{_TRACER_ERRORS}eager_gives_the_numbers_of_the_function_and_warns_once",),
    ),
    Mutation(
        "a call with effects is run again",
        _FALLBACK_CALLS,
        '        return _verify.tells(entry.lower(arrays, "trace").jaxpr.effects)\n',
        "        return None\n",
        (f"{_FALLBACK}effects_do_not_happen_twice",),
    ),
    Mutation(
        "a call is run again without its donated buffers",
        _FALLBACK_CALLS,
        "        if gone:\n",
        "        if None in gone:\n",
        (f"{_FALLBACK}a_call_whose_donated_buffers_are_gone_is_not_repeated",),
    ),
    Mutation(
        "a call that ran out of memory is not remembered",
        _FALLBACK_CALLS,
        "            self._taken[call_key(arrays)] = fallback\n",
        "            self._taken[call_key(arrays)[1:]] = fallback\n",
        (f"{_FALLBACK}what_runs_out_of_memory_runs_in_chunks",),
    ),
    Mutation(
        "a call that runs un-jitted instead says nothing",
        _FALLBACK_CALLS,
        "            EagerWarning,\n",
        "            ResourceWarning,\n",
        (f"{_FALLBACK}what_xla_cannot_compile_runs_unjitted",),
    ),
    Mutation(
        "sizes worth trying are those of the quickest call",
        "src/jitney/_command/bench/command.py",
        "run.quartiles[1] / run.sizes[axis])",
        "run.quartiles[1])",
        ("tests/command/test_bench.py::test_batch_sizes_worth_trying_are_those_of_the_sweep",),
    ),
    Mutation(
        "a call that saves nothing repays a compile",
        "src/jitney/_diagnosis/counters/stats.py",
        "return math.ceil(spent / saved) if saved > 0 else None",
        "return math.ceil(spent / saved) if saved else None",
        (f"{_COUNTERS}stats_say_after_how_many_calls_a_compile_is_repaid",),
    ),
    Mutation(
        "JITNEY_DISABLE pads",
        "src/jitney/_signature/options/table.py",
        '        left="sizes are those that were exported",\n        plain=(),\n',
        '        left="sizes are those that were exported",\n',
        ("tests/body/test_disable.py",),
    ),
    Mutation(
        "an axis of a mesh that is not there is laid along it",
        "src/jitney/_stages/sharding.py",
        "            if axis not in mesh.shape:\n",
        "            if not axis:\n",
        (f"{_PLACE}an_axis_that_the_mesh_does_not_have_is_named",),
    ),
    Mutation(
        "`pad` goes with contracts=False",
        "src/jitney/_signature/options/read.py",
        "lambda o: o.pad and not o.contracts,",
        "lambda o: o.pad and o.contracts is None,",
        (f"{_OPTIONS}a_bad_option_is_refused_above_the_function",),
    ),
    Mutation(
        "with an optional mesh there has to be one",
        "src/jitney/_stages/sharding.py",
        "if request.options.mesh != OPTIONAL:",
        "if True:",
        (f"{_PLACE}an_optional_mesh_may_be_missing",),
    ),
    Mutation(
        "a misspelt option is ignored",
        "src/jitney/_signature/options/read.py",
        "    if name not in NAMES:\n        fail(",
        "    if name not in NAMES and name in _ELSEWHERE:\n        fail(",
        (f"{_OPTIONS}a_bad_option_is_refused_above_the_function",),
    ),
]

TOLD = [
    Mutation(
        "buckets are advised that `pad` refuses",
        "src/jitney/_program/advice/buckets.py",
        '                calls.entry.lower(abstract, "trace")',
        "                pass",
        (f"{_ADVICE}nothing_is_advised_that_does_not_help",),
    ),
    Mutation(
        "buckets are advised that do not hold all sizes",
        "src/jitney/_program/advice/advice.py",
        "    all_sizes = len(seen) <= _CALLS and are_all_sizes(core, seen)",
        "    all_sizes = True",
        (f"{_ADVICE}calls_before_clear_cache_leave_sizes_that_nothing_is_proven_for",),
    ),
    Mutation(
        "a refused proof is JAX's time",
        "src/jitney/_program/tracing/traced_calls.py",
        "            self._book(time.perf_counter() - began, spent)\n            raise",
        "            raise",
        (f"{_COUNTERS}a_refused_proof_is_jitneys_own",),
    ),
]

MUTATIONS = [*MAPPED, *DONATED, *RECOMPUTED, *PRECISION, *PADDED, *CUT, *AROUND, *TOLD]
