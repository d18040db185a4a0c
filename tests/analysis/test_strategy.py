"""`jitney.analysis.strategy`: in memory, in chunks, or read piece by piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney.analysis import strategy
from jitney.errors import AxisError, ContractError, OptionError

SIZES = {"n": 10**6, "k": 4}


@optimize
def energy(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, ""]:
    """16 MB of data, and as much again for the sorted rows."""
    return jnp.sum(jnp.sort(x, axis=1) @ w)


def test_what_fits_is_worked_on_in_memory():
    """With the bytes that the compiler says."""
    found = strategy(energy, sizes=SIZES, memory="1GiB")
    compiled = (
        jax.jit(energy.__wrapped__)
        .lower(jax.ShapeDtypeStruct((4,), "f4"), jax.ShapeDtypeStruct((10**6, 4), "f4"))
        .compile()
    )
    said = compiled.memory_analysis()
    assert found.chosen.name == "in memory"
    assert found.chosen.bytes == said.temp_size_in_bytes + said.argument_size_in_bytes
    assert (found.axis, found.size, found.memory) == ("n", 10**6, 2**30)


@pytest.mark.rest
def test_chunks_where_the_values_do_not_fit():
    """And such a chunk keeps to it."""
    found = strategy(energy, sizes=SIZES, memory="20MB")
    assert found.chosen.name == "chunked"
    f = optimize(energy.__wrapped__, chunk={"n": found.chosen.chunk})
    said = f.lower(jnp.ones(4), jnp.ones((10**6, 4))).compile().memory_analysis()
    assert said.temp_size_in_bytes + said.argument_size_in_bytes <= 20e6


@pytest.mark.rest
def test_a_stream_where_the_data_do_not_fit():
    """As long as it takes; the chunks of "auto" keep to the program's memory."""
    found = strategy(energy, sizes={"n": 10**9, "k": 4}, memory="1MiB")
    assert found.chosen.name == "streamed"
    assert found.chosen.bytes <= 2**20
    small = optimize(energy.__wrapped__, memory="1MiB")
    x = np.random.default_rng(0).normal(size=(200_000, 4)).astype(np.float32)
    value, stats = stream(small, w=np.ones(4, np.float32), x=x, chunk={"n": "auto"}, progress=False)
    np.testing.assert_allclose(value, x.sum(dtype=float), rtol=1e-3)
    assert stats.chunks == -(-200_000 // found.chosen.chunk)


def test_nothing_fits():
    """Each way says how much it takes at least."""
    found = strategy(energy, sizes=SIZES, memory=10)
    assert found.chosen is None
    assert all(way.bytes > 10 for way in found.ways)


def test_what_cannot_be_cut_is_worked_on_in_memory_or_not_at_all():
    """The ways that cut say why not."""

    @optimize
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.fft.fft(jnp.sin(x)).real

    found = strategy(f, sizes={"n": 1000}, memory="1GiB")
    assert found.chosen.name == "in memory"
    assert [way.bytes for way in found.ways[1:]] == [None, None]
    assert "transforms along it" in found.ways[2].why


def test_examples_stand_for_sizes():
    """Arrays, by position and by name; nothing is run."""
    found = strategy(
        energy, jnp.ones(4), x=jax.ShapeDtypeStruct((10**6, 4), np.float32), memory="1GiB"
    )
    assert found.size == 10**6
    assert energy.stats.calls == 0


@pytest.mark.rest
def test_options_of_the_program_stay():
    """In double precision the arguments are still what they were, and the values take twice as
    much.
    """
    small = strategy(energy, sizes=SIZES, memory="10GiB").chosen.bytes
    large = strategy(
        optimize(energy.__wrapped__, precision="f64"), sizes=SIZES, memory="10GiB"
    ).chosen.bytes
    assert large > 1.3 * small


@pytest.mark.rest
def test_it_prints_a_table():
    """The chosen way is marked."""
    said = str(strategy(energy, sizes=SIZES, memory="20MB"))
    assert said.splitlines()[0].endswith("n = 1,000,000, in 19.07 MiB")
    assert "->  chunked" in said


def test_bad_questions_are_refused():
    """With a sentence."""
    with pytest.raises(OptionError, match="memory='much' is not a size"):
        strategy(energy, sizes=SIZES, memory="much")
    with pytest.raises(ContractError, match="no array has an axis with a name"):
        strategy(optimize(lambda x: x), jnp.ones(3))
    with pytest.raises(ContractError):
        strategy(energy, sizes={"n": 3})
    with pytest.raises(AxisError, match="axis 'n' has 3,000,000,000 elements"):
        strategy(energy, sizes={"n": 3 * 10**9, "k": 4})
