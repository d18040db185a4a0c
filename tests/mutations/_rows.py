"""Mistakes in the rows of unlike lengths."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_ROWS = "tests/program/rows/test_rows.py::test_"
_PADDED = "tests/program/rows/test_padded.py::test_"
_BOUNDS = "tests/program/rows/test_bounds.py::test_"
_SOURCE = "src/jitney/_program/rows"

MUTATIONS = [
    Mutation(
        "rows come back in the order of their buckets",
        f"{_SOURCE}/results.py",
        "        out[part.rows] = np.asarray(array)[: len(part.rows)]",
        (
            "        begin = sum(len(each.rows) for each in parts[: parts.index(part)])\n"
            "        out[begin : begin + len(part.rows)] = np.asarray(array)[: len(part.rows)]"
        ),
        (f"{_ROWS}results_are_those_of_each_row_in_the_callers_order",),
    ),
    Mutation(
        "all rows of a block have the size of its first",
        f"{_SOURCE}/lots.py",
        "        return {name: sizes[which] for name, sizes in self._sizes.items()}",
        (
            "        first = which[:1].repeat(len(which))\n"
            "        return {name: sizes[first] for name, sizes in self._sizes.items()}"
        ),
        (f"{_ROWS}results_are_those_of_each_row_in_the_callers_order",),
    ),
    Mutation(
        "effects of rows happen as often as a block has rows",
        f"{_SOURCE}/lots.py",
        "    if exactly:",
        "    if not count:",
        (f"{_ROWS}effects_of_a_row_happen_once", f"{_ROWS}rows_are_cut_into_parts"),
    ),
    Mutation(
        "rows that run at exact size have no axis in their results",
        f"{_SOURCE}/rows_alone.py",
        "            return [tuple(sorted({place.axis for place in cut})) for cut in cuts]",
        "            return [() for cut in cuts]",
        (f"{_ROWS}the_form_of_a_result_hangs_on_no_length",),
    ),
    Mutation(
        "what stands behind a row is part of it",
        f"{_SOURCE}/lengths.py",
        "rows = PaddedRows(column.values, {axis: sizes[axis] for axis in has})",
        (
            "rows = PaddedRows(column.values, {axis: sizes[axis] * 0 + column.values.shape[axis + 1]"
            " for axis in has})"
        ),
        (f"{_PADDED}lengths_of_a_call_say_how_long_rows_are",),
    ),
    Mutation(
        "padding of results is left as it is",
        f"{_SOURCE}/results.py",
        "    return np_.where(is_own, array, np_.zeros((), array.dtype))",
        "    return array",
        (f"{_PADDED}padded_results_are_one_array_and_lengths",),
    ),
    Mutation(
        "chosen buckets do not hold longer rows",
        "src/jitney/_signature/buckets.py",
        '        object.__setattr__(bucket, "is_open", True)',
        '        object.__setattr__(bucket, "is_open", False)',
        (f"{_BOUNDS}lengths_choose_the_buckets",),
    ),
    Mutation(
        "memory bounds no rows",
        f"{_SOURCE}/block_programs.py",
        "        if taken <= budget:",
        "        if taken <= budget or rung:",
        (
            f"{_BOUNDS}memory_bounds_the_rows_of_a_program",
            f"{_BOUNDS}a_row_that_takes_more_than_memory_is_an_error",
        ),
    ),
    Mutation(
        "a stack beside rows is not padded as they are",
        f"{_SOURCE}/blocks.py",
        "            if size != length",
        "            if size == -length",
        (f"{_BOUNDS}rows_of_one_length_are_cut_too",),
    ),
    Mutation(
        "rows of a part of a file begin where those of the file do",
        f"{_SOURCE}/ragged.py",
        "            starts - first,",
        "            starts - starts[:1] * 0,",
        ("tests/stream/test_rows.py::test_rows_of_a_file_are_read_in_parts",),
    ),
    Mutation(
        "of a body that sees sizes only the first row is looked at",
        f"{_SOURCE}/block_programs.py",
        "            self.groups.forget_members(group)\n            return None",
        "            pass",
        (f"{_ROWS}each_size_is_looked_at_where_python_may_have_seen_it",),
    ),
    Mutation(
        "rows that fill a block are summed too",
        f"{_SOURCE}/block_programs.py",
        "            own = (steps < count).reshape",
        "            own = (steps >= 0 * count).reshape",
        ("tests/stream/test_accumulate_rows.py::test_value_and_gradient_are_sums_over_rows",),
    ),
    Mutation(
        "the form of a result hangs on the program that ran before",
        f"{_SOURCE}/row_calls.py",
        "        if not self.core.options.pad or any(part.is_filled for part in parts):",
        "        if not self.core.options.pad or self.groups.groups:",
        ("tests/program/rows/test_results.py::test_the_form_of_a_result_hangs_on_no_call_before",),
    ),
    Mutation(
        "a file gives all rows of a block the size of its first",
        "src/jitney/_export/loading/loaded_rows.py",
        "    sizes = lot.sizes(at)",
        "    sizes = lot.sizes(at[:1].repeat(len(at)))",
        ("tests/export/test_rows.py::test_loaded_rows_give_what_the_function_gives",),
    ),
    Mutation(
        "a file gives a row the numbers of another size",
        "src/jitney/_export/loading/loaded_rows.py",
        "        values = next((values for sizes, values in numbers if sizes == own), None)",
        "        values = numbers[0][1]",
        (
            "tests/export/test_rows.py::test_rows_of_all_kinds_go_through_a_file",
            "tests/export/test_rows.py::test_numbers_of_a_size_that_the_file_lacks_are_a_sentence",
        ),
    ),
    Mutation(
        "products of 64 bits are truncated where rows are mapped",
        f"{_SOURCE}/block_programs.py",
        "        if wide:\n",
        "        if not wide and wide:\n",
        (
            "tests/program/rows/test_results.py::"
            "test_a_body_of_64_bits_in_a_program_of_32_is_refused",
        ),
    ),
]
