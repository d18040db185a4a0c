"""What a trace leaves beside its program, as data: of a padded one, which axes of its results are
cut off.

All else that a trace of a padded call does outside of its program, it does where the program is not
kept: it refuses, it warns, or it finds that Python makes numbers of the size, for which each new
size is traced.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .._body.call_key import padded_key
from .._record.unsure import Unsure
from .._view.cuts import Cut, Cutting
from .._view.layout import described
from .._view.true_sizes import Counts, Proof

Cuts = dict[Hashable, list[Cut]]
Proofs = dict[Hashable, Proof]


def program_key(arrays: Sequence[Any], counts: Counts) -> Hashable:
    """By which the cuts of a padded program are found."""
    leaves = [
        (*described(array)[:2], described(array)[2] or was)
        for array, was in zip(arrays, counts.weak, strict=True)
    ]
    return padded_key(leaves)


def written(cuts: Sequence[Cut]) -> list[Any]:
    """Cuts as plain data."""
    return [
        [[place.axis, place.names, None if place.dim is None else str(place.dim)] for place in cut]
        for cut in cuts
    ]


def read(said: Sequence[Any]) -> list[Cut]:
    """What was written."""
    return [tuple(Cutting(axis, names, dim) for axis, names, dim in cut) for cut in said]


def demand_one_for_all(proof: Proof | None) -> None:
    """Check that a padded program takes nothing but arrays and their true sizes.

    Raises:
        Unsure: Each new size is traced.
    """
    if proof is not None:
        raise Unsure(f"each new size is traced, for {proof.program.each}")
