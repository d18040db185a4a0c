"""Code that runs in a process of its own, which has turned on nothing yet."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jitney._jax.compile_cache import cache as _cache

SRC = str(Path(_cache.__file__).parents[3])
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX")

PRELUDE = """
import json, os, resource, threading, warnings
from pathlib import Path
import jax, jax.numpy as jnp
from jitney._jax.compile_cache import cache as _cache
from jitney._errors import JitneyWarning

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))

def compiled(factor):
    '''How a new program is compiled: from the cache, into it, or past it.'''
    events.clear()
    jax.jit(lambda x: x * factor + 1).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()
    return "hit" if "cache_hits" in events else "kept" if "cache_misses" in events else "past"

def warned(fn=_cache.ensure):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fn()
    return [str(w.message) for w in caught if issubclass(w.category, JitneyWarning)]

def jax_says():
    return [jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs,
            jax.config.jax_compilation_cache_max_size, jax.config.jax_enable_compilation_cache]

out = {}
base = os.environ.get("JITNEY_CACHE_DIR")
"""
UNTOUCHED = [None, 1.0, -1, True]
"""What JAX says of its cache before anyone set it: see `jax_says`."""


def process(code, base=None, **environment):
    """Run code in a fresh process and return what it put into `out`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JITNEY_", "JAX_", "XDG_"))}
    env = {**clean, "JAX_PLATFORMS": "cpu", "PYTHONPATH": SRC, **environment}
    if base is not None:
        env["JITNEY_CACHE_DIR"] = str(base)
    program = PRELUDE + textwrap.dedent(code) + "\nprint(json.dumps(out, default=str))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
