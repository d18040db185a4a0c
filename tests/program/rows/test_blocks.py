"""Blocks of rows: the memory that they are filled in, and the programs that take them."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Shaped

import jitney
from jitney import optimize
from jitney._program.rows import blocks, lots

RNG = np.random.default_rng(0)


@optimize(vmap="row", pad={"n": "pow2"}, cache=False)
def spread(x: Float[Array, "n"]):
    return jnp.max(x) - jnp.mean(x), x


def close(got, rows):
    for row, found, same in zip(rows, got[0], got[1], strict=True):
        np.testing.assert_allclose(found, np.max(row) - np.mean(row, dtype=np.float64), 1e-5, 1e-6)
        np.testing.assert_array_equal(same, row)


def mixture(count, longest=60):
    return [RNG.normal(size=n).astype(np.float32) for n in RNG.integers(2, longest, count)]


@pytest.mark.parametrize("chunk", [128, 1 << 12, 1 << 24])
def test_results_stay_where_the_memory_of_a_call_is_given_back(monkeypatch, chunk):
    """Also results that are arguments: no later block is written to where one was."""
    monkeypatch.setattr(blocks, "_CHUNK", chunk)
    calls = [mixture(40) for _ in range(3)]
    found = [spread(rows) for rows in calls]
    for got, rows in zip(found, calls, strict=True):
        close(got, rows)


def test_parts_of_the_memory_of_a_call_are_aligned_and_apart():
    wide, narrow = np.dtype(np.float32), np.dtype(np.int8)
    room = blocks.Room({wide: 50, narrow: 9})
    shapes = [((3, 5), wide), ((7,), narrow), ((2, 8), wide), ((100,), wide), ((0, 4), wide)]
    arrays = [room.array(*given) for given in shapes]
    assert [(each.shape, each.dtype) for each in arrays] == shapes
    assert all(each.ctypes.data % 64 == 0 for each in arrays if each.size)
    for number, each in enumerate(arrays):
        each[...] = number
    assert [set(each.ravel().tolist()) for each in arrays] == [{0}, {1}, {2}, {3}, set()]


def _ragged(rows, dtype=np.float32, step=1):
    """Rows of one array, of which only each `step`-th element is theirs."""
    values = np.concatenate(rows).astype(dtype)
    whole = np.zeros((len(values) * step, *values.shape[1:]), dtype)
    whole[::step] = values
    return jitney.ragged(whole[::step], np.cumsum([0, *map(len, rows)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16])
@pytest.mark.parametrize("step", [1, 2], ids=["in a row", "strided"])
def test_rows_of_one_array_are_copied_as_they_are(dtype, step):
    """Also in a type that JAX has not, and the last rows, behind which the array ends."""
    rows = [row.astype(jnp.bfloat16).astype(np.float32) for row in mixture(40)]
    same = optimize(vmap="row", pad={"n": [64]}, cache=False)(_same)
    for row, found in zip(rows, same(_ragged(rows, dtype, step)), strict=True):
        np.testing.assert_array_equal(np.asarray(found, np.float32), row)


def _same(x: Float[Array, "n"]):
    return x


def test_rows_with_further_axes_are_copied_as_they_are():
    @optimize(vmap="row", pad={"n": [32]}, cache=False)
    def total(x: Float[Array, "n k"]):
        return jnp.sum(x, axis=0), x

    rows = [RNG.normal(size=(n, 3)).astype(np.float32) for n in (5, 30, 2, 7)]
    sums, same = total(_ragged(rows))
    np.testing.assert_allclose(sums, [row.sum(0) for row in rows], rtol=1e-5)
    for row, found in zip(rows, same, strict=True):
        np.testing.assert_array_equal(found, row)


@optimize(vmap="row", pad={"n": "pow2"}, cache=False)
def squares(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def test_fresh_mixtures_compile_nothing():
    """Fifty mixtures of the same distribution, after one call."""
    squares(mixture(300))
    fresh = [mixture(300) for _ in range(50)]
    with jitney.watch() as seen:
        results = [squares(rows) for rows in fresh]
    assert seen.compiles == 0
    for got, rows in zip(results, fresh, strict=True):
        np.testing.assert_allclose(got, [np.sum(row**2) for row in rows], rtol=1e-5)


LENGTHS = {
    "log-normal": lambda draw: np.exp(draw.normal(np.log(150), 0.8, 10_000)).clip(2, 8_000),
    "uniform": lambda draw: draw.uniform(2, 1_000, 10_000),
    "bimodal": lambda draw: np.where(
        draw.random(10_000) < 0.8, draw.uniform(20, 60, 10_000), draw.uniform(900, 1_000, 10_000)
    ),
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_ten_thousand_rows_need_no_other_program(kind):
    """Of buckets that the first call had, by the numbers of rows alone."""
    draw = np.random.default_rng(0)
    known = {}
    for call in range(51):
        lengths = LENGTHS[kind](draw).astype(int)
        taken = [1 << (n - 1).bit_length() for n in lengths.tolist()]
        buckets, counts = np.unique(taken, return_counts=True)
        whole = int(buckets @ counts)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            seen = known.setdefault(bucket, set())
            parts = lots.known_rungs_of(
                count,
                1 << 16,
                exactly=False,
                cheap=whole // 8 // len(buckets) // bucket,
                rungs=lots.RUNGS,
                known=seen,
            )
            assert sum(rows for rows, _ in parts) == count
            taken = {rung for _, rung in parts}
            assert call == 0 or not seen or taken <= seen
            seen |= taken


def cut(count, known, cheap=0, *, exactly=False, most=512):
    return lots.known_rungs_of(
        count, most, exactly=exactly, cheap=cheap, rungs=lots.RUNGS, known=known
    )


def test_programs_that_there_are_serve_other_numbers_of_rows():
    assert cut(60, {64}) == [(60, 64)]
    assert cut(45, {64}) == [(45, 64)]
    assert cut(70, {8}) == [(8, 8)] * 8 + [(6, 8)]
    # Not at any price: here another program is compiled.
    assert cut(20, {64}) == [(8, 8), (8, 8), (1, 1), (1, 1), (1, 1), (1, 1)]
    assert cut(20, {64}, cheap=11) == [(20, 64)]
    assert cut(512, {8}) == [(512, 512)]
    # An effect of a row happens once, and no program is larger than its bound.
    assert cut(60, {64}, exactly=True) == [(8, 8)] * 7 + [(1, 1)] * 4
    assert cut(60, {64}, most=8) == [(8, 8)] * 7 + [(4, 8)]


@optimize(vmap="row", pad={"n": "pow2"}, cache=False)
def kept(x: Shaped[Array, "n ..."]):
    return x, jnp.sum(x.astype(bool))


@optimize(vmap="row", pad={"n": "pow2", "m": "pow2"}, cache=False)
def kept_along_two(x: Shaped[Array, "n m"]):
    return x, jnp.sum(x.astype(bool))


def every_second(row):
    return np.repeat(row, 2)[::2]


def one_in_ten_every_second(row):
    return every_second(row) if len(row) % 10 == 3 else row


FORMS = {
    "short": (kept, (), lambda row: row),
    "few": (kept, (), lambda row: row),
    "long": (kept, (), lambda row: np.resize(row, 4_097 + len(row))),
    "of pairs": (kept, (2,), lambda row: row),
    "of wide elements": (kept, (40,), lambda row: row),
    "of columns first": (kept, (2,), np.asfortranarray),
    "of unlike widths": (kept_along_two, (4,), lambda row: row[:, : 2 + len(row) % 3]),
    "not contiguous": (kept, (), every_second),
    "some not contiguous": (kept, (), one_in_ten_every_second),
    "bfloat16": (kept, (), lambda row: row.astype(jnp.bfloat16)),
    "float64": (kept, (), lambda row: row.astype(np.float64)),
    "booleans": (kept, (), lambda row: row > 0),
    "int8": (kept, (), lambda row: (10 * row).astype(np.int8)),
    "read-only": (kept, (), lambda row: np.frombuffer(row.tobytes(), row.dtype)),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_filled_in_whatever_their_memory_is(form):
    """Short rows are joined as buffers, others are copied one by one."""
    f, others, change = FORMS[form]
    count = 3 if form in ("few", "long") else 40
    lengths = RNG.integers(5, 17, count)
    rows = [change(RNG.normal(size=(n, *others)).astype(np.float32)) for n in lengths]
    got, counts = f(rows)
    for row, own, nonzero in zip(rows, got, counts, strict=True):
        np.testing.assert_array_equal(np.asarray(own), row.astype(own.dtype))
        assert int(nonzero) == np.count_nonzero(row.astype(own.dtype))
