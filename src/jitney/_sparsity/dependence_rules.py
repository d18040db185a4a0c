"""Transfer function of each primitive: the sparsity patterns of its results from those of its
operands.

Only linear primitives need a rule, since the jaxpr that is followed is that of a derivative:
products of the Jacobian with directions. A primitive without a rule lets every element of its
results depend on all that any operand depends on, which is always sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import indexing, moves
from . import product_rules as products
from .operation import Rule, SparsityOp


def _last(op: SparsityOp, rank: int) -> Sequence[int]:
    return [op.params["axis"] % rank]


_ELEMENTWISE = (
    "add add_any sub neg div convert_element_type copy copy_p real imag conj complex"
    " reduce_precision stop_gradient"
)
_RESHAPES = ("reshape", "squeeze", "expand_dims")
_SCATTERS = ("scatter", "scatter-add", "scatter_add")
_LINEAR_ALGEBRA = "triangular_solve cholesky lu eigh svd qr householder_product tridiagonal_solve"

# A rule sees primitives with at least one operand that varies.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), moves.elementwise),
    "mul": moves.scale,
    "select_n": moves.select,
    "broadcast_in_dim": moves.rearrange(moves.broadcast),
    "slice": moves.rearrange(moves.slice_axes),
    **dict.fromkeys(_RESHAPES, moves.rearrange(moves.reshape)),
    "transpose": moves.rearrange(moves.transpose),
    "rev": moves.rearrange(moves.reverse),
    "concatenate": moves.concatenate,
    "stack": moves.stack,
    "split": moves.split,
    "unstack": moves.unstack,
    "pad": moves.pad,
    "reduce_sum": moves.sum_axes,
    "cumsum": moves.mixing_rule(_last),
    "dot_general": products.product,
    "conv_general_dilated": products.convolution,
    "gather": indexing.gather,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    **dict.fromkeys(_SCATTERS, indexing.scatter),
    **dict.fromkeys(_LINEAR_ALGEBRA.split(), products.linear_algebra),
}

READ: Mapping[str, slice] = {
    **dict.fromkeys(("mul", "dot_general"), slice(0, 2)),
    "select_n": slice(0, 1),
    "dynamic_slice": slice(1, None),
    "dynamic_update_slice": slice(2, None),
    **dict.fromkeys(("gather", *_SCATTERS), slice(1, 2)),
}
"""Operands whose values a rule reads, where they are known."""

POSITIONS: Mapping[str, slice] = {
    name: READ[name] for name in ("dynamic_slice", "dynamic_update_slice", "gather", *_SCATTERS)
}
"""Operands that hold the positions at which a primitive reads or writes."""
