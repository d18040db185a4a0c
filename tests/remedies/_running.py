"""Remedies of what is said while a program is traced, planned and run."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

import jitney
import jitney.testing
from jitney import LossScale, optimize, scan_steps
from jitney.states import derived
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
ROWS = array(np.arange(12.0).reshape(4, 3), np.float32)
TABLE = np.asarray(ROWS)
DATA, KEEP, FIXES = (
    "_diagnosis/tracer_errors.py:_DATA",
    "_diagnosis/tracer_errors.py:_KEEP",
    "_diagnosis/nonfinite/message.py:_FIXES",
)
STEPS, STATE, VECTOR = (
    "_interface/scan_steps.py",
    "_interface/state.py",
    "_interface/state_vector.py",
)
OUTER = "_program/outer_transforms.py"
UNSPLIT = "_program/runners/unsplit.py"
# Enough systems of equations that threads which solve all at once may hang in LAPACK.
SYSTEMS = np.eye(6, dtype=np.float32) + np.linspace(0, 0.1, 400 * 36, dtype=np.float32).reshape(
    400, 6, 6
)


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def printed(x: Float[Array, "n"]):
    jax.debug.callback(lambda x: None, x)
    return x


def drawn(key):
    return jax.random.normal(key, (3,))


def keys_of(impl):
    return jax.random.split(jax.random.key(7, impl=impl), 6)


def drawn_in_threads(impl):
    return optimize(vmap={"row": {"key": 0}}, workers=2)(drawn)(keys_of(impl))


def first_solution(a: Float[Array, "n n"]) -> Float[Array, "n"]:
    return jnp.linalg.solve(a, a[0])


def silent(x: Float[Array, "n"]):
    return x


def untyped(x):
    return jnp.sum(x**2)


def spectrum(x: Float[Array, "n"]):
    return jnp.fft.fft(x).real


LONG = array(np.linspace(-1, 1, 1024), np.float32)


def smoothed(x: Float[Array, "n"]):
    """Its gradient saves 200 steps, and a step looks at neighbours."""

    def step(x, _):
        return x + 0.1 * x * (jnp.roll(x, 1) - jnp.roll(x, -1)), None

    return jnp.sum(lax.scan(step, x, None, length=200)[0] ** 2)


def smoothed_spectrum(x: Float[Array, "n"]):
    """As `smoothed`, and it looks at all of the axis."""
    return jnp.sum(jnp.fft.fft(x).real) + smoothed(x)


def nans(fn):
    return optimize(debug_nans=True)(fn)


def first_of(x, n):
    return x[: n.astype(int)]


def kept_shape(x, n):
    return jnp.where(jnp.arange(x.shape[0]) < n, x, 0)


def positive(x):
    """At most so many, and zeros in place of those that are not there."""
    places = jnp.nonzero(x > 0, size=10, fill_value=len(x))
    return jnp.sum(x.at[places].get(mode="fill", fill_value=0))


def cut_fixed(x, n):
    return lax.dynamic_slice(x, (0,), (2,))


def step(state, x):
    return state + x, state


class Layer(eqx.Module):
    w: Array

    def __call__(self, x):
        return jnp.tanh(self.w * x)


class Other(eqx.Module):
    v: Array

    def __call__(self, x):
        return self.v * x


def through(layers):
    """Where a loop over layers leads."""
    x = X
    for layer in layers:
        x = layer(x)
    return x


class Wave(jitney.states.State):
    u: Float[Array, "k"]
    v: Float[Array, "k"]


@dataclass
class Point:
    at: Array


@jax.tree_util.register_dataclass
@dataclass
class TreePoint:
    at: Array


class PointModule(eqx.Module):
    at: Array


def moved(x, p):
    return x + p.at


def each(f, values):
    return [f(X, value) for value in values][-1]


def mean_square(w: Float[Array, "d"], x: Float[Array, "batch d"]):
    return jnp.mean((x @ w) ** 2)


def normalised(w: Float[Array, "d"], x: Float[Array, "batch d"]):
    scores = x @ w
    return jnp.mean(((scores - scores.mean()) / jnp.sort(scores)[0]) ** 2)


def of_model(model, x: Float[Array, "batch d"]):
    return x @ model["head"]


MODEL = {"head": array(np.eye(3), np.float32)}


def solved(a: Float[Array, "n n"], b: Float[Array, "n"]):
    return jnp.linalg.solve(a, b)


MATRIX = array(np.eye(3) * 2, np.float32)


def gradients():
    """By both arguments, in one number."""
    w, x = jax.grad(mean_square, (0, 1))(X, ROWS)
    return {"w": w, "x": x}


def donated(x):
    return 2 * x


def use_donated():
    f, x = optimize(donate="x")(donated), jnp.array(HOST)
    f(x)
    return f(x)


def use_returned():
    f, x = optimize(donate="x")(donated), jnp.array(HOST)
    return f(f(x))


def use_copy():
    f, x = optimize(donate="x")(donated), jnp.array(HOST)
    f(jnp.copy(x))
    return f(x)


def add(x, y):
    return x + y


def twice(copied):
    x = jnp.array(HOST)
    return optimize(donate="x")(add)(x, jnp.copy(x) if copied else x)


def traced_metrics():
    return optimize(lambda x: jitney.host(x))(X)


def late_metrics():
    return jitney.host(optimize(lambda x: x)(X)).result()


def sizes_limited(pad):
    f = optimize(max_compiles="raise:1", **({"pad": {"n": [8]}} if pad else {}))(total)
    return [f(np.ones(n, np.float32)) for n in (3, 4)][-1]


def limit_raised():
    f = optimize(max_compiles="raise:2")(total)
    return [f(np.ones(n, np.float32)) for n in (3, 4)][-1]


def padded(option):
    return optimize(**option)(spectrum)(X)


def mapped_rows(options, *given):
    return optimize(**options)(lambda x, y: jnp.sum(x) * y)(*given)


def mapped_parts(paths):
    """The rows of one part of a dict; the other one has no axis."""
    f = optimize(vmap={"b": paths})(lambda p: jnp.sum(p["x"]) * p["y"])
    return f({"x": ROWS, "y": array(1.0)})


CASES = [
    Remedy(
        "_program/runners/workers/worker_calls.py:reason_of",
        "leave out `workers`, or write",
        lambda: optimize(vmap="row", workers=2)(printed)(ROWS),
        lambda: optimize(vmap="row", workers="auto")(printed)(ROWS),
        TABLE,
        core=True,
    ),
    Remedy(
        f"{UNSPLIT}:effects_obstacle",
        "move that line out of the function",
        lambda: optimize(vmap="row", workers=2)(printed)(ROWS),
        lambda: optimize(vmap="row", workers=2)(silent)(ROWS),
        TABLE,
    ),
    Remedy(
        f"{UNSPLIT}:effects_obstacle",
        'draw with keys of `jax.random.key(seed, impl="threefry2x32")`',
        lambda: drawn_in_threads("rbg"),
        lambda: drawn_in_threads("threefry2x32"),
        lambda: np.asarray(jax.vmap(drawn)(keys_of("threefry2x32"))),
    ),
    Remedy(
        f"{UNSPLIT}:lapack_obstacle",
        "cut the axis into narrower chunks",
        lambda: optimize(vmap="row", workers=2)(first_solution)(SYSTEMS),
        lambda: optimize(vmap="row", workers=2, chunk={"row": 50})(first_solution)(SYSTEMS),
        np.linalg.solve(SYSTEMS, SYSTEMS[:, 0, :, None])[..., 0],
    ),
    # Values that a trace does not have.
    Remedy(
        DATA,
        "jax.lax.dynamic_slice",
        lambda: optimize(first_of)(X, array(2.0)),
        lambda: optimize(cut_fixed)(X, array(2.0)),
        HOST[:2],
    ),
    Remedy(
        DATA,
        "jnp.where(jnp.arange(x.shape[0]) < n, x, 0)",
        lambda: optimize(first_of)(X, array(2.0)),
        lambda: optimize(kept_shape)(X, array(2)),
        np.array([1.0, -2.0, 0.0]),
    ),
    Remedy(
        DATA,
        "take it from that array",
        lambda: optimize(lambda x, n: x + jnp.zeros(n))(X, array(3)),
        lambda: optimize(lambda x: x + jnp.zeros(x.shape[0], x.dtype))(X),
        HOST,
    ),
    Remedy(
        DATA,
        "use jax.lax.switch, or index an array",
        lambda: optimize(lambda x, n: {0: x}[n])(X, array(0)),
        lambda: optimize(lambda x, n: jnp.stack([x, -x])[n])(X, array(0)),
        HOST,
    ),
    Remedy(
        KEEP,
        "keep the shape with jnp.where(mask, x, 0)",
        lambda: optimize(lambda x: x[x > 0])(X),
        lambda: optimize(lambda x: jnp.where(x > 0, x, 0))(X),
        np.maximum(HOST, 0),
    ),
    Remedy(
        KEEP,
        "or jnp.where(mask, y, x), for x.at[mask].set(y)",
        lambda: optimize(lambda x: x.at[x > 0].set(9 * x[0]))(X),
        lambda: optimize(lambda x: jnp.where(x > 0, 9 * x[0], x))(X),
        np.where(HOST > 0, 9 * HOST[0], HOST),
    ),
    Remedy(
        KEEP,
        'x.at[jnp.nonzero(mask, size=10, fill_value=len(x))].get(mode="fill", fill_value=0)',
        lambda: optimize(lambda x: x[x > 0].sum())(X),
        lambda: optimize(positive)(X),
        HOST[HOST > 0].sum(),
    ),
    Remedy(
        KEEP,
        "say how many at most with `size=`",
        lambda: optimize(lambda x: jnp.nonzero(x > 0))(X),
        lambda: optimize(lambda x: jnp.nonzero(x > 0, size=2)[0])(X),
        np.nonzero(HOST > 0)[0],
    ),
    Remedy(
        KEEP,
        "with the three arguments of jnp.where",
        lambda: optimize(lambda x: jnp.nonzero(x > 0))(X),
        lambda: optimize(lambda x: jnp.where(x > 0, x, 0))(X),
        np.maximum(HOST, 0),
    ),
    # Not finite.
    Remedy(
        FIXES,
        "keep what it is taken of above 0",
        lambda: nans(jnp.log)(0 * X),
        lambda: nans(jnp.log)(jnp.maximum(X, 1.0)),
        np.log(np.maximum(HOST, 1)),
        core=True,
    ),
    Remedy(
        FIXES,
        "keep what it is taken of above -1",
        lambda: nans(jnp.log1p)(X),
        lambda: nans(lambda x: jnp.log1p(jnp.maximum(x, 0)))(X),
        np.log1p(np.maximum(HOST, 0)),
    ),
    Remedy(
        FIXES,
        "keep what it is taken of at 0 or above",
        lambda: nans(jnp.sqrt)(X),
        lambda: nans(lambda x: jnp.sqrt(jnp.maximum(x, 0)))(X),
        np.sqrt(np.maximum(HOST, 0)),
    ),
    Remedy(
        FIXES,
        "keep the divisor away from 0",
        lambda: nans(lambda x: 1 / x)(0 * X),
        lambda: nans(lambda x: 1 / jnp.maximum(x, 1.0))(0 * X),
        np.ones(3),
    ),
    Remedy(
        FIXES,
        "mask the divisor too",
        lambda: nans(jax.grad(lambda x: jnp.sum(jnp.where(x > 0, 1 / x, 0))))(0 * X),
        lambda: nans(jax.grad(lambda x: jnp.sum(jnp.where(x > 0, 1 / jnp.where(x > 0, x, 1), 0))))(
            0 * X
        ),
        np.zeros(3),
    ),
    Remedy(
        FIXES,
        "keep the exponent below",
        lambda: nans(jnp.exp)(100 * X),
        lambda: nans(lambda x: jnp.exp(jnp.minimum(x, 88)))(X),
        np.exp(HOST),
    ),
    Remedy(
        FIXES,
        "keep the base at 0 or above",
        lambda: nans(lambda x: x**1.5)(X),
        lambda: nans(lambda x: jnp.maximum(x, 0) ** 1.5)(X),
        np.maximum(HOST, 0) ** 1.5,
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:_advice",
        "scale the inputs of … down",
        lambda: nans(lambda x: x * 3e38)(X),
        lambda: nans(lambda x: x * 1e3)(X),
        HOST * 1e3,
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:_advice",
        "give … inputs it is defined for",
        lambda: nans(jnp.arctanh)(3 * X),
        lambda: nans(jnp.arctanh)(X / 10),
        np.arctanh(HOST / 10),
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:message",
        "pass finite numbers",
        lambda: nans(lambda x: 2 * x)(X * np.nan),
        lambda: nans(lambda x: 2 * x)(X),
        2 * HOST,
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:message",
        "mark failure by a flag or a finite number",
        lambda: nans(lambda x: jnp.where(x > 0, x, jnp.nan))(X),
        lambda: nans(lambda x: jnp.where(x > 0, x, -1.0))(X),
        np.where(HOST > 0, HOST, -1),
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:message",
        "or drop debug_nans=True",
        lambda: nans(lambda x: jnp.where(x > 0, x, jnp.nan))(X),
        lambda: optimize(lambda x: jnp.where(x > 0, x, jnp.nan))(X),
        np.where(HOST > 0, HOST, np.nan),
    ),
    # Buffers that are given up.
    Remedy(
        "_diagnosis/tracer_errors.py:donation_error",
        "use what that call returned",
        use_donated,
        use_returned,
        4 * HOST,
        core=True,
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:donation_error",
        "pass a copy (jnp.copy), or",
        use_donated,
        use_copy,
        2 * HOST,
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:donation_error",
        "pass a copy (jnp.copy) for one of them",
        lambda: twice(copied=False),
        lambda: twice(copied=True),
        2 * HOST,
    ),
    Remedy(
        "_devices/host.py:host",
        "call jitney.host on what the call returned",
        traced_metrics,
        late_metrics,
        HOST,
    ),
    # Programs that are too many.
    Remedy(
        "_program/tracing/limit.py:_limit_message",
        "or raise the limit",
        lambda: sizes_limited(pad=False),
        limit_raised,
        4.0,
    ),
    Remedy(
        "_program/runners/padding_recipes.py:explain",
        "or drop the axis from `pad`",
        lambda: padded({"pad": {"n": "pow2"}}),
        lambda: padded({}),
        np.fft.fft(HOST).real,
        core=True,
    ),
    Remedy(
        "_signature/records.py:tree_fix",
        "make `…` an eqx.Module",
        lambda: each(optimize(moved), [Point(X), Point(2 * X)]),
        lambda: each(optimize(moved), [PointModule(X), PointModule(2 * X)]),
        3 * HOST,
    ),
    Remedy(
        "_signature/records.py:tree_fix",
        "write @jax.tree_util.register_dataclass above its @dataclass",
        lambda: each(optimize(moved), [Point(X), Point(2 * X)]),
        lambda: each(optimize(moved), [TreePoint(X), TreePoint(2 * X)]),
        3 * HOST,
    ),
    Remedy(
        "_signature/records.py:refuse_records",
        "where constants are meant, static=",
        lambda: each(optimize(moved), [Point(X), Point(2 * X)]),
        lambda: each(optimize(static="p")(moved), [Point(X), Point(2 * X)]),
        3 * HOST,
    ),
    # Mapped.
    Remedy(
        "_stages/dict_form.py:position_in",
        "or change the position",
        lambda: mapped_rows({"vmap": {"b": {"x": 2}}}, ROWS, 1.0),
        lambda: mapped_rows({"vmap": {"b": {"x": 1}}}, ROWS, 1.0),
        TABLE.sum(0),
    ),
    Remedy(
        "_stages/dict_form.py:position_in",
        "pass an array with that axis",
        lambda: mapped_rows({"vmap": {"b": {"y": 0}}}, ROWS, array(1.0)),
        lambda: mapped_rows({"vmap": {"b": {"y": 0}}}, ROWS, X),
        TABLE.sum() * HOST,
    ),
    Remedy(
        "_stages/dict_form.py:position_in",
        "or change the position…",
        lambda: mapped_parts({"p": 0}),
        lambda: mapped_parts({"p": 0, "p['y']": None}),
        TABLE.sum(1),
    ),
    Remedy(
        "_stages/dict_form.py:refuse_unknown_part",
        "did you mean",
        lambda: mapped_parts({"p.xs": 0}),
        lambda: mapped_parts({"p.x": 0}),
        TABLE.sum(1),
    ),
    Remedy(
        "_stages/dict_form.py:refuse_unknown_part",
        "correct the path",
        lambda: mapped_parts({"p.rows": 0}),
        lambda: mapped_parts({"p.x": 0}),
        TABLE.sum(1),
    ),
    Remedy(
        "_stages/vmap.py:_reason",
        "pass equal sizes",
        lambda: mapped_rows({"vmap": {"b": {"x": 0, "y": 0}}}, ROWS, X),
        lambda: mapped_rows({"vmap": {"b": {"x": 0, "y": 0}}}, ROWS[:3], X),
        TABLE[:3].sum(1) * HOST,
    ),
    # Cut.
    Remedy(
        "_stages/chunking/refusals.py:cannot_cut",
        "move that line out of the function",
        lambda: optimize(chunk={"n": 2})(spectrum)(X),
        lambda: jnp.fft.fft(X).real + 0 * optimize(chunk={"n": 2})(total)(X),
        np.fft.fft(HOST).real,
    ),
    Remedy(
        "_stages/chunking/refusals.py:cannot_cut",
        'write remat="auto" with `memory`',
        lambda: optimize(memory="256 KiB")(smoothed_spectrum).grad(LONG),
        lambda: optimize(memory="256 KiB", remat="auto")(smoothed_spectrum).grad(LONG, wrt="x"),
        lambda: jax.grad(smoothed_spectrum)(LONG),
    ),
    Remedy(
        "_stages/chunking/refusals.py:no_chunk_fits",
        'write remat="auto" with `memory`',
        lambda: optimize(memory="256 KiB")(smoothed).grad(LONG),
        lambda: optimize(memory="256 KiB", remat="auto")(smoothed).grad(LONG, wrt="x"),
        lambda: jax.grad(smoothed)(LONG),
    ),
    Remedy(
        "_stages/chunking/refusals.py:no_chunk_fits",
        "give it memory=…",
        lambda: optimize(memory="8 B")(total)(np.ones(64, np.float32)),
        lambda: optimize(memory="1 MiB")(total)(np.ones(64, np.float32)),
        64.0,
    ),
    Remedy(
        "_stages/chunking/bounded.py:Whole.wrap.whole",
        "or give it memory=…",
        lambda: optimize(memory="8 B")(lambda x: jnp.sum(x))(np.ones(64, np.float32)),
        lambda: optimize(memory="1 MiB")(lambda x: jnp.sum(x))(np.ones(64, np.float32)),
        64.0,
    ),
    Remedy(
        "_stages/chunking/refusals.py:cannot_accumulate",
        "write it as such a mean",
        lambda: jitney.accumulate(normalised, microbatch=2, axis="batch")(X, ROWS),
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch")(X, ROWS)[1],
        gradients,
    ),
    # Precision.
    Remedy(
        "_stages/autocast.py:Autocast.plan",
        "near to it are",
        lambda: optimize(precision={"default": "bf16", "heads": "f32"})(of_model)(MODEL, ROWS),
        lambda: optimize(precision={"default": "bf16", "head": "f32"})(of_model)(MODEL, ROWS),
        TABLE,
    ),
    Remedy(
        "_stages/precision.py:Precision._refusal",
        "it casts products only",
        lambda: optimize(precision="bf16-all")(solved)(MATRIX, X),
        lambda: optimize(precision="bf16")(solved)(MATRIX, X),
        HOST / 2,
    ),
    Remedy(
        "_analysis/precision_report.py:precision_report",
        'write tolerance=1e-2, low="bf16"',
        lambda: jitney.analysis.precision_report(of_model, MODEL, ROWS, tolerance=-1),
        lambda: str(
            jitney.analysis.precision_report(of_model, MODEL, ROWS, tolerance=1e-2, low="bf16")
        )[:0],
        None,
    ),
    # Loops.
    Remedy(
        f"{STEPS}:scan_steps",
        "pass a function, or a program of one",
        lambda: scan_steps(3, 3, over="x"),
        lambda: scan_steps(step, 3, over="x")(array(0.0, np.float32), X)[0],
        HOST.sum(),
    ),
    Remedy(
        f"{STEPS}:_texts",
        'write over=("x", "y")',
        lambda: scan_steps(step, 3, over=3),
        lambda: scan_steps(step, 3, over=("x",))(array(0.0, np.float32), X)[0],
        HOST.sum(),
    ),
    Remedy(
        f"{STEPS}:_names",
        "write n=1000",
        lambda: scan_steps(lambda s: s + 1, -1),
        lambda: scan_steps(lambda s: s + 1, 1000)(array(0)),
        1000,
    ),
    Remedy(
        f"{STEPS}:_names",
        "did you mean",
        lambda: scan_steps(step, 3, over="xx"),
        lambda: scan_steps(step, 3, over="x")(array(0.0, np.float32), X)[0],
        HOST.sum(),
    ),
    # States.
    Remedy(
        f"{STATE}:DerivedField.__init__",
        "write it with `def` in the class",
        lambda: derived(3),
        lambda: Kinetic(X).energy,
        HOST @ HOST,
    ),
    Remedy(
        f"{VECTOR}:_vector",
        "pass a vector of length",
        lambda: Wave(X, X).of(np.ones(5, np.float32)),
        lambda: Wave(X, X).of(np.ones(6, np.float32)).u,
        np.ones(3),
    ),
    Remedy(
        f"{VECTOR}:_no_vector",
        "pass vector.astype(float)",
        lambda: Wave(X, X).of(np.ones(6, int)),
        lambda: Wave(X, X).of(np.ones(6, int).astype(np.float32)).u,
        np.ones(3),
    ),
    Remedy(
        f"{VECTOR}:core_leaves",
        "convert the fields to one dtype",
        lambda: Wave(X, X.astype(jnp.float16)).array,
        lambda: Wave(X, X).array,
        np.concatenate([HOST, HOST]),
    ),
    # Layers.
    Remedy(
        "_interface/stack.py:stack",
        "pass a list or a tuple of them",
        lambda: jitney.stack(3),
        lambda: through(jitney.stack([Layer(X), Layer(X)])),
        np.tanh(HOST * np.tanh(HOST * HOST)),
    ),
    Remedy(
        "_interface/stack.py:stack",
        "pass a list of layers",
        lambda: jitney.stack([]),
        lambda: through(jitney.stack([Layer(X)])),
        np.tanh(HOST * HOST),
    ),
    Remedy(
        "_interface/stack.py:stack",
        "stack those of one structure",
        lambda: jitney.stack([Layer(X), Other(X)]),
        lambda: through([*jitney.stack([Layer(X)]), Other(X)]),
        HOST * np.tanh(HOST * HOST),
    ),
    Remedy(
        "_interface/stack.py:stack",
        "stack those that are alike",
        lambda: jitney.stack([Layer(X), Layer(X[:2])]),
        lambda: through(jitney.stack([Layer(X)])),
        np.tanh(HOST * HOST),
    ),
    # Directions.
    Remedy(
        "_jax/programs/linearized.py:fitting",
        "build it with jax.tree.map",
        lambda: optimize(untyped).jvp(X, tangents={"x": [X]}),
        lambda: optimize(untyped).jvp(X, tangents={"x": jax.tree.map(jnp.ones_like, X)})[1],
        2 * HOST.sum(),
    ),
    Remedy(
        "_jax/programs/linearized.py:fitting",
        "convert or reshape it",
        lambda: optimize(untyped).jvp(X, tangents={"x": X[:2]}),
        lambda: optimize(untyped).jvp(X, tangents={"x": jnp.resize(X[:2], 3)})[1],
        2 * HOST @ np.resize(HOST[:2], 3),
    ),
    # Meshes.
    Remedy(
        "_jax/mesh.py:_sizes",
        "write jitney.mesh(data=-1)",
        lambda: jitney.mesh(data="all"),
        lambda: jitney.place(X, mesh=jitney.mesh(data=-1), shard="fsdp"),
        HOST,
    ),
    Remedy(
        "_jax/mesh.py:_sizes",
        "make an axis smaller",
        lambda: jitney.mesh(data=10_000),
        lambda: jitney.place(X, mesh=jitney.mesh(data=1), shard="fsdp"),
        HOST,
    ),
    Remedy(
        "_stages/sharding.py:no_mesh",
        "call it inside `with jitney.mesh(data=-1):`",
        lambda: optimize(shard={"n": "data"})(total)(X),
        lambda: in_mesh(total),
        HOST @ HOST,
    ),
    Remedy(
        "_stages/sharding.py:no_mesh",
        'with mesh="optional" it runs without one',
        lambda: optimize(shard={"n": "data"})(total)(X),
        lambda: optimize(shard={"n": "data"}, mesh="optional")(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_stages/sharding.py:check_names",
        "did you mean",
        lambda: optimize(shard={"n": "dat"}, mesh=jitney.mesh(data=1))(total)(X),
        lambda: optimize(shard={"n": "data"}, mesh=jitney.mesh(data=1))(total)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_stages/sharding.py:check_axes",
        "name it in an annotation",
        lambda: optimize(shard={"rows": "data"}, mesh=jitney.mesh(data=1))(total)(X),
        lambda: optimize(shard={"rows": "data"}, mesh=jitney.mesh(data=1))(total_of_rows)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_devices/put.py:place",
        'write shard="fsdp"',
        lambda: jitney.place(X, mesh=jitney.mesh(data=1), shard=None),
        lambda: jitney.place(X, mesh=jitney.mesh(data=1), shard="fsdp"),
        HOST,
    ),
    # Losses.
    Remedy(
        "_precision/loss_scale.py:LossScale.__init__",
        "leave out what need not be another",
        lambda: LossScale(initial=-1),
        lambda: bool(LossScale().check()),
        False,
    ),
    Remedy(
        "_precision/loss_scale.py:LossScale.check",
        "call it on what the step returned",
        lambda: jax.jit(lambda s: (s.check(), s)[1])(LossScale()),
        lambda: int(jax.jit(lambda s: s)(LossScale()).check()),
        0,
    ),
    Remedy(
        "_stream/accumulate.py:_check_loss",
        "pass the function",
        lambda: jitney.accumulate(3, microbatch=2, axis="batch"),
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch")(X, ROWS)[1],
        gradients,
    ),
    Remedy(
        "_stream/accumulate.py:_check_values",
        "write microbatch=8",
        lambda: jitney.accumulate(mean_square, microbatch=0, axis="batch"),
        lambda: jitney.accumulate(mean_square, microbatch=8, axis="batch")(X, ROWS)[1],
        gradients,
    ),
    Remedy(
        "_stream/accumulate.py:_check_values",
        "write one",
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch", has_aux=1),
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch", has_aux=False)(X, ROWS)[
            1
        ],
        gradients,
    ),
    Remedy(
        "_stream/accumulate.py:_check",
        "annotate the arrays of the batch",
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="rows")(X, ROWS),
        lambda: jitney.accumulate(mean_square, microbatch=2, axis="batch")(X, ROWS)[1],
        gradients,
    ),
    # Under other transforms.
    Remedy(
        f"{OUTER}:warn_missing_checks",
        "put debug_nans=True on the outermost function",
        lambda: jax.jit(nans(lambda x: 2 * x))(X),
        lambda: nans(jax.jit(lambda x: 2 * x))(X),
        2 * HOST,
    ),
    Remedy(
        "_jax/xla/memory.py:budget_of",
        'write memory="2GiB"',
        lambda: jitney.analysis.strategy(optimize(total), X, memory="much"),
        lambda: jitney.analysis.strategy(optimize(total), X, memory="2GiB").axis[:0],
        None,
    ),
    Remedy(
        "_analysis/axes.py:axes",
        "annotate the arrays",
        lambda: jitney.analysis.axes(lambda x: x, X),
        lambda: list(jitney.analysis.axes(total, X))[:0],
        None,
    ),
    Remedy(
        "_analysis/strategy.py:strategy",
        "annotate the arrays",
        lambda: jitney.analysis.strategy(optimize(lambda x: x), X),
        lambda: jitney.analysis.strategy(optimize(total), X).axis[:0],
        None,
    ),
    Remedy(
        "_analysis/frontier.py:frontier",
        "name arguments that hold such arrays",
        lambda: jitney.analysis.frontier(optimize(lambda n: n), array(3)),
        lambda: str(jitney.analysis.frontier(optimize(total), X, wrt="x"))[:0],
        None,
    ),
    Remedy(
        "_analysis/communication.py:communication",
        "decorate it with @jitney.optimize(shard=",
        lambda: jitney.analysis.communication(optimize(total), X),
        lambda: str(
            jitney.analysis.communication(
                optimize(shard={"n": "data"}, mesh=jitney.mesh(data=1))(total), X
            )
        )[:0],
        None,
    ),
    # Measured.
    Remedy(
        "_measured/arguments.py:put",
        "call it with arrays, at the top level",
        lambda: jitney.measure(total, jax.ShapeDtypeStruct((3,), np.float32)),
        lambda: str(jitney.measure(total, X, seconds=0.01))[:0],
        None,
    ),
    Remedy(
        "_measured/arguments.py:read_devices",
        "leave one of the two out",
        lambda: jitney.measure(total, X, against=total, devices=["cpu:0"]),
        lambda: str(jitney.measure(total, X, devices=["cpu:0"], seconds=0.01))[:0],
    ),
    Remedy(
        "_measured/arguments.py:read_devices",
        'write `devices=["cpu:0"]`, or more of them',
        lambda: jitney.measure(total, X, devices="cpu:0"),
        lambda: str(jitney.measure(total, X, devices=["cpu:0"], seconds=0.01))[:0],
    ),
    Remedy(
        "_measured/arguments.py:read_devices",
        "did you mean",
        lambda: jitney.measure(total, X, devices=["gpu:0"]),
        lambda: str(jitney.measure(total, X, devices=["cpu:0"], seconds=0.01))[:0],
    ),
    Remedy(
        "_measured/arguments.py:read_devices",
        "name one of these",
        lambda: jitney.measure(total, X, devices=["zebra"]),
        lambda: str(jitney.measure(total, X, devices=["cpu:0"], seconds=0.01))[:0],
    ),
    Remedy(
        "_measured/arguments.py:check_calls",
        "hand over a function",
        lambda: jitney.measure(3, X),
        lambda: str(jitney.measure(total, X, seconds=0.01))[:0],
        None,
    ),
    Remedy(
        "_measured/arguments.py:check_calls",
        'write `kwargs={"x": x}`',
        lambda: jitney.measure(total, kwargs=X),
        lambda: str(jitney.measure(total, kwargs={"x": X}, seconds=0.01))[:0],
        None,
    ),
    Remedy(
        "_simulate/device.py:device_of",
        "did you mean",
        lambda: jitney.simulation.simulate(optimize(total), X, device="h10", mesh={"data": 1}),
        lambda: str(
            jitney.simulation.simulate(optimize(total), X, device="h100", mesh={"data": 1})
        )[:0],
        None,
    ),
    Remedy(
        "_simulate/device.py:Device.__post_init__",
        "write jitney.simulation.Device(",
        lambda: jitney.simulation.Device(3, memory=1, bandwidth=1, peak=2, vector=1),
        lambda: str(
            jitney.simulation.Device(
                "mine", memory=80e9, bandwidth=2e12, peak={"bf16": 3e14}, vector=6e13
            )
        )[:0],
        None,
    ),
    Remedy(
        "testing.py:assert_no_recompile",
        "give two calls or more",
        lambda: jitney.testing.assert_no_recompile(optimize(total), [(X,)]),
        lambda: jitney.testing.assert_no_recompile(optimize(total), [(X,), (2 * X,)]),
        None,
    ),
    Remedy(
        "testing.py:assert_no_recompile",
        "give arrays of one shape and dtype",
        lambda: jitney.testing.assert_no_recompile(optimize(total), [(X,), (X[:2],)]),
        lambda: jitney.testing.assert_no_recompile(
            optimize(pad={"n": "pow2"})(total), [(X,), (ROWS[0, :3],)]
        ),
        None,
    ),
]


def total_of_rows(x: Float[Array, "rows"]):
    return jnp.sum(x**2)


def in_mesh(fn):
    with jitney.mesh(data=-1):
        return optimize(shard={"n": "data"})(fn)(X)


class Kinetic(jitney.states.State):
    u: Float[Array, "k"]

    @derived
    def energy(self):
        return jnp.sum(self.u**2)
