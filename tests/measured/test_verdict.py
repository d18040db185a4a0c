"""What the ratios of two times say: the interval by the sign test, beside SciPy's binomial
distribution and drawn numbers.
"""

import numpy as np
import pytest
from scipy import stats

from jitney._measured.verdict import interval, judge_ratios, quartiles


@pytest.mark.parametrize("n", [8, 16, 40, 200])
def test_the_interval_leaves_out_what_the_binomial_distribution_allows(n: int):
    """As many values at each end as leave half a percent there, at most."""
    low, _ = interval(range(n))
    out = low + 1  # values are their own ranks: so many may lie below the median
    assert stats.binom.cdf(out - 1, n, 0.5) <= 0.005 < stats.binom.cdf(out, n, 0.5)


def test_the_interval_holds_the_median_as_often_as_it_says():
    """Of a skewed distribution with outliers, whose median is known."""
    rng = np.random.default_rng(0)
    draws = [interval(list(rng.pareto(1.0, 32))) for _ in range(2000)]  # the median of this is 1
    assert sum(low <= 1.0 <= high for low, high in draws) / len(draws) > 0.985


def test_a_few_values_say_nothing():
    """Seven can all lie on one side of the median more often than one time in a hundred."""
    assert interval([1.0] * 7) is None
    assert interval([1.0] * 8) == (1.0, 1.0)
    assert str(judge_ratios([2.0] * 7)) == "unknown: too few rounds"


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        (np.linspace(1.7, 2.2, 16), r"faster by 1\.77 to 2\.13 times"),
        (1 / np.linspace(1.7, 2.2, 16), r"slower by 1\.77 to 2\.13 times"),
        (np.linspace(0.98, 1.02, 16), r"no difference seen \(within 1\.5%\)"),
        (np.linspace(1.005, 1.035, 16), r"no difference seen \(within 3\.1%\)"),
        (np.linspace(0.5, 2.0, 16), r"unknown: too noisy \(between 0\.7 and 1\.8 times as fast\)"),
    ],
)
def test_the_verdict_in_words(ratios, text):
    """Faster and slower are reciprocal; what is within 2 % of nothing is no difference."""
    import re

    assert re.fullmatch(text, str(judge_ratios(list(ratios))))


def test_quartiles_are_those_of_numpy():
    """With values between two of them on a line."""
    values = list(np.random.default_rng(1).normal(size=13))
    np.testing.assert_allclose(quartiles(values), np.quantile(values, [0.25, 0.5, 0.75]))
