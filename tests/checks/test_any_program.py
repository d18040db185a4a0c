"""Random programs with run-time checks at random places: numbers to the bit, and the error that
Equinox reports.
"""

import random

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jitney import optimize

F = np.float32
pytestmark = pytest.mark.sweep


class Drawn:
    """One program, from a seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.checks = 0
        body, form = self.parts(2), self.rng.randrange(4)
        self.call = [
            body,
            jax.grad(lambda y: body(y).sum()),
            lambda y: jax.vmap(body)(jnp.stack([y, -y])),
            lambda y: (body(y), y + 1),
        ][form]

    def parts(self, depth):
        several = [self.part(depth) for _ in range(self.rng.randrange(1, 3))]

        def one_after_the_other(y):
            for part in several:
                y = part(y)
            return y

        return one_after_the_other

    def check(self):
        self.checks += 1
        name, bound = f"check {self.checks}", F(self.rng.uniform(-2, 2))
        return self.rng.choice(
            [
                lambda y: eqx.error_if(y, jnp.any(y > bound), name),
                lambda y: eqx.error_if(y, y > bound, name),
                lambda y: eqx.branched_error_if(
                    y, jnp.max(y) > bound, (jnp.sum(y) > 0).astype(int), [f"{name} a", f"{name} b"]
                ),
                lambda y: eqx.error_if((y, {"a": y * F(2)}), jnp.min(y) > bound, name)[1]["a"],
                lambda y: y * eqx.error_if(jnp.float32(1), ~jnp.isfinite(jnp.sum(y) * bound), name),
            ]
        )

    def part(self, depth):
        kind = self.rng.randrange(12 if depth else 4)
        c, n = F(self.rng.uniform(-1.5, 1.5)), self.rng.randrange(1, 4)
        if kind < 2:
            return self.check()
        if kind < 4:
            return [lambda y: jnp.sin(y) * c + y, lambda y: y * c + F(0.3)][kind - 2]
        a, b = self.parts(depth - 1), self.parts(depth - 1)
        return [
            lambda y: lax.scan(lambda s, _: (a(s), b(s * F(0.5)).sum()), y, jnp.arange(n))[0],
            lambda y: lax.cond(jnp.sum(y) > c, a, b, y),
            lambda y: lax.while_loop(lambda s: s[1] < n, lambda s: (a(s[0]), s[1] + 1), (y, 0))[0],
            lambda y: jax.vmap(a)(jnp.stack([y, y * c]))[0],
            jax.jit(a),
            lambda y: (lambda last, sums: last + sums.sum())(
                *lax.scan(lambda s, _: (a(s), s.sum()), y, None, length=n)
            ),
            jax.checkpoint(a),
            lambda y: lax.while_loop(
                lambda s: (a(s[0]).sum() < c) & (s[1] < n), lambda s: (b(s[0]), s[1] + 1), (y, 0)
            )[0],
        ][kind - 4]


def outcome(f, y):
    """Its numbers, or what the check that failed says."""
    try:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(f(y))]
    except eqx.EquinoxRuntimeError as error:
        return str(error).partition("equinox.EquinoxRuntimeError: ")[2].splitlines()[0]


@pytest.mark.core("3", "17", "40")
@pytest.mark.parametrize("seed", range(48))
def test_any_program_fails_as_with_callbacks_or_has_its_numbers(seed):
    """Loops, branches, maps and derivatives around checks; three inputs and one of zeros."""
    drawn = Drawn(seed)
    try:
        jax.make_jaxpr(drawn.call)(np.ones(2, F))
    except ValueError as error:
        pytest.skip(f"JAX cannot: {str(error).splitlines()[0]}")
    ours, theirs = optimize(drawn.call), eqx.filter_jit(drawn.call)
    for k in range(4):
        y = np.random.default_rng([seed, k]).normal(size=2).astype(F) * F(k < 3)
        got, want = outcome(ours, y), outcome(theirs, y)
        if isinstance(want, str):
            assert got == want
        else:
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)
