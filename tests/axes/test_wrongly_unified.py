"""Functions that look like one program at the sizes that were tried, and are not at another size:
the trace at the size of each call catches them.
"""

import math

import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float

from jitney import optimize

V = Float[Array, "n"]


def one_size(x: V):
    return x * 2 if len(x) == 11 else x


def table(x: V):
    return x * {11: 3.0, 13: 5.0}.get(len(x), 1.0)


def turns(x: V):
    return lax.fori_loop(0, 3 + (len(x) == 11), lambda k, c: c * 0.5, x)


def third(x: V):
    return x[::-1] if len(x) % 3 == 0 else x + 1


def root(x: V):
    return x[: math.isqrt(len(x))]


def plain_turns(x):
    return x * 0.5 ** (3 + (len(x) == 11))


CASES = {
    "one_size": (one_size, one_size, (20, 19, 17), 11),
    "table": (table, table, (20, 19, 10), 13),
    "turns": (turns, plain_turns, (20, 19, 10), 11),
    "third": (third, third, (20, 19, 11), 12),
    "root": (root, root, (20,), 9),
}


@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_size_that_is_another_program_is_caught(name):
    """Some sizes share a program; the one that is another runs exact, with NumPy's numbers."""
    fn, plain, alike, other = CASES[name]
    f = optimize(pad={"n": [32]})(fn)
    for n in alike:
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), plain(x))
    assert f.stats.compiles == 1

    x = np.arange(1, other + 1, dtype=np.float32)
    np.testing.assert_array_equal(f(x), plain(x))
    assert f.stats.compiles == 2


@pytest.mark.parametrize("name", CASES)
def test_the_warning_says_at_which_size(name):
    """The reason is another program at that size."""
    fn, _, alike, other = CASES[name]
    f = optimize(pad={"n": [32]})(fn)
    f(np.ones(alike[0], np.float32))
    with pytest.warns(Warning, match=f"does other operations at size {other}"):
        f(np.ones(other, np.float32))
