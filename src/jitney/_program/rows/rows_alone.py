"""Rows of a call that run, or are traced, alone.

    verify_rows, verify_sums   rows of new shapes are compared with the plain function
    axes_near                  which results are lists, where all rows run at exact size

The second is the same for all lengths: it is read from a trace at the nearest sizes that are
padded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np

from ..._diagnosis.tracer_errors import trace_error
from ..._errors import AxisError, JitneyError, Where
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._verify.verification import VerifiedRunner
from ..._view.result_padding import Cut
from .group import Axes
from .lots import Lot
from .results import Part, gathered, totals, varying

if TYPE_CHECKING:
    from .row_calls import RowCall


def verify_rows(call: RowCall, parts: Sequence[Part]) -> None:
    """Compare rows with the plain function, each of new shapes.

    Raises:
        VerificationError: One differs.
    """
    varies = call.varying(parts)
    for part in parts:
        count = len(part.rows)
        leaves = gathered([replace(part, rows=np.arange(count))], varies, count)
        for place, row in enumerate(part.rows.tolist()):
            given = tuple(column.of(row) for column in call.columns)
            ours = tree_unflatten(part.treedef, [leaf[place] for leaf in leaves])
            run = _runner(
                call,
                given,
                ours,
            )
            VerifiedRunner(call.entry, run, None, lambda: None)(*given)


def verify_sums(call: RowCall, lots: Sequence[Lot]) -> None:
    """Compare rows with the plain function where only their sum is known: one of each shape, by the
    sum over that row.

    Raises:
        VerificationError: One differs.
    """
    for lot in lots:
        places = np.unique(lot.member_of, return_index=True)[1]
        for row in lot.rows[places].tolist():
            given = tuple(column.of(row) for column in call.columns)
            VerifiedRunner(call.entry, _runner(call), None, lambda: None)(*given)


def _runner(
    call: RowCall,
    given: tuple[object, ...] | None = None,
    ours: object = None,
) -> Callable[..., object]:
    """Runner of single rows, which has the result of one if that is given."""

    def run(*arrays: object) -> object:
        if given and all(a is b for a, b in zip(arrays, given, strict=True)):
            return ours
        parts, _ = call.alone(arrays).computed()
        if call.core.options.accumulate:
            return tree_unflatten(*totals(call.core.where, parts))
        leaves = gathered(
            parts,
            varying(parts),
            1,
        )
        return tree_unflatten(parts[0].treedef, [leaf[0] for leaf in leaves])

    return run


def axes_near(call: RowCall, row: int) -> list[Axes]:
    """Return the padded axes of each array of the result of a row that runs at exact size, as they
    are at the nearest sizes which are padded.

    Raises:
        AxisError: The function has no program there.
    """
    known = call.groups.axes_near
    sizes, arrays = call.groups.nearest(call.columns, row)
    key = tuple(sizes.items())
    if key not in known:
        near = call.alone(arrays)
        try:
            known[key] = _axes(near)
        except JitneyError:
            raise
        except Exception as error:
            explained = trace_error(
                error,
                call.core.where,
                call.paths,
                near.arrays,
            )
            raise explained or _unknown(call.core.where, sizes, error) from error
    return known[key]


def _axes(call: RowCall) -> list[Axes]:
    """The padded axes of each array of the result of the only row, by a trace."""
    while True:
        (lot,) = call.lots()
        cuts = _traced_cuts(call, lot)
        if cuts is not None:
            return [tuple(sorted({place.axis for place in cut})) for cut in cuts]


def _traced_cuts(call: RowCall, lot: Lot) -> Sequence[Cut] | None:
    """Cuts of the results; None if the trace has found out more of the group."""
    entry, recipe = call.entry, lot.group.recipe
    arrays = [column.abstract(0) for column in call.columns]
    if recipe is None:
        out = jax.eval_shape(entry.jitted, *arrays)
        return [()] * len(tree_flatten(out)[0])
    if recipe.key not in entry.cuts:
        with call.programs.learning(lot.present[0].sizes, lot.group):
            entry.lower((*recipe.abstract(arrays), recipe.counts.abstract()), "trace")
            return entry.cuts[recipe.key]
        return None
    return entry.cuts[recipe.key]


def _unknown(
    where: Where,
    sizes: Mapping[str, int],
    error: Exception,
) -> AxisError:
    at = " and ".join(f"{name}={size}" for name, size in sizes.items())
    return AxisError(
        where,
        f"all rows run at exact size, and at {at} it raises {type(error).__name__}: {error}.",
        "Which results are lists is the same for all lengths: it is read from a trace at the"
        " nearest sizes that are padded.",
        "call the function row by row: [f(row) for row in rows].",
    )
