"""The hunt where calls come in finds nothing, and would find something."""

import collections

import numpy as np
import pytest

from tests.hunt import calls


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore")  # of many static values, of updates in place
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.rest), pytest.param(3, marks=pytest.mark.rest)]
)
def test_nothing_is_found(seed):
    """Some calls of each way, the same each time."""
    hunt = calls.Hunt(seed)
    for way in (
        hunt.static,
        hunt.static,
        hunt.stack,
        hunt.effects,
        hunt.doubles,
        hunt.numbers,
        hunt.checked,
    ):
        way()
    assert hunt.findings == []
    assert hunt.calls > 48


def test_a_program_that_stands_for_another_value_is_found():
    """As one would that is found by `==` alone."""
    hunt = calls.Hunt(1)
    one, other = collections.Counter("aab"), collections.Counter("ab")
    hunt.compare(
        lambda: calls.body(np.float32(1), other), lambda: calls.body(np.float32(1), one), "a", []
    )
    assert [finding[:16] for finding in hunt.findings] == ["a was seen as Co"]
