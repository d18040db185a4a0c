"""Numbers of calls with `checks="later"` that nobody has looked at yet: whose they are, who looks, and when.

Each thread has its own, so that an error is raised in the thread that made the call, and not in another's `try`. It looks before each
further call at those that are there, and waits for none until there are too many of them; `wait` and the end of Python look at all
threads'. A number stays in its place until it has been read: whoever is interrupted while he waits loses none.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Never

import numpy as np

from .._errors import few
from .._jax.equinox_checks import FAILURE, fail_as, words_of
from .._jax.ready import is_ready
from .at_exit import at_exit
from .table import Table

MOST: Final = 32
"""How many numbers of one thread are left for later: so many calls late an error may be raised, and so many programs stand in the queue."""


class Number(NamedTuple):
    """What one call returned beside its results; a plain tuple, since each call makes one."""

    value: Any  # on its device
    table: Table
    where: Any
    call: int  # of its function, as `stats.calls` counts
    order: int  # among all of the process

    @property
    def text(self) -> str:
        return f"call {self.call} of {self.where}"


Numbers = deque[Number]


class Failure(NamedTuple):
    """A call whose check failed, and what raises its error."""

    number: Number
    fail: Callable[[], Never]


class Outstanding:
    """The numbers of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()
        self._threads: list[tuple[weakref.ref[Any], Numbers]] = []  # a thread that has ended leaves its numbers
        self._order = itertools.count()
        self._is_registered = False

    def look(self) -> None:
        """Look at the numbers of this thread that are there.

        Raises:
            EquinoxRuntimeError: A check has failed.
        """
        numbers = self._mine()
        while (oldest := _first(numbers)) is not None:
            if len(numbers) < MOST and not is_ready(oldest.value):
                return
            failure = self._read(numbers, oldest)
            if failure is not None:
                _raise([failure, *self._failures(numbers)])

    def add(self, value: Any, table: Table, where: Any, call: int) -> None:
        """Leave the number of a call for later."""
        self._mine().append(Number(value, table, where, call, next(self._order)))

    def wait(self) -> None:
        """Look at all numbers of all threads.

        Raises:
            EquinoxRuntimeError: A check has failed; that of the first call, with the others in notes.
        """
        with self._lock:
            threads = [numbers for _, numbers in self._threads]
        for number in itertools.chain.from_iterable(numbers.copy() for numbers in threads):
            with suppress(FAILURE, ValueError):  # which is raised when it is read
                number.value.block_until_ready()
        failures = sorted((failure for numbers in threads for failure in self._failures(numbers)), key=lambda failure: failure.number.order)
        if failures:
            _raise(failures)

    def forget(self) -> None:
        """Of a process that was forked: the calls are its parent's, as is what they ran on."""
        self._lock = threading.Lock()
        for _, numbers in self._threads:
            numbers.clear()

    def _mine(self) -> Numbers:
        with suppress(AttributeError):
            return self._here.mine.numbers
        mine = self._here.mine = _Mine()
        with self._lock:
            if not self._is_registered:
                at_exit(self.wait, self.forget)
                self._is_registered = True
            left = self._threads
            self._threads = [(thread, numbers) for thread, numbers in left if thread() is not None or self._holds_more(numbers)]
            self._threads.append((weakref.ref(mine), mine.numbers))
        return mine.numbers

    def _holds_more(self, numbers: Numbers) -> bool:
        """Whether a thread that has ended has left more than calls that went well; those are dropped."""
        while numbers and is_ready(numbers[0].value) and _failure(numbers[0]) is None:
            numbers.popleft()
        return bool(numbers)

    def _failures(self, numbers: Numbers) -> Iterator[Failure]:
        """Those among all of a thread's numbers, which are waited for."""
        while (oldest := _first(numbers)) is not None:
            failure = self._read(numbers, oldest)
            if failure is not None:
                yield failure

    def _read(self, numbers: Numbers, oldest: Number) -> Failure | None:
        """What the oldest number says; nothing, if another thread has taken it meanwhile."""
        failure = _failure(oldest)
        with self._lock:
            if _first(numbers) is not oldest:
                return None
            numbers.popleft()
        return failure


class _Mine:
    """The numbers of one thread, which is gone when this is."""

    def __init__(self) -> None:
        self.numbers: Numbers = deque()


OUTSTANDING: Final = Outstanding()


def wait() -> None:
    """Wait for the calls of functions with `checks="later"`, of all threads, and raise what a run-time check of theirs has found.

    Raises:
        EquinoxRuntimeError: A check has failed: that of the call that was made first. Its notes say which call that was, and name other
            calls that failed.
    """
    OUTSTANDING.wait()


def _first(numbers: Numbers) -> Number | None:
    try:
        return numbers[0]
    except IndexError:  # asking first whether there is one would be too early: another thread may wait for them
        return None


def _failure(number: Number) -> Failure | None:
    try:
        code = int(np.asarray(number.value))
    except (FAILURE, ValueError) as error:  # of a check that is a callback still, of another callback, of the device
        return Failure(number, partial(fail_as, error))
    return Failure(number, partial(number.table.fail, code)) if code else None


def _raise(failures: Sequence[Failure]) -> Never:
    first, *others = failures
    try:
        first.fail()
    except Exception as error:
        error.add_note(f'Found late, since checks="later": this is of {first.number.text}. What was made of its results is wrong too.')
        if others:
            error.add_note(f"Failed behind it: {few([f'{failure.number.text} ({_said(failure)})' for failure in others])}.")
        raise


def _said(failure: Failure) -> str:
    try:
        failure.fail()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return words_of(error)
