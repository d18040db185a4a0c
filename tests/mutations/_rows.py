"""Mistakes in the rows of unlike lengths."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_ROWS = "tests/program/rows/test_rows.py::test_"
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
        f"{_SOURCE}/groups.py",
        "        return {name: sizes[which] for name, sizes in self._sizes.items()}",
        (
            "        first = which[:1].repeat(len(which))\n"
            "        return {name: sizes[first] for name, sizes in self._sizes.items()}"
        ),
        (f"{_ROWS}results_are_those_of_each_row_in_the_callers_order",),
    ),
    Mutation(
        "effects of rows happen as often as a block has rows",
        f"{_SOURCE}/groups.py",
        "    spare = 0 if exactly else count // _SPARE",
        "    spare = count",
        (f"{_ROWS}effects_of_a_row_happen_once", f"{_ROWS}rows_are_cut_into_parts"),
    ),
    Mutation(
        "rows that run at exact size have no axis in their results",
        f"{_SOURCE}/groups.py",
        "            self._varying = [bool(cut) for cut in self._smallest(columns)]",
        "            self._varying = [False for cut in self._smallest(columns)]",
        (f"{_ROWS}the_form_of_a_result_hangs_on_no_length",),
    ),
]
