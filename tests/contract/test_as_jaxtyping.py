"""A call is accepted just where jaxtyping with beartype accepts it."""

from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import jaxtyping
import pytest
from beartype import beartype
from hypothesis import given, settings
from jaxtyping import Array, Bool, Float, Float32, Int, PyTree, Shaped, jaxtyped

from jitney._errors import ContractError
from tests._examples import examples
from tests.contract._contracts import Linear, check, z

MANY = settings(max_examples=max(100, settings.default.max_examples))


def agree(annotations, values):
    """Whether jitney and jaxtyping with beartype say the same of a call."""
    names = [f"a{i}" for i in range(len(values))]

    def body(a0=None, a1=None, a2=None): ...

    body.__annotations__ = dict(zip(names, annotations, strict=True))
    try:
        jaxtyped(body, typechecker=beartype)(*values)
        theirs = True
    except jaxtyping.TypeCheckError:
        theirs = False
    try:
        check(body, *values)
        ours = True
    except ContractError:
        ours = False
    return ours == theirs


DIMS = st.sampled_from(
    [
        "",
        "n",
        "m",
        "n m",
        "3 n",
        "#n m",
        "*b n",
        "*#b",
        "... n",
        "_ n",
        "_k",
        "n n",
        "rows=2 m",
        "#3",
        "*b",
    ]
)
SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
ARRAYS = st.builds(jnp.zeros, SHAPES, st.sampled_from(["float32", "int32", "bool", "bfloat16"]))
ARRAY_HINTS = st.builds(
    lambda kind, dims: kind[Array, dims], st.sampled_from([Float, Float32, Int, Bool, Shaped]), DIMS
)
TREES = st.recursive(
    ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
)


def floats(*pairs):
    """Arguments of float32, each of its annotated axes and its shape."""
    return [(Float[Array, dims], z(*shape)) for dims, shape in pairs]


INTS, FLAGS, HALVES = z(2, dtype="int32"), z(2, dtype="bool"), z(2, dtype="bfloat16")
ARRAY_CALLS = (
    floats(("", ())),
    floats(("", (1,))),
    floats(("n", ())),
    floats(("n", (2,)), ("m n", (3, 2)), ("m", (3,))),
    floats(("n", (2,)), ("m", (2,)), ("n", (3,))),
    floats(("n n", (2, 2))),
    floats(("n n", (2, 3))),
    floats(("3 n", (3, 2))),
    floats(("3 n", (2, 2))),
    floats(("#3", (1,)), ("#3", (3,))),
    floats(("#3", (2,))),
    floats(("rows=2 m", (2, 3)), ("m", (3,))),
    floats(("rows=2 m", (3, 3))),
    floats(("#n m", (1, 3)), ("#n m", (2, 3)), ("n", (2,))),
    floats(("#n m", (2, 3)), ("#n m", (3, 3))),
    floats(("n", (1,)), ("#n m", (2, 3))),
    floats(("*b n", (1, 2, 3)), ("*b", (1, 2)), ("*#b", (1, 1))),
    floats(("*b n", (3,)), ("*b", ()), ("*b", (1,))),
    floats(("*#b", (1, 2)), ("*#b", (3, 2)), ("*b", (3, 2))),
    floats(("*#b", (3, 2)), ("*#b", (1,)), ("*#b", (2, 2))),
    floats(("... n", (3,)), ("... n", (1, 2, 3)), ("... n", (1, 2))),
    floats(("_ n", (1, 2)), ("_ n", (3, 2)), ("_k", (1,))),
    [(Float[Array, "n"], HALVES), (Int[Array, "n"], INTS), (Bool[Array, "n"], FLAGS)],
    [(Shaped[Array, "n"], HALVES), (Shaped[Array, "n"], INTS), (Shaped[Array, "n"], FLAGS)],
    [(Float32[Array, "n"], HALVES)],
    [(Float[Array, "n"], INTS)],
    [(Int[Array, "n"], FLAGS)],
    [(Bool[Array, "n"], INTS)],
)


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=3))
@examples(*({"pairs": pairs} for pairs in ARRAY_CALLS))
def test_arrays_are_accepted_as_jaxtyping_does(pairs):
    """Shapes and dtypes over several arguments."""
    hints, values = zip(*pairs, strict=True)
    assert agree(hints, values)


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=2), ARRAYS | st.none())
@examples(
    *(
        {"pairs": pairs, "last": last}
        for pairs, last in (
            ([(Float[Array, "n"], z(2))], None),
            ([(Float[Array, "n"], z(2))], z(2)),
            ([(Float[Array, "n"], z(2))], z(3)),
            ([(Float[Array, "n"], z(2))], z(2, dtype="int32")),
            ([(Float[Array, "n"], z(2, 2))], None),
            ([(Shaped[Array, "#n m"], z(1, 2)), (Int[Array, "n"], z(3, dtype="int32"))], z(3, 2)),
            ([(Bool[Array, "*b"], FLAGS), (Float[Array, "*#b"], z(1))], z(1, dtype="bool")),
        )
    )
)
def test_optionals_are_accepted_as_jaxtyping_does(pairs, last):
    """An array or None."""
    hints, values = zip(*pairs, strict=True)
    assert agree([*hints, hints[0] | None], [*values, last])


@MANY
@given(ARRAY_HINTS, TREES)
@examples(
    *(
        {"hint": hint, "tree": tree}
        for hint, tree in (
            (Float[Array, "n"], z(2)),
            (Float[Array, "n"], []),
            (Float[Array, "n"], {"a": [z(2), []], "b": {"b": z(2)}}),
            (Float[Array, "n"], {"a": [z(2)], "b": {"b": z(3)}}),
            (Float[Array, "_ n"], [z(2, 1), z(3, 1)]),
            (Float[Array, "*#b"], [z(1, 2), [z(3, 1), z(2)]]),
            (Float[Array, "*#b"], [z(1, 2), [z(3, 3)]]),
            (Float32[Array, "..."], [z(2), z(2, dtype="bfloat16")]),
            (Shaped[Array, "rows=2 m"], [z(2, 3, dtype="int32"), z(2, 3, dtype="bool")]),
        )
    )
)
def test_trees_are_accepted_as_jaxtyping_does(hint, tree):
    """Every leaf fits, and they share their names."""
    assert agree([PyTree[hint]], [tree])


@MANY
@given(
    TREES,
    TREES,
    TREES,
    st.sampled_from(["S", "T", "S T", "T S", "... T", "T ...", "S T ...", "... S T"]),
)
@examples(
    *(
        {"first": first, "second": second, "third": third, "structure": structure}
        for first, second, third, structure in (
            (z(), z(), z(), "S"),
            ([z(), z()], z(), [z(), z()], "S"),
            ([z(), z()], z(), [z(), [z()]], "S"),
            ([], {}, {}, "T"),
            ([], {}, [], "T"),
            ([z(), z()], {"a": z()}, [{"a": z()}, {"a": z()}], "S T"),
            ([z(), z()], {"a": z()}, [{"a": z()}, {"b": z()}], "S T"),
            ([z(), z()], {"a": z()}, [{"a": z()}, {"a": z()}], "T S"),
            ([z(), z()], {"a": z()}, {"a": [z(), z()]}, "T S"),
            ([z()], {"a": z()}, {"b": [{"a": z()}], "a": {"a": z()}}, "... T"),
            ([z()], {"a": z()}, {"b": [{"a": z()}], "a": z()}, "... T"),
            ([z()], {"a": z()}, {"a": [z(), z()]}, "T ..."),
            ([z()], {"a": z()}, [{"a": z()}], "T ..."),
            ([z()], {"a": z()}, [{"a": {"b": z()}}], "S T ..."),
            ([z()], {"a": z()}, {"a": [{"b": z()}]}, "S T ..."),
            ([z()], {"a": z()}, [[{"a": z()}], []], "... S T"),
            ([z()], {"a": z()}, [[{"a": z()}], z()], "... S T"),
        )
    )
)
def test_structures_are_accepted_as_jaxtyping_does(first, second, third, structure):
    """Equal, composed, prefix and suffix structures."""
    leaf = Shaped[Array, "..."]
    assert agree(
        [PyTree[leaf, "S"], PyTree[leaf, "T"], PyTree[leaf, structure]], [first, second, third]
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([z(2), z(3)], [z(2), z(3)]),
        ([z(2), z(3)], [z(3), z(2)]),
        ([z(2)], [z(2), z(2)]),
        ({"a": z(2)}, {"a": z(3)}),
        ({"a": z(2)}, {"b": z(2)}),
        (z(2), z(2)),
        (None, z(2)),
    ],
)
def test_names_per_leaf_are_bound_as_jaxtyping_does(first, second):
    """`?n` is one size per position."""
    hint = PyTree[Float[Array, "?n"], "T"]
    assert agree([hint, hint], [first, second])


@pytest.mark.parametrize(
    "hint",
    [
        PyTree[Float[Array, "..."]],
        PyTree[int],
        PyTree[Any],
        PyTree[Float[Array, "..."] | int],
        PyTree,
    ],
)
@pytest.mark.parametrize(
    "tree",
    [[1, 2], [z(2), 1], z(2), None, [None, z(3)], {"a": "b"}, Linear(z(2, 3), None, 4, 1), ()],
)
def test_other_leaves_are_accepted_as_jaxtyping_does(hint, tree):
    """None is an empty tree; every other leaf must fit."""
    assert agree([hint], [tree])
