"""Functions that are one program at some sizes of a bucket and another at others: each kind of size
gets a program that is made at such a size, so that an odd first call does not decide for the rest.
"""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import PaddingWarning
from tests._tracing import count_traces

V = Float[Array, "n"]
SIZES = (20, 9, 17, 12, 31, 2, 30, 11, 3, 32)


def data(n):
    return np.random.default_rng(n).normal(size=n).astype(np.float32)


def parity(x: V):
    return x * 2 if len(x) % 2 else jnp.sin(x)


def thirds(x: V):
    return (jnp.sin(x), x[::-1], x * 3)[len(x) % 3]


def three(x: V):
    return x[::-1] if len(x) == 3 else x * np.ones(len(x), np.float32)


def hidden_three(x: V):
    return x[::-1] if isinstance(len(x), int) and len(x) == 3 else x + 1


def sums(x: V):
    return jnp.sum(jnp.stack([x[i] for i in range(len(x))]))


def odd_ones(x: V):
    return x[::-1] if len(x) in (11, 13, 15) else x + 1


def quotient(x: V):
    return x / (len(x) // 3 + 1)


def bits(x: V):
    return x * (len(x) * len(x)) + len(x) * 3 // 7


def second_half(x: V):
    return jnp.split(x, [len(x) // 2])[1]


def turns(x: V):
    return lax.fori_loop(0, len(x) if len(x) % 2 else len(x) // 2, lambda k, c: c / 2 + k, x)


def nearly_tripled(x: V):
    return jnp.concatenate([x, jnp.ones(2 * len(x) - len(x) % 2, x.dtype)])


def called(fn, sizes, program=None):
    """The program, after calls that are compared with plain JAX."""
    f = program or optimize(pad={"n": [32]}, cache=False)(fn)
    for n in sizes:
        got, want = f(data(n)), jax.jit(fn)(data(n))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=f"size {n}")
    return f


@pytest.mark.parametrize("first", [20, 17])
def test_sizes_of_the_other_parity_share_a_program(first):
    """Without a warning: none of them runs at exact size."""
    assert called(parity, (first, *SIZES)).stats.compiles == 2


@pytest.mark.parametrize("fn", [turns, nearly_tripled])
@pytest.mark.parametrize("first", [5, 6])
def test_a_number_that_differs_for_odd_sizes_is_no_expression_that_grows(fn, first):
    """At 3, 5 and 14 it could be `min(n, 7)`, which no other size has; three such programs leave
    the other sizes of the bucket exact.
    """
    program = optimize(pad={"n": [16]}, cache=False)(fn)
    called(fn, (first, 9, 12, 15, 16, 4, 11, 7, 3, 2), program)
    assert program.stats.compiles <= 3


def test_a_bucket_has_three_programs():
    """One for each remainder."""
    assert called(thirds, (*SIZES, 13, 25, 27, 29)).stats.compiles == 3


def test_a_bucket_has_no_more_than_three_programs():
    """At other sizes each is compiled, as ever."""

    def fourths(x: V):
        return (jnp.sin(x), x[::-1], x * 3, x + 1)[len(x) % 4]

    with pytest.warns(PaddingWarning, match="other operations at size 27"):
        f = called(fourths, (20, 21, 22, 24, 25, 26, 27, 31))
    assert f.stats.compiles == 5


def test_each_program_has_its_own_gradient():
    """By an outer transform too."""
    f = optimize(pad={"n": [32]}, cache=False)(parity)
    for n in (20, 17, 12, 9, 31):
        got = jax.grad(lambda x: jnp.sum(f(x) ** 2))(data(n))
        want = jax.grad(lambda x: jnp.sum(parity(x) ** 2))(data(n))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fn", [three, hidden_three])
def test_a_first_call_at_an_odd_size_does_not_decide_for_the_rest(fn):
    """That size runs exact, and the others share a program."""
    with pytest.warns(PaddingWarning, match="a size like this runs exact"):
        assert called(fn, (3, *SIZES)).stats.compiles == 2


def test_a_function_without_a_program_is_tried_at_two_sizes():
    """At later ones it is traced once, as plain JAX traces it."""
    body = count_traces(sums)
    f = optimize(pad={"n": [32]}, cache=False)(body)
    with pytest.warns(PaddingWarning, match="as many operations as its size says"):
        called(sums, (3, 20), f)
    for n in (9, 17):
        before = body.traces
        called(sums, (n,), f)
        assert body.traces == before + 1


def test_a_size_without_a_program_is_the_last_that_is_tried():
    """A later one is looked at once, and traced once at exact size."""
    body = count_traces(odd_ones)
    f = optimize(pad={"n": [32]}, cache=False)(body)
    with pytest.warns(PaddingWarning, match="other operations at size 11"):
        called(odd_ones, (20, 11), f)
    before = body.traces
    called(odd_ones, (13,), f)
    assert body.traces == before + 2


@pytest.mark.parametrize("fn", [quotient, bits, second_half])
@pytest.mark.parametrize("first", [2, 3, 31, 32])
def test_sizes_at_an_end_of_the_range_make_the_same_program(fn, first):
    """Numbers that three sizes fit by chance are left to Python."""
    assert called(fn, (first, *SIZES)).stats.compiles == 1


def test_a_plan_has_the_traces_and_what_they_took():
    """One with a symbol, one at the size, two at other sizes."""
    body = count_traces(quotient)
    f = optimize(pad={"n": [32]})(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (mask,) = (d for d in f.plan(data(20)).to_dict()["decisions"] if d["name"] == "mask")
    told = re.search(
        r"traced at sizes 3, 20 and 29, .*; (\d+) traces took ([\d.,]+) ms", mask["why"]
    )
    assert told is not None
    assert int(told[1]) == 4
    assert float(told[2].replace(",", "")) > 0
