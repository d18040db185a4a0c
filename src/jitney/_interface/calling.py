"""Calls of a program, the hot path: take the flat arrays out of the arguments, and run them.

    f(x)        core.usual or core.find(...) -> entry, arrays; entry.run(*arrays)

An exception of a call is an error for the user, or a reason to repeat the call.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

from .._diagnosis.counters.listener import LISTENER
from .._diagnosis.exhausted import note_exhausted
from .._diagnosis.needed_values import CAUGHT
from .._diagnosis.tracer_errors import (
    donation_error,
    low_product_error,
    no_number,
    over_error,
    trace_error,
)
from .._errors import EagerWarning, TraceError
from .._jax.typed import Array
from .._owners import shorten, users_level
from .._program.entry import Specialization, ran_eagerly
from .._program.runners.fallback_calls import idle_options
from .._program.tolerance.decide import decide
from .._program.tracing.held_numbers import Redirected
from .._program.tracing.leaked_tracers import left_error
from .._program.tracing.limit import is_past_limit
from .._program.tracing.traced_calls import Retry, Undecided
from .._view.fitting import demand_floats_fit, demand_number_fits
from .._view.layout import is_nested_trace, unwrap_statics
from .._view.result import Mixed
from .bound import OF_CALLS, BoundProgram

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
# Marks a result or a choice that does not exist yet.
_NONE = object()
# Marks an error that is the caller's as it is.
_RAISED = object()
_EXPLAINED = (RuntimeError, *CAUGHT)


class CallableProgram(BoundProgram[P, R]):
    """A program that is called as the function it wraps."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            core = self._core
            given = self._args + args if self._args else args
            by_name = {**self._kwargs, **kwargs} if self._kwargs else kwargs

            # The hot path: the taker of the latest call returns None if this call is of another
            # kind.
            entry, take = core.usual
            arrays = take(given, by_name)
            if arrays is None:
                entry, arrays = core.find(given, by_name)
            core.counters.calls += 1

            # Run. An exception is an error for the user, or a reason to repeat the call.
            out = _NONE
            choice = _NONE
            try:
                out = entry.run(*arrays)
                if entry.flights:
                    entry.await_missed_checks(out)
                return out if type(out) is not Mixed else out.outcome.build(out.arrays)
            except Retry:
                # Another thread has traced the program meanwhile.
                core.counters.calls -= 1
            except Undecided as undecided:
                # A policy has to be chosen by the values of this call (`precision="auto:..."`).
                core.counters.calls -= 1
                choice = undecided.key
            except Redirected:
                # The numbers that this entry holds are not needed at these shapes.
                core.counters.calls -= 1
                core.forget_takers()
            except Exception as error:
                failed = self._recover(error, entry, arrays, given, by_name)
                if failed is _RAISED:
                    raise
                if failed is not _NONE:
                    return cast("R", failed)
            finally:
                # Only a call that traced gets here: let waiting threads go on, and check its
                # arguments once.
                if entry.flights and entry.land():
                    core.counters.misses += 1
                    if out is not _NONE:
                        with entry.numbers():
                            demand_floats_fit(core.where, entry.paths, arrays)
            # Outside of `except`: an error of the choice does not carry Undecided as its context.
            if choice is not _NONE:
                self._decide(entry, choice, arrays, given, by_name)
            return self._repeat_call(core.bind(given, by_name))
        except Exception as error:
            shorten(error)
            raise

    def _recover(
        self,
        error: Exception,
        entry: Specialization,
        arrays: Sequence[Array],
        given: tuple[object, ...],
        by_name: Mapping[str, object],
    ) -> object:
        """Result of a call that failed; `_NONE` if it is to be repeated, `_RAISED` if the error is
        the caller's.
        """
        core = self._core
        if is_past_limit(error):
            # `max_compiles="eager:..."`.
            limit = core.options.max_compiles
            if limit is None or limit.past != "eager":
                return _RAISED
            return entry.eagerly(*arrays)

        # The body needs a number that was traced: it is held, and the call repeated.
        if (
            entry.layout.numbers
            and entry.flights
            and core.hold_numbers(entry, core.bind(given, by_name), arrays, error)
        ):
            # The failed trace is no program; the repeated call is counted.
            core.counters.calls -= 1
            core.counters.misses -= 1
            return _NONE
        if isinstance(error, OverflowError):
            with entry.numbers():
                demand_number_fits(core.where, entry.paths, arrays)
            return _RAISED
        if not isinstance(error, _EXPLAINED):
            return _RAISED

        # Errors of JAX, explained if jitney knows the cause.
        untraced = trace_error(error, core.where, entry.paths, arrays, eager=ran_eagerly(error))
        if untraced is not None:
            return self._not_traceable(untraced, error, entry, arrays)
        named = self._explain(error, entry, arrays)
        note_exhausted(error, core.where, core.options)
        if named is not None:
            raise named from error

        # A failed check of Equinox that nobody had looked for: the repeated call reports it.
        if not entry.note_missed_check(error):
            return _RAISED
        core.counters.calls -= 1
        return _NONE

    def _decide(
        self,
        entry: Specialization,
        choice: object,
        arrays: Sequence[Array],
        given: tuple[object, ...],
        by_name: Mapping[str, object],
    ) -> None:
        """Choose a policy by the values of a call, or hold a number that the body needs for it."""
        core = self._core
        try:
            decide(entry, choice, arrays)
        except CAUGHT as error:
            if not (
                entry.layout.numbers
                and core.hold_numbers(entry, core.bind(given, by_name), arrays, error)
            ):
                untraced = trace_error(error, core.where, entry.paths, arrays)
                if untraced is None:
                    raise
                raise untraced from error

    def _explain(
        self,
        error: Exception,
        entry: Specialization,
        arrays: Sequence[Array],
    ) -> Exception | None:
        """Return an error with the cause of JAX's, or None if jitney does not know it."""
        core = self._core
        donated = (
            donation_error(error, core.where, arrays, entry.paths, entry.layout.donated)
            if core.options.donate
            else None
        )
        return (
            donated
            or low_product_error(error, core.where)
            or no_number(core.where, arrays, entry.paths)
            or over_error(error, core.where, core.fn(), core.options)
            or left_error(error, core.where, entry.reads)
        )

    def _repeat_call(self, values: tuple[object, ...]) -> R:
        """Repeat the whole call, from arguments in normal form."""
        return self._core.binder.call(type(self)(self._core, self._fn), unwrap_statics(values))

    def _not_traceable(
        self,
        untraced: TraceError,
        error: Exception,
        entry: Specialization,
        arrays: Sequence[Array],
    ) -> R:
        core = self._core
        if ran_eagerly(error) or core.options.on_trace_error == "raise":
            raise untraced from error
        # The failed trace does not count: the call is counted as an eager one.
        core.counters.misses -= 1
        if not is_nested_trace(arrays):
            entry.turn_eager()
        if core.counters.warn_once("eager"):
            first_line = str(untraced).splitlines()[0]
            warnings.warn(
                f"{first_line}\nIt runs un-jitted from now on, as"
                f" `on_trace_error='eager'` asks.{idle_options(core.options)}",
                EagerWarning,
                stacklevel=users_level(),
            )
        try:
            return entry.eagerly(*arrays)
        except CAUGHT as again:
            explained = trace_error(again, core.where, entry.paths, arrays, eager=True)
            if explained is None:
                raise
            raise explained from again


LISTENER.attribute_to(CallableProgram.__call__, OF_CALLS)
