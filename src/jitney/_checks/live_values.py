"""Values of a program of which only the live ones exist, and parts of it as functions of these.

A value that is not live is None. Sub-jaxprs get and return the live values only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from .._jax.programs.liveness import is_empty
from .._jax.typed import Atom, Aval
from .flags import Code, Flag

Value = Any
"""A value of the program: an array, or None where it is not live."""
Results = tuple[list[Value], Flag]
Part = Callable[..., Results]
"""A sub-jaxpr as a function of the flag and its live arguments."""
T = TypeVar("T")


def select_live(values: Sequence[T], needed: Sequence[bool]) -> list[T]:
    """Return the live ones of some values."""
    return [value for value, is_needed in zip(values, needed, strict=True) if is_needed]


def scatter_live(values: Sequence[object], needed: Sequence[bool]) -> list[Value]:
    """Return live values in their places, with None between them."""
    left = iter(values)
    return [next(left) if is_needed else None for is_needed in needed]


def fill_empty(values: Sequence[Value], atoms: Sequence[Atom]) -> list[Value]:
    """Replace dead values without elements by empty arrays of their type.

    Liveness never asks for an empty array, since its type is enough to build one.
    """
    filled = list(values)
    for i, (value, atom) in enumerate(zip(values, atoms, strict=True)):
        if value is None and is_empty(atom.aval):
            filled[i] = zeros(atom.aval)
    return filled


def zeros(aval: Aval) -> jax.Array:
    """Return zeros of a type."""
    return jax.lax.full(aval.shape, 0, aval.dtype)


def flat_results(part: Part) -> Callable[..., list[Value]]:
    """Return a part whose flag is the last of its results."""

    def run(*operands: jax.Array) -> list[Value]:
        out, flag = part(*operands)
        return [*out, flag]

    return run


def trace_part(fn: Callable[..., object], operands: Sequence[Code]) -> object:
    """Trace a function of arguments of these types, weak types included."""
    arguments: list[jax.ShapeDtypeStruct] = []
    for operand in operands:
        aval = jax.typeof(operand)
        weak_type = bool(getattr(aval, "weak_type", False))
        arguments.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak_type))
    return jax.make_jaxpr(fn)(*arguments)
