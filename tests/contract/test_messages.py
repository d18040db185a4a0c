"""What is said of a call that breaks its contract."""

from typing import Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Complex, Float, Int

from jitney import optimize
from jitney.errors import ContractError, OptionError
from tests._arrays import array, weak
from tests.contract._contracts import Linear, Model, one, refusal, residual, result_refusal, z


def test_two_sizes_of_an_axis():
    """The message of the style guide, word for word."""
    assert refusal(residual, z(100), z(99)) == (
        "residual() at fit.py:12: axis 'points' has two sizes, 100 from 't' and 99 from 'y'.\n"
        "Every argument annotated with 'points' must agree on it.\n"
        "Fix: pass equal sizes, or rename the axis in one annotation."
    )


def test_two_sizes_inside_one_array():
    """A square matrix that is not square."""
    assert "axis 'n' has two sizes, 2 and 3, both from 'x'" in refusal(
        one(Float[Array, "n n"]), z(2, 3)
    )


def test_wrong_rank_names_both_shapes():
    """What came, what was expected, and `vmap` as a way out."""
    message = refusal(residual, z(3), z(3, 1))
    assert "'y' has 2 axes, shape (3, 1), and Float[Array, 'points'] has 1 axis" in message
    assert "`vmap`" in message


def test_wrong_fixed_size():
    """The axis, its size and the size in the annotation."""
    assert "'x' has size 4 along axis 0, and Float[Array, '3 n'] says 3" in refusal(
        one(Float[Array, "3 n"]), z(4, 2)
    )


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
        (
            Complex[Array, ""],
            3,
            "pass `jnp.asarray((3+0j))`, or annotate it `complex`, which is traced.",
        ),
        (Float[Array, ""], True, "pass an array, or correct the annotation."),
    ],
)
def test_a_number_for_an_array_is_not_told_to_become_static(hint, value, fix):
    """An annotation `int` or `bool` would compile a program for each value."""
    assert refusal(one(hint), value).splitlines()[-1] == f"Fix: {fix}"


@pytest.mark.parametrize(
    ("hint", "value", "name"), [(int, weak(1), "Int"), (bool, array(True), "Bool")]
)
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
    assert (
        "axis 'n+1' of 'y' has size 3, and Float[Array, 'n+1'] makes it 4 with n=3 from 'x'"
        in message
    )


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


def test_one_axis_too_few_names_the_outer_vmap():
    """Under `jax.vmap` the body sees one axis less than was passed."""

    def total(x: Float[Array, "batch n"]) -> Float[Array, "batch"]:
        return jnp.sum(x, axis=1)

    with pytest.raises(ContractError, match=r"an outer `jax.vmap` takes one away"):
        jax.vmap(optimize(total))(jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ([1.0, 2.0], "pass `jnp.asarray(...)` of it"),
        (None, "annotate `Float[Array, 'n'] | None`"),
        ("text", "pass an array, or correct the annotation"),
    ],
    ids=str,
)
def test_what_is_no_array_is_told_how_to_become_one(value, fix):
    """A list, None and a text are unlike mistakes."""

    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    with pytest.raises(ContractError) as caught:
        optimize(total)(value)
    assert fix in str(caught.value)
    assert caught.value.code == "J213"


def test_a_result_of_another_rank_is_to_be_returned_not_passed():
    """No `vmap` helps there."""

    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return x

    with pytest.raises(ContractError, match="Fix: return an array of that rank") as caught:
        optimize(total)(jnp.ones(3))
    assert caught.value.code == "J217"


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"pad": {"point": "pow2"}}, "did you mean 'points'"),
        ({"donate": "startt"}, "did you mean 'start'"),
    ],
    ids=str,
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(options, fix):
    """Of an axis and of a parameter."""

    def moved(start: Float[Array, "points"]) -> Float[Array, "points"]:
        return start + 1

    with pytest.raises(OptionError, match=fix):
        optimize(**options)(moved)


def test_an_axis_of_a_function_without_annotations_is_to_be_annotated():
    """There is no name to correct. The first call says so, since an instance of a class may have
    the axis.
    """
    f = optimize(pad={"n": "pow2"})(lambda x: x)
    with pytest.raises(
        OptionError, match=r'annotate the arrays that have it: x: Float\[Array, "n"\]'
    ):
        f(jnp.ones(3))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pad": {"n": "pow2"}},
        {"chunk": {"n": 2}},
        {"cache": "program"},
        {"on_trace_error": "eager"},
    ],
    ids=str,
)
def test_numbers_in_the_byte_order_of_other_machines_are_to_be_converted(options):
    """As files of FITS and netCDF have them; JAX takes none."""

    def body(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return 2 * x

    f = optimize(**options)(body)
    for ask in (f, f.compile, f.lower):
        with pytest.raises(
            ContractError, match=r"'x' is an array of >f4, in the byte order of other machines"
        ) as caught:
            ask(np.ones(3, ">f4"))
        assert "Fix: pass x.astype('float32')" in str(caught.value)
        assert caught.value.code == "J213"
