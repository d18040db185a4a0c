"""Bodies whose Python looks at a size, under each option that asks for a program of all sizes,
beside plain JAX at exact size.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def loss(p: Float[Array, "k"], x: Float[Array, "n"]) -> Float[Array, ""]:
    """Code that needs the length: of a window from NumPy, in a condition, and as a number."""
    window = np.hanning(len(x)).astype(x.dtype)
    trend = p[0] + p[1] * x if len(x) > 2 else p[0] * x
    return jnp.sum((trend * window) ** 2) / float(len(x))


def data(n, dtype):
    rng = np.random.default_rng(n)
    return rng.normal(size=2).astype(dtype), rng.normal(size=n).astype(dtype)


@pytest.fixture(autouse=True)
def _with_float64(request):
    params = getattr(request.node, "callspec", None)
    wide = params is not None and params.params.get("dtype") is np.float64
    with jax.enable_x64(wide):
        yield


def close(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        rtol = 1e-5 if a.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def decision(plan, name):
    (line,) = (d for d in plan.to_dict()["decisions"] if d["name"] == name)
    return line


@DTYPES
def test_pad_is_one_program(dtype):
    """Values and gradients of four sizes share the programs of their bucket."""
    f = jitney.optimize(loss, pad={"n": [32]}, cache=False)
    grad = f.value_and_grad.program(wrt="p")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (20, 19, 27, 32):
            args = data(n, dtype)
            close(f(*args), jax.jit(loss)(*args))
            close(grad(*args), jax.jit(jax.value_and_grad(loss))(*args))
    why = decision(f.plan(*data(20, dtype)), "mask")["why"]
    assert "it was traced at sizes" in why, why
    assert f.stats.compiles == 1


@DTYPES
def test_a_padded_jacobian_along_the_axis(dtype):
    def body(p: Float[Array, "k"], x: Float[Array, "n"]) -> Float[Array, "n"]:
        return np.hanning(len(x)).astype(x.dtype) * (p[0] + p[1] * jnp.sin(x))

    f = jitney.optimize(body, pad={"n": [32]}, cache=False)
    for n in (20, 19):
        args = data(n, dtype)
        close(f.jacobian(*args, wrt="x"), jax.jit(jax.jacobian(body, 1))(*args))


@DTYPES
def test_chunks(dtype):
    """Each chunk sees its own part of the window; values and gradients."""
    f = jitney.optimize(loss, chunk={"n": 4}, cache=False)
    for n in (20, 19):
        args = data(n, dtype)
        close(f(*args), jax.jit(loss)(*args))
        grad = f.value_and_grad.program(wrt="p")
        close(grad(*args), jax.jit(jax.value_and_grad(loss))(*args))
    assert decision(f.plan(*data(20, dtype)), "chunk")["taken"]


@DTYPES
def test_memory_cuts_what_does_not_fit(dtype):
    """A product with as many columns as 512 does not fit beside 64 KiB of arguments at once."""

    def body(x: Float[Array, "n"]) -> Float[Array, ""]:
        window = np.hanning(len(x)).astype(x.dtype)
        waves = jnp.sin(x[:, None] * jnp.arange(1, 513, dtype=x.dtype))
        return jnp.sum(jnp.sort(waves * window[:, None], axis=1)[:, ::2])

    f = jitney.optimize(body, memory="1MiB", cache=False)
    _, x = data(3000, dtype)
    close(f(x), jax.jit(body)(x))
    line = decision(f.plan(x), "chunk")
    assert line["taken"], line


@DTYPES
def test_a_stream(dtype):
    p, x = data(19, dtype)
    f = jitney.optimize(loss, cache=False)
    got = jitney.stream(f, p, x, chunk={"n": 4}, progress=False).result
    close(got, jax.jit(loss)(p, x))


@DTYPES
def test_axes_of_it(dtype):
    """The sum, and the window that Python computes along the axis."""
    facts = str(jitney.optimize(loss).axes(*data(20, dtype)))
    (line,) = (line for line in facts.splitlines() if line.startswith("n:"))
    assert line.startswith("n: gathered and reduced: an array that Python computes ("), line
    assert "; sum (" in line, line


@DTYPES
def test_a_range_is_not_exported_where_python_computes_with_the_size(dtype, tmp_path):
    """A file cannot run the Python that computes the window."""
    f = jitney.optimize(loss, cache=False)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in data(20, dtype)]
    with pytest.raises(jitney.JitneyError, match="'n' cannot stand for all sizes of a range"):
        f.export(tmp_path / "loss.jitney", *shapes, sizes={"n": range(17, 22)})


@DTYPES
def test_a_range_is_exported_where_the_program_is_one(dtype, tmp_path):
    """The size goes through a text, and nothing but lengths comes of it."""

    def body(p: Float[Array, "k"], x: Float[Array, "n"]) -> Float[Array, "m"]:
        return x[: int(str(len(x))) - 3] * p[0]

    path = tmp_path / "body.jitney"
    f = jitney.optimize(body, cache=False)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in data(20, dtype)]
    f.export(path, *shapes, sizes={"n": range(17, 22)})
    loaded = jitney.load(path)
    for n in range(17, 22):
        args = data(n, dtype)
        close(loaded(*args), jax.jit(body)(*args))
