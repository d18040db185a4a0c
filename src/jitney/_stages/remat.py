"""Stage that rematerialises: the backward pass recomputes intermediate values instead of saving
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import jax

from .._jax.programs.control import rebuild_scan
from .._jax.programs.evaluation import CallStack, evaluate_jaxpr, without_calls
from .._jax.programs.jaxprs import called_jaxpr, open_jaxpr, rebind
from .._jax.programs.primitives import PLAIN_CALLS
from .._jax.typed import AnyJaxpr, Array, Jaxpr, JaxprEqn
from .._jax.xla.memory import compiled_bytes, text
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
    return rebuild_scan(eqn, operands, turn, partial(jax.checkpoint, prevent_cse=False))
