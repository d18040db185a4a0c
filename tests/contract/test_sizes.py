"""Axis names, and sizes that are written as expressions."""

from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from jaxtyping import Shaped, jaxtyped

from jitney._contract.sizes import AxisBindings, Unknown, evaluate, fit_shape, settle
from jitney._signature.type_hints import read
from tests._examples import examples

ARGUMENTS = {
    "self": SimpleNamespace(dim=16, name="n", _hidden=3),
    "xs": [1, 2, 3],
    "shapes": {"a": (4, 5)},
    "x": np.zeros(3),
}
MANY = settings(max_examples=max(200, settings.default.max_examples))


@pytest.mark.parametrize(
    "expr",
    [
        "n+1",
        "2*n",
        "n//2",
        "n%3",
        "n**2",
        "min(n,m)",
        "max(n,m)",
        "abs(n-m)",
        "-n+m",
        "(n+1)*m",
        "n/2",
        "sum((n,m))",
        "7",
    ],
)
def test_arithmetic_is_pythons(expr):
    """The same numbers as Python's own."""
    sizes = {"n": 6, "m": 4}
    expected = eval(expr, dict(sizes))
    assert evaluate(expr, sizes, {}) == expected


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("{self.dim}", 16),
        ("{self.dim}+n", 22),
        ("{self.name}+1", 7),
        ("{len(xs)}", 3),
        ("{xs[1]}", 2),
        ("{shapes['a'][1]}*2", 10),
        ("{x.shape[0]}", 3),
        ("{self._hidden}", 3),
        ("n{self.dim}", 1),
    ],
)
def test_braces_are_filled_in_from_the_arguments(expr, value):
    """As in an f-string; a string may give the name of an axis."""
    assert evaluate(expr, {"n": 6, "n16": 1}, ARGUMENTS) == value


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        ("k+1", "`k` has no size"),
        ("{model.dim}", "`model` has no value"),
        ("{self.absent}", "fails"),
        ("n if n else 1", "does not read"),
        ("open('f')", "does not read"),
        ("{self.__class__}", "does not read"),
        ("().__class__", "does not read"),
        ("n//0", "fails"),
        ("n**1000000000", "too large"),
        ("2n", "not an expression"),
        ("{x}", "not a number"),
        ("{self.dim:3d}", "format"),
        ("'a'", "not a number"),
        ("n+'a'", "not made of numbers"),
        ("min('a',n)", "fails"),
        ("{xs[9]}", "fails"),
        ("{x[0]}", "not an item"),
    ],
)
def test_what_is_not_arithmetic_is_unknown_with_a_reason(expr, reason):
    """Nothing from an annotation is executed."""
    found = evaluate(expr, {"n": 6}, ARGUMENTS)
    assert isinstance(found, Unknown)
    assert reason in found.reason


def fits(pairs):
    """jitney's verdict on several shapes, one after the other."""
    sizes = AxisBindings()
    results = [
        fit_shape(read(Shaped[np.ndarray, dims]), shape, f"'a{i}'", sizes, {})
        for i, (dims, shape) in enumerate(pairs)
    ]
    return [result is None for result in results], sizes


def jaxtyping_fits(pairs):
    """jaxtyping's verdict."""
    with jaxtyped("context"):
        return [isinstance(np.zeros(shape), Shaped[np.ndarray, dims]) for dims, shape in pairs]


SINGLE = st.sampled_from(["n", "m", "n", "3", "1", "_", "_k", "#n", "#m", "#3", "rows=2", "cols=m"])
MANY_AXES = st.sampled_from([[], [], ["..."], ["*b"], ["*#b"], ["*b"], ["*#b"]])


@st.composite
def dim_strings(draw):
    before, middle, after = (
        draw(st.lists(SINGLE, max_size=2)),
        draw(MANY_AXES),
        draw(st.lists(SINGLE, max_size=2)),
    )
    return " ".join([*before, *middle, *after])


shapes = st.lists(st.sampled_from([1, 2, 3]), max_size=4).map(tuple)


@MANY
@given(st.lists(st.tuples(dim_strings(), shapes), min_size=1, max_size=3))
@examples(
    *(
        {"pairs": pairs}
        for pairs in (
            [("", ()), ("", (1,))],
            [("n", (2,)), ("n m", (2, 3)), ("m n", (3, 2))],
            [("n", (2,)), ("n m", (3, 3))],
            [("3", (3,)), ("1", (2,))],
            [("n n", (1, 1)), ("n", (2,))],
            [("_ _k", (1, 2)), ("_ _k", (3, 3)), ("_k", (1, 2))],
            [("#n", (1,)), ("#n", (3,)), ("#n", (2,))],
            [("n", (1,)), ("#n #m", (2, 2))],
            [("#3", (1,)), ("#3", (3,)), ("#3", (2,))],
            [("rows=2 cols=m", (2, 3)), ("m", (3,)), ("rows=2", (3,))],
            [("...", ()), ("n ... m", (2, 3)), ("n ... m", (2, 1, 1, 3))],
            [("n ... m", (2,))],
            [("*b", ()), ("n *b", (2,)), ("*b", (1,))],
            [("n *b 3", (2, 1, 2, 3)), ("*b", (1, 2)), ("*b n", (1, 1, 2))],
            [("*#b", (1, 2)), ("*#b m", (3, 2, 2)), ("*b", (3, 2))],
            [("*#b", (3, 2)), ("*#b", (2,)), ("*#b", (2, 2))],
            [("*b", (1, 2)), ("*#b", (3, 1))],
            [("*#b", (1,)), ("*#b", (2, 3)), ("*b", (2, 2))],
        )
    )
)
def test_shapes_fit_as_jaxtyping_says(pairs):
    """Names, numbers, `#`, `*`, `*#`, `_` and `...` over several arrays: the same arrays are
    accepted up to the first refusal.
    """
    theirs, (ours, _) = jaxtyping_fits(pairs), fits(pairs)
    end = theirs.index(False) + 1 if False in theirs else len(theirs)
    assert ours[:end] == theirs[:end]


EXPRESSIONS = st.sampled_from(
    ["n+1", "2*n", "n//2", "#n+1", "n-m", "max(n,m)", "n**2", "m%n", "n/2"]
)


@MANY
@given(st.integers(1, 4), st.integers(1, 4), EXPRESSIONS, st.integers(0, 6))
@examples(
    *(
        {"n": n, "m": m, "expr": expr, "size": size}
        for n, m, expr, size in (
            (2, 1, "n+1", 3),
            (2, 1, "n+1", 1),
            (3, 1, "2*n", 6),
            (1, 1, "n//2", 0),
            (1, 1, "n//2", 1),
            (3, 1, "#n+1", 1),
            (3, 1, "#n+1", 4),
            (3, 1, "#n+1", 3),
            (1, 1, "n-m", 0),
            (1, 3, "n-m", 2),
            (2, 4, "max(n,m)", 4),
            (2, 4, "max(n,m)", 2),
            (2, 1, "n**2", 4),
            (3, 2, "m%n", 2),
            (3, 2, "m%n", 1),
            (4, 1, "n/2", 2),
            (3, 1, "n/2", 1),
        )
    )
)
def test_symbolic_sizes_fit_as_jaxtyping_says(n, m, expr, size):
    """Where jaxtyping knows all the names, the verdict is the same."""
    pairs = [("n m", (n, m)), (f"_ {expr}", (1, size))]
    assert fits(pairs)[0] == jaxtyping_fits(pairs)


def test_expressions_may_refer_to_names_that_come_later():
    """They wait until every name is bound."""
    for size, good in ((4, True), (5, False)):
        accepted, sizes = fits([("n+1", (size,)), ("n", (3,))])
        assert accepted == [True, True]
        assert (settle(sizes, {}) is None) is good


def test_expressions_that_stay_unknown_are_notes():
    """They are not checked, and say so."""
    _, sizes = fits([("k+1", (4,))])
    assert settle(sizes, {}) is None
    assert "`k` has no size" in sizes.notes[0]


def test_a_snapshot_undoes_bindings():
    """An alternative that did not fit leaves nothing behind."""
    sizes = AxisBindings()
    before = sizes.copy()
    fit_shape(read(Shaped[np.ndarray, "n *b"]), (2, 3), "'x'", sizes, {})
    assert sizes.size_by_axis == {"n": 2}
    sizes.restore(before)
    assert (sizes.size_by_axis, sizes.variadic) == ({}, {})
