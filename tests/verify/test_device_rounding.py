"""What the matrix units of a GPU or TPU round is no difference. No test runs on one: JAX is told
that it does, or numbers are rounded as there.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._axes.rule import POINTWISE, Rule
from jitney._axes.rules import RULES
from jitney._body.plain import ProgramChange
from jitney._verify import verification
from jitney._verify.difference import Allowed, compare_results
from jitney._verify.rounding import rounded_products
from jitney.errors import VerificationError

X = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)


def product(x, y, **options):
    return jax.make_jaxpr(lambda x, y: jnp.dot(x, y, **options))(x, y)


def rowwise(x):
    return jax.lax.map(lambda row: row @ row, x)


@pytest.mark.parametrize(
    ("program", "platform", "option"),
    [
        (product(X, X.T), "gpu", "precision=tf32"),
        (product(X, X.T), "tpu", "precision=bf16"),
        (product(X, X.T), "cpu", None),
        (product(X, X.T, precision="highest"), "gpu", None),
        (product(X, X.T, precision=("default", "highest")), "gpu", "precision=tf32"),
        (product(X.astype(np.float16), X.T.astype(np.float16)), "gpu", None),
        (product(X.astype(np.complex64), X.T.astype(np.complex64)), "gpu", "precision=tf32"),
        (jax.make_jaxpr(lambda x: jnp.tanh(x).sum())(X), "gpu", None),
        (
            jax.make_jaxpr(jax.jit(lambda x: jax.lax.map(lambda r: r @ r, x)))(X),
            "gpu",
            "precision=tf32",
        ),
    ],
)
def test_products_whose_precision_nobody_set_are_rounded(program, platform, option):
    assert rounded_products(program, platform) == option


CHUNKED = ProgramChange("chunk", ("n",))


@pytest.mark.parametrize(("off", "is_found"), [(3e-4, False), (5e-2, True)])
def test_what_such_a_product_rounds_is_no_difference(off, is_found):
    """Three of 2^-11, and a twentieth."""
    allowed = Allowed((CHUNKED,), X.size, device="precision=tf32")
    assert compare_results([X], [X], replace(allowed, device=None)) is None
    assert compare_results([X * np.float32(1 + off)], [X], replace(allowed, device=None))
    found = compare_results([X * np.float32(1 + off)], [X], allowed)
    assert (found is not None) == is_found


def test_integers_stay_equal():
    """A low type that somebody asked for may decide otherwise; a device has to say why."""
    allowed = Allowed((CHUNKED,), 7, device="precision=tf32")
    assert compare_results([np.arange(3)], [np.arange(3) + 1], allowed)
    low = Allowed((ProgramChange("precision=tf32"),), 7)
    assert compare_results([np.arange(3)], [np.arange(3) + 1], low) is None


@pytest.mark.rest
def test_a_wrong_number_is_found_there_too(monkeypatch):
    """A sum in which a rule forgets what is filled in."""
    monkeypatch.setattr(verification, "platform_of", lambda arrays: "gpu")
    monkeypatch.setitem(RULES, "reduce_sum", Rule(RULES["reduce_sum"].uses, POINTWISE.pad))

    def f(x: Float[Array, "n 8"], w: Float[Array, "8"]) -> Float[Array, "n"]:
        return x @ w - jnp.sum(x)

    with pytest.raises(VerificationError, match="Under pad over 'n'"):
        optimize(pad={"n": "pow2"}, verify=True)(f)(X[:7], X[0])
