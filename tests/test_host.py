"""`jitney.host`: metrics on the host, without waiting."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney


def test_a_tree_of_metrics_comes_back_as_numbers_and_numpy_arrays():
    """Rank 0 becomes a number of Python; what is not an array stays what it is."""
    tree = {
        "loss": jnp.float32(0.5),
        "count": jnp.int32(7),
        "good": jnp.bool_(True),
        "by": jnp.arange(3.0),
        "name": "a",
        "none": None,
    }
    found = jitney.host(tree).result()
    assert (found["loss"], found["count"], found["good"], found["name"], found["none"]) == (
        0.5,
        7,
        True,
        "a",
        None,
    )
    assert [type(found[name]) for name in ("loss", "count", "good")] == [float, int, bool]
    np.testing.assert_array_equal(found["by"], np.arange(3.0))


@pytest.mark.core("bool", "int4", "uint8", "int16", "uint32", "float16", "bfloat16")
@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int4",
        "uint8",
        "int16",
        "uint32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float32",
        "complex64",
    ],
)
def test_every_dtype_keeps_its_values(dtype):
    """The bytes that travel are the values."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(kind)
    found = jitney.host((jnp.asarray(values), jnp.float32(1.0))).result()[0]
    assert found.dtype == kind
    np.testing.assert_array_equal(found.astype(np.complex64), values.astype(np.complex64))


def test_doubles_keep_their_bits_outside_the_scope_that_made_them():
    """A float64 is no float32 on the way."""
    with jax.enable_x64(True):
        double = jnp.asarray(np.array([np.pi, 1e300]))
    np.testing.assert_array_equal(jitney.host([double, jnp.float32(1)]).result()[0], [np.pi, 1e300])


def test_empty_arrays_and_trees_without_arrays():
    """Nothing to send is no special case."""
    assert jitney.host({"a": 1, "b": ()}).result() == {"a": 1, "b": ()}
    assert jitney.host(jnp.zeros((0, 3))).result().shape == (0, 3)


def test_random_keys_come_as_their_numbers():
    """A key has no NumPy dtype; its data has."""
    np.testing.assert_array_equal(
        jitney.host(jax.random.key(3)).result(), jax.random.key_data(jax.random.key(3))
    )


def test_what_is_fetched_survives_donation():
    """The next step may take the buffers."""

    @jitney.optimize(donate="x")
    def step(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x + 1.0

    x = step(jnp.zeros(4))
    later = jitney.host({"x": x})
    step(x)
    np.testing.assert_array_equal(later.result()["x"], np.ones(4))


def test_a_tree_is_one_transfer():
    """However many arrays it has, one array is copied."""
    tree = [jnp.float32(i) for i in range(20)]
    later = jitney.host(tree)
    assert [parcel.packed.nbytes for parcel in later._parcels] == [80]
    assert later.result() == list(range(20))
    assert later.done()


def test_inside_a_step_it_is_an_error():
    """A traced array has no value to fetch."""

    @jitney.optimize
    def step(x: Float[Array, "n"]):
        return {"loss": jitney.host({"loss": x.sum()}).result()["loss"]}

    with pytest.raises(jitney.JitneyError, match=r"\['loss'\] is traced"):
        step(jnp.ones(3))


def test_reading_a_float_inside_a_step_names_its_line():
    """`float(loss)` in the body says where."""

    @jitney.optimize
    def step(x: Float[Array, "n"]):
        loss = x.sum()
        return {"loss": float(loss)}

    with pytest.raises(
        jitney.errors.TraceError, match=r'test_host.py:\d+ \(`return {"loss": float\(loss\)}`\)'
    ):
        step(jnp.ones(3))
