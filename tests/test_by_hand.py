"""What benchmarks have by hand beside ours gives the same, by arithmetic of NumPy's in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.perf import looks, starts, stream


@pytest.mark.parametrize("size", [20, 25, 32])
def test_a_mask_by_hand_is_the_body_at_exact_size(size):
    """Of `tests.perf.looks`, at sizes of one bucket."""
    x = np.linspace(-1, 1, size).astype(np.float32)
    want, places = x.astype(np.float64), np.arange(size) + 1
    for k in range(looks.LAYERS):
        want = np.tanh(want * (k + 1) / places) + np.cos(want) * want.mean()
    np.testing.assert_allclose(looks.by_hand()(x), want, rtol=1e-4, atol=1e-5)


def test_sizes_of_a_bucket_share_one_trace_by_hand():
    """Otherwise it would be slower than it has to be."""
    traces = []
    f = looks.by_hand(lambda: traces.append(1))
    for size in (20, 25, 32):
        f(np.ones(size, np.float32))
    assert len(traces) == 1


def test_a_loop_over_chunks_by_hand_is_the_gradient(monkeypatch):
    """Of `tests.perf.stream`, with a last chunk that is shorter."""
    monkeypatch.setattr(stream, "CHUNK", 64)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(150, 4)), rng.normal(size=150)
    w = stream.WEIGHTS
    curve = np.tanh(x @ w)
    want = 2 * ((curve - y) * (1 - curve**2)) @ x / 150
    got = stream.by_hand(w, x, y)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_program_from_a_file_by_hand_gives_what_the_function_gives(tmp_path):
    """Of `tests.perf.starts`: the second call finds the file, and traces nothing."""
    rng = np.random.default_rng(0)
    tree, x = {"w": rng.normal(size=(3, 4)), "times": 2}, rng.normal(size=(5, 4))
    traces = []

    def fn(tree, x):
        traces.append(1)
        return [tree["times"] * jnp.tanh(x @ tree["w"].T)]

    program, arrays = starts.plain(fn, (tree, x), {"precision": "f64"})
    for _ in range(2):
        wide = jax.enable_x64(True)
        (got,) = starts.by_hand(program, tmp_path / "program", *arrays, wide=wide)
    assert len(traces) == 1
    np.testing.assert_allclose(got, 2 * np.tanh(x @ tree["w"].T), rtol=1e-12)
