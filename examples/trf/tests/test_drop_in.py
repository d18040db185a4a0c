"""The drop-in where SciPy's own tests do not look: what a program remembers, and where NumPy does
other things than `jax.numpy`.
"""

import functools
import itertools
import re
import warnings

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

from examples.trf import _scipys, drop_in, moved, nist
from examples.trf._program import programs
from examples.trf._spent import Spent, cost
from examples.trf._traced import traced

T = np.linspace(0, 4, 40)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.05 * np.cos(37 * T)
SCALE = 1.0


def decay(t, a, b, c):
    return a * np.exp(-b * t) + c


def scaled(p):
    return SCALE * (p[0] * np.exp(-p[1] * T) + p[2] - Y)


def test_a_script_with_another_import_has_the_same_numbers():
    """A model in NumPy, no start, no word about JAX."""
    x, covariance = drop_in.curve_fit(decay, T, Y)
    expected, expected_covariance = scipy.optimize.curve_fit(decay, T, Y)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-4)


@pytest.mark.parametrize("names", [moved.as_written, moved.moved])
def test_a_script_of_scipys_has_the_certified_values_behind_either_import(names):
    """NIST's ultrasonic calibration, with one line changed."""
    x, covariance = names()["fit"]()
    reference = nist.load("Chwirut1")
    np.testing.assert_allclose(x, reference.certified, rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), reference.deviations, rtol=1e-4)


@pytest.mark.rest
def test_a_global_that_changed_is_read_anew(monkeypatch):
    """A program that was kept for the function would go on with the old one."""
    before = drop_in.least_squares(scaled, [1.0, 1.0, 0.0])
    monkeypatch.setattr(f"{__name__}.SCALE", 3.0)
    after = drop_in.least_squares(scaled, [1.0, 1.0, 0.0])
    np.testing.assert_allclose(after.cost, 9 * before.cost, rtol=1e-6)
    monkeypatch.setattr(f"{__name__}.Y", 2 * Y)
    other = drop_in.least_squares(scaled, [1.0, 1.0, 0.0])
    np.testing.assert_allclose(other.cost, 4 * after.cost, rtol=1e-6)


@pytest.mark.rest
def test_lambdas_in_a_loop_share_a_program():
    """And data sets of one size: what they read is data."""
    seen = []
    for shift in (0.0, 0.1, 0.2):
        y = Y + np.full(Y.shape, shift)
        fit = drop_in.least_squares(lambda p, y=y: decay(T, *p) - y, [1.0, 1.0, 0.0])
        seen.append((fit.x[2], programs.cache_info().misses))
    np.testing.assert_allclose(np.diff([level for level, _ in seen]), 0.1, rtol=1e-6)
    assert len({misses for _, misses in seen}) == 1


def branching(p):
    if p[0] > 1.5:  # which no trace can decide
        return np.array([p[0] - 2.0, p[1] + 1.0, 0.1])
    return np.array([2.0 - p[0], p[1] + 1.0, 0.1])


@pytest.mark.rest
def test_what_cannot_be_traced_runs_in_numpy_with_a_warning():
    """With differences, inside bounds as well, and the user's own errors come out as they are."""
    with pytest.warns(drop_in.NotTraced, match="cannot be traced"):
        fit = drop_in.least_squares(branching, [1.0, 1.0], bounds=(-0.5, 5.0))
    expected = scipy.optimize.least_squares(branching, [1.0, 1.0], bounds=(-0.5, 5.0))
    np.testing.assert_allclose(fit.x, expected.x, atol=1e-6)
    with pytest.raises(ZeroDivisionError):
        drop_in.least_squares(lambda p: p / 0 if isinstance(p, int) else [1 // 0], [1.0])


@pytest.mark.rest
def test_the_warning_counts_the_calls():
    """As the function itself counts them: two for each Jacobian are those for differences."""
    calls = []

    def counted(p):
        if not isinstance(p, np.ndarray):
            raise TypeError("not while it is traced")
        calls.append(p)
        return branching(p)

    with pytest.warns(drop_in.NotTraced) as caught:
        fit = drop_in.least_squares(counted, [1.0, 1.0])
    numbers = re.findall(r"(\d+) calls", str(caught[0].message))
    assert numbers == [str(len(calls)), str(2 * fit.njev)]


def test_seconds_in_a_function_are_those_of_the_clock():
    """One a call by this clock, which ticks when it is read; an error ends its call."""
    ticks = itertools.count()
    fun = Spent(lambda x: 1 / x, lambda: float(next(ticks)))
    fun(1.0)
    with pytest.raises(ZeroDivisionError):
        fun(0.0)
    assert cost(5.0, fun, Spent(fun)) == (
        "Measured: of the 5 s of this fit 2 s were spent in 2 calls of `fun`."
    )


@pytest.mark.rest
@pytest.mark.parametrize("scheme", ["2-point", "3-point", "cs"])
def test_differences_are_scipys(scheme):
    """Of a function that asks for the type of what it is given."""

    def typed(p):
        assert isinstance(p, np.ndarray)
        return decay(T, *p) - Y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", drop_in.NotTraced)
        fit = drop_in.least_squares(typed, [1.0, 1.0, 0.0], scheme, x_scale=1.0)
    expected = scipy.optimize.least_squares(typed, [1.0, 1.0, 0.0], scheme)
    np.testing.assert_allclose(fit.x, expected.x, rtol=1e-6)
    np.testing.assert_allclose(fit.jac, expected.jac, atol=1e-6)
    assert fit.nfev == expected.nfev


def views(p):
    whole = np.zeros((2, 3))
    part = whole[1]  # a view: what is written to it is written to the whole
    part[:] = p[:3] - 1.0
    flat = whole.ravel()
    flat[0] = 2 * p[0] - 2.0
    same = whole
    same += 0.5
    whole[0, 1:] = np.array([p[1] * p[0], 3.0])
    return np.concatenate([whole.ravel(), [p[2] ** 2]])


@pytest.mark.rest
def test_slices_are_views():
    """What is written to a slice is written to the array, as in NumPy, traced or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", drop_in.NotTraced)
        fit = drop_in.least_squares(views, [2.0, 1.5, 0.5])
    expected = scipy.optimize.least_squares(views, [2.0, 1.5, 0.5])
    np.testing.assert_allclose(fit.fun, views(fit.x), atol=1e-12)
    np.testing.assert_allclose(fit.cost, expected.cost, rtol=1e-8)


def test_a_piecewise_function_is_traced():
    """Two lines that meet, with the derivatives by the place where they meet."""

    def lines(p):
        parts = [lambda t: p[1] + p[2] * (t - p[0]), lambda t: p[1] + p[3] * (t - p[0])]
        return np.piecewise(T, [p[0] > T], parts)

    p = np.array([1.7, 2.0, 0.5, -0.3])
    with jax.enable_x64(True):
        made, read = traced(lines, p, 0)
        found = made(p, read)
        slopes = jax.jacfwd(lambda p: made(p, read))(p)
    np.testing.assert_allclose(found, lines(p), rtol=1e-15)
    np.testing.assert_allclose(slopes[:, 0], np.where(T < 1.7, -0.5, 0.3), rtol=1e-15)


def blocks(p):
    whole = np.zeros((3, 4))
    whole[1:, ::2] = p[0]  # with steps
    whole[1:, 1:3] += np.outer([1.0, 2.0], p[1:3])  # a block
    whole[-1] -= whole[1]  # a row, of which another is a part
    whole[0, 0], whole[0, 1:2] = p[2], 2.0
    whole.T[3] = p[0] * p[1] * np.maximum(p[2], [1, 2, 3])  # through another view
    whole[::-1][0] *= 3.0
    return whole.ravel()


def test_blocks_rows_and_numbers_are_written_as_in_numpy():
    """And their derivatives are those of differences."""
    p = np.array([1.5, -0.5, 2.0])
    with jax.enable_x64(True):
        made, read = traced(blocks, p, 0)
        found = made(p, read)
        slopes = jax.jacfwd(lambda p: made(p, read))(p)
    np.testing.assert_array_equal(found, blocks(p))
    steps = 1e-6 * np.eye(3)
    expected = [(blocks(p + step) - blocks(p - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(slopes, np.transpose(expected), atol=1e-8)


@pytest.mark.rest
def test_an_undetermined_parameter_is_named_in_an_optimize_warning():
    """By "trf" in its row and column, by "lm" everywhere, as in SciPy."""
    with pytest.warns(scipy.optimize.OptimizeWarning, match="`b` has no effect"):
        _, covariance = drop_in.curve_fit(lambda t, a, b: a * t, T, Y, method="trf")
    np.testing.assert_array_equal(np.isinf(covariance), [[False, True], [True, True]])


@pytest.mark.rest
def test_random_numbers_in_a_model_are_not_frozen():
    """Two calls with the same parameters differ: the function is called, not traced."""
    rng = np.random.default_rng(0)

    def noisy(p):
        return p - 1.0 + 1e-3 * rng.normal(size=2)

    with pytest.warns(drop_in.NotTraced, match="other numbers"):
        drop_in.least_squares(noisy, [0.0, 0.0], max_nfev=3)


def broyden(x):
    f = (3 - x) * x + 1
    f[1:] -= x[:-1]
    f[:-1] -= 2 * x[1:]
    return f


def its_jacobian(x):
    ones = np.ones(x.size - 1)
    return scipy.sparse.diags_array([-ones, 3 - 2 * x, -2 * ones], offsets=(-1, 0, 1)).tocsr()


@pytest.mark.rest
@pytest.mark.parametrize("given", ["sparse", "operator", "sparsity"])
def test_a_sparse_problem_takes_scipys_steps(given, monkeypatch):
    """By products, and no dense Jacobian on the way."""
    monkeypatch.setattr(_scipys, "_raw", None)
    monkeypatch.setattr(_scipys, "_dense", None)
    options = {"tr_solver": "lsmr"}
    if given == "sparsity":
        options["jac_sparsity"] = its_jacobian(np.ones(200)) != 0
    else:
        loose = scipy.sparse.linalg.aslinearoperator if given == "operator" else (lambda J: J)
        options["jac"] = lambda x: loose(its_jacobian(x))
    got = drop_in.least_squares(broyden, np.full(200, -1.0), **options)
    want = scipy.optimize.least_squares(broyden, np.full(200, -1.0), **options)
    assert (got.nfev, got.status) == (want.nfev, want.status)
    np.testing.assert_allclose(got.x, want.x, atol=1e-8)
    np.testing.assert_allclose(got.grad, want.grad, atol=1e-8)
    along = np.cos(np.arange(200))
    np.testing.assert_allclose(got.jac @ along, want.jac @ along, atol=1e-6)


@pytest.mark.rest
def test_a_sparse_jacobian_that_is_not_the_derivative_is_taken_as_given():
    """As SciPy takes it: more steps, the same end."""
    options = {"jac": lambda x: 1.2 * its_jacobian(x), "tr_solver": "lsmr"}
    got = drop_in.least_squares(broyden, np.full(30, -1.0), **options)
    want = scipy.optimize.least_squares(broyden, np.full(30, -1.0), **options)
    assert got.nfev > scipy.optimize.least_squares(broyden, np.full(30, -1.0)).nfev
    np.testing.assert_allclose(got.x, want.x, atol=1e-6)


@pytest.mark.rest
@pytest.mark.filterwarnings("error")
def test_a_partial_function_is_traced():
    """`functools.partial` of a model in NumPy, in SciPy's call and within another function."""

    def scaled(x, a, b):
        return np.array([a * (x[1] - x[0] ** 2), b - x[0]])

    part = functools.partial(scaled, a=10.0)
    for fun in (functools.partial(part, b=1.5), lambda x: part(x, b=1.5)):
        found = drop_in.least_squares(fun, [2.0, 2.0])
        np.testing.assert_allclose(found.x, [1.5, 2.25], rtol=1e-6)


@pytest.mark.rest
def test_what_a_callback_gives_does_not_stop_a_fit():
    """`StopIteration` alone does, as in SciPy 1.17, whose message has `True` too."""

    def rosenbrock(x):
        return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])

    for module in (scipy.optimize, drop_in):
        found = module.least_squares(rosenbrock, [2.0, 2.0], callback=lambda x: True)
        assert found.success
        np.testing.assert_allclose(found.x, [1.0, 1.0], rtol=1e-6)


@pytest.mark.rest
def test_a_range_of_points_is_traced():
    """As an array of them: SciPy hands it on, and NumPy's numbers make one of it."""

    def hill(t, a, c):
        return a * np.exp(-((t - c) ** 2.0) / 200.0)

    y = [2.5 * np.exp(-((i - 12.0) ** 2) / 200) for i in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", drop_in.NotTraced)
        x, _ = drop_in.curve_fit(hill, range(30), y, [1.0, 10.0])
    np.testing.assert_allclose(x, [2.5, 12.0], rtol=1e-7)


@pytest.mark.rest
@pytest.mark.parametrize("bad", [0.0, np.nan])
def test_a_sigma_that_weighs_nothing_is_named(bad):
    """The first point that has it, and how to leave a point out."""
    sigma = np.where(np.arange(T.size) == 7, bad, 0.1)
    with pytest.raises(ValueError, match=r"`sigma` is 0 or NaN at 1 points, the first of them 7"):
        drop_in.curve_fit(decay, T, Y, sigma=sigma)
    sigma[7] = np.inf
    x, covariance = drop_in.curve_fit(decay, T, Y, sigma=sigma, absolute_sigma=True)
    rest = np.arange(T.size) != 7
    want = scipy.optimize.curve_fit(decay, T[rest], Y[rest], sigma=sigma[rest], absolute_sigma=True)
    np.testing.assert_allclose(x, want[0], rtol=1e-6)
    np.testing.assert_allclose(covariance, want[1], rtol=1e-4)


@pytest.mark.rest
def test_one_point_does_not_determine_two_parameters():
    """The class of SciPy's error; one number of data for many points is enough."""
    line = lambda x, a, b: a * x + b
    with pytest.raises(TypeError, match="must not exceed"):
        drop_in.curve_fit(line, [2.0], [3.0])
    x, _ = drop_in.curve_fit(line, [1.0, 2.0, 3.0], [3.0])
    np.testing.assert_allclose(x, [0.0, 3.0], atol=1e-7)


@pytest.mark.rest
def test_a_mask_that_counts_for_nothing_is_told():
    """The numbers are those without a mask, as with SciPy."""
    masked = np.ma.masked_where(T > 3, Y)
    with pytest.warns(UserWarning, match=r"ignores the mask of a masked array(.|\n)*Fix: pass"):
        x, _ = drop_in.curve_fit(decay, T, masked)
    np.testing.assert_allclose(x, scipy.optimize.curve_fit(decay, T, masked)[0], rtol=1e-6)


def test_a_start_that_is_nan_is_told():
    """It is outside of no bounds."""
    with pytest.raises(ValueError, match=r"The initial guess is NaN: \[nan\s+1\.\s+1\.\]"):
        drop_in.curve_fit(decay, T, Y, [np.nan, 1, 1])


@pytest.mark.rest
def test_a_start_of_one_row_is_the_start():
    """As MINPACK takes it; `trf` refuses it."""
    x, _ = drop_in.curve_fit(decay, T, Y, [[1, 1, 0]])
    np.testing.assert_allclose(x, scipy.optimize.curve_fit(decay, T, Y, [[1, 1, 0]])[0], rtol=1e-6)
    with pytest.raises(ValueError, match="at most 1 dimension"):
        drop_in.curve_fit(decay, T, Y, [[1, 1, 0]], method="trf")


@pytest.mark.parametrize("option", [{"loss": "cauchy"}, {"max_nfev": 9}, {"x_scale": 2.0}])
def test_minpack_takes_its_own_options_alone(option):
    """Without bounds the method is "lm", whose options are those of `leastsq`, as in SciPy."""
    for fit in (drop_in.curve_fit, scipy.optimize.curve_fit):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(option))}'"):
            fit(decay, T, Y, **option)


def test_minpacks_fits_end_in_its_words_and_numbers():
    """1 is that the cost no longer falls; and the limit of evaluations has its name of old."""
    *_, words, number = drop_in.curve_fit(decay, T, Y, full_output=True)
    *_, expected, code = scipy.optimize.curve_fit(decay, T, Y, full_output=True)
    assert (words, number) == (expected, code)
    with pytest.raises(RuntimeError, match="has reached maxfev = 3"):
        drop_in.curve_fit(decay, T, Y, maxfev=3)


@pytest.mark.rest
@pytest.mark.parametrize(
    "model",
    [
        lambda t, a, b: np.interp(t, [0, 2, 4], [a, b, 1]),
        lambda t, a, b: np.polyval([a, 0, b], t),
        lambda t, a, b: np.poly1d([a, b])(t),
        lambda t, a, b: a + np.dot([b, 1], [t, t]),
    ],
)
def test_lists_with_parameters_are_traced(model):
    """Beside others of whole numbers, which are no shapes there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", drop_in.NotTraced)
        x, covariance = drop_in.curve_fit(model, T, Y)
    expected, expected_covariance = scipy.optimize.curve_fit(model, T, Y)
    np.testing.assert_allclose(x, expected, rtol=1e-5)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-4)


@pytest.mark.rest
def test_a_script_is_compared_fit_by_fit(tmp_path):
    """Of each, the values in SciPy's standard errors; a module that is other shows."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from scipy.optimize import curve_fit, least_squares\n"
        "t = np.linspace(0, 1, 20)\n"
        "y = 2 * t + 1 + 0.1 * np.random.normal(size=20)\n"
        "curve_fit(lambda t, a, b: a * t + b, t, y)\n"
        "least_squares(lambda p: p[0] * t + p[1] - y, [1, 1])\n"
    )
    assert np.max(moved.apart(script)) < 1e-5
    theirs, ours = (moved.fits_of(script, module) for module in (scipy.optimize, drop_in))
    assert len(theirs) == len(ours) == 2
    np.testing.assert_allclose(theirs[0][1], ours[1][1], rtol=1e-6)  # one line, two ways to fit
