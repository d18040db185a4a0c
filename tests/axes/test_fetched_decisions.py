"""Decisions by a size with what is fetched from somewhere, and by errors of one's own: against
plain `jax.jit`.
"""

import dataclasses
import functools
import operator
import types
from contextlib import suppress
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest

from jitney import optimize
from tests.axes._sizes import SIZES, V, agrees


def same(a, b):
    return a == b


class Kinds(NamedTuple):
    kind: Any = type


class Slots:
    __slots__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind


@dataclasses.dataclass
class Field:
    kinds: dict[str, Any]


class Layer(eqx.Module):
    kinds: tuple[Any, ...] = eqx.field(static=True)

    def __call__(self, x: V):
        return 2 * x if same(self.kinds[0](x.shape[0]), int) and x.shape[0] == 300 else x


class Holder:
    kind = type

    def chosen(self, name):
        return getattr(self, name)


KINDS, TYPES = {"a": [type]}, (int, type)
ATTRIBUTES = {"class": operator.attrgetter("__class__")}
MODULE = types.SimpleNamespace(inner=types.SimpleNamespace(kind=type))


def out_of_a_dict(x: V):
    return 2 * x if same(KINDS["a"][0](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_tuple(x: V):
    return 2 * x if same(TYPES[1](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_named_tuple(x: V, kinds=Kinds()):  # noqa: B008
    return 2 * x if same(kinds.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_slots(x: V, held=Slots(type)):  # noqa: B008
    return 2 * x if same(held.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_dataclass(x: V, held=Field({"a": type})):  # noqa: B008
    return 2 * x if same(held.kinds["a"](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_module(x: V, layer=Layer((type,))):  # noqa: B008
    return layer(x)


def out_of_a_class(x: V):
    return 2 * x if same(Holder().kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_name_that_is_made(x: V):
    return 2 * x if same(Holder().chosen("ki" + "nd")(x.shape[0]), int) and x.shape[0] == 300 else x


def deep_inside(x: V):
    return 2 * x if same(MODULE.inner.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_an_attribute_getter(x: V):
    return 2 * x if same(ATTRIBUTES["class"](x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_class_of_a_class(x: V):
    return 2 * x if same((1).__class__.__class__(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_partial(x: V, ask=functools.partial(type)):  # noqa: B008
    return 2 * x if same(ask(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_partial_of_isinstance(x: V):
    return 2 * x if functools.partial(isinstance, x.shape[0])(int) and x.shape[0] == 300 else x


def by_what_is_bound(x: V, ask=types.MethodType(isinstance, 3)):  # noqa: B008
    return 2 * x if ask(int) and [isinstance][0](x.shape[0], int) and x.shape[0] == 300 else x


def by_identity_of_a_descriptor(x: V):
    return (
        2 * x
        if str(object.__eq__(x.shape[0], 300)) == "NotImplemented" and x.shape[0] == 300
        else x
    )


def by_names_of_an_object(x: V):
    return 2 * x if same(vars(MODULE)["inner"].kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_an_operator(x: V):
    return 2 * x if operator.index(x.shape[0]) == 300 else x


class TooFewError(Exception):
    pass


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def worded(n):
    try:
        return float(n)
    except TypeError as error:
        raise TooFewError("a size") from error


def by_an_error_in_other_words(x: V):
    try:
        n = worded(x.shape[0])
    except TooFewError:
        return x
    return 2 * x if n == 300 else x


def by_a_context_that_swallows(x: V):
    n = 0.0
    with Swallowing():
        n = float(x.shape[0])
    return 2 * x if n == 300 else x


def by_suppression(x: V):
    n = 0.0
    with suppress(TypeError):
        n = float(x.shape[0])
    return 2 * x if n == 300 else x


FETCHED = (
    by_an_error_in_other_words,
    by_a_context_that_swallows,
    by_suppression,
    out_of_a_dict,
    out_of_a_tuple,
    out_of_a_named_tuple,
    out_of_slots,
    out_of_a_dataclass,
    out_of_a_module,
    out_of_a_class,
    by_a_name_that_is_made,
    deep_inside,
    by_an_attribute_getter,
    by_a_class_of_a_class,
    by_a_partial,
    by_a_partial_of_isinstance,
    by_what_is_bound,
    by_identity_of_a_descriptor,
    by_names_of_an_object,
    by_an_operator,
)


@pytest.mark.core("by_an_error_in_other_words", "out_of_a_dict", "out_of_slots", "out_of_a_class")
@pytest.mark.parametrize("fn", FETCHED, ids=lambda fn: fn.__name__)
def test_no_decision_by_what_is_fetched_goes_unseen(fn):
    """What is called is held against the list, wherever it came from: containers, attributes,
    partials; so are ways around errors.
    """
    padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
    for n in SIZES:
        agrees(padded, plain, n)


def test_errors_of_ones_own_and_texts_of_errors_are_no_decisions():
    """Nothing that JAX says of a size is one of the user's errors; what runs straight to a `raise`
    makes a text.
    """

    def checked(x):
        if x.ndim != 1:
            raise TypeError(f"not {type(x).__name__}")
        return x

    def body(x: V):
        try:
            return checked(x) * 2
        except TooFewError:
            return x

    padded = optimize(body, pad={"n": "pow2"})
    for n in SIZES:
        agrees(padded, jax.jit(body), n)
    assert padded.stats.traces == 1
    assert "each new size" not in str(padded.plan(np.ones(300, np.float32)))
