"""Warm calls beside the same written by hand, in one process: what `benchmark --calls` runs.

The models are that of An and Schorfheide (2007), with three series of 200 dates, and that of Smets
and Wouters (2007) with their data; by hand are `likelihood_by_hand.py` and
`smets_wouters_by_hand.py`. Results are compared before anything is timed, in turn.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._timing import assert_equal, in_turn
from . import likelihood_by_hand as hand
from . import smets_wouters_by_hand
from ._implicit import solution
from ._likelihood import kalman, log_likelihood
from ._sweep import solutions
from .models import smets_wouters
from .models.an_schorfheide import MODEL, Params, Shocks

DATES, DRAWS = 200, 1000
NAMES = ("ylev", "ppi", "R")
ERRORS = np.full(3, 0.1)
BASE = {field.name: float(getattr(Params(), field.name)) for field in dataclasses.fields(Params)}


def likelihood(p: dict[str, Any], errors: Any, data: Any) -> jax.Array:
    """From parameters, as users of the package write it."""
    found = solution(MODEL, Params(**p))
    return log_likelihood(MODEL, found, data, NAMES, Shocks(*hand.VARIANCES), errors)


def medium(p: dict[str, Any], errors: Any, data: Any) -> jax.Array:
    """Of Smets and Wouters (2007)."""
    mod = smets_wouters.MOD
    found = solution(mod.model, p, at=mod.steady(p))
    return log_likelihood(mod.model, found, data, mod.observed, mod.covariance, errors)


def response(found: Any) -> jax.Array:
    """What technology does to the interest rate."""
    return found.G_z[2, 1]


def pairs() -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed: a call of the package and one by hand, whose results are equal."""
    data = np.random.default_rng(0).normal(size=(DATES, 3))
    matrices = (*jax.device_get(jax.jit(hand.system)(BASE)), ERRORS, data)
    found: dict[str, dict[str, Callable[[], Any]]] = {}

    def pair(what: str, ours: Any, by_hand: Any, wrt: Any, *given: Any) -> None:
        for kind, made in (("", jax.jit), (" and gradient", _gradient(wrt))):
            calls = {"jitney": made(ours), "by hand": made(by_hand)}
            found[what + kind] = {
                name: lambda call=call: _symmetric(call(*given)) for name, call in calls.items()
            }

    pair("Kalman filter", kalman, hand.kalman, (0, 1, 2, 3, 4), *matrices)
    pair("likelihood from parameters", likelihood, hand.likelihood, 0, BASE, ERRORS, data)

    series, mod = smets_wouters.data(), smets_wouters.MOD
    mode = {name: float(value) for name, value in mod.params.items()}
    *large, mean = jax.device_get(jax.jit(smets_wouters_by_hand.system)(mode))
    none = np.zeros(len(mean))
    given = (*large, none, series - mean)
    pair("Smets and Wouters, filter", kalman, hand.kalman, (0, 1, 2, 3, 4), *given)
    by_hand = smets_wouters_by_hand.likelihood
    pair("Smets and Wouters, from parameters", medium, by_hand, 0, mode, none, series)

    rng = np.random.default_rng(1)
    draws = BASE | {
        "tau": rng.uniform(1.0, 3.0, DRAWS),
        "psi1": rng.uniform(1.2, 2.5, DRAWS),
        "rhor": rng.uniform(0.1, 0.8, DRAWS),
    }
    every = {name: np.broadcast_to(each, DRAWS) for name, each in draws.items()}

    def ours() -> Any:
        made = solutions(MODEL, Params(**draws), response)
        slope = {name: getattr(made.gradient, name) for name in BASE}
        return made.solution.G_z[:, :4], made.value, slope

    def by_hand() -> Any:
        _, H, value, slope = jax.device_get(hand.sweep(every))
        return H, value, slope

    found[f"{DRAWS:,} policies and gradient"] = {"jitney": ours, "by hand": by_hand}
    return found


def _gradient(wrt: Any) -> Callable[[Any], Any]:
    return lambda function: jax.jit(jax.value_and_grad(function, wrt))


def _symmetric(found: Any) -> Any:
    """Gradients by a variance, which is symmetric, with both halves."""

    def both(each: Any) -> Any:
        square = np.ndim(each) == 2 and each.shape[0] == each.shape[1]
        return each + jnp.swapaxes(each, 0, 1) if square else each

    return jax.tree.map(both, found)


def main() -> None:
    """Print milliseconds as JSON."""
    seconds, out = float(sys.argv[1]), {}
    with jax.enable_x64(True):
        for what, calls in pairs().items():
            assert_equal({name: call() for name, call in calls.items()}, 1e-7, 1e-9)
            out[what] = {name: 1e3 * each for name, each in in_turn(calls, seconds).items()}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
