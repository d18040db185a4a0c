"""`auto=True` of what has no mapped axis: directions of a Jacobian, and chunks of `memory`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._program.auto import choice_record, cut_axes, result_bits
from tests.program.auto.test_auto_calls import auto_line

RNG = np.random.default_rng(0)
SIZE = 100
W = RNG.normal(size=(SIZE, SIZE)).astype(np.float32) / 10
X = RNG.normal(size=SIZE).astype(np.float32)
LONG = RNG.normal(size=40_000).astype(np.float32)
MANY = 40


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the records."""
    monkeypatch.setattr(choice_record, "folder", lambda name: tmp_path / name)


def mixed(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sin(W @ x)


def slopes(x=X):
    """The Jacobian of `mixed`, in float64."""
    w = W.astype(np.float64)
    return np.cos(w @ x)[:, None] * w


def wave(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(jnp.sin(x) * jnp.exp(-x * x))


def learnt(f, *args):
    for _ in range(MANY):
        out = f(*args)
    return out


def refuse_uncut(f, *args):
    if "all of it fits" in auto_line(f, *args):
        pytest.skip("the XLA of jax 0.12 keeps no temporary value of the body, so nothing is cut")


@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
def test_directions_of_a_dense_jacobian_are_widths(machine, mode):
    """64 at a time, then the next to it; a slice computes some of them; rows are NumPy's."""
    machine.rates = {"16 directions at a time": 0.1, "64 directions at a time": 0.5}
    f = jitney.lazy_derivatives(wrt="x", mode=mode)(optimize(auto=True)(mixed))
    out = learnt(f.jacobian, X)
    np.testing.assert_allclose(out, slopes(), rtol=1e-4, atol=1e-5)
    assert machine.tried == [f"{width} directions at a time" for width in (64, 16, 1)]
    assert ("16 directions at a time", 32) in machine.runs
    assert auto_line(f.jacobian, X).startswith("16 directions at a time: ")


@pytest.mark.parametrize("what", ["value_and_jacobian", "hessian"])
def test_other_kinds_that_passes_make(machine, what):
    """Each is a program of its own, with a choice of its own."""
    machine.rates = {"64 directions at a time": 0.1}

    def energy(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(W @ x) ** 2)

    f = optimize(auto=True)(energy if what == "hessian" else mixed)
    made = jitney.lazy_derivatives(wrt="x", mode="forward")(f)
    out = learnt(getattr(made, what), X)
    assert auto_line(getattr(made, what), X).startswith("64 directions at a time: ")
    w = W.astype(np.float64)
    if what == "hessian":
        want = w.T @ (2 * np.cos(2 * w @ X)[:, None] * w)
        np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)
    else:
        np.testing.assert_allclose(out[0], np.sin(w @ X), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(out[1], slopes(), rtol=1e-4, atol=1e-5)


def test_several_arguments_have_their_blocks(machine):
    """Directions count over all of them."""
    machine.rates = {"16 directions at a time": 0.1, "64 directions at a time": 0.5}

    def product(x: Float[Array, "n"], y: Float[Array, "m"]) -> Float[Array, "n"]:
        return jnp.sin(W @ x) * jnp.sum(y)

    f = jitney.lazy_derivatives(wrt=("x", "y"), mode="forward")(optimize(auto=True)(product))
    y = X[:7]
    out = learnt(f.jacobian, X, y)
    assert auto_line(f.jacobian, X, y).startswith("16 directions at a time: ")
    np.testing.assert_allclose(out["x"], slopes() * y.sum(), rtol=1e-3, atol=1e-4)
    rows = np.sin(W.astype(np.float64) @ X)[:, None] * np.ones(7)
    np.testing.assert_allclose(out["y"], rows, rtol=1e-4, atol=1e-4)


def test_a_coloured_jacobian_has_no_directions_to_cut(machine):
    """It has few passes."""

    def each(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sin(x) * x

    f = jitney.lazy_derivatives(wrt="x")(optimize(auto=True)(each))
    out = learnt(f.jacobian, X)
    np.testing.assert_allclose(np.diag(out), np.cos(X) * X + np.sin(X), rtol=1e-5, atol=1e-5)
    assert machine.tried == []
    assert auto_line(f.jacobian, X) == "whole: no directions to cut: coloured"


def test_a_callback_in_a_jacobian_is_left_alone(machine, capfd):
    """It would be called once more for each trial."""

    def noisy(x: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.print("called")
        return jnp.sin(W @ x)

    f = jitney.lazy_derivatives(wrt="x", mode="forward")(optimize(auto=True)(noisy))
    learnt(f.jacobian, X)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("called") == MANY
    assert machine.tried == []


def test_memory_bounds_the_directions_at_a_time(machine):
    """Fewer than fit are tried, and never more."""
    machine.rates = {"16 directions at a time": 0.1, "64 directions at a time": 0.5}
    f = jitney.lazy_derivatives(wrt="x", mode="forward")(
        optimize(auto=True, memory="110KiB")(mixed)
    )
    out = learnt(f.jacobian, X)
    np.testing.assert_allclose(out, slopes(), rtol=1e-4, atol=1e-5)
    line = auto_line(f.jacobian, X)
    assert "directions at a time" in line, line


def test_chunks_of_memory_are_widths(machine):
    """Narrower than the widest that fits."""
    machine.rates = {"4,096 of n at a time": 0.1, "16,384 of n at a time": 0.5}
    f = optimize(auto=True, memory="300KiB")(wave)
    out = learnt(f, LONG)
    refuse_uncut(f, LONG)
    x = LONG.astype(np.float64)
    np.testing.assert_allclose(out, np.mean(np.sin(x) * np.exp(-x * x)), rtol=1e-4, atol=1e-6)
    assert auto_line(f, LONG).startswith("4,096 of n at a time: "), auto_line(f, LONG)


def test_what_fits_into_memory_is_whole(machine):
    """No axis is cut, so there is nothing to choose."""
    f = optimize(auto=True, memory="1GiB")(wave)
    learnt(f, LONG)
    assert machine.tried == []
    assert auto_line(f, LONG) == "whole: all of it fits into `memory` at once"


@pytest.mark.parametrize("is_equal", [True, False])
def test_exact_takes_chunks_with_equal_bits_alone(machine, monkeypatch, is_equal):
    """A sum over an axis that is cut may differ in the last bits."""
    machine.rates = {"4,096 of n at a time": 0.1, "16,384 of n at a time": 0.5}
    monkeypatch.setattr(result_bits, "bits", lambda array: array.shape if is_equal else object())
    f = optimize(auto="exact", memory="300KiB")(wave)
    learnt(f, LONG)
    refuse_uncut(f, LONG)
    line = auto_line(f, LONG)
    assert line.startswith("4,096 of n at a time: " if is_equal else "whole: "), line
    assert is_equal or "other bits" in line


def test_a_mapped_axis_that_memory_bounds_is_cut_narrower(machine):
    """Also where all of it fits; threads would take more memory, and are not tried."""
    machine.rates = {"64 of row at a time": 0.1}
    rows = RNG.normal(size=(160, 50)).astype(np.float32)
    f = optimize(vmap="row", auto=True, memory="1GiB")(wave)
    out = learnt(f, rows)
    assert auto_line(f, rows).startswith("64 of row at a time: ")
    assert not any("threads" in way for way in machine.tried)
    x = rows.astype(np.float64)
    np.testing.assert_allclose(out, np.mean(np.sin(x) * np.exp(-x * x), 1), rtol=1e-4, atol=1e-6)


def test_a_way_above_the_budget_is_not_taken(machine, monkeypatch):
    """Whatever time it takes."""
    machine.rates = {"16,384 of n at a time": 0.5}
    real = cut_axes.counted_bytes
    monkeypatch.setattr(cut_axes, "counted_bytes", lambda compiled: 10 * real(compiled))
    f = optimize(auto=True, memory="300KiB")(wave)
    learnt(f, LONG)
    refuse_uncut(f, LONG)
    line = auto_line(f, LONG)
    assert line.startswith("whole: ")
    assert "it takes" in line
    assert "and `memory` is 300 KiB" in line
    assert machine.tried == []


@pytest.mark.parametrize(
    ("options", "way"),
    [({}, "16 directions at a time"), ({"memory": "300KiB"}, "16,384 of n at a time")],
)
def test_the_next_process_starts_with_the_choice(machine, folder, options, way):
    """Of directions, with their mode, and of chunks; unless the file is damaged."""
    machine.rates = {way: 0.1, "64 directions at a time": 0.5}
    x = LONG if options else X

    def fresh():
        def body(x: Float[Array, "n"]) -> Float[Array, "..."]:
            return (wave if options else mixed)(x)

        f = optimize(auto=True, **options)(body)
        return f if options else jitney.lazy_derivatives(wrt="x", mode="forward")(f).jacobian

    first, second = fresh(), fresh()
    want = learnt(first, x)
    refuse_uncut(first, x)
    machine.runs.clear()
    np.testing.assert_array_equal(second(x), want)
    assert machine.tried == []
    assert auto_line(second, x).startswith(f"{way}, as an earlier process has measured")
