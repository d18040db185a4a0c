"""Solutions against closed forms and other tools' published outputs."""

import numpy as np
import pytest

from examples.equilibrium import at, impulse_response, linearise, perfect_foresight, steady_state
from examples.equilibrium._reference import load, policy, renamed, responses
from examples.equilibrium.models import an_schorfheide, brock_mirman, gali, rbc

CASES = pytest.mark.parametrize("case", rbc.CASES, ids=lambda case: case.file)
# the other two files hold steady states with residuals of 4e-8
EXACT = {"dynare_one_block_1_ss", "dynare_rbc_2_block_ss"}


def at_the_files_point(case):
    data = load(case.file)
    numbers = {renamed(name): value for name, value in data["steady_state"].items()}
    u, x, _ = case.model.layouts
    group = lambda layout: layout.group(np.array([numbers[name] for name in layout.names]))
    return data, at(case.model, case.params(data["params"]), group(u), group(x))


def test_brock_mirman_policy_is_the_closed_form():
    """log c and log k' respond to log k by alpha and to productivity by one."""
    data = load("brock_mirman")
    steady = steady_state(brock_mirman.MODEL, brock_mirman.Params())
    linear = linearise(steady)
    np.testing.assert_allclose(
        np.exp([steady["logk"], steady["logc"]]),
        [data["steady"]["k"], data["steady"]["c"]],
        rtol=1e-12,
    )
    ours = np.array([linear.H_x, linear.H_z, linear.G_x, linear.G_z]).ravel()
    np.testing.assert_allclose(ours, np.array(list(data["loglinear"].values())).ravel(), rtol=1e-10)
    np.testing.assert_allclose(
        linear.eigenvalues, [data["eig_stable"], data["eig_unstable"]], rtol=1e-10
    )


@pytest.mark.rest
@pytest.mark.parametrize(("terminal", "dates"), [("stable", 41), ("steady", 300)])
def test_brock_mirman_path_is_the_closed_form(terminal, dates):
    """From half the capital: on the linear policy at the end, which is exact here, and with a
    steady end that is far away.
    """
    data = load("brock_mirman")["path"]
    steady = steady_state(brock_mirman.MODEL, brock_mirman.Params())
    start = brock_mirman.States(steady["logk"] + np.log(data["k0_over_kss"]))
    linear = linearise(steady) if terminal == "stable" else None
    path = perfect_foresight(
        steady, start, brock_mirman.Shocks(data["a0"]), dates, terminal, linear
    )
    np.testing.assert_allclose(np.exp(path["logk"][:41]), data["k"], rtol=1e-10)
    np.testing.assert_allclose(np.exp(path["logc"][:40]), data["c"], rtol=1e-10)


def test_a_monetary_shock_moves_output_inflation_and_rate_by_galis_formulas():
    """Chapter 3, equation by equation."""
    data = load("nk3_gali")
    linear = linearise(steady_state(gali.MODEL, gali.Params(**data["params"])))
    for name in ("y", "pi", "i"):
        np.testing.assert_allclose(linear[name][1], data[name], rtol=1e-12)


@pytest.mark.rest
def test_an_schorfheide_is_gensys_to_its_printed_digits():
    """Transition and impact; the parameters are printed with eight decimals."""
    data = load("nkmp_gensys")
    given = dict(zip(data["p0_order"], data["p0"], strict=True))
    params = an_schorfheide.Params(**{name: given[name] for name in vars(an_schorfheide.Params())})
    linear = linearise(steady_state(an_schorfheide.MODEL, params))
    TT, RR = np.array(data["TT"]), np.array(data["RR"])
    place = {name: i for i, name in enumerate(data["vars"])}
    for name in ("c", "ppi", "R", "y", "ylev"):
        to_states, to_shocks = linear[name]
        want = TT[place[name], [place[of] for of in ("R", "ylag", "g", "z")]]
        # yesterday's output drives nothing, and its place in the file is that of today's
        np.testing.assert_allclose(
            [*to_states, *(to_shocks * linear.steady.rho)[:2]], want, atol=1e-8
        )
        np.testing.assert_allclose(to_shocks, RR[place[name]], atol=1e-8)


@pytest.mark.core("dynare_basic_rbc")
@CASES
def test_steady_state_is_dynares(case):
    """To 1e-8, or to what the residuals of the file's steady state leave."""
    _, given = at_the_files_point(case)
    ours = steady_state(case.model, given.params)
    np.testing.assert_allclose(
        [*ours.u, *ours.x], [*given.u, *given.x], rtol=1e-8 if case.file in EXACT else 1e-5
    )


@pytest.mark.core("dynare_basic_rbc")
@CASES
def test_policy_is_dynares(case):
    """`ghx` and `ghu` to 1e-8, linearised where the file says the steady state is."""
    data, given = at_the_files_point(case)
    by_state, by_shock = policy(linearise(given), data)
    np.testing.assert_allclose(by_state, data["ghx"], rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(by_shock, data["ghu"], rtol=1e-8)


@pytest.mark.core("dynare_rbc_2_block_ss")
@CASES
def test_eigenvalues_are_dynares(case):
    """Those of the shocks included; infinite ones are as many as equations without dynamics."""
    data, given = at_the_files_point(case)
    ours = linearise(given).eigenvalues
    want = np.sort([value for value in data["eig_abs"] if value is not None])
    np.testing.assert_allclose(np.sort([*ours[np.isfinite(ours)], given.rho[0]]), want, rtol=1e-8)


@pytest.mark.core("dynare_basic_rbc", "dynare_one_block_1_ss")
@CASES
def test_impulse_responses_are_dynares(case):
    """Forty periods after one standard deviation, to 1e-8 of the largest of each variable."""
    data, given = at_the_files_point(case)
    response = impulse_response(linearise(given), "a", np.sqrt(data["Sigma_e"][0][0]), 41)
    ours, theirs = responses(response, data, data["exo"][0])
    np.testing.assert_allclose(
        ours / np.abs(theirs).max(1)[:, None], theirs / np.abs(theirs).max(1)[:, None], atol=1e-8
    )


def test_our_steady_states_solve_the_equations():
    """To rounding, where the file's own do to 4e-8: that is how far the two are apart."""
    case = rbc.CASES[0]
    data, given = at_the_files_point(case)
    ours = steady_state(case.model, given.params)
    p, s = data["params"], ours
    np.testing.assert_allclose(
        s["C"] + p["delta"] * s["K"], s["K"] ** p["alpha"] * s["L"] ** (1 - p["alpha"]), rtol=1e-13
    )
    np.testing.assert_allclose(s["r"], 1 / p["beta"] - 1 + p["delta"], rtol=1e-13)
    np.testing.assert_allclose(s["L"] ** p["sigma_L"], s["C"] ** -p["sigma_C"] * s["w"], rtol=1e-13)
    assert abs(data["steady_state"]["r"] - (1 / p["beta"] - 1 + p["delta"])) > 1e-8
