"""What tells one program from another, what a contract asks, what messages and plans say."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_BENCH = "tests/command/test_bench.py::test_"
_KEPT = "tests/command/test_cache_command.py::test_"
_ACCEPTED = "tests/contract/test_accepted.py::test_"
_CONTRACT = "tests/contract/test_contract.py::test_"
_MESSAGES = "tests/contract/test_messages.py::test_"
_SIZES = "tests/contract/test_sizes.py::test_"
_COUNTERS = "tests/diagnosis/test_counters.py::test_"
_RETRACES = "tests/diagnosis/test_retraces.py::test_"
_TAKING = "tests/view/test_call_codegen.py::test_"
_TRACER_ERRORS = "tests/diagnosis/test_tracer_errors.py::test_"
_CAPTURED = "tests/program/runners/test_captured_calls.py::test_"
_IN_PARTS = "tests/program/runners/test_captured_in_parts.py::test_"
_KEPT_CAPTURED = "tests/serialized/test_captured.py::test_"
_KEPT_KEPT = "tests/serialized/test_kept.py::test_"
_CORE = "tests/program/test_core.py::test_"
_ENTRY = "tests/program/test_entry.py::test_"
_EXAMPLES = "tests/program/test_examples.py::test_"
_PLAN_REPORT = "tests/report/test_plan_report.py::test_"
_PLAIN_OBJECTS = "tests/signature/test_mutable_objects.py::test_"
_STATIC_KEYS = "tests/signature/test_static_keys.py::test_"
_STATIC_VALUES = "tests/signature/test_static_values.py::test_"
_RECORDS = "tests/program/test_numbers_of_dataclasses.py::test_"
_CHUNK = "tests/stages/test_chunk.py::test_"
_PAD = "tests/stages/test_pad.py::test_"
_PLAN = "tests/stages/test_plan.py::test_"
_ERRORS = "tests/test_errors.py::test_"
_FLATTEN = "tests/view/test_flatten.py::test_"
_LAYOUT = "tests/view/test_layout.py::test_"

KEYS = [
    Mutation(
        "True, 1 and 1.0 are one static value",
        "src/jitney/_values/static_values.py",
        "    if kind in PLAIN:\n        return kind, value\n",
        "    if kind in PLAIN:\n        return value\n",
        (f"{_STATIC_KEYS}values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "minus zero is zero",
        "src/jitney/_values/static_values.py",
        "        return kind, value.hex()\n",
        "        return kind, value\n",
        (f"{_STATIC_KEYS}values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "the order of a dict is no part of its key",
        "src/jitney/_values/kinds.py",
        "for item in base.items(value) for part in item",
        "for item in sorted(base.items(value), key=repr) for part in item",
        (f"{_STATIC_KEYS}values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "fields that are not compared count",
        "src/jitney/_values/static_values.py",
        "compared = [field.name for field in dataclasses.fields(record) if field.compare]",
        "compared = [field.name for field in dataclasses.fields(record)]",
        (f"{_STATIC_KEYS}a_field_that_is_not_compared_is_not_in_the_key",),
    ),
    Mutation(
        "a list is handed on as it is",
        "src/jitney/_values/copies.py",
        "return [snapshot(part, copies) for part in parts]",
        "return [*parts]",
        (
            f"{_STATIC_VALUES}a_change_after_the_call_does_not_reach_a_later_trace_of_the_old_value",
            "tests/signature/test_snapshots.py",
        ),
    ),
    Mutation(
        "the weak type of an argument is no part of a key",
        "src/jitney/_view/layout.py",
        'weak = bool(getattr(array, "weak_type", False))',
        "weak = False",
        (f"{_PAD}weakly_typed_arrays_compute_as_they_are", f"{_LAYOUT}weak_types_stay_weak"),
    ),
    Mutation(
        "padded programs of float32 and float64 are one",
        "src/jitney/_program/runners/padded_calls.py",
        "        with self.entry.numbers():\n            return self._run(arrays, whole=whole)",
        "        return self._run(arrays, whole=whole)",
        (f"{_PAD}double_precision_has_keys_of_its_own", f"{_PAD}other_options_compose"),
    ),
    Mutation(
        "the options of a function are no part of its key",
        "src/jitney/_program/registry.py",
        "core = cores.get(options) or CompiledFunction(fn, options, namespace)",
        "core = next(iter(cores.values()), None) or CompiledFunction(fn, options, namespace)",
        (f"{_CORE}the_same_function_with_other_options_is_another_program",),
    ),
    Mutation(
        "a call inside of another trace finds the program of one outside",
        "src/jitney/_program/tables/entries.py",
        "key = (layout.form, is_nested, under, layout.key(leaves))",
        "key = (layout.form, layout.key(leaves))",
        (f"{_KEPT_KEPT}under_outer_transforms_it_is_traced",),
    ),
    Mutation(
        "a program of one setting serves another",
        "src/jitney/_program/tables/entries.py",
        "under = tuple(getattr(options, name) for name in OF_PROGRAMS)",
        "under = ()",
        ("tests/host/test_switches.py::test_a_change_between_calls_takes_another_program",),
    ),
    Mutation(
        "what an object holds is not asked again",
        "src/jitney/_program/entry.py",
        "return reads is None or reads.are_unchanged()",
        "return True",
        (f"{_PLAIN_OBJECTS}a_method_sees_what_has_changed_in_its_object",),
    ),
    Mutation(
        "a model that has changed is taken for the one before",
        "src/jitney/_view/call_codegen.py",
        'self._leave_if([f"len({variable}) != {len(attributes)}", *differences])',
        'self._leave_if([f"len({variable}) != {len(attributes)}"])',
        (f"{_FLATTEN}a_static_field_is_part_of_the_key", "tests/view/test_call_codegen.py"),
    ),
    Mutation(
        "functions that are leaves of a model are not compared",
        "src/jitney/_view/call_codegen.py",
        "if self._dynamic is None and is_keyed_by_value(node):",
        "if self._dynamic is None and False:",
        (f"{_TAKING}functions_made_anew_do_not_pile_up",),
    ),
    Mutation(
        "an int annotated float is static",
        "src/jitney/_view/layout.py",
        "        if whole:\n            return lambda all_: [",
        "        if whole and not whole:\n            return lambda all_: [",
        (f"{_LAYOUT}an_int_annotated_float_is_that_float",),
    ),
]

CONTRACT = [
    Mutation(
        "two sizes of an axis are one",
        "src/jitney/_contract/sizes.py",
        "return None if first == size else two_sizes(name, (first, setter), (size, who))",
        "return None",
        (f"{_MESSAGES}two_sizes_of_an_axis",),
    ),
    Mutation(
        "an expression is not compared",
        "src/jitney/_contract/sizes.py",
        "elif value != size:",
        "elif value < 0:",
        (f"{_MESSAGES}an_expression_shows_its_value_and_its_names",),
    ),
    Mutation(
        "an expression that waits is never settled",
        "src/jitney/_contract/sizes.py",
        "elif value != item.size:",
        "elif value < 0:",
        (f"{_SIZES}expressions_may_refer_to_names_that_come_later",),
    ),
    Mutation(
        "the dtype of a NumPy array is not looked at",
        "src/jitney/_contract/check.py",
        "value.dtype) and not (hint.array_like and isinstance(value, np.generic)",
        "value.dtype) and not isinstance(value, np.ndarray | np.generic",
        (f"{_ACCEPTED}numbers_of_numpy_have_the_dtype_that_is_annotated",),
    ),
    Mutation(
        "what an alternative has bound stays bound",
        "src/jitney/_contract/check.py",
        "        scope.sizes.restore(before)\n",
        "",
        (f"{_ACCEPTED}an_alternative_that_does_not_fit_binds_nothing",),
    ),
    Mutation(
        "two layers of one class share their sizes",
        "src/jitney/_contract/check.py",
        'inside = BindingScope(AxisBindings(), {**own, "self": value}, strict=False)',
        'inside = BindingScope(scope.sizes, {**own, "self": value}, strict=False)',
        (f"{_CONTRACT}instances_bind_their_own_axes",),
    ),
    Mutation(
        "a tuple may have more items than its annotation",
        "src/jitney/_contract/check.py",
        "        and length != len(hint.items)",
        "        and length < len(hint.items)",
        (f"{_ACCEPTED}a_tuple_has_as_many_items_as_its_annotation",),
    ),
    Mutation(
        "True is a float",
        "src/jitney/_contract/kinds.py",
        "if isinstance(value, kinds) and not isinstance(value, bool):",
        "if isinstance(value, kinds):",
        (f"{_ACCEPTED}float_refuses_other_things",),
    ),
    Mutation(
        "a result is not compared with its annotation",
        "src/jitney/_body/body.py",
        "        if planned.sizes is not None:\n            check_result",
        "        if planned.notes:\n            check_result",
        (f"{_ENTRY}a_result_that_breaks_its_annotation_is_an_error",),
    ),
    Mutation(
        "a size of an axis that is not there is ignored",
        "src/jitney/_program/examples.py",
        "        if name not in known:\n",
        "        if name not in known and not known:\n",
        (f"{_EXAMPLES}sizes_that_are_missing_unknown_or_no_sizes",),
    ),
]

WORDS = [
    Mutation(
        "a message has no fix",
        "src/jitney/_errors.py",
        '\\nFix: {fix}"',
        '\\n{fix}"',
        (f"{_ERRORS}a_message_has_three_lines",),
    ),
    Mutation(
        "another code than the page of errors has",
        "src/jitney/_diagnosis/tracer_errors.py",
        '    "key": "J271",',
        '    "key": "J273",',
        (f"{_ERRORS}the_page_of_errors_has_the_codes_that_are_raised_and_no_others",),
    ),
    Mutation(
        "the first argument is blamed for a value that is needed",
        "src/jitney/_diagnosis/tracer_errors.py",
        "arguments = [paths[number] for number in need.arguments if number < len(paths)]",
        "arguments = [*paths[:1]]",
        (f"{_TRACER_ERRORS}names_function_line_code_and_arguments",),
    ),
    Mutation(
        "a retrace by a weak type is not told",
        "src/jitney/_diagnosis/retraces/causes.py",
        "        if was.weak_type != leaf.weak_type:\n",
        "        if was.weak_type and not leaf.weak_type and was.dtype != leaf.dtype:\n",
        (f"{_RETRACES}another_weak_type",),
    ),
    Mutation(
        "a call that failed is a hit",
        "src/jitney/_diagnosis/counters/counters.py",
        "hits=max(0, self.calls - self.misses - self.eager),",
        "hits=self.calls,",
        (f"{_COUNTERS}a_call_that_fails_to_trace_is_no_hit",),
    ),
    Mutation(
        "a plan says that the contract is checked though it is not",
        "src/jitney/_signature/options/plan_lines.py",
        '"checked once for each new call key" if checked else "`contracts=False`"',
        '"checked once for each new call key"',
        (f"{_PLAN_REPORT}options_off_say_so",),
    ),
    Mutation(
        "a plan hides what was asked for and not taken",
        "src/jitney/_report/option_lines.py",
        "return self.taken or _NOT_ASKED.fullmatch(self.why) is None",
        "return self.taken",
        (f"{_PLAN_REPORT}what_was_asked_for_and_not_taken_stays_a_line",),
    ),
    Mutation(
        "a plan counts one pass too many",
        "src/jitney/_stages/chunking/cut.py",
        '            f"{len(self.passes.passes)} over the data{ways}, {self.width} of {self.axis} at a"',
        '            f"{len(self.passes.passes) + 1} over the data{ways}, {self.width} of {self.axis} at a"',
        (f"{_CHUNK}auto_takes_what_suits_caches",),
    ),
    Mutation(
        "stages stand in another order",
        "src/jitney/_stages/__init__.py",
        "Mask, Remat, Precision)",
        "Mask, Precision, Remat)",
        (f"{_PLAN}every_stage_has_a_line_in_the_order_of_the_pipeline",),
    ),
    Mutation(
        "a captured array that was changed in place is not compared",
        "src/jitney/_jax/programs/large_constants.py",
        "        if not held.keys() <= found or are_changed():",
        "        if not held.keys() <= found:",
        (f"{_CAPTURED}traces_that_jax_has_dropped_are_captured_anew",),
    ),
    Mutation(
        "a captured array is not copied",
        "src/jitney/_jax/programs/large_constants.py",
        "            copy = jax.numpy.array(host, copy=True)",
        "            copy = jax.numpy.asarray(value)",
        (f"{_CAPTURED}array_that_is_donated_later_keeps_its_numbers",),
    ),
    Mutation(
        "a checkpoint does not know what a stream has captured",
        "src/jitney/_stream/steps.py",
        "        facts += map(value_key, self.captured.values())\n",
        "",
        (f"{_IN_PARTS}stream_of_another_array_does_not_go_on",),
    ),
    Mutation(
        "each captured array is an argument",
        "src/jitney/_jax/programs/large_constants.py",
        "        if _nbytes(var.aval) > LARGE:",
        "        if _nbytes(var.aval) > 0:",
        (f"{_CAPTURED}array_below_a_megabyte_is_a_constant",),
    ),
    Mutation(
        "large arrays are not in the key of a cached program",
        "src/jitney/_record/value_kinds.py",
        "        self.say(digest)\n        if host.nbytes > LARGE and not is_key:\n",
        "        if host.nbytes <= LARGE:\n            self.say(digest)\n        elif not is_key:\n",
        (f"{_KEPT_CAPTURED}another_array_has_another_key",),
    ),
    Mutation(
        "a cached program does not look for its captured arrays",
        "src/jitney/_serialized/request.py",
        "            or self._missing_array(stored)\n",
        "",
        (f"{_KEPT_CAPTURED}program_whose_array_is_not_there_is_not_used",),
    ),
    Mutation(
        "the error of an exponent of `bench` is its square",
        "src/jitney/_command/bench/growth.py",
        "errors = [math.sqrt(spread * each) for each",
        "errors = [spread * each for each",
        (f"{_BENCH}exponents_are_those_of_a_power_law",),
    ),
    Mutation(
        "`cache prune` deletes what was used last",
        "src/jitney/_command/cache/command.py",
        "(since is not None and entry.used < since)",
        "(since is not None and entry.used > since)",
        (f"{_KEPT}prune_deletes_what_its_options_name",),
    ),
    Mutation(
        "`run` counts a first program among those that were made for nothing",
        "src/jitney/_command/changes.py",
        "            and each.key in seen",
        "",
        (
            "tests/command/test_changes.py"
            "::test_a_function_that_is_made_anew_is_found_by_its_program",
        ),
    ),
]

RECORDS = [
    Mutation(
        "a frozen dataclass with a field that its key leaves out is taken apart",
        "src/jitney/_view/taken_apart.py",
        "        is_in_hash = field.compare and field.hash is not False",
        "        is_in_hash = True",
        (f"{_RECORDS}a_field_that_is_not_compared_is_in_no_key",),
    ),
    Mutation(
        "a frozen dataclass with a hash of its own is taken apart",
        "src/jitney/_view/taken_apart.py",
        "    if not _hashes_fields(value, values):",
        "    if False:",
        (f"{_RECORDS}one_that_holds_more_than_its_key_stays_static",),
    ),
    Mutation(
        "the dict of a dataclass that is taken apart comes in the order of its keys",
        "src/jitney/_view/taken_apart.py",
        "    return Opaque(value)",
        "    return value",
        (f"{_RECORDS}other_fields_are_static",),
    ),
]

MUTATIONS = [*KEYS, *CONTRACT, *WORDS, *RECORDS]
