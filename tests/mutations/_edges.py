"""What comes in and goes out: array-likes, stacks, copies, numbers of 64 bits, updates in place."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_COPIES = "tests/signature/test_copies.py::test_"
_FITTING = "tests/view/test_fitting.py::test_"
_LIKES = "tests/signature/test_array_likes.py::test_"
_RESULT = "tests/view/test_result.py::test_"
_UPDATES = "tests/body/test_updates.py::test_"
_VMAP = "tests/stages/test_vmap.py::test_"

MUTATIONS = [
    Mutation(
        "what offers its numbers is static like any other object",
        "src/jitney/_values/array_likes.py",
        "    if any(hasattr(kind, name) for name in _PROTOCOLS):\n        return True\n",
        "    if any(hasattr(kind, name) for name in _PROTOCOLS):\n        return False\n",
        (f"{_LIKES}what_looks_like_an_array_is_refused_wherever_it_is",),
    ),
    Mutation(
        "what can be indexed, with a shape and a dtype, is static",
        "src/jitney/_values/array_likes.py",
        (
            "    return by_identity and (\n"
            '        hasattr(kind, "__getitem__") or not (is_plain(kind) and owner_of_class(kind) == "user")\n'
            "    )"
        ),
        '    return by_identity and (False or not (is_plain(kind) and owner_of_class(kind) == "user"))',
        (f"{_LIKES}what_looks_like_an_array_is_refused_wherever_it_is",),
    ),
    Mutation(
        "an array-like in an attribute is read",
        "src/jitney/_values/attribute_reads.py",
        "        for found in array_likes(part):\n",
        "        for found in ():\n",
        (f"{_LIKES}an_attribute_that_looks_like_an_array_is_refused_where_it_is_read",),
    ),
    Mutation(
        "a mask is lost",
        "src/jitney/_view/layout.py",
        "            if means_more(type(leaf)):\n",
        "            if False:\n",
        (f"{_LIKES}a_mask_is_not_lost",),
    ),
    Mutation(
        "a stack of modules is shared",
        "src/jitney/_view/view.py",
        "        return self.field if self.hint is None else self.hint\n",
        "        return self.hint\n",
        (f"{_VMAP}a_stack_of_modules_is_mapped",),
    ),
    Mutation(
        "a field that may have the axis is shared",
        "src/jitney/_stages/vmap.py",
        "        if leaf.declared_rank is None and leaf.shape[:1] == mapped.shape[:1]:\n",
        "        if False:\n",
        (f"{_VMAP}a_field_that_may_have_the_axis_is_an_error",),
    ),
    Mutation(
        "a dict is copied by its own update",
        "src/jitney/_values/kinds.py",
        "            base.__setitem__(made, key, part)\n",
        "            made.update({key: part})\n",
        (f"{_COPIES}a_copy_holds_what_the_original_holds",),
    ),
    Mutation(
        "slots are no attributes",
        "src/jitney/_values/attributes.py",
        'if "__slots__" not in base.__dict__:',
        "if True:",
        (
            f"{_COPIES}a_copy_holds_what_the_original_holds",
            f"{_COPIES}equal_values_that_a_body_tells_apart_have_different_keys",
        ),
    ),
    Mutation(
        "values of the standard library are what their == says",
        "src/jitney/_values/construction.py",
        "    return owner is not object and owner.__module__",
        "    return False and owner.__module__",
        (f"{_COPIES}equal_values_that_a_body_tells_apart_have_different_keys",),
    ),
    Mutation(
        "an object that a body made is handed to every caller",
        "src/jitney/_view/result.py",
        "        self.made = new_objects_in(result, leaves)",
        "        self.made = frozenset(new_objects_in(result, leaves) and ())",
        (f"{_RESULT}an_object_that_the_body_makes_is_made_for_each_call",),
    ),
    Mutation(
        "an object that was there is copied",
        "src/jitney/_view/result.py",
        "if not _is_only_in(objects[key], inside)}",
        "if False}",
        (f"{_RESULT}an_object_that_was_there_before_is_itself",),
    ),
    Mutation(
        "integers beyond 32 bits are cut off",
        "src/jitney/_view/fitting.py",
        "            if least < limits.min or most > limits.max:\n",
        "            if False:\n",
        (f"{_FITTING}integers_beyond_32_bits_are_an_error_in_each_call",),
    ),
    Mutation(
        "only the first call looks whether integers fit",
        "src/jitney/_view/call_codegen.py",
        'return [f"{name}.dtype in {self._constant(WHOLE)}"]',
        "return []",
        (f"{_FITTING}integers_beyond_32_bits_are_an_error_in_each_call",),
    ),
    Mutation(
        "time stamps are rounded in silence",
        "src/jitney/_view/fitting.py",
        "    if moved > _LOST * (most - least) > 0:\n",
        "    if False:\n",
        (f"{_FITTING}floats_that_lose_what_tells_them_apart_are_said",),
    ),
    Mutation(
        "updates in place are lost in silence",
        "src/jitney/_body/body.py",
        '            if self.core.counters.warn_once("updates in place"):\n',
        "            if False:\n",
        (f"{_UPDATES}an_update_in_place_is_said_once",),
    ),
    Mutation(
        "a scratch of the body's own is an update",
        "src/jitney/_values/read_trace.py",
        "            self._scratch.add((id(value), name))\n",
        "",
        (
            "tests/program/test_leaked_tracers.py::test_an_attribute_that_the_body_alone_reads_is_fine",
        ),
    ),
    Mutation(
        "a cached program has forgotten the updates of its trace",
        "src/jitney/_serialized/kept.py",
        "        self._body.warn_lost_updates(stored.updates)\n",
        "",
        ("tests/serialized/test_kept.py::test_updates_in_place_are_said_in_each_process",),
    ),
    Mutation(
        "JAX names a file of jitney's",
        "src/jitney/_jax/debug_names.py",
        "        set_.__wrapped__ = _stand_in(where)\n",
        "",
        (
            "tests/program/test_names_in_jax_messages.py::test_a_leaked_tracer_names_the_function_as_jit_does[none]",
        ),
    ),
    Mutation(
        "the line of a library stands where the user's belongs",
        "src/jitney/_jax/programs/jaxprs.py",
        'function.rpartition("<locals>.")[2], held_at)',
        'function.rpartition("<locals>.")[2])',
        ("tests/axes/test_lines_of_libraries.py",),
    ),
    Mutation(
        "a square root at zero is a divisor",
        "src/jitney/_diagnosis/nonfinite/message.py",
        'operands[1].made_by == "sqrt"',
        'operands[1].made_by == "rsqrt"',
        (
            "tests/diagnosis/test_nonfinite.py::test_a_masked_gradient_names_the_infinity_behind_the_nan",
        ),
    ),
    Mutation(
        "a misspelt keyword is what is missing",
        "src/jitney/_errors.py",
        "    if unknown:\n",
        "    if len(unknown) > 9:\n",
        ("tests/signature/test_binding.py::test_any_call_fits_or_fails_as_in_python",),
    ),
    Mutation(
        "operations that differ in their operands are merged before an axis is cut",
        "src/jitney/_jax/programs/duplicates.py",
        "    key = (eqn.primitive, params, eqn.ctx, reads, makes)\n",
        "    key = (eqn.primitive, params, eqn.ctx, frozenset(reads), makes)\n",
        ("tests/jax/test_duplicates.py::test_what_differs_stays[other order]",),
    ),
    Mutation(
        "constants are compared as Python compares numbers",
        "src/jitney/_jax/programs/duplicates.py",
        "    return type(value), str(array.dtype), array.shape, array.tobytes()\n",
        "    return tuple(array.ravel().tolist())\n",
        ("tests/jax/test_duplicates.py::test_what_differs_stays[zeros of two signs]",),
    ),
    Mutation(
        "random bits of other settings are merged",
        "src/jitney/_jax/programs/duplicates.py",
        "    key = (eqn.primitive, params, eqn.ctx, reads, makes)\n",
        "    key = (eqn.primitive, params, reads, makes)\n",
        ("tests/jax/test_duplicates.py::test_other_settings_stay_apart",),
    ),
    Mutation(
        "equal operations of a cut program are not merged",
        "src/jitney/_axes/chunks/numbered.py",
        "    steps, merged = merge_duplicates(numbering.nodes, gives)\n",
        "    steps, merged = tuple(numbering.nodes), tuple(gives)\n",
        ("tests/axes/test_whole.py::test_equal_values_of_a_chunk_are_made_once",),
    ),
]
