"""Remedies of several processes, followed to their end by two of two devices each."""

import numpy as np
import pytest

from ._jobs import W, X
from ._processes import start

LOSS = np.mean(np.tanh(X.astype(np.float64) @ W) ** 2)
ENERGY = np.sum(X.astype(np.float64) ** 2)


@pytest.fixture(scope="module")
def run():
    """Both processes, which do the same."""
    return start("remedied", 2)


@pytest.mark.parametrize(
    ("error", "fix", "follows", "expected"),
    [
        ("untold", "call jitney.processes.distributed() at the start; it takes over", "told", LOSS),
        ("of_host", 'jitney.processes.from_processes(x, "data") puts the parts', "of_parts", LOSS),
        ("of_host", "jnp.asarray(x) is whole in each", "of_whole", LOSS),
        ("twice", "pass it as it is", "as_it_is", LOSS),
        ("padded", "or decorate a second function without `pad` for that", "not_padded", ENERGY),
        ("streamed", "give it a mesh of jax.local_devices(), and its own part", "of_own", None),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_what_an_error_says_to_do_helps(run, error, fix, follows, expected):
    """In both processes; a stream gives what the process has."""
    for process in run:
        assert fix in process[error].partition("\nFix: ")[2], process[error]
        np.testing.assert_allclose(
            process[follows], process["own"] if expected is None else expected, rtol=1e-5
        )
