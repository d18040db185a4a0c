"""Remedies of what is said when a function is called: its contract, its static values, what it
returns.
"""

from __future__ import annotations

import argparse
import collections.abc
import threading
import types
from collections import UserDict, deque
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, PyTree

import jitney
from jitney import optimize
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
N = array([1, 2, 3], np.int32)
CHECK, KINDS, SIZES = "_contract/check.py", "_contract/kinds.py", "_contract/sizes.py"
EXAMPLES, LIKES, STATICS = (
    "_program/examples.py",
    "_values/array_likes.py:numbers_of",
    "_values/static_values.py",
)


def double(x: Float[Array, "n"]):
    return 2 * x


def double_any(x):
    return 2 * x


def double_ints(x: Int[Array, "n"]):
    return 2 * x


def double_32(x: Float32[Array, "n"]):
    return 2 * x


def double_ndarray(x: Float[np.ndarray, "n"]):
    return 2 * x


def maybe(x: Float[Array, "n"] | None):
    return X if x is None else 2 * x


def of_list(x: list):
    return x[0]


def counted(x: Float[Array, "n"], times: int):
    return x * times


def counted_array(x: Float[Array, "n"], times: Int[Array, ""]):
    return x * times.astype(x.dtype)


def scaled(x: Float[Array, "n"], by: float):
    return x * by


def scaled_by_array(x: Float[Array, "n"], by: Float[Array, "..."]):
    return x * by


def paired(x: tuple[Float[Array, "n"], Float[Array, "n"]]):
    return x[0] + x[1]


def dot(x: Float[Array, "n"], y: Float[Array, "n"]):
    return jnp.sum(x * y)


def outer(x: Float[Array, "n"], y: Float[Array, "m"]):
    return jnp.sum(x) * jnp.sum(y)


def of_three(x: Float[Array, "3"]):
    return jnp.sum(x)


def of_any_size(x: Float[Array, "n"]):
    return jnp.sum(x)


def doubled_size(x: Float[Array, "n"], y: Float[Array, "2*n"]):
    return jnp.sum(x) + jnp.sum(y)


def trees(a: PyTree[Float[Array, "_"], "T"], b: PyTree[Float[Array, "_"], "T"]):
    return jax.tree.map(jnp.add, a, b)


def apart(a: PyTree[Float[Array, "_"], "T"], b: PyTree[Float[Array, "_"], "S"]):
    return jax.tree.leaves(a)[0] + jax.tree.leaves(b)[0]


class Layer(eqx.Module):
    w: Array

    def __call__(self, x):
        return self.w * x


def of_layer(layer: Layer, x: Float[Array, "n"]):
    return layer(x)


class Read:
    """As a data set of an open file."""

    shape, dtype = (3,), np.dtype(np.float32)

    def __getitem__(self, at):
        return HOST[at]

    def __array__(self, dtype=None, copy=None):
        return HOST


class Frame(Read):
    def to_numpy(self):
        return HOST


class Tensor(Read):
    def __dlpack__(self, **_):
        raise NotImplementedError

    def __dlpack_device__(self):
        return (1, 0)


class Unit(np.ndarray):
    def __array_finalize__(self, other):
        pass


class Unkeyed:
    __hash__ = None

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return self.factor == other.factor


class Keyed(Unkeyed):
    def __hash__(self):
        return hash(self.factor)


class Named(list):
    name = ""

    def __init__(self, items, name):
        super().__init__(items)
        self.name = name


class Holder:
    """As objects that are no trees."""

    def __init__(self, x):
        self.x = x


class Held(eqx.Module):
    x: Array


class Mapped(collections.abc.Mapping):
    def __getitem__(self, name):
        return {"a": 2.0}[name]

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


class UnkeyedRead(Read):
    __hash__ = None

    def __eq__(self, other):
        return True


class LayerOfLibrary(eqx.Module):
    w: Array


def factor(x, s):
    return x * s.factor


def first(x, s):
    return x * s[0]


def itself():
    loop: list[Any] = [2.0]
    loop.append(loop)
    return loop


def returns_iterator(x):
    return iter([x])


def returns_list(x):
    return [x]


def returns_holder(x):
    return Holder(2 * x)


def returns_module(x):
    return Held(2 * x)


def returns_lock(x):
    return x, threading.Lock()


def updating(x, state: dict):
    state["x"] = 2 * x
    return x


def updated(x, state: dict):
    state = dict(state)
    state["x"] = 2 * x
    return state["x"]


CASES = [
    # The contract.
    Remedy(
        f"{CHECK}:_fit_array",
        "cast it with `.astype(...)`",
        lambda: optimize(double)(N),
        lambda: optimize(double)(N.astype(jnp.float32)),
        2.0 * np.arange(1, 4),
        core=True,
    ),
    Remedy(
        f"{CHECK}:_fit_array",
        "or annotate `",
        lambda: optimize(double)(N),
        lambda: optimize(double_ints)(N),
        2 * np.arange(1, 4),
    ),
    Remedy(
        f"{CHECK}:_not_an_array",
        "or annotate `… | None`",
        lambda: optimize(double)(None),
        lambda: optimize(maybe)(None),
        HOST,
    ),
    Remedy(
        f"{CHECK}:_not_an_array",
        "pass `jnp.asarray(...)` of it",
        lambda: optimize(double)([1.0, 2.0]),
        lambda: optimize(double)(jnp.asarray([1.0, 2.0])),
        np.array([2.0, 4.0]),
    ),
    Remedy(
        f"{CHECK}:_not_an_array",
        "pass an array, or correct the annotation",
        lambda: optimize(double)("text"),
        lambda: optimize(double)(X),
        2 * HOST,
    ),
    Remedy(
        f"{CHECK}:_fit_static",
        "annotate it `…[Array,",
        lambda: optimize(counted)(X, array(2)),
        lambda: optimize(counted_array)(X, array(2)),
        2 * HOST,
    ),
    Remedy(
        f"{CHECK}:_fit_static",
        "or pass a plain `",
        lambda: optimize(counted)(X, array(2)),
        lambda: optimize(counted)(X, 2),
        2 * HOST,
    ),
    Remedy(
        f"{CHECK}:_wrong_kind",
        "pass …, or correct the annotation",
        lambda: optimize(of_layer)(3, X),
        lambda: optimize(of_layer)(Layer(X), X),
        HOST * HOST,
    ),
    Remedy(
        f"{CHECK}:_fit_union",
        "pass what one alternative describes",
        lambda: optimize(maybe)("text"),
        lambda: optimize(maybe)(X),
        2 * HOST,
    ),
    Remedy(
        f"{CHECK}:_fit_container",
        "pass that many items",
        lambda: optimize(paired)((X, X, X)),
        lambda: optimize(paired)((X, X)),
        2 * HOST,
    ),
    Remedy(
        f"{CHECK}:_two_structures",
        "pass trees of one structure",
        lambda: optimize(trees)({"a": X}, [X]),
        lambda: optimize(trees)([X], [X]),
        [2 * HOST],
    ),
    Remedy(
        f"{CHECK}:_two_structures",
        "or rename it in one annotation",
        lambda: optimize(trees)({"a": X}, [X]),
        lambda: optimize(apart)({"a": X}, [X]),
        2 * HOST,
    ),
    Remedy(
        f"{KINDS}:fit_scalar",
        "pass a ….",
        lambda: optimize(scaled)(X, "text"),
        lambda: optimize(scaled)(X, 2.0),
        2 * HOST,
    ),
    Remedy(
        f"{KINDS}:fit_scalar",
        "pass a number, annotate",
        lambda: optimize(scaled)(X, X),
        lambda: optimize(scaled)(X, 2.0),
        2 * HOST,
    ),
    Remedy(
        f"{KINDS}:fit_scalar",
        '[Array, "..."]`, or give',
        lambda: optimize(scaled)(X, X),
        lambda: optimize(scaled_by_array)(X, X),
        HOST * HOST,
    ),
    Remedy(
        f"{KINDS}:fit_scalar",
        "or give the extra axis to `vmap`",
        lambda: optimize(scaled)(X, X),
        lambda: optimize(vmap={"b": {"by": 0}})(scaled)(X, X),
        np.outer(HOST, HOST),
    ),
    Remedy(
        f"{SIZES}:two_sizes",
        "pass equal sizes",
        lambda: optimize(dot)(X, X[:2]),
        lambda: optimize(dot)(X, X),
        HOST @ HOST,
        core=True,
    ),
    Remedy(
        f"{SIZES}:two_sizes",
        "or rename the axis in one annotation",
        lambda: optimize(dot)(X, X[:2]),
        lambda: optimize(outer)(X, X[:2]),
        HOST.sum() * HOST[:2].sum(),
    ),
    Remedy(
        f"{SIZES}:_wrong_rank",
        "pass an array of that rank",
        lambda: optimize(double)(X[None]),
        lambda: optimize(double)(X),
        2 * HOST,
    ),
    Remedy(
        f"{SIZES}:_wrong_rank",
        "or give an extra axis to `vmap`",
        lambda: optimize(double)(X[None]),
        lambda: optimize(vmap="b")(double)(X[None]),
        2 * HOST[None],
    ),
    Remedy(
        f"{SIZES}:_fixed_size_mismatch",
        "pass size …",
        lambda: optimize(of_three)(X[:2]),
        lambda: optimize(of_three)(X),
        HOST.sum(),
    ),
    Remedy(
        f"{SIZES}:_fixed_size_mismatch",
        "in the annotation",
        lambda: optimize(of_three)(X[:2]),
        lambda: optimize(of_any_size)(X[:2]),
        HOST[:2].sum(),
    ),
    Remedy(
        f"{SIZES}:_wrong_expression",
        "pass an array of that size",
        lambda: optimize(doubled_size)(X, X),
        lambda: optimize(doubled_size)(X, jnp.concatenate([X, X])),
        3 * HOST.sum(),
    ),
    # Ahead of time.
    Remedy(
        f"{EXAMPLES}:_check_sizes",
        'write sizes={"n": 100}',
        lambda: optimize(double).compile(sizes=100),
        lambda: optimize(double).compile(sizes={"n": 100})(np.ones(100, np.float32)),
        np.full(100, 2.0),
    ),
    Remedy(
        f"{EXAMPLES}:_check_sizes",
        "did you mean",
        lambda: optimize(dot).plan(sizes={"nn": 100}),
        lambda: optimize(double).compile(sizes={"n": 3})(X),
        2 * HOST,
    ),
    Remedy(
        f"{EXAMPLES}:_check_sizes",
        "pass one.",
        lambda: optimize(double).compile(sizes={"n": 1.5}),
        lambda: optimize(double).compile(sizes={"n": 3})(X),
        2 * HOST,
    ),
    Remedy(
        f"{EXAMPLES}:_value_of",
        "pass an example for",
        lambda: optimize(double_any).compile(),
        lambda: optimize(double_any).compile(jax.ShapeDtypeStruct((3,), np.float32))(X),
        2 * HOST,
    ),
    Remedy(
        f"{EXAMPLES}:_no_size",
        "pass sizes={",
        lambda: optimize(double).compile(),
        lambda: optimize(double).compile(sizes={"n": 3})(X),
        2 * HOST,
    ),
    Remedy(
        f"{EXAMPLES}:_warn_unmapped_arrays",
        "pass an example for what is shared",
        lambda: optimize(vmap="b")(dot).compile(sizes={"n": 3, "b": 2}),
        lambda: optimize(vmap="b")(dot).compile(y=X, sizes={"n": 3, "b": 2})(np.stack([X, X]), X),
        np.full(2, HOST @ HOST),
    ),
    Remedy(
        f"{EXAMPLES}:_warn_unmapped_arrays",
        "or say which are mapped",
        lambda: optimize(vmap="b")(dot).compile(sizes={"n": 3, "b": 2}),
        lambda: optimize(vmap={"b": {"x": 0}})(dot).compile(sizes={"n": 3, "b": 2})(
            np.stack([X, X]), X
        ),
        np.full(2, HOST @ HOST),
    ),
    # What looks like an array.
    Remedy(
        LIKES,
        "pass `….to_numpy()`",
        lambda: optimize(double_any)(Frame()),
        lambda: optimize(double_any)(Frame().to_numpy()),
        2 * HOST,
        core=True,
    ),
    Remedy(
        LIKES,
        "pass `…[:]`, which reads it",
        lambda: optimize(double_any)(Read()),
        lambda: optimize(double_any)(Read()[:]),
        2 * HOST,
    ),
    Remedy(
        LIKES,
        "pass `jnp.asarray(…)`",
        lambda: optimize(double_any)(Tensor()),
        lambda: optimize(double_any)(jnp.asarray(np.asarray(Tensor()))),
        2 * HOST,
    ),
    Remedy(
        LIKES,
        "pass `np.asarray(…)`, its numbers alone",
        lambda: optimize(double_any)(HOST.view(Unit)),
        lambda: optimize(double_any)(np.asarray(HOST.view(Unit))),
        2 * HOST,
    ),
    Remedy(
        LIKES,
        ".filled(...)`",
        lambda: optimize(double_any)(np.ma.masked_less(HOST, 0)),
        lambda: optimize(double_any)(np.ma.masked_less(HOST, 0).filled(0)),
        2 * np.maximum(HOST, 0),
    ),
    Remedy(
        f"{STATICS}:_numbers",
        "pass `np.asarray` of it",
        lambda: optimize(static="s")(lambda x, s: x * s[0])(X, UnkeyedRead()),
        lambda: optimize(static="s")(lambda x, s: x * s[0])(X, np.asarray(UnkeyedRead())),
        HOST,
    ),
    Remedy(
        f"{STATICS}:_numbers",
        "pass `dict(...)` of it",
        lambda: optimize(lambda x, s: x * s["a"])(X, UserDict(a=2.0)),
        lambda: optimize(lambda x, s: x * s["a"])(X, dict(UserDict(a=2.0))),
        2 * HOST,
    ),
    Remedy(
        f"{STATICS}:_numbers",
        "pass `list(...)` of it",
        lambda: optimize(lambda x, s: x * s[0])(X, deque([2.0])),
        lambda: optimize(lambda x, s: x * s[0])(X, list(deque([2.0]))),
        2 * HOST,
    ),
    Remedy(
        f"{STATICS}:_numbers",
        "pass `vars(...)` of it",
        lambda: optimize(lambda x, s: x * s.a)(X, argparse.Namespace(a=2.0)),
        lambda: optimize(lambda x, s: x * s["a"])(X, vars(argparse.Namespace(a=2.0))),
        2 * HOST,
    ),
    # Static values.
    Remedy(
        f"{STATICS}:_hashable",
        "give the type `__hash__` and `__eq__`",
        lambda: optimize(factor)(X, Unkeyed(2.0)),
        lambda: optimize(factor)(X, Keyed(2.0)),
        2 * HOST,
        core=True,
    ),
    Remedy(
        f"{STATICS}:proxied_dict",
        "pass a dict, or a proxy of one",
        lambda: optimize(lambda x, s: x * s["a"])(X, types.MappingProxyType(Mapped())),
        lambda: optimize(lambda x, s: x * s["a"])(X, {"a": 2.0}),
        2 * HOST,
    ),
    Remedy(
        f"{STATICS}:static_key",
        "pass a plain tree",
        lambda: optimize(static="s")(first)(X, itself()),
        lambda: optimize(static="s")(first)(X, [2.0]),
        2 * HOST,
    ),
    Remedy(
        f"{STATICS}:_array_parts",
        "take its name out of `static`",
        lambda: jax.jit(lambda s: optimize(static="s")(lambda x, s: x * s)(X, s))(
            array(2.0, np.float32)
        ),
        lambda: jax.jit(lambda s: optimize(lambda x, s: x * s)(X, s))(array(2.0, np.float32)),
        2 * HOST,
    ),
    Remedy(
        "_values/static_once.py:Static.__init__",
        "pass the value as it is",
        lambda: optimize(factor)(X, jitney.static(Keyed(2.0))),
        lambda: optimize(factor)(X, Keyed(2.0)),
        2 * HOST,
    ),
    Remedy(
        "_view/layout.py:Layout._refuse_unnamed_statics",
        'write @optimize(static="…"), or pass the value itself',
        lambda: optimize(lambda x, s: x * s[0])(X, jitney.static([2.0])),
        lambda: optimize(static="s")(lambda x, s: x * s[0])(X, jitney.static([2.0])),
        2 * HOST,
    ),
    Remedy(
        "_view/layout.py:Layout._refuse_used_up",
        "pass a list, a tuple or an array",
        lambda: optimize(lambda x, s: x * next(s))(X, iter([2.0])),
        lambda: optimize(first)(X, [2.0]),
        2 * HOST,
    ),
    # Results.
    Remedy(
        "_view/result.py:refuse_used_up",
        "return a list, a tuple or an array",
        lambda: optimize(returns_iterator)(X),
        lambda: optimize(returns_list)(X),
        [HOST],
    ),
    Remedy(
        "_program/tracing/leaked_tracers.py:refuse_left_in_result",
        ", or ",
        lambda: optimize(returns_holder)(X),
        lambda: optimize(returns_module)(X).x,
        2 * HOST,
    ),
    Remedy(
        "_program/tracing/leaked_tracers.py:refuse_left_in_result",
        "return the arrays",
        lambda: optimize(returns_holder)(X),
        lambda: optimize(lambda x: returns_holder(x).x)(X),
        2 * HOST,
    ),
    Remedy(
        "_body/updates.py:lost_updates_message",
        "or update a copy",
        lambda: optimize(updating)(X, {"x": X}),
        lambda: optimize(updated)(X, {"x": X}),
        2 * HOST,
    ),
    Remedy(
        "_body/updates.py:lost_updates_message",
        "return what has changed, and go on with that",
        lambda: optimize(updating)(X, {"x": X}),
        lambda: optimize(lambda x, state: {**state, "x": 2 * x})(X, {"x": X})["x"],
        2 * HOST,
    ),
    # Numbers that JAX has not.
    Remedy(
        "_diagnosis/tracer_errors.py:no_number",
        "convert it to numbers",
        lambda: optimize(double_any)(np.array(["1", "2"])),
        lambda: optimize(double_any)(np.array(["1", "2"]).astype(np.float32)),
        np.array([2.0, 4.0]),
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:no_number",
        "pass ….astype(…)",
        lambda: optimize(double_any)(HOST.astype(">f4")),
        lambda: optimize(double_any)(HOST.astype(">f4").astype("float32")),
        2 * HOST,
    ),
    Remedy(
        "_diagnosis/tracer_errors.py:no_number",
        "pass an array; shapes are for",
        lambda: optimize(double_any)(jax.ShapeDtypeStruct((3,), np.float32)),
        lambda: optimize(double_any)(X),
        2 * HOST,
    ),
    Remedy(
        "_view/fitting.py:_range_error",
        "or make them smaller on the host",
        lambda: optimize(double_any)(np.array([1e300])),
        lambda: optimize(double_any)(np.array([1e300]) / 1e300),
        np.array([2.0]),
    ),
    Remedy(
        "_view/fitting.py:_warn_of_spread",
        "subtract the first of them on the host",
        lambda: optimize(double_any)(1e9 + np.arange(3.0)),
        lambda: optimize(double_any)(np.arange(3.0)),
        2 * np.arange(3.0),
    ),
    Remedy(
        "_program/lowered.py:Compiled.__call__",
        "pass the static values that `lower` was given",
        lambda: optimize(counted).lower(X, 2).compile()(X, 3),
        lambda: optimize(counted).lower(X, 2).compile()(X, 2),
        2 * HOST,
    ),
    Remedy(
        "_program/lowered.py:Compiled.__call__",
        "or call the decorated function itself",
        lambda: optimize(counted).lower(X, 2).compile()(X, 3),
        lambda: optimize(counted)(X, 3),
        3 * HOST,
    ),
    # Classes.
    Remedy(
        "_view/field_axes.py:register_axes",
        "pass the class",
        lambda: jitney.register_axes(Layer(X), w="d"),
        lambda: jitney.register_axes(LayerOfLibrary, w="d"),
        None,
    ),
    Remedy(
        "_view/field_axes.py:register_axes",
        "did you mean",
        lambda: jitney.register_axes(LayerOfLibrary, ww="d"),
        lambda: jitney.register_axes(LayerOfLibrary, w="d"),
        None,
    ),
    Remedy(
        "_view/field_axes.py:register_axes",
        'write "out in"',
        lambda: jitney.register_axes(LayerOfLibrary, w=3),
        lambda: jitney.register_axes(LayerOfLibrary, w="out in"),
        None,
    ),
]
