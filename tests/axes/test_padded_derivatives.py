"""The derivatives that JAX takes of a padded program: every body of `_cases.py`, both ways, against
the body's own at exact size.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._axes import PaddedDerivative, Refused, demand, jvp_function, run_differentiable, trace
from tests.axes import _cases as cases
from tests.axes.test_padded import GARBAGE, HIGH, LOW, arguments, padded

RANGES = {"d0": (LOW, HIGH)}


def real(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


@functools.cache
def differentiable(case):
    """The padded program of a case, of its real arguments; its derivative is made when it is asked
    for.
    """
    program = trace(case.flat, lambda sizes: case.avals(sizes["d0"]), RANGES)
    demand(program.jaxpr, RANGES)

    def derivative(varying):
        def avals(sizes):
            given = case.avals(sizes["d0"])
            return [*given, *(given[i] for i in varying)]

        found = trace(jvp_function(case.flat, len(case.takes), varying), avals, RANGES)
        demand(found.jaxpr, RANGES)
        return PaddedDerivative(found.jaxpr)

    return lambda n, *arrays: run_differentiable(
        program.jaxpr, derivative, arrays, {"d0": HIGH}, {"d0": n}
    )


def of_real(fn, arrays):
    """A function of the real ones among its arguments, to its real results; and those arguments."""
    at = [i for i, x in enumerate(arrays) if real(x)]

    def run(*varying):
        whole = list(arrays)
        for i, x in zip(at, varying, strict=True):
            whole[i] = x
        return [x for x in fn(*whole) if real(x)]

    return run, [arrays[i] for i in at]


def behind(x, shape, what):
    out = np.full(shape, what, x.dtype)
    out[tuple(slice(0, size) for size in x.shape)] = x
    return out


def leading(x, like):
    return np.asarray(x)[tuple(slice(0, size) for size in like.shape)]


CASES = [case for case in cases.CASES if any(aval.dtype.kind == "f" for aval in case.avals(LOW))]


def both_ways(fn, at, tangents, cotangents):
    """Along the tangents, and back from the cotangents."""
    return jax.jvp(fn, at, tangents)[1], jax.vjp(fn, *at)[1](cotangents)


@pytest.mark.parametrize("case", cases.few(CASES))
def test_derivatives_equal_those_at_exact_size(case):
    """With NaN behind what is valid of the arguments, and behind their tangents; nothing comes back
    for what was cut off.
    """
    n = LOW + 1
    rng = np.random.default_rng(0)
    exact = arguments(case, n, rng)
    body, at = of_real(case.flat, exact)
    results = jax.eval_shape(body, *at)
    if not results:
        pytest.skip("no real result")
    tangents, cotangents = (
        [rng.normal(size=x.shape).astype(x.dtype) for x in like] for like in (at, results)
    )
    try:
        wants = jax.jit(functools.partial(both_ways, body))(at, tangents, cotangents)
    except (ValueError, NotImplementedError) as error:
        pytest.skip(f"JAX has no reverse of it: {error}")

    run, there = of_real(
        functools.partial(differentiable(case), np.int32(n)), padded(case, exact, HIGH, GARBAGE)
    )
    try:
        shapes = jax.eval_shape(run, *there)
        tangents = [behind(t, x.shape, np.nan) for t, x in zip(tangents, there, strict=True)]
        cotangents = [behind(c, x.shape, 0) for c, x in zip(cotangents, shapes, strict=True)]
        got = jax.jit(functools.partial(both_ways, run))(there, tangents, cotangents)
    except Refused as refused:
        pytest.skip(f"refused: {refused.what}")
    for mine, want in zip(jax.tree.leaves(got), jax.tree.leaves(wants), strict=True):
        np.testing.assert_allclose(
            leading(mine, want), want, rtol=10 * case.tolerance, atol=10 * case.tolerance
        )
