"""Policies by doubling against LAPACK's generalised Schur form."""

from functools import partial

import jax
import numpy as np
import pytest

from examples.equilibrium._doubling import stable
from examples.equilibrium._implicit import transition
from examples.equilibrium._linear import UNIT, klein

NU, NX = 3, 2


def drawn(count):
    """Derivatives of models with roots of all kinds: some have a root of exactly one, some have
    equations of today alone, some cannot be solved for today.
    """
    rng = np.random.default_rng(0)
    n = NU + NX
    F_u, F_x = rng.normal(size=(count, n, NU)), rng.normal(size=(count, n, NX))
    F_u_next, F_x_next = 0.7 * rng.normal(size=(count, n, NU)), rng.normal(size=(count, n, NX))
    F_u_next[::3, :, 0] = 0.0
    F_u_next[1::4, :2] = 0.0
    F_u[::10, :, 1] = 0.0
    # a state that keeps its value
    F_u[5::7, -1], F_x[5::7, -1], F_u_next[5::7, -1], F_x_next[5::7, -1] = 0.0, 0.0, 0.0, 0.0
    F_x[5::7, -1, -1], F_x_next[5::7, -1, -1] = -1.0, 1.0
    return F_u, F_x, F_u_next, F_x_next


@pytest.mark.rest
def test_what_doubling_is_sure_of_is_what_lapack_says():
    """Of 400 models: where it is sure there is one stable solution, and it is that one; and where
    there is one it is sure, unless today cannot be solved for.
    """
    blocks = drawn(400)
    found = [klein(*(block[i] for block in blocks)) for i in range(400)]
    with jax.enable_x64(True):
        one = partial(stable, ahead=(0, 1, 2), unit=UNIT)
        G, H, sure = jax.device_get(jax.jit(jax.vmap(one))(*blocks))
        every = jax.jit(jax.vmap(lambda *each: transition(*each, (0, 1, 2))))
        policy, moves, kind = jax.device_get(every(*blocks))
    single = np.array([each.verdict == "determinate" for each in found])
    assert not np.any(sure & ~single)
    assert sure.sum() > 0.9 * single.sum() > 20
    assert {each.verdict for each in found} == {
        "determinate",
        "indeterminate",
        "no stable solution",
    }
    np.testing.assert_array_equal(kind == 0, single)
    for i in np.flatnonzero(single):
        size = 1.0 + np.abs(found[i].G_x).max() + np.abs(found[i].H_x).max()
        for ours, theirs in ((policy[i], found[i].G_x), (moves[i], found[i].H_x)):
            np.testing.assert_allclose(ours, theirs, atol=1e-8 * size)
        if sure[i]:
            np.testing.assert_array_equal([*G[i], *H[i]], [*policy[i], *moves[i]])
