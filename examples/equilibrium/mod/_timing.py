"""Leads and lags beyond what a model has, by auxiliary variables.

A model reads the states, controls and shocks of today and tomorrow. A lag is a state that
remembers: `k(-1)` today is `k` of yesterday. A lead of two dates is what tomorrow expects of the
day after. Of a product E[f(c(+2)) g(c(+1))] it is the whole that tomorrow expects, so the variable
stands for the expression that is not linear, a date earlier, and the second order is right too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ._expressions import (
    Call,
    Expression,
    Name,
    shift,
    walk,
    written,
)
from ._places import Place


@dataclass
class Timing:
    """What leads and lags add to a model.

    Args:
        moving: Names of what has a date, variables and shocks.
        controls: Equations of auxiliary controls by name: the control is the expression.
        states: For each auxiliary state, what it remembers.
    """

    moving: frozenset[str]
    controls: dict[str, Expression] = field(default_factory=dict[str, Expression])
    states: dict[str, Name] = field(default_factory=dict[str, Name])

    def dated(self, given: Expression) -> Iterable[Name]:
        """What in an expression has a date."""
        return (each for each in walk(given) if isinstance(each, Name) and each.name in self.moving)

    def lead(self, given: Expression) -> int:
        """The furthest date that an expression reads; of what has none, far back."""
        return max((name.lead for name in self.dated(given)), default=-1000)

    def shortened(self, given: Expression) -> Expression:
        """The same expectation without leads beyond tomorrow."""
        far = self.lead(given)
        if far <= 1:
            return given
        if isinstance(given, Call):
            match given.function, given.args:
                case (("+" | "-" | "neg"), args):
                    return Call(given.function, tuple(self.shortened(arg) for arg in args))
                # what is known today is a factor of the expectation
                case "*", (a, b) if self.lead(a) <= 0 or self.lead(b) <= 0:
                    return Call("*", (self.shortened(a), self.shortened(b)))
                case "/", (a, b) if self.lead(b) <= 0:
                    return Call("/", (self.shortened(a), b))
                case _:
                    pass
        before = shift(given, 1 - far)
        text = written(before)
        name = text if isinstance(given, Name) else f"E[{text}]"
        self.controls.setdefault(name, before)
        for date in range(1, far - 1):
            last = name
            name = f"{given.name}({date + 1:+d})" if isinstance(given, Name) else f"{text}[{date}]"
            self.controls.setdefault(name, Name(last, 1, _NOWHERE))
        return Name(name, 1, _NOWHERE)

    def remember(self, given: Expression) -> None:
        """Make a state for each lag of an expression, and for those between it and today."""
        for name in self.dated(given):
            for lag in range(1, 1 - name.lead):
                last = Name(name.name, 1 - lag, name.place)
                self.states.setdefault(written(Name(name.name, -lag, name.place)), last)


_NOWHERE = Place("an auxiliary variable", 0)


def timed(
    equations: Iterable[Expression], moving: Iterable[str]
) -> tuple[list[Expression], Timing]:
    """Equations with leads of one date at most, and what else the model needs."""
    timing = Timing(frozenset(moving))
    found = [timing.shortened(each) for each in equations]
    timing.moving |= frozenset(timing.controls)
    for each in (*found, *timing.controls.values()):
        timing.remember(each)
    return found, timing
