"""Moves of elements, which JAX does by other operations where a size is a symbol: known for the
same ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._axes import Refused, demand, run_padded, trace

MOVES = {
    "slice": lambda x: x[2:-1],
    "strided": lambda x: x[1::2],
    "reversed": lambda x: x[::-1],
    "last rows": lambda x: x[-2:],
    "a row": lambda x: x[-1],
    "columns": lambda x: x[:, 1:],
    "rows and columns": lambda x: x[1:, ::2],
    "taken": lambda x: x[jnp.array([0, 2, -1])],
    "written": lambda x: x.at[1:].set(x[:-1]),
    "added": lambda x: x.at[-1].add(1.0),
    "rolled": lambda x: jnp.roll(x, 2, 0),
    "flipped": lambda x: jnp.flip(x),
    "differences": lambda x: jnp.diff(x, axis=0),
}


@pytest.mark.core("slice")
@pytest.mark.parametrize("name", MOVES)
def test_moves_of_a_symbolic_size_are_those_of_a_known_one(name):
    """JAX moves elements by other operations where a size is a symbol; values and gradients are not
    refused for that.
    """
    backward = lambda x: jax.grad(lambda y: jnp.sum(jnp.sin(MOVES[name](y))))(x)
    # their derivatives have no rule
    fn = lambda x: [MOVES[name](x), *([] if name in ("written", "rolled") else [backward(x)])]
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"], 4), np.float32)]
    program = trace(fn, avals, {"d0": (5, 8)})
    demand(program.jaxpr, program.ranges)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    run = jax.jit(lambda n, x: run_padded(program.jaxpr, [x], {"d0": 8}, {"d0": n}))
    out = run(np.int32(6), np.where(np.arange(8)[:, None] < 6, x, np.nan))
    for got, want in zip(out, jax.jit(fn)(x[:6]), strict=True):
        np.testing.assert_allclose(np.asarray(got)[tuple(map(slice, want.shape))], want, rtol=1e-6)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x[1:],
        lambda x: x[::-1][:-1],
        lambda x: x[jnp.arange(x.shape[0] - 1) // 2],
        lambda x: jnp.roll(x, 1)[:-1],
    ],
    ids=["a slice", "backwards", "twice each", "rolled"],
)
def test_other_moves_are_other_operations(other):
    """A program that moves elements elsewhere at a size is refused there."""
    known = False

    def body(x):
        return [other(x) if known else x[:-1]]

    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    program = trace(body, avals, {"d0": (5, 8)})
    known = True
    with pytest.raises(Refused, match="does other operations"):
        program.numbers_at(body, avals, {"d0": 7})
