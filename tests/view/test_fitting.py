"""Numbers of 64 bits where JAX has 32: they fit, or it is said, in each call and each way to run
one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Int64

from jitney import JitneyWarning, optimize, stream
from jitney.errors import ContractError
from tests._arrays import array

BIG = np.array([4294967301, 2147483648, 7])
TIMES = 1.7e9 + 64 * np.arange(5.0)


def same(x: Int[Array, "n"]) -> Int[Array, "n"]:
    return x + 0


def total(x: Int[Array, "n"]) -> Int[Array, ""]:
    return jnp.sum(x)


WAYS = {
    "a call": lambda: optimize(same),
    "padded": lambda: optimize(pad={"n": "pow2"})(same),
    "in chunks": lambda: optimize(chunk={"n": 2})(same),
    "under verify": lambda: optimize(verify=True)(same),
    "mapped": lambda: optimize(vmap={"row": {"x": 0}})(lambda x: x + 0),
    "unchecked": lambda: optimize(contracts=False)(same),
    "on one device of a mesh": lambda: optimize(shard={"n": "d"}, mesh=jax.make_mesh((1,), ("d",)))(
        same
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_integers_beyond_32_bits_are_an_error_in_each_call(way):
    """In the first, and in those behind calls that fit; what fits is computed."""
    f = WAYS[way]()
    for x in (BIG, np.array([-(2**31) - 1, 0, 1]), np.array([2**63], np.uint64)):
        with pytest.raises(ContractError, match="does not hold"):
            f(x)
    for x in (
        np.array([2**31 - 1, -(2**31), 7]),
        array(np.arange(3, dtype=np.int32)),
        np.arange(3),
    ):
        np.testing.assert_array_equal(f(x), x)
    for _ in range(3):
        with pytest.raises(ContractError, match=r"holds 4294967301, which int32 does not hold"):
            f(BIG)


def test_integers_in_trees_and_scalars_are_looked_at():
    """A dict of arrays, a number of NumPy's, call after call."""
    f = optimize(lambda tree, n: tree["a"] + n)
    for _ in range(4):
        np.testing.assert_array_equal(f({"a": np.arange(3)}, np.int64(2)), [2, 3, 4])
    for bad in (({"a": BIG}, np.int64(2)), ({"a": np.arange(3)}, np.int64(2**40))):
        with pytest.raises(ContractError, match="does not hold"):
            f(*bad)


def test_a_stream_looks_at_each_chunk(tmp_path):
    """In memory and in a file; the number that does not fit is in the last one."""
    x = np.arange(100)
    x[-1] = 2**33
    np.save(tmp_path / "x.npy", x)
    for data in (x, tmp_path / "x.npy"):
        with pytest.raises(ContractError, match="'x' has dtype int64 and holds 8589934592"):
            stream(optimize(total), data, chunk={"n": 10}, progress=False)


def test_with_64_bits_all_fits():
    """By the option, or by JAX's setting."""
    np.testing.assert_array_equal(optimize(precision="f64")(same)(BIG), BIG)
    with jax.enable_x64(True):
        f = optimize(same)
        for _ in range(3):
            np.testing.assert_array_equal(f(BIG), BIG)


def test_floats_that_lose_what_tells_them_apart_are_said():
    """Seconds since 1970, 64 apart; numbers that lose a little are no news."""
    f = optimize(lambda x: x * 1)
    with pytest.warns(JitneyWarning, match=r"move by up to 64 as float32"):
        f(TIMES)
    for x in (
        np.linspace(0, 1, 5),
        np.array([1e5, 1e5 + 1]),
        np.array([np.nan, np.inf, 0.1]),
        np.zeros(0),
        np.full(3, 0.1),
    ):
        optimize(lambda x: x * 1)(x)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_floats_beyond_float32_are_an_error():
    """They would be infinite."""
    with pytest.raises(ContractError, match=r"holds 1e\+300, which float32 does not hold"):
        optimize(lambda x: x * 1)(np.array([1e300]))


def test_an_annotation_of_64_bits_says_what_would_give_them():
    """A cast of the argument would not."""

    @optimize
    def f(x: Int64[Array, "n"]):
        return x

    with pytest.raises(
        ContractError,
        match=(
            r"reaches the body as int32(.|\n)*precision=\"f64\"(.|\n)*annotate `Int\[Array, ...\]`"
        ),
    ):
        f(np.arange(3))


def test_an_annotation_of_floats_keeps_its_message_for_integers():
    """They have a dtype that no setting would make another."""

    @optimize
    def f(x: Float[Array, "n"]):
        return x

    with pytest.raises(ContractError, match=r"has dtype int32(.|\n)*`.astype"):
        f(np.arange(3, dtype=np.int32))
