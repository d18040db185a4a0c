"""The memory of chunks is used again, and nobody sees it. References: NumPy, calls on the whole."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney._stream.data.chunk_memory import ChunkMemory
from tests._switched import environment
from tests.stream._sources import SOURCES
from tests.stream.test_stream import saved

X = np.random.default_rng(4).normal(size=100).astype(np.float32)
KINDS = ["NumPy", "memory map", "path", "paths", "HDF5", "device"]


@optimize
def moment(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
    """Its derivative needs each chunk: `x` times the cosine."""
    return jnp.sum(jnp.sin(w * x))


@optimize
def last(x: Float[Array, "n"]) -> tuple[Float[Array, "1"], Float[Array, ""]]:
    return x[-1:], jnp.max(x)


@pytest.mark.core("path")
@pytest.mark.parametrize("kind", KINDS)
def test_a_derivative_around_a_stream_has_each_chunk(kind, tmp_path):
    """JAX keeps the chunks themselves until the derivative is taken."""
    data = SOURCES[kind](X, tmp_path)
    got = jax.grad(lambda w: stream(moment, w, data, chunk={"n": 8}, progress=False).result)(0.5)
    np.testing.assert_allclose(got, np.sum(X * np.cos(0.5 * X)), rtol=1e-5)


@pytest.mark.core("None-1", "eager-8")
@pytest.mark.parametrize("chunk", [1, 8])
@pytest.mark.parametrize("scope", [None, "disable_jit", "eager"])
def test_what_is_carried_is_no_part_of_a_chunk(chunk, scope, tmp_path):
    """A chunk of one element has the shape of what is carried."""
    path = saved(X, tmp_path)
    scopes = {
        None: lambda: environment(),
        "disable_jit": jax.disable_jit,
        "eager": lambda: environment(JITNEY_DISABLE="eager"),
    }
    with scopes[scope]():
        tail, top = stream(last, path, chunk={"n": chunk}, progress=False).result
    np.testing.assert_array_equal(tail, X[-1:])
    assert top == X.max()


def test_results_along_the_axis_are_each_chunks_own(tmp_path):
    """They are fetched while the next step runs."""

    @optimize
    def both(x: Float[Array, "n"]):
        return x, jnp.cumsum(x), jnp.sum(x)

    same, sums, _ = stream(both, saved(X, tmp_path), chunk={"n": 7}, progress=False).result
    np.testing.assert_array_equal(same, X)
    np.testing.assert_allclose(sums, np.cumsum(X), rtol=1e-5, atol=1e-5)


def test_memory_of_a_chunk_is_that_before_the_last():
    memory = ChunkMemory(is_used_again=True)
    starts = []
    for _ in range(4):
        memory.next_chunk()
        array = memory.array(0, (3, 5), np.float32)
        assert array.shape == (3, 5)
        starts.append(array.ctypes.data)
    assert starts[0] == starts[2] != starts[1] == starts[3]
    assert not any(start % 64 for start in starts)


def test_memory_that_is_kept_is_not_used_again():
    memory = ChunkMemory(is_used_again=False)
    arrays = []
    for _ in range(4):
        memory.next_chunk()
        arrays.append(memory.array(0, (30,), np.float64))
    for a, b in itertools.combinations(arrays, 2):
        assert not np.shares_memory(a, b)


@pytest.mark.parametrize("size", [2**20, 2**21 - 1, 2**21, 5 * 2**20, 6 * 2**20 + 1])
def test_large_memory_is_whole_huge_pages(size):
    """Those of its last bytes too: the system gives only pages that lie within the memory."""
    memory = ChunkMemory(is_used_again=True)
    memory.next_chunk()
    for array in (memory.array(0, (size,), np.uint8), memory.piece((size,), np.uint8)):
        owner = array.base
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        end = owner.ctypes.data + owner.nbytes
        assert array.nbytes == size
        assert array.ctypes.data % 2**21 == 0
        assert array.ctypes.data + -(-size // 2**21) * 2**21 <= end
        # NumPy asks for them from here on.
        assert owner.nbytes >= 2**22


def test_memory_of_pieces_grows_and_is_used_again():
    memory = ChunkMemory(is_used_again=False)
    first, second = memory.piece((3, 5), np.float64), memory.piece((2, 5), np.float64)
    assert first.ctypes.data == second.ctypes.data
    assert memory.piece((4, 5), np.int64).shape == (4, 5)
