"""Rows in the buffers of Arrow and Awkward: nothing is copied. References: calls of each row."""

import numpy as np
import pytest
from jaxtyping import Array, Num

import jitney
from jitney import optimize

ROWS = [np.arange(7 * n, 8 * n, dtype=np.float32) for n in (3, 0, 1, 17, 5)]


@optimize(vmap="row", pad={"n": "pow2"})
def weighed(x: Num[Array, "n"]):
    return (x * x.shape[0]).sum(), x.cumsum()


def demand_equal(given, rows):
    sums, running = weighed(given)
    np.testing.assert_allclose(sums, [row.sum() * len(row) for row in rows], rtol=1e-6)
    for own, row in zip(running, rows, strict=True):
        np.testing.assert_allclose(own, row.cumsum(), rtol=1e-6)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("kind", ["list_", "large_list"])
def test_rows_of_arrow_share_its_buffers(kind):
    arrow = pytest.importorskip("pyarrow")
    lists = arrow.array([row.tolist() for row in ROWS], getattr(arrow, kind)(arrow.float32()))
    # The offsets of a part do not begin at 0, and its values are those of the whole.
    for part, rows in ((lists, ROWS), (lists[1:4], ROWS[1:4])):
        given = jitney.ragged(part.values.to_numpy(), part.offsets.to_numpy())
        assert address(given.values) == lists.values.buffers()[1].address
        demand_equal(given, rows)


def test_chunks_of_arrow_are_combined_first():
    arrow = pytest.importorskip("pyarrow")
    lists = arrow.array([row.tolist() for row in ROWS], arrow.list_(arrow.float32()))
    whole = arrow.chunked_array([lists[2:], lists[:2]]).combine_chunks()
    rows = [*ROWS[2:], *ROWS[:2]]
    demand_equal(jitney.ragged(whole.values.to_numpy(), whole.offsets.to_numpy()), rows)


def test_rows_of_awkward_share_its_buffers():
    awkward = pytest.importorskip("awkward")
    whole = awkward.values_astype(awkward.from_iter([row.tolist() for row in ROWS]), "float32")
    for part, rows in ((whole, ROWS), (whole[1:4], ROWS[1:4])):
        own = part.layout
        given = jitney.ragged(own.content.data, own.offsets.data)
        assert address(given.values) == address(whole.layout.content.data)
        demand_equal(given, rows)


def test_rows_of_awkward_in_another_order_are_packed_first():
    awkward = pytest.importorskip("awkward")
    whole = awkward.values_astype(awkward.from_iter([row.tolist() for row in ROWS]), "float32")
    own = awkward.to_packed(whole[[3, 1, 0]]).layout
    demand_equal(jitney.ragged(own.content.data, own.offsets.data), [ROWS[i] for i in (3, 1, 0)])
