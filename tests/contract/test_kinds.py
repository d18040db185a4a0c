"""Whether a value is of the kind of a static annotation: `isinstance` where that is all, beartype
elsewhere.
"""

import collections.abc
import enum
import subprocess
import sys
import typing

import equinox as eqx
import jax
import numpy as np
import pytest
from beartype.door import is_bearable
from beartype.roar import BeartypeException

from jitney._contract.kinds import bearable

T = typing.TypeVar("T")


class Colour(enum.Enum):
    RED = 1


class Holder(typing.Generic[T]):
    pass


class Integers(list[int]):
    pass


class Named(typing.NamedTuple):
    a: int


class Entries(typing.TypedDict):
    a: int


class Closing(typing.Protocol):
    def close(self) -> None: ...


@typing.runtime_checkable
class Sized(typing.Protocol):
    def __len__(self) -> int: ...


class Module(eqx.Module):
    x: int


class Generic(eqx.Module, typing.Generic[T]):
    x: T


class Special(Generic[int]):
    pass


HINTS = (
    None,
    type(None),
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    list,
    tuple,
    dict,
    object,
    type,
    Exception,
    np.ndarray,
    np.generic,
    jax.Array,
    Colour,
    Holder,
    Integers,
    Named,
    Entries,
    Closing,
    Sized,
    Module,
    Generic,
    Special,
    eqx.nn.Linear,
    typing.Any,
    collections.abc.Callable,
    collections.abc.Sequence,
    collections.abc.Hashable,
    list[int],
    tuple[int, ...],
    type[int],
    int | None,
    int | str,
    Module | None,
    Generic | None,
    typing.Literal["a"],
    int | typing.Literal["a"],
    typing.NewType("Metre", float),
    typing.SupportsFloat,
)
VALUES = (
    None,
    1,
    1.5,
    True,
    "a",
    b"a",
    1j,
    [],
    [1],
    ["a"],
    (),
    (1,),
    {},
    {"a": 1},
    {"a": "x"},
    object(),
    int,
    len,
    Exception(),
    Colour.RED,
    Colour,
    Holder(),
    Integers(),
    Integers(["a"]),
    Named(1),
    Named("a"),
    Module(1),
    Module,
    Generic("a"),
    Special(1),
    Special("a"),
    np.zeros(2),
    np.float32(1),
    np.ones(2, int),
)


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_what_is_decided_without_beartype_is_what_beartype_says(hint):
    """Plain classes and their unions by `isinstance`; generic ones, protocols and all else as
    beartype reads them.
    """

    def said(value):
        try:
            return is_bearable(value, hint)
        except BeartypeException:
            return None

    assert [bearable(value, hint) for value in VALUES] == [said(value) for value in VALUES]


@pytest.mark.rest
def test_a_call_with_modules_and_optional_arrays_imports_no_beartype():
    """It has 349 modules, which would be imported by the first call that is checked."""
    code = """
import sys, typing, equinox as eqx, jax.numpy as jnp, jitney
from jaxtyping import Array, Float
class Line(eqx.Module):
    slope: Float[Array, ""]
    offset: Float[Array, ""] | None
@jitney.optimize
def f(line: Line, x: Float[Array, "n"], power: int | None = None) -> Float[Array, "n"]:
    return line.slope * x
f(Line(jnp.ones(()), None), jnp.ones(3))
assert "beartype.door" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
