"""How many rows run at a time, in which buckets: `chunk`, `memory`, `pad="auto"`, and `compile`."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import Bucket, optimize
from jitney.errors import AxisError, ContractError, OptionError
from tests._monitor import listening

RNG = np.random.default_rng(5)


def rows(*sizes):
    return [RNG.normal(size=n).astype(np.float32) for n in sizes]


def body(w: Float[Array, ""], y: Float[Array, "n"]):
    return w * jnp.sum(y) / (1 + y.shape[0]), jnp.cumsum(y)


def mapped(fn=body, **options):
    return optimize(**{"vmap": "row", "pad": {"n": "pow2"}, **options})(fn)


W = np.float32(3)
Y = rows(3, 8, 1, 20, 5, 0, 3, *[6] * 9)


def close(got, given):
    mean, sums = got
    np.testing.assert_allclose(
        mean, [3 * y.sum() / (1 + len(y)) for y in given], rtol=1e-5, atol=1e-6
    )
    for a, y in zip(sums, given, strict=True):
        np.testing.assert_allclose(a, np.cumsum(y), rtol=1e-5, atol=1e-5)


def runs(f, *arguments):
    """How many programs the plan runs."""
    text = " ".join(str(f.plan(*arguments)).split())
    return int(re.search(r"(\d+) runs?", text)[1])


@pytest.mark.parametrize(
    ("options", "name", "why"),
    [
        ({}, "vmap", "'row', over the rows of a block, 8 at most"),
        ({"chunk": {"row": 3}}, "chunk", "3 rows of 'row' at most"),
        ({"memory": "1GiB"}, "chunk", "programs of 1 GiB at most"),
        ({"verify": True}, "verify", "rows of new shapes are compared"),
    ],
)
def test_the_plan_has_the_options_of_all_rows(options, name, why):
    """The plan of one row, which has none of them, says that they were not asked for."""
    lines = [line for line in mapped(**options).plan(W, Y).lines if line.name == name]
    assert [line.taken for line in lines] == [True]
    assert why in lines[0].why


def test_settings_of_the_plan_are_those_of_the_function():
    (settings,) = (x for x in mapped(verify=True).plan(W, Y).lines if x.name == "settings")
    assert "verify=True by the option" in settings.why


@pytest.mark.core("3")
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_chunk_bounds_the_rows_of_a_program(size):
    f = mapped(chunk={"row": size})
    close(f(W, Y), Y)
    assert runs(f, W, Y) >= len(Y) / size


def test_rows_of_one_length_are_cut_too():
    """An array that `vmap` maps: the results are arrays, of its own length."""
    given = RNG.normal(size=(10, 6)).astype(np.float32)
    mean, sums = mapped(chunk={"row": 4})(W, given)
    assert isinstance(sums, jax.Array)
    assert sums.shape == (10, 6)
    close((mean, sums), [*given])


def matrix(y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sin(jnp.outer(y, y) @ jnp.outer(y, y)))


def test_memory_bounds_the_rows_of_a_program():
    """As the compiler counts; results are the same."""
    given = rows(*[60] * 40)
    loose, tight = mapped(matrix, memory="1GiB"), mapped(matrix, memory="300KiB")
    np.testing.assert_allclose(tight(given), loose(given), rtol=1e-5)

    assert runs(tight, given) > runs(loose, given)
    with listening() as seen:
        tight(given)
    assert seen.count("compile") == 0


def test_a_row_that_takes_more_than_memory_is_an_error():
    """That names a budget which does."""
    f = mapped(matrix, memory="20KiB")
    with pytest.raises(AxisError, match=r"a row of 'row' takes .* more than its memory") as raised:
        f(rows(60))
    enough = int(re.search(r"memory=(\d+)", str(raised.value))[1])
    mapped(matrix, memory=enough)(rows(60))


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": {"n": 4}},
        {"chunk": {"row": 4}, "pad": {"row": "pow2"}},
        {"chunk": {"row": "fast"}},
    ],
)
def test_only_rows_are_cut_where_others_are_padded(options):
    with pytest.raises(OptionError, match="`pad` and `chunk` together"):
        mapped(**options)


def test_lengths_choose_the_buckets():
    """By the first call; later ones find its programs, or powers of two above."""
    f = mapped(pad={"n": Bucket(ladder="auto", count=2)}, cache=False)
    given = rows(5, 5, 6, 40, 41)
    close(f(W, given), given)
    assert "n=2-6: 3" in str(f.plan(W, given))
    assert "n=7-42: 2" in str(f.plan(W, given))
    fresh = rows(3, 6, 5, 42, 20)
    with listening() as seen:
        close(f(W, fresh), fresh)
    assert seen.count("compile") == 0
    longer = rows(3, 500, 64, 65)
    close(f(W, longer), longer)
    assert "n=257-512: 1" in str(f.plan(W, longer))
    assert "n=43-64: 1" in str(f.plan(W, longer))


@pytest.mark.rest
def test_chosen_buckets_pad_less_than_powers_of_two():
    given = rows(*[33] * 30, *[65] * 30)
    paddings = []
    for pad in ("pow2", "auto"):
        f = mapped(pad={"n": pad})
        close(f(W, given), given)
        paddings.append(f.stats.padding["n"])
    assert paddings[1] < 0.05 < paddings[0]


def test_one_array_is_padded_to_a_power_of_two_under_auto():
    given = RNG.normal(size=(2, 6)).astype(np.float32)
    f = mapped(pad={"n": "auto"})
    close(f(W, given), [*given])
    assert "n 6 -> 8" in str(f.plan(W, given))


def test_rows_are_compiled_ahead():
    """By their shapes alone; a call of as many rows or fewer compiles nothing."""
    mapped(chunk={"row": 2})(W, rows(4))  # what a first call of this process compiles
    f = mapped()
    lengths = (3, 8, 1, 20, 5, 0, *[7] * 9)
    assert f.compile(W, [jax.ShapeDtypeStruct((n,), np.float32) for n in lengths]) is f
    for given in (rows(*lengths), rows(5, 6, 7, 19), rows(1)):
        with listening() as seen:
            out = f(W, given)
        assert seen.count("compile") == 0
        close(out, given)


@pytest.mark.rest
def test_a_gradient_is_compiled_ahead():
    f = mapped(matrix)
    given = rows(5, 6, 7)
    f.grad.compile(given, wrt="y")
    with listening() as seen:
        got = f.grad(given, wrt="y")
    assert seen.count("compile") == 0
    for a, y in zip(got, given, strict=True):
        np.testing.assert_allclose(a, jax.grad(matrix)(y), rtol=1e-3, atol=1e-3)


def test_shapes_are_no_rows_of_a_call():
    with pytest.raises(ContractError, match="is a shape, and no array"):
        mapped()(W, [jax.ShapeDtypeStruct((3,), np.float32)])


def product(t: Float[Array, "n"], y: Float[Array, "n"]):
    return jnp.cumsum(t * y)


def test_arrays_of_the_sizes_of_a_bucket_share_its_program():
    """Of the one that rows share too, in any order of sizes."""
    f = mapped(product, chunk={"row": 2}, cache=False)
    for n in (5, 8, 6, 7, 5):
        t, y = RNG.normal(size=n).astype(np.float32), RNG.normal(size=(4, n)).astype(np.float32)
        np.testing.assert_allclose(f(t, y), np.cumsum(t * y, 1), rtol=1e-5, atol=1e-5)
    assert f.stats.compiles == 1


def means(y: Float[Array, "n k"]):
    return jnp.mean(y, 0)


@pytest.mark.rest
def test_arrays_with_another_axis_of_another_size_do_not():
    f = mapped(means, chunk={"row": 2}, cache=False)
    for n in (5, 6):
        for k in (2, 3):
            y = RNG.normal(size=(4, n, k)).astype(np.float32)
            np.testing.assert_allclose(f(y), y.mean(1), rtol=1e-5, atol=1e-5)
    assert f.stats.compiles == 2
