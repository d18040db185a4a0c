"""Calls that fail again and again leave nothing behind: a service that gets bad data lives as long
as one that gets good data.
"""

import gc

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._checked import positive

GOOD, BAD = np.ones(4, np.float32), -np.ones(4, np.float32)


def logarithm(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.log(x)


def branch(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x if x[0] > 0 else -x


def loaded(folder):
    path = folder / "positive"
    optimize(positive).export(path, GOOD)
    return jitney.load(path)


def later(folder):
    program = optimize(runtime_checks="later")(positive)

    def call(x):
        program(x)
        jitney.wait()

    return call


FAILS = {
    "check": lambda folder: optimize(positive),
    "check, later": later,
    "check under pad": lambda folder: optimize(pad={"n": "pow2"})(positive),
    "check in a file": loaded,
    "check in a gradient": lambda folder: optimize(lambda x: jnp.sum(positive(x))).grad,
    "NaN": lambda folder: optimize(debug_nans=True)(logarithm),
    "contract": lambda folder: (lambda program: lambda x: program(x[None]))(optimize(logarithm)),
    "tracer": lambda folder: optimize(branch),
    "argument": lambda folder: (lambda program: lambda x: program(x, y=x))(optimize(logarithm)),
    "stream": lambda folder: (lambda program: lambda x: jitney.stream(program, x, chunk={"n": 0}))(
        optimize(logarithm)
    ),
}
REMEMBERED = {"tracer": 10}  # objects of each, of a log that holds the last ones


@pytest.mark.core("check")
@pytest.mark.parametrize("name", FAILS)
@pytest.mark.filterwarnings("ignore::jitney.JitneyWarning")
def test_a_call_that_fails_leaves_nothing_behind(name, tmp_path):
    """Fewer than one object each, but for what is remembered of the last ones."""
    call = FAILS[name](tmp_path)

    def held(times):
        for _ in range(times):
            with pytest.raises((RuntimeError, jitney.JitneyError, TypeError)):
                call(BAD)
        gc.collect()
        return len(gc.get_objects())

    held(5)
    before = held(10)
    assert held(50) - before < 50 * REMEMBERED.get(name, 1)
