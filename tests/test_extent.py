"""The one evaluator of sizes: of plain numbers, ranges, traced scalars and symbolic dimensions."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export

from jitney._axes import evaluate
from jitney._extent import Unreadable, names_in, read, read_dim
from tests._examples import examples

LEAVES = st.sampled_from(["n", "m", "1", "2", "3"])
BINARY = st.sampled_from(
    ["({}+{})", "({}-{})", "({}*{})", "max({},{})", "min(({},{}))", "sum(({},{}))"]
)
UNARY = st.sampled_from(
    ["-{}", "+{}", "({})**2", "({})//3", "({})%4", "abs({})", "int({})", "({})**0", "round({})"]
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda form, a: form.format(a), UNARY, inner),
        st.builds(lambda form, a, b: form.format(a, b), BINARY, inner, inner),
    ),
    max_leaves=4,
)


@given(EXPRESSIONS)
@examples(
    *(
        {"text": text}
        for text in (
            "n",
            "3",
            "max(-n,(n-m))",
            "min((abs((n-m)),+m))",
            "sum((int(n),(m)**2))",
            "((n-m))//3",
            "((n-m))%4",
            "round((n*(m+1)))",
            "((m-m))**0",
        )
    )
)
def test_every_kind_of_size_gives_pythons_number(text):
    """A range, a traced scalar and a symbolic dimension come to what Python says of the ints that
    they stand for.
    """
    expected = eval(text, {"n": 5, "m": 7})
    written = read(text)
    d, e = export.symbolic_shape("n, m")
    traced = jax.jit(lambda n, m: written.at({"n": n, "m": m}))(np.int32(5), np.int32(7))
    many = written.at({"n": np.arange(3, 6), "m": 7})
    assert written.at({"n": 5, "m": 7}) == expected
    assert evaluate(written.at({"n": d, "m": e}), {"n": 5, "m": 7}) == expected
    assert int(traced) == expected
    assert np.broadcast_to(many, 3)[-1] == expected


@pytest.mark.parametrize(
    "text", ["n/2", "n*0.5", "2**n", "n**-1", "len(n)", "n//k", "'n'", "n.real", "n if n else 1"]
)
def test_what_is_no_arithmetic_of_whole_numbers_has_no_symbolic_size(text):
    """A size that is not known yet is never guessed: there is a reason instead."""
    (n,) = export.symbolic_shape("n")
    with pytest.raises(Unreadable):
        read(text).at({"n": n})


def test_jax_writes_powers_with_a_caret():
    """`^` is a power in what JAX prints, and nothing in an annotation, where Python's meaning is
    another.
    """
    (n,) = export.symbolic_shape("n")
    assert str(n * n) == "n^2"
    assert read_dim(n * n).at({"n": 5}) == 25
    with pytest.raises(Unreadable, match="does not read"):
        read("n^2").at({"n": 5})


def test_names_are_the_axes_alone():
    """Neither functions nor what stands in braces."""
    assert names_in("max(n,3)+{model.width}*k") == {"n", "k"}
