"""Sparse Jacobians: patterns that hold for all values, colourings that tell every element apart,
and JAX's numbers.
"""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float

from jitney import lazy_derivatives, optimize
from jitney._sparsity import timed as _timed
from jitney._sparsity.colours.colouring import WAYS, scheme_of
from jitney._sparsity.dependence import dependence
from jitney._sparsity.pattern import Pattern, TooDenseError
from tests._arrays import array
from tests._examples import examples
from tests._patience import patience
from tests._tracing import count_traces


def rows(*shape):
    return array(np.random.default_rng(list(shape)).normal(size=shape))


BAND = np.triu(np.tril(np.asarray(rows(24, 24)), 1), -1)
FULL = np.asarray(rows(24, 24))
LOWER = array(np.tril(np.ones((8, 3, 3))))
V, M, S = rows(24), rows(8, 3), rows(6, 4)


@jax.custom_jvp
def leaky(x):
    """Its value is elementwise, its rule is not: each element's derivative takes the neighbour's
    direction too.
    """
    return jnp.sin(x)


@leaky.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return leaky(x), jnp.cos(x) * t + jnp.roll(t, 1)


@jax.custom_vjp
def backward_only(x):
    return x**3 + jnp.roll(x, 1)


backward_only.defvjp(
    lambda x: (backward_only(x), x), lambda x, ct: (3 * x**2 * ct + jnp.roll(ct, -1),)
)


def newton(x):
    """A loop whose length is known when it runs."""
    return jax.lax.while_loop(
        lambda c: c[0] < 3,
        lambda c: (c[0] + 1, c[1] - (c[1] ** 2 - jnp.abs(x) - 1) / (2 * c[1])),
        (0, jnp.ones_like(x)),
    )[1]


def spreading(x):
    return jax.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.roll(c[1], 1) * c[1]), (0, x)
    )[1]


def strided(x):
    spread = {"lhs_dilation": (2,), "rhs_dilation": (3,)}
    return jax.lax.conv_general_dilated(
        x.reshape(1, 2, 12), jnp.ones((3, 2, 2)), (2,), [(1, 2)], **spread
    )


CASES = {
    "elementwise": (lambda x: jnp.sin(x) * jnp.exp(-(x**2)), V, 24),
    "tridiagonal": (
        lambda x: jnp.concatenate([x[:1] ** 2, x[1:-1] ** 2 * x[2:] - x[:-2], x[-1:] ** 3]),
        V,
        70,
    ),
    "known matrix": (lambda x: jnp.tanh(BAND @ x) * x, V, 70),
    "known matrix on the right": (lambda x: x.reshape(1, -1) @ BAND, V, 70),
    "batch of known matrices": (lambda x: jnp.einsum("bij,bj->bi", LOWER, x), M, 48),
    "mask": (lambda x: (jnp.eye(24) * x[None]).sum(1) ** 2, V, 24),
    "dense": (lambda x: jnp.tanh(FULL @ x), V, 576),
    "scan without carry": (
        lambda x: jax.lax.scan(lambda c, v: (c, jnp.sin(v) * c), jnp.arange(3.0), x)[1],
        V,
        72,
    ),
    "scan with carry": (
        lambda x: jax.lax.scan(lambda c, v: (c * 0.5 + v, jnp.sin(v)), 0.0, x)[1],
        V,
        24,
    ),
    "scan that looks back once": (
        lambda x: jax.lax.scan(lambda c, v: (v, v * c), 0.0, x)[1],
        V,
        48,
    ),
    "scan from the end": (
        lambda x: jax.lax.scan(lambda c, v: (v, v * c), x[0], x, reverse=True)[1],
        V,
        72,
    ),
    "fori": (lambda x: jax.lax.fori_loop(0, 5, lambda i, x: x + jnp.sin(x), x), V, 24),
    "while": (newton, V, 24),
    "while that spreads": (spreading, V, 576),
    "cond": (
        lambda x: jax.lax.cond(x[0] > 0, lambda x: jnp.sin(x), lambda x: jnp.roll(x, 1), x),
        V,
        48,
    ),
    "where": (lambda x: jnp.where(jnp.arange(24) < 12, x * jnp.roll(x, 1), x**2), V, 36),
    "cumulative sum of rows": (lambda x: jnp.cumsum(x, axis=1), S, 96),
    "convolution": (lambda x: jnp.convolve(x, jnp.asarray([1.0, 2, 3]), mode="same") ** 2, V, 70),
    "strided convolution": (strided, V, 400),
    "slices": (lambda x: x[::2] * x[jnp.arange(12) + 3], V, 23),
    "updates": (lambda x: x.at[3:6].set(x[7:10] ** 2).at[0].add(x[5]), V, 25),
    "updates out of bounds": (
        lambda x: x.at[jnp.asarray([1, 99])].set(x[:2] ** 2, mode="drop"),
        V,
        26,
    ),
    "unknown index": (lambda x: x.reshape(8, 3)[jnp.argmax(x.reshape(8, 3)[:, 0])] * x[:3], V, 27),
    "unknown slice": (
        lambda x: jax.lax.dynamic_slice(x.reshape(8, 3), (jnp.argmax(x) % 4, 0), (2, 3)),
        V,
        48,
    ),
    "unknown update": (
        lambda x: jax.lax.dynamic_update_slice(x, x[:2] ** 2, (jnp.argmax(x),)),
        V,
        72,
    ),
    "known slice": (lambda x: jax.lax.dynamic_slice(x, (5,), (10,)) * x[:10], V, 20),
    "known update": (lambda x: jax.lax.dynamic_update_slice(x, x[:2] ** 2, (30,)), V, 24),
    "pad": (lambda x: jax.lax.pad(x, x[0] * 0.5, [(2, -3, 1)]), V, 60),
    "sort of rows": (lambda x: jnp.sort(x, axis=1), S, 96),
    "softmax of rows": (lambda x: jax.nn.softmax(x, axis=1), S, 96),
    "maximum of rows": (lambda x: jnp.max(x, axis=1), S, 24),
    "norm of rows": (lambda x: jnp.linalg.norm(x, axis=1), S, 24),
    "groups": (lambda x: jax.ops.segment_sum(x**2, jnp.arange(24) // 6, num_segments=4), V, 24),
    "outer product": (lambda x: jnp.einsum("bi,bj->bij", x, x), M, 120),
    "solves": (
        lambda x: jax.vmap(lambda r: jnp.linalg.solve(jnp.eye(3) + jnp.outer(r, r), r))(x),
        M,
        96,
    ),
    "cholesky": (
        lambda x: jax.vmap(lambda r: jnp.linalg.cholesky(jnp.eye(3) + jnp.outer(r, r)))(x),
        M,
        220,
    ),
    "eigenvalues": (
        lambda x: jax.vmap(
            lambda r: jnp.linalg.eigvalsh(jnp.diag(jnp.arange(3.0)) + jnp.outer(r, r))
        )(x),
        M,
        72,
    ),
    "fourier": (lambda x: jnp.abs(jnp.fft.fft(x, axis=1)), S, 576),
    "transposes": (
        lambda x: jnp.flip(x.T.reshape(2, 12).T, 0).ravel(),
        array(np.asarray(V).reshape(6, 4)),
        24,
    ),
    "split and stack": (
        lambda x: jnp.stack([jnp.split(x, 3)[1], *jnp.unstack(x.reshape(3, 8))], 1),
        V,
        32,
    ),
    "interpolation": (lambda x: jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2), V, 24),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(x) * jnp.roll(x, 2)), V, 48),
    "arrow": (lambda x: jnp.concatenate([jnp.sum(x**2)[None], x[1:] * x[0]]), V, 70),
    "own rule": (leaky, V, 48),
    "backward only": (backward_only, V, 48),
    "constant": (lambda x: jnp.ones(24), V, 0),
    "one number": (lambda x: x**2, array(3.0), 1),
    "nothing": (lambda x: x**2, array(np.zeros((0, 3))), 0),
}


AS_SPARSE = (
    "tridiagonal",
    "dense",
    "arrow",
    "groups",
    "outer product",
    "solves",
    "backward only",
    "constant",
    "one number",
    "nothing",
)


@pytest.mark.core(
    "arrow-coloured-True",
    "tridiagonal-coloured-True",
    "while-auto-False",
    "cond-auto-False",
    "own rule-auto-False",
    "dense-auto-False",
    "scan with carry-auto-False",
    "known slice-auto-False",
    "nothing-auto-False",
    "one number-auto-False",
)
@pytest.mark.parametrize(
    ("case", "mode", "sparse"),
    [(case, "auto", False) for case in CASES] + [(case, "coloured", True) for case in AS_SPARSE],
)
def test_jacobians_are_those_of_jax(case, mode, sparse):
    """Dense or as BCOO, with as few passes as the structure allows."""
    fn, x, _ = CASES[case]
    want, plain = jax.jit(
        lambda x: ((jax.jacrev if case == "backward only" else jax.jacfwd)(fn)(x), fn(x))
    )(x)
    value, got = lazy_derivatives(wrt="x", mode=mode, sparse=sparse)(
        lambda x: fn(x)
    ).value_and_jacobian(x)
    if sparse:
        assert isinstance(got, BCOO)
        got = got.todense()
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(value, plain, rtol=2e-5, atol=2e-5)


@pytest.mark.core(
    "updates",
    "while that spreads",
    "scan with carry",
    "dense",
    "mask",
    "slices",
    "unknown index",
    "sort of rows",
    "own rule",
    "tridiagonal",
    "known slice",
    "nothing",
)
@pytest.mark.parametrize("case", [case for case in CASES if case != "backward only"])
def test_patterns_hold_and_are_tight(case):
    """Every element that is not zero is in the pattern, at any values; and not many more are."""
    fn, x, most = CASES[case]
    seed = Pattern.identity(0, x.size, x.size)
    jaxpr = jax.make_jaxpr(lambda x, t: jax.jvp(fn, (x,), (t,))[1])(x, x)
    try:
        (found,) = dependence(jaxpr, [None, seed])
    except TooDenseError:
        assert most == x.size**2
        return
    there = np.zeros((jaxpr.out_avals[0].size, x.size), bool)
    if found is not None:
        there[found.rows, found.indices] = True
    assert there.sum() <= most
    dense = jax.jit(jax.jacfwd(fn))
    for scale in (1.0, -3.0, 0.1):
        at = np.asarray(x) * np.float32(scale) + np.float32(scale - 1)
        assert not (np.asarray(dense(at)).reshape(there.shape) != 0)[~there].any()


OPS = {
    "roll": lambda x, i: jnp.roll(x, i),
    "reverse": lambda x, i: x[::-1],
    "sine": lambda x, i: jnp.sin(x),
    "neighbour": lambda x, i: x * jnp.roll(x, -1),
    "mask": lambda x, i: x * (jnp.arange(x.size) % 3 != i % 3).astype(x.dtype),
    "choose": lambda x, i: jnp.where(jnp.arange(x.size) > i, x, jnp.roll(x, 2)),
    "take": lambda x, i: x[(jnp.arange(x.size) * 5 + i) % x.size],
    "set": lambda x, i: x.at[i % x.size].set(jnp.sum(x[:2])),
    "groups": lambda x, i: jnp.repeat(x.reshape(-1, 2).sum(1), 2) + x,
    "matrix": lambda x, i: jnp.asarray(np.eye(x.size, k=i - 3) + np.eye(x.size), x.dtype) @ x,
    "scan": lambda x, i: jax.lax.scan(lambda c, v: (v, v * c), x[i % x.size], x)[1],
    "largest": lambda x, i: (
        x.at[jnp.argmax(x)].multiply(2.0) if i % 2 else jnp.maximum(x, jnp.roll(x, i))
    ),
    "sort pairs": lambda x, i: jnp.sort(x.reshape(-1, 2), axis=1).reshape(-1),
    "branch": lambda x, i: jax.lax.cond(x[0] > 0, lambda x: jnp.roll(x, i), lambda x: x**2, x),
}


@pytest.mark.rest
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 7)), min_size=1, max_size=5),
    st.sampled_from([6, 10]),
)
@examples(
    {"steps": [("sine", 0)], "size": 6},  # a diagonal
    # parts of a band, moved
    {"steps": [("roll", 7), ("neighbour", 0), ("reverse", 0), ("mask", 1)], "size": 10},
    {"steps": [("take", 3), ("sort pairs", 0), ("choose", 2), ("groups", 0)], "size": 6},
    # two diagonals, and a longer row
    {"steps": [("matrix", 5), ("set", 7), ("neighbour", 0)], "size": 10},
    {"steps": [("scan", 2), ("branch", 1)], "size": 10},
    # places and choices that hang on the values
    {"steps": [("largest", 1), ("largest", 4)], "size": 6},
)
def test_any_program(steps, size):
    """Random programs: coloured Jacobians are dense ones."""

    def fn(x):
        for name, i in steps:
            x = OPS[name](x, i)
        return x

    x = rows(size)
    got = lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian(x)
    np.testing.assert_allclose(got, jax.jit(jax.jacfwd(fn))(x), rtol=1e-4, atol=1e-4)


MATRICES = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31)).map(
    lambda t: (
        np.random.default_rng(t[2]).random(t[:2])
        < np.random.default_rng(t[2]).choice([0.05, 0.2, 0.6])
    )
)
ARROW = np.eye(9, dtype=bool)
ARROW[0] = ARROW[:, 0] = True
STRUCTURES = {
    "one zero": np.zeros((1, 1), bool),
    "zeros": np.zeros((3, 5), bool),
    "ones": np.ones((4, 3), bool),
    "a row": np.ones((1, 12), bool),
    "a column": np.ones((12, 1), bool),
    "diagonal": np.eye(12, dtype=bool),
    "band": np.tri(12, k=1, dtype=bool) & ~np.tri(12, k=-2, dtype=bool),
    "triangle": np.tri(6, dtype=bool),
    "arrow": ARROW,
    "long rows apart": np.concatenate([ARROW[:, 1:], ARROW[:2, 1:]]),
    "blocks": np.kron(np.eye(3), np.ones((2, 4))).astype(bool),
}


@settings(max_examples=200, deadline=None)
@given(MATRICES, st.sampled_from([("forward",), ("reverse",), WAYS]))
@examples(
    *(
        {"matrix": matrix, "ways": ways}
        for matrix in STRUCTURES.values()
        for ways in (("forward",), ("reverse",), WAYS)
    )
)
def test_colourings_tell_all_elements_apart(matrix, ways):
    """Columns of a colour share no row, but for rows that are made by themselves; and no scheme
    costs more than one pass for each.
    """
    pattern = Pattern.of_pairs(*np.nonzero(matrix), *matrix.shape)
    scheme = scheme_of(pattern, ways)
    lines = matrix if scheme.by == "forward" else matrix.T
    kept = np.delete(lines, scheme.apart, axis=0)
    for a, b in itertools.combinations(range(lines.shape[1]), 2):
        if scheme.colours[a] == scheme.colours[b]:
            assert not (kept[:, a] & kept[:, b]).any()
    assert scheme.count <= lines.shape[1]
    assert scheme.by in ways
    assert len(ways) > 1 or not len(scheme.apart)


@pytest.mark.rest
@settings(max_examples=10, deadline=None)
@given(MATRICES)
@examples(
    *(
        {"matrix": STRUCTURES[name]}
        for name in ("one zero", "zeros", "a row", "band", "arrow", "blocks")
    )
)
def test_matrices_come_back(matrix):
    """The Jacobian of a product with a known sparse matrix is the matrix."""
    values = jnp.asarray(matrix * (1.0 + np.arange(matrix.size).reshape(matrix.shape)), jnp.float32)
    got = lazy_derivatives(wrt="x", mode="coloured", sparse=True)(lambda x: values @ x).jacobian(
        jnp.ones(matrix.shape[1])
    )
    np.testing.assert_array_equal(got.todense(), values)
    assert got.nse == matrix.sum()


INDICES = {
    "row": lambda x: x[2],
    "rows": lambda x: x[jnp.asarray([3, 0, 3])],
    "pairs": lambda x: x[jnp.asarray([0, 1]), jnp.asarray([2, 1])],
    "negative": lambda x: x[-2:, ::-1],
    "outside": lambda x: jnp.take(x, jnp.asarray([0, 7, -9]), axis=0, mode="fill", fill_value=-1),
    "clipped": lambda x: jnp.take(x, jnp.asarray([0, 7]), axis=1, mode="clip"),
    "along": lambda x: jnp.take_along_axis(x, jnp.asarray([[0], [2], [1], [1]]), axis=1),
    "batched": lambda x: jax.vmap(lambda row, i: row[i])(x, jnp.asarray([0, 2, 1, 1])),
}


@pytest.mark.core("row", "rows", "negative", "outside", "clipped", "along")
@pytest.mark.parametrize("case", INDICES)
def test_gathers_read_where_jax_does(case):
    """Positions against JAX's own indexing of an array of positions."""
    x = jnp.arange(12).reshape(4, 3)
    jaxpr = jax.make_jaxpr(INDICES[case])(jnp.ones((4, 3)))
    want = np.asarray(INDICES[case](x))
    seed = Pattern.identity(0, 12, 12)
    (found,) = dependence(jaxpr, [seed])
    got = np.full(want.size, -1)
    got[found.rows] = found.indices
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.rest
def test_blocks_of_trees():
    """Several arguments and results: each block by itself, in the structure of the results and
    arguments.
    """

    @lazy_derivatives(wrt=("a", "b"), sparse=True)
    def f(a: Float[Array, "n"], b: dict[str, Float[Array, "n k"]]) -> dict[str, Array]:
        return {"u": a**2 * b["x"][:, 0], "v": jnp.sum(b["x"], axis=1)}

    a, b = rows(30), {"x": rows(30, 2)}
    got = f.jacobian(a, b)
    want = jax.jit(
        jax.jacfwd(lambda a, b: {"u": a**2 * b["x"][:, 0], "v": jnp.sum(b["x"], axis=1)}, (0, 1))
    )(a, b)
    np.testing.assert_allclose(got["a"]["u"].todense(), want["u"][0], rtol=1e-5)
    np.testing.assert_allclose(got["b"]["u"]["x"].todense(), want["u"][1]["x"], rtol=1e-5)
    np.testing.assert_allclose(got["b"]["v"]["x"].todense(), want["v"][1]["x"], rtol=1e-5)
    assert (
        got["a"]["u"].nse,
        got["a"]["v"].nse,
        got["b"]["u"]["x"].nse,
        got["b"]["v"]["x"].nse,
    ) == (30, 0, 30, 60)


def energy(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.rest
@pytest.mark.parametrize("sparse", [False, True])
def test_hessians_are_coloured_too(sparse):
    """A chain of neighbours has a tridiagonal one."""
    x = rows(40)
    f = lazy_derivatives(wrt="x", sparse=sparse)(energy)
    got = f.hessian(x)
    np.testing.assert_allclose(
        got.todense() if sparse else got, jax.jit(jax.hessian(energy))(x), rtol=1e-4, atol=1e-3
    )
    line = next(
        d["why"] for d in f.hessian.plan(x).to_dict()["decisions"] if d["name"] == "derivative"
    )
    assert line.startswith(
        "coloured over reverse: 3 forward passes: 118 of 1600 elements are not zero (a band of 3)"
    )


def test_the_plan_says_which_why_and_what_others_cost():
    """For a diagonal, an arrow, and what colouring does not help."""

    def why(fn, x):
        plan = lazy_derivatives(wrt="x")(fn).jacobian.plan(x).to_dict()
        return next(d["why"] for d in plan["decisions"] if d["name"] == "derivative")

    assert why(lambda x: jnp.sin(x), V) == (
        "coloured: 1 forward pass: 24 of 576 elements are not zero (diagonal); "
        "without that 24 forward passes or 24 backward ones, of about 2 each"
    )
    assert (
        "2 forward passes and 1 backward pass: 70 of 576 elements are not zero (and 1 long rows"
        in why(CASES["arrow"][0], V)
    )
    assert "which colouring does not make cheaper" in why(lambda x: jnp.cumsum(x), V)
    assert "has a forward pass alone" in why(newton, V)
    assert "has a backward pass alone" in why(lambda x: backward_only(x), V)


def test_the_function_is_traced_once():
    """Pattern, value and Jacobian come from one trace of the body."""

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * jnp.roll(x, 1)

    body = count_traces(fn)
    lazy_derivatives(wrt="x")(body).value_and_jacobian(V)
    assert body.traces == 1


@pytest.mark.rest
def test_options_stand_around():
    """`vmap` maps a coloured Jacobian, `pad` makes a dense one of one structure at all sizes,
    `remat` stands inside.
    """

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sin(x) * jnp.roll(x, 1)

    xs = rows(5, 24)
    want = jax.jit(jax.vmap(jax.jacfwd(fn)))(xs)
    np.testing.assert_allclose(
        lazy_derivatives(wrt="x")(optimize(fn, vmap="batch")).jacobian(xs),
        want,
        rtol=1e-5,
        atol=1e-6,
    )
    np.testing.assert_allclose(
        lazy_derivatives(wrt="x")(optimize(fn, remat=True)).jacobian(xs[0]),
        want[0],
        rtol=1e-5,
        atol=1e-6,
    )

    def reduce(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, "k"]:
        return jnp.mean(jnp.tanh(x * w), axis=0)

    f = lazy_derivatives(wrt="w")(optimize(reduce, pad={"n": [64]}))
    w, x = rows(20), rows(50, 20)
    np.testing.assert_allclose(f.jacobian(w, x), jax.jacfwd(reduce)(w, x), rtol=1e-4, atol=1e-6)
    assert f.jacobian.program().stats.traces == 1


def test_directions_are_chunked_to_fit_memory():
    """As many at a time as the compiler says fit; the numbers are the same."""

    def fn(x: Float[Array, "n"]) -> Float[Array, "m"]:
        return jnp.sum(jnp.abs(jnp.fft.rfft(jnp.abs(jnp.fft.rfft2(jnp.outer(x, x))))), axis=0)

    x = jnp.linspace(0.1, 1.0, 40)
    want = jax.jit(jax.jacrev(fn))(x)
    whole = jax.jit(jax.jacrev(fn)).lower(x).compile().memory_analysis().temp_size_in_bytes
    f = lazy_derivatives(wrt="x")(optimize(fn, memory=whole // 3))
    np.testing.assert_allclose(f.jacobian(x), want, rtol=1e-3, atol=1e-2)
    line = next(
        d["why"] for d in f.jacobian.plan(x).to_dict()["decisions"] if d["name"] == "derivative"
    )
    assert "chunked: " in line
    assert (
        f.jacobian.program().lower(x).compile().memory_analysis().temp_size_in_bytes <= whole // 3
    )


def attention(x):
    return jax.nn.softmax(x @ x.T, axis=-1) @ x


@pytest.mark.rest
def test_near_ties_are_timed_once(tmp_path, monkeypatch):
    """A dense square Jacobian is made the way that was faster; the next process reads which, unless
    the file is damaged.
    """
    monkeypatch.setattr(_timed, "folder", lambda name: tmp_path / name)
    monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
    x = rows(10, 8)
    want = jax.jit(jax.jacfwd(attention))(x)

    def made():
        f = lazy_derivatives(wrt="x")(lambda x: attention(x))
        np.testing.assert_allclose(f.jacobian(x), want, rtol=1e-4, atol=1e-5)
        return next(
            d["why"] for d in f.jacobian.plan(x).to_dict()["decisions"] if d["name"] == "derivative"
        )

    assert "; timed once: forward " in made()
    (kept,) = (tmp_path / "modes").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    for faster in ("forward", "reverse"):
        monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
        kept.write_text(json.dumps({"forward": 0.5, "reverse": 0.5, faster: 0.25}))
        assert made().startswith(f"{faster}: ")
    for damage in ("", "[]", '{"forward": 1.0}', '{"forward": "x", "reverse": 1.0}'):
        monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
        kept.write_text(damage)
        assert "timed once" in made()
        assert set(json.loads(kept.read_text())) == {"forward", "reverse"}


def test_large_programs_are_not_compiled_for_timing(monkeypatch):
    """What takes long to compile is made by its sizes."""
    monkeypatch.setattr(_timed, "_LARGEST", 3)
    monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
    f = lazy_derivatives(wrt="x")(lambda x: attention(x))
    plan = f.jacobian.plan(rows(10, 8)).to_dict()
    assert not any("timed" in d["why"] for d in plan["decisions"])


def test_a_process_remembers_so_many_programs_and_no_more(monkeypatch):
    """The one that was timed first is forgotten, and timed again when it comes back."""
    monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
    monkeypatch.setattr(_timed, "_MOST", 2)
    monkeypatch.setattr(_timed, "folder", lambda name: None)
    timed = []

    def took(size):
        def made(fn, at):
            timed.append(size)
            return fn(at)

        x = rows(size)
        return _timed.seconds(jax.make_jaxpr(jnp.sin)(x), [x], {"once": made})

    first = took(3)
    assert took(3) is first
    for size in (4, 5, 5, 4, 3):
        took(size)
    assert timed == [3, 4, 5, 3]


def test_threads_agree_on_what_was_faster(monkeypatch):
    """All that time one program at the same moment are told the same, however often it was
    timed.
    """
    monkeypatch.setattr(_timed, "_KNOWN", _timed.Times())
    monkeypatch.setattr(_timed, "folder", lambda name: None)
    count = 4
    together, counted = threading.Barrier(count), itertools.count(1)

    def measured(*_):
        together.wait(timeout=patience(60))
        return {"once": float(next(counted))}

    monkeypatch.setattr(_timed, "_measure_times", measured)
    x = rows(3)
    traced = jax.make_jaxpr(jnp.sin)(x)
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda _: _timed.seconds(traced, [x], {"once": None}), range(count)))
    assert found == [found[0]] * count


@pytest.mark.core("sparse-flat")
@pytest.mark.parametrize("largest", [2**31 - 1, 7], ids=["flat", "pairs"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "whole"])
def test_positions_that_32_bits_do_not_hold_are_pairs(monkeypatch, largest, sparse):
    """A stack of directions or a Jacobian of more elements is read and written by two positions,
    not by one that is cut off; a dense row comes by a direction of its own.
    """
    monkeypatch.setattr("jitney._sparsity.compressed._LARGEST", largest)

    def residual(x):
        return jnp.concatenate([x[1:] * x[:-1], jnp.sum(x**2)[None], jnp.sin(x[:2])])

    x = np.linspace(1, 2, 40, dtype=np.float32)
    found = lazy_derivatives(residual, wrt="x", mode="coloured", sparse=sparse).jacobian(x)
    np.testing.assert_allclose(
        found.todense() if sparse else found, jax.jacfwd(residual)(x), rtol=1e-6
    )
