"""Operations that hold sub-jaxprs, unified: calls, loops, branches, solves; and `split`.

A sub-jaxpr is walked in step as the program around it is. Its arguments have the shapes that the
operation gives them, which are symbolic by now; what it returns must have the shapes that a loop or
a branch takes.

    size 67   scan[length=67, jaxpr={... mul c 66.0 ...}] ...
    size 71   scan[length=71, jaxpr={... mul c 70.0 ...}] ...
    unified   scan[length=n,  jaxpr={... mul c (n - 1) ...}] ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax

from ..._jax.programs.jaxprs import abstract, called_jaxpr, open_jaxpr, scan_parts, while_parts
from ..._jax.programs.primitives import CALLS, PLAIN_CALLS, REMATS
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, JaxprEqn, Value, Values
from .unify_numbers import Differs, is_same

if TYPE_CHECKING:
    from .unify_traces import Unifier


def _inside(
    unifier: Unifier,
    traces: Sequence[AnyJaxpr],
    avals: Sequence[Value],
) -> ClosedJaxpr:
    """The program of a sub-jaxpr, whose arguments have these abstract values."""
    first = open_jaxpr(traces[0])[0].invars
    structs = [
        abstract(aval.update(weak_type=getattr(var.aval, "weak_type", False)))
        for aval, var in zip(
            avals,
            first,
            strict=True,
        )
    ]
    return unifier.program(traces, structs)


def _call(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    eqn = eqns[0]
    called: list[Value] = list(map(called_jaxpr, eqns))
    inner = _inside(unifier, called, _avals(operands))
    key = CALLS[eqn.primitive.name]
    # A call by an open jaxpr has no room for constants.
    if inner.consts:
        return unifier.walk(called, operands)
    program = inner if hasattr(called[0], "jaxpr") else open_jaxpr(inner)[0]
    return unifier.bind(
        eqn,
        operands,
        {key: program},
    )


def _scan(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    given: list[Value] = operands
    constants, carry, xs = scan_parts(eqns[0], given)
    counts = [tuple(map(len, scan_parts(eqn, operands))) for eqn in eqns]
    if not is_same(counts):
        raise Differs("does another loop at each size")
    rows = [aval.update(shape=aval.shape[1:]) for aval in _avals(xs)]
    bodies = [eqn.params["jaxpr"] for eqn in eqns]
    inner = _inside(unifier, bodies, [*_avals(constants), *_avals(carry), *rows])
    _demand_carry(carry, inner.out_avals[: len(carry)])
    changed = unifier.params(
        eqns,
        leaving=("jaxpr", "unroll"),
    )
    # How many turns XLA gets at once decides no result: a binary search may unroll all of them.
    changed["unroll"] = min(eqn.params["unroll"] for eqn in eqns)
    return unifier.bind(
        eqns[0],
        operands,
        {**changed, "jaxpr": inner},
    )


def _while(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    of_condition, of_body, carry = while_parts(eqns[0], operands)
    changed: dict[str, Value] = unifier.params(
        eqns,
        leaving=("cond_jaxpr", "body_jaxpr"),
    )
    for key, constants in (("cond_jaxpr", of_condition), ("body_jaxpr", of_body)):
        traces = [eqn.params[key] for eqn in eqns]
        changed[key] = _inside(unifier, traces, _avals([*constants, *carry]))
    _demand_carry(carry, changed["body_jaxpr"].out_avals)
    return unifier.bind(
        eqns[0],
        operands,
        changed,
    )


def _demand_carry(
    carry: Sequence[Value],
    out_avals: Sequence[Value],
) -> None:
    for before, after in zip(_avals(carry), out_avals, strict=True):
        if not _is_alike(before, after):
            raise Differs("has a loop whose values change their shape with the size")


def _cond(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    if not is_same(len(eqn.params["branches"]) for eqn in eqns):
        raise Differs("does other operations at each size")
    avals = _avals(operands[1:])
    branches = [
        _inside(
            unifier,
            traces,
            avals,
        )
        for traces in zip(*(eqn.params["branches"] for eqn in eqns), strict=True)
    ]
    for branch in branches[1:]:
        for one, other in zip(
            branches[0].out_avals,
            branch.out_avals,
            strict=True,
        ):
            if not _is_alike(one, other):
                raise Differs("has branches whose results differ in shape with the size")
    changed = unifier.params(
        eqns,
        leaving=("branches",),
    )
    return unifier.bind(eqns[0], operands, {**changed, "branches": tuple(branches)})


def _solve(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    """A `custom_linear_solve`: all of its programs, each of its own constants and right-hand
    sides.
    """
    lengths = eqns[0].params["const_lengths"]
    if not is_same(tuple(eqn.params["const_lengths"]) for eqn in eqns):
        raise Differs("does other operations at each size")
    given = operands[sum(lengths) :]
    programs_of: dict[str, Value] = {}
    start = 0
    for key in ("matvec", "vecmat", "solve", "transpose_solve"):
        count = getattr(lengths, key)
        constants, start = operands[start : start + count], start + count
        traces = [getattr(eqn.params["jaxprs"], key) for eqn in eqns]
        if traces[0] is not None:
            programs_of[key] = _inside(unifier, traces, _avals([*constants, *given]))
    if any(program.consts for program in programs_of.values()):
        raise Differs("solves by a program with numbers of its size")
    changed = unifier.params(
        eqns,
        leaving=("jaxprs",),
    )
    jaxprs = eqns[0].params["jaxprs"]._replace(**programs_of)
    return unifier.bind(
        eqns[0],
        operands,
        {**changed, "jaxprs": jaxprs},
    )


def _split(
    unifier: Unifier,
    eqns: Sequence[JaxprEqn],
    operands: Values,
) -> Values:
    """A `split`, whose last part is what the others leave of the axis."""
    shorter = [
        eqn.replace(params={**eqn.params, "sizes": eqn.params["sizes"][:-1]}) for eqn in eqns
    ]
    changed = unifier.params(shorter)
    axis = eqns[0].params["axis"]
    rest = operands[0].shape[axis] - sum(changed["sizes"])
    return unifier.bind(
        eqns[0],
        operands,
        {**changed, "sizes": (*changed["sizes"], rest)},
    )


def _avals(values: Sequence[Value]) -> list[Value]:
    return [jax.typeof(value) for value in values]


def _is_alike(
    one: Value,
    other: Value,
) -> bool:
    return tuple(one.shape) == tuple(other.shape) and one.dtype == other.dtype


_Unify = Callable[["Unifier", Sequence[JaxprEqn], Values], Values]
HOLDERS: Mapping[str, _Unify] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _solve,
    "split": _split,
    **dict.fromkeys((*PLAIN_CALLS, *REMATS), _call),
}
"""Operation -> its results in the unified program."""
