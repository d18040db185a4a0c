"""Unread check numbers of calls under `runtime_checks="later"`: one queue per thread.

Each thread has its own queue, so that an error is raised in the thread that made the call, and not
in another thread's `try`. Before each further call the thread reads the numbers that have arrived,
and blocks only once `MOST` are pending. `wait` and the end of Python read the queues of all
threads.

A number stays in its queue until it has been read. If an interrupt arrives before the errors are
raised, failures are put back, so none is lost.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Never, Protocol, TextIO

import numpy as np

from .._errors import shortlist
from .._jax.equinox_checks import FAILURE, fail_as, words_of
from .._owners import public, shorten
from .table import CheckTable

MOST: Final = 32
"""Most unread numbers of one thread: an error is raised at most so many calls late, and so many
programs may be queued on the device.
"""


class Readable(Protocol):
    """Array on a device that may still be computed."""

    def is_ready(self) -> bool:
        """Return whether it can be read without waiting."""
        ...


class PendingFlag(NamedTuple):
    """Flag that one call returned. A plain tuple, since every call creates one."""

    # The flag on its device, not read yet.
    value: Readable
    table: CheckTable
    where: object
    # Number of the call of its function, as `stats.calls` counts.
    call: int
    # Position among all calls of the process.
    order: int

    @property
    def text(self) -> str:
        return f"call {self.call} of {self.where}"


Numbers = deque[PendingFlag]


class Failure(NamedTuple):
    """Call whose check failed, with a function that raises its error."""

    number: PendingFlag
    fail: Callable[[], Never]


class PendingFlags:
    """Queues of unread numbers of all threads."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may call in here while this thread holds the lock.
        self._lock = threading.RLock()
        self._here = threading.local()
        # Queues outlive their threads: `wait` still has to read them.
        self._threads: list[tuple[weakref.ref[_Mine], Numbers]] = []
        self._order = itertools.count()
        self._is_registered = False

    def look(self) -> None:
        """Read the numbers of this thread that have arrived.

        Raises:
            EquinoxRuntimeError: A check has failed.
        """
        numbers = self._thread_numbers()
        while (oldest := _first(numbers)) is not None:
            # A program that is still running must not block the caller, unless the queue is full.
            if len(numbers) < MOST and not oldest.value.is_ready():
                return
            if _failure(oldest) is not None:
                self._raise_of([numbers])
            else:
                self._take(numbers, oldest)

    def add(
        self,
        value: Readable,
        table: CheckTable,
        where: object,
        call: int,
    ) -> None:
        """Append the number of a call to the queue of this thread."""
        self._thread_numbers().append(PendingFlag(value, table, where, call, next(self._order)))

    def wait(self) -> None:
        """Block until all numbers of all threads are read.

        Raises:
            EquinoxRuntimeError: A check has failed. It is the error of the first failed call, with
                the others in its notes.
        """
        with self._lock:
            threads = [numbers for _, numbers in self._threads]
        self._raise_of(threads)

    def forget(self) -> None:
        """Clear all queues in a forked child: the calls, and the devices they ran on, are the
        parent's.
        """
        # Another thread of the parent may have held the lock when the process forked.
        self._lock = threading.RLock()
        for _, numbers in self._threads:
            numbers.clear()

    def _thread_numbers(self) -> Numbers:
        with suppress(AttributeError):
            return self._here.mine.numbers
        mine = self._here.mine = _Mine()
        with self._lock:
            if not self._is_registered:
                at_exit(self.wait, self.forget)
                self._is_registered = True
            # A new thread is the occasion to drop the queues of ended threads that are empty or
            # went well.
            threads: list[tuple[weakref.ref[_Mine], Numbers]] = []
            for thread, numbers in self._threads:
                if thread() is not None or self._holds_more(numbers):
                    threads.append((thread, numbers))
            self._threads = threads
            self._threads.append((weakref.ref(mine), mine.numbers))
        return mine.numbers

    def _holds_more(self, numbers: Numbers) -> bool:
        """Return whether the queue of an ended thread still holds a failure or a running call.

        Numbers of calls that went well are dropped from its front.
        """
        while numbers and numbers[0].value.is_ready() and _failure(numbers[0]) is None:
            self._take(numbers, numbers[0])
        return bool(numbers)

    def _raise_of(self, threads: Sequence[Numbers]) -> None:
        """Read all numbers of these queues, and raise the error of the first failed call."""
        # Blocking comes first, while every number is still in its queue: an interrupt loses none.
        read: list[tuple[Numbers, PendingFlag, Failure | None]] = []
        for numbers in threads:
            read += [(numbers, number, _failure(number)) for number in numbers.copy()]
        # Only failures that this thread has removed are its own to raise.
        mine: list[tuple[Numbers, Failure]] = []
        try:
            for numbers, number, failure in read:
                if self._take(numbers, number) and failure is not None:
                    mine.append((numbers, failure))
            if mine:
                failures = [failure for _, failure in mine]
                _raise(sorted(failures, key=lambda failure: failure.number.order))
        except Exception:
            raise
        # An interrupt, such as `KeyboardInterrupt`: no error has been raised, so the failures go
        # back.
        except BaseException:
            for numbers, failure in reversed(mine):
                numbers.appendleft(failure.number)
            raise

    def _take(self, numbers: Numbers, number: PendingFlag) -> bool:
        """Remove a number if it is still the oldest of its queue; return whether it was.

        Another thread or a signal handler may have removed it in the meantime.
        """
        with self._lock:
            oldest = numbers.popleft() if numbers else None
            if oldest is not None and oldest is not number:
                numbers.appendleft(oldest)
        return oldest is number


class _Mine:
    """Holder of the queue of one thread in `threading.local`: it dies with the thread, so that a
    weak reference to it tells that the thread has ended.
    """

    def __init__(self) -> None:
        self.numbers: Numbers = deque()


OUTSTANDING: Final = PendingFlags()


@public
def wait() -> None:
    """Wait for all calls of functions with `runtime_checks="later"`, in all threads, and raise the
    error of a run-time check that has failed.

    Raises:
        EquinoxRuntimeError: A check has failed. It is the error of the call that was made first.
            Its notes name that call and the others that failed.
    """
    OUTSTANDING.wait()


def _first(numbers: Numbers) -> PendingFlag | None:
    try:
        return numbers[0]
    # Testing the length first would be a race: `wait` in another thread may empty the queue in
    # between.
    except IndexError:
        return None


def _failure(number: PendingFlag) -> Failure | None:
    try:
        code = int(np.asarray(number.value))
    # Errors of checks that stayed callbacks, of other callbacks, and of the device.
    except (FAILURE, ValueError) as error:
        return Failure(number, partial(fail_as, error))
    return Failure(number, partial(number.table.fail, code)) if code else None


def _raise(failures: Sequence[Failure]) -> Never:
    first, *others = failures
    try:
        first.fail()
    except Exception as error:
        error.add_note(
            f'Found late, since runtime_checks="later": this is of {first.number.text}. What was'
            " made of its results is wrong too."
        )
        if others:
            texts = [f"{failure.number.text} ({_error_text(failure)})" for failure in others]
            error.add_note(f"Failed behind it: {shortlist(texts)}.")
        raise


def _error_text(failure: Failure) -> str:
    try:
        failure.fail()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return words_of(error)


# Hooks for the end of Python and for forks: print an error that nobody has waited for, and exit
# with a status that is not 0.


def at_exit(wait: Callable[[], None], forget: Callable[[], None]) -> None:
    """Register `wait` for the end of Python, and `forget` for forked child processes.

    An error that `wait` raises is printed, and the exit status is not 0.
    """

    def last() -> None:
        try:
            wait()
        except Exception as error:  # noqa: BLE001 - there is nobody left to raise it to
            shorten(error)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr = _Failing(sys.stderr)

    # `atexit` runs in reverse order of registration. JAX has registered its own hook before, so
    # this one runs before JAX's.
    atexit.register(last)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class _Failing:
    """Standard error that fails to flush while Python ends, which makes the exit status 120.

    An exception in an `atexit` hook does not change the exit status, and `os._exit` would lose what
    files have not written yet. See `sys.exit` in Python's reference.
    """

    # Python flushes only streams that are not closed.
    closed = False

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush, and fail if Python is ending.

        Raises:
            OSError: Python is ending.
        """
        if self._stream is not None and not self._stream.closed:
            self._stream.flush()
        if sys.is_finalizing():
            raise OSError("a run-time check has failed")
