"""Sizes that part the range of a symbol: where a comparison becomes decided, and what an integer
type holds.

`pos[:n]` has n rows only up to the length of `pos`. With 12 of them and n from 9 to 16 JAX cannot
tell, and does not add it to n rows; from 9 to 12 it can. So a range would have to end there, for a
comparison that stopped a symbolic trace to be decided.

JAX counts from the end by `index + n`. Where index and size are numbers, it does so with Python's
integers; where the size is a symbol, in the type of the index, which wraps:

    x[np.int8(-1)]    size 200    a slice that begins at 199
                      size n      dynamic_slice at -1 + convert_element_type n -> int8, which is -57

A size that fits says nothing of those that do not: the witness has to see these too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..._jax.programs.jaxprs import open_jaxpr, programs
from ..._jax.typed import AnyJaxpr, JaxprEqn, Literal, Var
from ..dims import Dim, extent, is_ragged
from ..interpreter import Ranges
from ..refusal import Refused
from ..typed_jax import dtypes
from ..witness.graph import source_of

_MOST = 1 << 20


def range_ends(undecided: Sequence[Dim], ranges: Ranges) -> dict[str, list[int]]:
    """Symbol -> the sizes behind which a difference becomes negative, or is so no more.

    Args:
        undecided: Differences whose sign was asked for.
        ranges: Symbol -> the least and the largest size it stands for.
    """
    ends: dict[str, list[int]] = {}
    for difference in undecided:
        symbols = extent(difference).symbols if is_ragged(difference) else frozenset[str]()
        # With two symbols it depends on the size of each where the sign changes.
        if len(symbols) != 1:
            continue
        (symbol,) = symbols
        low, high = ranges[symbol]
        if high - low > _MOST:
            continue
        sizes = np.arange(low, high + 1)
        try:
            negative = np.asarray(extent(difference).at({symbol: sizes})) < 0
        # A form that jitney does not know.
        except Refused:
            continue
        changes = np.flatnonzero(negative[1:] != negative[:-1])
        # A sign that comes and goes, as of a remainder, would leave ranges of a few sizes.
        if len(changes) == 1:
            ends.setdefault(symbol, []).append(low + int(changes[0]))
    return ends


@dataclass(frozen=True)
class NarrowSize:
    """A size in an integer type that does not hold all of its range.

    Args:
        eqn: The conversion to that type.
        dim: The size.
        ends: Symbol -> the last sizes that fit.
    """

    eqn: JaxprEqn
    dim: Dim
    ends: dict[str, list[int]]

    @property
    def refusal(self) -> Refused:
        """The refusal of the sizes that do not fit."""
        dtype = np.dtype(self.eqn.params["new_dtype"])
        what = f"counts positions in {dtype}, which does not hold all sizes {self.dim}"
        return Refused(source_of(self.eqn), what, self.ends)

    def outside(self, ranges: Ranges) -> list[dict[str, int]]:
        """The first and the last sizes that do not fit; a symbol that no size is known of is at its
        largest.
        """
        largest = {symbol: high for symbol, (_, high) in ranges.items()}
        first = {symbol: min(ends) + 1 for symbol, ends in self.ends.items() if ends}
        return [largest, {**largest, **first}] if first else [largest]


def narrow_sizes(jaxpr: AnyJaxpr, ranges: Ranges) -> Iterator[NarrowSize]:
    """Yield the conversions of sizes to integer types that do not hold them all."""
    program, _ = open_jaxpr(jaxpr)
    sizes: dict[Var, Dim] = {}
    for eqn in program.eqns:
        if eqn.primitive.name == "dim_as_value":
            sizes[eqn.outvars[0]] = eqn.params["dim"]
        elif eqn.primitive.name == "convert_element_type":
            (operand,) = eqn.invars
            dim = None if isinstance(operand, Literal) else sizes.get(operand)
            if dim is not None:
                sizes[eqn.outvars[0]] = dim
                if not _holds(eqn, dim, ranges):
                    most = int(dtypes.iinfo(eqn.params["new_dtype"]).max)
                    yield NarrowSize(eqn, dim, range_ends([most - dim], ranges))
        for inner in programs(eqn.params):
            yield from narrow_sizes(inner, ranges)


def _holds(
    eqn: JaxprEqn,
    dim: Dim,
    ranges: Ranges,
) -> bool:
    dtype = eqn.params["new_dtype"]
    if not is_ragged(dim) or not dtypes.issubdtype(dtype, np.integer):
        return True
    limits = dtypes.iinfo(dtype)
    corners = [{name: bounds[end] for name, bounds in ranges.items()} for end in (0, 1)]
    values = [int(extent(dim).at(corner)) for corner in corners]
    return limits.min <= min(values) and max(values) <= limits.max
