"""Programs in the styles that people write, each with faults planted: these are named, and nothing
else.
"""

import sys

import jax
import pytest

from jitney._command import changes as whole
from jitney._command import launch
from jitney._command.changes import changes
from jitney._command.findings.call_arguments import with_transfer_seconds
from jitney._command.jax_log import read_events
from tests.command._scripts import jax_explains

RAGGED = """
import jax, jax.numpy as jnp, numpy as np
rng = np.random.default_rng(0)
params = {"emb": rng.normal(size=(50, 4)).astype(np.float32), "w": rng.normal(size=(4, 2)).astype(np.float32)}

def loss(params, tokens, label):
    return -jax.nn.log_softmax(jnp.mean(params["emb"][tokens], axis=0) @ params["w"])[label]

@jax.jit
def step(params, tokens, label):  # fault: a program for each length
    value, grads = jax.value_and_grad(loss)(params, tokens, label)
    return value, jax.tree.map(lambda p, g: p - np.float32(0.1) * g, params, grads)

for n in (5, 6, 7, 9, 11, 5):
    value, params = step(params, np.arange(n, dtype=np.int32), np.int32(n % 2))
    size = jax.jit(lambda p: jnp.sum(p["w"] ** 2))(params)  # fault: made anew
"""

SWEEP = """
import jax, jax.numpy as jnp, numpy as np

def simulate(x, rate, n):
    @jax.jit
    def relax(x, rate):  # fault: made anew
        return jax.lax.fori_loop(0, n, lambda i, y: y + rate * jnp.sin(y), x)
    return relax(x, rate)

def score(x):  # fault: operations one by one
    return jnp.tanh(jnp.sinh(jnp.cosh(jnp.arctan(jnp.log1p(x)))))

for rate in (0.1, 0.2, 0.3):
    y = score(simulate(np.ones(31, np.float32), np.float32(rate), 10))
"""

FIT = """
import diffrax, equinox as eqx, jax, jax.numpy as jnp, numpy as np

class Decay(eqx.Module):
    rate: jax.Array

    def __call__(self, t, y, args):
        return -self.rate * y

def simulate(model, times):
    term, saved = diffrax.ODETerm(model), diffrax.SaveAt(ts=times)
    return diffrax.diffeqsolve(term, diffrax.Euler(), times[0], times[-1], np.float32(0.2), np.ones((), np.float32), saveat=saved).ys

@eqx.filter_jit
def fit(model, times, observed):  # fault: a program for each number of points
    loss = lambda model: jnp.sum((simulate(model, times) - observed) ** 2)
    return jax.tree.map(lambda p, g: p - np.float32(0.01) * g, model, jax.grad(loss)(model))

def start(x):  # fault: operations one by one
    return jnp.expm1(jnp.sqrt(jnp.cbrt(jnp.arcsinh(jnp.sin(x)))))

model = Decay(start(np.ones((), np.float32)))
for n in (8, 9, 11):
    times = np.linspace(0, 1, n, dtype=np.float32)
    model = fit(model, times, np.exp(-2 * times))
"""

RESTARTS = """
import functools, jax, jax.numpy as jnp, numpy as np

@functools.partial(jax.jit, static_argnames="steps")
def run(x, steps):
    return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=steps)[0]

@jax.jit
def norm(x):
    return jnp.sqrt(jnp.sum(x * x))

x = np.ones(17, np.float32)
for restart in range(8):
    for steps in (10, 20, 30):
        x = run(x, steps=steps)
    norm(x)
norm(np.ones((2, 3), np.float32))
makers = [jax.jit(lambda x, k=k: x * k) for k in (np.float32(2), np.float32(3), np.float32(4))]
for f in makers:
    f(x)
"""

SAMPLER = """
import functools, jax, jax.numpy as jnp, numpy as np

@functools.partial(jax.jit, static_argnames="power")
def log_density(x, power):  # fault: a program for each value
    return -jnp.sum(jnp.abs(x) ** 2) * power

@jax.jit
def propose(x, key):
    return x + np.float32(0.1) * jax.random.normal(key, x.shape)

def chain(x, steps, rng):
    here, kept = np.float32(-10), []
    for step, key in enumerate(jax.random.split(jax.random.key(0), steps)):
        new = propose(x, key)
        there = log_density(new, power=1.0 + step % 6)
        value = float(there)  # fault: read back at each step
        if np.log(rng.random()) < value - here:
            x, here = new, value
        kept.append(x)
    return kept

chain(jnp.zeros(3), 12, np.random.default_rng(0))
"""

STORM = """
import jax, jax.numpy as jnp, numpy as np
field, kernel = np.ones((64, 64), np.float32), np.full((64, 64), 0.5, np.float32)

@jax.jit
def advance(field, kernel):
    return field + np.float32(0.1) * jnp.roll(field, 1, 0) * kernel

def run(field, steps):
    for _ in range(steps):
        field = advance(field, kernel)  # fault: the kernel goes to the device at each step; fault: the old field is not donated
    return field

for restart in range(3):
    field = run(field, 10)
"""

PROGRAMS = {
    "ragged text": (RAGGED, ["<lambda> was created again", "step was compiled for 5 sizes"]),
    "a sweep": (SWEEP, ["5 programs for operations", "relax was created again"]),
    "a fit with diffrax": (FIT, ["5 programs for operations", "fit was compiled for 3 sizes"]),
    "restarts, all well": (RESTARTS, []),
}
SEEN = {  # where Python sees lines
    "a sampler": (
        SAMPLER,
        [
            "an array of JAX is read back 12 times, by float(x)",
            "log_density was compiled 6 times for equal shapes",
        ],
    ),
    "a simulation with restarts": (
        STORM,
        ["kernel, 16.0 KiB of NumPy with the same numbers", "field of advance dies at each call"],
    ),
}
if sys.version_info >= (3, 13):
    PROGRAMS |= SEEN


@pytest.mark.core("restarts, all well")
@jax_explains
@pytest.mark.parametrize("style", PROGRAMS)
def test_the_faults_of_a_program_are_named(style, tmp_path, monkeypatch):
    """Each by its function, and nothing that is none."""
    code, faults = PROGRAMS[style]
    (tmp_path / "program.py").write_text(code)
    monkeypatch.setattr(whole, "_LEAST_BYTES", 2**12)
    jax.clear_caches()
    explained, promotion = (
        jax.config.jax_explain_cache_misses,
        jax.numpy_dtype_promotion("standard"),
    )
    recording = launch.Recording()
    recording.listen()
    try:
        with promotion:
            exec(compile(code, str(tmp_path / "program.py"), "exec"), {"__name__": "__main__"})
    finally:
        recording.stop()
        jax.config.update("jax_explain_cache_misses", explained)
    kept = {
        "jax_compilation_cache_dir": "/some/folder",
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    found = changes(
        read_events(recording.events, recording.began).compiled,
        kept,
        with_transfer_seconds(recording.lines.to_data()),
    )
    assert len(found) == len(faults), found
    for fault in faults:
        assert any(change.what.startswith(fault) for change in found), found
    assert all(change.where.startswith("program.py") for change in found)
