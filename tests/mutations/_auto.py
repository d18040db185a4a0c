"""Ways that are chosen by measuring: what `auto` promises, wrong in one place."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_CALLS = "tests/program/auto/test_auto_calls.py::test_"
_SEARCH = "tests/program/auto/test_search.py::test_"
_TIMES = "tests/program/auto/test_call_times.py::test_"
_RECORD = "tests/program/auto/test_choice_record.py::test_"
_FORKS = "tests/program/auto/test_processes.py::test_"
_SOURCE = "src/jitney/_program/auto"

MUTATIONS = [
    Mutation(
        "auto tries in the second call of a size",
        f"{_SOURCE}/calls_of_size.py",
        "due = max(self.compile_seconds or 0.0, self.due)",
        "due = self.due",
        (f"{_CALLS}nothing_is_tried_before_calls_have_taken_as_long_as_their_compile",),
    ),
    Mutation(
        "what auto spends need not be repaid",
        f"{_SOURCE}/search.py",
        "<= max(hope * left, _SHARE * taken)",
        "<= max(hope * left, taken)",
        (
            f"{_SEARCH}what_is_spent_has_to_be_repaid_within_20_compiles",
            f"{_SEARCH}what_could_not_be_repaid_in_time_may_be_a_tenth_of_what_calls_take",
        ),
    ),
    Mutation(
        "a search that was put off goes on at once",
        f"{_SOURCE}/calls_of_size.py",
        "        self.due = due\n",
        "",
        (f"{_CALLS}a_search_that_was_given_up_goes_on_when_calls_have_taken_ten_times_as_long",),
    ),
    Mutation(
        "a search that was put off is started once more by the next process",
        f"{_SOURCE}/auto_calls.py",
        "            calls.wait_for(due_after(record.spent), told)\n",
        "",
        (f"{_RECORD}a_search_that_was_put_off_is_put_off_in_the_next_process_too",),
    ),
    Mutation(
        "one slow run of a slice decides",
        f"{_SOURCE}/trials.py",
        "slower = _MUCH if len(times) == 1 else _SLOWER",
        "slower = _SLOWER",
        (f"{_CALLS}a_slow_first_run_does_not_decide",),
    ),
    Mutation(
        "ways are compared with the quickest call of the whole",
        f"{_SOURCE}/trials.py",
        "stays = search.best(_GAIN * usual) == WHOLE",
        "stays = search.best(_GAIN * whole) == WHOLE",
        (f"{_CALLS}a_way_is_compared_with_what_calls_usually_take",),
    ),
    Mutation(
        "a slice is as long as the whole is slow",
        f"{_SOURCE}/trials.py",
        "(min(whole, quickest * size) or whole)",
        "whole",
        (f"{_CALLS}a_slice_takes_5_milliseconds_in_the_best_way_so_far",),
    ),
    Mutation(
        "1 at a time is tried after the whole in threads",
        f"{_SOURCE}/search.py",
        "(start, *sooner, None)",
        "(start, None)",
        (f"{_SEARCH}one_at_a_time_comes_before_the_whole_in_threads_where_64_were_quicker",),
    ),
    Mutation(
        "the call that decides runs one way alone",
        f"{_SOURCE}/trials.py",
        "return ways if more and is_cheap",
        "return ways if not more and is_cheap",
        (f"{_CALLS}what_is_nearly_the_best_on_slices_runs_the_call_that_decides_too",),
    ),
    Mutation(
        "auto takes what was quick on a slice",
        f"{_SOURCE}/trials.py",
        "is_quicker = chosen <= _GAIN * whole",
        "is_quicker = chosen > 0.0",
        (f"{_CALLS}the_whole_stays_if_the_call_itself_is_no_quicker",),
    ),
    Mutation(
        "the call that decides returns the whole",
        f"{_SOURCE}/trials.py",
        "            return ours\n",
        "            return theirs or self._calls.run_way(WHOLE, arrays)\n",
        (f"{_CALLS}the_call_that_decides_has_the_result_of_the_choice",),
    ),
    Mutation(
        "a trial answers for the call",
        f"{_SOURCE}/trials.py",
        "        result = calls.times.run(lambda: self._calls.run_way(WHOLE, arrays), alone=True)",
        "        result = calls.times.run(lambda: self._calls.run_way(way, arrays), alone=True)",
        (f"{_CALLS}the_call_that_decides_has_the_result_of_the_choice",),
    ),
    Mutation(
        "a slice is one chunk, which is no loop",
        f"{_SOURCE}/trials.py",
        "step = 2 * width\n",
        "step = width\n",
        (f"{_CALLS}a_slice_is_a_sixteenth_or_whole_chunks_or_5_milliseconds",),
    ),
    Mutation(
        "exact takes other bits of a slice",
        f"{_SOURCE}/trials.py",
        "if is_exact and out is not None and not (is_part or _are_equal(out, result, rows)):",
        "if is_exact and out is None:",
        (f"{_CALLS}exact_takes_only_equal_bits",),
    ),
    Mutation(
        "exact does not look at the call that decides",
        f"{_SOURCE}/trials.py",
        "if is_quicker and is_exact and not _are_equal(ours, theirs):",
        "if is_quicker and is_exact and ours is theirs:",
        (f"{_CALLS}exact_compares_the_whole_call_too",),
    ),
    Mutation(
        "auto runs callbacks once more",
        f"{_SOURCE}/cut_axes.py",
        "    refuse_effects(body)\n    refuse_joint_rules(_axes.joint_rules(body))\n    _, size",
        "    refuse_joint_rules(_axes.joint_rules(body))\n    _, size",
        (f"{_CALLS}callbacks_are_called_once_each",),
    ),
    Mutation(
        "auto divides what is computed of all elements",
        f"{_SOURCE}/cut_axes.py",
        "    refuse_joint_rules(_axes.joint_rules(body))\n    _, size",
        "    _, size",
        (f"{_CALLS}a_rule_for_vmap_that_sees_all_elements_stays_whole",),
    ),
    Mutation(
        "auto takes what another state of the body was traced to",
        f"{_SOURCE}/trials.py",
        "        if self._calls.is_changed(calls, arrays):\n",
        "        if not calls.program:\n",
        (f"{_CALLS}what_the_body_reads_may_change",),
    ),
    Mutation(
        "a short call is compiled for a slice and once more for itself",
        f"{_SOURCE}/trials.py",
        'if width is None or _is_brief(calls, width) or way.kind == "memory":',
        'if width is None or way.kind == "memory":',
        (f"{_CALLS}a_call_that_is_short_beside_its_compile_is_its_own_slice",),
    ),
    Mutation(
        "auto starts threads where they may hang",
        f"{_SOURCE}/trials.py",
        "            if refused:\n",
        "            if refused is None:\n",
        (f"{_CALLS}threads_are_not_tried_where_workers_refuse",),
    ),
    Mutation(
        "auto cuts what is cut by hand",
        f"{_SOURCE}/cut_axes.py",
        "() if entry.options.chunk else WIDTHS",
        "WIDTHS",
        (f"{_CALLS}options_by_hand_are_left_alone",),
    ),
    Mutation(
        "auto acts under a transform",
        "src/jitney/_program/runners/whole_calls.py",
        "if jit_is_off() or self._is_in_trace(arrays):",
        "if jit_is_off():",
        (
            f"{_CALLS}under_transforms_it_is_whole",
            f"{_CALLS}under_transforms_it_is_whole_after_the_choice_too",
        ),
    ),
    Mutation(
        "short calls are measured on and on",
        f"{_SOURCE}/auto_calls.py",
        "if times.timed > 1 and (times.least or 0.0) < _SHORT:",
        "if times.timed > 1 and (times.least or 0.0) < 0.0:",
        (f"{_CALLS}short_calls_are_left_alone",),
    ),
    Mutation(
        "what gained nothing keeps going through auto",
        f"{_SOURCE}/auto_calls.py",
        "            self.is_idle = True\n",
        "            self.is_idle = False\n",
        (f"{_CALLS}a_function_that_gains_nothing_runs_as_without_auto",),
    ),
    Mutation(
        "auto sleeps on when a new size comes",
        "src/jitney/_program/entry.py",
        "            self.auto.is_idle = False\n",
        "",
        (f"{_CALLS}a_function_that_gains_nothing_runs_as_without_auto",),
    ),
    Mutation(
        "a call is waited for to be timed",
        f"{_SOURCE}/call_times.py",
        "            WATCHERS.submit(partial(self._await, leaves, began, alone=alone))",
        "            self._await(leaves, began, alone=alone)",
        (f"{_TIMES}a_result_that_is_not_ready_is_not_waited_for",),
    ),
    Mutation(
        "a choice is of any program of that name",
        f"{_SOURCE}/choice_record.py",
        "        for part in program_parts(jaxpr):\n",
        "        for part in [entry.core.name.encode()]:\n",
        (f"{_RECORD}a_record_is_of_one_program_and_its_options",),
    ),
    Mutation(
        "a choice is believed in whatever a file says",
        f"{_SOURCE}/choice_record.py",
        "    if not fits:\n",
        "    if not isinstance(threads, int):\n",
        (f"{_RECORD}what_cannot_be_believed_is_ignored",),
    ),
    Mutation(
        "the next process learns anew",
        f"{_SOURCE}/auto_calls.py",
        "or self._recall(calls, arrays)",
        "or None",
        (f"{_RECORD}the_next_process_starts_with_the_choice",),
    ),
    Mutation(
        "configure does not turn auto on",
        "src/jitney/_program/entry.py",
        "if self.options.auto and not",
        "if core.options.auto and not",
        (f"{_CALLS}configure_and_the_variable_turn_it_on",),
    ),
    Mutation(
        "exact takes what was equal at another size",
        f"{_SOURCE}/choice_record.py",
        "size if entry.options.auto == EXACT else bucket_of(size)",
        "bucket_of(size)",
        (f"{_CALLS}exact_says_nothing_of_another_size",),
    ),
    Mutation(
        "auto learns in a fork",
        f"{_SOURCE}/auto_calls.py",
        "if self._process != os.getpid():",
        "if self._process == 0:",
        (f"{_FORKS}a_fork_of_a_process_that_learns_does_not_learn",),
    ),
    Mutation(
        "auto does not see a mesh",
        f"{_SOURCE}/auto_calls.py",
        "return sharded is not None and sharded.has_mesh()",
        "return False",
        (f"{_CALLS}an_optional_mesh_comes_before_what_was_chosen",),
    ),
]
