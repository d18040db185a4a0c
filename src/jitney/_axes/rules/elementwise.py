"""Operations that treat each element alone: what is valid in is valid out, at the same place."""

from __future__ import annotations

from ..rule import POINTWISE, Rule

_ARITHMETIC = (
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil clamp clz complex "
    "conj convert_element_type copy copy_p cos cosh device_put digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma "
    "igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul ne neg nextafter not "
    "optimization_barrier or polygamma polynomial population_count pow real reduce_precision regularized_incomplete_beta rem round rsqrt "
    "select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh "
    "xor zeta mulhi one_minus_square random_gamma_grad threefry2x32 random_fold_in random_wrap random_unwrap random_clone random_seed"
)

RULES: dict[str, Rule] = dict.fromkeys(_ARITHMETIC.split(), POINTWISE)
