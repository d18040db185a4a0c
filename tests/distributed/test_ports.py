"""The ports by two processes of two devices each, against one process and one device."""

import jax
import numpy as np
import pytest

from . import _ports
from ._processes import start


@pytest.fixture(scope="module")
def run():
    """Both processes, which have ended well."""
    found = start("ports", 2)
    assert all(process.code == 0 for process in found), found[0].err
    return found


@pytest.mark.parametrize(
    ("name", "alone"),
    [("fits", _ports.fitted), ("draws", _ports.swept)],
    ids=("trf", "equilibrium"),
)
def test_a_batch_in_two_parts_is_the_batch(run, name, alone):
    """Parts of the fits, and of the draws, of one process; a last bit hangs on a batch's width."""
    parts = [_ports.as_numbers(process[name]) for process in run]
    for key, whole in alone(slice(None)).items():
        both = np.concatenate([part[key] for part in parts])
        np.testing.assert_allclose(both, np.ravel(whole), rtol=1e-12, atol=1e-14, err_msg=key)


def test_a_step_of_two_processes_is_that_of_one(run):
    """Losses, norms of gradients and weights of `examples/surrogate`, to the order of a sum over
    the examples; both processes have the same bits.
    """
    first, second = (process["steps"] for process in run)
    assert first == second
    told = _ports.as_numbers(first)
    for key, value in _ports.trained(lambda arrays: jax.tree.map(np.array, arrays)).items():
        np.testing.assert_allclose(told[key], np.ravel(value), rtol=1e-5, atol=1e-7, err_msg=key)
