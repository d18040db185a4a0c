"""Side effects of tracing, as data: for a padded program, which axes of its results are cut off.

Any other side effect of the trace of a padded call makes its program ineligible for the cache: a
refusal, a warning, or a number that Python computes from the size, for which each new size is
traced.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .._body.call_key import padded_key
from .._jax.typed import Array
from .._record.unsure import NotDeterministic
from .._view.layout import aval_parts
from .._view.result_padding import Cut, PaddedDim
from .._view.true_sizes import Proof, TrueSizes

Cuts = dict[Hashable, list[Cut]]
Proofs = dict[Hashable, Proof]


def program_key(arrays: Sequence[Array], counts: TrueSizes) -> Hashable:
    """Return the key of a padded program in `Specialization.cuts`."""
    # Filled arrays are strongly typed; the key has the weak types from before.
    leaves = [
        (*aval_parts(array)[:2], aval_parts(array)[2] or was)
        for array, was in zip(arrays, counts.weak, strict=True)
    ]
    return padded_key(leaves, counts.turn)


def serialise_cuts(cuts: Sequence[Cut]) -> list[object]:
    """Return cuts as plain data."""
    return [[_serialise_dim(dim) for dim in cut] for cut in cuts]


def _serialise_dim(dim: PaddedDim) -> list[object]:
    return [dim.axis, dim.names, None if dim.dim is None else str(dim.dim)]


def read(data: Sequence[Any]) -> list[Cut]:
    """Return the cuts from plain data."""
    return [tuple(PaddedDim(*dim) for dim in cut) for cut in data]


def check_single_trace(proof: Proof | None) -> None:
    """Check that a padded program takes nothing but arrays and their true sizes.

    Raises:
        NotDeterministic: Each new size is traced.
    """
    if proof is not None:
        raise NotDeterministic(f"each new size is traced, for {proof.program.each}")
