"""Folding of decisions by known floats into constants of a program, so that the sparsity pattern
and the program that runs use the same indices and masks.

    mask = lt (mul (iota 6) 0.1) 0.3   ->   mask = [True, True, True, False, False, False]

The value of `arange(n) * 0.1 < 0.3` depends on which operations the compiler fuses, and an index
computed from floats that do not fit into integers depends on the device. A pattern that was read
with other indices than the program runs with would give wrong elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from .._jax.evaluation import values_at
from .._jax.jaxprs import bound, opened, programs, scan_parts, while_parts
from .._jax.primitives import PLAIN_CALLS, REMATS
from .._jax.typed import AnyJaxpr, JaxprEqn
from .._remat import flattened
from .constant_folding import FoldedValues

_INSIDE = (*PLAIN_CALLS, "closed_call", "core_call")


def fold_decisions(traced: object, at: Sequence[object]) -> Any:
    """Program with its decisions as constants; the program itself if there are none.

    Args:
        traced: A closed program.
        at: Its arguments, or abstract ones.
    """

    def run(arrays: Sequence[object]) -> list[Any]:
        return _run(traced, arrays)

    return jax.make_jaxpr(run)(list(at)) if _is_open(traced) else traced


def _is_open(jaxpr: object) -> bool:
    """Return whether a program or its loops decide anything by known floats."""
    known = _known(jaxpr)
    return bool(known.decisions) or any(_rebuilds(step.eqn) for step in known.flat.steps)


def _rebuilds(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in _BUILDERS and any(map(_is_open, programs(eqn.params)))


def _known(jaxpr: object) -> FoldedValues:
    flat = flattened(jaxpr, _INSIDE)
    return FoldedValues(flat, dict(zip(flat.takes, opened(jaxpr)[1], strict=False)), decided=True)


def _run(jaxpr: object, operands: Sequence[object]) -> list[Any]:
    known = _known(jaxpr)
    flat = known.flat
    env = dict(zip(flat.takes, (*opened(jaxpr)[1], *operands), strict=True))
    # All decisions of this level, computed by one compiled program.
    settled = known.values([number for step in known.decisions for number in step.makes])
    for step in flat.steps:
        if step.makes and step.makes[0] in settled:
            env.update((number, settled[number]) for number in step.makes)
            continue
        values = values_at(step.reads, env)
        out = (
            _BUILDERS[step.name](step.eqn, values)
            if _rebuilds(step.eqn)
            else bound(step.eqn, values)
        )
        env.update(zip(step.makes, out, strict=True))
    return values_at(flat.gives, env)


def _scan(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Any]:
    fixed, carry, rows = scan_parts(eqn, operands)

    def turn(carry: Any, row: Any) -> Any:
        out = _run(eqn.params["jaxpr"], [*fixed, *carry, *row])
        return out[: len(carry)], out[len(carry) :]

    last, ys = jax.lax.scan(
        turn,
        carry,
        rows,
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
        unroll=eqn.params["unroll"],
    )
    return [*last, *ys]


def _while(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Any]:
    outside, inside, carry = while_parts(eqn, operands)

    def goes_on(values: Any) -> Any:
        return _run(eqn.params["cond_jaxpr"], [*outside, *values])[0]

    def turn(values: Any) -> Any:
        return _run(eqn.params["body_jaxpr"], [*inside, *values])

    return list(jax.lax.while_loop(goes_on, turn, carry))


def _cond(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Any]:
    def branch(jaxpr: AnyJaxpr) -> Callable[..., list[Any]]:
        return lambda *values: _run(jaxpr, values)

    return list(
        jax.lax.switch(
            operands[0], [branch(jaxpr) for jaxpr in eqn.params["branches"]], *operands[1:]
        )
    )


def _checkpoint(eqn: JaxprEqn, operands: list[jax.Array]) -> list[Any]:
    def run(*values: jax.Array) -> list[Any]:
        return _run(eqn.params["jaxpr"], values)

    return list(
        jax.checkpoint(run, policy=eqn.params["policy"], prevent_cse=eqn.params["prevent_cse"])(
            *operands
        )
    )


_BUILDERS = {"scan": _scan, "while": _while, "cond": _cond, **dict.fromkeys(REMATS, _checkpoint)}
