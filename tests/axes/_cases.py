"""Bodies that treat an axis in every way that a rule exists for, and what they take: one shape for
each argument, "n" for the axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests._arrays import random_key
from tests._compiles import compiles_quickly

Shape = tuple[Any, ...]
F, I, B = np.float32, np.int32, np.bool_
V = [(("n",), F)]
VV = [(("n",), F), (("n",), F)]
M = [(("n", 3), F)]
T = [((3, "n"), F)]
EVEN = [((lambda n: 2 * n,), F)]
SQUARE = [(("n", "n"), F)]
SYSTEM = [(("n", "n"), F), (("n",), F)]
SYSTEMS = [(("n", "n"), F), (("n", 2), F)]
BATCH = [(("n", 2, 2), F)]
INTS = [(("n",), I)]
INDEXED = [(("n",), F), (("n",), I)]
KEY = random_key(0)


@dataclass(frozen=True, eq=False)
class Case:
    """A function, the shapes and dtypes of its arguments, how exact its results are, and the
    smallest size at which plain JAX takes it.
    """

    name: str
    fn: Callable[..., Any]
    takes: Sequence[tuple[Shape, Any]]
    tolerance: float = 1e-5
    least: int = 1

    def avals(self, n: Any) -> list[jax.ShapeDtypeStruct]:
        return [
            jax.ShapeDtypeStruct(tuple(_size(part, n) for part in shape), dtype)
            for shape, dtype in self.takes
        ]

    def flat(self, *arrays: Any) -> list[Any]:
        return jax.tree.leaves(self.fn(*arrays))

    @property
    def wide(self) -> Case:
        """The same body of float64, int64 and complex128."""
        wider = {F: np.float64, I: np.int64, np.complex64: np.complex128}
        return replace(
            self, takes=[(shape, wider.get(dtype, dtype)) for shape, dtype in self.takes]
        )

    @property
    def exact(self) -> Callable[[Sequence[Sequence[Any]]], list[list[Any]]]:
        """The body as it is, at the sizes of several lists of arguments: one program, since most of
        a small one's time is XLA's start.
        """
        return _exact(self, compiles_quickly())

    @property
    def core(self) -> bool:
        """Whether the core of the tests takes it."""
        return self.name in CORE

    @property
    def cut_in_core(self) -> bool:
        """Whether it does so in chunks as well."""
        return self.core and self.name not in PADDED_ALONE


@functools.cache
def _exact(case: Case, quick: bool) -> Callable[[Sequence[Sequence[Any]]], list[list[Any]]]:
    """A program for each way that XLA compiles in (tests/_compiles.py): `jax.jit` would keep that
    of the file which came first.
    """
    del quick
    return jax.jit(lambda groups: [case.flat(*arrays) for arrays in groups])


def _size(part: Any, n: Any) -> Any:
    if callable(part):
        return part(n)
    return n if part == "n" else part


def conv(x, k, spec=("NWC", "OIW", "NWC")):
    return jax.lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=spec)


def strided(x, k, stride, **params):
    return jax.lax.conv_general_dilated(
        x, k, (stride,), "SAME", dimension_numbers=("NWC", "OIW", "NWC"), **params
    )


def neighbours(padded):
    return padded[2:] - 3 * padded[1:-1] + padded[:-2]


def windows(x, first, combine, size, stride, padding):
    return jax.lax.reduce_window(x, x.dtype.type(first), combine, (size,), (stride,), padding)


def attention(x):
    return jax.nn.softmax(x @ x.T / x.dtype.type(np.sqrt(3)), axis=-1) @ x


def standardise(x):
    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)


def spread_of(x):
    return jax.lax.pmax(x, "batch") - jax.lax.pmin(x, "batch")


def normalise(x):
    mean = jax.lax.pmean(x, "batch")
    return (x - mean) / jnp.sqrt(jax.lax.pmean((x - mean) ** 2, "batch") + 1e-5)


def rnn(w, x):
    return jax.lax.scan(lambda h, a: (jnp.tanh(h * w + a), h), jnp.zeros(3), x)[0]


def logistic_loss(w, x, y):
    return jnp.mean((jax.nn.sigmoid(x @ w) - y) ** 2)


def definite(x):
    """A symmetric positive definite matrix, made of any square one."""
    return x @ x.T / 8 + jnp.eye(x.shape[0])


def dominant(x):
    """A matrix that is far from singular, and not symmetric; the largest elements of its columns
    lie off the diagonal.
    """
    return x + 9 * jnp.roll(jnp.eye(x.shape[0]), 1, 0)


def gaussian_process(scale, x, y):
    """The log-likelihood of observations, by a Cholesky factor of their covariance."""
    distances = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    factor = jnp.linalg.cholesky(scale * jnp.exp(-distances) + 0.1 * jnp.eye(x.shape[0]))
    weights = jax.scipy.linalg.cho_solve((factor, True), y)
    return (
        -0.5 * y @ weights
        - jnp.sum(jnp.log(jnp.diag(factor)))
        - 0.5 * x.shape[0] * jnp.log(2 * jnp.pi)
    )


def newton(x):
    return jax.lax.while_loop(lambda c: c < 10.0, lambda c: c * 2 + 11.0, x)


def until_all_are_done(x):
    """Elements grow to three, each at its own pace; and the number of turns, which is of them all
    together.
    """

    def turn(c):
        k, y = c
        return k + 1, jnp.where(y < 3, y + 0.3 + jnp.abs(x) / 4, y)

    k, y = jax.lax.while_loop(lambda c: jnp.any(c[1] < 3) & (c[0] < 50), turn, (0, x))
    return y * k, k


def affine_scan(x):
    return jax.lax.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (jnp.tanh(x), x), axis=1
    )[1]


def recurrent(w, x):
    """A recurrent network over the columns, for each row."""
    return jax.lax.scan(lambda h, a: (jnp.tanh(h * w[0] + a * w[1]), h), jnp.zeros(x.shape[0]), x.T)


def by_row(w, x):
    return jax.vmap(
        lambda row: jax.lax.scan(
            jax.checkpoint(lambda h, a: (jnp.tanh(h * w[0] + a * w[1]), None)), 0.0, row
        )[0]
    )(x)


def nested(w, x):
    def outer(h, a):
        return jax.lax.scan(lambda g, b: (jnp.sin(g * w[0] + b), None), h, a * jnp.ones((2, 1)))[
            0
        ], None

    return jax.lax.scan(outer, jnp.zeros(x.shape[0]), x.T)[0]


def embedded(table, i):
    """The gradient of a table that each turn of a loop reads."""
    return jax.lax.scan(
        lambda h, k: (jnp.tanh(h + table[(i + k) % 4]), None),
        jnp.zeros((i.shape[0], 2)),
        jnp.arange(3),
    )[0]


def images(k, x, *, groups=1):
    numbers = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(
        x, k, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def max_pooled(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def mean_pooled(x):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 1, 1), "SAME") / 4


def convolutional(k, x):
    return jnp.mean(mean_pooled(jnp.tanh(max_pooled(images(k, x)))) ** 2)


POINTWISE = [
    Case("relu", jax.nn.relu, V),
    # an operation of its own since jax 0.12
    Case("base 2", lambda x: getattr(jax.lax, "log2", jnp.log2)(1 + x * x), V),
    Case("where", lambda x: jnp.where(x > 0, x, 0.0), V),
    Case("clip", lambda x: jnp.clip(x, -1.0, 1.0), V),
    Case("softmax over another axis", lambda x: jax.nn.softmax(x, axis=1), M),
    Case("matrix times weights", lambda w, x: jnp.tanh(x @ w), [((3, 2), F), (("n", 3), F)]),
    Case("transpose", lambda x: x.T, M),
    Case("expand and squeeze", lambda x: jnp.squeeze(x[:, None, None] * 2, 1), V),
    Case("stack", lambda x: jnp.stack([x, -x]), V),
    Case("outer product", lambda x: jnp.outer(x, x), V),
    Case("split over another axis", lambda x: jnp.split(x, [1], axis=1), M),
    Case("pairwise differences", lambda x: jnp.sum((x[:, None] - x[None]) ** 2, -1), M),
    Case("one hot", lambda x: jax.nn.one_hot(x, 4), INTS),
    Case("map", lambda x: jax.lax.map(lambda a: jnp.sin(a) * 2, x), V),
    Case("vmap of a loop", jax.vmap(newton), V),
    Case(
        "cholesky over a batch",
        lambda x: jnp.linalg.cholesky(x @ x.transpose(0, 2, 1) + jnp.eye(2)),
        BATCH,
    ),
    Case("inverse over a batch", lambda x: jnp.linalg.inv(x + 9 * jnp.eye(2)), BATCH, 1e-4),
    Case("eigenvalues over a batch", lambda x: jnp.linalg.eigh(x)[0], BATCH, 1e-4),
    Case("determinant over a batch", jnp.linalg.det, BATCH, 1e-4),
    Case(
        "right-hand sides",
        lambda a, b: jnp.linalg.solve(a + 9 * jnp.eye(3), b),
        [((3, 3), F), ((3, "n"), F)],
        1e-4,
    ),
    Case("fft over another axis", lambda x: jnp.abs(jnp.fft.fft(x)), M, 1e-4),
    Case(
        "convolution over another axis",
        lambda k, x: conv(x, k),
        [((4, 2, 3), F), (("n", 10, 2), F)],
        1e-4,
    ),
    Case(
        "windows over another axis",
        lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2), (1, 2), "VALID"),
        [(("n", 6), F)],
    ),
    Case("keep the leading axis", lambda x: x.reshape(-1, 3, 1), M),
    Case("merge behind the leading axis", lambda x: x.reshape(-1), M),
    Case("interleave", lambda x: x.T.reshape(-1), M),
    Case("interleave with itself", lambda x: (x + x.T * 2).reshape(-1), SQUARE),
    Case("rows of its length", lambda x: x.reshape(2, -1) * x[:2, None], EVEN),
    Case("as many rows as columns", lambda x: x.reshape(-1, 3), T),
    Case(
        "interleave in the middle",
        lambda x: x.reshape(4, -1, 3).reshape(2, -1, 3)[:, 1:],
        [((4, lambda n: n + 1, 3), F)],
    ),
    Case("split a multiple", lambda x: x.reshape(-1, 2).sum(1), EVEN),
    Case("a table", lambda table, i: table[i], [((4,), F), (("n",), I)]),
    Case("draws behind another axis", lambda x: x + jax.random.normal(KEY, x.shape), T),
    Case(
        "search in a table",
        lambda table, x: jnp.searchsorted(jnp.sort(table), x),
        [((5,), F), (("n",), F)],
    ),
    Case("normal draws", lambda x: x + jax.random.normal(KEY, x.shape), M),
    Case(
        "16-bit draws",
        lambda x: x * 0 + jax.random.bits(KEY, x.shape, np.uint16).astype(x.dtype),
        V,
    ),
    Case(
        "a key for each",
        lambda x: jax.vmap(lambda k, a: a + jax.random.normal(k))(
            jax.random.split(KEY, x.shape[0]), x
        ),
        V,
    ),
    Case(
        "a key folded for each",
        lambda x: jax.vmap(lambda i, a: a + jax.random.normal(jax.random.fold_in(KEY, i)))(
            jnp.arange(x.shape[0]), x
        ),
        V,
    ),
    Case("dropout", lambda x: jnp.where(jax.random.bernoulli(KEY, 0.5, x.shape), x, 0.0), M),
]
REDUCED = [
    Case("mean", jnp.mean, V),
    Case("variance with ddof", lambda x: jnp.var(x, ddof=1), V, 1e-4),
    Case("standardise", standardise, M, 1e-4),
    Case("softmax", jax.nn.softmax, V),
    Case("log-sum-exp", jax.nn.logsumexp, V),
    Case("norm", jnp.linalg.norm, V),
    Case("max of ints", jnp.max, INTS),
    Case("min and argmin", lambda x: (jnp.min(x), jnp.argmin(x)), V),
    Case("argmax by column", lambda x: jnp.argmax(x, axis=0), M),
    Case("argmax with ties", lambda x: jnp.argmax(x // 2), INTS),
    Case("product", lambda x: jnp.prod(1 + x / 8), V),
    Case("any and all", lambda x: (jnp.any(x > 1), jnp.all(x > -9)), V),
    Case(
        "bitwise",
        lambda x: (
            jax.lax.reduce_xor(x, axes=(0,)),
            jax.lax.reduce_and(x, axes=(0,)),
            jax.lax.reduce_or(x, axes=(0,)),
        ),
        INTS,
    ),
    Case("nanmean", jnp.nanmean, V),
    Case("weighted average", lambda x, w: jnp.average(x, weights=jnp.abs(w)), VV),
    Case("covariance", lambda x: jnp.cov(x.T), M, 1e-4),
    Case("Gram matrix", lambda x: x.T @ x, M, 1e-4),
    Case("rows by rows", lambda x: x @ x.T, M, 1e-4),
    Case("dot", lambda x, y: x @ y, VV, 1e-4),
    Case("einsum of the axis twice", lambda x: jnp.einsum("ij,ik->jk", x, x), M, 1e-4),
    Case("trace", jnp.trace, SQUARE),
    Case("attention", attention, M, 1e-4),
    Case(
        "features of a convolution",
        lambda k, x: conv(x, k),
        [((4, "n", 3), F), ((3, 10, "n"), F)],
        1e-4,
    ),
    Case("segment sum", lambda x, i: jax.ops.segment_sum(x, i, num_segments=4), INDEXED),
    Case("segment min", lambda x, i: jax.ops.segment_min(x, i, num_segments=4), INDEXED),
    Case("segment product", lambda x, i: jax.ops.segment_prod(x, i, num_segments=4), INDEXED),
    Case("subtract from segments", lambda x, i: jnp.zeros(4).at[i].subtract(x), INDEXED),
    Case("segment max", lambda x, i: jax.ops.segment_max(x, i, num_segments=4), INDEXED),
    Case(
        "largest from a number on",
        lambda x, y: jax.lax.reduce(x, jnp.sum(y), jnp.maximum, (0,)),
        [(("n", 3), I), ((3,), I)],
    ),
    Case("count", lambda x: jnp.bincount(x, length=5), INTS),
    Case("histogram", lambda x: jnp.histogram(x, bins=4, range=(-3, 3))[0], V),
    Case("histogram of its own range", lambda x: jnp.histogram(x, bins=4), V),
    Case(
        "sums in a branch",
        lambda x: jax.lax.cond(
            x[0] > 0, lambda y: (y.sum(), y - y.mean()), lambda y: (jnp.std(y), y * 2), x
        ),
        V,
    ),
    Case(
        "conjugate gradients",
        lambda a, b: jax.scipy.sparse.linalg.cg(lambda v: (1 + a * a) * v, b)[0],
        VV,
        1e-3,
    ),
    Case("divide by the size", lambda x: x.sum() / x.shape[0] + x.size, V),
    Case("several levels", lambda x: jnp.linalg.norm((x - x.mean()) / x.std()), V, 1e-4),
]
ORDERED = [
    Case("sort", jnp.sort, V),
    Case("argsort", jnp.argsort, V),
    Case("sort, then slice", lambda x: jnp.sort(x)[:3], V),
    Case("median", jnp.median, V),
    Case("percentile", lambda x: jnp.percentile(x, 30.0), V),
    Case("partition", lambda x: (jnp.partition(x, 1)[:2], jnp.argpartition(x, 2)[:3]), V, least=3),
    Case("all but the least two", lambda x: jax.lax.top_k(x, x.shape[0] - 2), V, least=2),
    Case("largest", lambda x: jax.lax.top_k(x, 2), V, least=2),
    Case("quantiles by column", lambda x: jnp.quantile(x, jnp.array([0.1, 0.5]), axis=0), M),
    Case("largest of columns", lambda x: jax.lax.top_k(x, 2), T, least=2),
    Case("by two keys", lambda x, i: jnp.lexsort((x, i)), INDEXED),
    Case("cumulative sum", jnp.cumsum, V),
    Case("cumulative sum from the end", lambda x: jax.lax.cumsum(x, reverse=True), V),
    Case("cumulative min", jax.lax.cummin, V),
    Case("cumulative max from the end", lambda x: jax.lax.cummax(x, reverse=True), V),
    Case("cumulative log-sum-exp", jax.lax.cumlogsumexp, V),
    Case("cumulative product", lambda x: jnp.cumprod(1 + x / 8), V),
    Case(
        "cumulative sums in both directions",
        lambda x: jax.lax.cumsum(jnp.cumsum(x), reverse=True) / 9,
        V,
        1e-4,
    ),
    Case("scan", lambda x: jax.lax.scan(lambda c, a: (c * 0.5 + a, c), 0.0, x), V),
    Case(
        "scan from the end",
        lambda x: jax.lax.scan(lambda c, a: (c * 0.5 + a, c), 0.0, x, reverse=True),
        V,
    ),
    Case("recurrent network", rnn, [((3,), F), (("n", 3), F)]),
    Case(
        "loop over the size",
        lambda x: jax.lax.fori_loop(0, x.shape[0], lambda k, c: c + x[k], 0.0),
        V,
    ),
    Case(
        "loop until",
        lambda x: jax.lax.while_loop(lambda c: jnp.max(c) < 10, lambda c: c * 2 + 1, x),
        V,
    ),
    Case("loop until all are done", until_all_are_done, V),
    Case("branch", lambda x: jax.lax.cond(jnp.sum(x) > 0, lambda y: y * 2, lambda y: y - 1, x), V),
    Case("where, of a fixed size", lambda x: jnp.where(x > 0, size=3)[0], V),
    Case("unique, of a fixed size", lambda x: jnp.unique(x, size=3), V),
]
MOVED = [
    Case("differences", jnp.diff, V),
    Case("roll", lambda x: jnp.roll(x, 1), V),
    Case("neighbours", lambda x: x[1:] * x[:-1], V),
    Case("every second", lambda x: x[::2], V),
    Case("last", lambda x: x[-1], V),
    Case("last two", lambda x: x[-2:], V),
    Case(
        "first half against second",
        lambda x: jnp.mean(x[: x.shape[0] // 2]) - jnp.mean(x[x.shape[0] // 2 :]),
        V,
    ),
    Case("backwards", lambda x: x[::-1], V),
    Case("flip", lambda x: jnp.flip(x, 0), M),
    Case("concatenate", lambda x, y: jnp.concatenate([x, y, x[:2]]), VV),
    Case("concatenate in front", lambda x: jnp.concatenate([jnp.zeros(2), x]), V),
    Case("pad", lambda x: jnp.pad(x, (1, 2), constant_values=7.0), V),
    Case("crop", lambda x: jax.lax.pad(x, x.dtype.type(3), [(-1, -1, 0)]), V, least=2),
    Case("pad between", lambda x: jax.lax.pad(x, x.dtype.type(3), [(1, 1, 1)]), V),
    Case(
        "pad to it",
        lambda x, y: x + jax.lax.pad(y, y.dtype.type(3), [(0, x.shape[0] - 1, 0)]),
        [(("n",), F), ((1,), F)],
    ),
    Case(
        "pad to it, from both ends",
        lambda x, y: x + jax.lax.pad(y, y.dtype.type(3), [(1, x.shape[0] - 3, 0)]),
        [(("n",), F), ((2,), F)],
    ),
    Case(
        "tiled to it",
        lambda x, y: x + jnp.tile(y, x.shape[0]).reshape(-1, 3),
        [(("n", 3), F), ((3,), F)],
    ),
    Case(
        "placed in it", lambda x, y: x + jnp.zeros_like(x).at[0].set(y[0]), [(("n",), F), ((1,), F)]
    ),
    Case("stencil to the edges", lambda x: neighbours(jnp.pad(x, 1, mode="edge")), V),
    Case(
        "gradient of a stencil to the edges",
        jax.grad(lambda x: jnp.sum(neighbours(jnp.pad(x, 1, mode="edge")) ** 2)),
        V,
    ),
    Case("tile", lambda x: jnp.tile(x, 2), V),
    Case("repeat", lambda x: jnp.repeat(x, 2), V),
    Case("diagonal", jnp.diag, V),
    Case("lower triangle", jnp.tril, SQUARE),
    Case("symmetrise", lambda x: x + x.T, SQUARE),
    Case("take", lambda x: x[jnp.array([0, 1, -1])], V),
    Case("rows of a table of it", lambda x, i: jnp.take(x, i, axis=0), [(("n", 3), F), ((4,), I)]),
    Case("take beyond the end", lambda x: jnp.take(x, jnp.array([0, 100, -1, 6])), V),
    Case("take, clipped", lambda x: jnp.take(x, jnp.array([0, 100]), mode="clip"), V),
    Case("by an index of its own", lambda x, i: x[i], INDEXED),
    Case("set behind the first", lambda x: x.at[1:].set(0.0), V),
    Case("set before the last", lambda x: x.at[:-1].set(x[1:] * 2), V),
    Case("add behind the first", lambda x: x.at[1:].add(x[:-1]), V),
    Case("write a slice", lambda x: jax.lax.dynamic_update_slice(x, x[:2] * 2, (1,)), V),
    Case("set the first", lambda x: x.at[0].set(5.0), V),
    Case("add to the last", lambda x: x.at[-1].add(5.0), V),
    Case("set, clipped", lambda x: x.at[jnp.array([0, 100])].set(5.0, mode="clip"), V),
    Case("add beyond the end", lambda x: x.at[jnp.array([0, 6, 100])].add(5.0), V),
    Case("a longer argument", lambda x, y: jnp.diff(x) * y, [((lambda n: n + 1,), F), (("n",), F)]),
    Case("convolution along it", lambda k, x: conv(x, k), [((4, 2, 3), F), ((3, "n", 2), F)], 1e-4),
    Case("trapezoid", jnp.trapezoid, V),
    Case("linear interpolation", lambda x: jnp.interp(x, jnp.arange(3.0), jnp.arange(3.0)), V),
    Case("QR along it", lambda x: jnp.linalg.qr(x), M, 1e-4),
    Case("positions", lambda x: x * jnp.arange(x.shape[0], dtype=x.dtype), V),
]
DERIVATIVES = [
    Case("gradient of a mean", jax.grad(lambda x: jnp.mean(x**2)), V),
    Case("gradient of a norm", jax.grad(jnp.linalg.norm), V),
    Case("gradient of softmax", jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2)), V),
    Case("gradient of a variance", jax.grad(jnp.var), V),
    Case("gradient of a maximum", jax.grad(jnp.max), V),
    Case("gradient of differences", jax.grad(lambda x: jnp.sum(jnp.diff(x) ** 2)), V),
    Case("gradient of a roll", jax.grad(lambda x: jnp.sum(jnp.roll(x, 1) * x**2)), V),
    Case("gradient of a roll backwards", jax.grad(lambda x: jnp.sum(jnp.roll(x, -2) * x**2)), V),
    Case(
        "gradient of an associative scan over another axis",
        jax.grad(lambda x: jnp.sum(affine_scan(x) ** 2)),
        M,
        1e-4,
    ),
    Case(
        "gradient of a cumulative product over another axis",
        jax.grad(lambda x: jnp.sum(jnp.cumprod(x, 1))),
        M,
        1e-4,
    ),
    Case("gradient of a sort", jax.grad(lambda x: jnp.sum(jnp.sort(x)[:2])), V),
    Case("gradient of a cumulative sum", jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum()), V, 1e-4),
    Case(
        "gradient of a scan",
        jax.grad(lambda w, x: rnn(w, x).sum()),
        [((3,), F), (("n", 3), F)],
        1e-4,
    ),
    Case("gradient of a median", jax.grad(jnp.median), V),
    Case(
        "gradient of the largest",
        jax.grad(lambda x: jnp.sum(jax.lax.top_k(x, 2)[0] ** 2)),
        V,
        least=2,
    ),
    Case(
        "gradient of sums in a branch",
        jax.grad(lambda x: jax.lax.cond(x[0] > 0, jnp.sum, lambda y: jnp.sum(jnp.sin(y)), x)),
        V,
    ),
    Case(
        "gradient of a checkpoint",
        jax.grad(lambda x: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)))(x).sum()),
        V,
    ),
    Case(
        "gradient of a masked log",
        jax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0))),
        V,
    ),
    Case(
        "gradient for shared weights",
        jax.grad(logistic_loss),
        [((3,), F), (("n", 3), F), (("n",), F)],
    ),
    Case(
        "gradient for each",
        lambda w, x: jax.vmap(jax.grad(lambda w, a: jnp.sum(jnp.sin(w * a))), (None, 0))(w, x),
        [((3,), F), (("n", 3), F)],
    ),
    Case("forward Jacobian", jax.jacfwd(lambda x: jnp.stack([jnp.mean(x), jnp.sum(x**2)])), V),
    Case("reverse Jacobian", jax.jacrev(lambda x: jnp.stack([jnp.mean(x), jnp.sum(x**2)])), V),
    Case("diagonal Jacobian", jax.jacfwd(lambda x: x**2), V),
    Case(
        "Hessian for weights",
        jax.hessian(lambda w, x: jnp.sum(jnp.sin(x @ w))),
        [((3,), F), (("n", 3), F)],
        1e-4,
    ),
    Case("directional derivative", lambda x, y: jax.jvp(jax.nn.logsumexp, (x,), (y,)), VV),
]
PAIR, IMAGES = ((2,), F), (("n", 2, 4, 4), F)
LOOPS = [
    Case(
        "sums of a loop",
        lambda w, x: jax.lax.scan(
            lambda c, a: (c + w * jnp.sum(jnp.sin(a * x), 0), jnp.sum(x * a)), w, jnp.arange(4.0)
        ),
        [((3,), F), (("n", 3), F)],
    ),
    Case(
        "sums of a loop until",
        lambda w, x: jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5 + x.sum(0)), (0, w)
        )[1],
        [((3,), F), (("n", 3), F)],
    ),
    Case(
        "extremes of a loop",
        lambda w, x: jax.lax.scan(
            lambda c, a: (jnp.maximum(c, jnp.max(a)), jnp.any(a > 1)), w[0], x.T
        ),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "product of a loop",
        lambda x: jax.lax.scan(lambda c, a: (c * jnp.prod(1 + a / 8), None), 2.0, x.T)[0],
        M,
    ),
    Case(
        "sums of a branch",
        lambda w, x: jax.lax.cond(
            w[0] > 0, lambda y: (jnp.sum(y, 0), y), lambda y: (jnp.zeros(3), 2 * y), x
        ),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "a sum, or a number, of a branch",
        lambda w, x: jax.lax.cond(w[0] > 0, lambda y: jnp.sum(y, 0), lambda y: jnp.ones(3), x),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "sums that are moved",
        lambda x: jax.lax.scan(
            lambda c, a: (c.at[0].add(jnp.sum(a)), jnp.stack([jnp.sum(a), jnp.sum(a * a)])[::-1]),
            jnp.ones(2),
            x.T,
        ),
        M,
    ),
    Case(
        "bins of a loop",
        lambda x, i: jax.lax.scan(lambda c, a: (c.at[i].add(a), None), jnp.zeros(4), x.T)[0],
        [(("n", 3), F), (("n",), I)],
    ),
    Case(
        "gradient of a recurrent network",
        jax.grad(lambda w, x: jnp.mean(recurrent(w, x)[0] ** 2)),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "gradient of what a recurrent network stacks",
        jax.value_and_grad(lambda w, x: jnp.mean(jax.checkpoint(recurrent)(w, x)[1] ** 2)),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "gradient of a network for each row",
        jax.grad(lambda w, x: jnp.sum(by_row(w, x) ** 2)),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "gradient of nested loops",
        jax.grad(lambda w, x: jnp.sum(nested(w, x))),
        [PAIR, (("n", 3), F)],
    ),
    Case(
        "gradient of a table in a loop",
        jax.grad(lambda table, i: jnp.sum(embedded(table, i) ** 2)),
        [((4, 2), F), (("n",), I)],
    ),
]
IMAGED = [
    Case("gradient of max pooling", jax.grad(lambda x: jnp.sum(max_pooled(x) ** 2)), [IMAGES]),
    Case("gradient of mean pooling", jax.grad(lambda x: jnp.sum(mean_pooled(x) ** 2)), [IMAGES]),
    Case(
        "gradient of a convolutional network",
        jax.grad(convolutional),
        [((2, 2, 3, 3), F), IMAGES],
        1e-4,
    ),
    Case(
        "Hessian's product with pooling",
        lambda k, x: jax.jvp(jax.grad(convolutional), (k, x), (k, x)),
        [((2, 2, 3, 3), F), IMAGES],
        1e-4,
    ),
    Case(
        "gradient of a grouped convolution",
        jax.grad(lambda k, x: jnp.mean(images(k, x, groups=2) ** 2)),
        [((4, 1, 3, 3), F), IMAGES],
    ),
    Case(
        "windows by a computation",
        lambda x: jax.lax.reduce_window(
            x, 1.0, lambda a, b: a * b + 0 * a, (1, 1, 2, 2), (1, 1, 1, 1), "VALID"
        ),
        [IMAGES],
    ),
]
MATRICES = [
    Case("cholesky along it", lambda x: jnp.linalg.cholesky(definite(x)), SQUARE, 1e-4),
    Case(
        "upper cholesky along it",
        lambda x: jnp.linalg.cholesky(definite(x), upper=True),
        SQUARE,
        1e-4,
    ),
    Case("solve along it", lambda x, b: jnp.linalg.solve(dominant(x), b), SYSTEM, 1e-4),
    Case("solve from the right", lambda x, b: jnp.linalg.solve(dominant(x).T, b).T, SYSTEMS, 1e-4),
    Case(
        "solve a positive system",
        lambda x, b: jax.scipy.linalg.solve(definite(x), b, assume_a="pos"),
        SYSTEMS,
        1e-4,
    ),
    Case(
        "solve a lower triangle",
        lambda x, b: jax.scipy.linalg.solve_triangular(definite(x), b, lower=True),
        SYSTEMS,
        1e-4,
    ),
    Case(
        "solve an upper triangle",
        lambda x, b: jax.scipy.linalg.solve_triangular(definite(x), b),
        SYSTEM,
        1e-4,
    ),
    Case(
        "solve a transposed triangle",
        lambda x, b: jax.scipy.linalg.solve_triangular(definite(x), b, trans=1, lower=True),
        SYSTEM,
        1e-4,
    ),
    Case(
        "solve a unit triangle",
        lambda x, b: jax.scipy.linalg.solve_triangular(x / 9, b, unit_diagonal=True),
        SYSTEM,
        1e-4,
    ),
    Case("LU along it", lambda x: jax.scipy.linalg.lu(dominant(x)), SQUARE, 1e-4),
    Case(
        "solve by LU",
        lambda x, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(dominant(x)), b, trans=1),
        SYSTEM,
        1e-4,
    ),
    Case("inverse along it", lambda x: jnp.linalg.inv(dominant(x)), SQUARE, 1e-4),
    Case("determinant along it", lambda x: jnp.linalg.det(dominant(x) / 4), SQUARE, 1e-3),
    Case("log-determinant along it", lambda x: jnp.linalg.slogdet(dominant(x)), SQUARE, 1e-4),
    Case(
        "log-determinant by QR",
        lambda x: jnp.linalg.slogdet(dominant(x), method="qr"),
        SQUARE,
        1e-4,
    ),
    Case("QR of a square", lambda x: jnp.linalg.qr(dominant(x)), SQUARE, 1e-4),
    Case("QR with all of Q", lambda x: jnp.linalg.qr(x, mode="complete"), M, 1e-4),
    Case("QR of columns", lambda x: jnp.linalg.qr(x), T, 1e-4),
    Case("singular values", lambda x: jnp.linalg.svd(x, compute_uv=False), M, 1e-4),
    Case("singular values of a square", jnp.linalg.svdvals, SQUARE, 1e-4),
    Case("spectral norm", lambda x: jnp.linalg.norm(x, 2), T, 1e-4),
    Case("pseudo-inverse", jnp.linalg.pinv, M, 1e-4),
    Case("pseudo-inverse to a tolerance", lambda x: jnp.linalg.pinv(x, rtol=0.3), M, 1e-4),
    Case("pseudo-inverse of columns", jnp.linalg.pinv, T, 1e-4),
    Case("pseudo-inverse of a square", lambda x: jnp.linalg.pinv(dominant(x)), SQUARE, 1e-4),
    Case(
        "least squares",
        lambda x, y: jnp.linalg.lstsq(x, y)[::3],
        [(("n", 3), F), (("n",), F)],
        1e-4,
    ),
    Case("Gaussian process", gaussian_process, [((), F), (("n", 3), F), (("n",), F)], 1e-4),
    Case(
        "gradient of a Gaussian process",
        jax.grad(gaussian_process, (0, 1, 2)),
        [((), F), (("n", 3), F), (("n",), F)],
        1e-3,
    ),
    Case(
        "gradient of a log-determinant",
        jax.grad(lambda x: jnp.linalg.slogdet(dominant(x))[1]),
        SQUARE,
        1e-4,
    ),
    Case(
        "gradient of a determinant",
        jax.grad(lambda x: jnp.linalg.det(dominant(x) / 4)),
        SQUARE,
        1e-3,
    ),
    Case(
        "gradient of a solve",
        jax.grad(lambda x, b: jnp.sum(jnp.linalg.solve(dominant(x), b) ** 2), (0, 1)),
        SYSTEM,
        1e-4,
    ),
    Case(
        "gradient of a pseudo-inverse",
        jax.grad(lambda x: jnp.sum(jnp.sin(jnp.linalg.pinv(x)))),
        M,
        1e-4,
    ),
    Case(
        "gradient of an inverse",
        jax.grad(lambda x: jnp.sum(jnp.sin(jnp.linalg.inv(dominant(x))))),
        SQUARE,
        1e-4,
    ),
]
WINDOWS = [
    Case("largest of windows", lambda x: windows(x, -np.inf, jax.lax.max, 2, 2, "VALID"), V),
    Case(
        "least of windows at a stride, padded by the size",
        lambda x: windows(x, np.inf, jax.lax.min, 3, 2, "SAME"),
        V,
    ),
    Case("moving sum", lambda x: windows(x, 0.0, jax.lax.add, 3, 1, "SAME"), V),
    Case("moving product", lambda x: windows(1 + x / 8, 1.0, jax.lax.mul, 3, 1, "SAME"), V),
    Case(
        "windows in rows and columns",
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (2, 1), "SAME"),
        M,
    ),
    Case("average pooling along it", lambda x: windows(x, 0.0, jax.lax.add, 3, 2, "SAME") / 3, V),
    Case(
        "convolution at a stride, padded by the size",
        lambda k, x: strided(x, k, 2),
        [((4, 2, 3), F), ((3, "n", 2), F)],
        1e-4,
    ),
    Case(
        "convolution with holes",
        lambda k, x: strided(x, k, 1, rhs_dilation=(2,)),
        [((4, 2, 3), F), ((3, "n", 2), F)],
        1e-4,
    ),
    Case(
        "transposed convolution",
        lambda k, x: jax.lax.conv_transpose(x, k, (2,), "SAME"),
        [((3, 2, 4), F), ((3, "n", 2), F)],
        1e-4,
    ),
    Case(
        "gradient of a convolution",
        jax.grad(lambda k, x: jnp.sum(conv(x, k) ** 2), (0, 1)),
        [((4, 2, 3), F), ((3, "n", 2), F)],
        1e-4,
    ),
    Case(
        "gradient of a moving sum",
        jax.grad(lambda x: jnp.sum(windows(x, 0.0, jax.lax.add, 3, 1, "SAME") ** 2)),
        V,
        1e-4,
    ),
    Case(
        "gradient of average pooling",
        jax.grad(lambda x: jnp.sum(windows(x, 0.0, jax.lax.add, 3, 2, "SAME") ** 2)),
        V,
        1e-4,
    ),
]
NAMED = [  # the axis of a `vmap`, by its name
    Case(
        "mean over a mapped axis",
        jax.vmap(lambda a: a - jax.lax.pmean(a, "batch"), axis_name="batch"),
        M,
    ),
    Case(
        "sum over a mapped axis, of a tree",
        jax.vmap(lambda a: jax.lax.psum((a, a * a), "batch"), axis_name="batch"),
        M,
        1e-4,
    ),
    Case(
        "size of a mapped axis",
        jax.vmap(
            lambda a: a * jax.lax.psum(1, "batch") + jax.lax.psum(2, "batch"), axis_name="batch"
        ),
        V,
    ),
    Case(
        "place in a mapped axis",
        jax.vmap(lambda a: a + jax.lax.axis_index("batch").astype(a.dtype), axis_name="batch"),
        V,
    ),
    Case(
        "extremes over a mapped axis",
        jax.vmap(lambda a: a + spread_of(jax.lax.stop_gradient(a)), axis_name="batch"),
        M,
    ),
    Case("batch normalisation", jax.vmap(normalise, axis_name="batch"), M, 1e-4),
    Case(
        "gradient of batch normalisation",
        jax.grad(lambda x: jnp.sum(jax.vmap(normalise, axis_name="batch")(x) ** 3)),
        M,
        1e-3,
    ),
]
BUFFER, TABLE = ((48, 3), F), ((4, 48), F)
ROWS = (("n", 3), F)
PLACE, PLACES = ((), I), ((3,), I)


def window_at(buffer, place, like):
    """As many elements of a buffer as `like` has, from a computed position on, which may leave no
    room for them.
    """
    return jax.lax.dynamic_slice_in_dim(buffer, place * 20, like.shape[0])


def written_at(buffer, x, place):
    """A buffer with `x` written to a computed position, which may leave no room for it."""
    return jax.lax.dynamic_update_slice_in_dim(buffer, x, place * 20, 0)


def lower(x, mask):
    """Attention of each element to those before it, by a mask that is cut from a longer one."""
    n = x.shape[0]
    return jax.nn.softmax(jnp.where(mask[:n, :n] > 0, x * x[:, None], -jnp.inf)) @ x


PREFIXES = [  # parts of buffers of a fixed length that are as long as the axis
    Case("prefix of a buffer", lambda x, pos: x * pos[: x.shape[0]], [ROWS, BUFFER]),
    Case(
        "prefix behind a new axis",
        lambda x, pos: x[None] + pos[None, : x.shape[0]],
        [ROWS, BUFFER],
    ),
    Case(
        "prefix along the last axis",
        lambda x, pos: x + pos[:, : x.shape[0]].T,
        [ROWS, ((3, 48), F)],
    ),
    Case("end of a buffer", lambda x, pos: x + pos[-x.shape[0] :], [ROWS, BUFFER]),
    Case("part of a buffer", lambda x, pos: x + pos[2 : x.shape[0] + 2], [ROWS, BUFFER]),
    Case("two fewer of a buffer", lambda x, pos: x[:-2] + pos[1 : x.shape[0] - 1], [ROWS, BUFFER]),
    Case(
        "slice of a buffer",
        lambda x, pos: x + jax.lax.slice_in_dim(pos, 1, x.shape[0] + 1),
        [ROWS, BUFFER],
    ),
    Case(
        "prefix by its positions",
        lambda x, pos: x + jnp.take(pos, jnp.arange(x.shape[0]), axis=0),
        [ROWS, BUFFER],
    ),
    Case(
        "window of a buffer",
        lambda x, pos, place: x + window_at(pos, place, x),
        [ROWS, BUFFER, PLACE],
    ),
    Case(
        "windows of a buffer",
        lambda x, pos, places: x + jax.vmap(lambda place: window_at(pos, place, x))(places),
        [ROWS, BUFFER, PLACES],
    ),
    Case(
        "prefixes of rows",
        lambda x, table, rows: x * table[rows, : x.shape[0]],
        [(("n",), F), TABLE, PLACES],
    ),
    Case(
        "prefix, or NaN",
        lambda x, pos, place: x + pos.at[place * 30, : x.shape[0]].get(mode="fill"),
        [(("n",), F), ((70, 48), F), PLACE],
    ),
    Case("square of a mask", lower, [(("n",), F), ((48, 48), F)]),
    Case(
        "triangle of a constant",
        lambda x: lower(x, jnp.tril(jnp.ones((48, 48)))),
        V,
    ),
    Case("set a prefix", lambda x, buffer: buffer.at[: x.shape[0]].set(x), [ROWS, BUFFER]),
    Case("add to a prefix", lambda x, buffer: buffer.at[: x.shape[0]].add(x), [ROWS, BUFFER]),
    Case("subtract from a part", lambda x, b: b.at[1 : x.shape[0] + 1].subtract(x), [ROWS, BUFFER]),
    Case("multiply a prefix", lambda x, buffer: buffer.at[: x.shape[0]].mul(x), [ROWS, BUFFER]),
    Case("largest in a prefix", lambda x, buffer: buffer.at[: x.shape[0]].max(x), [ROWS, BUFFER]),
    Case("write to a window", lambda x, b, place: written_at(b, x, place), [ROWS, BUFFER, PLACE]),
    Case(
        "write to a window of each",
        lambda x, buffers, places: jax.vmap(written_at, (0, None, 0))(buffers, x, places),
        [ROWS, ((3, 48, 3), F), PLACES],
    ),
    Case(
        "add to prefixes of rows",
        lambda x, table, rows: table.at[rows, : x.shape[0]].add(x),
        [(("n",), F), TABLE, PLACES],
    ),
    Case(
        "gradient for a buffer",
        jax.grad(lambda x, pos: jnp.sum(jnp.sin(x * pos[: x.shape[0]])), (0, 1)),
        [ROWS, BUFFER],
    ),
    Case(
        "gradient for a window",
        jax.grad(lambda x, pos, place: jnp.sum(jnp.sin(x * window_at(pos, place, x))), (0, 1)),
        [ROWS, BUFFER, PLACE],
    ),
    Case(
        "gradient for a slice",
        jax.grad(
            lambda x, pos: jnp.sum(jnp.sin(x * jax.lax.slice_in_dim(pos, 1, x.shape[0] + 1))),
            (0, 1),
        ),
        [ROWS, BUFFER],
    ),
    Case(
        "gradient for windows",
        jax.grad(
            lambda x, pos, places: jnp.sum(
                jnp.sin(x * jax.vmap(lambda place: window_at(pos, place, x))(places))
            ),
            (0, 1),
        ),
        [ROWS, BUFFER, PLACES],
    ),
    Case(
        "gradient for a square",
        jax.grad(lambda x, bias: jnp.sum(jnp.sin(lower(x, jnp.exp(bias)) * x)), (0, 1)),
        [(("n",), F), ((48, 48), F)],
    ),
    Case(
        "gradient of what is written",
        jax.grad(
            lambda x, buffer, place: jnp.sum(jnp.sin(written_at(buffer, x, place)) ** 2), (0, 1)
        ),
        [ROWS, BUFFER, PLACE],
    ),
    Case(
        "gradient of what is set",
        jax.grad(lambda x, b: jnp.sum(jnp.sin(b.at[1 : x.shape[0] + 1].set(x)) ** 2), (0, 1)),
        [ROWS, BUFFER],
    ),
    Case(
        "a buffer in a loop",
        lambda x, pos: jax.lax.scan(
            lambda c, w: (c + jnp.sum(jnp.sin(x * w * pos[: x.shape[0]])), None),
            jnp.zeros((), x.dtype),
            pos[:3, 0],
        )[0],
        [ROWS, BUFFER],
        1e-4,
    ),
]
CASES = [
    *POINTWISE,
    *REDUCED,
    *ORDERED,
    *MOVED,
    *DERIVATIVES,
    *LOOPS,
    *IMAGED,
    *MATRICES,
    *WINDOWS,
    *NAMED,
    *PREFIXES,
]

REFUSED = [
    Case("fft", jnp.fft.fft, V),
    Case("singular vectors", lambda x: jnp.linalg.svd(x, full_matrices=False), M),
    Case("gradient of singular values", jax.grad(lambda x: jnp.sum(jnp.linalg.svdvals(x))), M),
    Case("eigenvalues", jnp.linalg.eigvalsh, SQUARE),
    Case("LU of rows", lambda x: jax.scipy.linalg.lu(x), M),
    Case(
        "windows with a computation of one's own",
        lambda x: windows(x, 0.5, lambda a, b: a * 0.5 + jnp.sin(b), 2, 2, "SAME"),
        V,
    ),
    Case(
        "windows that begin with something", lambda x: windows(x, 0.5, jax.lax.add, 2, 2, "SAME"), V
    ),
    Case(
        "sum from a number on", lambda x: jax.lax.reduce(x, x.dtype.type(3), jax.lax.add, (0,)), V
    ),
    Case(
        "a reduction of one's own",
        lambda x: jax.lax.reduce(x, np.float32(0), lambda a, b: a * 0.5 + jnp.sin(b), (0,)),
        V,
    ),
    Case(
        "a window as long as it", lambda x: windows(x, 0.0, jax.lax.add, x.shape[0], 1, "VALID"), V
    ),
    Case(
        "callback",
        lambda x: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        V,
    ),
    Case("shrinking", lambda x: jnp.zeros(100 - x.shape[0]), V),
]
NEVER = Case("boolean mask", lambda x: jnp.sum(x[x > 0]), V)


CORE = {
    # each element alone, and what only has the axis in its shape
    "relu",
    "keep the leading axis",
    "interleave",
    "divide by the size",
    "fft over another axis",
    "split over another axis",
    "eigenvalues over a batch",
    "a key for each",
    "a key folded for each",
    # reductions, one of each monoid; contractions; scatters
    "mean",
    "max of ints",
    "min and argmin",
    "argmax by column",
    "product",
    "any and all",
    "bitwise",
    "largest from a number on",
    "dot",
    "features of a convolution",
    "sums in a branch",
    "segment sum",
    "segment min",
    "segment product",
    "segment max",
    "subtract from segments",
    # orders, and what goes on from element to element
    "sort",
    "all but the least two",
    "largest",
    "cumulative sum",
    "cumulative sum from the end",
    "cumulative product",
    "cumulative min",
    "cumulative max from the end",
    "cumulative log-sum-exp",
    "scan",
    "scan from the end",
    "loop until",
    # elements that change places
    "neighbours",
    "last",
    "flip",
    "roll",
    "concatenate",
    "pad",
    "tile",
    "take",
    "set behind the first",
    "write a slice",
    "add to the last",
    "convolution along it",
    # loops over another axis, and derivatives
    "product of a loop",
    "gradient of a checkpoint",
    "gradient of a scan",
    "gradient of a convolutional network",
    # matrices
    "solve by LU",
    "QR with all of Q",
    "log-determinant by QR",
    "singular values of a square",
    # windows, and the axis of a `vmap`
    "moving sum",
    "largest of windows",
    "sum over a mapped axis, of a tree",
    "extremes over a mapped axis",
    # parts of buffers
    "prefix of a buffer",
    "window of a buffer",
    "square of a mask",
    "add to a prefix",
    "write to a window",
    # what a mutation of the list (tests/mutations) is seen by
    "mean over a mapped axis",
    "vmap of a loop",
    "solve along it",
    "cholesky along it",
    "LU along it",
    "draws behind another axis",
    "argmax with ties",
    "sums of a loop",
}
"""One body for each rule, each monoid and each way on from chunk to chunk: `test_core.py` holds
them to it.
"""

PADDED_ALONE = {
    "interleave",
    "draws behind another axis",
    "a key for each",
    "a key folded for each",
    "gradient of a convolutional network",
    "split over another axis",
    "eigenvalues over a batch",
    "fft over another axis",
    "mean over a mapped axis",
    "concatenate",
    "largest",
    "any and all",
    "gradient of a checkpoint",
    "argmax by column",
    "write a slice",
    "write to a window",
    "window of a buffer",
    "add to a prefix",
    "keep the leading axis",
    "divide by the size",
}
"""Of these, the ones that the core does not cut: others go on from chunk to chunk as they do."""

FEW = ("relu", "segment sum", "cumulative sum", "scan", "moving sum")
"""Of these, the ones that the core differentiates and verifies as well."""

MORE = ("standardise", "largest", "neighbours", "Gaussian process")
"""Those that the rest differentiates and verifies always."""


def few(chosen: Sequence[Case]) -> list[Any]:
    """Parameters of a test of which each case takes a second: `FEW` are in the core, `MORE` in the
    rest, and the others are a sweep.
    """
    marks = {name: [] for name in FEW} | {name: [pytest.mark.rest] for name in MORE}
    return [
        pytest.param(case, id=case.name, marks=marks.get(case.name, [pytest.mark.sweep]))
        for case in chosen
    ]
