"""Loops over something else than the cut axis whose iterations read what is put together over all
of it: a solver's sums of squares, say. Each iteration takes passes of its own over the data.

    while k < 10:                      while k < 10:
        x = x - sum(f(x, t[n]))            for each chunk of t:  s = s + sum(f(x, chunk))
                                           x = x - s

The body of the loop is planned and run as a program is. The loop itself runs at once, outside of
chunks (`materialised.py`): its operands are there as a whole, and so is what has the axis in its
carry. All else that an iteration makes along the axis is made chunk by chunk.

A loop, branch or solve whose body cannot be cut (a window of the axis at a time that the loop
computes) runs at once as it is, if no array that it makes is larger than what is there anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax

from ..._jax.programs.control import rebuild_scan, rebuild_while
from ..._jax.programs.jaxprs import inside, open_jaxpr
from ..._jax.programs.primitives import public_name
from ..._jax.typed import Atom
from ..dims import Dim, evaluate
from ..interpreter import Op, ragged_axes, shape_of
from ..refusal import Refused
from .passes import LoopPasses, Passes

Values = list[jax.Array]


def plan_loop(
    op: Op,
    plan: Callable[[object], Passes],
) -> LoopPasses | None:
    """Plan the passes of each iteration of a loop; None if it is no such loop.

    Args:
        op: A loop, branch or solve over another axis.
        plan: Plans the passes of a program whose arguments are there as a whole.

    Raises:
        Refused: The body or the condition cannot be cut.
    """
    if op.eqn.effects:
        return None
    try:
        if op.name == "scan":
            return LoopPasses(plan(op.params["jaxpr"]))
        if op.name != "while":
            return None
        if ragged_axes(_predicate_dims(op)):
            return None
        return LoopPasses(
            plan(op.params["body_jaxpr"]),
            plan(op.params["cond_jaxpr"]),
        )
    except Refused as refused:
        what = f"{refused.what}, inside `{public_name(op.name)}`"
        raise Refused(refused.place or op.place, what) from refused


def is_small(op: Op) -> bool:
    """Return whether no array that is made inside of an operation is larger than its operands and
    results with the axis together, so that it can run at once.
    """
    if op.eqn.effects:
        return False
    atoms = [*op.eqn.invars, *op.eqn.outvars]
    there = sum(_bytes(atom, op) for atom in atoms if ragged_axes(shape_of(atom)))
    for eqn in inside(op.eqn):
        for atom in eqn.outvars:
            dims = ragged_axes(shape_of(atom))
            if len(dims) > 1 or (dims and _bytes(atom, op) > there):
                return False
    return True


def _bytes(atom: Atom, op: Op) -> int:
    """Bytes of a value at the largest size."""
    most = {symbol: high for symbol, (_, high) in op.ranges.items()}
    shape = [evaluate(dim, most) for dim in shape_of(atom)]
    return math.prod(shape) * atom.aval.dtype.itemsize


def run_loop(
    op: Op,
    loop: LoopPasses,
    operands: Values,
    run: Callable[[Passes, Sequence[jax.Array]], Values],
) -> Values:
    """Evaluate a loop on whole operands, with passes over chunks in each iteration.

    Args:
        op: The loop.
        loop: The plans of its body and of its condition.
        operands: Its operands.
        run: Runs a plan on whole arguments.
    """

    def body(*given: jax.Array) -> Values:
        return run(loop.body, given)

    condition = loop.condition
    if condition is None:
        return rebuild_scan(op.eqn, operands, body)

    def goes_on(*given: jax.Array) -> Values:
        return run(condition, given)

    return rebuild_while(op.eqn, operands, goes_on, body)


def _predicate_dims(op: Op) -> tuple[Dim, ...]:
    """The shape of the condition of a `while`: one for each element of the batch under `vmap`."""
    condition, _ = open_jaxpr(op.params["cond_jaxpr"])
    return shape_of(condition.outvars[0])
