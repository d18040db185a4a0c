"""Bodies of `_cases.py` worked on in chunks: each equals itself all at once, or is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitney._axes import Refused, plan_passes, run_chunked, trace
from tests._examples import examples
from tests._selection import params
from tests.axes import _cases as cases
from tests.axes.test_padded import drawn

PASSES = {
    "relu": 1,
    "mean": 1,
    "norm": 1,
    "Gram matrix": 1,
    "segment sum": 1,
    "variance with ddof": 2,
    "log-sum-exp": 2,
    "covariance": 2,
    "standardise": 3,
    "softmax": 3,
    "several levels": 3,
    "loop until all are done": 2,
    "cumulative sum": 1,
    "scan": 1,
    "recurrent network": 1,
    "min and argmin": 1,
    "argmax by column": 1,
    "argmax with ties": 1,
    "gradient for shared weights": 1,
    "gradient of a variance": 3,
    "cumulative sum from the end": 1,
    "cumulative max from the end": 1,
    "scan from the end": 1,
    "vmap of a loop": 1,
    "normal draws": 1,
    "16-bit draws": 1,
    "dropout": 1,
    "a key for each": 1,
    **{case.name: 1 for case in (*cases.LOOPS, *cases.IMAGED)},
    "largest": 1,
    "gradient of a cumulative sum": 2,
    "gradient of a scan": 2,
    "sort": 0,
    "QR along it": 0,
    "median": 1,
    "differences": 0,
    "last": 0,
    "quantiles by column": 1,
    "largest of columns": 1,
    "cumulative sums in both directions": 2,
    "sums in a branch": 2,
    "merge behind the leading axis": 1,
    "gradient of a sort": 0,
    "prefix of a buffer": 1,
    "window of a buffer": 1,
    "add to a prefix": 1,
    "gradient for a buffer": 1,
}
WHOLE = {
    "square of a mask",
    "attention",
    "rows by rows",
    "loop until",
    "outer product",
}
BY_NAME = {case.name: case for case in cases.CASES}


def planned(case, n):
    ranges = {"d0": (n, n)}
    traced = trace(case.flat, lambda sizes: case.avals(sizes["d0"]), ranges)
    return plan_passes(traced.jaxpr, "d0", ranges)


def agree(case, *chunks):
    """Of several sizes, each with the size of its chunks, in one program."""
    groups = drawn(case, *(n for n, _ in chunks))
    passes = [planned(case, n) for n, _ in chunks]
    run = jax.jit(
        lambda groups: [
            run_chunked(*each)
            for each in zip(passes, groups, *zip(*chunks, strict=True), strict=True)
        ]
    )
    for (n, chunk), found, wants in zip(
        chunks, run([*groups.values()]), case.exact([*groups.values()]), strict=True
    ):
        for i, (got, want) in enumerate(zip(found, wants, strict=True)):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            said = f"result {i} at size {n} by {chunk}"
            np.testing.assert_allclose(
                got, want, rtol=3 * case.tolerance, atol=3 * case.tolerance, err_msg=said
            )


def is_cut(case):
    """Whether it can be cut; which cases can is known."""
    try:
        planned(case, 23)
    except Refused:
        assert case.name not in PASSES
        return False
    assert case.name not in WHOLE
    return True


@pytest.mark.parametrize("case", params(case for case in cases.CASES if case.cut_in_core))
def test_chunks_equal_the_whole_or_are_refused(case):
    """With a last chunk that is shorter; the extremes of what is drawn are not in the first."""
    if is_cut(case):
        agree(case, (24, 5))


@pytest.mark.rest
@pytest.mark.parametrize("case", params(cases.CASES))
def test_chunks_of_any_size_equal_the_whole_or_are_refused(case):
    """A last chunk that is shorter, chunks that fit, and one element at a time."""
    if is_cut(case):
        agree(case, (23, 5), (20, 5), (7, 1))


@pytest.mark.core(
    "relu",
    "softmax",
    "gradient of a variance",
    "sums of a loop",
    "gradient of what a recurrent network stacks",
    "windows by a computation",
    "largest of columns",
)
@pytest.mark.parametrize("name", PASSES)
def test_passes_are_as_many_as_levels(name):
    """One for each reduction that waits for another, and one for elements that wait for it."""
    assert len(planned(BY_NAME[name], 23).passes) == PASSES[name]


@pytest.mark.rest
@given(name=st.sampled_from(sorted(PASSES)), n=st.integers(5, 40), chunk=st.integers(1, 41))
@examples(
    {"name": "recurrent network", "n": 5, "chunk": 1},
    {"name": "log-sum-exp", "n": 5, "chunk": 5},  # all in one chunk
    {"name": "standardise", "n": 40, "chunk": 39},  # a rest of one
    {"name": "median", "n": 13, "chunk": 4},
    {"name": "gradient of a scan", "n": 9, "chunk": 3},  # chunks that fit
)
def test_any_chunk_of_any_size(name, n, chunk):
    """Whatever is left over."""
    if chunk <= n:
        agree(BY_NAME[name], (n, chunk))


def test_what_no_result_needs_is_not_streamed():
    """A body that only looks at the size, or at what has no axis, makes no pass."""
    assert len(planned(cases.Case("size", lambda x: x.shape[0] * 2.0, cases.V), 9).passes) == 0
    assert (
        len(
            planned(
                cases.Case("weights", lambda w, x: w * 2, [((3,), cases.F), (("n", 3), cases.F)]), 9
            ).passes
        )
        == 0
    )


def chunked(numbers):
    """Arrays and sizes of chunks, few enough that programs are compiled once and used again."""
    sizes = st.sampled_from([(2, 1), (5, 5), (6, 2), (9, 4), (12, 5)])
    return sizes.flatmap(
        lambda size: st.tuples(
            st.lists(numbers, min_size=size[0], max_size=size[0]), st.just(size[1])
        )
    )


@functools.cache
def run_of(body, dtype, n, chunk):
    """A function of one array, whose numbers may come anew."""
    case = cases.Case(body.__name__, body, [(("n",), dtype)])
    passes = planned(case, n)
    return jax.jit(lambda x: run_chunked(passes, [x], n, chunk)), jax.jit(lambda x: case.flat(x))


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])


def places(x):
    return jnp.argmax(x), jnp.argmin(x)


@pytest.mark.rest
@given(values_and_chunk=chunked(NUMBERS), kind=st.sampled_from(["f4", "i4", "?"]))
@examples(
    {"values_and_chunk": ([1.0, 1.0], 1), "kind": "f4"},
    {"values_and_chunk": ([-np.inf, np.inf], 1), "kind": "f4"},
    {"values_and_chunk": ([np.nan] * 2, 1), "kind": "f4"},
    # ties in each chunk
    {"values_and_chunk": ([0.0, 1.0, -1.0, 1.0, -1.0, 0.0, 1.0, -1.0, 1.0], 4), "kind": "f4"},
    {"values_and_chunk": ([-np.inf] * 9, 4), "kind": "f4"},
    {
        "values_and_chunk": (
            [np.inf, 0.0, np.inf, 1.0, -np.inf, np.nan, np.inf, np.nan, np.nan],
            4,
        ),
        "kind": "f4",
    },
    # in a rest of one
    {
        "values_and_chunk": ([np.inf, 0.0, np.inf, 1.0, -np.inf, 0.0, -np.inf, 1.0, np.nan], 4),
        "kind": "f4",
    },
    {"values_and_chunk": ([0.0] * 6, 2), "kind": "i4"},
    {"values_and_chunk": ([1.0, -1.0, np.inf, -np.inf, -np.inf, np.inf], 2), "kind": "i4"},
    {"values_and_chunk": ([0.0] * 5, 5), "kind": "?"},
    {"values_and_chunk": ([1.0, 1.0, 0.0, 1.0, 0.0], 5), "kind": "?"},
)
def test_places_of_extremes_are_the_first(values_and_chunk, kind):
    """Of equal elements the first, of NaNs the first, whichever chunk it is in."""
    values, chunk = values_and_chunk
    x = np.array(values)
    x = (np.nan_to_num(x, posinf=2, neginf=-2) if kind != "f4" else x).astype(kind)
    run, exact = run_of(places, x.dtype, len(x), chunk)
    for got, want in zip(run(x), exact(x), strict=True):
        assert got == want
        assert got.dtype == want.dtype


def counted(x):
    """A loop over another axis, whose counter is the same in each chunk."""
    return jax.lax.fori_loop(0, 3, lambda i, y: y * (i + 1).astype(y.dtype), x)


READ = {
    "sin": lambda w, x: jax.lax.scan(lambda c, a: (jnp.sin(c + jnp.sum(a)), None), w[0], x.T)[0],
    "mul": lambda w, x: jax.lax.scan(lambda c, a: (c * jnp.sum(a), None), w[0], x.T)[0],
    "div": lambda w, x: jax.lax.scan(lambda c, a: (c + a / jnp.sum(a), None), x[:, 0], x.T)[0],
    "integer_pow": lambda w, x: jax.lax.scan(lambda c, a: (c + jnp.sum(a) ** 2, None), w[0], x.T)[
        0
    ],
    "abs": lambda w, x: jax.lax.scan(lambda c, a: (c + abs(jnp.sum(a)), None), w[0], x.T)[0],
    "convert_element_type": lambda w, x: jax.lax.scan(
        lambda c, a: (c + jnp.sum(a > 0).astype(c.dtype), None), w[0], x.T
    )[0],
    "jax.lax.while_loop": lambda w, x: jax.lax.while_loop(
        lambda c: c[0] < 10, lambda c: (c[0] + jnp.sum(x**2), c[1]), (w[0], w[1])
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_loop_that_reads_what_it_adds_up_is_refused(name):
    """What a chunk would read there is a part."""
    with pytest.raises(
        Refused,
        match=rf"test_chunked.py:\d+ .*reads what is put together over all of it .*`{name}`",
    ):
        planned(cases.Case(name, READ[name], [cases.PAIR, (("n", 3), cases.F)]), 9)


def stacked(x):
    """The same with results of each turn."""
    return jax.lax.scan(lambda c, _: (c + 1, x * c), jnp.float32(1), None, length=3)[1]


def beside(x):
    """And with the counter among the results."""
    return jax.lax.scan(lambda c, _: (c + 1, x * c), jnp.float32(1), None, length=3)


@pytest.mark.core("while")
@pytest.mark.parametrize(
    "body",
    [counted, stacked, lambda x: jax.grad(lambda x: counted(x).sum())(x)],
    ids=["while", "scan", "gradient"],
)
def test_loops_over_another_axis_begin_anew_in_each_chunk(body):
    """What such a loop carries without the axis does not go on from chunk to chunk."""
    case = cases.Case("loop", body, cases.V)
    agree(case, (23, 5), (20, 5), (7, 1))


def weighted(x):
    """A sum and a product of what loops make beside what has the axis."""
    counts, ys = jax.lax.scan(lambda c, _: (c + 1, (c, x * c)), jnp.float32(1), None, length=3)[1]
    return jnp.sum(ys * counts[:, None], axis=0) * jnp.sum(counts) * (counts @ counts), jnp.sum(
        ys
    ) * jnp.max(counts)


def test_what_is_the_same_in_each_chunk_is_added_once():
    """Sums over another axis of what has not the cut one."""
    agree(cases.Case("weighted", lambda x: weighted(x)[0], cases.V), (23, 5), (7, 1))


def test_a_value_beside_one_with_the_axis_is_refused():
    """It is named."""
    with pytest.raises(
        Refused,
        match=r"returns a value without it that is made beside one with it \(`jax.lax.scan`\)",
    ):
        planned(cases.Case("beside", beside, cases.V), 9)


FROM_THE_END = {
    "sum": (lambda x: jax.lax.cumsum(x, reverse=True), lambda x: np.cumsum(x[::-1])[::-1]),
    "product": (lambda x: jax.lax.cumprod(x, reverse=True), lambda x: np.cumprod(x[::-1])[::-1]),
    "max": (
        lambda x: jax.lax.cummax(x, reverse=True),
        lambda x: np.maximum.accumulate(x[::-1])[::-1],
    ),
    "min": (
        lambda x: jax.lax.cummin(x, reverse=True),
        lambda x: np.minimum.accumulate(x[::-1])[::-1],
    ),
    "scan": (
        lambda x: jax.lax.scan(
            lambda c, a: (c * 2 + a, c - a), jnp.zeros((), x.dtype), x, reverse=True
        )[1],
        lambda x: np.array(
            [sum(2**k * b for k, b in enumerate(x[i + 1 :])) - a for i, a in enumerate(x)], x.dtype
        ),
    ),
    "place": (
        lambda x: jnp.argmax(jax.lax.cummax(x, reverse=True)),
        lambda x: np.argmax(np.maximum.accumulate(x[::-1])[::-1]),
    ),
}


@pytest.mark.core("sum")
@pytest.mark.parametrize("name", FROM_THE_END)
@given(
    values_and_chunk=chunked(st.integers(-2, 2)),
    hole=st.integers(0, 20),
    kind=st.sampled_from("fdi"),
)
@examples(
    {"values_and_chunk": ([2, -1], 1), "hole": 20, "kind": "f"},
    {"values_and_chunk": ([0, 0], 1), "hole": 0, "kind": "f"},
    # ties in each chunk
    {"values_and_chunk": ([1, -2, 2, 0, 1, 2, -1, 1, 2], 4), "hole": 20, "kind": "f"},
    # a NaN in a rest of one
    {"values_and_chunk": ([1, -2, 2, 0, 1, 2, -1, 1, 2], 4), "hole": 8, "kind": "f"},
    {"values_and_chunk": ([1, -2, 2, 0, 1, 2, -1, 1, 2], 4), "hole": 0, "kind": "f"},
    {"values_and_chunk": ([-1, 2, -2, 1, 2], 5), "hole": 2, "kind": "d"},  # all in one chunk
    {"values_and_chunk": ([2, 2, 1, -2, -2, 2], 2), "hole": 20, "kind": "i"},
    {"values_and_chunk": ([0] * 6, 2), "hole": 20, "kind": "i"},
)
def test_what_runs_from_the_end(name, values_and_chunk, hole, kind):
    """Small whole numbers, so that NumPy has the same bits; with ties, and a NaN somewhere."""
    values, chunk = values_and_chunk
    body, expected = FROM_THE_END[name]
    x = np.array(values, kind)
    if kind != "i" and hole < len(x) and name != "scan":
        x[hole] = np.nan
    with jax.enable_x64(kind == "d"):
        run, exact = run_of(body, x.dtype, len(x), chunk)
        (got,) = run(x)
        assert got.dtype == jax.eval_shape(exact, x)[0].dtype
    np.testing.assert_array_equal(got, expected(x))


def test_one_level_may_be_read_both_ways():
    """From the front and from the end, in a pass each; what needs neither comes with the first."""
    passes = planned(
        cases.Case(
            "both",
            lambda x: (jnp.cumsum(x), jax.lax.cumsum(x, reverse=True), x.sum(), x * 2),
            cases.V,
        ),
        9,
    )
    assert [(each.back, each.emits) for each in passes.passes] == [(False, (0, 3)), (True, (1,))]
    agree(
        cases.Case(
            "both",
            lambda x: (jnp.cumsum(x), jax.lax.cumsum(x / x.sum(), reverse=True), x.max()),
            cases.V,
        ),
        (9, 4),
    )
