"""Lines whose Python needs a size as a number: in lengths, conditions, NumPy, texts, loops, by
parity, division, powers of two. No trace with a symbol goes through them.
"""

from ._recipe import lines

RECIPES = [
    # Parts.
    *lines(
        """
        {x}[: max(1, len({x}) // 2)]
        {x}[len({x}) // 3 :]
        {x}[: max(1, int(len({x}) * 0.7))]
        {x}[: 2 ** int(math.log2(len({x})))]
        {x}[: max(1, len({x}) - len({x}) % 4)]
        {x}[math.isqrt(len({x})) :]
        {x}[np.arange(len({x}))[::-1]]
        {x}[(np.arange(len({x})) + 3) % len({x})]
        {x}[np.arange(0, len({x}), 2)]
        {x}[np.random.RandomState(len({x})).permutation(len({x}))]
        {v}[len({v}) // 3] * {v}
        {v} - {v}[len({v}) - 1]
        {v}[: len({v}) // 2 * 2].reshape(-1, 2)
        {v}[: len({v}) // 2 * 2].reshape(2, -1)
        jnp.split({v}, [len({v}) // 2])[1]
        lax.dynamic_slice({v}, (len({v}) // 4,), (len({v}) // 2,))
        """,
        exact="bits",
    ),
    # No longer or no shorter than a number.
    *lines(
        """
        {x}[: min(len({x}), 12)]
        {x}[: min(len({x}) + 3, 20)]
        {x}[max(0, len({x}) - 9) :]
        {x}[: max(1, min(len({x}) - 2, 7))]
        {x}[min(len({x}) - 1, 10)]
        {v}[: min(len({v}), 24)] * min(len({v}), 24)
        {v}[min(3, len({v}) - 1) : min(18, len({v}))]
        lax.dynamic_slice({v}, (max(len({v}) - 6, 0),), (min(len({v}), 6),))
        {v} - {v}[max(len({v}) - 13, 0)]
        """,
        exact="bits",
    ),
    *lines(
        """
        jnp.pad({v}, (0, max(0, 12 - len({v}))))
        jnp.pad({v}, (0, max(len({v}), 14) - len({v})))
        jnp.zeros(max(len({v}), 11), {v}.dtype).at[: len({v})].set({v})
        {v}.at[min(len({v}), 15) - 1].set({v}[0])
        lax.top_k({v}, min(5, len({v})))[0]
        jnp.sort({v})[: min(len({v}), 13)]
        lax.fori_loop(0, min(len({v}), 9), lambda k, c: c + {v}[k], {v}[0])
        jnp.mean({v}[: min(len({v}), 16)]) * float(f"{min(len({v}), 16)}")
        {v}[: min(len({v}), 10)] * np.hanning(min(len({v}), 10)).astype(np.float32)
        """,
        "num",
        exact="close",
    ),
    # Longer and shorter ones.
    *lines(
        """
        jnp.pad({v}, (0, len({v}) % 3))
        jnp.pad({v}, (len({v}) % 2, 0))
        jnp.pad({v}, (0, 2 ** math.ceil(math.log2(len({v}))) - len({v})))
        jnp.concatenate([{v}, {v}[: len({v}) // 2]])
        jnp.concatenate([{v}, jnp.zeros(len({v}) % 4, {v}.dtype)])
        jnp.roll({v}, len({v}) // 2)
        jnp.zeros(1 << (len({v}) - 1).bit_length(), {v}.dtype).at[: len({v})].set({v})[: len({v})]
        {v}.at[len({v}) // 2].set({v}[0])
        jnp.stack([{v}] * (1 + len({v}) % 2))[0]
        jnp.where(np.arange(len({v})) < len({v}) // 2, {v}, {v}[::-1])
        """,
        "num",
        exact="bits",
    ),
    # Numbers and NumPy's arrays.
    *lines(
        """
        {v} * np.ones(len({v}), np.float32)
        {v} * np.linspace(0, 1, len({v}), dtype=np.float32)
        {v} + np.hanning(len({v})).astype(np.float32)
        {v} + (3 * np.arange(len({v})) + len({v})).astype(np.int16)
        {v} * float(len({v})) ** 0.5
        {v} * len(str(len({v})))
        {v} * float(f"{len({v})}.5")
        {v} + len({v}) % 3
        {v} * len({v}).bit_length()
        {v} * (-(-len({v}) // 8) * 8)
        {v} * {6: 2.0, 7: 3.0}.get(len({v}), 1.0)
        {v} * math.gcd(len({v}), 12)
        {v} * np.int8(len({v}) % 100)
        {v} / (np.arange(1, 4)[len({v}) % 3])
        jnp.asarray(np.tri(len({v}), dtype=np.float32)) @ {v}
        jnp.convolve({v}, np.ones(min(3, len({v})), np.float32), mode="same")
        """,
        "wide",
    ),
    # Decisions and loops.
    *lines(
        """
        ({v} * 2 if len({v}) % 2 else {v} * 3)
        (jnp.sin({v}) if len({v}) > 7 else jnp.cos({v}))
        ({v} + 1 if len({v}) in (5, 9, 12) else {v})
        (-{v} if len({v}) & (len({v}) - 1) == 0 else {v})
        ({v}[::-1] if len({v}) % 3 == 0 else {v} * 2)
        sum(({v} * k for k in range(len({v}) % 4)), {v})
        sum(({v} * k * len({v}) for k in range(3)), {v})
        lax.fori_loop(0, int(len({v})), lambda k, c: c.at[k].add(c[k - 1] * 0.5), {v})
        lax.fori_loop(0, len({v}) // 2, lambda k, c: c + {v}[k] * 0.1, {v})
        lax.fori_loop(0, 3 + (len({v}) == 11), lambda k, c: c * 0.5, {v})
        lax.while_loop(lambda c: c[0] < min(len({v}), 6), lambda c: (c[0] + 1, c[1] * 0.9), (0, {v}))[1]
        lax.scan(lambda c, a: (c * 0.9 + a, c * len({v})), jnp.zeros((), {v}.dtype), {v})[1]
        jax.grad(lambda e: jnp.sum(e**2 * np.linspace(0, 1, len(e), dtype=np.float32)))({v})
        jax.jit(lambda e, n: e * n / (n + 1), static_argnums=1)({v}, len({v}))
        jax.checkpoint(lambda e: jnp.sin(e) * len(e))({v})
        lax.cond({v}[0] > 0, lambda e: e * len(e), lambda e: e / len(e), {v})
        jax.vmap(lambda e: e * len({v}) + jnp.sum({v}[: len({v}) // 2]))({v})
        jax.ops.segment_sum({v}, np.arange(len({v})) // 2, (len({v}) + 1) // 2)
        lax.top_k({v}, max(1, len({v}) // 3))[0]
        jnp.polyval(jnp.array([1, len({v}) / 10, 2], {v}.dtype), {v} / 10)
        """,
        "wide",
    ),
]
