"""What a signature accepts: arrays, numbers, static values and containers of them."""

import typing
from collections.abc import Callable
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, ArrayLike, Float, Float32, Key, PRNGKeyArray, UInt32

from jitney._contract.contract import check_result
from tests._arrays import array, weak
from tests.contract._contracts import (
    Linear,
    Point,
    Record,
    check,
    contract,
    one,
    refusal,
    residual,
    z,
)


def test_checking_a_result_leaves_the_sizes_alone():
    """The same sizes serve several traces."""

    def f(x: Float[Array, "n"]) -> Float[Array, "m"]: ...

    sizes, _ = check(f, z(2))
    check_result(contract(f), z(3), sizes, {})
    check_result(contract(f), z(4), sizes, {})
    assert sizes.size_by_axis == {"n": 2}


@pytest.mark.parametrize(
    "make", [jnp.zeros, np.zeros, lambda shape: jax.ShapeDtypeStruct(shape, np.float32)]
)
def test_any_array_will_do(make):
    """NumPy, JAX and abstract arrays."""
    sizes, notes = check(residual, make((3,)), make((3,)))
    assert (sizes.size_by_axis, notes) == ({"points": 3}, ())


def test_tracers_are_arrays():
    """The contract is checked while a call is traced."""

    def body(x):
        check(residual, x, x)
        check(one(float), x[0])
        return x

    jax.make_jaxpr(body)(z(3))


@pytest.mark.parametrize("value", [1.0, 1, np.float64(1), np.int32(1), weak(1.0), weak(1)])
def test_float_takes_real_numbers_of_rank_0(value):
    """Python and array scalars; `complex` takes them too."""
    check(one(float), value)
    check(one(complex), value)


@pytest.mark.parametrize("value", [True, "1", None, z(1), array(True), 1j, weak(1j)])
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


def test_numbers_of_numpy_have_the_dtype_that_is_annotated():
    """Wider, narrower or of another kind, they are refused as arrays of JAX are."""
    for dtype in ("int32", "float64", "complex64"):
        assert f"has dtype {dtype}" in refusal(one(Float32[Array, "n"]), np.zeros(3, dtype))


@pytest.mark.parametrize("count", [1, 3])
def test_a_tuple_has_as_many_items_as_its_annotation(count):
    """One more is refused as one less is."""
    pair = tuple[Float[Array, "n"], Float[Array, "n"]]
    assert f"has {count} items, and" in refusal(one(pair), (z(2),) * count)


def test_an_alternative_that_does_not_fit_binds_nothing():
    """It has found `n` to be 2 when it meets 3; then `n` is what the next argument says."""

    def f(
        x: tuple[Float[Array, "n"], Float[Array, "n"]]
        | tuple[Float[Array, "m"], Float[Array, "k"]],
        y: Float[Array, "n"],
    ): ...

    sizes, _ = check(f, (z(2), z(3)), z(5))
    assert sizes.size_by_axis == {"m": 2, "k": 3, "n": 5}
