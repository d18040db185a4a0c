"""More remedies of what is said while a program is traced, planned and run: loops, states, other
transforms, simulations, tests.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Array, ArrayLike, Float, Int

import jitney
import jitney.testing
from jitney import optimize, scan_steps
from jitney._host import memory_samples
from jitney._measured import call_memory
from jitney.states import derived
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
ROWS = array(np.arange(12.0).reshape(4, 3), np.float32)
TABLE = np.asarray(ROWS)
DRAWN = array(np.random.default_rng(0).normal(size=(4, 3)), np.float32)
ZERO = array(0.0, np.float32)
STEPS, STATE, VECTOR, OUTER = (
    "_interface/scan_steps.py",
    "_interface/state.py",
    "_interface/state_vector.py",
    "_program/outer_transforms.py",
)
CHECKERS = "_diagnosis/checker_errors.py"
VARIETY, TOLERANCE, SIMULATE = (
    "_diagnosis/static_variety.py:_advice",
    "_program/tolerance/decide.py",
    "_simulate/simulate.py",
)


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def branched(x: Float[Array, "n"]):
    return jnp.sum(jax.lax.cond(x[0] > 1, jnp.sin, jnp.cos, x))


def product(x: Float[Array, "n d"], y: Float[Array, "d"]):
    return x @ y


def mean_square(w: Float[Array, "d"], x: Float[Array, "batch d"]):
    return jnp.mean((x @ w) ** 2)


@optimize(vmap="batch")
def mapped_squares(x: Float[Array, "d"]) -> Float[Array, ""]:
    return jnp.sum(x**2)


def step(state, x):
    return state + x, state


def tree_step(state):
    return {"a": state["a"] + 1, "b": state["a"]}


def tree_step_whole(state):
    return {"a": state["a"] + 1, "b": None}


@beartype
def inner_step(x: Float[Array, "n"], rate: float):
    return x * rate


@beartype
def either_step(x: Float[Array, "n"], rate: float | Float[Array, ""]):
    return x * rate


@beartype
def checked_total(x: Float[Array, "n"]) -> float:
    return jnp.sum(x)


@beartype
def checked_array(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


@beartype
@dataclasses.dataclass(frozen=True)
class Held:
    x: Float[Array, "n"]
    rate: float | Float[Array, ""]


jax.tree_util.register_dataclass(Held, ["x", "rate"], [])


def held_loss(held: Held):
    return jnp.sum(held.x) * held.rate


def stepping(x: Float[Array, "n"], rate: float):
    return inner_step(x, rate)


def stepping_both(x: Float[Array, "n"], rate: float):
    return either_step(x, rate)


class Wave(jitney.states.State):
    u: Float[Array, "k"]
    v: Float[Array, "k"]


class Free(jitney.states.State):
    u: Float[Array, "a b"]


class Odd(jitney.states.State):
    u: Float[Array, "k"]
    v: Float[Array, "2*k"]


class Untold(jitney.states.State):
    u: Array


class Counting(jitney.states.State):
    u: Float[Array, "k"]
    n: Int[Array, ""]


class Told(jitney.states.State):
    u: Float[Array, "k"]
    n: int = eqx.field(static=True)


class Circle(jitney.states.State):
    u: Float[Array, "k"]

    @derived
    def a(self):
        return self.b

    @derived
    def b(self):
        return self.a


class Line(jitney.states.State):
    u: Float[Array, "k"]

    @derived
    def b(self):
        return self.u


def pair(xy: dict[str, Float[Array, "d"]], z: Float[Array, "d"]):
    return xy["a"] + xy["b"] + z


def many(f, values):
    return [f(X, value) for value in values][-1]


def by(x, s):
    return x * s


def by_traced(x, s: Int[ArrayLike, ""]):
    return x * s


def signed(x, s):
    return x if s > 0 else -x


def signed_traced(x, s):
    return jnp.where(s > 0, x, -x)


class Advance(NamedTuple):
    x: Array
    n: int


class AdvanceTraced(NamedTuple):
    x: Array
    n: Int[Array, ""]


X_SCALE = 2.0


@dataclasses.dataclass
class Loose:
    x: float
    n: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    x: float
    n: float


def advanced(x, state):
    return x * state.x + state.n


def by_name(x, name):
    return x * len(name)


def at(x, indices):
    return jnp.sum(x[jnp.asarray(sorted(indices))])


def at_masked(x, indices, mask):
    return jnp.sum(jnp.where(mask, x[indices], 0))


def apply(x, f):
    return f(x)


class Scale:
    """With an array that is a constant."""

    def __init__(self, factor):
        self.factor = factor


class ScaleModule(eqx.Module):
    factor: Array


def scaled(x, s):
    return x * s.factor


DOUBLE = lambda x: 2 * x


def in_jit(fn, *given):
    return jax.jit(lambda *args: fn(*args))(*given)


def verified(fn):
    return optimize(verify=True, pad={"n": "pow2"})(fn)


def nearly(tolerance):
    return optimize(precision=f"auto:{tolerance}")(product)


def compiled_here():
    with jitney.no_compiles():
        return optimize(lambda x: 3 * x)(X)


def compiled_before():
    f = optimize(lambda x: 3 * x)
    f(X)
    with jitney.no_compiles():
        return f(X)


async def awaited(x):
    return 2 * x


LAID = {"shard": {"n": "data"}, "mesh": jitney.mesh(data=1)}

CASES = [
    # Type checkers.
    Remedy(
        f"{CHECKERS}:checker_error",
        "; or say static=…, which is a program for each value",
        lambda: optimize(inner_step)(X, 0.5),
        lambda: optimize(static="rate")(inner_step)(X, 0.5) + optimize(either_step)(X, 0.5),
        HOST,
        core=True,
    ),
    Remedy(
        f"{CHECKERS}:checker_error",
        'annotate the result `Float[Array, ""]`',
        lambda: optimize(checked_total)(X),
        lambda: optimize(checked_array)(X),
        HOST.sum(),
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._check_rebuilt",
        "pass an array there, as jnp.asarray(...)",
        lambda: optimize(held_loss).grad(Held(X, 0.5)),
        lambda: optimize(held_loss).grad(Held(X, jnp.asarray(0.5)))["held"].x,
        np.full(3, 0.5),
    ),
    Remedy(
        f"{CHECKERS}:_further_inside",
        " in that signature",
        lambda: optimize(stepping)(X, 0.5),
        lambda: optimize(stepping_both)(X, 0.5),
        HOST * 0.5,
    ),
    # Loops.
    Remedy(
        f"{STEPS}:_names",
        "write carry=1",
        lambda: scan_steps(step, 3, carry=5),
        lambda: scan_steps(step, 3, carry=1, over="x")(ZERO, X)[0],
        HOST.sum(),
    ),
    Remedy(
        f"{STEPS}:_names",
        "pass a function with one: lambda state",
        lambda: scan_steps(lambda: 1, 3),
        lambda: scan_steps(lambda state: state + 1, 3)(ZERO),
        3.0,
    ),
    Remedy(
        f"{STEPS}:_Loop._split_result",
        "return (…, ...) with their new values",
        lambda: scan_steps(lambda s: [s, s], 3)(ZERO),
        lambda: scan_steps(lambda s: (s + 1, s), 3)(ZERO)[0],
        3.0,
    ),
    Remedy(
        f"{STEPS}:_Loop._fit_carry",
        "return the same tree, with None where there was None",
        lambda: scan_steps(lambda s: (tree_step(s), 0), 3)({"a": ZERO, "b": None}),
        lambda: scan_steps(tree_step_whole, 3)({"a": ZERO, "b": None})["a"],
        3.0,
    ),
    Remedy(
        f"{STEPS}:_Loop._check_leaf",
        "cast or reshape it in the step",
        lambda: scan_steps(lambda s: s.astype(jnp.int32), 3)(ZERO),
        lambda: scan_steps(lambda s: s.astype(jnp.int32).astype(jnp.float32), 3)(ZERO),
        0.0,
    ),
    Remedy(
        f"{STEPS}:_Loop._check_leaf",
        "pass an array for …, such as jnp.asarray(…)",
        lambda: scan_steps(lambda s: s + 1, 3)(0),
        lambda: scan_steps(lambda s: s + 1, 3)(jnp.asarray(0)),
        3,
    ),
    Remedy(
        f"{STEPS}:_Loop._check_size",
        "stack one for each step (jnp.stack)",
        lambda: scan_steps(step, 3, over="x")(ZERO, X[:2]),
        lambda: scan_steps(step, 3, over="x")(ZERO, jnp.stack([X[0], X[1], X[2]]))[0],
        HOST.sum(),
    ),
    Remedy(
        f"{STEPS}:_Loop._check_size",
        "or take its name out of `over`",
        lambda: scan_steps(step, 3, over="x")(ZERO, X[0]),
        lambda: scan_steps(step, 3)(ZERO, X[0])[0],
        3 * HOST[0],
    ),
    # States.
    Remedy(
        f"{STATE}:_reading",
        "make one of them a core field",
        lambda: Circle(X).a,
        lambda: Line(X).b,
        HOST,
    ),
    Remedy(
        f"{VECTOR}:core_leaves",
        "make it an array of floats",
        lambda: Counting(X, array(3)).array,
        lambda: Wave(X, X).array,
        np.concatenate([HOST, HOST]),
    ),
    Remedy(
        f"{VECTOR}:core_leaves",
        "or mark the field with eqx.field(static=True)",
        lambda: Counting(X, array(3)).array,
        lambda: Told(X, 3).array,
        HOST,
    ),
    Remedy(
        f"{VECTOR}:from_vector",
        'write sizes={"k": 3}',
        lambda: Wave.of(np.ones(6, np.float32), sizes=3),
        lambda: Wave.of(np.ones(6, np.float32), sizes={"k": 3}).u,
        np.ones(3),
    ),
    Remedy(
        f"{VECTOR}:from_vector",
        "pass sizes={…: ...}",
        lambda: Free.of(np.ones(6, np.float32)),
        lambda: Free.of(np.ones(6, np.float32), sizes={"a": 2, "b": 3}).u,
        np.ones((2, 3)),
    ),
    Remedy(
        f"{VECTOR}:_solve_size",
        "pass a vector that fits, such as one of",
        lambda: Odd.of(np.ones(4, np.float32)),
        lambda: Odd.of(np.ones(3, np.float32)).u,
        np.ones(1),
    ),
    Remedy(
        f"{VECTOR}:_needs_instance",
        "take the shapes from an instance",
        lambda: Untold.of(np.ones(3, np.float32)),
        lambda: Untold(X).of(np.ones(3, np.float32)).u,
        np.ones(3),
    ),
    # Static values that vary.
    Remedy(
        f"{VARIETY}_on_number",
        "make … an array where it is made, jnp.asarray(...), and annotate it …[Array",
        lambda: many(optimize(advanced), [Advance(X, n) for n in range(3)]),
        lambda: many(optimize(advanced), [AdvanceTraced(X, jnp.asarray(n)) for n in range(3)]),
        HOST * HOST + 2,
    ),
    Remedy(
        f"{VARIETY}_on_number",
        "register `…` with JAX",
        lambda: many(optimize(advanced), [Loose(X_SCALE, float(n)) for n in range(3)]),
        lambda: many(optimize(advanced), [Registered(X_SCALE, float(n)) for n in range(3)]),
        HOST * X_SCALE + 2,
    ),
    Remedy(
        f"{VARIETY}_on_number",
        "annotate …: …[ArrayLike",
        lambda: many(optimize(by), [2, 3, 4]),
        lambda: many(optimize(by_traced), [2, 3, 4]),
        4 * HOST,
    ),
    Remedy(
        f"{VARIETY}_on_number",
        "decide there with jnp.where or jax.lax.cond",
        lambda: many(optimize(signed), [1.0, 2.0, -3.0]),
        lambda: many(optimize(signed_traced), [1.0, 2.0, -3.0]),
        -HOST,
    ),
    Remedy(
        VARIETY,
        "if the computation depends on … in few ways",
        lambda: many(optimize(by_name), ["a" * n for n in range(12)]),
        lambda: many(optimize(by), [2] * 12),
        2 * HOST,
    ),
    Remedy(
        VARIETY,
        "if these are one function created again",
        lambda: many(optimize(static="f")(apply), [lambda x: 2 * x for _ in range(12)]),
        lambda: many(optimize(static="f")(apply), [DOUBLE] * 12),
        2 * HOST,
    ),
    Remedy(
        VARIETY,
        "make `…` an eqx.Module, so that its arrays",
        lambda: many(optimize(static="s")(scaled), [Scale(X + n) for n in range(12)]),
        lambda: many(optimize(scaled), [ScaleModule(X + n) for n in range(12)]),
        HOST * (HOST + 11),
    ),
    Remedy(
        VARIETY,
        "pass … as an array, annotated",
        lambda: many(optimize(by, static="s"), [float(n) for n in range(12)]),
        lambda: many(optimize(by), [array(float(n), np.float32) for n in range(12)]),
        11 * HOST,
    ),
    Remedy(
        VARIETY,
        "sets and lists of indices as an index array with a mask",
        lambda: many(
            optimize(static="indices")(at), [(n % 3, n // 3 % 3, n // 9) for n in range(12)]
        ),
        lambda: optimize(at_masked)(X, array([0, 1, 2]), array([True, False, True])),
        HOST[0] + HOST[2],
    ),
    # Under other transforms.
    Remedy(
        f"{OUTER}:is_padded",
        "call it outside of `jit`",
        lambda: in_jit(optimize(pad={"n": "pow2"})(total), X),
        lambda: optimize(pad={"n": "pow2"})(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{OUTER}:is_padded",
        "take them with `.hessian` or `.hvp`, which are padded",
        lambda: jax.hessian(optimize(pad={"n": "pow2"})(total))(X),
        lambda: optimize(pad={"n": "pow2"})(total).hessian(X, wrt="x"),
        2 * np.eye(3),
    ),
    *(
        Remedy(
            f"{OUTER}:{where}",
            "map the derivative",
            lambda f=f: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))(ROWS),
            lambda f=f: jax.vmap(jax.grad(f))(ROWS),
            np.where(TABLE[:, :1] > 1, np.cos(TABLE), -np.sin(TABLE)),
        )
        for where, f in (
            ("is_padded", optimize(pad={"n": "pow2"})(branched)),
            ("is_cut", optimize(chunk={"n": 2})(branched)),
        )
    ),
    Remedy(
        f"{OUTER}:is_cut",
        "call it outside of `jit`",
        lambda: in_jit(optimize(chunk={"n": 2})(total), X),
        lambda: optimize(chunk={"n": 2})(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{OUTER}:is_cut",
        "take them with `.hessian` or `.hvp`, which are cut",
        lambda: jax.hessian(optimize(chunk={"n": 2})(total))(X),
        lambda: optimize(chunk={"n": 2})(total).hvp(X, wrt="x", tangents=X),
        2 * HOST,
    ),
    Remedy(
        f"{OUTER}:is_cut",
        "take its derivative with `.grad` or the like, which are cut",
        lambda: jax.grad(optimize(memory="1 GiB")(total))(X),
        lambda: optimize(memory="1 GiB")(total).grad(X, wrt="x"),
        2 * HOST,
    ),
    Remedy(
        f"{OUTER}:is_cut",
        "map over it with @jitney.optimize(vmap=...)",
        lambda: jax.vmap(optimize(memory="1 GiB")(total))(ROWS),
        lambda: optimize(memory="1 GiB", vmap="b")(total)(ROWS),
        np.sum(TABLE**2, 1),
    ),
    Remedy(
        f"{OUTER}:warn_missing_checks",
        "put verify=True on the outermost function",
        lambda: in_jit(verified(total), X),
        lambda: verified(total)(X),
        HOST @ HOST,
    ),
    # Precision by error.
    Remedy(
        f"{TOLERANCE}:decide",
        'precision="auto:1e-2"',
        lambda: nearly("1e-12")(DRAWN, X),
        lambda: nearly("1e-2")(DRAWN, X),
        np.asarray(DRAWN) @ HOST,
        within=1e-2,
    ),
    Remedy(
        f"{TOLERANCE}:decide",
        "or compute in float64",
        lambda: nearly("1e-12")(DRAWN, X),
        lambda: optimize(precision="f64")(product)(DRAWN, X),
        np.asarray(DRAWN) @ HOST,
    ),
    Remedy(
        f"{TOLERANCE}:report_on",
        "call it with arrays first",
        lambda: nearly("1e-2").compile(sizes={"n": 4, "d": 3}),
        lambda: jitney.analysis.precision_report(product, ROWS, X).products and None,
        None,
    ),
    Remedy(
        "_stages/autocast.py:Autocast.wrap.cast",
        "leave it out",
        lambda: optimize(precision={"default": "bf16", "here.py:3": "f32"})(total)(X),
        lambda: optimize(precision={"default": "bf16"})(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_stages/autocast.py:Autocast.wrap.cast",
        "the lines are",
        lambda: optimize(precision={"default": "bf16", "here.py:3": "f32"})(product)(ROWS, X),
        lambda: optimize(
            precision={"default": "bf16", f"_more.py:{product.__code__.co_firstlineno + 1}": "f32"}
        )(product)(ROWS, X),
        TABLE @ HOST,
    ),
    # Contracts.
    Remedy(
        "_contract/check.py:_as_array",
        "pass `jnp.asarray(…)`",
        lambda: optimize(total)(2.0),
        lambda: optimize(total)(jnp.asarray([2.0])),
        4.0,
    ),
    Remedy(
        "_stages/vmap.py:positions_by_rank",
        "stack all of them",
        lambda: optimize(vmap="b")(pair)({"a": ROWS, "b": X}, X),
        lambda: optimize(vmap="b")(pair)({"a": ROWS, "b": ROWS}, X),
        2 * TABLE + HOST,
    ),
    Remedy(
        "_stages/vmap.py:positions_by_rank",
        "or say which: vmap=",
        lambda: optimize(vmap="b")(pair)({"a": ROWS, "b": X}, X),
        lambda: optimize(vmap={"b": {"z": 0}})(pair)({"a": X, "b": X}, ROWS),
        2 * HOST + TABLE,
    ),
    Remedy(
        "_stages/sharding.py:check_names",
        "or make a mesh that has it",
        lambda: optimize(shard={"n": "model"}, mesh=jitney.mesh(data=1))(total)(X),
        lambda: optimize(shard={"n": "model"}, mesh=jitney.mesh(model=1))(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_stages/sharding.py:check_axes",
        "did you mean",
        lambda: optimize(shard={"batc": "data"}, mesh=jitney.mesh(data=1))(mean_square)(X, ROWS),
        lambda: optimize(shard={"batch": "data"}, mesh=jitney.mesh(data=1))(mean_square)(X, ROWS),
        np.mean((TABLE @ HOST) ** 2),
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._check_kinds",
        "pass ….astype(float)",
        lambda: optimize(lambda n: n * 2.0).grad(array(3), wrt="n"),
        lambda: optimize(lambda n: n * 2.0).grad(array(3).astype(float), wrt="n"),
        2.0,
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._check_kinds",
        "annotate it `float`",
        lambda: optimize(lambda n: n * 2.0).grad(3, wrt="n"),
        lambda: optimize(by_float).grad(3, wrt="n"),
        2.0,
    ),
    Remedy(
        "_interface/optimize.py:_decorate",
        "decorate the function that computes",
        lambda: optimize(awaited),
        lambda: optimize(DOUBLE)(X),
        2 * HOST,
    ),
    Remedy(
        "_remat/choice.py:not_fitting",
        "give it memory=…",
        lambda: optimize(memory="16 B", remat="auto")(mean_square).grad(X, ROWS, wrt="w"),
        lambda: optimize(memory="1 MiB", remat="auto")(mean_square).grad(X, ROWS, wrt="w"),
        lambda: jax.grad(mean_square)(X, ROWS),
    ),
    Remedy(
        "_remat/choice.py:not_fitting",
        "take the batch in parts with `jitney.accumulate`",
        lambda: optimize(memory="16 B", remat="auto")(mean_square).grad(X, ROWS, wrt="w"),
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch", wrt="w")(X, ROWS)[1],
        lambda: jax.grad(mean_square)(X, ROWS),
    ),
    Remedy(
        "_diagnosis/jax_work.py:_WatchListener._span",
        "call it once before",
        compiled_here,
        compiled_before,
        3 * HOST,
    ),
    Remedy(
        "_devices/put.py:place",
        "call it inside `with jitney.mesh(data=-1):`",
        lambda: jitney.place(X, shard="fsdp"),
        lambda: placed(X),
        HOST,
    ),
    Remedy(
        "_jax/mesh.py:mesh",
        "write jitney.mesh(data=2)",
        lambda: jitney.mesh(data=1, devices=3),
        lambda: jitney.place(X, mesh=jitney.mesh(data=1, devices=jax.devices()[:1]), shard="fsdp"),
        HOST,
    ),
    Remedy(
        "_jax/programs/linearized.py:Linear.__call__",
        "write linear({...})",
        lambda: optimize(mean_square).linearize(X, ROWS)[1](X),
        lambda: optimize(mean_square).linearize(X, ROWS)[1]({"w": X, "x": ROWS}),
        lambda: jax.jvp(mean_square, (X, ROWS), (X, ROWS))[1],
    ),
    Remedy(
        "_jax/programs/linearized.py:Linear.__call__",
        "or take the derivative with respect to one argument",
        lambda: optimize(mean_square).linearize(X, ROWS)[1](X),
        lambda: optimize(mean_square).linearize(X, ROWS, wrt="w")[1](X),
        lambda: jax.jvp(lambda w: mean_square(w, ROWS), (X,), (X,))[1],
    ),
    Remedy(
        "_jax/programs/linearized.py:Linear.__call__",
        "map it with its directions: jax.vmap(lambda linear, x: linear(x))(linear, xs)",
        lambda: mapped_squares.linearize(ROWS, wrt="x")[1](ROWS),
        lambda: jax.vmap(lambda linear, x: linear(x))(
            mapped_squares.linearize(ROWS, wrt="x")[1], ROWS
        ),
        lambda: jax.jvp(lambda x: (x**2).sum(1), (ROWS,), (ROWS,))[1],
    ),
    # Simulated and tested.
    Remedy(
        f"{SIMULATE}:_mesh_of",
        'write mesh={"data": 256}',
        lambda: jitney.simulation.simulate(optimize(**LAID)(total), X, device="h100", mesh=3),
        lambda: (
            jitney.simulation.simulate(
                optimize(shard={"n": "data"})(total),
                sizes={"n": 256},
                device="h100",
                mesh={"data": 256},
            )
            and None
        ),
        None,
    ),
    Remedy(
        f"{SIMULATE}:_mesh_of",
        "or leave `mesh` out for one device",
        lambda: jitney.simulation.simulate(optimize(total), X, device="h100", mesh={"data": 4}),
        lambda: jitney.simulation.simulate(optimize(total), X, device="h100") and None,
        None,
    ),
    Remedy(
        "_simulate/device.py:device_of",
        "describe yours with jitney.simulation.Device(...)",
        lambda: jitney.simulation.simulate(optimize(total), X, device="abacus"),
        lambda: (
            jitney.simulation.simulate(
                optimize(total),
                X,
                device=jitney.simulation.Device(
                    "abacus", memory=80e9, bandwidth=2e12, peak={"f32": 3e14}, vector=6e13
                ),
            )
            and None
        ),
        None,
    ),
    Remedy(
        "_simulate/lowering.py:_refuse_callbacks",
        "simulate it without that",
        lambda: jitney.simulation.simulate(optimize(printing), X, device="h100"),
        lambda: jitney.simulation.simulate(optimize(total), X, device="h100") and None,
        None,
    ),
    Remedy(
        "testing.py:_check",
        "correct `…`",
        lambda: jitney.testing.assert_memory(total, X, temp_mb=-1),
        lambda: jitney.testing.assert_memory(total, X, temp_mb=1),
        None,
    ),
    Remedy(
        "testing.py:assert_memory",
        "give temp_mb=50",
        lambda: jitney.testing.assert_memory(growing, X),
        lambda: jitney.testing.assert_memory(growing, X, temp_mb=50),
        None,
    ),
    Remedy(
        "testing.py:_hold_peak",
        "return less, or allow more",
        lambda: jitney.testing.assert_memory(ten_megabytes, peak_mb=1),
        lambda: jitney.testing.assert_memory(ten_megabytes, peak_mb=100),
        None,
    ),
    Remedy(
        "testing.py:_hold_peak",
        "run the test in a process of its own",
        lambda: after_a_higher_peak(),
        lambda: jitney.testing.assert_memory(ten_megabytes, peak_mb=100),
        None,
    ),
    Remedy(
        "testing.py:_hold_peak",
        "python -m pip install psutil",
        lambda: held_by_sources(0),
        lambda: held_by_sources(2),
        None,
    ),
    Remedy(
        "_diagnosis/memory_course.py:read_budget",
        'write memory=True, or memory="8GiB"',
        lambda: jitney.watch(memory="much"),
        lambda: jitney.watch(memory="8GiB") and None,
        None,
    ),
    Remedy(
        "_diagnosis/memory_course.py:warn_budget",
        "or allow more",
        lambda: watched_within("1MiB"),
        lambda: watched_within("100GiB"),
        None,
    ),
    Remedy(
        "testing.py:_hold_temporaries",
        "or allow more",
        lambda: jitney.testing.assert_memory(growing, X, temp_mb=1e-6),
        lambda: jitney.testing.assert_memory(growing, X, temp_mb=100),
        None,
    ),
    Remedy(
        "_measured/profile.py:profile",
        'write `jitney.profile("traces")`',
        lambda: jitney.profile(3),
        lambda: jitney.profile("traces") and None,
        None,
    ),
]


def ten_megabytes():
    return np.ones(1_250_000).sum()


def after_a_higher_peak():
    """Where nobody counts anew, as outside of Linux."""
    np.ones(40_000_000).sum()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(call_memory, "reset_highest", lambda: False)
        jitney.testing.assert_memory(lambda: None, peak_mb=1)


def held_by_sources(count):
    """With the first sources alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memory_samples, "_SOURCES", memory_samples._SOURCES[:count])
        jitney.testing.assert_memory(ten_megabytes, peak_mb=100)


def watched_within(budget):
    with jitney.watch(memory=budget):
        pass


def by_float(n: float):
    return n * 2.0


def placed(x):
    with jitney.mesh(data=-1):
        return jitney.place(x, shard="fsdp")


def printing(x: Float[Array, "n"]):
    jax.debug.print("here")
    return jnp.sum(x**2)


def growing(x):
    return jnp.sum(jnp.sort(jnp.outer(jnp.resize(x, 512), jnp.resize(x, 512)), axis=0)[0])
