"""A survey that grows by a point at a time, as in Bayesian optimisation: likelihood and gradient of
a Gaussian process at each size, from `examples/gallery/gaussian_process.py`.

Today each size is a program of `jax.jit`. By hand one writes the likelihood again with masks, and
pads to the powers of two. `pad` runs the function as it is.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitney

from .._summary import counted
from .._timing import assert_equal, in_turn, seconds_of
from ..gallery.gaussian_process import START, kernel, misfit, survey
from ._gain import Gain, Line

SIZES = range(57, 73)  # each that comes: two buckets, 64 and 128


def masked(theta: Any, x: Any, y: Any, n: Any) -> Any:
    """The likelihood with a mask at each place that sees the points."""
    inside = jnp.arange(x.size) < n
    both = inside[:, None] & inside
    noise = jnp.where(inside, jnp.exp(2 * theta[2]), 1)  # the rest is the identity
    covariance = jnp.where(both, kernel(theta, x, x), 0) + jnp.diag(noise)
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, jnp.where(inside, y, 0), lower=True)
    each = jnp.log(jnp.diag(factor)) + 0.5 * math.log(2 * math.pi)
    return 0.5 * jnp.sum(white**2) + jnp.sum(jnp.where(inside, each, 0))


def sides() -> dict[str, Any]:
    """The likelihood and its gradient, each way."""
    plain = jax.jit(jax.value_and_grad(lambda theta, x, y: misfit(theta, x, y)))
    with_mask = jax.jit(jax.value_and_grad(masked))
    padded = jitney.optimize(pad={"points": "pow2"})(misfit)

    def by_hand(x: np.ndarray, y: np.ndarray) -> Any:
        more = (1 << (x.size - 1).bit_length()) - x.size
        return with_mask(START, np.pad(x, (0, more)), np.pad(y, (0, more)), np.int32(x.size))

    return {
        "jax.jit": lambda x, y: plain(START, x, y),
        "by hand": by_hand,
        "jitney": lambda x, y: padded.value_and_grad(START, x, y, wrt="theta"),
    }


def measure() -> Gain:
    """Meet every size for the first time, compare, and go through them again."""
    surveys = [survey(size) for size in SIZES]
    every = {
        name: lambda call=call: [call(*each) for each in surveys] for name, call in sides().items()
    }
    first, programs, results = {}, {}, {}
    for name, call in every.items():
        before = counted()["programs"]
        first[name], results[name] = seconds_of(call)
        programs[name] = counted()["programs"] - before
    assert_equal(results, rtol=1e-3, atol=1e-3)
    again = {name: 1e3 * taken for name, taken in in_turn(every, seconds=0.5).items()}
    return Gain(
        "sizes",
        f"{len(SIZES)} sizes of a survey that grows, each once",
        "jax.jit, a compile for each size",
        "the function again, with masks, padded to powers of two",
        'pad={"points": "pow2"} on the function as it is',
        "values and gradients to 1e-3, in float32",
        (
            Line("first time, with compiling, s", *first.values()),
            Line("programs", *programs.values()),
            Line("again, all compiled, ms", *again.values()),
        ),
    )
