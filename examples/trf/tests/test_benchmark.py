"""What the benchmark compares with is right: models in NumPy, and the method by hand."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from examples.trf import _by_hand, benchmark, in_blocks, levenberg
from examples.trf.benchmark import CASES, measured, solvers


@pytest.mark.rest
@pytest.mark.parametrize("name", CASES)
def test_models_in_numpy_are_those_in_jax(name):
    """And so are their Jacobians."""
    case = CASES[name]
    t, _ = measured(case, 20)
    with jax.enable_x64(True):
        curve = case.model(t, *case.truth)
        slopes = jax.jacfwd(lambda p: case.model(t, *p))(np.array(case.truth))
    np.testing.assert_allclose(case.in_numpy(t, *case.truth), curve, rtol=1e-12)
    np.testing.assert_allclose(case.slopes(t, *case.truth), slopes, rtol=1e-12, atol=1e-15)


@pytest.mark.rest
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["free", "box", "held"])
def test_by_hand_ends_where_scipy_does(name, kind):
    """Without bounds, inside of bounds, and at one."""
    case = CASES[name]
    t, y = measured(case, 100)
    box = None if kind == "free" else getattr(case, kind)
    with jax.enable_x64(True):
        found = solvers(case, 100, box)["by hand"]()
    want = scipy.optimize.least_squares(
        lambda p: case.in_numpy(t, *p) - y,
        case.start,
        lambda p: case.slopes(t, *p),
        bounds=(-np.inf, np.inf) if box is None else box,
    )
    np.testing.assert_allclose(found, want.x, rtol=1e-4)


@pytest.mark.rest
def test_blocks_by_hand_end_where_one_program_by_hand_does():
    """With blocks for each core, and points that fill none."""
    case = CASES["decay"]
    with jax.enable_x64(True):
        t, y = map(jnp.asarray, measured(case, 5 * in_blocks.BLOCK * (os.cpu_count() or 1) // 2))
        start = np.asarray(case.start)
        found = in_blocks.fit(case.model, t, y, start)
        want = levenberg.fit(case.model, t, y, start)
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.rest
def test_the_triangle_by_hand_is_that_of_numpys_qr():
    """In one block, and in three."""
    case = CASES["peak"]
    for points in (200, 3 * _by_hand.BLOCK):
        t, y = measured(case, points)
        misfit = case.in_numpy(t, *case.truth) - y
        R = np.linalg.qr(np.column_stack([case.slopes(t, *case.truth), misfit]), mode="r")[:-1]
        want = R * np.sign(np.diag(R))[:, None]
        with jax.enable_x64(True):
            found = _by_hand.triangle(np.array(case.truth), *map(jnp.asarray, (t, y)))
        np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-8 * points**0.5)


@pytest.mark.rest
def test_the_loop_in_blocks_is_timed_beside_trf(capsys):
    """For each curve, after the parameters were compared."""
    with jax.enable_x64(True):
        benchmark.blocks(points=benchmark.MANY, turns=1)
    assert capsys.readouterr().out.count("trf / by hand, blocks: ") == len(benchmark.CASES)
