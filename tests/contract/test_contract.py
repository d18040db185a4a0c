"""Signatures as data, and what they accept."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Optional, Protocol, TypedDict

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from beartype import beartype
from hypothesis import given, settings
from jaxtyping import Array, ArrayLike, Bool, Complex, Float, Float32, Int, Key, PRNGKeyArray, PyTree, Shaped, UInt32, jaxtyped

from jitney._contract.contract import all_matches, check_arguments, check_result, contract_of, matches
from jitney._errors import ContractError, Where
from jitney._signature.annotations import read

MANY = settings(max_examples=max(100, settings.default.max_examples))


def contract(fn):
    return contract_of(fn, inspect.signature(fn), Where("residual", "fit.py", 12))


def check(fn, *args, **kwargs):
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    return check_arguments(contract(fn), bound.arguments)


def refusal(fn, *args, **kwargs):
    with pytest.raises(ContractError) as caught:
        check(fn, *args, **kwargs)
    message = str(caught.value)
    lines = message.splitlines()
    assert lines[0].startswith("residual() at fit.py:12: ")
    assert lines[-1].startswith("Fix: ")
    return message


def result_refusal(fn, result, *args):
    arguments = inspect.signature(fn).bind(*args).arguments
    sizes, _ = check_arguments(contract(fn), arguments)
    with pytest.raises(ContractError) as caught:
        check_result(contract(fn), result, sizes, arguments)
    return str(caught.value)


def one(hint):
    """A function of one argument with this annotation."""

    def body(x): ...

    body.__annotations__ = {"x": hint}
    return body


def z(*shape, dtype="float32"):
    return jnp.zeros(shape, dtype)


def residual(t: Float[Array, "points"], y: Float[Array, "points"]) -> Float[Array, "points"]:
    return t - y


class Linear(eqx.Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, "out"] | None
    width: int = eqx.field(static=True, default=4)
    act: Callable = jnp.tanh


class Model(eqx.Module):
    layers: list[Linear]
    rate: float = 0.5


class Point(NamedTuple):
    x: Float[Array, "n"]
    y: Float[Array, "n"]


class Record(TypedDict):
    x: Float[Array, "n"]
    label: str


# Messages.


def test_two_sizes_of_an_axis():
    """The message of the style guide, word for word."""
    assert refusal(residual, z(100), z(99)) == (
        "residual() at fit.py:12: axis 'points' has two sizes, 100 from 't' and 99 from 'y'.\n"
        "Every argument annotated with 'points' must agree on it.\n"
        "Fix: pass equal sizes, or rename the axis in one annotation."
    )


def test_two_sizes_inside_one_array():
    """A square matrix that is not square."""
    assert "axis 'n' has two sizes, 2 and 3, both from 'x'" in refusal(one(Float[Array, "n n"]), z(2, 3))


def test_wrong_rank_names_both_shapes():
    """What came, what was expected, and `vmap` as a way out."""
    message = refusal(residual, z(3), z(3, 1))
    assert "'y' has 2 axes, shape (3, 1), and Float[Array, 'points'] has 1 axis" in message
    assert "`vmap`" in message


def test_wrong_fixed_size():
    """The axis, its size and the size in the annotation."""
    assert "'x' has size 4 along axis 0, and Float[Array, '3 n'] says 3" in refusal(one(Float[Array, "3 n"]), z(4, 2))


def test_wrong_dtype_names_what_came_and_what_is_allowed():
    """`Float` allows several dtypes."""
    message = refusal(one(Float[Array, "n"]), z(3, dtype="int32"))
    assert "'x' has dtype int32" in message
    assert "float32, float64" in message
    assert "`Int[Array, ...]`" in message


def test_a_number_for_an_array_says_how_to_make_one():
    """`jnp.asarray`, or another annotation."""
    message = refusal(one(Float[Array, ""]), 1.5)
    assert "`jnp.asarray(1.5)`" in message
    assert "annotate it `float`, which is traced" in message


@pytest.mark.parametrize(
    ("hint", "value", "fix"),
    [
        (Float[Array, ""], 3, "pass `jnp.asarray(3.0)`, or annotate it `float`, which is traced."),
        (Int[Array, ""], 3, "pass `jnp.asarray(3)`."),
        (Bool[Array, ""], True, "pass `jnp.asarray(True)`."),
        (Complex[Array, ""], 3, "pass `jnp.asarray((3+0j))`, or annotate it `complex`, which is traced."),
        (Float[Array, ""], True, "pass an array, or correct the annotation."),
    ],
)
def test_a_number_for_an_array_is_not_told_to_become_static(hint, value, fix):
    """An annotation `int` or `bool` would compile a program for each value."""
    assert refusal(one(hint), value).splitlines()[-1] == f"Fix: {fix}"


@pytest.mark.parametrize(("hint", "value", "name"), [(int, jnp.asarray(1), "Int"), (bool, jnp.asarray(True), "Bool")])
def test_an_array_for_a_static_scalar_names_the_array_hint(hint, value, name):
    """An `int` is part of the program."""
    assert f'annotate it `{name}[Array, ""]`' in refusal(one(hint), value)
    assert f'annotate it `{name}[Array, ""]`' in refusal(one(Optional[hint]), np.asarray(value)[()])  # noqa: UP045


def test_errors_in_a_module_name_the_path():
    """Both fields, and that it is one instance."""
    model = Model([Linear(z(2, 3), z(2)), Linear(z(2, 3), z(5))])
    message = refusal(one(Model), model)
    assert "2 from 'x.layers[1].weight'" in message
    assert "'x.layers[1].bias'" in message


def test_a_union_lists_each_alternative_with_its_reason():
    """None of them fits."""
    message = refusal(one(Float[Array, "3"] | Int[Array, "n"] | None), z(4))
    assert "not Float[Array, '3']: 'x' has size 4" in message
    assert "not Int[Array, 'n']: 'x' has dtype float32" in message
    assert "not None: " in message


def test_an_expression_shows_its_value_and_its_names():
    """`n+1` with n from another argument."""

    def f(x: Float[Array, "n"], y: Float[Array, "n+1"]): ...

    message = refusal(f, z(3), z(3))
    assert "axis 'n+1' of 'y' has size 3, and Float[Array, 'n+1'] makes it 4 with n=3 from 'x'" in message


def test_items_of_variadic_parameters_are_named():
    """`*args` by position, `**kwargs` by key."""

    def f(*args: Float[Array, "n"], **kwargs: Float[Array, "n"]): ...

    assert "2 from 'args[0]' and 3 from 'args[1]'" in refusal(f, z(2), z(3))
    assert "3 from \"kwargs['b']\"" in refusal(f, z(2), a=z(2), b=z(3))


def test_results_are_named_result():
    """Sizes of the arguments bind the result."""
    assert "2 from 't' and 3 from 'result'" in result_refusal(residual, z(3), z(2), z(2))


def test_items_of_results_are_named():
    """A tuple of results."""

    def f(x: Float[Array, "n"]) -> tuple[Float[Array, "n"], Float[Array, ""]]: ...

    assert "'result[1]' has 1 axis" in result_refusal(f, (z(2), z(2)), z(2))
    assert "'result' has 1 items" in result_refusal(f, (z(2),), z(2))


def test_checking_a_result_leaves_the_sizes_alone():
    """The same sizes serve several traces."""

    def f(x: Float[Array, "n"]) -> Float[Array, "m"]: ...

    sizes, _ = check(f, z(2))
    check_result(contract(f), z(3), sizes, {})
    check_result(contract(f), z(4), sizes, {})
    assert sizes.known == {"n": 2}


# What is accepted.


@pytest.mark.parametrize("make", [jnp.zeros, np.zeros, lambda shape: jax.ShapeDtypeStruct(shape, np.float32)])
def test_any_array_will_do(make):
    """NumPy, JAX and abstract arrays."""
    sizes, notes = check(residual, make((3,)), make((3,)))
    assert (sizes.known, notes) == ({"points": 3}, ())


def test_tracers_are_arrays():
    """The contract is checked while a call is traced."""

    def body(x):
        check(residual, x, x)
        check(one(float), x[0])
        return x

    jax.make_jaxpr(body)(z(3))


@pytest.mark.parametrize("value", [1.0, 1, np.float64(1), np.int32(1), jnp.asarray(1.0), jnp.asarray(1)])
def test_float_takes_real_numbers_of_rank_0(value):
    """Python and array scalars; `complex` takes them too."""
    check(one(float), value)
    check(one(complex), value)


@pytest.mark.parametrize("value", [True, "1", None, z(1), jnp.asarray(True), 1j, jnp.asarray(1j)])
def test_float_refuses_other_things(value):
    """Booleans are not numbers here."""
    refusal(one(float), value)


def test_complex_takes_complex_numbers():
    """Python's and JAX's."""
    check(one(complex), 1j)
    check(one(complex), jnp.asarray(1j))
    refusal(one(complex), True)


def test_keys_are_new_or_old():
    """`jax.random.key` and `jax.random.PRNGKey`."""
    new, old = jax.random.key(0), jax.random.PRNGKey(0)
    check(one(Key[Array, ""]), new)
    check(one(UInt32[Array, "2"]), old)
    check(one(PRNGKeyArray), new)
    check(one(PRNGKeyArray), old)
    refusal(one(Key[Array, ""]), old)
    refusal(one(PRNGKeyArray), z(2))


def test_array_like_takes_numbers():
    """As jaxtyping's union does; an integer is a float to us."""
    for value in (1.0, 1, np.float32(1), z(), np.int32(1)):
        check(one(Float[ArrayLike, ""]), value)
    refusal(one(Float[ArrayLike, ""]), "1")
    refusal(one(Float[ArrayLike, "n"]), 1.0)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, 1, "1"),
        (str, "a", 1),
        (Literal["a", "b"], "a", "c"),
        (tuple[int, ...], (1, 2), [1, 2]),
        (type[int], int, str),
        (Callable[[int], int], len, 3),
        (Linear, Linear(z(2, 3), None), 3),
    ],
)
def test_values_that_are_not_arrays_are_checked(hint, good, bad):
    """By beartype, as what they are annotated."""
    check(one(hint), good)
    assert "'x' is " in refusal(one(hint), bad)


def test_every_item_of_a_static_container_is_checked():
    """beartype alone looks at one of them, at random."""
    for last in range(50):
        refusal(one(tuple[int, ...] | None), (*range(last), "1", *range(50)))


def test_old_forms_of_hints_do_not_warn():
    """beartype warns of `typing.List`; here warnings are errors."""
    check(one(typing.List[int]), [1])  # noqa: UP006
    check(one(typing.Mapping[str, typing.Tuple[int, ...]] | None), {"a": (1,)})  # noqa: UP006
    check(one(typing.Optional[typing.Type[int]]), int)  # noqa: UP006, UP045


def test_a_default_is_not_checked():
    """jaxtyping does not look at defaults either; there is a note."""

    def f(x: Float[Array, "n"] = None, y: Float[Array, ""] = 0.0): ...

    _, notes = check(f)
    assert len(notes) == 2
    refusal(f, "a")


def test_hints_that_beartype_does_not_read_are_notes():
    """A protocol that is not checkable at run time."""

    class Shape(Protocol):
        def area(self) -> float: ...

    _, notes = check(one(Shape), 3)
    assert "beartype" in notes[0]


def test_hints_without_axes_are_notes():
    """What was not checked has a reason; no annotation needs none."""
    assert check(one(jax.Array), z(3))[1] == ("'x' is not checked: `Array` names no axes",)
    assert check(one(Any), z(3))[1] == ()


def test_records_are_walked():
    """NamedTuple and TypedDict."""
    check(one(Point), Point(z(2), z(2)))
    assert "'x.y'" in refusal(one(Point), Point(z(2), z(3)))
    check(one(Record), {"x": z(2), "label": "a"})
    assert "\"x['x']\"" in refusal(one(Record), {"x": z(2, 2), "label": "a"})


def test_mappings_and_lists_share_names():
    """All items agree on an axis."""
    check(one(dict[str, Float[Array, "n"]]), {"a": z(2), "b": z(2)})
    refusal(one(list[Float[Array, "n"]]), [z(2), z(3)])
    refusal(one(list[Float[Array, "n"]]), (z(2), z(2)))


# Modules.


def test_instances_bind_their_own_axes():
    """Two layers of one class differ in `in` and `out`, and neither is shared with the signature."""

    def f(model: Model, x: Float[Array, "in"]): ...

    sizes, notes = check(f, Model([Linear(z(2, 3), z(2)), Linear(z(5, 2), None)]), z(7))
    assert (sizes.known, notes) == ({"in": 7}, ())


def test_sizes_may_depend_on_a_module():
    """`{model.width}` is read from the argument."""

    def f(model: Linear, x: Float[Array, "{model.width}+1"]): ...

    check(f, Linear(z(2, 3), None), z(5))
    assert "makes it 5" in refusal(f, Linear(z(2, 3), None), z(6))


def test_sizes_may_depend_on_self():
    """In methods, and in the fields of a module."""

    class Bank(eqx.Module):
        dim: int = eqx.field(static=True)
        taps: Float[Array, "{self.dim}"]

        def __call__(self, x: Float[Array, "{self.dim}"]): ...

    check(Bank.__call__, Bank(3, z(3)), z(3))
    assert "makes it 3" in refusal(Bank.__call__, Bank(3, z(3)), z(4))
    assert "'x.taps'" in refusal(one(Bank), Bank(3, z(4)))


def test_modules_may_have_lost_their_arrays():
    """`eqx.partition` leaves None, a filter leaves booleans, `jax.eval_shape` leaves structs."""
    model = Model([Linear(z(2, 3), z(2))])
    arrays, rest = eqx.partition(model, eqx.is_array)
    mask = jax.tree.map(eqx.is_array, model)
    structs = eqx.filter_eval_shape(lambda m: m, model)
    for variant in (arrays, rest, mask, structs):
        check(one(Model), variant)


def test_modules_made_under_vmap_are_not_checked():
    """All arrays have one more leading axis: the class is right, the annotations are of one member."""
    stacked = eqx.filter_vmap(lambda key: Linear(jax.random.normal(key, (2, 3)), z(2)))(jax.random.split(jax.random.key(0), 5))
    _, notes = check(one(Linear), stacked)
    assert "leading axes" in notes[0]


def test_one_field_with_an_extra_axis_is_an_error():
    """The others do not have it."""
    assert "'x.weight' has 3 axes" in refusal(one(Linear), Linear(z(5, 2, 3), z(2)))


# Where annotations meet arrays.


def test_matches_pair_each_array_with_its_annotation():
    """Through containers and modules; static fields and Python numbers in modules are no arrays."""

    def f(model: Model, data: tuple[Float[Array, "n"], int], scale: float, *rest: Float[Array, "k"]): ...

    arguments = {"model": Model([Linear(z(2, 3), None)]), "data": (z(3), 1), "scale": 1.0, "rest": (z(1), z(1))}
    found = [(match.path, match.argument) for match in all_matches(contract(f), arguments)]
    assert found == [
        ("model.layers[0].weight", "model"),
        ("data[0]", "data"),
        ("scale", "scale"),
        ("rest[0]", "rest"),
        ("rest[1]", "rest"),
    ]


def test_matches_take_the_alternative_that_fits():
    """The rank decides."""
    (match,) = matches(read(Float[Array, "n"] | Float[Array, "n m"]), z(2, 3), "x", "x")
    assert match.hint.names == ("n", "m")


def test_matches_do_not_mind_an_extra_axis():
    """A mapped argument has one axis more than its annotation."""
    (match,) = matches(read(Float[Array, "n"] | None), z(5, 3), "x", "x")
    assert match.hint.names == ("n",)


def test_axes_are_those_of_the_signature():
    """Also in unions, trees, containers, expressions and the result, but not in module fields."""

    def f(
        m: Model, x: Float[Array, "a *b"] | None, y: PyTree[Float[Array, "c"]], z: dict[str, Float[Array, "d+1"]]
    ) -> Float[Array, "e"]: ...

    assert contract(f).axes == {"a", "b", "c", "d", "e"}


def test_contracts_compare_by_meaning():
    """Where a function stands does not change the compiled code."""
    signature = inspect.signature(residual)
    assert contract_of(residual, signature, Where("a")) == contract_of(residual, signature, Where("b"))
    assert hash(contract_of(residual, signature, Where("a"))) == hash(contract_of(residual, signature, Where("b")))


# As jaxtyping does.


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


DIMS = st.sampled_from(["", "n", "m", "n m", "3 n", "#n m", "*b n", "*#b", "... n", "_ n", "_k", "n n", "rows=2 m", "#3", "*b"])
SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
ARRAYS = st.builds(jnp.zeros, SHAPES, st.sampled_from(["float32", "int32", "bool", "bfloat16"]))
ARRAY_HINTS = st.builds(lambda kind, dims: kind[Array, dims], st.sampled_from([Float, Float32, Int, Bool, Shaped]), DIMS)
TREES = st.recursive(ARRAYS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2))


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=3))
def test_arrays_are_accepted_as_jaxtyping_does(pairs):
    """Shapes and dtypes over several arguments."""
    hints, values = zip(*pairs, strict=True)
    assert agree(hints, values)


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=2), ARRAYS | st.none())
def test_optionals_are_accepted_as_jaxtyping_does(pairs, last):
    """An array or None."""
    hints, values = zip(*pairs, strict=True)
    assert agree([*hints, hints[0] | None], [*values, last])


@MANY
@given(ARRAY_HINTS, TREES)
def test_trees_are_accepted_as_jaxtyping_does(hint, tree):
    """Every leaf fits, and they share their names."""
    assert agree([PyTree[hint]], [tree])


@MANY
@given(TREES, TREES, TREES, st.sampled_from(["S", "T", "S T", "T S", "... T", "T ...", "S T ...", "... S T"]))
def test_structures_are_accepted_as_jaxtyping_does(first, second, third, structure):
    """Equal, composed, prefix and suffix structures."""
    leaf = Shaped[Array, "..."]
    assert agree([PyTree[leaf, "S"], PyTree[leaf, "T"], PyTree[leaf, structure]], [first, second, third])


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


@pytest.mark.parametrize("hint", [PyTree[Float[Array, "..."]], PyTree[int], PyTree[Any], PyTree[Float[Array, "..."] | int], PyTree])
@pytest.mark.parametrize("tree", [[1, 2], [z(2), 1], z(2), None, [None, z(3)], {"a": "b"}, Linear(z(2, 3), None, 4, 1), ()])
def test_other_leaves_are_accepted_as_jaxtyping_does(hint, tree):
    """None is an empty tree; every other leaf must fit."""
    assert agree([hint], [tree])
