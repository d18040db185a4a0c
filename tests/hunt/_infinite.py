"""Lines whose slopes or factors are infinite somewhere, or that multiply numbers in all ways:
`_derivatives.py` differentiates them.
"""

from ._recipe import lines

DTYPES = (
    *("float32",) * 6,
    *("float64",) * 3,
    *("bfloat16", "float16", "complex64"),
)
SIZES = (1, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9)
PRELUDE = """
def is_inexact(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def is_complex(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.complexfloating)


@jax.custom_vjp
def rooted(a):
    return jnp.sqrt(a)


rooted.defvjp(lambda a: (jnp.sqrt(a), a), lambda a, g: (g / a,))


@jax.custom_jvp
def rooting(a):
    return jnp.sqrt(a)


rooting.defjvp(lambda at, along: (jnp.sqrt(at[0]), along[0] / jnp.sqrt(at[0])))
"""
_EYE = "jnp.eye(3, dtype={w}.dtype)"
_SQUARE = f"(jnp.outer({{w}}, {{w}}) + 3 * {_EYE})"
_LOWER = f"(jnp.tril(jnp.outer({{w}}, {{w}})) + 3 * {_EYE})"
RECIPES = [
    *lines(  # elements
        """
        jnp.sqrt({x})
        jnp.log({x})
        {x} ** 0.5
        {x} ** {C}
        1 / {x}
        {x} * 0.0
        {x} / {y}
        {x} * {y}
        jnp.sqrt({x} - 1)
        jnp.log(1 - {x})
        1 / ({x} - 1)
        lax.rsqrt({x})
        jnp.square({x})
        jnp.abs({x})
        jnp.sign({x})
        jnp.where({x} == 0, 1.0, {x})
        jnp.where(jnp.abs({x}) > 1, jnp.sqrt({x}), {x} / {y})
        jnp.nan_to_num({x})
        jax.checkpoint(jnp.sqrt)({x})
        jax.checkpoint(lambda a: jnp.log(a) * a)({x})
        jax.jit(lambda a: jnp.sqrt(a) * a)({x})
        lax.stop_gradient({x}) * {x}
        jnp.sinc({x})
        rooted({x})
        rooting({x})
        {x} * {s}
        {x} / {s}
        jnp.broadcast_to({s}, {x}.shape)
        lax.fori_loop(0, 2, lambda k, c: jnp.sqrt(c * {s}), {x})
        """,
        "inexact",
    ),
    *lines(  # of real numbers
        """
        jnp.arcsin({x})
        jnp.arctanh({x})
        jnp.arccosh({x})
        jnp.cbrt({x})
        jnp.log1p({x})
        jnp.logaddexp({x}, {y})
        jnp.hypot({x}, {y})
        jnp.arctan2({x}, {y})
        jnp.power({x}, {y})
        jnp.maximum({x}, {y})
        jnp.minimum({x}, 1.0)
        jnp.clip({x}, 0, 1)
        jax.nn.softplus({x})
        jax.nn.relu({x})
        jax.nn.gelu({x})
        jax.scipy.special.entr({x})
        jax.scipy.special.xlogy({x}, {y})
        lax.lgamma({x})
        jax.nn.softmax({x}, 0)
        jax.nn.log_softmax({x}, -1)
        jax.nn.standardize({x}, 0)
        """,
        "wide",
    ),
    *lines(  # put together, moved
        """
        jnp.sum({x}, 0)
        jnp.mean({x}, -1)
        jnp.prod({m}, 1)
        jnp.var({x}, 0)
        jnp.linalg.norm({x})
        jnp.linalg.norm({m}, axis=0)
        jnp.linalg.norm({m}, axis=1)
        jnp.linalg.norm({v}[:, None] - {v}, axis=1)
        jnp.linalg.norm({m}[:, None] - {w}, axis=2)
        jnp.vdot({v}, {u})
        jnp.cumsum({x}, 0)
        jnp.cumprod({m}, 1)
        lax.cumsum({v}, reverse=True)
        {v}[{i}]
        {w}[{i}]
        {m}[{i}]
        jnp.take({v}, {i}, mode='fill')
        {v}.at[{i}].add({u})
        {v}.at[{i}].multiply({u})
        {v}.at[{i}].set({u})
        {m}.at[{i}].add({m})
        {v}.at[0].multiply({s})
        {v}.at[-1].set({s})
        {m}.at[:, 1].multiply({v})
        jax.ops.segment_sum({v}, {i}, 3)
        jax.ops.segment_prod({v}, {i}, 3)
        jnp.flip({x}, 0)
        jnp.roll({v}, 1)
        jnp.concatenate([{v}, {u}])
        jnp.concatenate([{v}[:1], {v}[:-1]])
        jnp.pad({v}, (1, 0))[:-1]
        jnp.diff({v}, prepend=0.0)
        jnp.repeat({v}, 2)[::2]
        jnp.diag({v}) @ {u}
        jnp.outer({v}, {u}).sum(0)
        jnp.outer({v}, {u}) @ {v}
        jnp.tril(jnp.outer({v}, {u})) @ {u}
        {q} @ {v}
        {q}.T @ {m}
        {q} * {v}
        {q} / {v}[:, None]
        jnp.cumsum({q}, 1)
        jnp.sqrt({q}) @ {q}
        {m} @ {w}
        {m}.T @ {v}
        {m} @ {t}
        {m} / {v}[:, None]
        jnp.einsum('ij,kj->ik', {m}, {m})
        jnp.einsum('i,j->', {v}, {u})
        jnp.convolve({v}, {w})
        jnp.convolve({v}, {w}, 'same')
        jnp.convolve({v}, {w}, 'valid')
        lax.conv_general_dilated({t}[None], {w}[None, :, None] * {w}[:, None, None], (1,), 'SAME')
        lax.conv_general_dilated({t}[None], {w}[:, None, None], (1,), ((1, 0),), feature_group_count=3)
        lax.reduce_window({v}, 0.0, lax.add, (2,), (1,), 'SAME')
        lax.reduce_window({v}, 0.0, lax.add, (3,), (2,), ((1, 0),))
        lax.reduce_window({m}, 0.0, lax.add, (2, 2), (1, 1), 'VALID')
        lax.reduce_window({v}, 1.0, lax.mul, (2,), (1,), 'SAME')
        """,
        "inexact",
    ),
    *lines(  # compared
        """
        jnp.max({x}, 0)
        jnp.min({x}, -1)
        jnp.max({m} @ {t}, 0)
        jnp.sort({x}, 0)
        jnp.median({v})
        {v}[jnp.argsort({u})]
        {v}[jnp.argmax({u})]
        lax.top_k({v}, 1)[0]
        lax.cummax({v})
        lax.cummin({x}, reverse=True)
        lax.cumlogsumexp({v})
        lax.cumlogsumexp({m}, axis=1)
        jax.nn.logsumexp({x}, 0)
        {v}.at[{i}].min({u})
        {v}.at[{i}].max({u})
        jax.ops.segment_max({v}, {i}, 3)
        jnp.sum({v}, where={b})
        jnp.max({v}, initial=0.0, where={b})
        jnp.average({v}, weights={u})
        jnp.interp({s}, jnp.cumsum(jnp.abs({v}) + 1), {u})
        jnp.trapezoid({v}, {u})
        lax.reduce_window({v}, -jnp.inf, lax.max, (2,), (1,), 'SAME')
        lax.reduce_window({v}, -jnp.inf, lax.max, (3,), (2,), 'VALID')
        lax.reduce_window({v}, jnp.inf, lax.min, (2,), (1,), ((1, 0),))
        lax.reduce_window({m}, -jnp.inf, lax.max, (2, 2), (1, 1), 'SAME')
        lax.reduce_window({m}, -jnp.inf, lax.max, (2, 1), (2, 1), ((0, 1), (0, 0)))
        lax.reduce_window({q}, -jnp.inf, lax.max, (2, 2), (1, 1), 'SAME')
        """,
        "wide",
    ),
    *lines(  # loops, branches and maps
        """
        lax.scan(lambda c, a: (c * a, c + jnp.sqrt(a)), {s}, {v})
        lax.scan(lambda c, a: (jnp.sqrt(c * a), c / a), {s}, {v}, reverse=True)
        lax.scan(lambda c, a: (c + a / {s}, None), {s}, {v}, unroll=2)[0]
        lax.scan(lambda c, a: (jnp.where(a == 1, c, jnp.sqrt(c * a - c)), None), {s}, {v})[0]
        lax.scan(jax.checkpoint(lambda c, a: (c / a + jnp.log(a), None)), {s}, {v})[0]
        lax.scan(lambda c, a: (c + jnp.sum({u}) * a, c), {s}, {v})
        lax.scan(lambda c, a: (c * {v}, jnp.sum(c)), {u}, {w})
        lax.scan(lambda c, a: (jnp.sqrt(c * a), None), {v}, {w})[0]
        lax.scan(lambda c, a: (c.at[0].multiply(a), None), {v}, {w})[0]
        lax.scan(lambda c, a: (c * a, c + a), {w}, {m})
        lax.scan(lambda c, a: (jnp.linalg.norm(c - a) * c, None), {w}, {m})[0]
        lax.scan(lambda c, a: (lax.scan(lambda d, e: (d + jnp.sqrt(e * a), None), c, {w})[0], None), {s}, {v})[0]
        lax.map(lambda a: jnp.sqrt(a) * {s}, {v})
        jax.vmap(lambda a: jnp.dot({w}, a * {w}))({v})
        jax.vmap(lambda a: jnp.sum(jnp.sqrt(a * {u})))({v})
        jax.vmap(lambda a: lax.scan(lambda c, e: (jnp.sqrt(c * e), None), a, {w})[0])({v})
        jax.vmap(jnp.linalg.norm)({m})
        jax.jvp(jnp.log, ({v},), ({u},))[1]
        lax.associative_scan(jnp.add, {v})
        lax.fori_loop(0, {v}.shape[0], lambda k, c: c + {v}[k] * {s}, {s})
        lax.fori_loop(0, {v}.shape[0], lambda k, c: c.at[k].multiply({s}), {v})
        """,
        "inexact",
    ),
    *lines(
        """
        lax.scan(lambda c, a: (lax.cond(a > 0, lambda e: jnp.sqrt(e * a), lambda e: e + a, c), None), {s}, {v})[0]
        lax.scan(lambda c, a: (lax.switch(jnp.int32(a > 1), [lambda e: e / a, lambda e: jnp.log(e) + a], c), None), {s}, {v})[0]
        lax.scan(lambda c, a: (lax.cond(a > 0, lambda e: jnp.cumsum(e) * a, jnp.sqrt, c), None), {v}, {w})[0]
        lax.cond({s} > 0, lambda e: jnp.sqrt(e) * {s}, lambda e: e / {s}, {v})
        lax.cond({s} > 0, lambda e: jnp.cumsum(e), lambda e: e / jnp.sum(e), {v})
        lax.switch(jnp.int32({s} > 1), [lambda e: e * jnp.sum(e), lambda e: jnp.cumsum(jnp.log(e))], {v})
        jax.vmap(lambda a: lax.cond(a > 1, lambda e: e / {s}, jnp.sqrt, a))({v})
        lax.scan(lambda c, a: (c + jnp.max(a * {u}), None), {s}, {v})[0]
        lax.map(lambda a: lax.cond(a > 1, lambda e: e / {s}, jnp.sqrt, a), {v})
        jax.grad(lambda e: jnp.sum(jnp.sqrt(e * {s})))({v})
        jax.vmap(jax.grad(lambda a: a**1.5 * {s}))({v})
        """,
        "wide",
    ),
    *lines(  # systems of equations and factorisations
        f"""
        {{m}} @ {_SQUARE}
        jnp.linalg.solve({_SQUARE}, {{t}})
        jnp.linalg.inv({_SQUARE})[{{i}}]
        jax.scipy.linalg.solve_triangular({_LOWER}, {{t}}, lower=True)
        jax.scipy.linalg.solve_triangular({_LOWER}, {{t}}, lower=True, trans=1)
        jax.vmap(lambda a: jax.scipy.linalg.solve_triangular({_LOWER}, a, lower=True))({{m}})
        jax.scipy.linalg.solve_triangular(jnp.eye({{v}}.shape[0]) * {{s}} + jnp.tril(jnp.outer({{v}}, {{u}})), {{u}}, lower=True)
        jnp.linalg.solve(jnp.eye({{v}}.shape[0]) + jnp.outer({{v}}, {{u}}), {{u}})
        jnp.linalg.cholesky(jnp.einsum('ij,ik->ijk', {{m}}, {{m}}) + {_EYE})[:, 2]
        jnp.linalg.inv(jnp.einsum('ij,ik->ijk', {{m}}, {{m}}) + {_EYE})[:, 1]
        jnp.linalg.det(jnp.einsum('ij,ik->ijk', {{m}}, {{m}}) + {_EYE})
        lax.linalg.tridiagonal_solve(jnp.zeros_like({{w}}), {{w}} + 1, jnp.zeros_like({{w}}), {{t}})
        lax.linalg.tridiagonal_solve({{v}}.at[0].set(0), 3 + {{u}}, {{v}}.at[-1].set(0), {{u}}[:, None])
        lax.scan(lambda c, a: ({_SQUARE} @ c + jnp.sqrt(a), None), {{w}}, {{m}})[0]
        """,
        "solve",
        "loose",
    ),
    *lines(  # layers
        """
        jax.vmap(eqx.nn.Linear(3, 2, key=jax.random.key(0)))({m})
        eqx.nn.Conv1d(3, 2, 2, padding=1, key=jax.random.key(0))({t})
        eqx.nn.Conv1d(1, 1, 3, stride=2, key=jax.random.key(0))({v}[None])
        eqx.nn.ConvTranspose1d(3, 2, 2, key=jax.random.key(0))({t})
        eqx.nn.AvgPool1d(2, 1)({t})
        eqx.nn.MaxPool1d(2, 2)({t})
        eqx.nn.MaxPool1d(3, 1, padding=1)({t})
        eqx.nn.AvgPool1d(3, 2, padding=1)({v}[None])
        jax.vmap(eqx.nn.LayerNorm(3))({m})
        jax.vmap(eqx.nn.RMSNorm(3))({m})
        eqx.nn.GroupNorm(1, 3)({t})
        eqx.nn.MultiheadAttention(1, 3, key=jax.random.key(0))({m}, {m}, {m})
        eqx.nn.MultiheadAttention(1, 3, key=jax.random.key(0))({w}[None], {m}, {m})
        lax.scan(lambda c, a: ((lambda h: (h, h))(eqx.nn.GRUCell(3, 2, key=jax.random.key(0))(a, c))), jnp.zeros(2), {m})
        lax.scan(lambda c, a: (eqx.nn.LSTMCell(3, 2, key=jax.random.key(0))(a, c), None), (jnp.zeros(2), jnp.zeros(2)), {m})[0]
        jax.nn.dot_product_attention({m}[None, :, None], {m}[None, :, None], {m}[None, :, None])
        """,
        "wide",
    ),
]
