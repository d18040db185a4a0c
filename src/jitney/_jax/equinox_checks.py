"""The run-time checks of Equinox (`eqx.error_if` and its kin) as they stand in a program: what
jitney knows of their inside is here.

Such a check is a `cond` whose second branch calls back into a function that raises, and whose first
hands its operands on. Nothing public tells those callbacks from others; they are functions of
Equinox's own modules. Tried on Equinox 0.13.3 and 0.13.8, lineax 0.1.1, jax 0.10.2 and 0.12.0.1. A
check of another form is not known here, and stays the callback that it is.
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

from .evaluation import evaluated
from .jaxprs import bound, is_written, opened, programs, variables
from .primitives import CALLBACKS
from .trees import is_a

# bound here, since some patch it to be jitney's; its overloads leave out the options of `jax.jit`
_filter_jit: Any = eqx.filter_jit
_jax: Any = jax
_eqx: Any = eqx
FAILURE: type[Exception] = _jax.errors.JaxRuntimeError
"""What JAX raises where a callback has; `ValueError`, where it was waited for later."""
# in the words of XLA, which has no types for what a callback raises
_RAISED = "_EquinoxRuntimeError: "
_OWN = ("linear_solve", "vprim")  # of lineax; and any of them, mapped
# Equinox keeps what failed last in one variable; a handler of signals may look at checks meanwhile
_one_at_a_time = threading.RLock()


def filter_jit(fn: Any, **options: Any) -> Any:
    """Equinox's own `jit`, which turns the errors of checks into those that its users know."""
    return _filter_jit(fn, **options)


def on_error() -> str:
    """What Equinox does where a check fails: `EQX_ON_ERROR` as it was when Equinox was imported, or
    as somebody has set it since.
    """
    return str(inspect.unwrap(_eqx.branched_error_if).__globals__.get("EQX_ON_ERROR"))


def own_jit() -> Any:
    """JAX's own `jit`: under EQX_ON_ERROR=breakpoint Equinox puts a function in its place, and what
    that returns can only be called.
    """
    jit = _jax.jit
    return (
        jit.__wrapped__
        if getattr(getattr(jit, "__code__", None), "co_name", "") == "fixed_jit"
        else jit
    )


def has_equinox_checks(closed: Any) -> bool:
    """Whether a program calls back into `eqx.error_if` or its kin."""
    return any(map(calls_equinox, Insides().equations(closed)))


class Insides:
    """The programs that operations hold, also those of Equinox's and lineax's own operations, which
    JAX knows when it compiles them.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def compiled_as(self, eqn: Any) -> Any | None:
        """The program that an operation of theirs is compiled as: its implementation, which JAX
        traces there; None of another.
        """
        if (
            eqn.primitive.name not in _OWN
            or getattr(eqn.primitive.impl, "__module__", "") != "equinox.internal._primitive"
        ):
            return None
        if id(eqn) not in self._known:
            avals = [
                _jax.ShapeDtypeStruct(
                    atom.aval.shape, atom.aval.dtype, weak_type=atom.aval.weak_type
                )
                for atom in eqn.invars
            ]
            with eqn.ctx.manager:
                self._known[id(eqn)] = (
                    eqn,
                    _jax.make_jaxpr(partial(eqn.primitive.impl, **eqn.params))(*avals),
                )
        return self._known[id(eqn)][1]

    def programs(self, eqn: Any) -> list[Any]:
        """What an operation holds."""
        own = self.compiled_as(eqn)
        return programs(eqn.params) if own is None else [own]

    def equations(self, program: Any) -> Iterator[Any]:
        """Every operation of a program and of those inside it."""
        for eqn in opened(program)[0].eqns:
            yield eqn
            yield from self.within(eqn)

    def within(self, eqn: Any) -> Iterator[Any]:
        """Every operation of the programs that an operation holds."""
        for program in self.programs(eqn):
            yield from self.equations(program)


def calls_equinox(eqn: Any) -> bool:
    """Whether an operation is a callback of Equinox's, that of a check or another."""
    return "callback" in eqn.primitive.name and _module(eqn).startswith("equinox.")


def is_of_check(eqn: Any) -> bool:
    """Whether an operation is a callback of a check."""
    return _module(eqn) == "equinox._errors"


def raising(eqn: Any) -> Any | None:
    """The callback that raises, of an operation that is a check as it is known here; None of any
    other.
    """
    branches = eqn.params.get("branches", ()) if eqn.primitive.name == "cond" else ()
    if len(branches) != 2 or not only_raises(branches[1]):
        return None
    callbacks = [inner for inner in opened(branches[1])[0].eqns if _raises(inner)]
    if len(callbacks) != 1 or [
        (atom.aval.shape, atom.aval.dtype.kind in "iu") for atom in callbacks[0].invars
    ] != [((), True)]:
        return None
    return callbacks[0]


def only_raises(program: Any) -> bool:
    """Whether a program is that of an error of Equinox: each of its results is made of what a
    callback returns that raises instead.
    """
    plain, _ = opened(program)
    never: set[Any] = set()
    for eqn in plain.eqns:
        if _raises(eqn) or not never.isdisjoint(variables(eqn.invars)):
            never.update(eqn.outvars)
    return bool(plain.outvars) and all(
        not is_written(atom) and atom in never for atom in plain.outvars
    )


def which(eqn: Any, operands: Sequence[Any]) -> Any:
    """Which of its messages a check is to raise: `index` of `eqx.branched_error_if`."""
    told: list[Any] = []

    def results(inner: Any, values: list[Any]) -> list[Any]:
        if not is_of_check(inner):
            return bound(inner, values)
        if _raises(inner):
            told.append(values[0])
        # whose sizes may be symbols
        return [_jax.lax.full(atom.aval.shape, 0, atom.aval.dtype) for atom in inner.outvars]

    evaluated(eqn.params["branches"][1], operands[1:], results)
    return told[0]


def fail(callback: Any, index: int) -> Never:
    """Raise what Equinox raises where a check has failed: its callback is called, and its
    `filter_jit` hears of it.

    Args:
        callback: That of the check.
        index: Which of its messages applies.
    """

    def failing() -> None:
        try:
            _function(callback)(np.asarray(index, np.int32))
        except (RuntimeError, IndexError) as error:
            raise FAILURE(f"{type(error).__name__}: {error}") from error

    _raise(failing)


def messages_of(callback: Any) -> tuple[str, ...] | None:
    """The messages of a check, from the function that raises them; None if it is not as it is known
    here.
    """
    messages: Any = inspect.getclosurevars(_function(callback)).nonlocals.get("msgs")
    return tuple(map(str, messages)) if is_a(messages, (list, tuple)) else None


def fail_with(messages: Sequence[str], index: int) -> Never:
    """Raise what Equinox raises where a check with these messages fails, of which nothing but them
    is left.

    Args:
        messages: Those of the check.
        index: Which of them applies.
    """
    with _one_at_a_time:
        _always_failing(messages[index])(np.True_)
    raise AssertionError("a failed check has not raised")


@lru_cache(maxsize=256)
def _always_failing(message: str) -> Any:
    def failing(wrong: Any) -> Any:
        # whatever EQX_ON_ERROR is where it is loaded
        return _eqx.error_if(wrong, wrong, message, on_error="raise")

    return _filter_jit(failing)


def fail_as(error: Exception) -> Never:
    """Raise what Equinox raises where a callback of its has raised this; the error itself if it was
    none.
    """

    def failing() -> None:
        raise error

    if not is_failure(error):
        raise error
    _raise(failing)


def is_failure(error: Exception) -> bool:
    """Whether an error of JAX's is that of a failed check."""
    return _RAISED in str(error)


def words_of(error: Exception) -> str:
    """What the author of a check has it say, without Equinox's words around it; of another error,
    its first line.
    """
    return (
        str(error)
        .rpartition("equinox.EquinoxRuntimeError: ")[2]
        .partition("\n\n---")[0]
        .strip()
        .partition("\n")[0]
    )


def _raise(failing: Any) -> Never:
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
_fails: Callable[[], Never] = _filter_jit(_fail)
"""Made once: Equinox and JAX remember every function that they have compiled. What raises while it
is traced is not remembered.
"""


def _function(eqn: Any) -> Any:
    callback = eqn.params.get("callback")
    return getattr(callback, "callback_func", callback)


def _module(eqn: Any) -> str:
    return getattr(_function(eqn), "__module__", "") or ""


def _raises(eqn: Any) -> bool:
    return (
        eqn.primitive.name == "pure_callback"
        and is_of_check(eqn)
        and _function(eqn).__name__ == "raises"
    )


def is_callback(eqn: Any) -> bool:
    """Whether an operation calls Python, for what it returns or for what it does."""
    return eqn.primitive.name in (*CALLBACKS, "pure_callback")
