"""Lines that update an array by a part of the same memory: moved, in another shape, in loops, in
branches and by each kind of update, with positions in and out of bounds. Each begins with an array
of `_ARRAYS`; the lines are their product with `_UPDATES`.
"""

from __future__ import annotations

from ._recipe import Recipe

_ARRAYS = """
{v}
2 * {v}
{v}[::-1]
{v}[1:]
{v}[len({v}) // 2 :]
{v}[:, None]
(2 * {v})[:, None]
{v}[None]
{v}[{i}]
jnp.roll({v}, 3)
jnp.sort({v}[::-1])
jnp.cumsum({v}[::-1])
jnp.concatenate([{v}, {v}[:2]])
jnp.concatenate([{v}, {v}]).reshape(-1, 2)
jnp.concatenate([{v}[::-1], {v}[:1]])[-3:]
jnp.stack([{v}, {v}[::-1]])
jnp.stack([{v}, {v}[::-1]]).reshape(-1)
jnp.outer({v}[::-1], {w})
{m}
{m}[::-1]
{m}[:, ::-1]
{m}.reshape(-1)
{t}.T
{q}.T
{q}[::-1]
""".strip().splitlines()

_UPDATES = """
a.at[1:].set(a[:-1])
a.at[:-1].add(a[1:])
a.at[2:].multiply(a[:-2])
a.at[:-2].min(a[2:])
a.at[1:].max(a[:-1])
a.at[::2].set(a[::-1][::2])
a.at[:].set(a[::-1])
a.at[..., 1:].set(a[..., :-1])
a.at[0].set(a[-1]).at[-1].set(a[0])
a.at[{j}].set(a[{j}[::-1]], mode="clip")
a.at[{j}].add(a[{j}], mode="drop")
a.at[{j}[0]].set(a[-1])
a.at[jnp.argmax(a.reshape(len(a), -1)[:, 0])].set(a[0])
a.at[1:].apply(lambda e: e * e)
lax.dynamic_update_slice_in_dim(a, a[:-1], {j}[0].astype(jnp.int32), 0)
lax.dynamic_update_slice_in_dim(a, a[::-1][: len(a) // 2], len(a) // 3, 0)
lax.dynamic_update_slice_in_dim(a, a[:2][::-1], {j}[1].astype(jnp.int32), 0)
lax.scatter_add(a, {j}[:1] + 1, a[:2], WINDOW(a), mode="clip")
lax.scatter_mul(a, {j}[:1], a[1:], WINDOW(a), mode="drop")
a.at[1:].set(a[:-1]).at[:-1].add(a[1:])
a.at[1:].set(a[:-1])[::-1].at[1:].add(a[:-1])
jnp.stack([a, a[::-1]]).at[0].add(a)
jnp.concatenate([a, a]).at[1 : len(a) + 1].set(a)
lax.cond({j}[0] > 1, lambda a: a.at[1:].set(a[:-1]), lambda a: a, a)
lax.fori_loop(0, 1, lambda k, a: a.at[1:].set(a[:-1]), a)
lax.fori_loop(0, 3, lambda k, a: a[::-1].at[1:].set(a[:-1]), a)
lax.fori_loop(0, len(a) - 1, lambda k, a: a.at[k + 1].add(a[k]), a)
lax.fori_loop(0, 4, lambda k, a: lax.dynamic_update_slice_in_dim(a, a[:2], k, 0), a, unroll=2)
lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1].at[1:].set(c[1][:-1])), (0, a))[1]
lax.scan(lambda c, e: (c.at[1:].set(c[:-1]), c[0]), a, {w})[0]
lax.scan(lambda c, e: ((c[1], c[0].at[1:].set(c[1][:-1])), None), (a, a), {v})[0][1]
lax.custom_linear_solve(lambda e: e, a, lambda _, e: e.at[1:].set(e[:-1]), symmetric=True)
jax.vmap(lambda k: a.at[1:].set(a[:-1]) * k)({w})
jax.checkpoint(lambda a: a.at[1:].add(a[:-1]))(a)
jax.grad(lambda a: jnp.sum(a.at[1:].set(a[:-1]) * a))(a)
""".strip().splitlines()

PRELUDE = """def WINDOW(a):
    return lax.ScatterDimensionNumbers(tuple(range(a.ndim)), (), (0,))
"""


def _takes(update: str) -> str:
    """The class of dtypes that have the update."""
    return "wide" if "grad" in update else "num" if "add" in update else "any"


RECIPES = [
    Recipe(f"(lambda a: {update})({array})", _takes(update))
    for update in _UPDATES
    for array in _ARRAYS
]
