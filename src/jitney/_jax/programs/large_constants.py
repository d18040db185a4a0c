"""Large constants of a traced program, and the same program with arguments in their place.

An array that a function closes over is a constant of its jaxpr. As a constant of the compiled
program its bytes are written into the text that XLA compiles, folded there, hashed, and stored with
the program. As an argument it is none of that.

    { lambda a:f32[3000,3000]; b:f32[]. let ... }      W * x, with W as the constant `a`
    { lambda ; b:f32[] a:f32[3000,3000]. let ... }     with W as an argument
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import jax
import numpy as np

from ..arrays import bytes_of
from ..trees import canonicalize_dtype, tree_flatten, tree_unflatten
from ..typed import AnyJaxpr, Aval, JaxprEqn, Jitted
from .evaluation import CallStack, evaluate_jaxpr, without_calls
from .jaxprs import called_jaxpr, open_jaxpr, programs, rebind
from .primitives import PLAIN_CALLS

LARGE: Final = 1 << 20
"""Bytes above which a constant is large."""


@dataclass(frozen=True, eq=False)
class LargeConstant:
    """A constant of a jaxpr, or of a jaxpr inside of it.

    Args:
        value: The array, as JAX holds it.
        aval: Its abstract value in the program.
        is_within: Whether only an operation such as `scan` has it, which holds a compiled function
            with this constant.
    """

    value: object
    aval: Aval
    is_within: bool

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return _nbytes(self.aval)


def large_constants(
    jaxpr: object,
    *,
    is_within: bool = False,
) -> list[LargeConstant]:
    """Return the large constants of a jaxpr, each once."""
    return [*{id(each.value): each for each in _large(jaxpr, is_within=is_within)}.values()]


def _large(
    jaxpr: object,
    *,
    is_within: bool,
) -> Iterator[LargeConstant]:
    program, values = open_jaxpr(jaxpr)
    for var, value in zip(program.constvars, values, strict=False):
        if _nbytes(var.aval) > LARGE:
            yield LargeConstant(value, var.aval, is_within)
    for eqn in program.eqns:
        call = _plain_call(eqn)
        for part in programs(eqn.params):
            yield from _large(part, is_within=is_within or part is not call)


def _nbytes(aval: object) -> int:
    # Tokens have no dtype, and that of random keys is not of numbers.
    if not isinstance(aval, Aval) or not isinstance(aval.dtype, np.dtype):
        return 0
    return aval.size * aval.dtype.itemsize


def _plain_call(eqn: JaxprEqn) -> AnyJaxpr | None:
    return called_jaxpr(eqn) if eqn.primitive.name in PLAIN_CALLS else None


def evaluate_with(
    closed: AnyJaxpr,
    arrays: Sequence[object],
    argument: Callable[[object], object],
) -> Sequence[object]:
    """Evaluate a jaxpr with other values for its constants: `argument` of each. Calls of compiled
    functions that have large constants are inlined.
    """
    program, values = open_jaxpr(closed)
    constants = [argument(value) for value in values]
    if not any(_has_large(eqn) for eqn in program.eqns):
        return evaluate_jaxpr(program, constants, arrays)

    def inside(eqn: JaxprEqn) -> AnyJaxpr | None:
        return _plain_call(eqn) if _has_large(eqn) else None

    def results(eqn: JaxprEqn, inputs: list[object], _calls: CallStack) -> list[object]:
        return rebind(eqn, inputs)

    def constant(value: object, _aval: Aval, eqn: JaxprEqn | None) -> object:
        return argument(value) if eqn is None else value

    return without_calls(program, arrays, results, inside, constants=constants, constant=constant)


def has_content(
    value: object,
    array: object,
) -> bool:
    """Return whether an array, converted as JAX does it, is equal to another one to the bit."""
    ours, theirs = np.asarray(value), np.asarray(array)
    if ours.shape != theirs.shape:
        return False
    if canonicalize_dtype(ours.dtype) != theirs.dtype:
        return False
    return np.array_equal(bytes_of(ours.astype(theirs.dtype, copy=False)), bytes_of(theirs))


class ConstantsChanged(Exception):
    """The constants of a trace are not those that its arguments stand for."""


def taking_constants(
    jitted: Jitted,
    jaxpr: object,
    constants: Sequence[object],
    name: str,
    are_changed: Callable[[], bool],
) -> Callable[..., object]:
    """Return the function of a trace, which takes these constants as arguments after its own.

    Tracing it raises ConstantsChanged if JAX has dropped that trace, and the new one has other
    constants, or `are_changed`: an array of NumPy may be changed in place.

    Args:
        jitted: The function.
        jaxpr: Program of the trace.
        constants: Constants of it.
        name: Name of the result.
        are_changed: Whether the constants differ from the arrays that stand for them.
    """
    # The constants stay referenced, so that no other object gets the `id` of one.
    held = {id(value): value for value in constants}
    places = {key: place for place, key in enumerate(held)}

    def taking(*given: object) -> object:
        count = len(given) - len(held)
        arrays, taken = given[:count], given[count:]
        traced = jitted.trace(*arrays)
        if traced.jaxpr is not jaxpr:
            found = {id(each.value) for each in large_constants(traced.jaxpr)}
            if not held.keys() <= found or are_changed():
                raise ConstantsChanged

        def argument(value: object) -> object:
            place = places.get(id(value))
            return value if place is None else taken[place]

        flat = evaluate_with(traced.jaxpr, tree_flatten(arrays)[0], argument)
        return tree_unflatten(jax.tree.structure(traced.out_info), flat)

    # JAX's reports identify a program by its name.
    taking.__name__ = taking.__qualname__ = name
    return taking


def _has_large(eqn: JaxprEqn) -> bool:
    call = _plain_call(eqn)
    return call is not None and any(not each.is_within for each in large_constants(call))


class CopyPool:
    """Copies of captured arrays that a program of the function still holds, shared by its programs
    that have captured the same numbers.
    """

    def __init__(self) -> None:
        # Each with the sharding that it was made for.
        self._copies: list[tuple[weakref.ref[jax.Array], jax.sharding.Sharding | None]] = []

    def copy(
        self,
        value: object,
        sharding: jax.sharding.Sharding | None,
    ) -> jax.Array:
        """Return a copy that nobody changes.

        Args:
            value: The array, of NumPy or of JAX.
            sharding: Where the copy is to be; None for the default device.
        """
        host = np.asarray(value)
        alive = [known for known in self._copies if known[0]() is not None]
        for reference, placed in alive:
            copy = reference()
            if copy is not None and placed == sharding and has_content(host, copy):
                return copy
        # JAX copies in a thread of its own, and the caller may overwrite the array next. Devices of
        # the host may hold the array that they are given, so that is a copy too.
        if sharding is None:
            copy = jax.numpy.array(host, copy=True)
        else:
            copy = jax.device_put(host.copy(), sharding)
        jax.block_until_ready(copy)
        self._copies = [*alive, (weakref.ref(copy), sharding)]
        return copy
