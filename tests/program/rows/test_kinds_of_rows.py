"""Rows of another kind among those of a list: each is right or refused by its number, wherever it
stands. References: NumPy in float64.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jitney
from jitney.errors import ContractError

RNG = np.random.default_rng(0)
SIZES = RNG.integers(2, 16, 20)
FLOATS = [RNG.normal(size=n).astype(np.float32) for n in SIZES]
WHOLE = [RNG.integers(1, 9, n).astype(np.int32) for n in SIZES]
PAIRS = [RNG.normal(size=(n, 2)).astype(np.float32) for n in SIZES]
ROW = FLOATS[7]


class Alike(np.ndarray):
    """A subclass that is its numbers alone."""


class Measured(np.ndarray):
    """A subclass with a unit."""

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", "m")


@jitney.optimize(vmap="row", pad={"n": "pow2"})
def total(y: Float[Array, "n"]):
    return jnp.sum(y)


@jitney.optimize(vmap="row", pad={"n": "pow2"})
def largest(y: Int[Array, "n"]):
    return jnp.max(y)


@jitney.optimize(vmap="row", pad={"n": "pow2"})
def total_of_pairs(y: Float[Array, "n k"]):
    return jnp.sum(y)


def put(rows, row, at):
    return [*rows[:at], row, *rows[at + 1 :]]


def locked(row):
    row = row.copy()
    row.setflags(write=False)
    return row


def shifted(row):
    """The row at an address that no float has."""
    return np.frombuffer(b"x" + row.tobytes(), np.uint8)[1:].view(np.float32)


at_an_end = pytest.mark.parametrize("at", [0, 7, 19])


@at_an_end
@pytest.mark.core("subclass-*", "float64-*", "strided-*")
@pytest.mark.parametrize(
    "row",
    [
        ROW.view(Alike),
        ROW.astype(np.float64),
        ROW[:0],
        jnp.asarray(ROW),
        jax.device_put(ROW, jax.devices()[0]),
        locked(ROW),
        np.repeat(ROW, 2)[::2],
        ROW[::-1],
        np.broadcast_to(np.float32(2), 7),
        shifted(ROW),
    ],
    ids=[
        "subclass",
        "float64",
        "empty",
        "of JAX",
        "on a device",
        "read-only",
        "strided",
        "reversed",
        "broadcast",
        "misaligned",
    ],
)
def test_a_row_of_another_kind_counts_as_its_numbers(row, at):
    given = put(FLOATS, row, at)
    want = [np.asarray(each, np.float64).sum() for each in given]
    np.testing.assert_allclose(total(given), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("f", "rows"),
    [
        (total, [np.repeat(row, 2)[::2] for row in FLOATS]),
        (total, [shifted(row) for row in FLOATS]),
        (total_of_pairs, [np.asfortranarray(row) for row in PAIRS]),
        (total_of_pairs, [*map(np.asfortranarray, PAIRS[:9]), *PAIRS[9:]]),
    ],
    ids=["strided", "misaligned", "by columns", "some by columns"],
)
def test_rows_in_another_order_of_memory(f, rows):
    want = [row.astype(np.float64).sum() for row in rows]
    np.testing.assert_allclose(f(rows), want, rtol=1e-5, atol=1e-5)


@at_an_end
@pytest.mark.core("masked-*", "unit-*", "past float32-*", "byte-swapped-*")
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (np.ma.array(ROW, mask=ROW > 0), "'y' is a numpy.ma.MaskedArray, which is more than"),
        (ROW.view(Measured), "'y' is a .*Measured, which is more than its numbers"),
        (np.full(3, 1e300), "'y' has dtype float64 and holds 1e.300, which float32 does not"),
        (ROW.astype(np.float16), "float16 with 1 axes"),
        (np.arange(3, dtype=np.int32), "int32 with 1 axes"),
        (np.array([True, False]), "bool with 1 axes"),
        (ROW.astype(">f4"), ">f4 with 1 axes"),
        (ROW.astype(object), "object with 1 axes"),
        (np.array(["a"]), "<U1 with 1 axes"),
        (PAIRS[7], "float32 with 2 axes"),
        (ROW[:, None], "float32 with 2 axes"),
        (np.array(2, np.float32), "float32 with 0 axes"),
        (np.float32(2), "float32 with 0 axes"),
        (jnp.full((3,), 2.0), "weakly typed float32 with 1 axes"),
        ([1.0, 2.0], "'y' is a list"),
        (None, "'y' is a NoneType"),
    ],
    ids=[
        "masked",
        "unit",
        "past float32",
        "float16",
        "int32",
        "bool",
        "byte-swapped",
        "object",
        "text",
        "two axes",
        "one column",
        "no axis",
        "a number",
        "weak",
        "list",
        "nothing",
    ],
)
def test_a_row_that_does_not_fit_is_named(row, message, at):
    """By its number; of row 0 it is the first one behind that differs from it."""
    with pytest.raises(ContractError, match=message) as raised:
        total(put(FLOATS, row, at))
    named = set(map(int, re.findall(r"\brow (\d+)", str(raised.value))))
    assert named & {at, 1 if at == 0 else at}


@at_an_end
def test_a_whole_number_of_64_bits_among_those_of_32_is_found(at):
    """It became another number."""
    given = put(WHOLE, np.array([3, 12]), at)
    np.testing.assert_array_equal(largest(given), [row.max() for row in given])
    with pytest.raises(ContractError, match=f"row {at}: 'y' has dtype int64 and holds 1099511627"):
        largest(put(WHOLE, np.array([3, 2**40]), at))


def test_lists_of_byte_swapped_and_of_objects_are_refused():
    for rows in ([row.astype(">f4") for row in FLOATS], [row.astype(object) for row in FLOATS]):
        with pytest.raises(ContractError, match="'y' is an array of"):
            total(rows)
