"""Verification of calls with rows: rows of new shapes are compared with the plain function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..._jax.trees import tree_unflatten
from ..._verify.verification import VerifiedRunner
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
