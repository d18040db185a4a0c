"""Calls of a program that holds run-time checks of Equinox: the failed check comes back as data.

A callback that raises cannot be exported, and Equinox translates its error in a function of its own
around each call, which takes as long as a small program. So the program returns the number of the
check that failed first (`_checks/flag_interpreter.py`), and the call waits for that number and
raises the error. Who waits for another thread waits longer than for a small program, so a CPU runs
a program that is not cached in the calling thread (`_jax/xla/calling_thread.py`).

With `runtime_checks="later"` the call does not wait, and the number joins those that are looked at
later (`_checks/outstanding.py`). A program whose checks cannot be followed keeps its callbacks, and
Equinox runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..._body.body import CallPlanner
from ..._body.placed_calls import PlacedCalls
from ..._checks import OUTSTANDING, CheckTable, Unflaggable, evaluate_flagged
from ..._jax.compile_cache.cache import facts
from ..._jax.equinox_checks import FAILURE, fail_as, filter_jit, is_failure
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Jitted
from ..._jax.xla.calling_thread import in_calling_thread
from ..._jax.xla.compiler import options_of
from ..._signature.options import Options
from ..._stages import Jit
from ..._verify import is_verified
from .captured_calls import CapturedCalls, captured_calls

Run = Callable[..., Any]
"""A runner of calls: flat arrays in, the user's result out."""


def waits(options: Options) -> str | None:
    """Return why calls wait for the result of their checks; None if it is looked at later."""
    if options.runtime_checks == "now":
        return 'no `runtime_checks="later"` given'
    if options.workers is not None:
        return "with `workers` a call waits for its threads"
    if options.shard is not None:
        return "with `shard` Equinox runs a program that holds checks, and waits"
    if options.debug_nans:
        return "`debug_nans` looks at every result, which waits for it"
    return "`verify` compares results, which waits for them" if is_verified(options) else None


def stays_in_thread(options: Options) -> bool:
    """Return whether a CPU runs the program in the thread that calls it, which waits for it: where
    no other process is to find it, since JAX keeps no such program.
    """
    if waits(options) is None:
        return False
    return not (options.cache and facts().enabled)


class CheckedCalls(PlacedCalls[object]):
    """Runs the calls of a body whose programs hold run-time checks of Equinox."""

    def __init__(self, body: CallPlanner, jitted: Jitted):
        super().__init__()
        self.body = body
        self.jitted = jitted
        self.table = CheckTable()
        self.waits = True
        self._at_once = stays_in_thread(body.options)
        self._flagged: Any = Jit.of(body.request).compile(
            with_number(body, jitted, self.table, at_once=self._at_once)
        )
        # Runs calls that stand in no trace, which is asked once.
        self._outermost: Any = None
        if body.captures:
            self._flagged = captured_calls(body, self._flagged)
            self._outermost = self._flagged.run_outermost
        # Over several devices Equinox runs the program.
        self._translating: Run | None = translating(body, jitted) if body.is_sharded else None

    def run_within(self, arrays: Sequence[object]) -> object:
        """Run a call inside a trace: the checks stay callbacks, for the outer program."""
        return (self._translating or self.jitted)(*arrays)

    def run_outermost(self, arrays: Sequence[object]) -> object:
        """Run a call that stands in no trace, with its number."""
        if self._translating is not None:
            return self._translating(*arrays)
        if not self.waits:
            OUTSTANDING.look()

        # Run the program with its number.
        try:
            if self._outermost is None:
                out, flag = self._flagged(*arrays)
            else:
                out, flag = self._outermost(arrays)
            failed = self._number(flag) if self.waits else 0
        except Unflaggable:
            # The trace has met a check that cannot be data: Equinox runs all calls from now on.
            self._translating = translating(self.body, self.jitted)
            return self._translating(*arrays)
        except (FAILURE, ValueError) as error:
            if not is_failure(error):
                raise
            # A check inside of an operation that hides its program.
            fail_as(error)

        if failed:
            self.table.fail(failed)
        if not self.waits:
            core = self.body.core
            OUTSTANDING.add(
                flag,
                self.table,
                core.where,
                core.counters.calls,
            )
        return out

    def _number(self, flag: jax.Array) -> int:
        # `np.asarray` of an array that is not ready takes some microseconds more than to wait for
        # it first.
        return int(np.asarray(flag if self._at_once else flag.block_until_ready()))

    def lower(self, *arrays: object) -> jax.stages.Lowered:
        """Return JAX's lowered program of these arrays or abstract values, as calls run it.

        Raises:
            Unflaggable: Equinox runs it.
        """
        return self.lower_with_copies(*arrays)[0]

    def lower_with_copies(
        self,
        *arrays: object,
    ) -> tuple[jax.stages.Lowered, tuple[jax.Array, ...]]:
        """Return the same, and the copies of captured arrays that it takes after the arrays.

        Raises:
            Unflaggable: Equinox runs it.
        """
        if self._translating is not None:
            raise Unflaggable("with `shard` Equinox runs it")
        if isinstance(self._flagged, CapturedCalls):
            return self._flagged.lower_with_copies(*arrays)
        return self._flagged.lower(*arrays), ()


def with_number(
    body: CallPlanner,
    jitted: Jitted,
    table: CheckTable,
    *,
    at_once: bool,
) -> Callable[..., tuple[object, jax.Array]]:
    """Return the function as it is compiled: its results, and the number of the check that failed.
    A CPU runs it in the calling thread if `at_once`. Its trace raises Unflaggable where the checks
    cannot be data.
    """

    def returning(*arrays: object) -> tuple[object, jax.Array]:
        traced = jitted.trace(*arrays)
        flat, flag = evaluate_flagged(traced.jaxpr, tree_flatten(arrays)[0], table)
        out = tree_unflatten(jax.tree.structure(traced.out_info), flat)
        # An array inside `disable_jit` too.
        number = jax.numpy.asarray(flag)
        return out, in_calling_thread(number) if at_once else number

    # JAX's reports identify a program by its name.
    returning.__name__ = returning.__qualname__ = body.core.name
    return returning


def checked_calls(body: CallPlanner, jitted: Jitted) -> CheckedCalls:
    """Return the runner of a body whose programs hold such checks.

    The runner is the same each time, so that programs compiled ahead are found.
    """
    calls = body.checked_calls
    if not isinstance(calls, CheckedCalls) or calls.jitted is not jitted:
        calls = body.checked_calls = CheckedCalls(body, jitted)
    calls.waits = waits(body.options) is not None
    return calls


def translating(body: CallPlanner, jitted: Jitted) -> Run:
    """Return a runner that lets Equinox run the program, so that errors read as Equinox users know
    them; it waits for the result to see them.
    """
    donated = frozenset(body.request.donated)
    options = dict(options_of(body.options.compiler)) or None
    run: Run = jitted.__wrapped__ if options else jitted

    # `filter_jit` donates all arguments but the first, so donated arrays travel as the second.
    def merged(kept: Sequence[object], lost: Sequence[object]) -> object:
        first, second = iter(kept), iter(lost)
        count = len(kept) + len(lost)
        arrays = [next(second if i in donated else first) for i in range(count)]
        return run(*arrays)

    # JAX's reports identify a program by its name.
    merged.__name__ = merged.__qualname__ = body.core.name
    donate = "all-except-first" if donated else "none"
    through = filter_jit(merged, donate=donate, compiler_options=options)

    def checked(*arrays: object) -> object:
        kept = tuple(array for i, array in enumerate(arrays) if i not in donated)
        lost = tuple(array for i, array in enumerate(arrays) if i in donated)
        return through(kept, lost)

    return checked
