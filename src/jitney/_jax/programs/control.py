"""Loops and branches of a jaxpr bound anew, around programs that an interpreter evaluates.

An interpreter that changes nothing about a loop but what its body computes rebuilds it here. Those
that change the carry do it themselves: a flag beside it (`_checks/flag_interpreter.py`), iterations
of padding (`_axes/rules/control.py`), chunks (`_axes/chunks`), a stop at the first NaN
(`_diagnosis/nonfinite/loops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from ..typed import AnyJaxpr, Array, JaxprEqn
from .jaxprs import scan_parts, while_parts

Values = list[Array]
Evaluate = Callable[..., Values]
"""Function from the arguments of a program to its results."""
Turn = Callable[[Values, Values], tuple[Values, Values]]
"""Body of a scan, from carry and row to the new carry and what is stacked."""


def rebuild(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    run: Callable[[AnyJaxpr, Values], Values],
) -> Values:
    """Bind a scan, while or cond anew, with `run(program, arguments)` in place of each of its
    programs.
    """

    def evaluate(program: AnyJaxpr) -> Evaluate:
        return lambda *values: run(program, [*values])

    params = eqn.params
    if eqn.primitive.name == "scan":
        return rebuild_scan(eqn, operands, evaluate(params["jaxpr"]))
    if eqn.primitive.name == "while":
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        return rebuild_while(eqn, operands, evaluate(condition), evaluate(body))
    return rebuild_cond(operands, [evaluate(branch) for branch in params["branches"]])


def rebuild_scan(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    body: Evaluate,
    wrap: Callable[[Turn], Turn] | None = None,
) -> Values:
    """Bind a scan anew; `wrap` is a transform of its body, such as `jax.checkpoint`."""
    fixed, carry, rows = scan_parts(eqn, [*operands])
    count = len(carry)

    def turn(carry: Values, row: Values) -> tuple[Values, Values]:
        out = body(*fixed, *carry, *row)
        return out[:count], out[count:]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    wrapped = turn if wrap is None else wrap(turn)
    last, ys = jax.lax.scan(wrapped, carry, rows, **options)
    return [*last, *ys]


def rebuild_while(
    eqn: JaxprEqn,
    operands: Sequence[Array],
    condition: Evaluate,
    body: Evaluate,
) -> Values:
    """Bind a while loop anew."""
    outside, inside, carry = while_parts(eqn, [*operands])

    def goes_on(values: Values) -> Array:
        return condition(*outside, *values)[0]

    def turn(values: Values) -> Values:
        return body(*inside, *values)

    return list(jax.lax.while_loop(goes_on, turn, carry))


def rebuild_cond(operands: Sequence[Array], branches: Sequence[Evaluate]) -> Values:
    """Bind a branch anew; its first operand is the index of the branch."""
    index, *arguments = operands
    return list(jax.lax.switch(index, branches, *arguments))
