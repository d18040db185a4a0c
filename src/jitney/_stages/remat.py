"""Stage that rematerialises: the backward pass recomputes intermediate values instead of saving
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .._jax.evaluation import CallStack, applied, without_calls
from .._jax.jaxprs import bound, called, opened, scan_parts
from .._jax.memory import compiled_bytes, text
from .._jax.primitives import PLAIN_CALLS
from .._jax.typed import AnyJaxpr, Array, JaxprEqn
from .._signature.options import AUTO
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Remat(Stage):
    """`jax.checkpoint` around the body, under a policy of `jax.checkpoint_policies`."""

    policy: str
    why: str = field(compare=False)
    name: str = field(default="remat", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        policy = request.options.remat
        if policy is None:
            return Skip("remat", "no `remat` policy given")
        if policy == AUTO:
            return Skip("remat", "what is saved is chosen for all examples together")
        return cls(policy, f"the backward pass keeps what `{policy}` says and recomputes the rest")

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        policy = getattr(jax.checkpoint_policies, self.policy)
        return jax.checkpoint(fn, policy=policy)


# Below: rematerialisation for `memory=` in a derivative.


@dataclass(frozen=True)
class Choice:
    """Function as its backward pass will see it, with the reason."""

    fn: Callable[[Sequence[Any]], Any]
    why: str


def remat_to_fit(traced: Any, arrays: Sequence[Array], budget: int) -> Choice:
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
    program, constants = opened(traced)

    def taken(run: Callable[[Any, Sequence[Any], Sequence[Any]], Any]) -> int:
        def gradient(constants: Any, arrays: Any) -> Any:
            def value(arrays: Any) -> Any:
                return run(program, constants, arrays)[0]

            return jax.grad(value)(arrays)

        return compiled_bytes(
            gradient,
            [
                [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arguments]
                for arguments in (constants, arrays)
            ],
        )

    def as_it_is(arrays: Sequence[Array]) -> Any:
        return applied(program, constants, arrays)[0]

    # Compile the gradient both ways; a way that the compiler finds no smaller is not worth the
    # time.
    whole = taken(applied)
    if whole <= budget:
        return Choice(as_it_is, f"keeps everything: {text(whole)} of {text(budget)}")
    less = taken(evaluate_with_remat)
    if less >= whole:
        return Choice(
            as_it_is,
            f"keeps everything: {text(whole)}, more than {text(budget)}, which recomputing loops"
            " does not bring down",
        )
    return Choice(
        lambda arrays: evaluate_with_remat(program, constants, arrays)[0],
        f"remat of the bodies of loops: {text(less)} instead of {text(whole)},"
        f" {'of' if less <= budget else 'more than'} {text(budget)}",
    )


def evaluate_with_remat(
    program: AnyJaxpr, constants: Sequence[object], arrays: Sequence[Array]
) -> list[Any]:
    """Evaluate a program with `jax.checkpoint` around the body of every `scan`."""

    def results(eqn: JaxprEqn, operands: list[Array], _: CallStack) -> list[Any]:
        return _loop(eqn, operands) if eqn.primitive.name == "scan" else bound(eqn, operands)

    def inside(eqn: JaxprEqn) -> Any | None:
        return called(eqn) if eqn.primitive.name in PLAIN_CALLS else None

    return without_calls(program, arrays, results, inside, constants=constants)


def _loop(eqn: JaxprEqn, operands: list[Array]) -> list[Any]:
    fixed, carry, rows = scan_parts(eqn, operands)
    body, constants = opened(eqn.params["jaxpr"])
    count = len(carry)

    def turn(carry: Any, row: Any) -> Any:
        out = evaluate_with_remat(body, constants, [*fixed, *carry, *row])
        return out[:count], out[count:]

    # Inside a scan `prevent_cse` is not needed: the loops of the forward and of the backward pass
    # are apart.
    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    last, ys = jax.lax.scan(jax.checkpoint(turn, prevent_cse=False), carry, rows, **options)
    return [*last, *ys]
