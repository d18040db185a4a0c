"""Lines that hold another line: control flow, maps, derivatives, custom rules, calls. `e` is what
the inner one takes.
"""

from ._recipe import lines

# What generated programs may call beside JAX.
PRELUDE = """
@jax.custom_jvp
def ruled(x):
    return jnp.sin(x) * 2

ruled.defjvp(lambda primals, tangents: (ruled(*primals), jnp.cos(primals[0]) * 2 * tangents[0]))


@jax.custom_vjp
def clipped(x):
    return x * 3

clipped.defvjp(lambda x: (x * 3, x), lambda x, g: (jnp.clip(g, -1, 1) * jnp.mean(x),))
"""
SAME = [
    *lines(
        """
        jax.jit(lambda e: {F})({x})
        jax.checkpoint(lambda e: {F})({x})
        jax.named_call(lambda e: {F}, name='part')({x})
        lax.cond(jnp.sum({x}) > 0, lambda e: {F}, lambda e: {F}, {x})
        lax.cond({x}.ravel()[0] > 0, lambda e: ({F},), lambda e: ({F},), {x})
        lax.switch(jnp.argmax({v}), [lambda e: {F}, lambda e: {F}], {x})
        lax.fori_loop(0, 3, lambda k, e: {F}, {x})
        lax.fori_loop(0, {x}.shape[0], lambda k, e: {F}, {x})
        lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, (lambda e: {F})(c[1])), (0, {x}))[1]
        lax.scan(lambda c, k: ((lambda e: {F})(c), k), {x}, jnp.arange(3))[0]
        lax.scan(lambda c, k: (c, (lambda e: {F})({x})), 0, jnp.arange(2))[1]
        jnp.vectorize(lambda e: {F}, signature='(n)->(n)')({v})
        """,
        inner="same",
    ),
    *lines(
        """
        jax.grad(lambda e: jnp.sum({F}))({x})
        jax.grad(lambda e: jnp.mean(jnp.square({F})))({x})
        jax.jvp(lambda e: {F}, ({x},), ({x},))[1]
        jax.vjp(lambda e: {F}, {x})[1](({F}))[0]
        jax.linearize(lambda e: {F}, {x})[1]({x})
        jax.value_and_grad(lambda e: jnp.max({F}))({x})
        jax.jacfwd(lambda e: jnp.mean({F}))({x})
        jax.jacrev(lambda e: {F}.sum(0))({x})
        jax.hessian(lambda e: jnp.sum({F}))({w})
        jax.grad(lambda e: jnp.sum(jax.checkpoint(lambda e: {F})(e)))({x})
        jax.grad(lambda e: jnp.sum(lax.scan(lambda c, k: (c, (lambda e: {F})(e)), 0, jnp.arange(2))[1]))({x})
        """,
        "wide",
        inner="same",
    ),
]
ROWS = [
    *lines(
        """
        jax.vmap(lambda e: {F})({x})
        jax.vmap(lambda e: {F}, out_axes=-1)({m})
        lax.map(lambda e: {F}, {x})
        lax.map(lambda e: {F}, {x}, batch_size=2)
        lax.scan(lambda c, e: (c, {F}), 0, {x})[1]
        lax.scan(lambda c, e: (c + 1, {F}), 0, {x}, reverse=True)[1]
        lax.scan(lambda c, e: (c, {F}), 0, {x}, unroll=2)[1]
        """,
        inner="row",
    ),
    *lines(
        "jax.vmap(lambda e: {F}, in_axes=1, out_axes=1)({m})\njax.vmap(lambda e: {F},"
        " in_axes=1)({m})",
        inner="column",
    ),
]
LOOPS = [  # each ends whatever wraps: int4 ends at 7
    *lines(
        """
        lax.scan(lambda c, a: (c + a, c), jnp.zeros((), {v}.dtype), {v})
        lax.scan(lambda c, a: (jnp.maximum(c, a), c), {v}[0], {v}, reverse=True)
        lax.scan(lambda c, a: (c * a, None), jnp.ones(3, {m}.dtype), {m})[0]
        lax.scan(lambda c, a: (c + a, c), jnp.zeros({m}.shape[0], {m}.dtype), {m}.T)[0]
        lax.fori_loop(0, {v}.shape[0], lambda k, c: c + {v}[k], jnp.zeros((), {v}.dtype))
        lax.fori_loop(0, {v}.shape[0], lambda k, c: c.at[k].set(c[k - 1]), {v})
        lax.while_loop(lambda c: c < {v}.shape[0], lambda c: c + 2, 0)
        lax.while_loop(lambda c: jnp.max(c) < 5, lambda c: jnp.abs(c) * 2 + 1, {v})
        lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + jnp.sum({v})), (0, jnp.sum({v})))[1]
        lax.map(lambda y: lax.while_loop(lambda y: y < 4, lambda y: 2 * y, y), jnp.maximum({v}, 1))
        lax.map(lambda y: lax.while_loop(lambda y: y < 1, lambda y: 2 * y, y), jnp.abs(jnp.diff(jnp.arange({v}.shape[0] * 1.0))))
        jax.vmap(lambda a: lax.fori_loop(0, 3, lambda k, c: c + a, a))({v})
        jax.vmap(lambda a: lax.while_loop(lambda c: c < 5, lambda c: c + 1 + abs(a), a * 0))({v})
        jax.vmap(lambda a, k: a[k], in_axes=(None, 0))({v}, {i})
        jax.vmap(lambda a, k: a.at[k].set(1), in_axes=(None, 0))({w}, {i})
        jax.vmap(lambda a, k: lax.dynamic_slice(a, (k,), (2,)))({m}, {i})
        jax.vmap(lambda a: a.sum() * {v})({m})
        lax.map(lambda k: {v}[k], {i})
        lax.map(lambda a: a * jnp.sum({v}), {w})
        lax.cond({x}.shape[0] > 3, lambda a: a * 2, lambda a: a, {x})
        lax.cond(jnp.any({v} > 1), lambda a: jnp.cumsum(a), lambda a: a, {v})
        lax.associative_scan(lambda a, b: a + b, {v})
        lax.custom_root(lambda a: a * 2 - jnp.sum({v}), {s}, lambda f, a: jnp.sum({v}) / 2, lambda g, y: y / 2)
        """,
        "real",
    ),
    *lines(  # loops and branches over another axis that look along this one
        """
        lax.scan(lambda c, a: (c + jnp.sum(a), jnp.max(a)), {s}, {m}.T)
        lax.scan(lambda c, a: (jnp.maximum(c, jnp.max(a)), jnp.sum(a) * 2), {s}, {m}.T)
        lax.scan(lambda c, a: (c + a.sum(0), None), {w}, jnp.stack([{m}, {m}]))[0]
        lax.scan(lambda c, a: (c.at[abs({i}) % 3].add(a), None), {w}, {m}.T)[0]
        lax.scan(lambda c, a: (c + lax.scan(lambda d, b: (d + jnp.sum(b), None), jnp.zeros_like(c), a[None])[0], None), {s}, {m}.T)[0]
        lax.fori_loop(0, 3, lambda k, c: c + jnp.sum({v}), {s})
        lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + {m}.sum(0)), (0, {w}))[1]
        lax.cond({s} > 0, lambda a: (a.sum(0), a), lambda a: (a.sum(0) * 0, -a), {m})
        lax.cond({s} > 0, lambda a: a.max(0), lambda a: {w}, {m})
        jax.vmap(lambda a: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1 + abs(c[1]), c[1] * 1), (a * 0, a)))({v})
        """,
        "real",
    ),
    *lines(  # loops that read what is put together over all of it, in each iteration
        """
        lax.fori_loop(0, 3, lambda k, c: c * 0.5 + jnp.tanh(jnp.mean({v} * c)), {s} * 1.0)
        lax.scan(lambda c, a: (c * 0.5 + jnp.tanh(jnp.max(a * c)), c), {s} * 1.0, {m}.T)
        lax.scan(lambda c, a: (jnp.cos(c + jnp.mean(a)), a * c), {s} * 1.0, {m}.T, reverse=True)
        lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] - jnp.mean(c[1])), (0, {v} * 1.0))
        lax.while_loop(lambda c: (c[0] < 4) & (jnp.max({v}) < 9 + c[0]), lambda c: (c[0] + 1, jnp.max({v}) - c[1] / 2), (0, {s} * 1.0))[1]
        lax.scan(lambda c, k: ((c - jnp.mean(c)) * 0.5, jnp.max(c)), {v} * 1.0, jnp.arange(3))
        lax.scan(lambda c, k: (jnp.cumsum(c) / 8, (jnp.sort(c)[0], c)), {v} * 1.0, jnp.arange(2))
        lax.scan(lambda c, k: (c / 2 + jnp.tanh(lax.scan(lambda d, j: (d / 2 + jnp.tanh(jnp.mean({v} * d)), None), c, jnp.arange(2))[0]), c), {s} * 1.0, jnp.arange(2))
        lax.fori_loop(0, 3, lambda k, c: c * 0.9 - 0.1 * {m}.T @ jnp.tanh({m} @ c), {w} * 1.0)
        jax.grad(lambda w: jnp.sum(lax.scan(lambda c, k: (c * 0.9 - 0.1 * {m}.T @ jnp.tanh({m} @ c), None), w, jnp.arange(2))[0]))({w} * 1.0)
        jax.vmap(lambda a: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] / 2 + jnp.tanh(jnp.mean({v} * c[1]))), (0, a)))({w} * 1.0)
        jax.scipy.sparse.linalg.cg(lambda w: {m}.T @ ({m} @ w) + 9 * w, {w} * 1.0, maxiter=2)[0]
        """,
        "real",
    ),
    *lines(  # loops until all elements are done: frozen then or not, with what is shared by all
        """
        lax.while_loop(lambda c: jnp.any(c[1] < 3) & (c[0] < 6), lambda c: (c[0] + 1, jnp.where(c[1] < 3, c[1] + 1, c[1])), (0, {v}))
        lax.while_loop(lambda c: ~jnp.all(c[1] > 2) & (c[0] < 5), lambda c: (c[0] + 1, c[1] + 1), (0, {m}))
        lax.while_loop(lambda c: c[2] & (c[0] < 6), lambda c: (c[0] + 1, -c[1], jnp.any(c[1] > 1)), (0, {v}, True))
        lax.while_loop(lambda c: jnp.any(c[1] > c[0]) & (c[0] < 7), lambda c: (c[0] + 1, -c[1]), (0, {v}))
        lax.while_loop(lambda c: jnp.any(c[1] < 3) & (c[0] < 4), lambda c: (c[0] + 1, jnp.abs(c[1]) + 1, c[2] + jnp.sum(c[1])), (0, {v}, jnp.sum({v})))
        lax.while_loop(lambda c: (jnp.max(jnp.where(c[1] > 1, 2, 0)) > 1) & (c[0] < 5), lambda c: (c[0] + 1, jnp.flip(c[1], 1) - 1), (0, {m}))
        lax.while_loop(lambda c: jnp.any(c[0] < 3) & (c[1] < 4), lambda c: (c[0] + c[1], c[1] + 1), ({v}, 0))[0] * 2
        (lambda c: jnp.cumsum(c[1]) * c[0])(lax.while_loop(lambda c: jnp.any(c[1] > 0) & (c[0] < 4), lambda c: (c[0] + 1, c[1] - {s}), (0, {v} - jnp.max({v}))))
        lax.scan(lambda c, k: (lax.while_loop(lambda d: jnp.any(d[1] < 3) & (d[0] < 3), lambda d: (d[0] + 1, d[1] + 1), (0, c))[1], k), {v}, jnp.arange(2))[0]
        jax.vmap(lambda a: lax.while_loop(lambda c: (lax.pmax((c[1] < 3).astype(int), 'k') > 0) & (c[0] < 5), lambda c: (c[0] + 1, c[1] + 1), (0, a)), axis_name='k')({v})
        """,
        "real",
    ),
    *lines(  # one value in two roles: what a loop begins with, and what its turns read
        """
        lax.scan(lambda c, a: (c * {s} + a, c), {s}, {v})
        lax.scan(lambda c, a: (c * {w}, c), {w}, {m}, reverse=True)
        lax.scan(lambda c, a: (c * {s}, None), {s}, jax.random.split(jax.random.key(1), {v}.shape[0]))[0]
        lax.fori_loop(0, {v}.shape[0], lambda k, c: c * {s} + {v}[k], {s})
        lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * {w} + {m}.sum(0)), (0, {w}))[1]
        jax.grad(lambda w: jnp.sum(lax.scan(lambda h, a: (h * w, h), w, {m} * 1.0)[1]))({w} * 1.0)
        jax.grad(lambda w: jnp.sum(lax.scan(lambda h, a: (jnp.sin(h * w + a), None), w, {m} * 1.0)[0]))({w} * 1.0)
        """,
        "real",
    ),
    *lines(  # the axis is inside of what they hold, and of nothing that they are handed
        """
        lax.cond({s} > 0, lambda: jnp.sum(jax.random.normal(jax.random.key(1), {v}.shape)), lambda: 0.0)
        lax.cond({s} > 0, lambda: jnp.sort(jax.random.normal(jax.random.key(1), {v}.shape))[0], lambda: 0.0)
        lax.fori_loop(0, 3, lambda k, c: c + jnp.sum(jax.random.normal(jax.random.key(k), {v}.shape)), 0.0)
        lax.fori_loop(0, 3, lambda k, c: jnp.maximum(c, jnp.max(jax.random.normal(jax.random.key(k), {m}.shape))), 0.0)
        lax.map(lambda k: jnp.max(jax.random.uniform(k, {v}.shape)), jax.random.split(jax.random.key(1), 3))
        lax.map(lambda a: jnp.sum(jnp.cos(a * jnp.arange({v}.shape[0]))), {w})
        lax.scan(lambda c, a: (c, jnp.sum(jnp.arange({v}.shape[0]) * a, dtype=jnp.float32)), 0, {w})[1]
        lax.scan(lambda c, k: (c * 2, None), {s}, jax.random.split(jax.random.key(1), {v}.shape[0]))[0]
        """,
        "real",
    ),
    *lines(
        """
        jax.grad(lambda w: jnp.sum(lax.scan(lambda h, a: (jnp.tanh(h * w[0] + a), None), {m}[:, 0], {m}.T)[0]))({w})
        jax.grad(lambda w: jnp.mean(lax.scan(lambda h, a: (jnp.sin(h + w[1] * a), h), {m}[:, 0], {m}.T)[1]))({w})
        jax.grad(lambda w: jnp.mean(jax.vmap(lambda r: lax.scan(lambda h, a: (jnp.sin(h + w[1] * a), h), r[0], r)[0])({m})))({w})
        jax.grad(lambda w: jnp.sum(lax.scan(jax.checkpoint(lambda h, a: (jnp.tanh(h * a + w[2]), None)), {m}[:, 0], {m}.T)[0]))({w})
        jax.grad(lambda e: jnp.sum(lax.reduce_window(e, -jnp.inf, lax.max, (1, 2), (1, 1), 'VALID')))({m})
        jax.grad(lambda e: jnp.sum(lax.reduce_window(e, -jnp.inf, lax.max, (1, 2), (1, 2), 'SAME') ** 2))({m})
        jax.grad(lambda e: jnp.sum(lax.reduce_window(e, 0.0, lax.add, (1, 2), (1, 1), 'SAME') ** 2))({m})
        jax.grad(lambda k: jnp.sum(jnp.sin(lax.conv({m}[:, None, :], k, (1,), 'SAME'))))(jnp.ones((2, 1, 2), {m}.dtype))
        lax.associative_scan(jnp.maximum, {m}, axis=1)
        jax.grad(lambda e: jnp.sum(jnp.roll(e, 1) * e))({v})
        jax.grad(lambda e: jnp.sum(jnp.cumprod(e, 1)))({m})
        """,
        "wide",
    ),
    *lines("ruled({x})\nclipped({x})\njax.jit(ruled)({x})\njax.vmap(clipped)({x})", "wide"),
    *lines("jax.grad(lambda e: jnp.sum(ruled(e) * clipped(e)))({x})", "wide"),
]
TOGETHER = [
    *lines(
        """
        jax.vmap(lambda a: a - lax.pmean(a, 'k'), axis_name='k')({x})
        jax.vmap(lambda a: a + lax.psum(a, 'k'), axis_name='k')({x})
        jax.vmap(lambda a: lax.pmax(a, 'k'), axis_name='k')({x})
        jax.vmap(lambda a: lax.pmin(a, 'k'), axis_name='k')({x})
        jax.vmap(lambda a: a * lax.axis_index('k'), axis_name='k')({x})
        jax.vmap(lambda a: a * lax.axis_size('k'), axis_name='k')({x})
        jax.vmap(lambda a: lax.all_gather(a, 'k'), axis_name='k')({v})
        jax.vmap(lambda a: lax.ppermute(a, 'k', [(0, 1), (1, 2), (2, 0)]), axis_name='k')({t})
        jax.vmap(lambda a: lax.pshuffle(a, 'k', [1, 2, 0]), axis_name='k')({t})
        jax.vmap(lambda a: lax.all_to_all(a, 'k', 0, 0), axis_name='k')({q})
        jax.vmap(lambda a: lax.psum_scatter(a, 'k'), axis_name='k')({q})
        jax.vmap(lambda a: lax.psum(a, 'k'), in_axes=1, axis_name='k')({m})
        """,
        "num",
    ),
]
RECIPES = [*SAME, *ROWS, *LOOPS, *TOGETHER]
