"""Names of JAX's primitives by family, for several parts of jitney.

A rule that only one part needs stands in that part with its reason, as a difference to one of these
families where possible. Names from all versions from jax 0.10.2 to 0.12.0.1 are listed together.
"""

from __future__ import annotations

from typing import Final

_WRITTEN: Final = {
    "scan": "jax.lax.scan",
    "while": "jax.lax.while_loop",
    "cond": "jax.lax.cond",
    "number_of_size": "NumPy",
}


def public_name(name: str) -> str:
    """Return the public spelling of a primitive for messages, where its name is a Python keyword or
    ambiguous.
    """
    return _WRITTEN.get(name, name)


_ARITHMETIC = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh cbrt ceil clamp complex conj"
    " convert_element_type copy cos cosh digamma div erf erf_inv erfc exp exp2 expm1 floor imag"
    " integer_pow lgamma log log1p log2 logistic max min mul neg nextafter pow real rem round rsqrt"
    " sign sin sinh sqrt square stop_gradient sub tan tanh"
)
ARITHMETIC: Final = frozenset(_ARITHMETIC.split())
"""Elementwise arithmetic, one step per element: equal to the bit in arrays of any shape. A NaN in
the result comes from that step or from the operands' elements.
"""

LOGIC: Final = frozenset(
    ("and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "select_n", "xor")
)
"""Elementwise comparisons, logic and selection, without rounding."""

PRODUCTS: Final = ("dot_general", "conv_general_dilated", "ragged_dot_general")
"""Sums of products of two arrays, computed by a library or by the matrix units of a device."""

REARRANGED: Final = frozenset(
    (
        "broadcast_in_dim",
        "concatenate",
        "expand_dims",
        "reshape",
        "rev",
        "slice",
        "squeeze",
        "transpose",
    )
)
"""Rearrangements: each element of the result is an element of an operand, at a position that
follows from the shapes alone.
"""

_UNROUNDED = (
    "abs argmax argmin ceil clamp copy cummax cummin dynamic_slice dynamic_update_slice floor"
    " gather iota max min neg pad reduce_max reduce_min round select_n sign sort"
)
UNROUNDED: Final = REARRANGED | frozenset(_UNROUNDED.split())
"""Exact primitives: each element of the result is an element of an operand, at any position, or a
whole number, or one of these with its sign changed.
"""

_FACTORISATIONS = (
    "cholesky cholesky_update eig eigh geqp3 geqrf hessenberg householder_product lu ormqr qr"
    " schur svd"
)
FACTORISATIONS: Final = frozenset(_FACTORISATIONS.split())
"""Matrix factorisations, and primitives that assemble matrices from their results."""

PLAIN_CALLS: Final = ("jit", "pjit")
"""Calls that only mark a jaxpr as compiled on its own."""

REMATS: Final = ("remat2", "checkpoint")
"""Calls whose results are recomputed in the backward pass."""

# Primitive -> the parameter that holds its jaxpr, in jax 0.10.2 and 0.12.0.1. `eval_jaxpr` is
# `closed_call` since jax 0.12.
CALLS: Final = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    **dict.fromkeys(REMATS, "jaxpr"),
}

CALLBACKS: Final = ("debug_callback", "debug_print", "io_callback")
"""Callbacks with effects. A `pure_callback` is not among them: JAX drops an unused one as dead
code.
"""

HOLDERS: Final = (*CALLS, "cond", "while", "scan", "custom_linear_solve")
"""Primitives that run their sub-jaxprs on whole arrays; `shard_map` is not among them, since its
sub-jaxpr sees shards.
"""
