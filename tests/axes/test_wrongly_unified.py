"""Functions that look like one program at the sizes that were tried, and are not at another size:
the trace at the size of each call catches them.
"""

import math

import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float

from jitney import optimize
from tests._tracing import count_traces

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
    f = optimize(pad={"n": [32]}, cache=False)(fn)  # an equal program of a neighbour is no hit
    for n in alike:
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), plain(x))
    assert f.stats.compiles == 1

    x = np.arange(1, other + 1, dtype=np.float32)
    np.testing.assert_array_equal(f(x), plain(x))
    assert f.stats.compiles == 2


LATER = {"one_size": 18, "table": 18, "turns": 18, "third": 14, "root": 22}


@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
@pytest.mark.parametrize("name", CASES)
def test_sizes_behind_a_refused_one_share_the_program(name):
    """One size that differs takes no other out of the bucket's program."""
    fn, plain, alike, other = CASES[name]
    f = optimize(pad={"n": [32]}, cache=False)(fn)
    for n in (alike[0], other, LATER[name], alike[0], other):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), plain(x))
    assert f.stats.compiles == 2


# No two sizes beside that one are the same program.
ALONE = ("one_size", "turns")


@pytest.mark.parametrize("name", ALONE)
def test_the_warning_says_at_which_size(name):
    """The reason is another program at that size."""
    fn, _, alike, other = CASES[name]
    f = optimize(pad={"n": [32]})(fn)
    f(np.ones(alike[0], np.float32))
    with pytest.warns(Warning, match=f"does other operations at size {other}"):
        f(np.ones(other, np.float32))


def windowed(x: V):
    return x * np.hanning(len(x)).astype(np.float32)


def test_a_first_call_is_traced_once_at_each_size_that_it_needs():
    """With a symbol, up to the line that needs a number; at the size of the call; at two others.
    A new size is one trace more.
    """
    body = count_traces(windowed)
    f = optimize(pad={"n": [32]})(body)
    for n, traces in ((20, 4), (19, 5)):
        x = np.ones(n, np.float32)
        np.testing.assert_allclose(f(x), np.hanning(n), rtol=1e-6)
        assert body.traces == traces


def test_rows_in_two_buckets_are_traced_for_each():
    """Each bucket has a trace that stops for numbers, and is repeated with what that one found."""
    body = count_traces(windowed)
    f = optimize(vmap="rows", ragged="list", pad={"n": [8, 16]})(body)
    for lengths, traces in (((5, 12), 8), ((6, 13), 10)):
        rows = [np.ones(n, np.float32) for n in lengths]
        for n, out in zip(lengths, f(rows), strict=True):
            np.testing.assert_allclose(out, np.hanning(n), rtol=1e-6)
        assert body.traces == traces


@pytest.mark.parametrize("name", [name for name in CASES if name not in ALONE])
def test_a_size_that_differs_has_a_program_of_its_own_kind(name):
    """It is made at that size, so that none runs exact; warnings are errors."""
    fn, plain, alike, other = CASES[name]
    f = optimize(pad={"n": [32]}, cache=False)(fn)
    for n in (alike[0], other):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(f(x), plain(x))
    (fill,) = (d for d in f.plan(x).to_dict()["decisions"] if d["name"] == "fill")
    assert fill["taken"]
    assert f.stats.compiles == 2
