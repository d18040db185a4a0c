"""What the table of rules says of operations, for padding and for chunks alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jitney._axes import uses_of
from jitney._axes.monoids import MONOIDS
from jitney._axes.rules import RULES

(N,) = export.symbolic_shape("d0", constraints=["d0 >= 2", "d0 <= 64"])
ALONG = jax.ShapeDtypeStruct((N, 3), np.float32)


def uses(fn):
    return list(uses_of(jax.make_jaxpr(fn)(ALONG), {"d0": (2, 64)}))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sum(x, 0),
        lambda x: x.T @ x,
        lambda x: jnp.zeros((4, 3)).at[jnp.zeros(x.shape[0], int)].add(x),
        lambda x: jnp.tensordot(x, x, [[0], [0]]),
    ],
)
def test_sums_along_an_axis_are_told(fn):
    assert [use.is_sum for use in uses(fn)] == [True]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.cumsum(x, 0),
        lambda x: jnp.max(x, 0),
        lambda x: jnp.argmax(x, 0),
        lambda x: jnp.sort(x, 0),
        lambda x: jnp.prod(x, 0),
        lambda x: jnp.linalg.qr(x, mode="r"),
    ],
)
def test_what_else_is_done_along_an_axis_is_no_sum(fn):
    found = uses(fn)
    assert found
    assert not any(use.is_sum for use in found)


def test_the_text_of_a_use_is_that_of_its_monoid():
    """One fact, said once: what a plan shows cannot differ from what is decided by it."""
    for fn, name in (
        (lambda x: jnp.sum(x, 0), "add"),
        (lambda x: jnp.min(x, 0), "min"),
        (lambda x: jnp.all(x > 0, 0), "and"),
    ):
        (use,) = uses(fn)
        assert (use.monoid, use.how) == (MONOIDS[name], MONOIDS[name].word)


def test_all_that_goes_on_from_chunk_to_chunk_has_a_monoid():
    """Besides the state of a loop, and elements that are found."""
    carriers = {name: rule.carrier for name, rule in RULES.items() if rule.carrier is not None}
    assert {name for name, carrier in carriers.items() if carrier.monoid is None} == {
        "scan",
        "top_k",
        "gather",
        "dynamic_slice",
        "slice",
    }
    assert {type(carrier).__name__ for carrier in carriers.values()} == {
        "Fold",
        "ArgExtreme",
        "Gather",
        "TopK",
        "ScatterInto",
        "Prefix",
        "LoopCarry",
    }
