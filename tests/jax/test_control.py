"""Loops that are bound anew: with a condition of each element, and with values beside the carry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jitney._jax.programs.control import rebuild, scan_beside
from jitney._jax.programs.evaluation import evaluate_jaxpr
from jitney._jax.programs.jaxprs import open_jaxpr, scan_parts


def run(program, values):
    return evaluate_jaxpr(*open_jaxpr(program), values)


def test_elements_of_a_batch_that_are_finished_keep_their_carry():
    def grown(x):
        return jax.lax.while_loop(lambda x: x < 10, lambda x: 1.5 * x + 1, x)

    x = jnp.asarray([1.0, 3.0, 20.0])
    (loop,) = jax.make_jaxpr(jax.vmap(grown))(x).eqns
    expected = np.array([1.0, 3.0, 20.0])
    while (expected < 10).any():
        expected = np.where(expected < 10, 1.5 * expected + 1, expected)
    np.testing.assert_allclose(rebuild(loop, [x], run)[0], expected, rtol=1e-6)


def test_a_scan_carries_a_count_beside_its_carry():
    """From the end, with a carry that starts with a weak type."""

    def sums(x):
        return jax.lax.scan(lambda s, x: (s + x, s), 0.0, x, reverse=True)

    x = jnp.asarray([1.0, 2.0, 4.0])
    program = jax.make_jaxpr(sums)(x)
    (loop,) = program.eqns

    def turn(count, *values):
        return count + 1, run(loop.params["jaxpr"], values)

    parts = scan_parts(loop, [jnp.asarray(0.0), x])
    count, (total, before) = scan_beside(jnp.asarray(0), loop, parts, turn)
    assert int(count) == 3
    assert float(total) == 7
    np.testing.assert_array_equal(before, [6.0, 4.0, 0.0])
