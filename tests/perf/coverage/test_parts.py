"""Rows of the scoreboard that are tried in processes of their own come whole and in their order."""

import sys

import pytest

from tests.perf.coverage import _parts
from tests.perf.coverage._model import Model
from tests.perf.coverage.models import ALL


def row(name, *, axes=1, ways=("pad", "chunk")):
    return Model(name, len, dict, dict.fromkeys("abcdef"[:axes], 3), "p", ways=ways)


def names(parts):
    return [[model.name for model in part] for part in parts]


@pytest.mark.rest
def test_a_process_tries_at_most_24_cells():
    """Four cells along an axis by two ways: six rows; a row that has more is alone."""
    rows = [row(str(i)) for i in range(7)] + [row("large", axes=6, ways=("pad", "stream"))]
    assert names(_parts.split([*rows, row("last")])) == [[*"012345"], ["6"], ["large"], ["last"]]


def test_the_parts_are_the_rows():
    """Each once, in the order of the tables."""
    assert [model for part in _parts.split(ALL) for model in part] == list(ALL)


def test_what_ends_early_is_told_behind_its_cells(monkeypatch):
    """A process that is killed leaves the cells that came, and the rows are named."""
    cell = '{"model": "a", "group": "models", "axis": "n", "way": "pad", "of": "value", "outcome": "exact"}'
    code = f"import os; print({cell!r}, flush=True); os.abort()"
    monkeypatch.setattr(_parts, "_command", lambda *_, **__: [sys.executable, "-c", code])
    cells = _parts.tried([row("a"), row("b")], is_wide=False)
    assert next(cells).outcome == "exact"
    with pytest.raises(_parts.Ended, match=r"ended with -6: \['a', 'b'\]"):
        next(cells)


@pytest.mark.rest
def test_a_process_tries_the_rows_that_it_is_given():
    """In their order, by the ways that they have."""
    rows = [model for model in ALL if model.name in ("Python, halves", "optax.losses.l2_loss")]
    cells = list(_parts.tried(rows, is_wide=True))
    assert {cell.bits for cell in cells} == {64}
    assert [cell.model for cell in cells] == [rows[0].name] * 4 + [rows[1].name] * 2
    assert all(cell.outcome == "exact" for cell in cells)
