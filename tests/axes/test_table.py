"""The table of operations in `docs/axes.md` is what the rules say."""

import pytest

from tests.axes import _table


@pytest.mark.rest
def test_the_page_has_the_table_that_the_rules_print():
    """After a rule is changed: `python -m tests.axes._table --write`."""
    text = _table.PAGE.read_text()
    assert _table.page_with(text, _table.table()) == text


@pytest.mark.rest
def test_every_operation_that_is_cut_or_refused_along_an_axis_is_tried_there():
    """Else a row would say of a rule what nobody has asked it."""
    about = _table.seen()
    unseen = {
        name
        for name in map(_table.shown, filter(_table.looks, _table.RULES))
        if not about[name].tried
    }
    assert unseen - set(map(_table.shown, _table.BY_VERSION)) <= {
        "scatter-sub",
        "unvmap_any",
        "unvmap_all",
        "unvmap_max",
        *INNER,
    }


INNER = {
    "geqp3",
    "geqrf",
    "lu_pivots_to_permutation",
    "ormqr",
    "select_and_gather_add",
    "select_and_scatter-add",
}
"""Parts of factorisations and of derivatives of windows, which JAX has no function for."""
