"""Each mode against its published formula, in NumPy and quadrature; recovery of known parameters;
what is held, tied and free; what a fit says of a misfit.
"""

import jax
import numpy as np
import pytest
import scipy.integrate

from examples.homodyne import recovery
from examples.homodyne._heterodyne import NAMES
from examples.homodyne._layout import layout
from examples.homodyne._measurement import Measurement
from examples.homodyne._mode_fit import at_once, fit_mode
from examples.homodyne._modes import MODES
from examples.homodyne._synthetic import TRUTH, synthetic
from examples.homodyne.model import Setup

T1 = np.array([0.1, 0.1, 1.0, 10.0, 0.3])
T2 = np.array([0.2, 20.0, 1.5, 10.1, 0.3])
SETUP = Setup()
SMALL = {"frames": 40, "angles": 4}


def integral(amplitude, exponent, offset, a, b):
    """By quadrature."""
    if a == b:
        return 0.0
    return scipy.integrate.quad(
        lambda t: amplitude * t**exponent + offset, a, b, epsabs=0, epsrel=1e-12
    )[0]


def two_component(p, phi, a, b):
    """Equation S-95, term by term."""
    fraction = lambda t: p["f0"] * np.exp(p["f1"] * (t - p["f2"])) + p["f3"]
    s1, s2 = fraction(a), fraction(b)
    r1, r2 = 1 - s1, 1 - s2
    q = SETUP.q
    J = {
        c: integral(p[f"D0_{c}"], p[f"alpha_{c}"], p[f"D_offset_{c}"], a, b)
        for c in ("ref", "sample")
    }
    moved = integral(p["v0"], p["beta"], p["v_offset"], a, b)
    first = (r1 * r2) ** 2 * np.exp(-(q**2) * J["ref"])
    second = (s1 * s2) ** 2 * np.exp(-(q**2) * J["sample"])
    crossed = 2 * r1 * r2 * s1 * s2 * np.exp(-(q**2) / 2 * (J["ref"] + J["sample"]))
    crossed *= np.cos(q * np.cos(phi - p["phi0"]) * moved)
    return (first + second + crossed) / ((s1**2 + r1**2) * (s2**2 + r2**2))


def flow(p, phi, a, b):
    """The homodyne formula; without shear for the static modes."""
    decay = np.exp(-(SETUP.q**2) * integral(p["D0"], p["alpha"], p["D_offset"], a, b))
    if "gamma0" not in p:
        return decay
    shear = integral(p["gamma0"], p["beta"], p["gamma_offset"], a, b)
    phase = SETUP.q * SETUP.gap * np.cos(phi - p["phi0"]) / (2 * np.pi) * shear
    return decay * np.sinc(phase) ** 2


@pytest.mark.core("two_component-0.15")
@pytest.mark.parametrize("phi", [0.0, 0.15, 1.4])
@pytest.mark.parametrize("name", list(MODES))
def test_a_mode_is_the_published_formula(name, phi):
    """At pairs of times near and far, with integrals by quadrature."""
    mode, truth = MODES[name], TRUTH[name]
    with jax.enable_x64(True):
        physical = np.array([truth[each] for each in mode.names])
        got = np.asarray(jax.jit(mode.shape)(physical, SETUP, np.float64(phi), T1, T2))
    formula = two_component if mode.names == NAMES else flow
    want = [formula(truth, phi, a, b) for a, b in zip(T1, T2, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.rest
@pytest.mark.parametrize("name", list(MODES))
def test_products_are_those_of_differences(name):
    """Of a dense Jacobian by central differences, in NumPy, at each angle."""
    data, mode = synthetic(name, frames=12, angles=3), MODES[name]
    plan = layout(mode, 3, free=("f2",) if name == "two_component" else ())
    x = plan.full(plan.start)
    optics = plan.optics(x, 3)
    with jax.enable_x64(True):
        shape = jax.jit(mode.shape)
        at = lambda p, phi: np.asarray(shape(p, SETUP, np.float64(phi), data.t1, data.t2))
        got = at_once(
            mode,
            x[: len(mode.names)],
            optics,
            np.full(3, 0.5),
            SETUP,
            data.phi,
            data.t1,
            data.t2,
            data.measured,
        )
        for angle, phi in enumerate(data.phi):
            physical, columns = x[: len(mode.names)], []
            for i in range(physical.size):
                step = np.zeros(physical.size)
                step[i] = 1e-5 * (abs(physical[i]) or 0.1)
                up, down = at(physical + step, phi), at(physical - step, phi)
                columns.append(optics[angle, 0] * (up - down) / (2 * step[i]))
            decay = at(physical, phi)
            r = optics[angle, 1] + optics[angle, 0] * decay - data.measured[angle]
            rows = np.array([*columns, decay, np.ones_like(decay), r]) / 0.5
            rows = np.vstack([rows, np.ones_like(decay)])
            scale = np.sqrt((rows**2).sum(axis=1)) + 1e-12
            scaled = np.outer(scale, scale)
            np.testing.assert_allclose(got[angle] / scaled, rows @ rows.T / scaled, atol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("name", list(MODES))
def test_the_truth_is_recovered(name):
    """Within five standard errors, and the noise explains the residuals.
    `python -m examples.homodyne.recovery` does it for twenty sets.
    """
    options = {} if name == "two_component" else {"frames": 60}
    found, truth = recovery.one(name, 0, **options)
    free = found.errors > 0
    assert found.success
    assert not found.warnings
    assert np.all(np.abs(found.x - truth)[free] < 5 * found.errors[free])
    assert found.reduced == pytest.approx(1, abs=0.05)


@pytest.mark.rest
@pytest.mark.parametrize("way", ["chunked", "streamed"])
def test_the_ways_agree(way, tmp_path):
    """To 1e-5 of a standard error, where one parameter is at its bound; from disk by paths."""
    data = synthetic("laminar_flow", **SMALL)
    whole = fit_mode("laminar_flow", data)
    paths = {}
    for name in ("t1", "t2", "measured"):
        paths[name] = tmp_path / f"{name}.npy"
        np.save(paths[name], getattr(data, name))
    given = Measurement(**paths, phi=data.phi) if way == "streamed" else data
    found = fit_mode("laminar_flow", given, way=way, chunk=300)
    assert np.all(np.abs(found.x - whole.x) <= 1e-5 * whole.errors)
    assert found.success_rate == 1.0


def test_contrasts_that_differ_are_a_misfit_and_by_angle_mends_it():
    """15 % of spread over 8 angles puts phi0 many standard errors off, with a warning; with a
    contrast for each angle it is right, without one.
    """
    spread = 0.3 * (1 + 0.15 * np.sin(np.arange(8) * 1.7 + 0.3))
    data = synthetic("laminar_flow", frames=50, angles=8, contrast=spread)
    shared = fit_mode("laminar_flow", data)
    own = fit_mode("laminar_flow", data, by_angle=True)
    truth = TRUTH["laminar_flow"]["phi0"]
    assert abs(shared.value("phi0") - truth) > 10 * shared.error("phi0")
    assert any("does not fit" in each and "`by_angle` gives" in each for each in shared.warnings)
    assert abs(own.value("phi0") - truth) < 4 * own.error("phi0")
    assert not own.warnings
    got = [own.value(f"contrast[{i}]") for i in range(8)]
    np.testing.assert_allclose(got, spread, rtol=0.05)


HELD = {"alpha": TRUTH["static_isotropic"]["alpha"]}


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [{"held": HELD}, {"bounds": {"alpha": (HELD["alpha"], HELD["alpha"])}}],
    ids=["held", "equal-bounds"],
)
def test_a_held_parameter_stays(options):
    """By its value, or by equal bounds; it has no error, and the others are right."""
    data = synthetic("static_isotropic", **SMALL)
    found = fit_mode("static_isotropic", data, **options)
    assert (found.value("alpha"), found.error("alpha")) == (HELD["alpha"], 0.0)
    assert "alpha" not in found.free
    assert abs(found.value("D0") - 1e4) < 4 * found.error("D0")


@pytest.mark.rest
def test_tied_parameters_are_one():
    """Their values and errors are the same, and the error is smaller than of one alone."""
    truth = {"alpha_ref": -0.3, "alpha_sample": -0.3}
    data = synthetic("two_component", frames=120, angles=4, noise=0.003, truth=truth)
    loose = fit_mode("two_component", data, start={"alpha_ref": -0.2, "alpha_sample": -0.2})
    tied = fit_mode(
        "two_component", data, start={"alpha_ref": -0.2}, tied={"alpha_sample": "alpha_ref"}
    )
    assert tied.value("alpha_sample") == tied.value("alpha_ref")
    assert tied.error("alpha_sample") == tied.error("alpha_ref") < loose.error("alpha_ref")
    assert len(tied.free) == len(loose.free) - 1


@pytest.mark.core("beta")
@pytest.mark.parametrize(
    "start",
    [
        {"beta": 0.0},
        {"alpha": 0.0},
        {"gamma0": 0.0},
        {"gamma0": 0.0, "gamma_offset": 0.0},
        {"D_offset": 0.0, "alpha": 0.0, "beta": 0.0, "gamma_offset": 0.0},
    ],
    ids=["beta", "alpha", "gamma0", "no shear", "many"],
)
def test_starts_where_parameters_coincide(start):
    """At beta = 0 gamma0 and gamma_offset are one, at gamma = 0 the model is even: the fit arrives
    where it does from elsewhere.
    """
    data = synthetic("laminar_flow", frames=50, angles=8)
    want = fit_mode("laminar_flow", data)
    found = fit_mode("laminar_flow", data, start=start)
    np.testing.assert_allclose(found.x, want.x, rtol=1e-6)
    assert bool(found.notes) == ("gamma_offset" in start and start.get("gamma0") == 0.0)


@pytest.mark.rest
def test_what_the_data_do_not_determine_is_named():
    """f0 and f2 are one parameter: their errors are infinite, and a sentence says so."""
    data = synthetic("two_component", frames=80, angles=4)
    found = fit_mode("two_component", data, free=("f2",), tolerances={"max_nfev": 30})
    assert any("determine f0 and f2" in each for each in found.warnings)
    assert found.error("f0") == found.error("f2") == np.inf
    assert found.error("f1") < np.inf


@pytest.mark.rest
def test_a_fraction_outside_is_named():
    """Of a sample that scatters more than all."""
    truth = {"f0": 0.6, "f3": 0.55, "f1": -0.3}
    data = synthetic("two_component", frames=80, angles=4, truth=truth)
    found = fit_mode("two_component", data, start=truth)
    assert any("leaves 0 to 1" in each for each in found.warnings)


@pytest.mark.rest
def test_given_noise_is_absolute():
    """Twice the noise, twice the errors and a quarter of chi squared; estimated, it is what was
    drawn.
    """
    data = synthetic("static_isotropic", frames=60)
    np.testing.assert_allclose(data.noise(), 0.01, rtol=0.1)
    given = [
        fit_mode(
            "static_isotropic", Measurement(data.t1, data.t2, data.measured, data.phi, sigma=s)
        )
        for s in (0.01, 0.02)
    ]
    np.testing.assert_allclose(given[1].errors[:3], 2 * given[0].errors[:3], rtol=1e-6)
    np.testing.assert_allclose(given[0].chi2, 4 * given[1].chi2, rtol=1e-9)
    assert given[0].reduced == pytest.approx(1, abs=0.05)


@pytest.mark.core("unknown mode", "unknown name")
@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("laminar", {}, "The modes are static_isotropic"),
        ("laminar_flow", {"held": {"gamma": 1.0}}, "`held` names 'gamma'"),
        ("laminar_flow", {"start": {"beta": 5.0}}, "beta starts at 5, outside"),
        ("laminar_flow", {"bounds": {"beta": (1.0, 0.0)}}, "The bounds of beta are 1 and 0"),
        ("laminar_flow", {"tied": {"alpha": "beta", "beta": "alpha"}}, "leads in a circle"),
        ("laminar_flow", {"tied": {"alpha": "beta"}, "held": {"alpha": 0.0}}, "tied and held"),
        ("laminar_flow", {"way": "quick"}, "The ways are whole"),
        ("laminar_flow", {"nan": "drop"}, 'It is "refuse" or "mask"'),
    ],
    ids=["unknown mode", "unknown name", "start", "bounds", "circle", "both", "way", "nan"],
)
def test_wrong_arguments_are_named(mode, options, message):
    """With the rule and the fix."""
    data = synthetic("static_isotropic", frames=8, angles=2)
    with pytest.raises(ValueError, match=message) as raised:
        fit_mode(mode, data, **options)
    assert "Fix: " in str(raised.value)
