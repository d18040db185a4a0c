"""Functions in the style of public documentation give under `optimize` what they give under
`jax.jit`. `tests.perf.harm` times them.
"""

import jax
import pytest

from tests.perf.harm import compared
from tests.perf.styles import CASES

SOME = (
    "predict",
    "heat",
    "regression_step",
    "adamw_step",
    "implicit_step",
    "schools_gradient",
    "k_means",
    "low_pass",
)


@pytest.mark.core("jax: heat")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.fn.__name__ in SOME else pytest.mark.slow)
        for case in CASES
    ],
)
def test_a_function_gives_what_jax_jit_gives(case):
    """Without options; modules in place of flat arrays."""
    with jax.numpy_dtype_promotion("standard"):  # optax and others mix
        compared(case)
