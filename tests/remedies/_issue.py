"""Remedies that could not be followed, or that left out the one that works, as people met them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)


def head(x: Float[Array, "n"], n):
    return x[:n]


def head_static(x: Float[Array, "n"], n: int):
    return x[:n]


def branch(x: Float[Array, "n"], params: dict):
    return x if params["sign"] > 0 else -x


def of_data(x: Float[Array, "n"]):
    return x if x.sum() > 0 else -x


def of_data_traced(x: Float[Array, "n"]):
    return lax.cond(x.sum() > 0, lambda: x, lambda: -x)


def spectrum(x: Float[Array, "n"]):
    return jnp.fft.fft(x).real


def apply(x: Float[Array, "n"], init_fns):
    return init_fns[0](x)


def many(f, values):
    """A call for each value."""
    out = None
    for value in values:
        out = f(X, value)
    return out


SQUARE = (lambda y: y**2,)


class Table:
    """As tables of other libraries are: no `__hash__`, and equality by element."""

    __hash__ = None

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers, np.float32)

    def __eq__(self, other):
        return self.numbers == other.numbers

    def to_numpy(self):
        return self.numbers


def scaled(x: Float[Array, "n"], s):
    return x * s.sum()


def squares(u: Float[Array, "n"]):
    return u**2


def mean_of(x: Float[Array, "n"] | Float[Array, "n m"]):
    return x.mean()


def mean_of_matrix(x: Float[Array, "n m"]):
    return x.mean()


def centred(x: Float[Array, ""]):
    return x - lax.pmean(x, "batch")


def centred_whole(x: Float[Array, "batch"]):
    return x - jnp.mean(x, axis=0)


def centred_inside(x):
    return jax.vmap(centred, axis_name="batch")(x)


def summed(x: Float[Array, "n"]):
    return lax.psum(x, "n")


def summed_along(x: Float[Array, "n"]):
    return jnp.sum(x, axis=0)


def norm(x):
    return jnp.linalg.norm(x)


def norm_masked(x):
    s = jnp.sum(x**2)
    return jnp.where(s > 0, jnp.sqrt(jnp.where(s > 0, s, 1.0)), 0.0)


class Scale:
    def __init__(self, factor):
        self.factor = factor

    @optimize
    def of(self, x):
        return x * self.factor


class ScaleModule(eqx.Module):
    factor: Array

    @optimize
    def of(self, x):
        return x * self.factor


def layer(
    w: Float[Array, "d h"],
    b: Float[Array, "h"],
    v: Float[Array, "h k"],
    c: Float[Array, "k"],
    x: Float[Array, "b d"],
):
    return jnp.tanh(x @ w + b) @ v + c


def of_layer(rows):
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=shape).astype(np.float32)
        for shape in ((4, 5), (5,), (5, 3), (3,), (rows, 4))
    ]


def layer_by_numpy(w, b, v, c, x):
    return np.tanh(x @ w + b) @ v + c


def loaded(sizes):
    """The layer from a file in the current folder."""
    optimize(layer).export("layer.jitney", *of_layer(8), sizes=sizes)
    return jitney.load("layer.jitney")


def loss(params: Float[Array, "d"], x: Float[Array, "b d"]):
    return jnp.mean(x @ params)


ROWS = np.ones((8, 3), np.float32)


STATIC = "_diagnosis/tracer_errors.py:_static"
DATA = "_diagnosis/tracer_errors.py:_DATA"
MISFIT = "_errors.py:misfit"
FIX_OF = "_errors.py:_fix_of"
DERIVATIVE = "_stages/derivatives/derive.py:KEYWORDS"

CASES = [
    Remedy(
        STATIC,
        "declare it static, @optimize(static=",
        lambda: optimize(head)(X, array(2)),
        lambda: optimize(static="n")(head_static)(X, 2),
        HOST[:2],
        core=True,
    ),
    Remedy(
        STATIC,
        "pass a Python number there",
        lambda: optimize(branch)(X, {"sign": array(-1.0)}),
        lambda: optimize(branch)(X, {"sign": -1.0}),
        -HOST,
        core=True,
    ),
    Remedy(
        DATA,
        "jax.lax.cond",
        lambda: optimize(of_data)(-X),
        lambda: optimize(of_data_traced)(-X),
        HOST,
    ),
    Remedy(
        "_stages/chunking/refusals.py:_WITHOUT",
        "give `memory` room for all of it",
        lambda: optimize(memory="16 B")(spectrum)(X),
        lambda: optimize(memory="1 GiB")(spectrum)(X),
        np.fft.fft(HOST).real,
        core=True,
    ),
    Remedy(
        "_stages/chunking/refusals.py:_WITHOUT",
        "drop the axis from `chunk`",
        lambda: optimize(chunk={"n": 2})(spectrum)(X),
        lambda: optimize(spectrum)(X),
        np.fft.fft(HOST).real,
    ),
    Remedy(
        "_diagnosis/static_variety.py:_advice",
        "if its functions are created again for each call",
        lambda: many(optimize(static="init_fns")(apply), [(lambda y: y**2,) for _ in range(12)]),
        lambda: many(optimize(static="init_fns")(apply), [SQUARE] * 12),
        HOST**2,
    ),
    Remedy(
        "_values/static_values.py:_numbers",
        "pass `.to_numpy()` of it",
        lambda: optimize(scaled)(X, Table([1, 2])),
        lambda: optimize(scaled)(X, Table([1, 2]).to_numpy()),
        HOST * 3,
        core=True,
    ),
    Remedy(
        DERIVATIVE,
        "jitney.lazy_derivatives(",
        lambda: optimize(squares).jacobian(X, sparse=True),
        lambda: jitney.lazy_derivatives(sparse=True)(squares).jacobian(X, wrt="u").todense(),
        np.diag(2 * HOST),
        core=True,
    ),
    Remedy(
        DERIVATIVE,
        "say with respect to what by name",
        lambda: optimize(squares).jacobian(X, argnums=0),
        lambda: optimize(squares).jacobian(X, wrt="u"),
        np.diag(2 * HOST),
    ),
    Remedy(
        f"{DERIVATIVE}_OF_DERIVATIVES",
        "derivatives take it",
        lambda: optimize(loss)(X, ROWS, wrt="params"),
        lambda: optimize(loss).grad(X, ROWS, wrt="params"),
        np.ones(3),
    ),
    Remedy(
        f"{DERIVATIVE}_OF_DERIVATIVES",
        "f.grad and f.value_and_grad take it",
        lambda: optimize(lambda x: (jnp.sum(x), x))(X, has_aux=True),
        lambda: optimize(lambda x: (jnp.sum(x), x)).grad(X, wrt="x", has_aux=True),
        (np.ones(3), HOST),
    ),
    Remedy(
        MISFIT,
        "did you mean",
        lambda: optimize(loss)(X, xs=ROWS),
        lambda: optimize(loss)(X, x=ROWS),
        HOST.sum(),
        core=True,
    ),
    Remedy(
        MISFIT,
        "leave it out",
        lambda: optimize(squares)(X, verbose=True),
        lambda: optimize(squares)(X),
        HOST**2,
    ),
    Remedy(
        FIX_OF, "pass …", lambda: optimize(loss)(X), lambda: optimize(loss)(X, x=ROWS), HOST.sum()
    ),
    Remedy(
        FIX_OF,
        "once, by position or by name",
        lambda: optimize(squares)(X, u=X),
        lambda: optimize(squares)(X),
        HOST**2,
    ),
    Remedy(
        FIX_OF,
        "by position at most",
        lambda: optimize(squares)(X, X),
        lambda: optimize(squares)(X),
        HOST**2,
    ),
    Remedy(
        FIX_OF,
        "pass positional-only arguments by position",
        lambda: optimize(lambda x, /: x**2)(x=X),
        lambda: optimize(lambda x, /: x**2)(X),
        HOST**2,
    ),
    Remedy(
        "_contract/check.py:_mapped_fix",
        "if `vmap` is to map its first axis, annotate it",
        lambda: optimize(vmap="b")(mean_of)(jnp.ones((2, 3, 3)) * X),
        lambda: optimize(vmap="b")(mean_of_matrix)(jnp.ones((2, 3, 3)) * X),
        lambda: jax.vmap(mean_of)(jnp.ones((2, 3, 3)) * X),
        core=True,
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:unbound_axis_error",
        "in place of `vmap`",
        lambda: optimize(vmap="batch")(centred)(X),
        lambda: optimize(centred_whole)(X),
        HOST - HOST.mean(),
        core=True,
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:unbound_axis_error",
        "by jax.vmap(..., axis_name=",
        lambda: optimize(vmap="batch")(centred)(X),
        lambda: optimize(centred_inside)(X),
        HOST - HOST.mean(),
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:unbound_axis_error",
        "reduce along its position",
        lambda: optimize(summed)(X),
        lambda: optimize(summed_along)(X),
        HOST.sum(),
    ),
    Remedy(
        "_diagnosis/nonfinite/message.py:_ROOT",
        "has no derivative at 0",
        lambda: optimize(debug_nans=True)(jax.grad(norm))(0 * X),
        lambda: optimize(debug_nans=True)(jax.grad(norm_masked))(0 * X),
        np.zeros(3),
        core=True,
    ),
    Remedy(
        "_diagnosis/static_variety.py:_advice",
        "as an argument of its own",
        lambda: [Scale(float(i)).of(X) for i in range(12)],
        lambda: [ScaleModule(array(float(i), np.float32)).of(X) for i in range(12)][-1],
        11 * HOST,
    ),
    Remedy(
        "_export/loading/loaded.py:Loaded._that_fits",
        "range(2, 129) stands for",
        lambda: loaded(None)(*of_layer(71)),
        lambda: loaded({"b": range(2, 129)})(*of_layer(71)),
        lambda: layer_by_numpy(*of_layer(71)),
    ),
    Remedy(
        "_export/loading/loaded.py:Loaded._that_fits",
        "and (0, 1, range(2, 129))",
        lambda: loaded({"b": range(2, 129)})(*of_layer(1)),
        lambda: loaded({"b": (0, 1, range(2, 129))})(*of_layer(1)),
        lambda: layer_by_numpy(*of_layer(1)),
    ),
    Remedy(
        "_export/writing/export_sizes.py:size_combinations",
        "0 and 1 have programs of their own",
        lambda: loaded({"b": range(129)}),
        lambda: loaded({"b": (0, 1, range(2, 129))})(*of_layer(0)),
        np.zeros((0, 3)),
    ),
]
