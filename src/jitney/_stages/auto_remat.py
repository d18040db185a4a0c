"""Stage of `remat="auto"`: choose the residuals that the backward pass of a gradient finds saved.

Saved stands outside Vmap, since the memory is that of all examples together. It acts where the
program is called under an outer trace, which is where a gradient of it can be taken; for `f.grad`
and its kin it acts inside the derivative. The program is changed before it is differentiated, so
the choice is made on the gradient with respect to all floating-point arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import jax

from .. import _remat
from .._axes import at_any_size
from .._errors import Where
from .._host.own_time import OWN_TIME
from .._jax.typed import Array
from .._jax.xla.memory import free_bytes, text
from .._signature.options import AUTO
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage

_BY_ITSELF = (
    "no gradient of it is asked: a call by itself saves nothing for a backward pass. It acts on"
    " gradients of this function, as `jitney.analysis.frontier` shows; a gradient that the body"
    " takes is that of the loss in it: decorate the loss"
)


@dataclass(frozen=True)
class SavedBody:
    """Function as its backward pass will see it.

    Args:
        fn: Takes a list of arrays and returns the results of the function, flat.
        again: True if anything is recomputed; otherwise the function serves as it is.
        why: Reason for a line of the plan.
    """

    fn: Callable[[Sequence[Array]], Sequence[Array]]
    again: bool
    why: str


def choose_residuals(
    where: Where,
    fn: Fn,
    arrays: Sequence[Array],
    budget: int,
) -> SavedBody:
    """Choose what to save so that the gradient of a function fits the budget.

    Raises:
        BudgetError: Nothing fits.
    """
    began = time.perf_counter()
    program = jax.make_jaxpr(fn)(*arrays)
    traced = time.perf_counter() - began

    with OWN_TIME.running():
        problem = _remat.Problem(program)
        chosen = _remat.choose(problem, budget) if problem.has_gradient else None
        if isinstance(chosen, _remat.NoneFits):
            raise _remat.not_fitting(where, chosen.points, budget)

    again = chosen is not None and chosen.point.option != _remat.EVERYTHING
    # The caller traces the unchanged function again, so the first trace was jitney's own time.
    if not again:
        OWN_TIME.add(traced)
    if chosen is None:
        return SavedBody(
            lambda arrays: list(fn(*arrays)),
            again,
            why="no gradient: no result or no argument is real and varies",
        )
    return SavedBody(chosen.fn, again, chosen.text(budget))


@dataclass(frozen=True)
class AutoRemat(Stage):
    """Body with parts of it under `jax.checkpoint`, so that its gradient fits."""

    budget: int
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="saved", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        memory = request.options.memory
        if request.options.remat != AUTO or memory is None:
            return Skip("saved", 'no `remat="auto"` given')
        if not request.nested:
            return Skip("saved", _BY_ITSELF)
        budget = free_bytes() if memory == AUTO else int(memory)
        why = f"what a gradient saves is chosen to fit into {text(budget)}"
        return cls(budget, request.where, why)

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def saved(*arrays: Array) -> Sequence[Array]:
            # Bytes are compared with a budget, which takes known sizes.
            if at_any_size():
                return fn(*arrays)
            chosen = choose_residuals(self.where, fn, arrays, self.budget)
            return chosen.fn(arrays) if chosen.again else fn(*arrays)

        return saved
