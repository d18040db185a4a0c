"""Each body of `tests/axes/_cases.py` over rows of unlike lengths: what it gives row by row."""

import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest

import jitney
from jitney._program.rows import blocks, lots
from jitney.errors import AxisError
from tests.axes import _cases as cases
from tests.axes.test_verified import annotated

SIZES = (5, 8, 3, 5, 12, 7)
"""Two rows of one length, a full bucket, and buckets with one row."""
BEHIND = {"f": np.nan, "c": np.nan, "i": 100, "u": 100}
FEW = {
    "cumulative sum": pytest.mark.core,
    "moving sum": pytest.mark.core,
    "relu": pytest.mark.rest,
    "largest": pytest.mark.rest,
    "scan": pytest.mark.rest,
}
"""All others are a sweep."""


@pytest.fixture(autouse=True)
def garbage(monkeypatch):
    """What no program looks at is no number, or a large one."""

    def blank(out):
        out[...] = np.array(BEHIND.get(out.dtype.kind, 1), out.dtype)

    monkeypatch.setattr(blocks, "blank", blank)
    # Two rows in a block, so that their lengths differ within one.
    monkeypatch.setattr(lots, "RUNGS", (2, 1))


def rows_of(case, sizes, seed=0):
    """Arguments of each row."""
    draw = np.random.default_rng(seed)
    return [
        [
            np.asarray(
                draw.integers(0, min(n, 3), aval.shape)
                if aval.dtype.kind in "iu"
                else draw.normal(size=aval.shape) * 2,
                aval.dtype,
            )
            for aval in case.avals(n)
        ]
        for n in sizes
    ]


def agree(case, sizes):
    """Hold the rows of a call to calls of `jax.jit` at each size."""
    rows = rows_of(case, sizes)
    body = annotated(replace(case, fn=lambda *arrays: tuple(case.flat(*arrays))))
    varies = [any(part == "n" or callable(part) for part in shape) for shape, _ in case.takes]
    given = [[row[i] for row in rows] if varied else rows[0][i] for i, varied in enumerate(varies)]
    mapped = {f"a{i}": 0 for i, varied in enumerate(varies) if varied}
    f = jitney.optimize(vmap={"row": mapped}, pad={"n": "pow2"})(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.JitneyWarning)
        try:
            out = f(*given)
        except AxisError:
            refuses(case, body, rows[0])
            return
    plain = jax.jit(case.fn)
    for at in range(len(sizes)):
        arrays = [column[at] if v else column for column, v in zip(given, varies, strict=True)]
        for got, want in zip(out, jax.tree.leaves(plain(*arrays)), strict=True):
            assert (got[at].shape, got[at].dtype) == (want.shape, want.dtype)
            tolerance = 3 * case.tolerance
            np.testing.assert_allclose(
                got[at], want, rtol=tolerance, atol=tolerance, err_msg=f"row {at}, {sizes[at]}"
            )


def refuses(case, body, row):
    """`pad` refuses it too, for one row."""
    with pytest.warns(jitney.JitneyWarning, match="cannot be padded"):
        jitney.optimize(pad={"n": "pow2"})(body)(*row)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=FEW.get(case.name, pytest.mark.sweep))
        for case in cases.CASES
        if all("n" in shape or not any(map(callable, shape)) for shape, _ in case.takes)
    ],
)
def test_rows_are_what_each_gives_alone(case):
    agree(case, tuple(max(n, case.least) for n in SIZES))
