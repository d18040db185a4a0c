"""Rows in groups by a table of lengths: as by a dict of sizes."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jitney._diagnosis.counters import counters
from jitney._program.rows import group, known_sizes, lots
from jitney._program.rows.columns import Column

ODD, EVEN = (group.RowGroup(name, None, ()) for name in ("odd", "even"))


def member(sizes, _row=0):
    length = sizes[0]
    return group.Member(ODD if length % 2 else EVEN, {"n": length}, [np.array(3 * length)])


def in_words(found):
    """All that is asked of lots."""
    every = [np.arange(len(lot.rows)) for lot in found]
    return [
        (
            lot.group.key,
            lot.rows.tolist(),
            lot.sizes(at)["n"].tolist(),
            lot.numbers(at)[0].tolist(),
            [each.sizes for each in lot.present],
            [array.tolist() for array in lot.times()["n"]],
        )
        for lot, at in zip(found, every, strict=True)
    ]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.lists(st.integers(0, 45), max_size=60),
)
@example([3, 4, 4, 8], [9, 2])
@example([3, 4, 1 << 16], [1 << 20, 5])
@example([3, 3], [4])
def test_a_table_gives_what_the_dict_gives(lengths, others):
    """With more sizes known than the call has, and rows of two axes beside those of one."""
    known = {(n, 3, n): member((n,)) for n in {*lengths, *others}}
    known[7, 5, 7] = known[8, 3, 9] = member((1,))
    own = np.array(lengths)
    rows, dims = np.arange(10, 10 + len(own)), [own, np.full(len(own), 3), own.copy()]
    whole = np.arange(10 + len(own))
    pairs = [np.zeros((lengths[max(0, i - 10)], 3), np.int8) for i in whole]
    flat = [np.zeros(lengths[max(0, i - 10)], np.int8) for i in whole]
    columns = [Column("each", pairs), Column("each", flat)]
    want = lots.lots_of(columns, rows, lambda: known, member)
    found = known_sizes.SizeTables().lots(dims, rows, "fixed", known)
    if found is None:
        alike = len(set(lengths)) == 1 or max(lengths) >= known_sizes._LONGEST
        assert alike or len(known) > known_sizes._SPARSE * len(rows)
    else:
        assert in_words(found) == in_words(want)


def test_a_table_is_of_the_sizes_that_are_known():
    """It does not know others, finds those that are learned, and forgets what is forgotten."""
    tables, known = known_sizes.SizeTables(), {(n,): member((n,)) for n in (3, 4, 5)}
    rows = np.arange(3)

    def find(*lengths, among=known):
        return tables.lots([np.array(lengths)], rows, "fixed", among)

    assert [lot.rows.tolist() for lot in find(3, 4, 5)] == [[0, 2], [1]]
    assert find(3, 4, 6) is find(3, 4, 2) is None
    known[6,] = member((6,))
    assert [lot.group.key for lot in find(3, 4, 6)] == ["odd", "even"]
    again = {(n,): group.Member(EVEN, {"n": n}) for n in (3, 4, 5, 6)}
    assert [lot.group.key for lot in find(3, 4, 6, among=again)] == ["even"]
    assert tables.lots([np.array([3, 4, 5]), np.array([1, 2, 1])], rows, "fixed", known) is None
    assert tables.lots([], rows, "fixed", known) is None


@pytest.mark.parametrize("calls", [1, 2 * counters._PARTS + 3])
def test_counts_of_rows_are_added_up(calls):
    counted = counters.Counters("f")
    for _ in range(calls):
        counted.count_rows("n", np.array([3, 5, 3]), np.array([1, 2, 10]), 40)
    assert counted.sizes == {"n": {3: 11 * calls, 5: 2 * calls}}
    twice = counters.total([counted, counted])
    assert twice.sizes == {"n": {3: 22 * calls, 5: 4 * calls}}
    assert twice.padding["n"] == pytest.approx(40 / 43 - 1)
