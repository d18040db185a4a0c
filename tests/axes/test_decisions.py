"""What code decides by a size without asking it is seen by the trace at the true size: against
plain `jax.jit`.
"""

import contextlib
import functools
import math
import operator
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import optimize
from tests.axes._sizes import SIZES, V, agrees


def by_array(x: V):
    return x * 2 if x.shape[0] == np.array(300) else x


def by_array_in_front(x: V):
    return x * 2 if np.array(300) == x.shape[0] else x


def by_float32(x: V):
    return x * 2 if x.shape[0] == np.float32(300) else x


def by_fraction(x: V):
    return x * 2 if x.shape[0] == Fraction(300) else x


def by_decimal(x: V):
    return x * 2 if x.shape[0] == Decimal(300) else x


def by_complex(x: V):
    return x * 2 if x.shape[0] == 300 + 0j else x


def among_array(x: V):
    return x * 2 if x.shape[0] in np.array([300, 301]) else x


def by_jax_array(x: V):
    return jnp.where(x.shape[0] == jnp.array(300), x * 2, x)


def as_number(x: V):
    return x * np.float32(x.shape[0] == np.array(300))


def by_isinstance(x: V):
    return x * 2 if isinstance(x.shape[0], int) else x


def by_type_and_value(x: V):
    return x * 2 if type(x.shape[0]) is int and x.shape[0] > 300 else x


def by_class(x: V):
    return x * 2 if x.shape[0].__class__ is int and x.shape[0] > 300 else x


def by_attribute(x: V):
    return x * 2 if hasattr(x.shape[0], "bit_length") and x.shape[0] > 300 else x


def by_default_of_attribute(x: V):
    n = getattr(x.shape[0], "real", None)
    return x * 2 if n is not None and n > 300 else x


def by_match(x: V):
    match x.shape[0]:
        case int(n) if n > 300:
            return x * 2
        case _:
            return x


def by_identity(x: V):
    n = x.shape[0]
    m = n
    return x * 2 if operator.is_(n, m) and type(n) is int and n > 300 else x


def kind_of_default(x: V, kind=type):
    return x * 2 if kind(x.shape[0]) is int and x.shape[0] > 300 else x


def by_what_it_closes_over(kind):
    def inside(x: V):
        return x * (2.0 if kind(x.shape[0]) == int and x.shape[0] > 300 else 1.0)  # noqa: E721

    return inside


closed_over = by_what_it_closes_over(type)


@functools.singledispatch
def factor(n):
    return 1.0


@factor.register
def _(n: int):
    return 2.0 if n > 300 else 1.0


def by_dispatch(x: V):
    return x * factor(x.shape[0])


def by_order_that_is_caught(x: V):
    try:
        return x * 2 if x.shape[0] > 300 else x
    except Exception:  # noqa: BLE001
        return x


def by_conversion_that_is_caught(x: V):
    n = 0.0
    with contextlib.suppress(Exception):
        n = math.sqrt(x.shape[0])
    return x * 2 if n > 17.32 else x


def as_index(x: V):
    return x[300 if isinstance(x.shape[0], int) and x.shape[0] > 300 else 0] * x


def as_constant(x: V):
    return x[:2] * np.array(
        [1.0, 2.0 if isinstance(x.shape[0], int) and x.shape[0] > 300 else 1.0], np.float32
    )


def backwards_if_known(x: V):
    return x[::-1] if type(x.shape[0]) is int and x.shape[0] > 300 else x


@jax.jit
def helper(x):
    return x * 2 if isinstance(x.shape[0], int) and x.shape[0] > 300 else x


def in_a_jitted_helper(x: V):
    return helper(x)


def in_a_loop(x: V):
    return jax.lax.scan(lambda c, _: (helper(c), None), x, None, length=2)[0]


DECISIONS = [
    value
    for value in list(globals().values())
    if getattr(value, "__annotations__", {}).get("x") is V
]


@pytest.mark.core("by_array", "by_decimal", "as_number")
@pytest.mark.parametrize("fn", DECISIONS, ids=lambda fn: fn.__name__)
def test_no_decision_by_a_size_goes_unseen(fn):
    """Each size of one bucket gives what plain JAX gives, in whichever order they come."""
    for sizes in (SIZES, SIZES[::-1]):
        padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
        for n in sizes:
            agrees(padded, plain, n)


def test_a_body_that_jax_has_traced_before_is_looked_at_again():
    """JAX's own caches hold the helper's trace at a size: the witness runs it anew."""
    helper(jnp.ones(300))
    helper(jnp.ones(301))
    padded, plain = optimize(in_a_jitted_helper, pad={"n": "pow2"}), jax.jit(in_a_jitted_helper)
    for n in SIZES:
        agrees(padded, plain, n)
