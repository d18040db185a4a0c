"""Advice of `stats`: nothing that was not proven for the calls that were seen, with what it saves
on these.
"""

import ast
import itertools
import pickle
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize


def ones(n, dtype=np.float32):
    return np.ones(n, dtype)


_NAMES = itertools.count()


def fresh(body, **options):
    """Decorated, as a function that has not been before."""
    fn = types.FunctionType(body.__code__, body.__globals__, f"{body.__name__}_{next(_NAMES)}")
    fn.__annotations__, fn.__qualname__ = body.__annotations__, fn.__name__
    return optimize(**options)(fn) if options else optimize(fn)


def remedies(f):
    return {cause.remedy for each in f.stats.causes for cause in each if cause.remedy}


def called(f, *sizes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitneyWarning)  # of a refusal, which is not the subject
        for size in sizes:
            f(ones(size))
    return f


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def spectrum(x: Float[Array, "n"]):
    return jnp.abs(jnp.fft.fft(x))


def without_names(x):
    return jnp.sum(x)


def spectrum_without_names(x):
    return jnp.abs(jnp.fft.fft(x))


def no_three(x: Float[Array, "n"]):
    return x.sum() * 3 if x.shape[0] == 3 else x.sum()


@pytest.mark.core("total-*", "spectrum-options2-*", "spectrum_without_names-*", "no_three-*")
@pytest.mark.parametrize(
    ("body", "options", "sizes"),
    [
        (spectrum, {}, (5, 7)),
        (total, {}, (64, 2)),
        (spectrum, {"pad": {"n": "pow2"}}, (5, 7, 8)),
        (spectrum_without_names, {}, (5, 7)),
        (without_names, {}, (64, 2)),
        (no_three, {}, (3, 4)),
    ],
)
def test_nothing_is_advised_that_does_not_help(body, options, sizes):
    """What `pad` refuses, has refused, or merges none of the sizes with; with names of axes and
    without.
    """
    assert remedies(called(fresh(body, **options), *sizes)) == set()


@pytest.mark.parametrize(
    ("body", "options", "sizes", "remedy", "programs"),
    [
        (total, {}, (33, 40, 64, 2), 'pad={"n": "pow2"}', (4, 2)),
        (total, {"pad": {"n": "pow2"}}, (5, 9), 'pad={"n": [9]}', (2, 1)),
        (without_names, {}, (5, 6), 'annotate x: Float[Array, "n"], and pad={"n": "pow2"}', (2, 1)),
    ],
)
def test_what_is_advised_says_how_many_programs_it_saves_on_these_calls(
    body, options, sizes, remedy, programs
):
    """The number of programs that the sizes are now, and of buckets that hold them."""
    f = called(fresh(body, **options), *sizes)
    before, after = programs
    assert remedies(f) == {remedy}
    assert f"{after} program{'s' * (after > 1)} instead of {before}" in " ".join(
        str(f.stats).split()
    )


def test_a_number_is_advised_as_an_array_only_where_the_body_takes_one():
    """Not where it is a size, nor where the result would be of another type."""

    def shifted(x, n):
        return x + n

    def cut(x, n):
        return x[:n]

    def handed_on(x, n):
        return x, n

    f, g, h = map(fresh, (shifted, cut, handed_on))
    for n in (1, 2):
        f(ones(3, np.int32), n), g(ones(3), n), h(ones(3), n)
    assert remedies(f) == {'annotate n: Int[ArrayLike, ""]'}
    assert (remedies(g), remedies(h)) == (set(), set())


def test_what_was_proven_is_not_proven_again():
    """Looking twice traces once; asking for figures traces nothing, and no count changes."""
    traces = []

    @optimize
    def f(x: Float[Array, "n"]):
        traces.append(1)
        return jnp.sum(x)

    called(f, 5, 6)
    assert (f.stats.traces, len(traces)) == (2, 2)
    assert remedies(f) == {'pad={"n": "pow2"}'}
    once = len(traces)
    assert once > 2
    assert (remedies(f), f.stats.traces, len(traces)) == ({'pad={"n": "pow2"}'}, 2, once)


def test_a_copy_of_stats_holds_its_advice():
    """As data that outlives the function."""
    f = called(fresh(total), 5, 6)
    copied = pickle.loads(pickle.dumps(f.stats))
    assert (copied, copied.causes, str(copied)) == (f.stats, f.stats.causes, str(f.stats))


def test_a_derivative_has_its_own():
    """The gradient of a sum over the axis is padded too."""
    f = fresh(total)
    for n in (5, 6):
        f.grad(ones(n))
    assert remedies(f.grad) == {'pad={"n": "pow2"}'}


def test_a_call_under_an_outer_transform_is_left_alone():
    """Nothing is known of its arrays."""
    f = fresh(total)
    for n in (5, 6):
        jax.jit(f)(ones(n))
    assert remedies(f) == set()


@pytest.mark.core("sizes4")
@pytest.mark.parametrize(
    "sizes",
    [
        (20, 293, 270, 264, 70, 31, 280, 33, 150, 129),
        (293, 20, 31, 70, 264, 280, 33, 129, 150),
        (20, 31, 33, 70, 129, 264, 270, 293),
        (33, 64, 65, 66, 120, 128, 130),
        (9, 17, 33, 65, 16, 32, 64, 128),
    ],
)
def test_pasted_buckets_give_the_programs_and_the_padding_that_they_say(sizes):
    """Each size of a bucket counts, not only the first one that was traced, and each call of it."""
    calls = (*sizes, *sizes[:3])
    f = called(fresh(total, pad={"n": "pow2"}), *calls)
    (remedy,) = remedies(f)
    buckets = ast.literal_eval(remedy.removeprefix("pad="))
    pasted = called(fresh(total, pad=buckets), *calls).stats
    assert max(buckets["n"]) == max(sizes)
    said = f"{pasted.traces} programs instead of {f.stats.traces}, {pasted.padding['n']:.0%} of"
    assert said in " ".join(str(f.stats).split())


def test_buckets_that_do_not_hold_all_sizes_are_not_advised():
    """The first size of each bucket alone would be [100, 300]; the buckets of all sizes are no
    fewer.
    """
    assert remedies(called(fresh(total, pad={"n": "pow2"}), 100, 300, 70, 280, 600)) == set()


def test_calls_before_clear_cache_leave_sizes_that_nothing_is_proven_for():
    """Of a dropped program only the size that it was traced for is known."""
    f = called(fresh(total, pad={"n": "pow2"}), 20, 31, 33, 70, 129, 264, 270, 293)
    f.clear_cache()
    called(f, 20, 31, 33)
    assert not any("pad=" in remedy for remedy in remedies(f))
    called(f, 70, 129, 264, 270, 293)
    assert any(remedy.endswith("293]}") for remedy in remedies(f))


def test_an_array_for_a_static_number_counts_programs_and_not_sizes():
    """Three numbers in two buckets are six programs, whatever the sizes in these are."""

    def scaled(x: Float[Array, "n"], p):
        return jnp.sum(x * p)

    f = fresh(scaled, pad={"n": "pow2"}, static="p")
    for p, n in itertools.product((1.0, 2.0, 3.0), (5, 6, 7, 9, 10)):
        f(ones(n), p)
    assert f.stats.traces == 6
    assert "2 programs instead of 6" in " ".join(str(f.stats).split())


def test_more_traces_than_are_kept_are_the_latest(monkeypatch):
    """And nothing is fitted to them, since larger sizes may be forgotten."""
    monkeypatch.setattr("jitney._body.function._KEPT", 4)
    f = called(fresh(total), *range(5, 13))
    assert "1 program instead of the latest 4" in " ".join(str(f.stats).split())
    assert remedies(called(fresh(total), 40, 5, 9, 17, 33)) == set()
