"""Names of JAX's operations that several parts of jitney have to know alike.

What only one part says of an operation stands there, beside the reason, said as a difference to one
of these families where there is one. Names of all versions from jax 0.10.2 to 0.12.0.1 stand
together.
"""

from __future__ import annotations

from typing import Final

_WRITTEN: Final = {"scan": "jax.lax.scan", "while": "jax.lax.while_loop", "cond": "jax.lax.cond"}


def spelled(name: str) -> str:
    """An operation as people write it, for messages: those whose name alone is a word of Python's
    or of the trade.
    """
    return _WRITTEN.get(name, name)


_ARITHMETIC = (
    "abs acos acosh add add_any asin asinh atan atan2 atanh cbrt ceil clamp complex conj"
    " convert_element_type copy cos cosh digamma div erf erf_inv erfc exp exp2 expm1 floor imag"
    " integer_pow lgamma log log1p log2 logistic max min mul neg nextafter pow real rem round rsqrt"
    " sign sin sinh sqrt square stop_gradient sub tan tanh"
)
ARITHMETIC: Final = frozenset(_ARITHMETIC.split())
"""Each element of the result is made of the elements at its place, in one step of arithmetic: the
same to the bit in arrays of any shape, and a NaN in it is of that step or of these elements.
"""

LOGIC: Final = frozenset(
    ("and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "select_n", "xor")
)
"""Each element of the result compares, combines or chooses the elements at its place: nothing is
rounded.
"""

PRODUCTS: Final = ("dot_general", "conv_general_dilated", "ragged_dot_general")
"""Sums of products of two arrays, which a library or the matrix units of a device compute."""

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
"""Each element of the result is one of an operand, at a place that the shapes alone say."""

_UNROUNDED = (
    "abs argmax argmin ceil clamp copy cummax cummin dynamic_slice dynamic_update_slice floor"
    " gather iota max min neg pad reduce_max reduce_min round select_n sign sort"
)
UNROUNDED: Final = REARRANGED | frozenset(_UNROUNDED.split())
"""What comes out is exact: an element of an operand, at whatever place, or a whole number, or one
of these with its sign changed.
"""

_FACTORISATIONS = (
    "cholesky cholesky_update eig eigh geqp3 geqrf hessenberg householder_product lu ormqr qr"
    " schur svd"
)
FACTORISATIONS: Final = frozenset(_FACTORISATIONS.split())
"""Factorisations of matrices, and what makes whole matrices of what they give."""

PLAIN_CALLS: Final = ("jit", "pjit")
"""Calls that say no more than that their program is compiled by itself."""

REMATS: Final = ("remat2", "checkpoint")
"""Calls whose results are computed again in a derivative."""

CALLS: Final = {  # primitive -> the parameter that holds its program, in jax 0.10.2 and 0.12.0.1
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # the same since jax 0.12
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    **dict.fromkeys(REMATS, "jaxpr"),
}

CALLBACKS: Final = ("debug_callback", "debug_print", "io_callback")
"""Operations that are there for what they do; a `pure_callback` that nobody reads is dropped by JAX
too.
"""

HOLDERS: Final = (*CALLS, "cond", "while", "scan", "custom_linear_solve")
"""Operations that run the programs they hold, on arrays as they are: not `shard_map`, in which
these are parts.
"""
