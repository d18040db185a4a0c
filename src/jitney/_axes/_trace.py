"""Trace a function with symbolic sizes, watched, and compare it with what it is at two of the sizes that the symbols stand for."""

from __future__ import annotations

import sysconfig
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax import export
from jax.extend import core

from .._jaxprs import opened, programs
from ._jax import dtypes, make_jaxpr
from ._refusal import Refused
from ._walk import Op
from ._watch import LIBRARIES, watched

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Traced:
    """A program with symbolic sizes."""

    jaxpr: Any
    ranges: Mapping[str, tuple[int, int]]

    @property
    def out_dims(self) -> list[Shape]:
        return [tuple(aval.shape) for aval in self.jaxpr.out_avals]


def symbolic_sizes(ranges: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """One of JAX's symbolic dimensions for each symbol, known to lie in its range."""
    bounds = [f"{name} {sign} {bound}" for name, (low, high) in ranges.items() for sign, bound in ((">=", low), ("<=", high))]
    return dict(zip(ranges, export.symbolic_shape(", ".join(ranges), constraints=bounds), strict=True))


def trace(fn: Callable[..., Any], avals: Callable[[Mapping[str, Any]], Sequence[Any]], ranges: Mapping[str, tuple[int, int]]) -> Traced:
    """Trace `fn` for all sizes in the ranges at once.

    Args:
        fn: Takes arrays, returns a sequence of arrays.
        avals: The abstract arguments, from a size for each symbol.
        ranges: Symbol -> the least and the largest size it stands for.

    Raises:
        Refused: The function needs to know a size, or does different things for different ones.
        Exception: What the function raises at any size, known or not.
    """
    token = _AT_ANY_SIZE.set(ranges)
    try:
        return _traced(lambda *arrays: fn(*arrays), avals, ranges)  # a function of its own: JAX may know `fn` from a trace at one size
    finally:
        _AT_ANY_SIZE.reset(token)


def at_any_size() -> bool:
    """Whether what is traced now must do the same at every size, so that nothing may be chosen by a size."""
    return _AT_ANY_SIZE.get() is not None


def ranges_at_hand() -> Mapping[str, tuple[int, int]]:
    """The symbols of the trace under way, and which sizes they stand for; none if all sizes are known."""
    return _AT_ANY_SIZE.get() or {}


_AT_ANY_SIZE: ContextVar[Mapping[str, tuple[int, int]] | None] = ContextVar("at_any_size", default=None)


def _traced(fn: Callable[..., Any], avals: Callable[[Mapping[str, Any]], Sequence[Any]], ranges: Mapping[str, tuple[int, int]]) -> Traced:
    sizes = symbolic_sizes(ranges)
    jaxpr: Any = None
    failed: Exception | None = None
    with watched() as found:
        try:
            jaxpr = make_jaxpr(fn)(*avals(sizes))
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001
            failed = error
    if failed is not None:
        make_jaxpr(fn)(*avals(probes(ranges)[0]))  # raises what is wrong at any size
        raise Refused(_place(failed), f"needs to know a size: {_first_line(failed)}") from failed
    if found:  # code that catches everything has caught it
        raise found[0]
    expected = fingerprint(jaxpr)
    for probe in probes(ranges):
        if not expected.fits(fingerprint(make_jaxpr(fn)(*avals(probe)))):
            raise Refused("", f"does other operations at size {' and '.join(map(str, probe.values()))}")
    return Traced(jaxpr, ranges)


def probes(ranges: Mapping[str, tuple[int, int]]) -> list[dict[str, int]]:
    """Two sets of sizes from the ranges; where there are several symbols their sizes are unequal if they can be."""
    low = {name: min(first + i, last) for i, (name, (first, last)) in enumerate(ranges.items())}
    high = {name: max(last - i, first) for i, (name, (first, last)) in enumerate(ranges.items())}
    return [low] if low == high else [low, high]


# Operations that JAX chooses by whether a size is known: the same elements arrive at the same places.
_NAMES = (
    "add_any broadcast_in_dim concatenate convert_element_type copy copy_p dim_as_value dynamic_slice dynamic_update_slice expand_dims "
    "gather iota pad reshape rev scatter scatter-add select_n slice split squeeze stack stop_gradient tile transpose"
)
_MOVES = frozenset(_NAMES.split())


@dataclass(frozen=True)
class Fingerprint:
    """What a program does with arrays of floating-point numbers, by operation.

    Args:
        operations: How often each operation occurs, inside calls and loops too.
        numbers: How often each occurs with a certain number written into it.
    """

    operations: Counter[str]
    numbers: Counter[tuple[str, str]]

    def fits(self, exact: Fingerprint) -> bool:
        """Whether a program at a certain size does the same. It may have more numbers written into it, those made of the size."""
        return self.operations == exact.operations and self.numbers <= exact.numbers


def fingerprint(jaxpr: Any) -> Fingerprint:
    """Count what is computed from the arguments. What is made of constants and sizes alone JAX folds where the size is known."""
    found = Fingerprint(Counter(), Counter())
    _count(jaxpr, None, found)
    return found


def _count(jaxpr: Any, given: Sequence[bool] | None, found: Fingerprint) -> None:
    program = opened(jaxpr)[0]
    known = {atom for atom, is_given in zip(program.invars, given or [True] * len(program.invars), strict=True) if is_given}
    for eqn in program.eqns:
        operands = [not isinstance(atom, core.Literal) and atom in known for atom in eqn.invars]
        if not any(operands):
            continue
        known.update(eqn.outvars)
        op = Op(eqn)
        inside = [] if op.name in _MOVES else programs(op.params)
        for part in inside:
            inputs = len(opened(part)[0].invars)
            _count(part, operands[:inputs] if inputs == len(operands) else None, found)
        if not inside and op.name not in _MOVES and any(map(_is_float_array, (*eqn.invars, *eqn.outvars))):
            found.operations[op.name] += 1
            found.numbers.update((op.name, str(atom.val)) for atom in eqn.invars if isinstance(atom, core.Literal))


def _is_float_array(atom: Any) -> bool:
    aval: Any = atom.aval
    return len(getattr(aval, "shape", ())) > 0 and dtypes.issubdtype(aval.dtype, np.inexact)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _place(error: BaseException) -> str:
    """The innermost line of the user's in a traceback."""
    skipped = (*LIBRARIES, sysconfig.get_path("stdlib"), "<")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(skipped)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} ({frames[-1].name})" if frames else ""
