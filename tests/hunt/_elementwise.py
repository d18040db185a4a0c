"""Operations that treat each element alone. Their results are equal to the bit, padded or not."""

from ._recipe import each, lines

_BITS = "bits"
RECIPES = [
    *each(
        "jnp._({x})",
        "abs absolute conj conjugate negative positive real imag sign square reciprocal nan_to_num"
        " copy array asarray",
        "num",
        _BITS,
    ),
    *each(
        "jnp._({x})",
        "isnan isfinite isinf isneginf isposinf signbit ceil floor trunc rint fabs around round",
        "real",
        _BITS,
    ),
    *each("jnp._({x})", "iscomplex isreal logical_not angle empty_like", "any", _BITS),
    *each("jnp._({x})", "bitwise_count bitwise_invert bitwise_not invert", "int", _BITS),
    *each(
        "jnp._({x})",
        "acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh cos cosh exp"
        " exp2 expm1 log log10 log1p log2 sin sinc sinh sqrt tan tanh",
        "inexact",
        _BITS,
    ),
    *each(
        "jnp._({x})", "cbrt deg2rad degrees rad2deg radians i0 frexp modf spacing", "float", _BITS
    ),
    *each(
        "jnp._({x}, {y})",
        "add subtract multiply divide true_divide pow power float_power equal not_equal",
        "num",
        _BITS,
    ),
    *each("jnp._({x}, {y})", "logical_and logical_or logical_xor", "any", _BITS),
    *each(
        "jnp._({x}, {y})",
        "maximum minimum fmax fmin floor_divide mod remainder fmod divmod greater greater_equal"
        " less less_equal isclose",
        "real",
        _BITS,
    ),
    *each(
        "jnp._({x}, {y})",
        "arctan2 atan2 copysign heaviside hypot logaddexp logaddexp2 nextafter",
        "float",
        _BITS,
    ),
    *each("jnp._({x}, {y})", "bitwise_and bitwise_or bitwise_xor", "int", _BITS),
    # Of the least integer of a signed type these never end (JAX's issue 40840), so halves are drawn.
    *each("jnp._({x} >> 1, {y} >> 1)", "gcd lcm", "int", _BITS),
    *each(
        "jnp._({x}, {y})",
        "bitwise_left_shift bitwise_right_shift left_shift right_shift",
        "int",
        _BITS,
    ),
    *lines(
        """
        jnp.clip({x}, -2, 3)
        jnp.maximum({x}, 1)
        {x} * 2 + 1
        1 - {x}
        {x} ** 2
        {x} // 3
        {x} % 3
        """,
        "real",
        _BITS,
    ),
    # XLA may leave out the rounding to bfloat16 before it
    *lines("jnp.ldexp({x}.astype(jnp.float32), 2)", "real", "loose"),
    *lines(
        """
        jnp.where({x} > {y}, {x}, {y})
        jnp.select([{x} > 1, {x} < -1], [{x}, {y}], 0)
        jnp.piecewise({x}.astype(jnp.float32), [{x} > 1], [lambda e: e * 2, 0])
        jnp.choose(({x} > 0).astype(jnp.int32), [{x}, {y}], mode='clip')
        lax.clamp({x}, {y}, {x})
        jnp.astype({x}, jnp.int8)
        """,
        "real",
        _BITS,
    ),
    *lines(
        """
        {x}.astype(jnp.{T})
        jnp.where({x} != 0, {x}, {y})
        jnp.zeros_like({x})
        jnp.ones_like({x})
        jnp.full_like({x}, 1)
        lax.select({x} == {y}, {x}, {y})
        lax.select_n({x} == {y}, {x}, {y})
        lax.stop_gradient({x})
        lax.optimization_barrier({x})
        lax.convert_element_type({x}, jnp.{T})
        lax.full_like({x}, 1)
        jnp.iscomplexobj({x}) * {x}
        jnp.result_type({x}).type(1) * {x}
        lax.zeros_like_array({x})
        lax.reduce_precision({x}.astype(jnp.float32), 5, 3)
        lax.dtype({x}).type(1) * {x}
        """,
        "any",
        _BITS,
    ),
    *each("lax._({x})", "abs neg sign square reciprocal conj real imag", "num", _BITS),
    *lines("lax.integer_pow({x}, 3)\nlax.integer_pow({x}, 2)", "num", _BITS),
    *each("lax._({x})", "ceil floor is_finite round", "float", _BITS),
    *each("lax._({x})", "bitwise_not population_count clz", "int", _BITS),
    *each(
        "lax._({x})",
        "acos acosh asin asinh atan atanh cbrt cos cosh exp exp2 expm1 log log1p log2 logistic"
        " one_minus_square rsqrt sin sinh sqrt tan tanh",
        "inexact",
        _BITS,
    ),
    *each("lax._({x})", "bessel_i0e bessel_i1e digamma erf erf_inv erfc lgamma", "float", _BITS),
    *each("lax._({x}, {y})", "add sub mul div eq ne pow", "num", _BITS),
    *each("lax._({x}, {y})", "ge gt le lt max min rem", "real", _BITS),
    *each(
        "lax._({x}, {y})",
        "atan2 nextafter igamma igammac igamma_grad_a random_gamma_grad polygamma zeta",
        "float",
        _BITS,
    ),
    *lines("lax.betainc(abs({x}), abs({y}), abs({x}))\nlax.complex({x}, {y})", "wide", _BITS),
    *each(
        "lax._({x}, {y})",
        "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical",
        "int",
        _BITS,
    ),
    *each("lax._({x}, {y})", "mulhi", "int", _BITS),
    *each(
        "jax.nn._({x})",
        "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp"
        " log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus"
        " sparse_sigmoid squareplus swish tanh",
        "float",
        _BITS,
    ),
    *each(
        "jax.scipy.special._({x})",
        "digamma entr erf erfc erfinv expit exp1 gamma gammaln i0 i0e i1 i1e log_ndtr logit ndtr"
        " ndtri spence",
        "wide",
        _BITS,
    ),
    *each(
        "jax.scipy.special._({x}, {y})",
        "kl_div rel_entr xlog1py xlogy betaln gammainc gammaincc",
        "wide",
        _BITS,
    ),
    *lines("abs({x})\n-{x}\n+{x}\n{x}.real\n{x}.imag\n{x}.conj()\n{x} * {C}", "num", _BITS),
    *lines(
        "jnp.vectorize(lambda a: jnp.sin(a) + 1)({x})\njnp.frompyfunc(lambda a, b: a + b, 2,"
        " 1)({x}, {y})",
        "wide",
        _BITS,
    ),
]
