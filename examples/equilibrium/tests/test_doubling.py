"""Policies by doubling against LAPACK's generalised Schur form."""

from functools import partial

import jax
import jax.numpy as jnp
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


def test_near_a_unit_root_verdict_policy_and_slope_are_those_in_closed_form():
    """x' = a x and u' = b u + c x in mixed rows: u = c / (a - b) x, alone if a is stable and b
    not; a model whose rows are dependent and one that is not a number are never sure.
    """
    roots = [0.0, -0.5, 0.9999, 1.0, 1.0 + 5e-7, 1.0 + 2e-6, 1.0001, -1.2, 2.0]
    a, b, c = (each.ravel() for each in np.meshgrid(roots, roots, [0.0, 1.0], indexing="ij"))
    mix = np.random.default_rng(1).normal(size=(2, 2)) + 2.0 * np.eye(2)

    def model(a, b, c):
        F_u, F_x = jnp.stack([0.0 * b, -b])[:, None], jnp.stack([-a, -c])[:, None]
        return mix @ F_u, mix @ F_x, jnp.array(mix[:, 1:]), jnp.array(mix[:, :1])

    def solved(a, b, c):
        G, H, sure = stable(*model(a, b, c), (0,), UNIT)
        return G[0, 0], H[0, 0], sure

    def slope(a, b, c):
        return jax.grad(lambda a: transition(*model(a, b, c), (0,))[0][0, 0])(a)

    single = (np.abs(a) < UNIT) & (np.abs(b) >= UNIT)
    with jax.enable_x64(True):
        policy, moves, sure = jax.device_get(jax.jit(jax.vmap(solved))(a, b, c))
        of = tuple(each[single] for each in (a, b, c))
        slopes = jax.device_get(jax.jit(jax.vmap(slope))(*of))
        unknown = stable(*model(jnp.nan, jnp.array(2.0), jnp.array(1.0)), (0,), UNIT)[2]
        rows = [block.at[1].set(block[0]) for block in map(jnp.asarray, model(*jnp.ones(3)))]
        twice = stable(*rows, (0,), UNIT)[2]
    assert not np.any(sure & ~single)
    assert sure[single].mean() > 0.8
    assert not unknown
    assert not twice
    a, b, c = of
    apart = np.abs(a - b)
    held = sure[single]
    np.testing.assert_allclose((policy[single] * (a - b))[held], c[held], atol=1e-7)
    np.testing.assert_allclose(moves[single][held], a[held], atol=1e-9)
    # Of roots 1.5e-6 apart the policy itself is known to 1e-5.
    near = apart < 1e-5
    np.testing.assert_allclose((slopes * apart**2)[~near], -c[~near], atol=1e-6)
    np.testing.assert_allclose((slopes * apart**2)[near], -c[near], atol=1e-4)
