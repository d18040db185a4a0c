"""Remedies that stand alone: what is read while a trace runs, generators of states, checkpoints,
descriptions of devices.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import time
import warnings
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int

import jitney
import jitney.testing
from jitney import LossScale, optimize, scan_steps
from jitney.processes import Checkpoints
from jitney.states import derived
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
ZERO = array(0.0, np.float32)
KEPT = "_processes/checkpoints.py:Checkpoints"


def wide(x: Float64[Array, "n"]):
    return 2 * x


def any_width(x: Float[Array, "n"]):
    return 2 * x


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def untraceable(x):
    return x / 0 if x[0] > 0 else x


def traceable(x):
    return jnp.where(x[0] > 0, x, -x)


class Factor:
    """Offers numbers, and holds none."""

    def __init__(self, factor):
        self.factor = factor

    def __array__(self, dtype=None, copy=None):
        raise TypeError("none")

    def __eq__(self, other):
        return type(other) is Factor and self.factor == other.factor

    def __hash__(self):
        return hash(self.factor)


class Reading:
    """Keeps what can be read once."""

    def __init__(self, numbers):
        self.numbers = numbers


class Model(eqx.Module):
    w: Float[Array, "d"]
    b: Array


class Annotated(eqx.Module):
    w: Float[Array, "d"]
    b: Float[Array, "d"]


def of_model(model: Model, x: Float[Array, "d"]):
    return jnp.sum(model.w * x) + jnp.sum(model.b)


def of_annotated(model: Annotated, x: Float[Array, "d"]):
    return jnp.sum(model.w * x) + jnp.sum(model.b)


def beside(model: Annotated, state, x: Float[Array, "d"]):
    return of_annotated(model, x) + state["k"]


class Misread:
    """Rows of another shape than it says."""

    shape, dtype = (4, 3), np.dtype(np.float32)

    def __len__(self):
        return 4

    def __getitem__(self, at):
        return ROWS[at][:, :2]


class Read(Misread):
    def __getitem__(self, at):
        return ROWS[at]


def energy(rows: Float[Array, "n d"]):
    return jnp.sum(rows**2, axis=0)


def stream(rows):
    return jitney.stream(optimize(energy), rows, chunk={"n": 2}, progress=False).result


def donated_first(copied):
    x = jnp.array(HOST)
    optimize(donate="x")(lambda x: 2 * x)(jnp.copy(x) if copied else x)
    return jitney.host(x).result()


def host_before():
    x = jnp.array(HOST)
    numbers = jitney.host(x).result()
    optimize(donate="x")(lambda x: 2 * x)(x)
    return numbers


def profiled_twice():
    with jitney.profile("a"), jitney.profile("b"):
        return total(X)


def profiled_once():
    with jitney.profile("a"):
        return total(X)


def stuck(scale):
    for _ in range(45):
        scale = scale.adjust(array(False))
    return scale.check()


def restored(*, tree=None, save=True, **more):
    found = Checkpoints("run")
    if save:
        found.save(1, {"w": X})
    return found.restore({"w": X} if tree is None else tree, **more)[1]["w"]


def under_switch(value):
    before = os.environ.get("JITNEY_DISABLE")
    os.environ["JITNEY_DISABLE"] = value
    try:
        return optimize(lambda x: 5 * x)(X)
    finally:
        os.environ.pop("JITNEY_DISABLE")
        if before is not None:
            os.environ["JITNEY_DISABLE"] = before


def moded(state):
    return {"a": state["a"] + 1, "mode": "other"}


def unmoded(state):
    return {"a": state["a"] + 1, "mode": state["mode"]}


class Counter:
    total = None


def accumulating(x, held):
    held.total = jnp.sum(x) if held.total is None else held.total + jnp.sum(x)
    return held.total


def returning(x, total):
    return total + jnp.sum(x)


def left(sizes):
    held, f = Counter(), optimize(accumulating)
    return [f(X[:n], held) for n in sizes]


PERMUTED = np.array([2, 0, 1], np.int32)


def read_at(x: Float[Array, "n"], at: Int[Array, "n"]) -> Float[Array, "n"]:
    return x[at]


def many_values(**options):
    f = optimize(read_at, **options)
    for k in range(9):
        f(X, np.array([k % 3, k // 3, 0], np.int32))
    return f(X, PERMUTED)


def read_in_order(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return x[jnp.argsort(y)]


class Partial(jitney.states.State):
    known: Float[Array, "k"]
    open: Float[Array, "k"] | None = None

    @derived
    def both(self):
        return self.known + self.open


def damaged_second(**more):
    """Two steps, of which a file of the second has been overwritten."""
    found = Checkpoints("run")
    if not found.steps:
        found.save(1, {"w": X})
        found.save(2, {"w": X})
        for file in pathlib.Path("run/2/arrays").rglob("*"):
            if file.is_file():
                file.write_bytes(b"nothing")
    return found.restore({"w": X}, **more)[1]["w"]


def elsewhere():
    other = Checkpoints("other")
    other.save(1, {"w": X})
    return other.restore({"w": X})[1]["w"]


def without_orbax():
    with patch.dict(sys.modules, {"orbax": None}):
        return Checkpoints("run")


def of_earlier():
    """A checkpoint as jitney 0.2 wrote it, which kept arrays alone."""
    shutil.rmtree("run", ignore_errors=True)
    found = Checkpoints("run")
    found.save(1, {"w": X, "step": 7})
    (file,) = pathlib.Path("run/1/names").rglob("metadata")
    described = json.loads(file.read_text())
    del described["values"], described["values_checksum"]
    file.write_text(json.dumps(described))
    return found, found.restore({"w": X, "step": 0})[1]


def set_and_saved():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, state = of_earlier()
    found.save(2, {**state, "step": 7})
    back = found.restore({"w": X, "step": 0})[1]
    return back["w"] + back["step"]


class Removing(Read):
    """Rows whose reading removes the folder of the checkpoint."""

    def __getitem__(self, at):
        shutil.rmtree("new", ignore_errors=True)
        return super().__getitem__(at)


def with_checkpoint(rows):
    pathlib.Path("new").mkdir()
    return jitney.stream(
        optimize(energy),
        rows,
        chunk={"n": 2},
        progress=False,
        checkpoint="new/run.ckpt",
        checkpoint_every=1,
    ).result


def profiled_in(folder, *, is_file=False, stop=False):
    if is_file:
        pathlib.Path(folder).write_text("")
    with jitney.profile(folder):
        result = total(X)
        if stop:
            jax.profiler.stop_trace()
    return result


class Named(eqx.Module):
    w: Array
    name: np.ndarray


class NamedStatic(eqx.Module):
    w: Array
    name: str = eqx.field(static=True)


def saved_and_restored(tree):
    found = Checkpoints("run")
    found.save(1, tree)
    back = found.restore(tree)[1]
    return back["w"] if isinstance(back, dict) else back.w


def of_sizes(*sizes):
    """Of a function that cannot be padded."""

    @optimize(max_compiles="raise:1")
    def f(x: Float[Array, "n"]):
        return jnp.sum(jnp.fft.fft(x).real)

    return [f(np.ones(n, np.float32)) for n in sizes][-1]


class Bare:
    """What cannot be copied."""

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle Bare")


class Copied(Bare):
    def __copy__(self):
        return Copied()


DATE = time.struct_time([[2.0], *[0] * 8])


class Clock:
    """A way whose laps take these times, in turn."""

    needs_preparation = False

    def __init__(self, *seconds):
        self.seconds, self.laps = seconds, 0

    def lap(self):
        self.laps += 1
        return self.seconds[self.laps % len(self.seconds)]


STEADY, UNSTEADY = (1.0,), (1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0)


def faster(ours, theirs, **options):
    """Two functions that take these times, by clocks of the test's own."""
    with patch("jitney.testing.ways_of", lambda _: [Clock(*ours), Clock(*theirs)]):
        jitney.testing.assert_faster(DOUBLE, DOUBLE, X, **options)


def DOUBLE(x):
    return 2 * x


def sparse(fn, **options):
    return jitney.lazy_derivatives(optimize(fn, **options), wrt="x", sparse=True)


CASES = [
    Remedy(
        "_contract/check.py:_in_32_bits",
        'decorate with precision="f64"',
        lambda: optimize(wide)(np.arange(3.0)),
        lambda: optimize(precision="f64")(wide)(np.arange(3.0)),
        2 * np.arange(3.0),
        core=True,
    ),
    Remedy(
        "_contract/check.py:_in_32_bits",
        "which allows both",
        lambda: optimize(wide)(np.arange(3.0)),
        lambda: optimize(any_width)(np.arange(3.0)),
        2 * np.arange(3.0),
    ),
    Remedy(
        "_devices/host.py:host",
        "call jitney.host before the call",
        lambda: donated_first(copied=False),
        host_before,
        HOST,
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:refuse_nonfinite",
        "or drop debug_nans=True",
        lambda: optimize(debug_nans=True, on_trace_error="eager")(untraceable)(X),
        lambda: optimize(debug_nans=True)(traceable)(X),
        HOST,
    ),
    Remedy(
        "_program/entry.py:Specialization.eagerly",
        "look for it with `jax.debug_nans(True)`",
        lambda: optimize(debug_nans=True, on_trace_error="eager")(untraceable)(X),
        lambda: optimize(debug_nans=True)(traceable)(X),
        HOST,
    ),
    Remedy(
        "_interface/scan_steps.py:_Loop._check_leaf",
        "leave it as it is",
        lambda: scan_steps(lambda s: (moded(s), 0), 3)({"a": ZERO, "mode": "one"}),
        lambda: scan_steps(lambda s: (unmoded(s), 0), 3)({"a": ZERO, "mode": "one"})[0]["a"],
        3.0,
    ),
    Remedy(
        "_jax/mesh.py:mesh_of",
        "write mesh=jitney.mesh(data=-1)",
        lambda: jitney.place(X, mesh=3, shard="fsdp"),
        lambda: jitney.place(X, mesh=jitney.mesh(data=-1), shard="fsdp"),
        HOST,
    ),
    Remedy(
        "_measured/profile.py:Profile._begin",
        "end the one that is on before",
        profiled_twice,
        profiled_once,
        HOST @ HOST,
    ),
    Remedy(
        "_precision/loss_scale.py:LossScale.check",
        "or give a smaller `least`",
        lambda: stuck(LossScale(initial=1.0, least=1.0)),
        lambda: bool(stuck(LossScale(initial=1.0, least=1e-30))),
        False,
    ),
    Remedy(
        f"{KEPT}.restore",
        "ask for one of those",
        lambda: restored(step=7),
        lambda: restored(save=False, step=1),
        HOST,
    ),
    Remedy(
        f"{KEPT}.restore",
        "pass arrays as long as `steps` is empty",
        lambda: restored(save=False, tree={"w": jax.ShapeDtypeStruct((3,), np.float32)}),
        lambda: restored(save=False),
        HOST,
    ),
    Remedy(
        f"{KEPT}._check",
        "build the model and the optimiser as they were",
        lambda: restored(tree={"w": X, "v": X}),
        lambda: restored(save=False),
        HOST,
    ),
    Remedy(
        f"{KEPT}._refuse",
        "pass arrays, outside of jit",
        lambda: jax.jit(lambda x: (Checkpoints("run").save(1, {"w": x}), x)[1])(X),
        restored,
        HOST,
    ),
    Remedy(
        "_values/array_likes.py:array_like_error",
        "name its argument in `static`",
        lambda: optimize(lambda x, s: x * s.factor)(X, Factor(2.0)),
        lambda: optimize(static="s")(lambda x, s: x * s.factor)(X, Factor(2.0)),
        2 * HOST,
    ),
    Remedy(
        "_view/layout.py:Layout._refuse_lost_meanings",
        ".",
        lambda: optimize(any_width)(np.ma.masked_less(HOST, 0)),
        lambda: optimize(any_width)(np.ma.masked_less(HOST, 0).filled(0)),
        2 * np.maximum(HOST, 0),
    ),
    Remedy(
        "_values/attribute_reads.py:AttributeReads.refuse_unreadable",
        "keep a list, a tuple or an array there",
        lambda: optimize(lambda x, r: x * next(r.numbers))(X, Reading(iter([2.0]))),
        lambda: optimize(lambda x, r: x * r.numbers[0])(X, Reading([2.0])),
        2 * HOST,
    ),
    Remedy(
        "_simulate/device.py:Device.__post_init__",
        "correct it",
        lambda: jitney.simulation.Device(
            "mine", memory=-1, bandwidth=2e12, peak={"bf16": 3e14}, vector=6e13
        ),
        lambda: (
            jitney.simulation.Device(
                "mine", memory=1, bandwidth=2e12, peak={"bf16": 3e14}, vector=6e13
            )
            and None
        ),
        None,
    ),
    Remedy(
        "_stages/vmap.py:_refuse_unnamed",
        "annotate the field",
        lambda: optimize(vmap="b")(of_model)(Model(ROWS, ROWS[:, 0]), X),
        lambda: optimize(vmap="b")(of_annotated)(Annotated(ROWS, ROWS), X),
        ROWS @ HOST + ROWS.sum(1),
    ),
    Remedy(
        "_stages/vmap.py:_refuse_unnamed",
        "or say it: …",
        lambda: optimize(vmap="b")(of_model)(Model(ROWS, ROWS[:, 0]), X),
        lambda: optimize(vmap={"b": {"model": 0}})(of_model)(Model(ROWS, ROWS[:, 0]), X),
        ROWS @ HOST + ROWS[:, 0],
    ),
    Remedy(
        "_stages/dict_form.py:warning_of",
        "for a stack write …",
        lambda: optimize(vmap="b")(beside)(Annotated(ROWS, ROWS), {"k": ROWS[:, 0]}, X),
        lambda: optimize(vmap={"b": {"model": 0, "state": 0}})(beside)(
            Annotated(ROWS, ROWS), {"k": ROWS[:, 0]}, X
        ),
        ROWS @ HOST + ROWS.sum(1) + ROWS[:, 0],
    ),
    Remedy(
        "_stages/dict_form.py:warning_of",
        "if it is shared",
        lambda: optimize(vmap="b")(beside)(Annotated(ROWS, ROWS), {"k": ROWS[:, 0]}, X),
        lambda: optimize(vmap={"b": {"model": 0}})(beside)(
            Annotated(ROWS, ROWS), {"k": ROWS[:, 0]}, X
        ),
        (ROWS @ HOST + ROWS.sum(1))[:, None] + ROWS[:, 0],
    ),
    Remedy(
        "_stream/data/slices.py:check_slice",
        "a reader of your own returns the rows that it is asked for",
        lambda: stream(Misread()),
        lambda: stream(Read()),
        (ROWS**2).sum(0),
    ),
    Remedy(
        "_host/switches.py:read_disabled",
        "correct or unset it",
        lambda: under_switch("perhaps"),
        lambda: under_switch("1"),
        5 * HOST,
    ),
    Remedy(
        "_program/tracing/leaked_tracers.py:left_error",
        "return the new value",
        lambda: left((3, 2)),
        lambda: optimize(returning)(X[:2], optimize(returning)(X, ZERO)),
        HOST.sum() + HOST[:2].sum(),
    ),
    Remedy(
        "_stages/derivatives/jacobians.py:_traced_positions",
        "declare … static: @optimize(static=…), or leave out `sparse`.",
        lambda: jax.jit(lambda x, at: sparse(read_at).jacobian(x, at).todense())(X, PERMUTED),
        lambda: sparse(read_at, static="at").jacobian(X, PERMUTED).todense(),
        np.eye(3)[PERMUTED],
        core=True,
    ),
    Remedy(
        "_stages/derivatives/jacobians.py:_traced_positions",
        "pass the positions as an argument of their own, an array of integers, or leave out"
        " `sparse`.",
        lambda: sparse(read_in_order).jacobian(X, HOST).todense(),
        lambda: sparse(read_at).jacobian(X, np.argsort(HOST)).todense(),
        np.eye(3)[np.argsort(HOST)],
    ),
    Remedy(
        "_diagnosis/static_variety.py:_advice",
        "take … out of `static`: arrays are traced.",
        lambda: many_values(static="at"),
        many_values,
        HOST[PERMUTED],
    ),
    Remedy(
        "_interface/state.py:_check_present",
        "give … a value",
        lambda: Partial(X).both,
        lambda: Partial(X, X).both,
        2 * HOST,
        core=True,
    ),
    Remedy(
        f"{KEPT}._damage_error",
        "give another folder",
        damaged_second,
        elsewhere,
        HOST,
    ),
    Remedy(
        f"{KEPT}._damage_error",
        "or another step, such as the one before",
        damaged_second,
        lambda: damaged_second(step=1),
        HOST,
    ),
    Remedy(
        f"{KEPT}._refuse",
        "take it out of the tree",
        lambda: saved_and_restored({"w": X, "name": np.array(["a"])}),
        lambda: saved_and_restored({"w": X}),
        HOST,
    ),
    Remedy(
        f"{KEPT}._refuse",
        "or make it a static field",
        lambda: saved_and_restored(Named(X, np.array(["a"]))),
        lambda: saved_and_restored(NamedStatic(X, "a")),
        HOST,
    ),
    Remedy(
        "_program/tracing/limit.py:_limit_message",
        "keep shapes and static values the same",
        lambda: of_sizes(3, 4),
        lambda: of_sizes(4, 4),
        4.0,
    ),
    Remedy(
        "_values/copies.py:_copied_object",
        "return arrays",
        lambda: optimize(lambda x: (2 * x, Bare()))(X),
        lambda: optimize(DOUBLE)(X),
        2 * HOST,
    ),
    Remedy(
        "_values/copies.py:_copied_object",
        "or a class that has a `__copy__`",
        lambda: optimize(lambda x: (2 * x, Bare()))(X),
        lambda: optimize(lambda x: (2 * x, Copied()))(X)[0],
        2 * HOST,
    ),
    Remedy(
        "_values/copies.py:_new",
        "make it a … of its items",
        lambda: optimize(lambda x, date: x * date[0][0])(X, DATE),
        lambda: optimize(lambda x, date: x * date[0][0])(X, tuple(DATE)),
        2 * HOST,
    ),
    Remedy(
        "testing.py:assert_faster",
        "correct or remove it",
        lambda: faster(STEADY, (3.0,), unknown="perhaps"),
        lambda: faster(STEADY, (3.0,)),
    ),
    Remedy(
        "testing.py:assert_faster",
        "make it faster",
        lambda: faster((3.0,), STEADY),
        lambda: faster((0.5,), STEADY),
    ),
    Remedy(
        "testing.py:assert_faster",
        "or ask for less.",
        lambda: faster((3.0,), STEADY),
        lambda: faster((3.0,), STEADY, by=0.25),
    ),
    Remedy(
        "testing.py:assert_faster",
        "ask for less, give it longer work",
        lambda: faster(STEADY, UNSTEADY, by=2.0),
        lambda: faster(STEADY, UNSTEADY, by=0.5),
    ),
    Remedy(
        "testing.py:assert_faster",
        "or measure where less else runs",
        lambda: faster(STEADY, UNSTEADY, by=2.0),
        lambda: faster(STEADY, (3.0,), by=2.0),
    ),
    Remedy(
        f"{KEPT}.__init__",
        "mount the storage, and give the folder where it is",
        lambda: Checkpoints("s3://bucket/run"),
        restored,
        HOST,
    ),
    Remedy(f"{KEPT}.__init__", "install", without_orbax, restored, HOST),
    Remedy(
        f"{KEPT}._without_values",
        "set them to what they were; the next `save` keeps them",
        of_earlier,
        set_and_saved,
        HOST + 7,
    ),
    Remedy(
        "_stream/resume.py:Checkpoint.write",
        "or fix what the system reports",
        lambda: with_checkpoint(Removing()),
        lambda: with_checkpoint(Read()),
        (ROWS**2).sum(0),
    ),
    Remedy(
        "_measured/profile.py:_demand_writable",
        "name a folder that you may write",
        lambda: profiled_in("traces", is_file=True),
        lambda: profiled_in("others"),
        HOST @ HOST,
    ),
    Remedy(
        "_measured/profile.py:Profile._end",
        "leave `jax.profiler.stop_trace` and the folder alone inside the block",
        lambda: profiled_in("traces", stop=True),
        lambda: profiled_in("traces"),
        HOST @ HOST,
    ),
]
