"""Adapters for the parts of JAX that are untyped, semi-public, or different between versions.

Other folders import from here what they need of pytrees (`trees.py`), jaxprs (`programs/`),
compiled HLO text and memory (`xla/`), devices and meshes, and the persistent compilation cache
(`compile_cache/`). Nothing here knows about plans or stages.

    closed = jax.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(1.0)
    # { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }

    evaluated(closed, [0], lambda eqn, depths: [1 + max(depths)], constant=lambda *_: 0)
    # [2]: an interpreter whose values are depths in the data-flow graph
"""
