"""Stages for `memory` where nothing can be cut: in a function called with symbolic sizes, and in
one without named axes.

The compiler measures memory at known sizes only. Inside a function that is padded or cut, the whole
is therefore compiled at the largest sizes that the symbols stand for: if it fits there, it fits at
every size, and nothing is cut here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax

from ... import _axes
from ..._axes import Refused, evaluate, is_symbolic, ranges_at_hand
from ..._errors import AxisError, Where
from ..._jax.typed import Array
from ..._jax.xla.memory import budget_of, compiled_bytes, text
from ..._view.result import Outcome
from ..._view.view import View
from ..sharding import Place
from ..stage import Fn, Request, Shardings, Stage


@dataclass(frozen=True)
class Bounded(Stage):
    """Budget for all of a body with symbolic sizes."""

    budget: int
    view: View = field(compare=False)
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="chunk", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Bounded:
        budget = budget_of(request.where, request.options.memory)
        return cls(
            budget,
            view,
            request.where,
            f"not cut inside an axis that is: all of it takes no more than {text(budget)}",
        )

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def bounded(*arrays: Array) -> Sequence[Array]:
            taken = compiled_bytes(fn, self.avals())
            if taken > self.budget:
                raise Refused(
                    "",
                    f"calls {self.where}, which takes {text(taken)} all at once, and whose `memory`"
                    f" of {text(self.budget)} is kept by chunks of a known size",
                )
            return fn(*arrays)

        return bounded

    def avals(self) -> list[jax.ShapeDtypeStruct]:
        """Abstract arguments at the largest sizes."""
        largest = {symbol: high for symbol, (_, high) in ranges_at_hand().items()}
        avals: list[jax.ShapeDtypeStruct] = []
        for leaf in self.view.leaves:
            shape = tuple(evaluate(dim, largest) for dim in leaf.shape)
            avals.append(leaf.reshape(shape).abstract())
        return avals


@dataclass(frozen=True)
class Whole(Stage):
    """Budget for all of a body whose arrays have no named axis to cut."""

    budget: int
    view: View = field(compare=False)
    where: Where = field(compare=False)
    why: str = field(compare=False)
    # Shardings of the arrays.
    placed: Shardings | None = field(default=None, compare=False)
    name: str = field(default="chunk", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Whole:
        budget = budget_of(request.where, request.options.memory)
        place = request.outer_stage(Place)
        return cls(
            budget,
            view,
            request.where,
            f"no named axis to cut: all of it takes no more than {text(budget)}",
            None if place is None else place.shardings,
        )

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def whole(*arrays: Array) -> Sequence[Array]:
            avals = [leaf.abstract() for leaf in self.view.leaves]
            compiled = fn if self.placed is None else _axes.partition_safe(fn)
            taken = compiled_bytes(compiled, avals, self.placed)
            if taken > self.budget:
                raise AxisError(
                    self.where,
                    f"it takes {text(taken)}, more than its memory of {text(self.budget)}, and has"
                    " no named axis to cut.",
                    "`memory` bounds temporaries and arguments, as the compiler counts them, and is"
                    " kept by cutting a named axis.",
                    'annotate the axis that is long, as in x: Float[Array, "n"], or give it'
                    f" memory={taken}.",
                    code="J230",
                )
            return fn(*arrays)

        return whole


def is_open(view: View) -> bool:
    """Return whether the size of an array is symbolic."""
    return any(is_symbolic(dim) for leaf in view.leaves for dim in leaf.shape)
