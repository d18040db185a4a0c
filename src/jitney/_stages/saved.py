"""Choose what the backward pass of a gradient finds saved: `remat="auto"`.

It stands outside Vmap, since memory is that of all examples together. It acts where the program is
called under an outer trace, which is where a gradient of it can be taken; of `f.grad` and its kin
it acts inside the derivative. The program is changed before anyone differentiates it, so what it is
changed to is found on the gradient with respect to all its floating-point arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .. import _saving
from .._axes import at_any_size
from .._errors import Where
from .._jax.memory import free_bytes, text
from .._own_time import OWN_TIME
from .._signature.options import AUTO
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage

_jax: Any = jax
_BY_ITSELF = (
    "no gradient of it is asked: a call by itself saves nothing for a backward pass. It acts on"
    " gradients of this function, as `jitney.frontier` shows; a gradient that the body takes is"
    " that of the loss in it: decorate the loss"
)


@dataclass(frozen=True)
class SavedBody:
    """A function as its backward pass will see it.

    Args:
        fn: Of a list of arrays; the results of the function, flat.
        again: Whether anything is recomputed: else the function serves as it is.
        why: For a line of the plan.
    """

    fn: Callable[[Sequence[Any]], list[Any]]
    again: bool
    why: str


def saving(where: Where, fn: Callable[..., Any], arrays: Sequence[Any], budget: int) -> SavedBody:
    """What to save so that the gradient of a function fits.

    Raises:
        BudgetError: Nothing fits.
    """
    began = time.perf_counter()
    program = _jax.make_jaxpr(fn)(*arrays)
    traced = time.perf_counter() - began
    with OWN_TIME.running():
        problem = _saving.Problem(program)
        try:
            chosen = _saving.choose(problem, budget) if problem.has_gradient else None
        except _saving.Nothing as failed:
            raise _saving.not_fitting(where, failed.points, budget) from None
    again = chosen is not None and chosen.point.option != _saving.EVERYTHING
    if not again:  # the function is run once more
        OWN_TIME.add(traced)
    if chosen is None:
        return SavedBody(
            lambda arrays: list(fn(*arrays)),
            again,
            why="no gradient: no result or no argument is real and varies",
        )
    return SavedBody(chosen.fn, again, chosen.text(budget))


@dataclass(frozen=True)
class Saved(Stage):
    """The body, with parts of it under `jax.checkpoint` so that its gradient fits."""

    budget: int
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="saved", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        memory = request.options.memory
        if request.options.remat != AUTO or memory is None:
            return Skip("saved", 'no `remat="auto"` given')
        if not request.nested:
            return Skip("saved", _BY_ITSELF)
        budget = free_bytes() if memory == AUTO else int(memory)
        return cls(
            budget, request.where, f"what a gradient saves is chosen to fit into {text(budget)}"
        )

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def saved(*arrays: Any) -> Sequence[Any]:
            if at_any_size():
                return fn(*arrays)
            chosen = saving(self.where, fn, arrays, self.budget)
            return chosen.fn(arrays) if chosen.again else fn(*arrays)

        return saved
