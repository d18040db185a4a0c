"""Bodies that treat an axis in every way that a rule exists for, and what they take: one shape for each argument, "n" for the axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Shape = tuple[Any, ...]
F, I, B = np.float32, np.int32, np.bool_
V = [(("n",), F)]
VV = [(("n",), F), (("n",), F)]
M = [(("n", 3), F)]
T = [((3, "n"), F)]
SQUARE = [(("n", "n"), F)]
BATCH = [(("n", 2, 2), F)]
INTS = [(("n",), I)]
INDEXED = [(("n",), F), (("n",), I)]
KEY = jax.random.key(0)


@dataclass(frozen=True, eq=False)
class Case:
    """A function, the shapes and dtypes of its arguments, and how exact its results are."""

    name: str
    fn: Callable[..., Any]
    takes: Sequence[tuple[Shape, Any]]
    tolerance: float = 1e-5

    def avals(self, n: Any) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(tuple(_size(part, n) for part in shape), dtype) for shape, dtype in self.takes]

    def flat(self, *arrays: Any) -> list[Any]:
        return jax.tree.leaves(self.fn(*arrays))

    @functools.cached_property
    def exact(self) -> Callable[[Sequence[Sequence[Any]]], list[list[Any]]]:
        """The body as it is, at the sizes of several lists of arguments: one program, since most of a small one's time is XLA's start."""
        return jax.jit(lambda groups: [self.flat(*arrays) for arrays in groups])


def _size(part: Any, n: Any) -> Any:
    if callable(part):
        return part(n)
    return n if part == "n" else part


def conv(x, k, spec=("NWC", "OIW", "NWC")):
    return jax.lax.conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=spec)


def attention(x):
    return jax.nn.softmax(x @ x.T / np.float32(np.sqrt(3)), axis=-1) @ x


def standardise(x):
    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)


def rnn(w, x):
    return jax.lax.scan(lambda h, a: (jnp.tanh(h * w + a), h), jnp.zeros(3), x)[0]


def logistic_loss(w, x, y):
    return jnp.mean((jax.nn.sigmoid(x @ w) - y) ** 2)


def newton(x):
    return jax.lax.while_loop(lambda c: c < 10.0, lambda c: c * 2 + 11.0, x)


POINTWISE = [
    Case("relu", jax.nn.relu, V),
    Case("base 2", lambda x: getattr(jax.lax, "log2", jnp.log2)(1 + x * x), V),  # an operation of its own since jax 0.12
    Case("where", lambda x: jnp.where(x > 0, x, 0.0), V),
    Case("clip", lambda x: jnp.clip(x, -1.0, 1.0), V),
    Case("softmax over another axis", lambda x: jax.nn.softmax(x, axis=1), M),
    Case("matrix times weights", lambda w, x: jnp.tanh(x @ w), [((3, 2), F), (("n", 3), F)]),
    Case("transpose", lambda x: x.T, M),
    Case("expand and squeeze", lambda x: jnp.squeeze(x[:, None, None] * 2, 1), V),
    Case("stack", lambda x: jnp.stack([x, -x]), V),
    Case("outer product", lambda x: jnp.outer(x, x), V),
    Case("pairwise differences", lambda x: jnp.sum((x[:, None] - x[None]) ** 2, -1), M),
    Case("one hot", lambda x: jax.nn.one_hot(x, 4), INTS),
    Case("map", lambda x: jax.lax.map(lambda a: jnp.sin(a) * 2, x), V),
    Case("vmap of a loop", jax.vmap(newton), V),
    Case("cholesky over a batch", lambda x: jnp.linalg.cholesky(x @ x.transpose(0, 2, 1) + jnp.eye(2)), BATCH),
    Case("inverse over a batch", lambda x: jnp.linalg.inv(x + 9 * jnp.eye(2)), BATCH, 1e-4),
    Case("eigenvalues over a batch", lambda x: jnp.linalg.eigh(x)[0], BATCH, 1e-4),
    Case("determinant over a batch", jnp.linalg.det, BATCH, 1e-4),
    Case("right-hand sides", lambda a, b: jnp.linalg.solve(a + 9 * jnp.eye(3), b), [((3, 3), F), ((3, "n"), F)], 1e-4),
    Case("fft over another axis", lambda x: jnp.abs(jnp.fft.fft(x)), M, 1e-4),
    Case("convolution over another axis", lambda k, x: conv(x, k), [((4, 2, 3), F), (("n", 10, 2), F)], 1e-4),
    Case("windows over another axis", lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2), (1, 2), "VALID"), [(("n", 6), F)]),
    Case("keep the leading axis", lambda x: x.reshape(-1, 3, 1), M),
    Case("merge behind the leading axis", lambda x: x.reshape(-1), M),
    Case("split a multiple", lambda x: x.reshape(-1, 2).sum(1), [((lambda n: 2 * n,), F)]),
    Case("a table", lambda table, i: table[i], [((4,), F), (("n",), I)]),
    Case("normal draws", lambda x: x + jax.random.normal(KEY, x.shape), M),
    Case("16-bit draws", lambda x: x * 0 + jax.random.bits(KEY, x.shape, np.uint16).astype(F), V),
    Case("a key for each", lambda x: jax.vmap(lambda k, a: a + jax.random.normal(k))(jax.random.split(KEY, x.shape[0]), x), V),
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
    Case("bitwise", lambda x: (jax.lax.reduce_xor(x, axes=(0,)), jax.lax.reduce_and(x, axes=(0,)), jax.lax.reduce_or(x, axes=(0,))), INTS),
    Case("nanmean", jnp.nanmean, V),
    Case("weighted average", lambda x, w: jnp.average(x, weights=jnp.abs(w)), VV),
    Case("covariance", lambda x: jnp.cov(x.T), M, 1e-4),
    Case("Gram matrix", lambda x: x.T @ x, M, 1e-4),
    Case("rows by rows", lambda x: x @ x.T, M, 1e-4),
    Case("dot", lambda x, y: x @ y, VV, 1e-4),
    Case("einsum of the axis twice", lambda x: jnp.einsum("ij,ik->jk", x, x), M, 1e-4),
    Case("trace", jnp.trace, SQUARE),
    Case("attention", attention, M, 1e-4),
    Case("features of a convolution", lambda k, x: conv(x, k), [((4, "n", 3), F), ((3, 10, "n"), F)], 1e-4),
    Case("segment sum", lambda x, i: jax.ops.segment_sum(x, i, num_segments=4), INDEXED),
    Case("segment max", lambda x, i: jax.ops.segment_max(x, i, num_segments=4), INDEXED),
    Case("count", lambda x: jnp.bincount(x, length=5), INTS),
    Case("histogram", lambda x: jnp.histogram(x, bins=4, range=(-3, 3))[0], V),
    Case("conjugate gradients", lambda a, b: jax.scipy.sparse.linalg.cg(lambda v: (1 + a * a) * v, b)[0], VV, 1e-3),
    Case("divide by the size", lambda x: x.sum() / x.shape[0] + x.size, V),
    Case("several levels", lambda x: jnp.linalg.norm((x - x.mean()) / x.std()), V, 1e-4),
]
ORDERED = [
    Case("sort", jnp.sort, V),
    Case("argsort", jnp.argsort, V),
    Case("sort, then slice", lambda x: jnp.sort(x)[:3], V),
    Case("median", jnp.median, V),
    Case("percentile", lambda x: jnp.percentile(x, 30.0), V),
    Case("largest", lambda x: jax.lax.top_k(x, 2), V),
    Case("cumulative sum", jnp.cumsum, V),
    Case("cumulative sum from the end", lambda x: jax.lax.cumsum(x, reverse=True), V),
    Case("cumulative max from the end", lambda x: jax.lax.cummax(x, reverse=True), V),
    Case("cumulative log-sum-exp", jax.lax.cumlogsumexp, V),
    Case("cumulative product", lambda x: jnp.cumprod(1 + x / 8), V),
    Case("scan", lambda x: jax.lax.scan(lambda c, a: (c * 0.5 + a, c), 0.0, x), V),
    Case("scan from the end", lambda x: jax.lax.scan(lambda c, a: (c * 0.5 + a, c), 0.0, x, reverse=True), V),
    Case("recurrent network", rnn, [((3,), F), (("n", 3), F)]),
    Case("loop over the size", lambda x: jax.lax.fori_loop(0, x.shape[0], lambda k, c: c + x[k], 0.0), V),
    Case("loop until", lambda x: jax.lax.while_loop(lambda c: jnp.max(c) < 10, lambda c: c * 2 + 1, x), V),
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
    Case("first half against second", lambda x: jnp.mean(x[: x.shape[0] // 2]) - jnp.mean(x[x.shape[0] // 2 :]), V),
    Case("backwards", lambda x: x[::-1], V),
    Case("flip", lambda x: jnp.flip(x, 0), M),
    Case("concatenate", lambda x, y: jnp.concatenate([x, y, x[:2]]), VV),
    Case("concatenate in front", lambda x: jnp.concatenate([jnp.zeros(2), x]), V),
    Case("pad", lambda x: jnp.pad(x, (1, 2), constant_values=7.0), V),
    Case("crop", lambda x: jax.lax.pad(x, np.float32(3), [(-1, -1, 0)]), V),
    Case("pad between", lambda x: jax.lax.pad(x, np.float32(3), [(1, 1, 1)]), V),
    Case("tile", lambda x: jnp.tile(x, 2), V),
    Case("repeat", lambda x: jnp.repeat(x, 2), V),
    Case("diagonal", jnp.diag, V),
    Case("lower triangle", jnp.tril, SQUARE),
    Case("symmetrise", lambda x: x + x.T, SQUARE),
    Case("take", lambda x: x[jnp.array([0, 1, -1])], V),
    Case("take beyond the end", lambda x: jnp.take(x, jnp.array([0, 100, -1, 6])), V),
    Case("take, clipped", lambda x: jnp.take(x, jnp.array([0, 100]), mode="clip"), V),
    Case("by an index of its own", lambda x, i: x[i], INDEXED),
    Case("set behind the first", lambda x: x.at[1:].set(0.0), V),
    Case("set before the last", lambda x: x.at[:-1].set(x[1:] * 2), V),
    Case("add behind the first", lambda x: x.at[1:].add(x[:-1]), V),
    Case("set the first", lambda x: x.at[0].set(5.0), V),
    Case("add to the last", lambda x: x.at[-1].add(5.0), V),
    Case("set, clipped", lambda x: x.at[jnp.array([0, 100])].set(5.0, mode="clip"), V),
    Case("add beyond the end", lambda x: x.at[jnp.array([0, 6, 100])].add(5.0), V),
    Case("a longer argument", lambda x, y: jnp.diff(x) * y, [((lambda n: n + 1,), F), (("n",), F)]),
    Case("convolution along it", lambda k, x: conv(x, k), [((4, 2, 3), F), ((3, "n", 2), F)], 1e-4),
    Case("trapezoid", jnp.trapezoid, V),
    Case("linear interpolation", lambda x: jnp.interp(x, jnp.arange(3.0), jnp.arange(3.0)), V),
    Case("QR along it", lambda x: jnp.linalg.qr(x), M, 1e-4),
    Case("positions", lambda x: x * jnp.arange(x.shape[0], dtype=F), V),
]
DERIVATIVES = [
    Case("gradient of a mean", jax.grad(lambda x: jnp.mean(x**2)), V),
    Case("gradient of a norm", jax.grad(jnp.linalg.norm), V),
    Case("gradient of softmax", jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2)), V),
    Case("gradient of a variance", jax.grad(jnp.var), V),
    Case("gradient of a maximum", jax.grad(jnp.max), V),
    Case("gradient of differences", jax.grad(lambda x: jnp.sum(jnp.diff(x) ** 2)), V),
    Case("gradient of a sort", jax.grad(lambda x: jnp.sum(jnp.sort(x)[:2])), V),
    Case("gradient of a cumulative sum", jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum()), V, 1e-4),
    Case("gradient of a scan", jax.grad(lambda w, x: rnn(w, x).sum()), [((3,), F), (("n", 3), F)], 1e-4),
    Case("gradient of a checkpoint", jax.grad(lambda x: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)))(x).sum()), V),
    Case("gradient of a masked log", jax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0))), V),
    Case("gradient for shared weights", jax.grad(logistic_loss), [((3,), F), (("n", 3), F), (("n",), F)]),
    Case(
        "gradient for each",
        lambda w, x: jax.vmap(jax.grad(lambda w, a: jnp.sum(jnp.sin(w * a))), (None, 0))(w, x),
        [((3,), F), (("n", 3), F)],
    ),
    Case("forward Jacobian", jax.jacfwd(lambda x: jnp.stack([jnp.mean(x), jnp.sum(x**2)])), V),
    Case("reverse Jacobian", jax.jacrev(lambda x: jnp.stack([jnp.mean(x), jnp.sum(x**2)])), V),
    Case("diagonal Jacobian", jax.jacfwd(lambda x: x**2), V),
    Case("Hessian for weights", jax.hessian(lambda w, x: jnp.sum(jnp.sin(x @ w))), [((3,), F), (("n", 3), F)], 1e-4),
    Case("directional derivative", lambda x, y: jax.jvp(jax.nn.logsumexp, (x,), (y,)), VV),
]
CASES = [*POINTWISE, *REDUCED, *ORDERED, *MOVED, *DERIVATIVES]

REFUSED = [
    Case("interleave", lambda x: x.T.reshape(-1), M),
    Case("fft", jnp.fft.fft, V),
    Case("singular values", lambda x: jnp.linalg.svd(x, compute_uv=False), M),
    Case("shuffle", lambda x: jax.random.permutation(KEY, x), V),
    Case("draws behind the leading axis", lambda x: x + jax.random.normal(KEY, x.shape), T),
    Case("windows along it", lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2,), (2,), "VALID"), V),
    Case("callback", lambda x: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x), V),
    Case("shrinking", lambda x: jnp.zeros(100 - x.shape[0]), V),
]
NEVER = Case("boolean mask", lambda x: jnp.sum(x[x > 0]), V)
