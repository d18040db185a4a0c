"""Smets and Wouters (2007): the model of `smets_wouters.mod`, the authors' data, their priors, and
what Dynare makes of them at the posterior mode.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from .._estimation import Posterior
from .._priors import Prior
from ..mod import read_mod

FOLDER = Path(__file__).parent
MOD = read_mod(FOLDER / "smets_wouters.mod")
PRESAMPLE, DIFFUSE = 4, 10.0
# By sample and start; Dynare 6.0's digits for the first two are in `dev/dynare-validation` of the
# repository Mustapha-Wasseja/dsge-package, Dynare 8's for the third in `sw07_usmodel_mode.json` of
# jalonso1979/puremacro, which prints the posterior to four digits.
LIKELIHOOD_STATIONARY = -1714.061158377  # 1947Q3 to 2004Q4, lik_init=1
LIKELIHOOD_DIFFUSE = -1738.513893160  # lik_init=2
PRIOR = -23.994069948
POSTERIOR_1965 = -841.4621  # 1965Q1 to 2004Q4, lik_init=2, as in the authors' own file
FIRST = 70  # the row of 1965Q1

_HALF = Prior("beta", 0.5, 0.2)
PRIORS = {
    **{f"sigma_{s}": Prior("root_inverse_gamma", 0.1, 2.0) for s in "abgirpw"},
    **{f"rho_{s}": _HALF for s in "abgirpw"},
    "mu_1p": _HALF,
    "mu_1w": _HALF,
    "phi": Prior("normal", 4.0, 1.5),
    "sigma_c": Prior("normal", 1.5, 0.375),
    "habit": Prior("beta", 0.7, 0.1),
    "xi_w": Prior("beta", 0.5, 0.1),
    "sigma_l": Prior("normal", 2.0, 0.75),
    "xi_p": Prior("beta", 0.5, 0.1),
    "iota_w": Prior("beta", 0.5, 0.15),
    "iota_p": Prior("beta", 0.5, 0.15),
    "psi": Prior("beta", 0.5, 0.15),
    "Phi": Prior("normal", 1.25, 0.125),
    "r_pi": Prior("normal", 1.5, 0.25),
    "rho": Prior("beta", 0.75, 0.1),
    "r_y": Prior("normal", 0.125, 0.05),
    "r_dy": Prior("normal", 0.125, 0.05),
    "pi_bar": Prior("gamma", 0.625, 0.1),
    "beta_bar": Prior("gamma", 0.25, 0.1),
    "l_bar": Prior("normal", 0.0, 2.0),
    "gamma_bar": Prior("normal", 0.4, 0.1),
    "rho_ga": Prior("normal", 0.5, 0.25),
    "alpha": Prior("normal", 0.3, 0.05),
}


def data() -> Float[np.ndarray, "dates 7"]:
    """The series from 1947Q3 to 2004Q4, in the order of `MOD.observed`."""
    path = FOLDER.parent / "data" / "smets_wouters.csv"
    rows = np.genfromtxt(path, delimiter=",", skip_header=4, usecols=range(1, 8))
    names = path.read_text().splitlines()[3].split(",")[1:]
    return rows[:, [names.index(name) for name in MOD.observed]]


def posterior(first: int = FIRST, *, diffuse: bool = True) -> Posterior:
    """Of all 36 parameters that the authors estimated, whose density counts from the fifth date on.

    The diffuse start of Dynare is of states and of what is observed at the first date, independent
    of each other. So this date says nothing of the states of the next, and is left out here.

    Args:
        first: The row of the data that is the first date.
        diffuse: Whether each state has a variance of 10 then, or its stationary distribution.
    """
    return Posterior(
        MOD.model,
        MOD.params,
        PRIORS,
        data()[first + diffuse :],
        MOD.observed,
        lambda _: MOD.covariance,
        at=MOD.steady,
        start=DIFFUSE if diffuse else None,
        presample=PRESAMPLE - diffuse,
    )
