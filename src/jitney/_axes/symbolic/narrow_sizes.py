"""Sizes in integer types that do not hold them all.

JAX counts from the end by `index + n`. Where index and size are numbers, it does so with Python's
integers; where the size is a symbol, in the type of the index, which wraps:

    x[np.int8(-1)]    size 200    a slice that begins at 199
                      size n      dynamic_slice at -1 + convert_element_type n -> int8, which is -57

A size that fits says nothing of those that do not: the witness has to see these too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..._jax.programs.jaxprs import open_jaxpr, programs
from ..._jax.typed import AnyJaxpr, JaxprEqn, Literal, Var
from ..dims import Dim, extent, is_ragged
from ..interpreter import Ranges
from ..refusal import Refused
from ..typed_jax import dtypes
from .graph import source_of
from .range_ends import range_ends


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
