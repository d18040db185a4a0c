"""Run-time checks of Equinox (`eqx.error_if` and its kin) as they appear in a jaxpr: all that
jitney knows of their internals.

Such a check is a `cond` whose second branch calls back into a function that raises, and whose first
branch returns its operands. Nothing public identifies these callbacks; they are recognised as
functions of Equinox's own modules. Tried on Equinox 0.13.3 and 0.13.8, lineax 0.1.1, jax 0.10.2 and
0.12.0.1. A check of another form is not recognised, and remains an ordinary callback.

    i = cond[branches=(
          { lambda ; j. let in (j,) }                                      # the check passes
          { lambda ; k. let l = pure_callback[raises] 0:i32[] in (l,) }    # it fails
        )] h f
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Never

import equinox as eqx
import jax
import numpy as np

from .programs.evaluation import interpret
from .programs.jaxprs import abstract, is_literal, open_jaxpr, programs, rebind, variables
from .programs.primitives import CALLBACKS
from .typed import AnyJaxpr, JaxprEqn

# bound at import, since it may be monkeypatched later to be jitney's; its overloads leave out the
# options of `jax.jit`
FAILURE: type[Exception] = jax.errors.JaxRuntimeError
"""Exception that JAX raises when a callback has raised; it is a `ValueError` if the result is
awaited later.
"""
# mark in the message, since XLA does not pass on the type of an exception
_RAISED = "_EquinoxRuntimeError: "
# primitive of lineax, and the batched form of Equinox's primitives
_OWN = ("linear_solve", "vprim")
# Equinox stores the last failure in a module global; reentrant, since a signal handler may run
# checks in between
_one_at_a_time = threading.RLock()


def filter_jit(fn: Callable[..., object], **options: Any) -> Any:
    """Apply Equinox's own `jit`, which converts errors of checks into those that its users know."""
    return eqx.filter_jit(fn, **options)


def on_error() -> str:
    """Return what Equinox does when a check fails: `EQX_ON_ERROR` as it was when Equinox was
    imported, or as it was set since.
    """
    return str(inspect.unwrap(eqx.branched_error_if).__globals__.get("EQX_ON_ERROR"))


def own_jit() -> Any:
    """Return JAX's own `jit`. Under EQX_ON_ERROR=breakpoint Equinox replaces it by a function whose
    result can only be called.
    """
    jit: Any = jax.jit
    return (
        jit.__wrapped__
        if getattr(getattr(jit, "__code__", None), "co_name", "") == "fixed_jit"
        else jit
    )


def has_equinox_checks(closed: object) -> bool:
    """Return whether a jaxpr calls back into `eqx.error_if` or its kin."""
    return any(map(calls_equinox, Insides().equations(closed)))


class Insides:
    """Sub-jaxprs of equations, including those of Equinox's and lineax's own primitives, which JAX
    traces only when it compiles them. Memoised per equation.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def compiled_jaxpr(self, eqn: Any) -> Any | None:
        """Return the jaxpr that JAX traces when it compiles one of their primitives, from the
        implementation; None for other primitives.
        """
        if (
            eqn.primitive.name not in _OWN
            or getattr(eqn.primitive.impl, "__module__", "") != "equinox.internal._primitive"
        ):
            return None
        if id(eqn) not in self._known:
            avals = [abstract(atom.aval) for atom in eqn.invars]
            with eqn.ctx.manager:
                self._known[id(eqn)] = (
                    eqn,
                    jax.make_jaxpr(partial(eqn.primitive.impl, **eqn.params))(*avals),
                )
        return self._known[id(eqn)][1]

    def programs(self, eqn: JaxprEqn) -> list[Any]:
        """Return the sub-jaxprs of an equation."""
        own = self.compiled_jaxpr(eqn)
        return programs(eqn.params) if own is None else [own]

    def equations(self, program: object) -> Iterator[Any]:
        """Yield every equation of a jaxpr and of its sub-jaxprs."""
        for eqn in open_jaxpr(program)[0].eqns:
            yield eqn
            yield from self.nested_equations(eqn)

    def nested_equations(self, eqn: JaxprEqn) -> Iterator[Any]:
        """Yield every equation of the sub-jaxprs of an equation."""
        for program in self.programs(eqn):
            yield from self.equations(program)


def calls_equinox(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a callback of Equinox's, of a check or another one."""
    return "callback" in eqn.primitive.name and _module(eqn).startswith("equinox.")


def is_of_check(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a callback of a check."""
    return _module(eqn) == "equinox._errors"


def raising(eqn: JaxprEqn) -> Any | None:
    """Return the callback that raises, if the equation is a check of the known form, else None."""
    branches = eqn.params.get("branches", ()) if eqn.primitive.name == "cond" else ()
    if len(branches) != 2 or not only_raises(branches[1]):
        return None

    # Its one operand is the index of the message, an integer scalar.
    callbacks = [inner for inner in open_jaxpr(branches[1])[0].eqns if _raises(inner)]
    if len(callbacks) != 1 or [
        (atom.aval.shape, atom.aval.dtype.kind in "iu") for atom in callbacks[0].invars
    ] != [((), True)]:
        return None
    return callbacks[0]


def only_raises(program: AnyJaxpr) -> bool:
    """Return whether a jaxpr is the failing branch of a check: each of its results depends on the
    result of a callback that raises instead of returning.
    """
    plain, _ = open_jaxpr(program)

    # Forward data flow: taint the results of raising callbacks and everything computed from them.
    never = set()
    for eqn in plain.eqns:
        if _raises(eqn) or not never.isdisjoint(variables(eqn.invars)):
            never.update(eqn.outvars)
    return bool(plain.outvars) and all(
        not is_literal(atom) and atom in never for atom in plain.outvars
    )


def message_index(eqn: JaxprEqn, operands: Sequence[jax.Array]) -> Any:
    """Compute which of its messages a check raises: `index` of `eqx.branched_error_if`."""
    told: list[Any] = []

    def results(inner: Any, values: list[jax.Array]) -> list[Any]:
        if not is_of_check(inner):
            return rebind(inner, values)
        if _raises(inner):
            told.append(values[0])
        # placeholders for the results; `full`, since the sizes may be symbolic
        return [jax.lax.full(atom.aval.shape, 0, atom.aval.dtype) for atom in inner.outvars]

    # The first operand of a `cond` is the index of the branch.
    interpret(eqn.params["branches"][1], operands[1:], results)
    return told[0]


def fail(callback: object, index: int) -> Never:
    """Raise the exception that Equinox raises when a check fails, by calling its callback under its
    `filter_jit`.

    Args:
        callback: Callback equation of the check.
        index: Index of the message.
    """

    def failing() -> None:
        try:
            _function(callback)(np.asarray(index, np.int32))
        except (RuntimeError, IndexError) as error:
            raise FAILURE(f"{type(error).__name__}: {error}") from error

    _raise(failing)


def messages_of(callback: object) -> tuple[str, ...] | None:
    """Return the messages of a check, from the closure of the function that raises them; None if it
    has another form.
    """
    messages = inspect.getclosurevars(_function(callback)).nonlocals.get("msgs")
    return tuple(map(str, messages)) if isinstance(messages, (list, tuple)) else None


def fail_with(messages: Sequence[str], index: int) -> Never:
    """Raise the exception that Equinox raises when a check with these messages fails, without its
    callback.

    Args:
        messages: Messages of the check.
        index: Index of the message that applies.
    """
    with _one_at_a_time:
        _always_failing(messages[index])(np.True_)
    raise AssertionError("a failed check has not raised")


@lru_cache(maxsize=256)
def _always_failing(message: str) -> Any:
    def failing(wrong: Any) -> Any:
        # independent of EQX_ON_ERROR in the process that loads the program
        return eqx.error_if(wrong, wrong, message, on_error="raise")

    return eqx.filter_jit(failing)


def fail_as(error: Exception) -> Never:
    """Raise the exception that Equinox raises when a callback of its raised `error`; `error` itself
    if it is not a failed check.
    """

    def failing() -> None:
        raise error

    if not is_failure(error):
        raise error
    _raise(failing)


def is_failure(error: Exception) -> bool:
    """Return whether an exception of JAX's is that of a failed check."""
    return _RAISED in str(error)


def words_of(error: Exception) -> str:
    """Return the message that the author of a check wrote, without Equinox's additions; for another
    exception, its first line.
    """
    return (
        str(error)
        .rpartition("equinox.EquinoxRuntimeError: ")[2]
        .partition("\n\n---")[0]
        .strip()
        .partition("\n")[0]
    )


def _raise(failing: object) -> Never:
    with _one_at_a_time:
        _failing.append(failing)
        try:
            _fails()
        finally:
            _failing.pop()


def _fail() -> Never:
    _failing[-1]()
    raise AssertionError("a failed check has not raised")


_failing: list[Any] = []
_fails: Callable[[], Never] = eqx.filter_jit(_fail)
"""Compiled once: Equinox and JAX cache every function that they compile. A function that raises
while it is traced is not cached.
"""


def _function(eqn: Any) -> Any:
    callback = eqn.params.get("callback")
    return getattr(callback, "callback_func", callback)


def _module(eqn: JaxprEqn) -> str:
    return getattr(_function(eqn), "__module__", "") or ""


def _raises(eqn: JaxprEqn) -> bool:
    return (
        eqn.primitive.name == "pure_callback"
        and is_of_check(eqn)
        and _function(eqn).__name__ == "raises"
    )


def is_callback(eqn: JaxprEqn) -> bool:
    """Return whether an equation calls Python, for a result or for an effect."""
    return eqn.primitive.name in (*CALLBACKS, "pure_callback")
