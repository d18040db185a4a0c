"""Updates of an array by a moved part of itself. Reference: JAX operation by operation, since XLA
for CPUs fuses such updates into loops in place.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Int

import jitney
from jitney.errors import PaddingWarning
from tests._arrays import array

AT = np.int32(3)
WINDOW = lax.ScatterDimensionNumbers((0,), (), (0,))


def shifted(a, i):
    """Three elements written one place further."""
    return lax.dynamic_update_slice(a, lax.dynamic_slice(a, (i,), (3,)), (i + 1,))


def turned(a, i):
    """Three elements in the other order."""
    return lax.dynamic_update_slice(a, lax.dynamic_slice(a, (i,), (3,))[::-1], (i,))


def added(a, i):
    """Three elements added to others by a scatter."""
    return lax.scatter_add(a, i[None] + 1, lax.dynamic_slice(a, (i,), (3,)), WINDOW)


def pushed(a, i):
    """All elements one place further."""
    del i
    return a.at[1:].set(a[:-1])


def summed(a, i):
    """Each with the next one."""
    del i
    return a.at[:-1].add(a[1:])


HEADS = {
    "half": lambda x: x[len(x) // 2 :],
    "reversed": lambda x: x[::-1],
    "doubled": lambda x: 2 * x,
    "whole": lambda x: x,
}
UPDATES = [shifted, turned, added, pushed, summed]


def function(head, update, after):
    def fn(x: Float[Array, "n"], i: Int[Array, ""]):
        out = update(HEADS[head](x), i)
        return out[::-1] if after else out

    return fn


def one_by_one(fn, *args):
    with jax.disable_jit():
        return np.asarray(fn(*map(array, args)))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
@pytest.mark.parametrize("head", HEADS)
def test_an_update_reads_what_was_there_before(head, update, after):
    """Whether or not elements are moved before and after it."""
    fn = function(head, update, after)
    x = np.arange(1.0, 30.0, dtype=np.float32)
    program = jitney.optimize(pad={"n": "pow2"})(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        np.testing.assert_allclose(program(x, AT), one_by_one(fn, x, AT), rtol=1e-6)


@pytest.mark.parametrize("update", [shifted, summed], ids=lambda update: update.__name__)
def test_gradients_are_those_of_single_operations(update):
    """Of the function, and of the padded function from outside."""

    def fn(x: Float[Array, "n"], i: Int[Array, ""]):
        return jnp.sum(update(x[::-1], i) ** 2)

    x = np.arange(1.0, 30.0, dtype=np.float32)
    program = jitney.optimize(pad={"n": "pow2"})(fn)
    expected = one_by_one(jax.grad(fn), x, AT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaddingWarning)
        np.testing.assert_allclose(program.grad(x, AT)["x"], expected, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(program)(array(x), AT), expected, rtol=1e-6)


def steps(x):
    """Positions, each of them twice."""
    return lax.iota(np.int32, x.shape[0]) // 2


HIDDEN = {
    "loop of one turn": lambda y: lax.fori_loop(0, 1, lambda _, y: pushed(y, AT), y[::-1]),
    "scan of one turn": lambda y: lax.scan(lambda y, _: (pushed(y, AT), None), y[::-1], None, 1)[0],
    "while of one turn": lambda y: lax.while_loop(
        lambda s: s[0] < 1, lambda s: (s[0] + 1, shifted(s[1], AT)), (0, y[::-1])
    )[1],
    "unrolled": lambda y: lax.fori_loop(0, 4, lambda _, y: pushed(y, AT)[::-1], y, unroll=2),
    "known branch": lambda y: lax.cond(True, lambda y: pushed(y, AT), lambda y: y, y[::-1]),
    "moved in a known branch": lambda y: pushed(lax.cond(True, jnp.flip, jnp.sort, y), AT),
    "moved twice alike": lambda y: y[::-1].at[1:].set(y[::-1][:-1]),
    "a column": lambda y: pushed((2 * y)[:, None], AT)[:, 0],
    "a column of an argument": lambda y: pushed(y[:, None], AT)[:, 0],
    "equal columns": lambda y: (2 * y)[:, None].at[1:].set((2 * y)[:-1, None])[:, 0],
    "pairs": lambda y: pushed(jnp.concatenate([y, y]).reshape(-1, 2), AT).sum(1),
    "the sum of a column": lambda y: pushed((2 * y)[:, None].sum(1), AT),
    "a column that is contracted": lambda y: pushed(jnp.exp(y)[:, None] @ y[:1], AT),
    "sorted, then a column": lambda y: pushed(jnp.sort(y)[:, None], AT)[:, 0],
    "interleaved": lambda y: shifted(jnp.stack([y, -y]).reshape(-1), AT),
    "in the solve of a system": lambda y: lax.custom_linear_solve(
        lambda z: z, y[::-1], lambda _, z: pushed(z, AT), symmetric=True
    ),
    "in a loop": lambda y: lax.fori_loop(
        0, 3, lambda _, y: lax.fori_loop(0, 1, lambda _, y: shifted(y, AT), y[::-1]), y
    ),
}


@pytest.mark.parametrize("fn", HIDDEN.values(), ids=HIDDEN)
def test_what_xla_puts_together_is_padded(fn):
    """XLA and `vmap` take apart loops of one turn and branches, and make one of equal moves."""

    def update(x: Float[Array, "n"]):
        return fn(x)

    program = jitney.optimize(pad={"n": "pow2"})(update)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        for n in (21, 29):
            x = np.arange(1.0, n + 1, dtype=np.float32)
            np.testing.assert_allclose(program(x), one_by_one(update, x), rtol=1e-6)


WHOLE = {
    "a column, added": lambda y: y[:, None].at[:].add(y[::-1, None])[:, 0],
    "a column, set": lambda y: y[:, None].at[:, 0].set(2 * y)[:, 0],
    "a column, subtracted": lambda y: (z := y[:, None]).at[1:].subtract(z[:-1])[:, 0],
    "a row, added": lambda y: y[None].at[0].add(2 * y)[0],
    "a row of two": lambda y: jnp.stack([y, 2 * y]).at[0].set(y[::-1]).sum(0),
    "vectors of three": lambda y: jax.vmap(lambda v: jnp.stack([v, v, v]).at[1:].add(v).sum())(y),
    "a number of it": lambda y: y[:, None].at[1:].set(y[5])[:, 0],
    "a row of all pairs": lambda y: jnp.outer(y, y).at[0].set(y).sum(0),
    "multiplied": lambda y: (z := y[::-1]).at[2:].mul(z[:-2]),
    "the least": lambda y: (z := y[::-1]).at[2:].min(z[:-2]),
    "the greatest": lambda y: (z := jnp.roll(y, 3)).at[:-2].max(z[2:]),
    "out of bounds": lambda y: lax.scatter_add(
        z := y[::-1], jnp.array([len(y) - 1]), z[:3], WINDOW, mode="drop"
    ),
    "clipped": lambda y: lax.scatter_add(
        z := y[::-1], jnp.array([len(y) - 1]), z[:3], WINDOW, mode="clip"
    ),
}


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
def test_updates_of_other_shapes_and_kinds_are_padded(fn):
    """Of a column, a row or all pairs, by each kind of update, and over the end of the array."""

    def update(x: Float[Array, "n"]):
        return fn(x)

    program = jitney.optimize(pad={"n": "pow2"})(update)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        for n in (21, 32, 29):
            x = np.linspace(0.1, 1.0, n, dtype=np.float32)
            np.testing.assert_allclose(program(x), one_by_one(update, x), rtol=1e-6)


def last_three(y):
    """An array of fixed size, whose place in memory depends on the size of the axis."""
    return jnp.concatenate([y[::-1], y[:1]])[-3:]


FIXED = {
    "pushed": lambda y: pushed(last_three(y), AT),
    "turned": lambda y: turned(last_three(y), np.int32(0)),
    "summed": lambda y: summed(last_three(y), AT),
    "in a loop of one turn": lambda y: lax.fori_loop(
        0, 1, lambda _, z: pushed(z, AT), last_three(y)
    ),
    "in a branch": lambda y: lax.cond(y[0] > 0, summed, pushed, last_three(y), AT),
    "in a scan": lambda y: lax.scan(lambda c, z: (pushed(c, AT) + z, c), last_three(y), y[:1])[0],
    "in a rematerialised call": lambda y: jax.checkpoint(pushed)(last_three(y), AT),
}


@pytest.mark.parametrize("fn", FIXED.values(), ids=FIXED)
def test_an_array_of_fixed_size_that_is_cut_from_the_axis(fn):
    """No symbolic size occurs in the update, only in what it reads."""

    def update(x: Float[Array, "n"]):
        return fn(x)

    program = jitney.optimize(pad={"n": [32]})(update)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        for n in (32, 7, 21):
            x = np.arange(1.0, n + 1, dtype=np.float32)
            np.testing.assert_allclose(program(x), one_by_one(update, x), rtol=1e-6)


def test_a_loop_that_writes_one_element_a_turn():
    """It writes in place, beside an update that is written element by element."""

    def update(x: Float[Array, "n"]):
        y = pushed(x[::-1], AT)
        turns = jnp.arange(4)
        return lax.scan(lambda out, i: (out.at[i].set(y[i]), None), jnp.zeros_like(x), turns)[0]

    program = jitney.optimize(pad={"n": [32]})(update)
    x = np.arange(1.0, 30.0, dtype=np.float32)
    np.testing.assert_allclose(program(x), one_by_one(update, x), rtol=1e-6)


def test_a_map_of_a_branch_from_outside():
    """Under `jax.vmap` the branches stand where the `cond` was."""

    def update(x: Float[Array, "n"]):
        return lax.cond(x[0] > 0, lambda y: pushed(y, AT), lambda y: y, x[::-1])

    x = np.arange(58.0, dtype=np.float32).reshape(2, 29)
    program = jitney.optimize(pad={"n": "pow2"})(update)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaddingWarning)
        got = jax.vmap(program)(array(x))
    np.testing.assert_array_equal(got, [one_by_one(update, row) for row in x])


PADDED = {
    "by the argument": lambda x: x[::-1].at[1:].set(x[:-1]),
    "of the argument": lambda x: x.at[1:].set(x[:-1]),
    "one element": lambda x: (y := x[::-1]).at[0].set(y[1]),
    "of the whole": lambda x: lax.dynamic_update_slice(y := x[::-1], y[steps(x)], [AT]),
    "by zeros": lambda x: x[::-1].at[1:].set(jnp.zeros(len(x) - 1, x.dtype)),
    "of what is not moved": lambda x: (y := x - x.mean()).at[1:].set(2 * y[:-1]),
    "of another in another shape": lambda x: x[:, None].at[1:].set(jnp.ones((len(x) - 1, 1)))[:, 0],
    "of what is sorted": lambda x: (y := jnp.sort(x[::-1] % 0.3)).at[1:].set(y[:-1]),
    "of what is counted": lambda x: (y := jnp.zeros(len(x)).at[steps(x)].add(x)).at[1:].set(y[:-1]),
    "of a loop": lambda x: (
        (y := lax.scan(lambda c, e: (c + e, c), 0.0, x[::-1])[1]).at[:-1].add(y[1:])
    ),
    "in a loop of three turns": lambda x: lax.fori_loop(0, 3, lambda _, y: pushed(y, AT), x[::-1]),
    "in a loop that arrays end": lambda x: lax.while_loop(
        lambda y: y.sum() > 1, lambda y: pushed(y, AT) / 2, x[::-1]
    ),
    "in a loop for each element": lambda x: lax.scan(
        lambda y, v: (pushed(y, AT) + v, None), x[::-1], x
    )[0],
}


@pytest.mark.parametrize("fn", PADDED.values(), ids=PADDED)
def test_other_updates_are_padded(fn):
    """Those of arguments, of single elements, by other arrays, of arrays that lie in memory."""

    def update(x: Float[Array, "n"]):
        return fn(x)

    x = np.linspace(0.1, 1.0, 21, dtype=np.float32)
    program = jitney.optimize(pad={"n": "pow2"})(update)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PaddingWarning)
        np.testing.assert_allclose(program(x), one_by_one(update, x), rtol=1e-6)
