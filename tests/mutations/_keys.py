"""What tells one program from another, what a contract asks, what messages and plans say."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_STATIC = "src/jitney/_signature/static_values.py"
_SIZES = "src/jitney/_contract/sizes.py"
_CHECK = "src/jitney/_contract/check.py"

KEYS = [
    Mutation(
        "True, 1 and 1.0 are one static value", _STATIC,
        "    if kind in PLAIN:\n        return kind, value\n", "    if kind in PLAIN:\n        return value\n",
        ("tests/signature/test_static_keys.py::test_values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "minus zero is zero", _STATIC,
        "        return kind, value.hex()\n", "        return kind, value\n",
        ("tests/signature/test_static_keys.py::test_values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "a static leaf that is minus zero is zero", _STATIC,
        "        return float.hex\n", "        return float\n",
        ("tests/signature/test_static_values.py::test_minus_zero_is_another_program",),
    ),
    Mutation(
        "the order of a dict is no part of its key", _STATIC,
        "return tuple(part for item in value.items() for part in item)",
        "return tuple(part for item in sorted(value.items(), key=repr) for part in item)",
        ("tests/signature/test_static_keys.py::test_values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "the weak type of a static array is no part of its key", _STATIC,
        "return (str(host.dtype), host.shape, weak, order_in_memory(host), host.tobytes())",
        "return (str(host.dtype), host.shape, order_in_memory(host), host.tobytes())",
        ("tests/signature/test_static_keys.py::test_values_that_a_body_can_tell_apart_have_different_keys",),
    ),
    Mutation(
        "fields that are not compared count", _STATIC,
        "for field in dataclasses.fields(value) if field.compare]", "for field in dataclasses.fields(value)]",
        ("tests/signature/test_static_keys.py::test_a_field_that_is_not_compared_is_not_in_the_key",),
    ),
    Mutation(
        "a list is handed on as it is", _STATIC,
        "        twin[:] = [snapshot(part, copies) for part in value]\n", "        pass\n",
        ("tests/signature/test_static_values.py::test_a_change_after_the_call_does_not_reach_a_later_trace_of_the_old_value",
         "tests/signature/test_snapshots.py"),
    ),
    Mutation(
        "the weak type of an argument is no part of a key", "src/jitney/_view/layout.py",
        'return tuple(array.shape), dtype, bool(getattr(array, "weak_type", False))', "return tuple(array.shape), dtype, False",
        ("tests/stages/test_pad.py::test_weakly_typed_arrays_compute_as_they_are", "tests/view/test_layout.py::test_weak_types_stay_weak"),
    ),
    Mutation(
        "padded programs of float32 and float64 are one", "src/jitney/_program/padded_calls.py",
        "        with self.entry.numbers():  # its dtypes are part of the keys\n            return self._run(arrays, whole=not nested)",
        "        return self._run(arrays, whole=not nested)",
        ("tests/stages/test_pad.py::test_double_precision_has_keys_of_its_own", "tests/stages/test_pad.py::test_other_options_compose"),
    ),
    Mutation(
        "the options of a function are no part of its key", "src/jitney/_program/core.py",
        "core = cores.get(options) or Core(fn, options, namespace)",
        "core = next(iter(cores.values()), None) or Core(fn, options, namespace)",
        ("tests/program/test_core.py::test_the_same_function_with_other_options_is_another_program",),
    ),
    Mutation(
        "a call inside of another trace finds the program of one outside", "src/jitney/_program/core.py",
        "key = (layout.form, layout.nested and self.differs_nested, layout.key(leaves))", "key = (layout.form, layout.key(leaves))",
        ("tests/program/test_wrappers.py::test_a_first_call_from_inside_another_trace_decides_nothing_for_later_ones",
         "tests/program/test_wrappers.py::test_cache_false_holds_after_a_nested_first_call",
         "tests/stages/test_jit.py::test_under_an_outer_jit_nothing_is_donated"),
    ),
    Mutation(
        "what an object holds is not asked again", "src/jitney/_program/entry.py",
        "return reads is None or reads.hold()", "return True",
        ("tests/signature/test_plain_objects.py::test_a_method_sees_what_has_changed_in_its_object",),
    ),
    Mutation(
        "a model that has changed is taken for the one before", "src/jitney/_view/taking.py",
        'self._leave_if([f"len({lies_in}) != {len(held)}", *(self._differs(held[field], f"{lies_in}[{field!r}]") for field in static)])',
        'self._leave_if([f"len({lies_in}) != {len(held)}"])',
        ("tests/view/test_flatten.py::test_a_static_field_is_part_of_the_key", "tests/view/test_taking.py"),
    ),
    Mutation(
        "functions that are leaves of a model are confused", "src/jitney/_view/taking.py",
        "self._leave_if([self._differs(node, name)] if self._dynamic is None and is_told(node) else unlike)", "self._leave_if(unlike)",
        ("tests/view/test_taking.py::test_functions_in_two_models_are_not_confused",),
    ),
    Mutation(
        "an int annotated float is static", "src/jitney/_view/layout.py",
        "        if whole:  # an int passed", "        if whole and not whole:  # an int passed",
        ("tests/view/test_layout.py::test_an_int_annotated_float_is_that_float",),
    ),
]  # fmt: skip

CONTRACT = [
    Mutation(
        "two sizes of an axis are one", _SIZES,
        "return None if first == size else two_sizes(name, (first, setter), (size, who))", "return None",
        ("tests/contract/test_messages.py::test_two_sizes_of_an_axis",),
    ),
    Mutation(
        "a fixed size is at least that", _SIZES,
        "return None if size == dim.size else", "return None if dim.size is not None and size >= dim.size else",
        ("tests/contract/test_messages.py::test_wrong_fixed_size",),
    ),
    Mutation(
        "an expression is not compared", _SIZES,
        "        elif value != size:\n            return _wrong_expression(dim.expr, value, size, who, text, sizes)\n", "",
        ("tests/contract/test_messages.py::test_an_expression_shows_its_value_and_its_names",),
    ),
    Mutation(
        "an expression that waits is never settled", _SIZES,
        "        elif value != item.size:\n            return _wrong_expression(item.expr, value, item.size, item.who, item.text, sizes)\n", "",
        ("tests/contract/test_sizes.py::test_expressions_may_refer_to_names_that_come_later",),
    ),
    Mutation(
        "the dtype of a NumPy array is not looked at", _CHECK,
        "if not hint.allows(value.dtype) and not (hint.array_like and isinstance(value, np.generic)):",
        "if not hint.allows(value.dtype) and not isinstance(value, np.ndarray | np.generic):",
        ("tests/contract/test_accepted.py::test_numbers_of_numpy_have_the_dtype_that_is_annotated",),
    ),
    Mutation(
        "what an alternative has bound stays bound", _CHECK,
        "        scope.sizes.restore(before)\n", "",
        ("tests/contract/test_accepted.py::test_an_alternative_that_does_not_fit_binds_nothing",),
    ),
    Mutation(
        "two layers of one class share their sizes", _CHECK,
        'inside = Scope(Sizes(), {**own, "self": value}, strict=False)', 'inside = Scope(scope.sizes, {**own, "self": value}, strict=False)',
        ("tests/contract/test_contract.py::test_instances_bind_their_own_axes",),
    ),
    Mutation(
        "a tuple may have more items than its annotation", _CHECK,
        "and not isinstance(value, Mapping) and length != len(hint.items):", "and not isinstance(value, Mapping) and length < len(hint.items):",
        ("tests/contract/test_accepted.py::test_a_tuple_has_as_many_items_as_its_annotation",),
    ),
    Mutation(
        "True is a float", "src/jitney/_contract/kinds.py",
        "if isinstance(value, kinds) and not isinstance(value, bool):", "if isinstance(value, kinds):",
        ("tests/contract/test_accepted.py::test_float_refuses_other_things",),
    ),
    Mutation(
        "a result is not compared with its annotation", "src/jitney/_body/body.py",
        "        if planned.sizes is not None:\n            check_result", "        if planned.notes:\n            check_result",
        ("tests/program/test_entry.py::test_a_result_that_breaks_its_annotation_is_an_error",),
    ),
    Mutation(
        "a padded call is compared with its contract at the size of the bucket alone", "src/jitney/_program/padded_calls.py",
        "        view = entry.planned(arrays, jit=False).view\n        fill =",
        "        view = entry.layout.view(entry.core.contract, arrays, entry.statics)\n        fill =",
        ("tests/stages/test_pad.py::test_contracts_hold_at_the_true_size",),
    ),
    Mutation(
        "a size of an axis that is not there is ignored", "src/jitney/_program/examples.py",
        "        if name not in known:\n", "        if name not in known and not known:\n",
        ("tests/program/test_examples.py::test_sizes_that_are_missing_unknown_or_no_sizes",),
    ),
]  # fmt: skip

WORDS = [
    Mutation(
        "a message has no fix", "src/jitney/_errors.py",
        '\\nFix: {fix}"', '\\n{fix}"',
        ("tests/test_errors.py::test_a_message_has_three_lines",),
    ),
    Mutation(
        "a size from two arguments is said to be from one", _SIZES,
        'f"axis \'{name}\' has two sizes, {together if first[1] == second[1] else apart}."', 'f"axis \'{name}\' has two sizes, {together}."',
        ("tests/contract/test_messages.py::test_two_sizes_of_an_axis",),
    ),
    Mutation(
        "another code than the page of errors has", "src/jitney/_diagnosis/tracer_errors.py",
        '"key": "J271"}', '"key": "J273"}',
        ("tests/test_errors.py::test_the_page_of_errors_has_the_codes_that_are_raised_and_no_others",),
    ),
    Mutation(
        "the first argument is blamed for a value that is needed", "src/jitney/_diagnosis/tracer_errors.py",
        "arguments = [paths[number] for number in need.arguments if number < len(paths)]", "arguments = [*paths[:1]]",
        ("tests/diagnosis/test_tracer_errors.py::test_names_function_line_code_and_arguments",),
    ),
    Mutation(
        "a retrace by a weak type is not told", "src/jitney/_diagnosis/retraces.py",
        "        if was.weak_type != leaf.weak_type:\n", "        if was.weak_type and not leaf.weak_type and was.dtype != leaf.dtype:\n",
        ("tests/diagnosis/test_retraces.py::test_another_weak_type",),
    ),
    Mutation(
        "a call that failed is a hit", "src/jitney/_diagnosis/counters.py",
        "hits=max(0, self.calls - self.misses - self.eager),", "hits=self.calls,",
        ("tests/diagnosis/test_counters.py::test_a_call_that_fails_to_trace_is_no_hit",),
    ),
    Mutation(
        "the padding of many calls is that of their sizes", "src/jitney/_diagnosis/counters.py",
        "self.rows.get(axis.name, 0) + axis.high", "self.rows.get(axis.name, 0) + axis.size",
        ("tests/stages/test_pad.py::test_padding_is_counted",),
    ),
    Mutation(
        "a warning of many static values comes with the first", "src/jitney/_diagnosis/static_variety.py",
        "MANY = 8", "MANY = 7",
        ("tests/diagnosis/test_static_variety.py::test_the_ninth_value_warns_with_name_count_seconds_and_what_to_do",),
    ),
    Mutation(
        "a plan says that the contract is checked though it is not", "src/jitney/_report/plan_report.py",
        '"checked once for each new call key" if options.check else "`check=False`"', '"checked once for each new call key"',
        ("tests/report/test_plan_report.py::test_options_off_say_so",),
    ),
    Mutation(
        "a plan hides what was asked for and not taken", "src/jitney/_report/plan_report.py",
        "return self.taken or _NOT_ASKED.fullmatch(self.why) is None", "return self.taken",
        ("tests/report/test_plan_report.py::test_what_was_asked_for_and_not_taken_stays_a_line",),
    ),
    Mutation(
        "a plan counts one chunk for two", "src/jitney/_stages/chunk.py",
        'done = f"{len(self.passes.passes)} over the data', 'done = f"{len(self.passes.passes) + 1} over the data',
        ("tests/stages/test_chunk.py::test_under_vmap_and_of_a_mapped_axis", "tests/test_docs.py::test_code_of_a_page_runs[docs/options/chunk.md]"),
    ),
    Mutation(
        "stages stand in another order", "src/jitney/_stages/__init__.py",
        "Mask, Remat, Precision)", "Mask, Precision, Remat)",
        ("tests/stages/test_plan.py::test_every_stage_has_a_line_in_the_order_of_the_pipeline",),
    ),
    Mutation(
        "the sizes that `bench` draws from are halved", "src/jitney/_command/bench/growth.py",
        "errors = [math.sqrt(spread * each) for each", "errors = [spread * each for each",
        ("tests/command/test_bench.py::test_exponents_are_those_of_a_power_law",),
    ),
    Mutation(
        "`cache prune` deletes what was used last", "src/jitney/_command/kept.py",
        "(since is not None and entry.used < since)", "(since is not None and entry.used > since)",
        ("tests/command/test_kept.py::test_prune_deletes_what_its_options_name",),
    ),
    Mutation(
        "`run` counts the first of equal programs among those for nothing", "src/jitney/_command/changes.py",
        'if each.key and each.key in seen and each.cause is not None', "if each.key and each.cause is not None",
        ("tests/command/test_changes.py",),
    ),
]  # fmt: skip

MUTATIONS = [*KEYS, *CONTRACT, *WORDS]
