"""Lines of what programs call beside `jax.numpy`: Equinox's layers and transforms, callbacks, keys
of the old kind, rarer factorisations.

They make the operations that have rules and that no other line makes (`test_hunt.py` counts them).
Weights are drawn from a key of their own, so a layer is the same at each size; a check that is run
never fails.
"""

from __future__ import annotations

from ._recipe import lines

PRELUDE = """
@jax.custom_batching.custom_vmap
def batched(x):
    return jnp.tanh(x) * 2

batched.def_vmap(lambda size, batched_in, x: (jnp.tanh(x) * 2, batched_in[0]))


def key():
    return jax.random.key(0)
"""
LAYERS = [
    *lines(
        """
        jax.vmap(eqx.nn.Linear(3, 2, dtype={m}.dtype, key=key()))({m})
        jax.vmap(eqx.nn.MLP(3, 2, 4, 1, dtype={m}.dtype, key=key()))({m})
        jax.vmap(eqx.nn.LayerNorm(3, dtype={m}.dtype))({m})
        jax.vmap(eqx.nn.RMSNorm(3, dtype={m}.dtype))({m})
        eqx.nn.GroupNorm(1, 3, dtype={t}.dtype)({t})
        eqx.nn.Conv1d(3, 2, 2, padding=1, dtype={t}.dtype, key=key())({t})
        eqx.nn.Conv1d(3, 2, 2, stride=2, dtype={t}.dtype, key=key())({t})
        eqx.nn.ConvTranspose1d(3, 2, 2, dtype={t}.dtype, key=key())({t})
        eqx.nn.AvgPool1d(2)({t})
        eqx.nn.MaxPool1d(3, 2)({t})
        eqx.nn.AdaptiveAvgPool1d(2)({m})
        eqx.nn.Dropout(0.5)({x}, key=key())
        eqx.nn.PReLU(0.2)({x}.astype(jnp.float32))
        eqx.nn.MultiheadAttention(1, 3, dtype={m}.dtype, key=key())({m}, {m}, {m})
        jax.vmap(eqx.nn.Embedding(5, 3, dtype=jnp.float32, key=key()))(abs({i}) % 5) * jnp.sum({v})
        lax.scan(lambda c, a: (eqx.nn.GRUCell(3, 2, dtype={m}.dtype, key=key())(a, c), c), jnp.zeros(2, {m}.dtype), {m})
        lax.scan(lambda c, a: (eqx.nn.LSTMCell(3, 2, dtype={m}.dtype, key=key())(a, c), None), (jnp.ones(2, {m}.dtype),) * 2, {m})[0]
        eqx.nn.RotaryPositionalEmbedding(4)(jnp.concatenate([{m}, {m}[:, :1]], 1))
        """,
        "wide",
    ),
    *lines(
        """
        eqx.filter_vmap(lambda e: jnp.sin(e) * 2)({x})
        eqx.filter_grad(lambda e: jnp.sum(jnp.tanh(e)))({x})
        eqx.filter_value_and_grad(lambda e: jnp.mean(e * e))({x})
        eqx.filter_jit(lambda e: jnp.cumsum(e, 0))({x})
        eqx.filter_checkpoint(lambda e: jnp.sin(e) * e)({x})
        eqx.filter_jvp(lambda e: jnp.sum(e * e), ({x},), ({x},))[1]
        eqx.filter_vjp(lambda e: e * e, {x})[1]({x})[0]
        eqx.error_if({x}, jnp.sum(jnp.isnan({x})) < 0, 'never')
        jax.vmap(lambda e: eqx.error_if(e, jnp.sum(jnp.isnan(e)) < 0, 'never'))({x})
        """,
        "wide",
    ),
]
KEYS = [
    *lines(
        """
        {x} * jax.random.normal(jax.random.PRNGKey(1), {x}.shape).astype({x}.dtype)
        jax.random.key_data(jax.random.split(key(), {v}.shape[0]))
        jax.random.uniform(jax.random.wrap_key_data(jax.random.PRNGKey(2)), {v}.shape) * jnp.sum({v})
        jax.random.bits(jax.random.clone(key()), {v}.shape) * (jnp.sum({v}) < 0)
        jax.vmap(lambda k: jax.random.normal(jax.random.fold_in(key(), k)))(jnp.arange({v}.shape[0])) * jnp.sum({v})
        jnp.where(jax.random.bernoulli(key(), 0.6, {x}.shape), {x} / 0.6, 0)
        """,
        "wide",
    ),
    *lines(
        "jax.grad(lambda e: jnp.sum(jax.random.gamma(key(), jnp.abs(e) + 1)))({v})",
        "solve",
        "loose",
    ),
]
MASKED = [
    *lines(
        """
        jax.nn.logsumexp({v}, where={b})
        jax.nn.logsumexp({v}, b=jnp.abs({u}), return_sign=True)
        jax.nn.softmax({v}, where={b})
        jax.nn.log_softmax({v}, where={b})
        jax.nn.standardize({v}, where={b})
        jnp.max({v}, where={b}, initial=-9)
        jnp.mean({v}, where={b})
        jnp.var({v}, where={b})
        jnp.nanmean(jnp.where({b}, {v}, jnp.nan))
        jnp.sum(jnp.where({b}, ({v} - {u}) ** 2, 0)) / jnp.maximum(jnp.sum({b}), 1)
        jnp.sum({v} * jnp.exp({u} - jnp.max({u}))) / jnp.sum(jnp.exp({u} - jnp.max({u})))
        {v}[jnp.argmax(jnp.where({b}, {u}, -jnp.inf))]
        jnp.where({b}, {v}, jnp.roll({v}, 1))
        jnp.cumsum(jnp.where({b}, {v}, 0)) / jnp.maximum(jnp.cumsum({b}), 1)
        jnp.exp({v}) / jax.ops.segment_sum(jnp.exp({v}), abs({i}) % 4, num_segments=4)[abs({i}) % 4]
        -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax({m}), (abs({i}) % 3)[:, None], 1))
        """,
        "wide",
    ),
]
RARE = [
    *lines(
        """
        jnp.triu(abs(lax.linalg.hessenberg({q})[0]), -1)
        lax.linalg.schur({q})[0] * 0
        abs(lax.linalg.tridiagonal({q} + {q}.T, lower=True)[1])
        abs(jnp.diagonal(jax.scipy.linalg.qr({m}, mode='economic')[1]))
        lax.linalg.cholesky_update(jnp.eye(3, dtype={m}.dtype), {m}[0])
        """,
        "solve",
        "loose",
    ),
    *lines("jnp.log2(jnp.abs({x}) + 1)\nbatched({x})\njax.vmap(batched)({x})", "wide"),
    *lines(
        """
        lax.reduce_window({m}, jnp.asarray(jnp.inf, {m}.dtype), lax.min, (2, 1), (1, 1), 'SAME')
        lax.reduce_window({v}, jnp.asarray(jnp.inf, {v}.dtype), lax.min, (3,), (2,), 'VALID')
        jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct({v}.shape, {v}.dtype), {v}, vmap_method='expand_dims')
        (jax.debug.callback(lambda a: None, {x}), {x})[1]
        jax.grad(lambda e: jnp.sum(jnp.sort(e, 0) * jnp.argsort(e, 0)))({x})
        jax.grad(lambda e: jnp.sum(lax.top_k(e, 2)[0] ** 2))({v})
        jax.grad(lambda e: jnp.max(e) + jnp.min(e))({x})
        jax.grad(lambda e: jnp.median(e) + jnp.quantile(e, 0.3))({v})
        """,
        "wide",
    ),
]
RECIPES = [*LAYERS, *KEYS, *MASKED, *RARE]
