"""Batches of four to six parameters, of good rows and bad ones: each row is the fit alone."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from examples.trf import least_squares

T = np.linspace(0.1, 4.0, 24)
KINDS = (
    "good",
    "nan",
    "far",
    "no effect",
    "masked",
    "units",
    "inf",
    "noise",
    "at a bound",
)
MAPPED = ("y", "factors")
BAD = ("nan", "inf", "masked")
TRUTH = np.array([2.0, 0.4, 1.0, 2.5, 0.3, 0.5])
LOWER = np.array([-5.0, 0.0, -5.0, 0.0, -5.0, -2.0])
UPPER = np.array([2.1, 3.0, 5.0, 9.0, 5.0, 2.0])
OPTIONS = {
    "free": {},
    "scaled": {"x_scale": "jac"},
    "bounded": {"bounds": True, "x_scale": "jac"},
    "robust": {
        "bounds": True,
        "loss": "huber",
        "f_scale": 0.03,
    },
}


def curve(xp, p):
    """Two decays, with a wave of the fifth parameter and a slope of the sixth."""
    y = p[0] * xp.exp(-p[1] * T) + p[2] * xp.exp(-p[3] * T)
    if len(p) > 4:
        y = y + p[4] * xp.sin(T)
    return y / (1 + p[5] ** 2 * T) if len(p) > 5 else y


def misfit(p, y, factors):
    """Of a row, whose parameters are times factors."""
    return curve(jnp, [p[i] * factors[i] for i in range(p.size)]) - y


def fitted(x, data, **options):
    """A fit, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = least_squares(misfit, x, args=data, **options)
    return found, " ".join(str(one.message) for one in caught)


def rows(k):
    """Starts, measurements, factors and masks, a row for each kind."""
    rng = np.random.default_rng(k)
    count = len(KINDS)
    x = TRUTH[:k] * rng.uniform(0.8, 1.04, (count, k))
    y = np.stack([curve(np, TRUTH[:k] * rng.uniform(0.9, 1.1, k)) for _ in KINDS])
    y += 0.02 * rng.normal(size=y.shape)
    factors, mask = np.ones((count, k)), rng.random(y.shape) > 0.1
    for i, kind in enumerate(KINDS):
        if kind == "far":
            x[i] *= np.linspace(0.3, 1.0, k)
        elif kind == "no effect":
            factors[i, 2] = 0
        elif kind == "units":
            factors[i] = np.geomspace(1.0, 4.0, k)
            x[i] /= factors[i]
        elif kind == "noise":
            y[i] = rng.normal(size=T.size)
        elif kind == "at a bound":
            x[i, :2] = UPPER[0], LOWER[1]
        elif kind == "masked":
            mask[i] = np.arange(T.size) < k - 1
        elif kind in ("nan", "inf"):
            y[i, 5], mask[i, 5] = float(kind), True
    return x, y, factors, mask


@pytest.mark.core("bounded-6")
@pytest.mark.parametrize(("name", "k"), [("free", 4), ("scaled", 5), ("bounded", 6), ("robust", 4)])
def test_each_row_is_the_fit_alone(name, k):
    """A bad row fails alone, and the others are what each is alone; a parameter without effect has
    an infinite error.
    """
    options = dict(OPTIONS[name])
    if options.pop("bounds", False):
        options["bounds"] = (LOWER[:k], UPPER[:k])
    x, y, factors, mask = rows(k)
    batch, told = fitted(x, (y, factors), mask=mask, mapped=MAPPED, **options)
    assert "than parameters in fits [4]" in told
    assert "of fits [1, 6]" in told
    assert "at the solution in fits [3]" in told
    for i, kind in enumerate(KINDS):
        if kind in BAD:
            assert batch.status[i] < 0
            assert np.isnan(batch.x[i]).all()
            assert np.isnan(batch.covariance[i]).all()
            continue
        alone, told = fitted(x[i], (y[i], factors[i]), mask=mask[i], **options)
        assert ("no effect" in told) == (kind == "no effect")
        np.testing.assert_allclose(batch.cost[i], alone.cost, rtol=1e-7)
        np.testing.assert_array_equal(batch.active_mask[i], alone.active_mask)
        np.testing.assert_array_equal(batch.undetermined[i], alone.undetermined)
        if kind in ("good", "units", "at a bound"):
            np.testing.assert_allclose(batch.x[i], alone.x, rtol=1e-5, atol=1e-7)


@pytest.mark.rest
def test_bad_rows_touch_no_other():
    """The others have the same bits when bad rows are replaced by good ones."""
    x, y, factors, mask = rows(4)
    good = [i for i, kind in enumerate(KINDS) if kind not in BAD]
    first, _ = fitted(x, (y, factors), mask=mask, mapped=MAPPED)
    for of in (x, y, factors, mask):
        of[[i for i in range(len(KINDS)) if i not in good]] = of[0]
    again, _ = fitted(x, (y, factors), mask=mask, mapped=MAPPED)
    for name in ("x", "cost", "covariance", "status", "nfev"):
        np.testing.assert_array_equal(getattr(first, name)[good], getattr(again, name)[good])
