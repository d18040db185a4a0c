"""What a run goes on from: checkpoints of the same function, arguments and settings, however it was
broken off.
"""

import errno
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

from jitney import JitneyError, JitneyWarning, optimize, stream
from tests.stream._sources import F, Stops, breaks_off, mean
from tests.stream.test_stream import rows


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    """The run goes on with one warning; what broke off later goes on from the file that was
    whole.
    """
    path, x, synced, times = tmp_path / "run", rows(100), os.fsync, []

    def full(handle):
        times.append(1)
        if len(times) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(handle)

    monkeypatch.setattr("jitney._host.atomic_files.os.fsync", full)
    with pytest.warns(
        JitneyWarning,
        match=r"could not be written \(No space left on device\); the one from before stays",
    ) as said:
        breaks_off(monkeypatch, mean, {"x": x}, path, 10)
    assert len(said) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    monkeypatch.undo()
    got, stats = stream(mean, x, chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.astype(float).mean(), rtol=1e-5)
    assert stats.chunks == 13 - 4


def test_what_a_killed_run_left_is_removed(tmp_path, monkeypatch):
    """A process that is killed while it writes leaves a file beside the checkpoint; those of others
    stay.
    """

    def killed(handle):
        raise Stops

    path, data = tmp_path / "run", {"x": rows(100)}
    (tmp_path / "run2.unfinished-0").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr("jitney._host.atomic_files.os.fsync", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Stops):
            stream(
                mean, **data, chunk={"n": 8}, checkpoint=path, checkpoint_every=1, progress=False
            )
    assert len(list(tmp_path.iterdir())) == 2
    breaks_off(monkeypatch, mean, data, path, 3)
    assert {file.name for file in tmp_path.iterdir()} == {"run", "run2.unfinished-0"}


def test_a_comment_or_a_moved_line_is_the_same_run(tmp_path, monkeypatch):
    """What counts is what is computed."""

    def before():
        @optimize
        def total(x: Float[Array, "n"]) -> Float[Array, ""]:
            return jnp.sum(jnp.sin(x))

        return total

    def after():
        @optimize
        def total(x: Float[Array, "n"]) -> Float[Array, ""]:
            # moved, and with a comment
            angle = x
            return jnp.sum(jnp.sin(angle))

        return total

    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, before(), data, path, 6)
    assert (
        stream(after(), **data, chunk={"n": 8}, checkpoint=path, progress=False).stats.chunks
        == 13 - 6
    )


class Table:
    """A table on the host, which a method looks values up in."""

    def __init__(self, factor):
        self.values = np.full(2, factor, F)

    def __call__(self, b):
        return self.scaled(b)

    def scaled(self, b):
        return (self.values[0] * b).astype(F)


class Slotted:
    """The same, without a dictionary of attributes."""

    __slots__ = ("values",)

    def __init__(self, factor):
        self.values = np.full(2, factor, F)

    def scaled(self, b):
        return (self.values[0] * b).astype(F)


def less(b, *, one, two):
    return ((one - two) * b).astype(F)


LOOKED_UP = np.ones(2, F)


def looked_up(b):
    return (LOOKED_UP[0] * b).astype(F)


HOSTS = {
    "number": lambda factor: lambda b: (factor * b).astype(F),
    "closed over": lambda factor: (lambda table: lambda b: (table[0] * b).astype(F))(
        np.full(2, factor, F)
    ),
    "third": lambda factor: (lambda one, two, three: lambda b: ((one + two + three) * b).astype(F))(
        1, 2, factor - 1
    ),
    "keyword": lambda factor: partial(
        lambda b, by: (by[0] * b).astype(F), by=np.full(2, factor, F)
    ),
    "names of keywords": lambda factor: (
        partial(less, one=1, two=2) if factor == 2 else partial(less, two=1, one=2)
    ),
    "nesting": lambda factor: (lambda nested: lambda b: (len(nested[0]) * b).astype(F))(
        ((1, 2), (3,)) if factor == 2 else ((1,), (2, 3))
    ),
    "slots": lambda factor: Slotted(factor).scaled,
    "method": lambda factor: Table(factor).scaled,
    "object": lambda factor: Table(factor).__call__,
}


@pytest.mark.parametrize("name", HOSTS)
def test_other_data_of_the_host_are_another_run(name, tmp_path, monkeypatch):
    """JAX prints a callback by its name. Numbers of both would be mixed."""

    def made(factor):
        host = HOSTS[name](factor)

        @optimize
        def total(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
            return jnp.sum(x) * jax.pure_callback(host, by, by, vmap_method="sequential")

        return total

    path, data = tmp_path / "run", {"x": rows(100), "by": F(2)}
    breaks_off(monkeypatch, made(2), data, path, 6)
    with pytest.raises(JitneyError, match="of another run: the function"):
        stream(made(3), **data, chunk={"n": 8}, checkpoint=path, progress=False)
    again = stream(made(2), **data, chunk={"n": 8}, checkpoint=path, progress=False)
    assert again.stats.chunks == 13 - 6


def test_another_global_array_of_the_host_is_another_run(tmp_path, monkeypatch):
    """Code looks it up by its name."""

    def total(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(x) * jax.pure_callback(looked_up, by, by, vmap_method="sequential")

    path, data = tmp_path / "run", {"x": rows(100), "by": F(2)}
    breaks_off(monkeypatch, optimize(total), data, path, 6)
    monkeypatch.setitem(globals(), "LOOKED_UP", np.full(2, 3.0, F))
    with pytest.raises(JitneyError, match="of another run: the function"):
        stream(optimize(total), **data, chunk={"n": 8}, checkpoint=path, progress=False)


def test_notes_that_a_callback_takes_are_no_other_run(tmp_path, monkeypatch):
    """They are written, and not read."""
    notes = []

    @optimize
    def total(x: Float[Array, "n"], by: Float[Array, ""]) -> Float[Array, ""]:
        def host(b):
            notes.append(1)
            return b

        return jnp.sum(x) * jax.pure_callback(host, by, by, vmap_method="sequential")

    path, data = tmp_path / "run", {"x": rows(100), "by": F(2)}
    breaks_off(monkeypatch, total, data, path, 6)
    assert notes
    again = stream(total, **data, chunk={"n": 8}, checkpoint=path, progress=False)
    assert again.stats.chunks == 13 - 6


def scopes():
    """Settings of JAX under which numbers are others."""
    return {
        "x64": lambda: jax.enable_x64(True),
        "matmul precision": lambda: jax.default_matmul_precision("highest"),
        "generator": lambda: jax.default_prng_impl("rbg"),
        "partitionable": lambda: jax.threefry_partitionable(
            not jax.config.jax_threefry_partitionable
        ),
        "promotion": lambda: jax.numpy_dtype_promotion(
            "standard" if jax.config.jax_numpy_dtype_promotion == "strict" else "strict"
        ),
    }


@pytest.mark.parametrize("name", scopes())
def test_other_settings_do_not_go_on(name, tmp_path, monkeypatch):
    """What was accumulated under the old ones would be mixed with the new."""
    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, mean, data, path, 6)
    with (
        scopes()[name](),
        pytest.raises(JitneyError, match=r"of another run: .*the settings and the version of JAX"),
    ):
        stream(mean, **data, chunk={"n": 8}, checkpoint=path, progress=False)


def test_another_version_of_jax_does_not_go_on(tmp_path, monkeypatch):
    """It may compute otherwise."""
    path, data = tmp_path / "run", {"x": rows(100)}
    breaks_off(monkeypatch, mean, data, path, 6)
    monkeypatch.setattr(jax, "__version__", "0.0.0")
    with pytest.raises(JitneyError, match="of another run: the settings and the version of JAX"):
        stream(mean, **data, chunk={"n": 8}, checkpoint=path, progress=False)


@pytest.mark.core("jit", "scan")
@pytest.mark.parametrize("wrap", ["jit", "scan", "cond", "custom_jvp", "checkpoint"])
def test_a_constant_inside_a_call_or_loop_is_part_of_the_function(wrap, tmp_path, monkeypatch):
    """JAX prints a program without the numbers of its constants."""

    def made(constant):
        def inner(x):
            return x * constant

        def body(x):
            match wrap:
                case "scan":
                    return jax.lax.scan(lambda c, _: (inner(c), None), x, length=2)[0]
                case "cond":
                    return jax.lax.cond(jnp.sum(constant) > 0, inner, lambda x: x, x)
                case "custom_jvp":
                    outer = jax.custom_jvp(inner)
                    outer.defjvp(lambda x, t: (inner(*x), inner(*t)))
                    return outer(x)
            return {"jit": jax.jit, "checkpoint": jax.checkpoint}[wrap](inner)(x)

        @optimize
        def total(x: Float[Array, "n k"]) -> Float[Array, ""]:
            return jnp.sum(jax.vmap(body)(x))

        return total

    path, data = tmp_path / "run", {"x": rows(100, 3)}
    breaks_off(monkeypatch, made(np.array([1, 2, 3], F)), data, path, 6)
    with pytest.raises(JitneyError, match="of another run: the function"):
        stream(
            made(np.array([1, 2, 4], F)), **data, chunk={"n": 8}, checkpoint=path, progress=False
        )


def test_a_scope_between_two_streams_is_seen():
    """The steps of the first one are not those of the second, in double precision."""

    @optimize
    def total(x: Float[Array, "n"]):
        return jnp.sum(x.astype(float)) * jnp.asarray(1 / 3)

    x = rows(100)
    single, _ = stream(total, x, chunk={"n": 8}, progress=False)
    with jax.enable_x64(True):
        double, _ = stream(total, x, chunk={"n": 8}, progress=False)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(double, x.astype(float).sum() / 3, rtol=1e-14)


def test_double_precision_reaches_the_thread_that_reads():
    """A scope holds for one thread; chunks are cut in another."""
    x = np.arange(100) / 3 + 1e9
    with jax.enable_x64(True):
        value, _ = stream(mean, jnp.asarray(x), chunk={"n": 8}, progress=False)
    np.testing.assert_allclose(value, x.mean(), rtol=1e-15)


def test_a_key_goes_into_a_checkpoint(tmp_path, monkeypatch):
    """NumPy has no keys; another one is another run."""

    @optimize
    def f(x: Float[Array, "n"], key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(x) * jax.random.normal(key)

    path, x = tmp_path / "run", rows(100)
    breaks_off(monkeypatch, f, {"x": x, "key": jax.random.key(0)}, path, 6)
    with pytest.raises(JitneyError, match="of another run: the arguments"):
        stream(f, x=x, key=jax.random.key(1), chunk={"n": 8}, checkpoint=path, progress=False)
    got, _ = stream(f, x=x, key=jax.random.key(0), chunk={"n": 8}, checkpoint=path, progress=False)
    np.testing.assert_allclose(got, x.sum() * jax.random.normal(jax.random.key(0)), rtol=1e-5)
