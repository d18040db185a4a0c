"""Streams of rows of unlike lengths. References: calls of each row, NumPy."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import ContractError, OptionError
from jitney.types import PaddedRows
from tests._monitor import listening

RNG = np.random.default_rng(1)
SIZES = RNG.integers(0, 30, 70)
ROWS = [RNG.normal(size=n).astype(np.float32) for n in SIZES]
SCALES = np.arange(70, dtype=np.float32)
VALUES, OFFSETS = np.concatenate(ROWS), np.cumsum([0, *SIZES])
W = np.float32(2)


def body(w: Float[Array, ""], x: Float[Array, "n"], s: Float[Array, ""]):
    return {"total": jnp.sum(x * w) + s, "sums": jnp.cumsum(x)}


def mapped(**options):
    return jitney.optimize(vmap="row", pad={"n": "pow2"}, **options)(body)


def holds(streamed):
    out = streamed.result
    np.testing.assert_allclose(
        out["total"],
        [2 * x.sum() + s for x, s in zip(ROWS, SCALES, strict=True)],
        rtol=1e-4,
        atol=1e-5,
    )
    for got, x in zip(out["sums"], ROWS, strict=True):
        np.testing.assert_allclose(got, np.cumsum(x), rtol=1e-4, atol=1e-5)


class Batches:
    def __iter__(self):
        return (ROWS[i : i + 16] for i in range(0, len(ROWS), 16))


@pytest.mark.core("offsets", "generator")
@pytest.mark.parametrize(
    "given",
    [
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: jitney.ragged(VALUES, OFFSETS),
        lambda: jitney.ragged(jnp.asarray(VALUES), OFFSETS),
        lambda: jitney.ragged(np.stack([np.pad(x, (0, 30 - len(x))) for x in ROWS]), lengths=SIZES),
        Batches,
        lambda: iter(Batches()),
    ],
    ids=["list", "tuple", "offsets", "of jax", "lengths", "iterable", "generator"],
)
def test_a_stream_gives_what_the_call_gives(given):
    """So many rows at a time, with arrays that are mapped beside them."""
    holds(jitney.stream(mapped(), W, given(), SCALES, chunk={"row": 16}, progress=False))


def test_rows_of_a_file_are_read_in_parts(tmp_path):
    """Of HDF5, by offsets; a call reads them as a whole."""
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["values"], file["scales"] = VALUES, SCALES
        rows = jitney.ragged(file["values"], OFFSETS)
        holds(jitney.stream(mapped(), W, rows, file["scales"], chunk=16, progress=False))
        np.testing.assert_allclose(mapped()(W, rows, SCALES)["total"][0], 2 * ROWS[0].sum(), 1e-4)


def test_padded_results_are_joined():
    streamed = jitney.stream(
        mapped(ragged="padded"), W, ROWS, SCALES, chunk={"row": 9}, progress=False
    )
    assert isinstance(streamed.result["sums"], PaddedRows)
    assert streamed.result["sums"].lengths.tolist() == SIZES.tolist()
    holds(streamed)


def test_a_gradient_is_streamed():
    """Of each row, with respect to what they share."""

    def loss(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(w * x))

    f = jitney.optimize(vmap="row", pad={"n": "pow2"})(loss)
    got = jitney.stream(f.grad, W, ROWS, wrt="w", chunk={"row": 32}, progress=False).result
    np.testing.assert_allclose(got, [np.sum(np.cos(2 * x) * x) for x in ROWS], rtol=1e-3, atol=1e-4)


def test_statistics_count_rows_and_chunks():
    """Chunks of one size find the programs of the first."""
    f = mapped()
    stats = jitney.stream(f, W, ROWS, SCALES, chunk={"row": 20}, progress=False).stats
    assert (stats.chunks, stats.rows, stats.passes) == (4, 70, 1)
    assert f.stats.calls == 4
    with listening() as seen:
        jitney.stream(f, W, ROWS, SCALES, chunk={"row": 20}, progress=False)
    assert seen.count("compile") == 0


@pytest.mark.core("checkpoint", "axis", "beside", "ends", "none")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda f: jitney.stream(f, W, ROWS, SCALES, checkpoint="x", progress=False),
            OptionError,
            "checkpoint does not go with rows",
        ),
        (
            lambda f: jitney.stream(f, W, ROWS, SCALES, chunk={"n": 4}, progress=False),
            ContractError,
            "chunk names 'n', and rows are along 'row'",
        ),
        (
            lambda f: jitney.stream(f, W, ROWS, SCALES[:9], progress=False),
            ContractError,
            "'row' has two sizes, 70 from 'x' and 9 from 's'",
        ),
        (
            lambda f: jitney.stream(f, W, iter([ROWS[:9]]), SCALES, progress=False),
            ContractError,
            "behind row 9 arguments differ in the number of their rows: 0 and 61",
        ),
        (
            lambda f: jitney.stream(f, W, iter([ROWS, ROWS]), SCALES, progress=False),
            ContractError,
            "behind row 70 arguments differ in the number of their rows: 0 and 70",
        ),
        (
            lambda f: jitney.stream(f, W, [], SCALES[:0], progress=False),
            ContractError,
            "the stream has no rows",
        ),
    ],
    ids=["checkpoint", "axis", "beside", "ends", "goes on", "none"],
)
def test_what_cannot_be_is_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call(mapped())


@pytest.mark.core("dtype", "sizes")
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROWS[3].astype(np.float16), "row 37 of 'x' is float16 with 1 axes, and row 32 float32"),
        (None, "row 37 of 'x' is a NoneType"),
        (np.full(3, 1e300), "row 37: 'x' has dtype float64"),
        (np.ones(31, np.float32), "row 37: axis 'n' has two sizes, 31 from 'x' and"),
    ],
    ids=["dtype", "nothing", "past float32", "sizes"],
)
def test_an_error_names_the_row_of_the_caller(row, message):
    """And not that of the chunk."""

    @jitney.optimize(vmap="row", pad={"n": "pow2"})
    def f(x: Float[Array, "n"], y: Float[Array, "n"]):
        return jnp.sum(x * y)

    given = [*ROWS[:37], row, *ROWS[38:]]
    with pytest.raises(ContractError, match=message):
        f.stream(given, ROWS, chunk={"row": 16}, progress=False)


def sums(x: Float[Array, "n"]):
    return jnp.sum(x), jnp.cumsum(x)


@pytest.mark.core("some are empty")
@pytest.mark.parametrize(
    "chunks",
    [lambda: [ROWS[:20], ROWS[20:]], lambda: [[], ROWS[:20], [], ROWS[20:], []]],
    ids=["all", "some are empty"],
)
def test_all_arguments_may_be_generators_and_no_row_is_lost(chunks):
    f = jitney.optimize(vmap="row", pad={"n": "pow2"})(sums)
    totals, running = f.stream(iter(chunks()), progress=False).result
    np.testing.assert_allclose(totals, [x.sum() for x in ROWS], rtol=1e-4, atol=1e-5)
    assert [len(row) for row in running] == SIZES.tolist()


@pytest.mark.rest
def test_a_gradient_goes_through_a_stream_of_padded_results():
    f = jitney.optimize(vmap="row", pad={"n": "pow2"}, ragged="padded")(sums)

    def loss(s):
        scaled = [s * x for x in map(jnp.asarray, ROWS[:9])]
        return jnp.sum(f.stream(scaled, chunk={"row": 4}, progress=False).result[1].values)

    want = sum(np.cumsum(x).sum() for x in ROWS[:9])
    np.testing.assert_allclose(jax.grad(loss)(1.0), want, rtol=1e-4)


@pytest.mark.core("list")
@pytest.mark.parametrize("ragged", ["list", "padded"])
def test_chunks_may_differ_in_which_results_have_one_length(ragged):
    def tail(x: Float[Array, "n"]):
        return x[8:]

    given = [np.ones(n, np.float32) for n in (3, 4, 20, 12)]
    f = jitney.optimize(vmap="row", pad={"n": "pow2"}, ragged=ragged)(tail)
    out = f.stream(given, chunk={"row": 2}, progress=False).result
    assert [row.shape[0] for row in out] == [0, 0, 12, 4]


def test_an_iterable_that_yields_something_else_is_named():
    f = jitney.optimize(vmap="row", pad={"n": "pow2"})(sums)
    with pytest.raises(ContractError, match="'x' yields a int behind row 20"):
        f.stream(iter([ROWS[:20], 7]), progress=False)


def test_files_of_numpy_beside_rows_are_read(tmp_path):
    """One with an element for each row is cut with them, and one without is shared."""
    np.save(tmp_path / "s.npy", SCALES)
    np.save(tmp_path / "w.npy", W)
    for s, w in ((tmp_path / "s.npy", W), (str(tmp_path / "s.npy"), tmp_path / "w.npy")):
        holds(jitney.stream(mapped(), w, ROWS, s, chunk={"row": 32}, progress=False))
