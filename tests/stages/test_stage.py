"""A decision not taken."""

import dataclasses

import jax.numpy as jnp
import pytest

from jitney._stages.stage import Skip
from jitney._view.result import Outcome
from jitney._view.view import Leaf, View


def test_a_skip_changes_nothing():
    """Neither the function, nor what the stages inside see, nor the results."""
    view = View((Leaf("x", "x", (3,), jnp.dtype("float32"), weak_type=False),))
    skip = Skip("vmap", "no `vmap` axis given")
    outcome, results = Outcome(), [1]
    assert skip.wrap(len, outcome) is len
    assert skip.finish(results, outcome) is results
    assert skip.inner(view) is view


def test_a_skip_is_told_from_another_by_its_reason():
    """Plans that skip for another reason are another line in a report, and another cause of a
    trace.
    """
    assert Skip("vmap", "a") == Skip("vmap", "a") != Skip("vmap", "b")
    assert len({Skip("vmap", "a"), Skip("vmap", "a"), Skip("jit", "a")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Skip("vmap", "a").why = "b"
