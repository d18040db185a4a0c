"""Static values of every kind, at random and by hand; what a body could tell of one, and how one is
changed.
"""

import dataclasses
import enum
import functools
import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import hypothesis.strategies as st
import numpy as np


@dataclasses.dataclass
class Loose:
    """Compared by value, so it has no hash."""

    n: Any
    label: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Hashable where its fields are, and then `Frozen(1) == Frozen(1.0)`."""

    n: Any
    note: Any = dataclasses.field(default=None, compare=False)


class Pair(NamedTuple):
    a: Any
    b: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Metres(float):
    pass


class Scale(eqx.Module):
    factor: Any
    name: str = eqx.field(static=True, default="scale")


class Unit(np.ndarray):
    """An array with an attribute, as those of astropy."""

    def __array_finalize__(self, made_from):
        self.unit = getattr(made_from, "unit", None)


def with_unit(values, unit):
    made = np.asarray(values).view(Unit)
    made.unit = unit
    return made


NUMBERS = st.one_of(
    st.sampled_from(
        [
            0,
            1,
            True,
            False,
            0.0,
            -0.0,
            1.0,
            math.nan,
            math.inf,
            0j,
            complex(0, -0.0),
            complex(-0.0, 0),
            1 + 0j,
        ]
    ),
    st.integers(-3, 3),
    st.floats(),
    st.complex_numbers(),
)
DTYPES = st.sampled_from(
    ["bool", "int8", "int32", "uint8", "float16", "float32", "float64", "complex64"]
)
ARRAYS = st.builds(
    lambda values, dtype: np.asarray(values, dtype=dtype),
    st.one_of(st.integers(0, 1), st.lists(st.integers(0, 1), max_size=3)),
    DTYPES,
)
ATOMS = st.one_of(
    NUMBERS,
    st.none(),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.sampled_from([Colour.RED, Colour.BLUE, int, float, math.sin]),
)
HASHABLE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.frozensets(inner, max_size=2),
        st.builds(Frozen, inner),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(
        HASHABLE,
        ARRAYS,
        st.builds(lambda array: array.reshape(-1)[:1].sum(), ARRAYS),
        st.sets(HASHABLE, max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=2), NUMBERS), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Loose, inner, inner),
        st.builds(Frozen, inner),
        st.builds(Pair, inner, inner),
        st.builds(slice, inner, inner),
        st.builds(lambda a, b: functools.partial(max, a, key=b), inner, inner),
    ),
    max_leaves=6,
)


def values():
    """Values of each kind, beside those that are equal or look alike; new objects in each call."""
    return [
        *(0, False, 0.0, -0.0, 0j, complex(0, -0.0), complex(-0.0, 0)),
        *(1, True, 1.0, 1 + 0j, -3, 1e300, math.nan, math.inf, -math.inf),
        *(None, "", "0", b"", b"0", Colour.RED, Colour.BLUE, int, float, math.sin),
        *((), (1, 2), (True, 2), Pair(1, 2), Pair(1, 2.0), Pair(None, None)),
        *(Frozen(1), Frozen(1.0), Frozen((1, (0.0,))), Frozen([1]), Frozen(Loose({"k": [1]}))),
        *(frozenset(), frozenset({1, "a"}), frozenset({True, "a"}), set(), {1, "a"}, {True, "a"}),
        *([], [1, 2], [True, 2], [2, 1], [[1], {"k": (1, [0.0])}], [[1], {"k": (1, [-0.0])}]),
        *({}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {1: [1]}, {1: 0}, {True: 0}, {math.nan: {}}),
        *(Loose(1), Loose(1.0), Loose(None, 1), Loose(Loose([]), {"k": {0}})),
        *(slice(0, 1), slice(False, 1), slice([1], None), slice(-0.0, ())),
        *(functools.partial(max, n, key=key) for n, key in ((1, 2), (True, 2), ([1], {}))),
        *(np.array(1), np.array([1]), np.array([1, 0]), np.array([1], "int8"), np.array([1], bool)),
        *(np.zeros(0, "f4"), np.zeros(0, "i4"), np.zeros(1), -np.zeros(1), np.zeros(1, "float16")),
        *(np.array(1j, "complex64"), [np.arange(3.0), (np.array([math.nan]),)]),
        *(np.bool_(True), np.int8(1), np.int64(1), np.uint8(0), np.float32(0), np.float64(0)),
    ]


def neighbours():
    """Each of `values()` beside the next one, and every sixth beside itself made anew."""
    made, anew = values(), values()
    return [*itertools.pairwise(made), *zip(made[::6], anew[::6], strict=True)]


def shown(value):
    """A value in words, by an independent walk: all that a body could tell about it, order of sets
    apart.
    """
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value)}{value.dtype}{value.shape}{[shown(item) for item in np.asarray(value).ravel().tolist()]}"
    if isinstance(value, dict):
        return f"{type(value)}{[(shown(k), shown(v)) for k, v in value.items()]}"
    if isinstance(value, set | frozenset):
        return f"{type(value)}{sorted(map(shown, value))}"
    if isinstance(value, list | tuple):
        return f"{type(value)}{[shown(part) for part in value]}"
    if isinstance(value, slice):
        return f"slice{shown((value.start, value.stop, value.step))}"
    if isinstance(value, functools.partial):
        return f"partial{shown((value.func, value.args, value.keywords))}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value)}{[shown(getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare]}"
    return f"{type(value)}{value!r}"


def change(value):
    """Change whatever can be changed in place; True if something was."""
    if isinstance(value, np.ndarray) and value.size:
        value.reshape(-1)[:1] = (
            ~value.reshape(-1)[:1]
            if value.dtype == bool
            else value.reshape(-1)[:1] + np.asarray(1, value.dtype)
        )
        return True
    if isinstance(value, list):
        [change(part) for part in value]
        value.append("new")
        return True
    if isinstance(value, set):
        value.add("new")
        return True
    if isinstance(value, dict):
        [change(part) for part in value.values()]
        value["brand new"] = 1
        return True
    if isinstance(value, Loose):
        change(value.n)
        value.label = "brand new"
        return True
    if isinstance(value, Frozen):
        return change(value.n)
    if isinstance(value, tuple):
        return sum(map(change, value)) > 0
    if isinstance(value, functools.partial):
        return change((*value.args, *value.keywords.values()))
    return False
