"""Seeded causes: two calls of a program that need two, what differs between them, and what to write
so that they share one.

`before` makes a program and calls it twice; `after` is the same code with the remedy in it.
"""

from __future__ import annotations

import enum
import functools
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

import jitney
from jitney import optimize

F = np.float32


def ones(*shape, dtype=F):
    return np.ones(shape, dtype)


@dataclass(frozen=True, eq=False)
class Seeded:
    """One cause. `before` and `after` return the programs that were called, mostly one twice."""

    name: str
    before: Callable[[], Any]
    expected: set[tuple[str, str | None, str | None, str | None, str | None]]
    # None where no line of code helps: the two programs are two
    after: Callable[[], Any] | None = None
    remedy: str = ""  # part of what is said
    extra: dict[str, Any] = field(default_factory=dict)


def twice(program, *calls):
    """Call a program with each of these: a tuple of arguments, the last of them keywords if it is a
    dict of that name.
    """
    for call in calls:
        args, kwargs = (
            (call[:-1], call[-1].given) if call and isinstance(call[-1], Keywords) else (call, {})
        )
        program(*args, **kwargs)
    return program


class Keywords:
    def __init__(self, **given):
        self.given = given


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


def double(x):
    return x * 2


def of_n(x: Float[Array, "n"]):
    return x * 2


def of_nm(x: Float[Array, "n m"]):
    return x * 2


def of_two(t: Float[Array, "points"], y: Float[Array, "points"]):
    return t - y


def scaled(x, scale):
    return x * scale


def scaled_by_array(x, scale: Float[ArrayLike, ""]):
    return x * scale


def scaled_by_int(x, scale: Int[Array, ""]):
    return x * scale.astype(F)


def counts_by_int(x, scale: Int[ArrayLike, ""]):
    return x * scale


def moved(x, up):
    return x + 1 if up else x - 1


def moved_by_array(x, up: Bool[Array, ""]):
    return jnp.where(up, x + 1, x - 1)


def in_mode(x, mode):
    return x + 1 if mode in ("up", Mode.UP) else x - 1


def applied(x, fn):
    return fn(x)


def of_tree(tree):
    return jax.tree.map(lambda leaf: leaf * 2, tree)


def masked(x, mask=None):
    return x if mask is None else x * mask


def taken(x, which):
    return x[np.asarray(which)]


def taken_by_array(x, which: Int[Array, "k"]):
    return x[which]


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def drawn(key):
    return jax.random.normal(key, (2,))


def cast(x, dtype):
    return x.astype(dtype)


class Layer(eqx.Module):
    weight: jax.Array
    power: int = eqx.field(static=True, default=1)

    def __call__(self, x):
        return (self.weight @ x) ** self.power


class Model(eqx.Module):
    layers: list[Layer]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Powers(eqx.Module):
    """A layer whose power is an array."""

    weight: jax.Array
    power: jax.Array

    def __call__(self, x):
        return (self.weight @ x) ** self.power


def fit():
    """An instance of a plain class, whose methods have programs of their own."""

    class Fit:
        @optimize(static="self")
        def shifted(self, x, by):
            return x + by

        @optimize(static="self")
        def shifted_by_array(self, x, by: Float[Array, ""]):
            return x + by

    return Fit()


class Setup:
    """A static argument without `==`."""

    def __init__(self, by):
        self.by = by


@dataclass(frozen=True)
class Compared:
    """One with."""

    by: int


def by_setup(x, setup):
    return x * setup.by


def run(model, x):
    return model(x)


def model(*widths, power=1):
    return Model([Layer(jnp.ones((b, a)), power) for a, b in itertools.pairwise(widths)])


def key_of(impl):
    return jax.random.key(0, impl=impl)


def with_setting(context, program, *args):
    program(*args)
    with context:
        program(*args)
    return program


def within(context, program, *args):
    with context:
        program(*args)
        program(*args)
    return program


def with_default_device(device, program, *args):
    return with_setting(jax.default_device(device), program, *args)


def fresh_lambda(hoisted):
    one = optimize(lambda x: x + 1)
    programs = [one] if hoisted else [optimize(lambda x: x + 2) for _ in range(2)]
    for _ in range(2):
        for program in programs:
            program(ones(3))
    return programs


def fresh_gradient():
    programs = [optimize(lambda x: jnp.sum(x * x)).grad for _ in range(2)]
    for program in programs:
        program(ones(3))
    return programs


def fresh_closure():
    def make(scale):
        @optimize
        def inner(x):
            return x * scale

        return inner

    programs = [make(scale) for scale in (2.0, 3.0)]
    for program in programs:
        program(ones(3))
    return programs


def passed_lambda(hoisted):
    program, one = opt(applied), lambda x: x + 1
    for _ in range(2):
        program(ones(3), one if hoisted else lambda x: x + 2)
    return program


def around(scale):
    return lambda x: x * scale


def around_array(x, fn, scale: Float[Array, ""]):
    return fn(x, scale)


def cleared(clear):
    program = opt(double)
    program(ones(3))
    if clear == "jax":
        jax.clear_caches()
    elif clear:
        program.clear_cache()
    program(ones(3))
    return program


def derived(kind, of, *calls, **options):
    program = optimize(**options)(of) if options else optimize(of)
    for call in calls:
        getattr(program, kind)(*call)
    return getattr(program, kind)


def calls_on(fit, name, *calls):
    program = getattr(fit, name)
    for call in calls:
        program(*call)
    return program


def fresh(fn):
    """The function again, with programs of its own: cases share none."""

    @functools.wraps(fn)
    def same(*args, **kwargs):
        return fn(*args, **kwargs)

    return same


def bare(fn):
    """The function again without a wrapper, which has no defaults of its own."""
    return types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__)


def on_device(x):
    return jax.device_put(x, jax.devices()[0])


def case(name, before, expected, after=None, remedy=""):
    return Seeded(
        name, before, expected if isinstance(expected, set) else {expected}, after, remedy
    )


def opt(fn, **options):
    return optimize(**options)(fresh(fn)) if options else optimize(fresh(fn))


X, COUNTS = ones(3), ones(3, dtype=np.int32)
CASES = [
    case(
        "a size along a named axis",
        lambda: twice(opt(of_n), (ones(5),), (ones(7),)),
        ("shape", "x", "n", "5", "7"),
        lambda: twice(opt(of_n, pad={"n": "pow2"}), (ones(5),), (ones(7),)),
        'pad={"n": "pow2"}',
    ),
    case(
        "the second of two axes",
        lambda: twice(opt(of_nm), (ones(3, 5),), (ones(3, 6),)),
        ("shape", "x", "m", "5", "6"),
        lambda: twice(opt(of_nm, pad={"m": "pow2"}), (ones(3, 5),), (ones(3, 6),)),
        'pad={"m": "pow2"}',
    ),
    case(
        "both axes",
        lambda: twice(opt(of_nm), (ones(3, 5),), (ones(4, 6),)),
        {("shape", "x", "n", "3", "4"), ("shape", "x", "m", "5", "6")},
        lambda: twice(opt(of_nm, pad={"n": "pow2", "m": "pow2"}), (ones(3, 5),), (ones(4, 6),)),
        'pad={"n": "pow2", "m": "pow2"}',
    ),
    case(
        "an axis of two arguments",
        lambda: twice(opt(of_two), (ones(5), ones(5)), (ones(6), ones(6))),
        {("shape", "t", "points", "5", "6"), ("shape", "y", "points", "5", "6")},
        lambda: twice(opt(of_two, pad={"points": "pow2"}), (ones(5), ones(5)), (ones(6), ones(6))),
        'pad={"points": "pow2"}',
    ),
    case(
        "an axis of vmap",
        lambda: twice(opt(of_n, vmap="batch"), (ones(5, 3),), (ones(7, 3),)),
        ("shape", "x", "batch", "5", "7"),
        lambda: twice(opt(of_n, vmap="batch", pad={"batch": "pow2"}), (ones(5, 3),), (ones(7, 3),)),
        'pad={"batch": "pow2"}',
    ),
    case(
        "another bucket",
        lambda: twice(opt(of_n, pad={"n": "pow2"}), (ones(5),), (ones(9),)),
        ("shape", "x", "n", "8", "16"),
        lambda: twice(opt(of_n, pad={"n": [9]}), (ones(5),), (ones(9),)),
        'pad={"n": [9]}',
    ),
    case(
        "a shape without names",
        lambda: twice(opt(double), (ones(5),), (ones(6),)),
        ("shape", "x", None, "[5]", "[6]"),
        lambda: twice(opt(of_n, pad={"n": "pow2"}), (ones(5),), (ones(6),)),
        'annotate x: Float[Array, "n"]',
    ),
    case(
        "a rank",
        lambda: twice(opt(double), (ones(3),), (ones(3, 1),)),
        ("shape", "x", None, "[3]", "[3,1]"),
        lambda: twice(opt(double), (ones(3, 1),), (ones(3, 1),)),
        "as many axes",
    ),
    case(
        "a shape in a list",
        lambda: twice(opt(of_tree), ([ones(2), ones(3)],), ([ones(2), ones(4)],)),
        ("shape", "tree[1]", None, "[3]", "[4]"),
        None,
        "keep the shape of 'tree[1]'",
    ),
    case(
        "a shape in nested dicts",
        lambda: twice(opt(of_tree), ({"a": {"b": ones(2)}},), ({"a": {"b": ones(3)}},)),
        ("shape", "tree['a']['b']", None, "[2]", "[3]"),
    ),
    case(
        "a shape in a module",
        lambda: twice(opt(run), (model(3, 4), X), (model(3, 5), X)),
        ("shape", "model.layers[0].weight", None, "[4,3]", "[5,3]"),
        None,
        "keep the shape of 'model.layers[0].weight'",
    ),
    case(
        "a dtype",
        lambda: twice(opt(double), (ones(3),), (ones(3, dtype=np.int32),)),
        ("dtype", "x", None, "float32", "int32"),
        lambda: twice(opt(double), (ones(3),), (np.asarray(ones(3, dtype=np.int32), np.float32),)),
        "np.asarray(x, np.float32)",
    ),
    case(
        "a dtype of low precision",
        lambda: twice(opt(double), (jnp.ones(3),), (jnp.ones(3, jnp.bfloat16),)),
        ("dtype", "x", None, "float32", "bfloat16"),
        lambda: twice(opt(double), (jnp.ones(3),), (jnp.ones(3, jnp.float32),)),
    ),
    case(
        "a dtype in a module",
        lambda: twice(
            opt(run),
            (Layer(jnp.ones((3, 3))), X),
            (Layer(jnp.ones((3, 3), jnp.bfloat16)), X.astype(jnp.bfloat16)),
        ),
        {
            ("dtype", "model.weight", None, "float32", "bfloat16"),
            ("dtype", "x", None, "float32", "bfloat16"),
        },
    ),
    case(
        "an implementation of keys",
        lambda: twice(opt(drawn), (key_of("threefry2x32"),), (key_of("rbg"),)),
        ("dtype", "key", None, "key<fry>", "key<rbg>"),
        lambda: twice(opt(drawn), (key_of("rbg"),), (key_of("rbg"),)),
        "one implementation",
    ),
    case(
        "a weak type",
        lambda: twice(opt(double), (jnp.float32(1),), (jnp.asarray(1.0),)),
        ("weak type", "x", None, "strong", "weak"),
        lambda: twice(
            opt(double), (jnp.float32(1),), (jnp.asarray(jnp.asarray(1.0), jnp.float32),)
        ),
        "jnp.asarray(x, jnp.float32)",
    ),
    case(
        "a strong type",
        lambda: twice(opt(double), (jnp.asarray(1.0),), (jnp.float32(1),)),
        ("weak type", "x", None, "weak", "strong"),
        lambda: twice(
            opt(double), (jnp.asarray(jnp.asarray(1.0), jnp.float32),), (jnp.float32(1),)
        ),
    ),
    case(
        "a static float",
        lambda: twice(opt(scaled, static="scale"), (X, 2.0), (X, 3.0)),
        ("static value", "scale", None, "2.0", "3.0"),
        lambda: twice(opt(scaled_by_array), (X, 2.0), (X, 3.0)),
        'annotate scale: Float[ArrayLike, ""]',
    ),
    case(
        "a static int",
        lambda: twice(opt(scaled), (COUNTS, 2), (COUNTS, 3)),
        ("static value", "scale", None, "2", "3"),
        lambda: twice(opt(counts_by_int), (COUNTS, 2), (COUNTS, 3)),
        'annotate scale: Int[ArrayLike, ""]',
    ),
    case(
        "a static bool",
        lambda: twice(opt(moved), (X, True), (X, False)),
        ("static value", "up", None, "True", "False"),
        lambda: twice(opt(moved_by_array), (X, np.True_), (X, np.False_)),
        'annotate up: Bool[Array, ""]',
    ),
    case(
        "True for 1",
        lambda: twice(opt(moved), (X, 1), (X, True)),
        ("static value", "up", None, "1", "True"),
        lambda: twice(opt(moved), (X, True), (X, True)),
    ),
    case(
        "a static text",
        lambda: twice(opt(in_mode), (X, "up"), (X, "down")),
        ("static value", "mode", None, "'up'", "'down'"),
    ),
    case(
        "a member of an enum",
        lambda: twice(opt(in_mode), (X, Mode.UP), (X, Mode.DOWN)),
        ("static value", "mode", None, "<Mode.UP: 1>", "<Mode.DOWN: 2>"),
        None,
        "jax.lax.switch",
    ),
    case(
        "a keyword",
        lambda: twice(opt(scaled), (X, Keywords(scale=2)), (X, Keywords(scale=3))),
        ("static value", "scale", None, "2", "3"),
        lambda: twice(
            opt(scaled_by_int), (X, Keywords(scale=np.int32(2))), (X, Keywords(scale=np.int32(3)))
        ),
    ),
    case(
        "a number for an array",
        lambda: twice(opt(scaled), (COUNTS, np.int32(2)), (COUNTS, 2)),
        ("static value", "scale", None, "int32[] (array)", "2 (static)"),
        lambda: twice(opt(scaled), (COUNTS, np.int32(2)), (COUNTS, np.int32(2))),
        "and pass an array each time",
    ),
    case(
        "a default in place of None",
        lambda: twice(optimize(bare(masked)), (X,), (X, X)),
        ("tree structure", "mask", None, "None", "float32[3]"),
        lambda: twice(opt(masked), (X, X), (X, X)),
        "in each call",
    ),
    case(
        "a static list",
        lambda: twice(opt(taken, static="which"), (X, [0, 1]), (X, [0, 2])),
        ("static value", "which", None, "[0, 1]", "[0, 2]"),
        lambda: twice(
            opt(taken_by_array), (X, np.array([0, 1], np.int32)), (X, np.array([0, 2], np.int32))
        ),
        "as an array",
    ),
    case(
        "a static dtype",
        lambda: twice(opt(cast), (X, jnp.float16), (X, jnp.bfloat16)),
        ("static value", "dtype", None, "float16", "bfloat16"),
    ),
    case(
        "a static field of a module",
        lambda: twice(opt(run), (Layer(jnp.ones((3, 3)), 1), X), (Layer(jnp.ones((3, 3)), 2), X)),
        ("static value", "model.power", None, "1", "2"),
        lambda: twice(
            opt(run), *((Powers(jnp.ones((3, 3)), jnp.float32(power)), X) for power in (1, 2))
        ),
        "make 'model.power' an array",
    ),
    case(
        "a static object without ==",
        lambda: twice(opt(lambda x, fit: x * fit.by), *((X, Setup(2)) for _ in range(2))),
        {("static value", "fit", None, "...", "...")},
        lambda: twice(opt(by_setup), *((X, Compared(2)) for _ in range(2))),
        "frozen dataclass",
    ),
    case(
        "an argument of a method",
        lambda: calls_on(fit(), "shifted", (X, 1), (X, 2)),
        {("static value", "by", None, "1", "2")},
        lambda: calls_on(fit(), "shifted_by_array", (X, F(1)), (X, F(2))),
    ),
    case(
        "a keyword of a partial",
        lambda: twice(
            opt(functools.partial(lambda x, a, s: x * a * s, a=2)),
            (X, Keywords(s=1)),
            (X, Keywords(s=2)),
        ),
        ("static value", "s", None, "1", "2"),
    ),
    case(
        "a function that was passed",
        lambda: twice(opt(applied), (X, jnp.sin), (X, jnp.cos)),
        ("static value", "fn", None, "...", "..."),
        None,
        "jax.lax.switch",
    ),
    case(
        "a lambda that was passed, made anew",
        lambda: passed_lambda(hoisted=False),
        ("function", "fn", None, "...", "created again"),
        lambda: passed_lambda(hoisted=True),
        "hoist 'fn'",
    ),
    case(
        "a closure that was passed, around another value",
        lambda: twice(opt(applied), (X, around(2)), (X, around(3))),
        ("function", "fn", None, "scale=2", "scale=3"),
        lambda: twice(opt(around_array), (X, scaled, F(2)), (X, scaled, F(3))),
        "pass 'scale' as an argument",
    ),
    case(
        "a lambda that is decorated anew",
        lambda: fresh_lambda(hoisted=False),
        ("function", None, None, "...", "created again"),
        lambda: fresh_lambda(hoisted=True),
        "hoist",
    ),
    case(
        "a closure that is decorated anew",
        fresh_closure,
        ("function", None, None, "scale=2.0", "scale=3.0"),
        lambda: twice(opt(scaled_by_array), (X, F(2)), (X, F(3))),
        "pass 'scale' as an argument",
    ),
    case(
        "a key of a dict",
        lambda: twice(opt(of_tree), ({"a": X},), ({"a": X, "b": X},)),
        ("tree structure", "tree['b']", None, "absent", "float32[3]"),
        lambda: twice(opt(of_tree), ({"a": X, "b": X},), ({"a": X, "b": X},)),
        "in each call",
    ),
    case(
        "a key that went",
        lambda: twice(opt(of_tree), ({"a": X, "b": X},), ({"a": X},)),
        ("tree structure", "tree['b']", None, "float32[3]", "absent"),
    ),
    case(
        "a longer list",
        lambda: twice(opt(of_tree), ([X],), ([X, X],)),
        ("tree structure", "tree[1]", None, "absent", "float32[3]"),
    ),
    case(
        "a tuple for a list",
        lambda: twice(opt(of_tree), ([X],), ((X,),)),
        ("tree structure", "tree", None, "[*]", "(*,)"),
        lambda: twice(opt(of_tree), ([X],), ([X],)),
        "the same container",
    ),
    case(
        "None in a dict",
        lambda: twice(opt(of_tree), ({"a": X, "b": None},), ({"a": X, "b": X},)),
        ("tree structure", "tree['b']", None, "None", "float32[3]"),
    ),
    case(
        "more layers",
        lambda: twice(opt(run), (model(3, 3), X), (model(3, 3, 3), X)),
        ("tree structure", "model.layers[1].weight", None, "absent", "float32[3,3]"),
    ),
    case(
        "an array that is committed",
        lambda: twice(opt(double), (jnp.ones(3),), (on_device(jnp.ones(3)),)),
        ("committed", "x", None, "not committed", "..."),
        lambda: twice(opt(double), (on_device(jnp.ones(3)),), (on_device(jnp.ones(3)),)),
        "jax.device_put(x, jax.devices()[0])",
    ),
    case(
        "one in a tree that is committed",
        lambda: twice(
            opt(of_tree), ([jnp.ones(3), jnp.ones(2)],), ([jnp.ones(3), on_device(jnp.ones(2))],)
        ),
        ("committed", "tree[1]", None, "not committed", "..."),
    ),
    case(
        "x64",
        lambda: with_setting(jax.enable_x64(True), opt(double), X),
        ("setting", "jax_enable_x64", None, "False", "True"),
        lambda: within(jax.enable_x64(True), opt(double), X),
        "jax.config.update('jax_enable_x64', True)",
    ),
    case(
        "x64 that makes numbers wider",
        lambda: with_setting(jax.enable_x64(True), opt(double), ones(3, dtype=np.float64)),
        ("setting", "jax_enable_x64", None, "False", "True"),
        lambda: within(jax.enable_x64(True), opt(double), ones(3, dtype=np.float64)),
    ),
    case(
        "a matmul precision",
        lambda: with_setting(jax.default_matmul_precision("highest"), opt(double), X),
        ("setting", "jax_default_matmul_precision", None, "None", "'highest'"),
        lambda: within(jax.default_matmul_precision("highest"), opt(double), X),
        "'highest'",
    ),
    case(
        "a default device",
        lambda: with_default_device(jax.devices()[0], opt(double), X),
        ("setting", "jax_default_device", None, "None", "..."),
        lambda: within(jax.default_device(jax.devices()[0]), opt(double), X),
        "once, before the first call",
    ),
    case(
        "a promotion of dtypes",
        lambda: with_setting(jax.numpy_dtype_promotion("standard"), opt(double), X),
        ("setting", "jax_numpy_dtype_promotion", None, "...", "..."),
        lambda: within(jax.numpy_dtype_promotion("standard"), opt(double), X),
    ),
    case(
        "a mesh of the context",
        lambda: with_setting(jitney.mesh(data=1), opt(double), X),
        ("mesh", None, None, "none", "data=1"),
        lambda: within(jitney.mesh(data=1), opt(double), X),
        "one mesh",
    ),
    case(
        "clear_cache",
        lambda: cleared("ours"),
        ("cache eviction", None, None, "kept", "dropped by clear_cache()"),
        lambda: cleared(""),
        "do not call clear_cache()",
    ),
    case(
        "jax.clear_caches",
        lambda: cleared("jax"),
        ("cache eviction", None, None, "kept", "dropped by jax.clear_caches()"),
        lambda: cleared(""),
        "do not call jax.clear_caches()",
    ),
    case(
        "a gradient at another size",
        lambda: derived("grad", fresh(total), (ones(5),), (ones(6),)),
        ("shape", "x", "n", "5", "6"),
        lambda: derived("grad", fresh(total), (ones(5),), (ones(6),), pad={"n": "pow2"}),
        'pad={"n": "pow2"}',
    ),
    case(
        "the gradient of a lambda that is decorated anew",
        fresh_gradient,
        ("function", None, None, "...", "created again"),
        None,
        "hoist",
    ),
    case(
        "a Jacobian at another dtype",
        lambda: derived("jacobian", fresh(double), (ones(3),), (jnp.ones(3, jnp.bfloat16),)),
        ("dtype", "x", None, "float32", "bfloat16"),
    ),
    case(
        "under jax.grad",
        lambda: nested(opt(total), jax.grad),
        ("outer transform", None, None, "called by itself", "..."),
    ),
    case(
        "under jax.vmap",
        lambda: nested(opt(total), lambda f: lambda x: jax.vmap(f)(x[None])),
        ("outer transform", None, None, "called by itself", "..."),
    ),
    case(
        "under an outer jit, with buffers given up",
        lambda: nested(opt(double, donate="x"), jax.jit),
        ("outer transform", None, None, "outside of one", "inside an outer transform"),
    ),
]
"""At each `...` any text will do: an address, a line, or the name of a device stands there."""


def nested(program, transform):
    program(jnp.ones(3))
    transform(program)(jnp.ones(3))
    return program
