"""Updates of an array by a moved part of itself. Reference: JAX operation by operation, since XLA
for CPUs fuses such updates into loops in place.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Int

import jitney
from jitney._axes.overlapping_updates import overlapping_updates
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
    np.testing.assert_allclose(program(x, AT), one_by_one(fn, x, AT), rtol=1e-6)


@pytest.mark.parametrize("update", [shifted, summed], ids=lambda update: update.__name__)
def test_gradients_are_those_of_single_operations(update):
    """`f.grad` is padded; `jax.grad` of it says that it is not."""

    def fn(x: Float[Array, "n"], i: Int[Array, ""]):
        return jnp.sum(update(x[::-1], i) ** 2)

    x = np.arange(1.0, 30.0, dtype=np.float32)
    program = jitney.optimize(pad={"n": "pow2"})(fn)
    expected = one_by_one(jax.grad(fn), x, AT)
    np.testing.assert_allclose(program.grad(x, AT)["x"], expected, rtol=1e-6)
    with pytest.warns(PaddingWarning, match="differentiates wrongly"):
        got = jax.grad(program)(array(x), AT)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (lambda x: x[::-1].at[1:].set(x[:-1]), 0),
        (lambda x: x.at[1:].set(x[:-1]), 0),
        (lambda x: (y := x[::-1]).at[0].set(y[1]), 0),
        (lambda x: (y := x[::-1]).at[1:].set(2 * y[:-1]), 1),
        (lambda x: x[::-1].at[1:].set(jnp.zeros(7)), 0),
    ],
)
def test_only_updates_by_the_moved_array_itself_are_found(fn, count):
    """Not those of arguments, of single elements, or by other arrays."""
    assert len(overlapping_updates(jax.make_jaxpr(fn)(np.ones(8, np.float32)))) == count
