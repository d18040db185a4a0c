"""What users get wrong: each mistake has its own error or warning."""

import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.trf import curve_fit, least_squares
from examples.trf.tests.test_api import CORRELATED, P0, SIGMA, T, Y, decay, jacobian, residual


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"bounds": ([2, 0, 0], [5, 5, 5])}, ValueError, "infeasible"),
        ({"bounds": ([0, 0, 1], [5, 5, 0])}, ValueError, "reversed"),
        ({"bounds": ([0, 0], [5, 5])}, ValueError, "shape"),
        ({"bounds": (0, 1, 2)}, ValueError, "pair"),
        ({"bounds": None}, ValueError, "pair"),
        ({"bounds": 5}, ValueError, "pair"),
        ({"bounds": {"lb": 0, "ub": 5}}, ValueError, "pair"),
        ({"bounds": (np.nan, 5)}, ValueError, "NaN"),
        ({"bounds": ([0, 0, None], 5)}, TypeError, "use -inf or inf"),
        ({"bounds": ("low", "high")}, TypeError, "lower bound"),
        ({"bounds": ([0, 0, 0], [5, 5, 0])}, ValueError, "take it out of `x0`"),
        ({"x0": []}, ValueError, "shape"),
        ({"x0": [1, [2, 3]]}, ValueError, "`x0` is"),
        ({"x0": None}, TypeError, "`x0` has dtype object"),
        ({"x0": np.ones((2, 2, 2))}, ValueError, "shape"),
        ({"x0": np.ones(3) * 1j}, ValueError, "`x0` must be real"),
        ({"x0": [np.nan, 1, 1]}, ValueError, "`x0` is not finite"),
        ({"args": (T[:2], Y[:2])}, ValueError, "2 points for 3 parameters"),
        ({"mask": np.arange(T.size) < 2}, ValueError, "leaves 2 points"),
        ({"mask": np.ones(5, bool)}, ValueError, "`mask` has shape"),
        ({"mask": np.bool_(True)}, ValueError, "`mask` has shape"),
        ({"mask": [3, 4, 5]}, TypeError, "indices of points are not a mask"),
        ({"args": T}, TypeError, "pass a tuple"),
        ({"kwargs": 3}, TypeError, "dict"),
        ({"args": (T, Y * np.nan)}, ValueError, "not finite at the start"),
        ({"loss": "hubris"}, ValueError, "linear, huber"),
        ({"loss": jnp.sum}, ValueError, "`loss` returns shape"),
        ({"loss": lambda z: np.log1p(z)}, TypeError, "`loss` calls NumPy"),
        ({"f_scale": -1.0}, ValueError, "f_scale"),
        ({"f_scale": None}, ValueError, "f_scale"),
        ({"f_scale": np.ones(3)}, TypeError, "`f_scale`"),
        ({"x_scale": [1, 1, 0]}, ValueError, "positive"),
        ({"x_scale": [1, 1]}, ValueError, "x_scale"),
        ({"x_scale": "jacobian"}, ValueError, "x_scale"),
        ({"ftol": -1e-8}, ValueError, "ftol"),
        ({"ftol": None, "xtol": None, "gtol": None}, ValueError, "At least one"),
        ({"ftol": "1e-8"}, TypeError, "`ftol`"),
        ({"xtol": np.nan}, ValueError, "`xtol`"),
        ({"max_nfev": 0}, ValueError, "max_nfev"),
        ({"max_nfev": 7.5}, ValueError, "whole number"),
        ({"max_nfev": np.nan}, ValueError, "whole number"),
        ({"jac": "2-point"}, ValueError, "exact"),
        ({"jac": lambda p, t, y: jacobian(p, t, y).T}, ValueError, "`jac` returns shape"),
        ({"fun": lambda p, t, y: residual(p, t, y)[:, None]}, ValueError, "one axis"),
        ({"fun": lambda p, t, y: residual(p, t, y) * 1j}, TypeError, "real"),
        ({"fun": 3}, TypeError, "callable"),
        ({"fun": lambda p, t, y: None}, TypeError, "returns None"),
        (
            {"fun": lambda p, t, y: p[0] * np.exp(-p[1] * t) - y},
            TypeError,
            "jax.numpy instead of numpy",
        ),
        ({"mapped": "y"}, ValueError, "one fit"),
        ({"mapped": ("z",), "x0": np.ones((2, 3))}, ValueError, "`mapped` names 'z'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments(change, kind, words):
    """Each mistake has its own error, which says what came, the rule and the fix."""
    call = {"fun": residual, "x0": P0, "args": (T, Y), **change}
    with pytest.raises(kind, match=words) as caught:
        least_squares(**call)
    assert "Fix: " in str(caught.value)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"sigma": np.ones(3)}, ValueError, "shape"),
        ({"sigma": -SIGMA}, ValueError, "not positive"),
        ({"sigma": "wide"}, TypeError, "`sigma`"),
        ({"sigma": -CORRELATED}, ValueError, "positive definite"),
        ({"sigma": CORRELATED * np.nan}, ValueError, "finite and symmetric"),
        ({"sigma": np.triu(CORRELATED)}, ValueError, "finite and symmetric"),
        ({"sigma": CORRELATED, "mask": T > 1}, ValueError, "both axes of `sigma`"),
        ({"model": 1}, TypeError, "callable"),
        ({"t": T[1:]}, ValueError, r"`model` returns shape \(39,\) and `y` has \(40,\)"),
        (
            {"model": lambda t, a, b, c: a * t[0] + b * t[1] + c, "t": [T, T], "y": [Y, Y]},
            ValueError,
            "one number for the 40 points of a fit",
        ),
        ({"y": Y[:1]}, ValueError, r"`model` returns shape \(40,\) and `y` has \(1,\)"),
        ({"t": T[:, None]}, ValueError, r"`model` returns shape \(40, 1\)"),
        ({"t": 1.0}, ValueError, "`t` has shape"),
        ({"y": np.ones((2, 3, 40))}, ValueError, "`y` has shape"),
        ({"t": T[:0], "y": Y[:0]}, ValueError, "0 points for 3 parameters"),
        ({"y": Y + 1j}, TypeError, "`y` has dtype complex128"),
        ({"y": Y.astype(str)}, TypeError, "`y` has dtype"),
        ({"y": [[1.0], [2.0, 3.0]]}, ValueError, "differ in length"),
        ({"y": np.ma.masked_array(Y, Y > 2)}, TypeError, "masked array"),
        ({"y": np.where(T > 2, np.nan, Y)}, ValueError, r"`y` is nan at \[20\]"),
        ({"t": np.where(T > 2, np.nan, T)}, ValueError, r"`t` is nan at \[20\]"),
        ({"p0": [1.0, np.inf, 0.0]}, ValueError, "`p0` is not finite"),
        (
            {"p0": [9.0, 1.0, 0.0], "bounds": (0, [5, 5, 5])},
            ValueError,
            r"p0\[0\] = 9.0 is infeasible",
        ),
        ({"p0": np.ones((3, 3)), "y": np.stack([Y, Y])}, ValueError, "`p0` has shape"),
        ({"args": (1,)}, TypeError, "not an option of `curve_fit`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_curve_fit_arguments(change, kind, words):
    """The same for what only `curve_fit` takes, by the names that its caller knows."""
    with pytest.raises(kind, match=words) as caught:
        curve_fit(**{"model": decay, "t": T, "y": Y, "p0": P0, **change})
    assert "Fix: " in str(caught.value)


@pytest.mark.rest
def test_float32_residuals_under_fine_tolerances_warn():
    """Residuals cast to float32 cannot resolve a tolerance of 1e-8, and the warning says so."""

    def coarse(p, t, y):
        return residual(p, t, y).astype(jnp.float32)

    with pytest.warns(UserWarning, match="rounding unit of 1.2e-07"):
        least_squares(coarse, P0, args=(T, Y), max_nfev=20)
    least_squares(coarse, P0, args=(T, Y), ftol=1e-5, xtol=1e-5, gtol=1e-5)


@pytest.mark.rest
def test_tolerance_below_rounding_warns():
    """A tolerance finer than float64 switches its test off, and the warning says so."""
    with pytest.warns(UserWarning, match="`xtol` = 1.00e-20"):
        least_squares(residual, P0, args=(T, Y), xtol=1e-20)


@pytest.mark.rest
def test_masked_points_are_not_blamed():
    """Where the start fails for another reason, a NaN that is masked out is not named."""
    spoiled = np.where(T > 3, np.nan, Y)
    with pytest.raises(ValueError, match=r"at the start\.\n"):
        curve_fit(
            lambda t, a, b, c: jnp.log(a - 10) * decay(t, a, b, c), T, spoiled, P0, mask=T <= 3
        )


def test_callable_without_a_hash():
    """A callable that cannot be a key of the cached programs is refused, with what to do."""

    class Unhashable:
        __hash__ = None

        def __call__(self, p):
            return decay(T, *p) - Y

    with pytest.raises(TypeError, match=r"make it an `equinox\.Module`"):
        least_squares(Unhashable(), P0)


@pytest.mark.rest
@pytest.mark.parametrize("by", [least_squares, curve_fit])
def test_warnings_point_at_the_caller_each_time(by):
    """A warning names the line that asked for the fit, and comes with every such call."""
    given = (residual, P0) if by is least_squares else (decay, T, Y, P0)
    options = {"args": (T, Y)} if by is least_squares else {}
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            by(*given, xtol=1e-20, **options)
        assert [Path(warning.filename) for warning in caught] == [Path(__file__)]


def test_errors_leave_no_float64_behind():
    """An error in the middle of a fit ends the scope of float64, too."""
    for change in ({"fun": lambda p, t, y: 1 / 0}, {"args": (T, Y * np.nan)}):
        with pytest.raises((ZeroDivisionError, ValueError)):
            least_squares(**{"fun": residual, "x0": P0, "args": (T, Y), **change})
        assert jnp.ones(1).dtype == np.float32
    assert not jax.config.jax_enable_x64
