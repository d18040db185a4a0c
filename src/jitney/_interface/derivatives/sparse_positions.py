"""Sparse derivatives whose structure depends on positions: integer arrays among the arguments.

    def f(x, i): return x[i] ** 2       # row k of the Jacobian is zero but for column i[k]

The structure of a sparse derivative has to be known before its numbers. So the arguments that
determine it become static for such a call: other positions are another program, with another
structure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

import jax
import numpy as np

from ..._errors import DerivativeError
from ..._jax.trees import Tracer, tree_flatten
from ..._stages.derivatives.derive import Derived, What

if TYPE_CHECKING:
    from ..program import AnyProgram

T = TypeVar("T")


def with_static_positions(
    function: AnyProgram,
    what: What,
    derivative: AnyProgram,
    act: Callable[[AnyProgram], T],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> T:
    """Call or plan a derivative, with the arguments static that determine its structure.

    Args:
        function: The program that it is a derivative of; it remembers these arguments.
        what: The derivative.
        derivative: Its program.
        act: What is done with the program.
        args: Arguments of the call.
        kwargs: Its keywords.
    """
    key = derivative.body
    known = function.positions

    # Each failure names the arguments whose values the structure needs; they are static in the
    # next try.
    while True:
        names = known.get(key, ())
        is_known = names and _are_positions(derivative, names, args, kwargs)
        try:
            return act(_static_at(function, what, derivative, names) if is_known else derivative)
        except DerivativeError as error:
            more = tuple(name for name in error.positions if name not in names)
            if not more or not _are_positions(derivative, more, args, kwargs):
                raise
            known[key] = (*names, *more)


def _static_at(
    function: AnyProgram,
    what: What,
    derivative: AnyProgram,
    names: tuple[str, ...],
) -> AnyProgram:
    """Return the program of a derivative with these arguments static."""
    key = (what, derivative.body, names)
    static = function.kept(key)
    if static is None:
        static_names = (*derivative.options.static, *names)
        options = replace(derivative.options, static=static_names)
        body = cast("Derived", derivative.body)
        static = function.with_body(replace(body, positions=names), options, key)
    return static


def _are_positions(
    derivative: AnyProgram,
    names: tuple[str, ...],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> bool:
    """Return whether these arguments of a call can be static by value: concrete arrays of integers,
    equal for all lanes.
    """
    options = derivative.options
    if options.vmap or options.pad or options.chunk or options.shard:
        return False
    given = derivative.arguments(args, kwargs)
    leaves = tree_flatten([given.get(name, "") for name in names])[0]
    return all(map(_holds_integers, leaves))


def _holds_integers(leaf: object) -> bool:
    """Return whether a leaf is a concrete array of integers or truth values."""
    if isinstance(leaf, Tracer) or not isinstance(leaf, (np.ndarray, jax.Array)):
        return False
    return leaf.dtype.kind in "iub"
