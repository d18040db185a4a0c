"""Numbers of calls with `checks="later"` that nobody has looked at yet: whose they are, who looks,
and when.

Each thread has its own, so that an error is raised in the thread that made the call, and not in
another's `try`. It looks before each further call at those that are there, and waits for none until
there are too many of them; `wait` and the end of Python look at all threads'. Numbers stay in their
places until all of them have been read, and failures return to theirs if something else than their
error is raised: whoever is interrupted loses none.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Never

import numpy as np

from .._errors import few
from .._jax.equinox_checks import FAILURE, fail_as, words_of
from .._owners import public
from .at_exit import at_exit
from .table import Table

MOST: Final = 32
"""How many numbers of one thread are left for later: so many calls late an error may be raised, and
so many programs stand in the queue.
"""


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
        self._lock = threading.RLock()  # a handler of signals may call this in the middle of it
        self._here = threading.local()
        # a thread that has ended leaves its numbers
        self._threads: list[tuple[weakref.ref[Any], Numbers]] = []
        self._order = itertools.count()
        self._is_registered = False

    def look(self) -> None:
        """Look at the numbers of this thread that are there.

        Raises:
            EquinoxRuntimeError: A check has failed.
        """
        numbers = self._mine()
        while (oldest := _first(numbers)) is not None:
            if len(numbers) < MOST and not oldest.value.is_ready():
                return
            if _failure(oldest) is not None:
                self._raise_of([numbers])
            else:
                self._take(numbers, oldest)

    def add(self, value: Any, table: Table, where: Any, call: int) -> None:
        """Leave the number of a call for later."""
        self._mine().append(Number(value, table, where, call, next(self._order)))

    def wait(self) -> None:
        """Look at all numbers of all threads.

        Raises:
            EquinoxRuntimeError: A check has failed; that of the first call, with the others in
                notes.
        """
        with self._lock:
            threads = [numbers for _, numbers in self._threads]
        self._raise_of(threads)

    def forget(self) -> None:
        """Of a process that was forked: the calls are its parent's, as is what they ran on."""
        self._lock = threading.RLock()
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
            self._threads = [
                (thread, numbers)
                for thread, numbers in left
                if thread() is not None or self._holds_more(numbers)
            ]
            self._threads.append((weakref.ref(mine), mine.numbers))
        return mine.numbers

    def _holds_more(self, numbers: Numbers) -> bool:
        """Whether a thread that has ended has left more than calls that went well; those are
        dropped.
        """
        while numbers and numbers[0].value.is_ready() and _failure(numbers[0]) is None:
            self._take(numbers, numbers[0])
        return bool(numbers)

    def _raise_of(self, threads: Sequence[Numbers]) -> None:
        """Wait for all numbers of these threads, and raise what they say."""
        read = [
            (numbers, number, _failure(number)) for numbers in threads for number in numbers.copy()
        ]
        mine: list[tuple[Numbers, Failure]] = []
        try:
            for numbers, number, failure in read:
                if self._take(numbers, number) and failure is not None:
                    mine.append((numbers, failure))
            if mine:
                _raise(
                    sorted(
                        (failure for _, failure in mine), key=lambda failure: failure.number.order
                    )
                )
        except Exception:
            raise
        except BaseException:  # of somebody who interrupts: nobody has been told
            for numbers, failure in reversed(mine):
                numbers.appendleft(failure.number)
            raise

    def _take(self, numbers: Numbers, number: Number) -> bool:
        """Take the oldest number, if it is this one: another thread, or a handler of signals, may
        have taken it meanwhile.
        """
        with self._lock:
            oldest = numbers.popleft() if numbers else None
            if oldest is not None and oldest is not number:
                numbers.appendleft(oldest)
        return oldest is number


class _Mine:
    """The numbers of one thread, which is gone when this is."""

    def __init__(self) -> None:
        self.numbers: Numbers = deque()


OUTSTANDING: Final = Outstanding()


@public
def wait() -> None:
    """Wait for the calls of functions with `checks="later"`, of all threads, and raise what a
    run-time check of theirs has found.

    Raises:
        EquinoxRuntimeError: A check has failed: that of the call that was made first. Its notes say
            which call that was, and name other calls that failed.
    """
    OUTSTANDING.wait()


def _first(numbers: Numbers) -> Number | None:
    try:
        return numbers[0]
    # asking first whether there is one would be too early: another thread may wait for them
    except IndexError:
        return None


def _failure(number: Number) -> Failure | None:
    try:
        code = int(np.asarray(number.value))
    # of a check that is a callback still, of another callback, of the device
    except (FAILURE, ValueError) as error:
        return Failure(number, partial(fail_as, error))
    return Failure(number, partial(number.table.fail, code)) if code else None


def _raise(failures: Sequence[Failure]) -> Never:
    first, *others = failures
    try:
        first.fail()
    except Exception as error:
        error.add_note(
            f'Found late, since checks="later": this is of {first.number.text}. What was made of'
            " its results is wrong too."
        )
        if others:
            error.add_note(
                "Failed behind it:"
                f" {few([f'{failure.number.text} ({_said(failure)})' for failure in others])}."
            )
        raise


def _said(failure: Failure) -> str:
    try:
        failure.fail()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return words_of(error)
