"""Mistakes where a mapped axis is split over threads, or cut as it is measured."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_CALLS = "tests/program/runners/test_worker_calls.py::test_"
_WIDTHS = "tests/program/runners/test_width_calls.py::test_"
_THREADS = "tests/program/runners/test_worker_threads.py::test_"
_CHUNKS = "tests/stages/test_mapped_chunks.py::test_"
_SOURCE = "src/jitney/_program/runners"

MUTATIONS = [
    Mutation(
        "the last part is written from its first row",
        f"{_SOURCE}/workers/parts.py",
        "np.asarray(part)[known:]",
        "np.asarray(part)[: self._division.width - known]",
        (f"{_CALLS}any_size_gives_the_rows_of_the_whole",),
    ),
    Mutation(
        "a part ends within a chunk",
        f"{_SOURCE}/workers/worker_calls.py",
        "width = -(-size // (count * step)) * step",
        "width = -(-size // count)",
        (f"{_CALLS}a_part_is_a_number_of_whole_chunks",),
    ),
    Mutation(
        "threads compute in 32 bits",
        f"{_SOURCE}/workers/worker_calls.py",
        "            with jax.enable_x64(x64):\n",
        "            with nullcontext():\n",
        (f"{_CALLS}numbers_of_64_bits_stay_so",),
    ),
    Mutation(
        "checks of the first part only are looked at",
        f"{_SOURCE}/workers/worker_calls.py",
        "min((number for number in failed if number), default=0)",
        "failed[0]",
        (f"{_CALLS}a_check_raises_wherever_it_fails",),
    ),
    Mutation(
        "threads run LAPACK on any number of numbers",
        f"{_SOURCE}/workers/worker_calls.py",
        "                or lapack_obstacle(traced.jaxpr)\n",
        "",
        (f"{_CALLS}lapack_on_many_numbers_is_refused",),
    ),
    Mutation(
        "a width that is quick on a sample is not tried on the call",
        f"{_SOURCE}/width_calls.py",
        "        if chunked > _GAIN * whole:\n",
        "        if not chunked:\n",
        (f"{_WIDTHS}the_whole_stays_if_the_call_itself_is_no_quicker",),
    ),
    Mutation(
        "the call that measures has the result of the whole",
        f"{_SOURCE}/width_calls.py",
        "        return self._run(best, arrays), WidthChoice(",
        "        return out, WidthChoice(",
        (f"{_WIDTHS}a_width_is_kept_from_the_first_call_on",),
    ),
    Mutation(
        "a call returns before its other threads are done",
        f"{_SOURCE}/workers/worker_threads.py",
        "            helper.result()",
        "            helper.running()",
        (f"{_THREADS}an_exception_of_another_thread_is_raised_with_its_traceback",),
    ),
    Mutation(
        "a chunk is mapped by a rule that sees all elements",
        "src/jitney/_axes/mapped_chunks.py",
        '    "custom_vmap_call",\n',
        "",
        (f"{_CHUNKS}what_may_know_of_other_elements_is_cut_by_the_rules_of_operations",),
    ),
    Mutation(
        "the last chunk gives its first elements",
        "src/jitney/_axes/mapped_chunks.py",
        "count * width - rest, count * width)",
        "(count - 1) * width, (count - 1) * width + rest)",
        (f"{_CHUNKS}results_keep_their_values_and_types",),
    ),
    Mutation(
        "parts of a kept program are not looked into",
        f"{_SOURCE}/workers/worker_calls.py",
        "if entry.kept is not None:",
        "if entry.kept is None:",
        (f"{_CALLS}a_kept_program_is_not_split_either",),
    ),
    Mutation(
        "workers divide what is computed of all elements",
        f"{_SOURCE}/workers/worker_calls.py",
        "joint_rules_obstacle(entry.joint_rules)",
        "None",
        (f"{_CALLS}a_rule_for_vmap_that_sees_all_elements_is_not_split",),
    ),
]
