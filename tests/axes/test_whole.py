"""What is done along a cut axis at once, or in both directions: the bits of plain JAX, and what of
the axis is held for it.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from jitney._axes import Refused, plan_passes, run_chunked, trace
from tests._examples import examples

F = np.float32
NUMBERS = [0.0, -0.0, 1.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, -np.nan]
SIZES = [(2, 1), (5, 5), (6, 2), (9, 4), (12, 5)]


def planned(body, avals, *, in_memory=True):
    ranges = {"d0": (len_of(avals), len_of(avals))}
    symbolic = trace(
        lambda *xs: jax.tree.leaves(body(*xs)),
        lambda sizes: [at(aval, sizes["d0"]) for aval in avals],
        ranges,
    )
    return plan_passes(symbolic.jaxpr, "d0", ranges, in_memory=in_memory)


def len_of(avals):
    return next(aval.shape[0] for aval in avals if aval.shape and aval.shape[0] not in (3, 4))


def at(aval, n):
    cut = aval.shape and aval.shape[0] not in (3, 4)
    return jax.ShapeDtypeStruct((n, *aval.shape[1:]) if cut else aval.shape, aval.dtype)


def abstract(*arrays):
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def both(body, *arrays, chunk):
    """The results in chunks, and those of plain JAX."""
    passes = planned(body, abstract(*arrays))
    n = len_of(arrays)
    return jax.jit(lambda *xs: run_chunked(passes, xs, n, chunk))(*arrays), jax.tree.leaves(
        jax.jit(body)(*arrays)
    )


def same_bits(got, want):
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def ordered(x):
    return (
        jnp.sort(x),
        jnp.argsort(x),
        jnp.argsort(x, descending=True),
        jax.lax.sort(x, is_stable=False),
    )


def largest(x):
    return jax.lax.top_k(x, 2)


def of_size(size):
    n, chunk = size
    return st.tuples(st.lists(st.sampled_from(NUMBERS), min_size=n, max_size=n), st.just(chunk))


@pytest.mark.rest
@given(
    values_and_chunk=st.sampled_from(SIZES).flatmap(of_size),
    kind=st.sampled_from(["f4", "f8", "i4", "u1", "?", "f2", ml_dtypes.bfloat16]),
)
@examples(
    {"values_and_chunk": ([-np.nan, np.nan], 1), "kind": "f2"},
    {"values_and_chunk": ([0.0, -0.0, 1.0, -0.0, 0.0], 5), "kind": "f8"},  # one chunk
    # a rest of one
    {
        "values_and_chunk": ([np.inf, -np.nan, -0.0, np.nan, 1.0, 0.0, -np.inf, np.inf, np.nan], 4),
        "kind": "f4",
    },
    {"values_and_chunk": ([0.0, -0.0, np.nan, -np.nan, 2.0, -0.0], 2), "kind": ml_dtypes.bfloat16},
    # ties in each chunk
    {
        "values_and_chunk": ([1.0, -1.0, 1.0, 2.0, 0.0, 2.0, 2.0, -1.0, -1.0, 1.0, 0.0, 2.0], 5),
        "kind": "i4",
    },
    {"values_and_chunk": ([2.0, 0.0, 0.0, 1.0, 2.0, 1.0], 2), "kind": "u1"},
    {"values_and_chunk": ([0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], 4), "kind": "?"},
)
@pytest.mark.parametrize("body", [ordered, largest])
def test_orders_are_those_of_plain_jax_to_the_bit(body, values_and_chunk, kind):
    """Of equal elements the first, zeros of both signs, NaNs of both signs, and the first of
    those.
    """
    values, chunk = values_and_chunk
    x = np.array(values)
    x = (np.nan_to_num(x, posinf=3, neginf=0) if np.dtype(kind).kind in "iu" else x).astype(kind)
    with jax.enable_x64(kind == "f8"):
        same_bits(*both(body, x, chunk=chunk))


@pytest.mark.core("average")
@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_are_those_of_scipy(method):
    """What stands in a branch is read per chunk if it has the axis, and once if it has not."""
    y = np.array([2, 0, 1, 2, 2, -1, 0, 3, 1], F)
    got, _ = both(lambda x: jax.scipy.stats.rankdata(x, method), y, chunk=4)
    np.testing.assert_array_equal(got[0], scipy.stats.rankdata(y, method))


COLUMNS = np.random.default_rng(0).normal(size=(23, 3)).astype(F)
COLUMN = COLUMNS[:, 0].copy()


@pytest.mark.core("1-<lambda>0", "1-<lambda>7")
@pytest.mark.parametrize(
    "body",
    [
        lambda x: jnp.median(x, 0),
        lambda x: jnp.quantile(x, jnp.array([0.1, 0.5, 1.0]), axis=0, method="nearest"),
        lambda x: jnp.percentile(x, 30, 0, method="lower"),
        lambda x: jnp.sort(x, 0)[::-1],
        lambda x: jnp.flip(x, 0),
        lambda x: jax.lax.top_k(x.T, 5),
        lambda x: x[-1],
        lambda x: x[:4],
        lambda x: jnp.take(x, jnp.array([0, 22, 23, -1, -23, -24, 5]), axis=0),
        lambda x: jnp.lexsort((x[:, 0], x[:, 1] > 0)),
        lambda x: jnp.roll(x, 3, axis=0),
        lambda x: x - jnp.median(x, 0),
        lambda x: jnp.concatenate([x, x]),
        lambda x: jnp.argmax(x.reshape(-1)),
        lambda x: x.reshape(-1) * jnp.arange(x.size, dtype=F),
    ],
)
@pytest.mark.parametrize("chunk", [1, 5, 23])
def test_elements_that_change_places_keep_their_bits(body, chunk):
    same_bits(*both(body, COLUMNS, chunk=chunk))


def test_the_largest_few_are_all_that_is_held():
    """One pass, and k elements from chunk to chunk."""
    passes = planned(largest, abstract(COLUMN))
    assert (len(passes.passes), passes.held_bytes(23)) == (1, 0)


def test_a_sort_of_an_argument_makes_no_pass_and_holds_its_result():
    passes = planned(jnp.sort, abstract(COLUMN))
    assert (len(passes.passes), passes.held_bytes(23)) == (0, 23 * 4)


def test_what_a_sort_reads_is_collected_in_the_pass_that_makes_it():
    """The outer product before it is there for one chunk at a time."""
    passes = planned(lambda x: jnp.sort(jnp.sum(x[:, None] * jnp.ones(3), 1)), abstract(COLUMN))
    assert (len(passes.passes), passes.held_bytes(23)) == (1, 2 * 23 * 4)


def forward_and_back(x):
    return jax.lax.cumsum(jnp.cumsum(x) * 0.1, reverse=True)


def three_ways(x):
    a = jnp.cumsum(x)
    b = jax.lax.cumsum(jnp.sin(a) * x, reverse=True)
    return jnp.cumsum(b * a - b.mean()), jnp.max(b * a)


def states(w, x):
    """A loop with a state, the numbers of each step, and a loss over all of them."""

    def step(h, a):
        h = jnp.tanh(h @ w + a)
        return h, h

    return jax.lax.scan(step, jnp.zeros(3, x.dtype), x)[1]


W = np.random.default_rng(1).normal(size=(3, 3)).astype(F)


def loss(w, x):
    return jnp.mean((states(w, x) - 0.3) ** 2)


def twice(w, x):
    """A second loop over what the first has made, from the end."""

    def step(h, a):
        h = jnp.tanh(h @ w - a)
        return h, h

    return jnp.sum(jax.lax.scan(step, jnp.zeros(3, x.dtype), states(w, x), reverse=True)[1] ** 2)


TURNED = {
    "cumulated": (forward_and_back, [COLUMN], 2),
    "cumulated three times": (three_ways, [COLUMN], 3),
    "gradient of a cumulative sum": (jax.grad(lambda x: jnp.sum(jnp.cumsum(x) ** 2)), [COLUMN], 2),
    "gradient of a loop": (jax.grad(loss, (0, 1)), [W, COLUMNS], 2),
    "gradient of two loops": (jax.value_and_grad(twice, (0, 1)), [W, COLUMNS], 4),
    "second derivative of a loop": (jax.jvp, None, 0),
    "loop and its mirror": (lambda w, x: states(w, x) + states(w, x[::-1])[::-1], [W, COLUMNS], 2),
}
TURNED["second derivative of a loop"] = (
    lambda w, x: jax.jvp(lambda w: jax.grad(loss)(w, x), (w,), (w,))[1],
    [W, COLUMNS],
    2,
)


@pytest.mark.core("1-cumulated")
@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("chunk", [1, 5, 22, 23])
def test_both_directions_in_one_program(name, chunk):
    """Each in a pass of its own; numbers like plain JAX's, since XLA fuses the body of a loop as it
    likes.
    """
    body, arrays, _ = TURNED[name]
    for got, want in zip(*both(body, *arrays, chunk=chunk), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.core("gradient of a loop", "gradient of two loops")
@pytest.mark.parametrize("name", TURNED)
def test_directions_take_as_few_passes_as_wait_for_one_another(name):
    body, arrays, passes = TURNED[name]
    assert len(planned(body, abstract(*arrays)).passes) == passes


def test_backpropagation_through_a_loop_keeps_its_state_at_the_boundaries():
    """Not the numbers of each step: memory goes with the chunks, 3 numbers for each."""
    passes = planned(jax.grad(loss), abstract(W, COLUMNS))
    assert [work.back for work in passes.passes] == [False, True]
    assert (passes.held_bytes(23), passes.kept_bytes(5)) == (0, 5 * 3 * 4)


def test_what_has_no_rule_at_another_length_is_refused():
    with pytest.raises(Refused, match=r"transforms along it \(`fft`\)"):
        planned(lambda x: jnp.abs(jnp.fft.fft(x[1:])), abstract(COLUMN))


def test_equal_values_of_a_chunk_are_made_once():
    """Value and derivatives have a power each, of an exponent that is known before the chunks: XLA
    could not know that they are one.
    """
    x = np.linspace(0.1, 2.0, 9, dtype=F)

    def body(x, a, b):
        def model(a, b):
            return jnp.sum(jnp.sin(b * x ** (a + 1)))

        return model(a, b), *jax.jvp(model, (a, b), (F(1), F(0)))

    passes = planned(body, abstract(x, F(1), F(1)))
    names = [node.name for work in passes.passes for node in work.nodes]
    assert names.count("pow") == 1
    got, want = both(body, x, F(1.5), F(0.7), chunk=4)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
