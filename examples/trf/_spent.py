"""Calls of a function on the host, counted and timed: what a function that is not traced costs."""

import time
from collections.abc import Callable
from typing import Any


class Spent:
    """The function, its calls so far and the seconds in them."""

    def __init__(self, fun: Callable[..., Any], clock: Callable[[], float] = time.perf_counter):
        self.fun, self.clock, self.calls, self.seconds = fun, clock, 0, 0.0

    def __call__(self, x: Any) -> Any:
        begin = self.clock()
        self.calls += 1
        try:
            return self.fun(x)
        finally:
            self.seconds += self.clock() - begin


def cost(seconds: float, fun: Spent, differences: Spent) -> str:
    """A sentence on a fit that took these seconds: the share of its function, and of those of its
    calls that a traced function does without.
    """
    text = (
        f"Measured: of the {seconds:.2g} s of this fit {fun.seconds:.2g} s were spent in"
        f" {_calls(fun)} of `fun`"
    )
    if not differences.calls:
        return text + "."
    return (
        f"{text}, {differences.seconds:.2g} s of them in the {_calls(differences)} for"
        " differences, which a traced function does without."
    )


def _calls(spent: Spent) -> str:
    return "1 call" if spent.calls == 1 else f"{spent.calls:,} calls"
