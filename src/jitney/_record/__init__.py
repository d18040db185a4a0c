"""Digest of everything that a trace can read, and a record of the code that it ran.

Input: a function and the arguments of a call. Output: a text that is equal in two processes only if
both would trace the same program, so that `_serialized` can use it as a cache key. In doubt there
is not a key: `NotDeterministic` carries the reason, and the call is traced.

    SCALE = 2.0
    def f(x): return SCALE * jnp.sin(x)

    walk = ContentHasher()          # values.py
    walk.add(f)            # bytecode of `f`; 2.0 for `SCALE`; "jax.numpy.sin" by name
    walk.digest()          # 64 hexadecimal digits, other ones after `SCALE = 3.0`
    walk.codes             # the code objects that the trace may run: that of `f`

Begin with `values.py`, which hashes values; `instructions.py` and `functions.py` find the globals
that a function reads. `trace_monitor.py` watches the trace, since bytecode does not show
everything, and `libraries.py` detects installed packages that were reinstalled or monkeypatched.
"""
