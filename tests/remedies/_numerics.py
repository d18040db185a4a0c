"""Remedies of derivatives, of low precision, and of what rounds otherwise when it is compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
ROWS = array(np.arange(12.0).reshape(4, 3), np.float32)
TABLE = np.asarray(ROWS)
OVER, UNCUT, DOUBLE, CAST, CUT = (
    "_diagnosis/tracer_errors.py:over_error",
    "_program/outer_transforms.py:warn_uncut",
    "_program/runners/in_32_bits.py:check_lowering",
    "_stages/autocast.py:Autocast",
    "_stages/chunking/refusals.py:made_of_size",
)
NOISE = np.random.default_rng(0).normal(size=64).astype(np.float32)


def ruled(x, w):
    """A rule that closes over what was computed before it."""
    k = 2 * w

    @jax.custom_vjp
    def f(y):
        return jnp.sum(k * y**2)

    f.defvjp(lambda y: (f(y), y), lambda y, g: (g * 2 * k * y,))
    return f(x)


def ruled_as_argument(x, w):
    @jax.custom_vjp
    def f(y, k):
        return jnp.sum(k * y**2)

    f.defvjp(
        lambda y, k: (f(y, k), (y, k)), lambda known, g: (g * 2 * known[1] * known[0], g * known[0])
    )
    return f(x, 2 * w)


def leftover(square, x):
    """The difference to a square that was rounded: a compiled program rounds once."""
    return jnp.sqrt(x * x - square)


def leftover_in_domain(square, x):
    return jnp.sqrt(jnp.maximum(x * x - square, 0))


def compiled_in_full(fn):
    """As users have it: not with the flag of quick tests, under which nothing is fused."""
    flag = "jax_disable_most_optimizations"
    before = jax.config.read(flag)
    jax.config.update(flag, False)
    try:
        return optimize(debug_nans=True)(fn)(NOISE**2, NOISE)
    finally:
        jax.config.update(flag, before)


def within(x, w):
    """A loss whose parameter the function closes over."""

    def loss(x: Float[Array, "n"]):
        return jnp.sum(jnp.tanh(x * w))

    return optimize(chunk={"n": 2})(loss)(x)


@optimize(chunk={"n": 2})
def as_argument(x: Float[Array, "n"], w: Float[Array, ""]):
    return jnp.sum(jnp.tanh(x * w))


@optimize(chunk={"n": 2})
def ruled_sum(x: Float[Array, "n"]):
    @jax.custom_vjp
    def square(y):
        return y**2

    square.defvjp(lambda y: (square(y), y), lambda y, g: (g * 2 * y,))
    return jnp.sum(square(x))


@optimize(chunk={"n": 2})
def spectral(x: Float[Array, "n"]):
    return jnp.sum(jnp.fft.fft(x).real)


def spectral_apart(x):
    """Without the line that `.grad` names."""
    return optimize(chunk={"n": 2})(total).grad(jnp.fft.fft(x).real, wrt="x")


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def middle(x):
    return jnp.median(x)


def in_64(fn):
    return optimize(precision="f64")(fn)


def slope(f):
    """Forward; JAX can make nothing of the way back in an outer program of 32 bits."""
    return jax.jit(lambda x: jax.jvp(f, (x,), (jnp.ones(3),)))(X)[1]


def summed(x: Float[Array, "n d"], y: Float[Array, "d"]):
    return jnp.sum(x @ y)


def product(x: Float[Array, "n d"], y: Float[Array, "d"]):
    return x @ y


def by_values(options=None):
    f = optimize(precision="auto:1e-2" if options is None else options)(summed)
    data = {"x": TABLE, "y": X}
    return jitney.stream(f, **data, chunk={"n": 2}, progress=False).result


def shape_of(*, called):
    f = optimize(precision="auto:1e-2")(product)
    if called:
        f(ROWS, X)
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (ROWS, X)]
    return np.zeros(f.eval_shape(*like).shape)


def identity(n):
    return jnp.eye(n) @ jnp.ones(n)


def times(head):
    return head @ jnp.ones(3)


IN_ONE = {"default": "bf16", "head": "f32"}


def counted(x: Float[Array, "n"]):
    return jnp.sum(x), x.shape[0] / 2


def sized(x: Float[Array, "n"]):
    return jnp.sum(x), x.shape[0]


def counted_as_array(x: Float[Array, "n"]):
    return jnp.sum(x), jnp.asarray(x.shape[0] / 2)


def cut(fn):
    return optimize(chunk={"n": 2})(fn)(X)


CASES = [
    Remedy(
        OVER,
        "give the rule that value as an argument of its function",
        lambda: optimize(roll="auto")(ruled).grad(X, X, wrt="x"),
        lambda: optimize(roll="auto")(ruled_as_argument).grad(X, X, wrt="x"),
        4 * HOST**2,
        core=True,
    ),
    Remedy(
        OVER,
        "or leave the option out, if the value does not depend on",
        lambda: optimize(roll="auto")(ruled).grad(X, X, wrt="x"),
        lambda: optimize(ruled).grad(X, X, wrt="x"),
        4 * HOST**2,
    ),
    Remedy(
        UNCUT,
        "make that value an argument of the function",
        lambda: jax.grad(within, 1)(X, 2.0),
        lambda: jax.grad(as_argument, 1)(X, jnp.asarray(2.0)),
        np.sum(HOST / np.cosh(2 * HOST) ** 2),
    ),
    Remedy(
        UNCUT,
        "take its derivative with `.grad` or the like, which cut it",
        lambda: jax.grad(ruled_sum)(X),
        lambda: ruled_sum.grad(X, wrt="x"),
        2 * HOST,
    ),
    Remedy(
        UNCUT,
        "or say what to change",
        lambda: jax.grad(spectral)(X),
        lambda: spectral_apart(X),
        2 * np.fft.fft(HOST).real,
    ),
    Remedy(
        DOUBLE,
        "take its gradient with `.grad`, a program of its own",
        lambda: slope(in_64(middle)),
        lambda: jax.jit(lambda x: in_64(middle).grad(x, wrt="x"))(X),
        np.array([1.0, 0, 0]),
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:message",
        "look for rounding at the edge of overflow or of a domain",
        lambda: compiled_in_full(leftover),
        lambda: compiled_in_full(leftover_in_domain),
        np.zeros(64),
        within=1e-3,
    ),
    Remedy(
        "_program/tolerance/decide.py:report_on",
        "pass an array of numbers",
        lambda: optimize(precision="auto:1e-2")(beside)(ROWS, np.zeros(3, jax.dtypes.float0)),
        lambda: optimize(precision="auto:1e-2")(beside)(ROWS, HOST),
        TABLE @ TABLE.T,
        within=1e-2,
    ),
    Remedy(
        f"{CAST}.plan",
        "pass arrays to it",
        lambda: optimize(precision=IN_ONE, static="n")(identity)(3),
        lambda: optimize(precision=IN_ONE)(times)(jnp.eye(3)),
        np.ones(3),
    ),
    Remedy(
        f"{CAST}.wrap",
        "write the policy that `jitney.analysis.precision_report` gives",
        by_values,
        lambda: by_values(jitney.analysis.precision_report(summed, ROWS, X).policy),
        np.sum(TABLE @ HOST),
    ),
    Remedy(
        f"{CAST}.wrap",
        "what is asked of one call is known once it has been made with arrays",
        lambda: shape_of(called=False),
        lambda: shape_of(called=True),
        np.zeros(4),
    ),
    Remedy(
        CUT,
        "return the size itself",
        lambda: cut(counted),
        lambda: cut(sized),
        (2.0, 3),
    ),
    Remedy(
        CUT,
        "or one array that is made of it",
        lambda: cut(counted),
        lambda: cut(counted_as_array),
        (2.0, 1.5),
    ),
]


def beside(x, y):
    return x @ x.T
