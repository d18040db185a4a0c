"""The form of results where all rows run at exact size: read from a trace at the nearest sizes that
are padded, so that it hangs on no length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax

from ..._diagnosis.tracer_errors import trace_error
from ..._errors import AxisError, JitneyError, Where
from ..._jax.trees import tree_flatten
from ..._view.result_padding import Cut
from .group import Axes
from .lots import Lot

if TYPE_CHECKING:
    from .row_calls import RowCall


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
        with call.learning(lot.present[0].sizes, lot.group):
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
