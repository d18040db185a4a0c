"""Stages that rematerialise: the backward pass recomputes intermediate values instead of saving
them.

`Remat` follows a policy. `AutoRemat` (`remat="auto"`) chooses the residuals that the backward pass
of a gradient finds saved. It stands outside Vmap, since the memory is that of all examples
together. It acts where the program is called under an outer trace, which is where a gradient of it
can be taken; for `f.grad` and its kin it acts inside the derivative. The program is changed before
it is differentiated, so the choice is made on the gradient with respect to all floating-point
arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import jax

from .. import _remat
from .._axes import at_any_size
from .._errors import Where
from .._host.own_time import OWN_TIME
from .._jax.programs.control import rebuild_scan
from .._jax.programs.evaluation import CallStack, evaluate_jaxpr, without_calls
from .._jax.programs.jaxprs import called_jaxpr, open_jaxpr, rebind
from .._jax.programs.primitives import PLAIN_CALLS
from .._jax.typed import AnyJaxpr, Array, Jaxpr, JaxprEqn
from .._jax.xla.memory import compiled_bytes, free_bytes, text
from .._signature.options import AUTO
from .._signature.policies import RematPolicy, policy_function
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Remat(Stage):
    """`jax.checkpoint` around the body, under a policy of `jax.checkpoint_policies`."""

    policy: str | RematPolicy
    why: str = field(compare=False)
    name: str = field(default="remat", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        policy = request.options.remat
        if policy is None:
            return Skip("remat", "no `remat` policy given")
        if policy == AUTO:
            return Skip("remat", "what is saved is chosen for all examples together")
        return cls(policy, f"the backward pass keeps what `{policy}` says and recomputes the rest")

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        return jax.checkpoint(fn, policy=policy_function(self.policy))


# Below: rematerialisation for `memory=` in a derivative.


Evaluate = Callable[[Jaxpr, Sequence[Array], Sequence[Array]], list[Array]]
"""Evaluator of a program: from its constants and arguments to its results."""


@dataclass(frozen=True)
class Choice:
    """Function as its backward pass will see it, with the reason."""

    fn: Callable[[Sequence[Array]], Array]
    why: str


def remat_to_fit(
    traced: AnyJaxpr,
    arrays: Sequence[Array],
    budget: int,
) -> Choice:
    """Rematerialise the bodies of loops in a scalar function of a list of arrays, if the budget
    needs it.

    A loop saves the residuals of every iteration, unless its body is rematerialised: then it saves
    the carries only. That is where recomputing brings memory down; `jax.checkpoint` around a
    function without loops recomputes everything at once.

    Args:
        traced: Jaxpr of the function.
        arrays: Arrays at which its gradient is taken.
        budget: Bytes that temporaries and arguments may take, as the compiler counts them.
    """
    program, constants = open_jaxpr(traced)

    def taken(evaluate: Evaluate) -> int:
        def gradient(constants: list[Array], arrays: list[Array]) -> list[Array]:
            def value(arrays: list[Array]) -> Array:
                return evaluate(program, constants, arrays)[0]

            return jax.grad(value)(arrays)

        return compiled_bytes(gradient, [_avals(constants), _avals(arrays)])

    def as_it_is(arrays: Sequence[Array]) -> Array:
        return evaluate_jaxpr(program, constants, arrays)[0]

    def with_remat(arrays: Sequence[Array]) -> Array:
        return evaluate_with_remat(program, constants, arrays)[0]

    # Compile the gradient both ways; a way that the compiler finds no smaller is not worth the
    # time.
    whole = taken(evaluate_jaxpr)
    if whole <= budget:
        return Choice(as_it_is, f"keeps everything: {text(whole)} of {text(budget)}")
    less = taken(evaluate_with_remat)
    if less >= whole:
        return Choice(
            as_it_is,
            f"keeps everything: {text(whole)}, more than {text(budget)}, which recomputing loops"
            " does not bring down",
        )
    fits = "of" if less <= budget else "more than"
    return Choice(
        with_remat,
        f"remat of the bodies of loops: {text(less)} instead of {text(whole)},"
        f" {fits} {text(budget)}",
    )


def _avals(arrays: Sequence[Array]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def evaluate_with_remat(
    program: Jaxpr,
    constants: Sequence[Array],
    arrays: Sequence[Array],
) -> list[Array]:
    """Evaluate a program with `jax.checkpoint` around the body of every `scan`."""

    def results(
        eqn: JaxprEqn,
        operands: list[Array],
        _: CallStack,
    ) -> list[Array]:
        if eqn.primitive.name == "scan":
            return _loop(eqn, operands)
        return rebind(eqn, operands)

    def inside(eqn: JaxprEqn) -> AnyJaxpr | None:
        return called_jaxpr(eqn) if eqn.primitive.name in PLAIN_CALLS else None

    return without_calls(program, arrays, results, inside, constants=constants)


def _loop(eqn: JaxprEqn, operands: list[Array]) -> list[Array]:
    body, constants = open_jaxpr(eqn.params["jaxpr"])

    def turn(*inputs: Array) -> list[Array]:
        return evaluate_with_remat(body, constants, inputs)

    # Inside a scan `prevent_cse` is not needed: the loops of the forward and of the backward pass
    # are apart.
    checkpointed = partial(jax.checkpoint, prevent_cse=False)
    return [*rebuild_scan(eqn, operands, turn, wrap=checkpointed)]


# Below: `remat="auto"`.

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
