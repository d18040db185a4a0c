"""The derivatives that JAX takes of a program in chunks: every body of `_cases.py`, both ways,
against the body's own all at once.
"""

import functools

import jax
import numpy as np
import pytest

from jitney._axes import Refused, jvp_function, plan_passes, run_chunked_differentiable, trace
from tests.axes import _cases as cases
from tests.axes.test_padded import arguments
from tests.axes.test_padded_derivatives import CASES, both_ways, of_real

SIZE, CHUNK = 11, 4
RANGES = {"d0": (SIZE, SIZE)}


def in_chunks(case):
    """The program of a case in chunks, of its real arguments; its derivative is made when it is
    asked for.
    """

    def planned(fn, varying=()):
        def avals(sizes):
            given = case.avals(sizes["d0"])
            return [*given, *(given[i] for i in varying)]

        program = trace(fn, avals, RANGES, {"d0": SIZE})
        return plan_passes(program.jaxpr, "d0", RANGES, program.numbers)

    def derivative(varying):
        return planned(jvp_function(case.flat, len(case.takes), varying), varying)

    return lambda *arrays: run_chunked_differentiable(
        planned(case.flat), derivative, arrays, SIZE, CHUNK
    )


@pytest.mark.parametrize("case", cases.few(CASES))
def test_derivatives_equal_those_of_the_whole(case):
    """With a last chunk that is shorter."""
    rng = np.random.default_rng(0)
    arrays = arguments(case, SIZE, rng)
    body, at = of_real(case.flat, arrays)
    results = jax.eval_shape(body, *at)
    if not results:
        pytest.skip("no real result")
    tangents, cotangents = (
        [rng.normal(size=x.shape).astype(x.dtype) for x in like] for like in (at, results)
    )
    try:
        wants = jax.jit(functools.partial(both_ways, body))(at, tangents, cotangents)
    except ValueError as error:
        pytest.skip(f"JAX has no reverse of it: {error}")
    run, _ = of_real(in_chunks(case), arrays)
    try:
        got = jax.jit(functools.partial(both_ways, run))(at, tangents, cotangents)
    except Refused as refused:
        pytest.skip(f"refused: {refused.what}")
    for mine, want in zip(jax.tree.leaves(got), jax.tree.leaves(wants), strict=True):
        assert mine.dtype == want.dtype
        np.testing.assert_allclose(mine, want, rtol=10 * case.tolerance, atol=10 * case.tolerance)
