"""Smets and Wouters (2007) at the authors' posterior mode against the digits of Dynare."""

import jax
import numpy as np
import pytest

from examples.equilibrium.models import smets_wouters

MODE = np.array([smets_wouters.MOD.params[name] for name in smets_wouters.PRIORS])


def density(first, *, diffuse):
    """The density of the data, and that of the parameters."""
    each = smets_wouters.posterior(first, diffuse=diffuse)
    with jax.enable_x64(True):
        total = float(jax.jit(each.log_density)(MODE))
        pairs = zip(each.priors.values(), MODE, strict=True)
        prior = float(sum(prior.log_density(value) for prior, value in pairs))
    return total - prior, prior


@pytest.mark.rest
@pytest.mark.parametrize(
    ("diffuse", "known"),
    [
        (False, smets_wouters.LIKELIHOOD_STATIONARY),
        (True, smets_wouters.LIKELIHOOD_DIFFUSE),
    ],
)
def test_likelihood_and_prior_at_the_mode_are_those_of_dynare(diffuse, known):
    """To all twelve digits, and eleven of the prior."""
    likelihood, prior = density(0, diffuse=diffuse)
    np.testing.assert_allclose(likelihood, known, atol=1.5e-9)
    np.testing.assert_allclose(prior, smets_wouters.PRIOR, atol=1.5e-9)


@pytest.mark.rest
def test_the_posterior_of_the_authors_own_file_is_that_of_dynare():
    """From 1965Q1 on, to all four digits that it prints."""
    total = sum(density(smets_wouters.FIRST, diffuse=True))
    np.testing.assert_allclose(total, smets_wouters.POSTERIOR_1965, atol=5e-5)


def test_data_are_quarters_of_seven_series():
    """All there, and as the file begins and ends."""
    rows = smets_wouters.data()
    assert rows.shape == (230, 7)
    assert smets_wouters.MOD.observed[0] == "dy"
    np.testing.assert_array_equal(rows[[0, -1], 0], [-0.346646871942539, 0.614386847994297])
