"""Remedies of what is said when a function is decorated."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney import Bucket, optimize
from tests._arrays import array
from tests._switched import configured, environment

from ._case import Remedy

POINTS = array([[1.0, -2.0], [3.0, 0.5], [2.0, 2.0]], np.float32)
HOST = np.asarray(POINTS)
READ = "_signature/options/read.py"
READERS = "_signature/options/readers.py"
NAMED = jax.checkpoint_policies.save_only_these_names("name")


def energy(points: Float[Array, "points d"], order=2):
    """One number for each of `d`, from sums along `points`, which can be padded, cut and placed."""
    return jnp.sum(points**order, axis=0)


class Batch(eqx.Module):
    rows: Float[Array, "points d"]
    weights: Float[Array, "points"]


def weighted(batch: Batch, other: Batch):
    return batch.rows.T @ batch.weights + other.rows.T @ other.weights


BATCH = Batch(POINTS, array(np.asarray(POINTS)[:, 0]))


def unit(x: Float[Array, "d"], order=2):
    return jnp.sum(x**order)


def layers(points: Float[Array, "points d"]):
    for _ in range(3):
        points = jnp.tanh(points)
    return points


def plainly(points):
    return np.sum(HOST**2, axis=0)


def _place(at):
    """Names and contradictions are refused in one file, values in another."""
    return f"{READ if at in ('', '_check_name') else READERS}:{at}"


def of_energy(at, words, wrong, right, **more):
    """An option of `energy`, which gives the same numbers under each."""
    return Remedy(
        _place(at),
        words,
        lambda: optimize(**wrong)(energy)(POINTS),
        lambda: optimize(**right)(energy)(POINTS),
        plainly(0),
        **more,
    )


def of_unit(at, words, wrong, right, **more):
    """The same of `unit`, which is mapped."""
    expected = np.sum(HOST**2, axis=1)
    return Remedy(
        _place(at),
        words,
        lambda: optimize(**wrong)(unit)(POINTS),
        lambda: optimize(**right)(unit)(POINTS),
        expected,
        **more,
    )


def with_setting(**settings):
    with configured(**settings):
        return optimize(energy)(POINTS)


def changed_setting(first, second):
    # another function each time, since equal ones share their count of programs
    f = optimize(max_compiles="raise:1")(lambda points: jnp.sum(points**2, axis=0))
    with configured(compiler=first):
        f(POINTS)
        jitney.configure(compiler=second)
        return f(POINTS)


def with_variable(text):
    with environment(JITNEY_COMPILER=text):
        return optimize(energy)(POINTS)


POW2 = {"points": "pow2"}
MESH = jitney.mesh(data=1)
LAID = {"shard": {"points": "data"}, "mesh": MESH}
MAPPED = {"b": {"x": 0}}
TWO = {"vmap": "b", "workers": 2}

CASES = [
    of_energy(
        "_check_name",
        "did you mean",
        {"chunks": {"points": 2}},
        {"chunk": {"points": 2}},
        core=True,
    ),
    of_energy("_check_name", "leave it out", {"zzz": 1}, {}),
    of_energy("_check_name", "write …", {"static_argnames": "order"}, {"static": "order"}),
    of_energy("read_names", 'write …="x" or', {"static": 0}, {"static": "order"}),
    of_energy(
        "read_names", "drop the repetition", {"static": ("order", "order")}, {"static": ("order",)}
    ),
    of_unit("read_vmap", "write vmap=", {"vmap": 0}, {"vmap": "batch"}),
    of_unit("_explicit", 'write vmap={"…": {"x": 0}}', {"vmap": {"b": 0}}, {"vmap": MAPPED}),
    of_unit("_explicit", "write", {"vmap": {"b": {"x[": 0}}}, {"vmap": MAPPED}),
    of_unit(
        "_explicit", "keep one of them", {"vmap": {"b": {"x.a": 0, "x['a']": 0}}}, {"vmap": MAPPED}
    ),
    of_energy("read_pad", "write pad=", {"pad": "points"}, {"pad": POW2}),
    of_energy("_bucket", "choose one of these", {"pad": {"points": 8}}, {"pad": {"points": [8]}}),
    of_energy("read_chunk", "write chunk=", {"chunk": "points"}, {"chunk": {"points": 65536}}),
    of_energy(
        "read_chunk", "keep the longest", {"chunk": {"points": 2, "d": 1}}, {"chunk": {"points": 2}}
    ),
    of_energy("read_memory", "write memory=", {"memory": "2 potatoes"}, {"memory": "2GiB"}),
    of_energy(
        "read_max_compiles", "write max_compiles=3", {"max_compiles": 0}, {"max_compiles": 3}
    ),
    of_energy(
        "read_max_compiles",
        '"raise:3" or "eager:3"',
        {"max_compiles": "stop:3"},
        {"max_compiles": "raise:3"},
    ),
    Remedy(
        "_signature/policies.py:read_policy",
        "choose one of these",
        lambda: optimize(remat="dots")(energy)(POINTS),
        lambda: optimize(remat="dots_saveable")(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/policies.py:read_policy",
        "call it",
        lambda: optimize(remat="save_only_these_names")(energy)(POINTS),
        lambda: optimize(remat=jax.checkpoint_policies.save_only_these_names("name"))(energy)(
            POINTS
        ),
        plainly(0),
    ),
    of_energy("read_roll", 'write roll="auto"', {"roll": True}, {"roll": "auto"}),
    of_energy(
        "read_precision",
        "write precision=",
        {"precision": {"head": "f64"}},
        {"precision": {"default": "bf16"}},
    ),
    of_energy("read_precision", "choose one", {"precision": "float32"}, {"precision": "f32"}),
    of_energy("read_cache", "write cache=True", {"cache": "disk"}, {"cache": True}),
    of_energy("_not_sharding", "write shard=", {"shard": "points", "mesh": MESH}, LAID),
    of_energy(
        "read_mesh",
        "write mesh=jitney.mesh(data=4)",
        {**LAID, "mesh": ("data", 1)},
        {**LAID, "mesh": jitney.mesh(data=1)},
    ),
    of_energy("", "say which: shard=", {"mesh": MESH}, LAID),
    of_energy("read_flag", "write …=True", {"contracts": 1}, {"contracts": True}),
    of_energy("choice.read", "choose one", {"runtime_checks": "soon"}, {"runtime_checks": "later"}),
    *(
        Remedy(
            "_signature/compiler_options.py:read_compiler",
            words,
            lambda given=given: optimize(compiler=given)(energy)(POINTS),
            lambda fixed=fixed: optimize(compiler=fixed)(energy)(POINTS),
            plainly(0),
        )
        for words, given, fixed in (
            ("choose one", "O3", "fast"),
            (
                "write compiler={",
                {"O3": True},
                {"xla_backend_optimization_level": 1},
            ),
            ("leave it out; `precision=", {"xla_cpu_enable_fast_math": True}, {}),
        )
    ),
    Remedy(
        "_host/switches.py:read_settings",
        "correct or remove `…`",
        lambda: jitney.configure(compiler="O3"),
        lambda: with_setting(compiler="default"),
        plainly(0),
    ),
    Remedy(
        "_diagnosis/retraces/remedies.py:for_setting",
        "jitney.configure(…=...), once, before the first call",
        lambda: changed_setting("default", "fast"),
        lambda: changed_setting("fast", "fast"),
        plainly(0),
    ),
    Remedy(
        "_host/switches.py:_of_text",
        "correct …, or unset it",
        lambda: with_variable("slow"),
        lambda: with_variable("fast"),
        plainly(0),
    ),
    Remedy(
        "_signature/renamed.py:with_present_names",
        "keep `…`",
        lambda: optimize(energy, check=False, contracts=False)(POINTS),
        lambda: optimize(energy, contracts=False)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/renamed.py:warn_renamed",
        "write `…` instead of `…`",
        lambda: optimize(energy, checks="later")(POINTS),
        lambda: optimize(energy, runtime_checks="later")(POINTS),
        plainly(0),
    ),
    # Contradictions.
    of_energy(
        "",
        "name it in one of the two options",
        {"static": "order", "donate": "order"},
        {"static": "order"},
        core=True,
    ),
    of_energy("", "drop contracts=False", {"pad": POW2, "contracts": False}, {"pad": POW2}),
    of_energy(
        "",
        "`chunk` needs no padding",
        {"pad": POW2, "chunk": {"points": 2}},
        {"chunk": {"points": 2}},
    ),
    of_energy(
        "",
        'write chunk={"points": "auto"}, memory=',
        {"chunk": {"points": 2}, "memory": "2GiB"},
        {"chunk": {"points": "auto"}, "memory": "2GiB"},
    ),
    of_energy(
        "", 'write memory="2GiB" with it', {"remat": "auto"}, {"remat": "auto", "memory": "2GiB"}
    ),
    of_energy(
        "",
        "`jitney.accumulate` takes",
        {"remat": "auto", "memory": "2GiB", "chunk": {"points": "auto"}},
        {"memory": "2GiB", "chunk": {"points": "auto"}},
    ),
    of_energy(
        "",
        "keep one, or name a policy",
        {"remat": "auto", "memory": "2GiB", **LAID},
        {"remat": "dots_saveable", **LAID},
    ),
    of_energy("", "keep one, or write the layers", {"roll": "auto", **LAID}, LAID),
    of_energy(
        "",
        'drop on_trace_error="eager".',
        {"roll": "auto", "on_trace_error": "eager"},
        {"roll": "auto"},
    ),
    of_energy(
        "",
        "what `memory` cuts needs no padding",
        {"memory": "2GiB", "pad": POW2},
        {"memory": "2GiB"},
    ),
    of_energy(
        "",
        'drop on_trace_error="eager", or',
        {"precision": "bf16", "on_trace_error": "eager"},
        {"precision": "bf16"},
    ),
    of_unit(
        "",
        'give a size, or "auto".',
        {"vmap": "b", "chunk": {"d": "fast"}},
        {"vmap": "b", "chunk": {"d": 1}},
    ),
    of_unit(
        "",
        "give a size, or leave out",
        {"vmap": "b", "chunk": {"b": "fast"}, "donate": "x"},
        {"vmap": "b", "chunk": {"b": "fast"}},
    ),
    of_unit(
        "read_auto", "write auto=True", {"vmap": "b", "auto": "x"}, {"vmap": "b", "auto": True}
    ),
    of_unit("read_workers", "write workers=2", {"vmap": "b", "workers": 0}, TWO),
    of_unit("", 'write vmap="batch" with it', {"workers": 2}, TWO),
    of_unit("", "`shard` divides such an axis", {**TWO, "chunk": {"d": 1}}, TWO),
    of_unit("", "keep one: the whole", {**TWO, "donate": "x"}, TWO),
    of_unit("", "keep one of the two", {**TWO, "memory": "1GiB"}, {"vmap": "b", "memory": "1GiB"}),
    of_unit(
        "",
        "leave out the fallback, or the other",
        {"vmap": "b", "workers": 2, "on_memory_error": "chunk"},
        {"vmap": "b", "on_memory_error": "chunk"},
    ),
    of_energy(
        "",
        "jitney.scan_steps(progress=True)` shows",
        {"progress": True},
        {"progress": True, "chunk": {"points": 2}},
    ),
    # Against the signature.
    Remedy(
        "_body/decoration.py:check_names",
        "did you mean",
        lambda: optimize(static="ordre")(energy),
        lambda: optimize(static="order")(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_body/decoration.py:_demand",
        "did you mean",
        lambda: optimize(pad={"point": "pow2"})(energy),
        lambda: optimize(pad=POW2)(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_body/decoration.py:_demand",
        "annotate the arrays that have it",
        lambda: optimize(chunk={"n": 2})(lambda x: jnp.sum(x))(POINTS),
        lambda: optimize(chunk={"points": 2})(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_view/named_axes.py:_in_fields",
        "pass equal sizes",
        lambda: optimize(pad=POW2)(weighted)(BATCH, Batch(POINTS[1:], POINTS[1:, 0])),
        lambda: optimize(pad=POW2)(weighted)(BATCH, BATCH),
        lambda: 2 * HOST.T @ HOST[:, 0],
    ),
    Remedy(
        "_body/decoration.py:check_names",
        "from the annotations of a function of one element",
        lambda: optimize(vmap="points")(energy),
        lambda: optimize(vmap="points")(unit)(POINTS),
        np.sum(HOST**2, axis=1),
    ),
    Remedy(
        "_body/decoration.py:_check_rank_rule",
        "annotate the arrays",
        lambda: optimize(vmap="b")(lambda x: jnp.sum(x)),
        lambda: optimize(vmap="b")(unit)(POINTS),
        np.sum(HOST**2, axis=1),
    ),
    Remedy(
        "_body/decoration.py:_check_rank_rule",
        "or say it outright",
        lambda: optimize(vmap="b")(lambda x: jnp.sum(x)),
        lambda: optimize(vmap=MAPPED)(lambda x: jnp.sum(x))(POINTS),
        np.sum(HOST, axis=1),
    ),
    # What is decorated.
    Remedy(
        "_interface/optimize.py:_decorate",
        "write @optimize above a function",
        lambda: optimize(3),
        lambda: optimize(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_interface/optimize.py:_decorate",
        "decorate the function of that name in `jax.numpy`",
        lambda: optimize(np.tanh),
        lambda: optimize(jnp.tanh)(POINTS),
        np.tanh(HOST),
    ),
    Remedy(
        "_signature/buckets.py:Bucket.__init__",
        "write jitney.Bucket(sizes=[64, 256]), Bucket(multiple",
        lambda: Bucket(),
        lambda: optimize(pad={"points": Bucket(sizes=[64, 256])})(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/buckets.py:Bucket.__init__",
        "Bucket(multiple=128)",
        lambda: Bucket(),
        lambda: optimize(pad={"points": Bucket(multiple=128)})(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/buckets.py:Bucket.__init__",
        "write jitney.Bucket(sizes=[64, 256]).",
        lambda: Bucket(sizes=[-1]),
        lambda: optimize(pad={"points": Bucket(sizes=[64, 256])})(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/buckets.py:Bucket.__init__",
        "write jitney.Bucket(ladder='pow2').",
        lambda: Bucket(ladder="pow3"),
        lambda: optimize(pad={"points": Bucket(ladder="pow2")})(energy)(POINTS),
        plainly(0),
    ),
    Remedy(
        "_signature/buckets.py:Bucket.fit",
        "Bucket.fit([90, 100, 250], waste=0.1)",
        lambda: Bucket.fit([], waste=0.1),
        lambda: optimize(pad={"points": Bucket.fit([90, 100, 250], waste=0.1)})(energy)(POINTS),
        plainly(0),
    ),
    # Derivatives.
    Remedy(
        "_interface/derivatives/lazy_derivatives.py:lazy_derivatives",
        "choose one",
        lambda: jitney.lazy_derivatives(mode="backward"),
        lambda: jitney.lazy_derivatives(mode="reverse", wrt="x")(unit).grad(POINTS[0]),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/lazy_derivatives.py:lazy_derivatives",
        "write one",
        lambda: jitney.lazy_derivatives(sparse=1),
        lambda: jitney.lazy_derivatives(sparse=False, wrt="x")(unit).grad(POINTS[0]),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/lazy_derivatives.py:lazy_derivatives",
        "keep one",
        lambda: jitney.lazy_derivatives(wrt="x", skip="order"),
        lambda: jitney.lazy_derivatives(wrt="x")(unit).grad(POINTS[0]),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/varying_arguments.py:argument_names",
        'write …="x"',
        lambda: optimize(unit).grad(POINTS[0], wrt=0),
        lambda: optimize(unit).grad(POINTS[0], wrt="x"),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/varying_arguments.py:check_names",
        "leave it out of `static`",
        lambda: optimize(static="x")(unit).grad(POINTS[0], wrt="x"),
        lambda: optimize(unit).grad(POINTS[0], wrt="x"),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._direction",
        "pass …=... by name",
        lambda: optimize(unit).jvp(POINTS[0], wrt="x"),
        lambda: optimize(unit).jvp(POINTS[0], wrt="x", tangents=POINTS[0])[1],
        np.sum(2 * HOST[0] ** 2),
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._by_name",
        'write tangents={"x": ...}',
        lambda: optimize(unit).jvp(POINTS[0], tangents=POINTS[0]),
        lambda: optimize(unit).jvp(POINTS[0], tangents={"x": POINTS[0]})[1],
        np.sum(2 * HOST[0] ** 2),
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._by_name",
        'or name the one argument with wrt="x"',
        lambda: optimize(unit).jvp(POINTS[0], tangents=POINTS[0]),
        lambda: optimize(unit).jvp(POINTS[0], tangents=POINTS[0], wrt="x")[1],
        np.sum(2 * HOST[0] ** 2),
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._check_aux",
        "write one.",
        lambda: optimize(unit).grad(POINTS[0], wrt="x", has_aux=1),
        lambda: optimize(unit).grad(POINTS[0], wrt="x", has_aux=False),
        2 * HOST[0],
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._check_aux",
        "write f.value_and_grad(..., has_aux=True)",
        lambda: optimize(lambda x: (jnp.sum(x), x)).hessian.plan(POINTS, has_aux=True),
        lambda: optimize(lambda x: (jnp.sum(x), x)).value_and_grad(POINTS, wrt="x", has_aux=True),
        ((HOST.sum(), HOST), np.ones((3, 2))),
    ),
    Remedy(
        "_interface/derivatives/derivative.py:Derivative._check_aux",
        "keep one, or name a policy",
        lambda: optimize(memory="1GiB")(lambda x: (jnp.sum(x), x)).grad(POINTS, has_aux=True),
        lambda: optimize(remat="dots_saveable")(lambda x: (jnp.sum(x), x)).grad(
            POINTS, wrt="x", has_aux=True
        ),
        (np.ones((3, 2)), HOST),
    ),
    Remedy(
        "_interface/derivatives/derivative.py:program_of",
        "decorate it with @jitney.optimize",
        lambda: jitney.analysis.strategy(unit, POINTS),
        lambda: jitney.analysis.strategy(optimize(energy), POINTS).axis,
        None,
    ),
    Remedy(
        "_stages/derivatives/arguments.py:unknown_name",
        "did you mean",
        lambda: optimize(unit).grad(POINTS[0], wrt="xx"),
        lambda: optimize(unit).grad(POINTS[0], wrt="x"),
        2 * HOST[0],
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._real_number",
        "or return the sum or mean",
        lambda: optimize(energy).grad(POINTS, wrt="points"),
        lambda: optimize(lambda points: jnp.sum(energy(points))).grad(POINTS, wrt="points"),
        2 * HOST,
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._real_number",
        "use `jacobian` or `vjp`",
        lambda: optimize(energy).grad(POINTS, wrt="points"),
        lambda: optimize(energy).jacobian(POINTS, wrt="points"),
        lambda: jax.jacobian(energy)(POINTS),
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._names",
        "pass an array of floats",
        lambda: optimize(lambda n: n * 2.0).grad(3),
        lambda: optimize(lambda n: n * 2.0).grad(array(3.0), wrt="n"),
        2.0,
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._two",
        "return loss, aux",
        lambda: optimize(unit).grad(POINTS[0], wrt="x", has_aux=True),
        lambda: optimize(lambda x: (unit(x), x)).grad(POINTS[0], wrt="x", has_aux=True),
        (2 * HOST[0], HOST[0]),
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._check_real",
        "take real and imaginary parts",
        lambda: optimize(lambda z: jnp.abs(z) ** 2).grad(array(1 + 2j, np.complex64), wrt="z"),
        lambda: optimize(lambda a, b: jnp.abs(jax.lax.complex(a, b)) ** 2).grad(
            array(1.0, np.float32), array(2.0, np.float32)
        ),
        {"a": 2.0, "b": 4.0},
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._arrays",
        "return an array",
        lambda: optimize(lambda x: ()).jacobian(POINTS, wrt="x"),
        lambda: optimize(lambda x: 2 * x[0, 0]).jacobian(POINTS, wrt="x"),
        np.array([[2.0, 0], [0, 0], [0, 0]]),
    ),
    Remedy(
        "_stages/derivatives/arguments.py:DerivedCall._arrays",
        "return these only",
        lambda: optimize(lambda x: (x[0, 0], "text")).jacobian(POINTS, wrt="x"),
        lambda: optimize(lambda x: 2 * x[0, 0]).jacobian(POINTS, wrt="x"),
        np.array([[2.0, 0], [0, 0], [0, 0]]),
    ),
]
