"""Calls, branches and loops: rebuilt around their programs, which are evaluated by the rules.

A scan of n iterations becomes a scan of the allocated length that leaves the carry alone in the
iterations of padding, so its last carry is that of iteration n:

    carry, ys = scan(f, init, xs)   ->   scan body: i < n ? f(carry, x) : (carry, anything)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ..._jax.programs.control import (
    rebuild,
    rebuild_scan,
    rebuild_while,
    scan_beside,
)
from ..._jax.programs.jaxprs import (
    abstract,
    called_jaxpr,
    equations,
    open_jaxpr,
    scan_parts,
    solve_operands,
)
from ..._jax.programs.primitives import CALLBACKS, CALLS, REMATS
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, JaxprEqn, Values
from ..carriers.loop import LoopCarry
from ..dims import evaluate, is_ragged
from ..interpreter import Op, PaddedInterpreter, grows, shape_of
from ..monoids import MONOIDS
from ..refusal import AsksForSize
from ..rule import Rule, Use, ragged_dims, refuse, use
from ..typed_jax import InconclusiveDimensionOperation, jnp, lax, make_jaxpr
from .reduce import as_reduction


def forward_programs(op: Op) -> Sequence[AnyJaxpr]:
    """The sub-jaxprs that an operation evaluates in a forward pass, in order."""
    name, params = op.name, op.params
    program = called_jaxpr(op.eqn)
    if program is not None:
        return [program]
    if name == "cond":
        return params["branches"]
    if name == "while":
        return [params["cond_jaxpr"], params["body_jaxpr"]]
    if name == "scan":
        return [params["jaxpr"]]
    if name == "call_hi_primitive":
        return [expand_hi_primitive(op)]
    if name == "reduce":
        reduction = as_reduction(op)
        return [] if reduction is None else [reduction]
    if name == "custom_linear_solve":
        return [params["jaxprs"].solve]
    return []


def inlined_program(eqn: JaxprEqn) -> AnyJaxpr | None:
    """The program of an operation that only calls it, so that it can be inlined: a call, a
    `lax.reduce` by a known monoid, or a `call_hi_primitive`; else None.
    """
    name = eqn.primitive.name
    if name == "reduce":
        return as_reduction(Op(eqn))
    if name == "call_hi_primitive":
        return expand_hi_primitive(Op(eqn))
    return called_jaxpr(eqn)


def expand_hi_primitive(op: Op) -> ClosedJaxpr:
    """The jaxpr that a `call_hi_primitive` expands to. `expand` is public in
    `jax.experimental.hijax`, of jax 0.12.0.1.

    Raises:
        AsksForSize: It computes with a size as with a number, as `jnp.searchsorted` does there.
    """
    structs = [abstract(atom.aval) for atom in op.eqn.invars]

    def low(*operands: object) -> list[object]:
        return jax.tree.leaves(op.params["_prim"].expand(*operands))

    try:
        return make_jaxpr(low)(*structs)
    except (TypeError, InconclusiveDimensionOperation) as error:
        if not op.is_ragged:
            raise
        raise AsksForSize(op.place, "needs to know a size in an operation of JAX") from error


def _uses(op: Op) -> Iterator[Use]:
    if op.name == "while":
        condition, _ = open_jaxpr(op.params["cond_jaxpr"])
        dims = ragged_dims(shape_of(condition.outvars[0]))
        if dims:
            yield use(op, dims, "reduced", "a loop until all of it are done", monoid=MONOIDS["or"])
    if op.name == "scan" and is_ragged(op.params["length"]):
        how = "a loop over it"
        if op.params["reverse"]:
            how += ", from the end"
        yield use(op, op.params["length"], "scanned", how)
        # As many iterations are allocated as at the largest size: `20 - n` would be cut short.
        if not grows(op.params["length"], op.ranges):
            why = f"loops {op.params['length']} times, which does not grow with it"
            yield refuse(op, op.params["length"], why)


def _call(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    return walk.run(called_jaxpr(op.eqn), values)


def _expand(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    return walk.run(expand_hi_primitive(op), values)


def _remat(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    """Inline a rematerialised program. In a derivative a barrier on its operands keeps XLA from
    merging it with the first evaluation (common subexpression elimination), as in JAX's lowering.
    """
    if (
        op.params["differentiated"]
        and op.params["prevent_cse"] is not False
        and not walk.is_differentiated
    ):
        values = list(lax.optimization_barrier(values))
    return walk.run(op.params["jaxpr"], values)


def _cond(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    return rebuild(op.eqn, values, walk.run)


def _while(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    # Under `vmap` the predicate has one element for each element of the batch. Padding of the batch
    # counts as finished: False, the identity of `any`.
    condition = op.params["cond_jaxpr"]
    jaxpr, _ = open_jaxpr(condition)
    dims = shape_of(jaxpr.outvars[0])

    def predicate(*given: jax.Array) -> Values:
        out = walk.run(condition, given)[0]
        return [walk.within().keep(out, dims, range(len(dims)), np.False_)]

    def body(*given: jax.Array) -> Values:
        return walk.run(op.params["body_jaxpr"], given)

    return rebuild_while(op.eqn, values, predicate, body)


def _scan(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    program = op.params["jaxpr"]
    length, reverse = op.params["length"], op.params["reverse"]
    allocated = evaluate(length, walk.allocated)

    def advance(*given: jax.Array) -> Values:
        return walk.run(program, given)

    # No iteration is padding: the loop of plain JAX, to the bit. With a counter in its carry XLA
    # may round its numbers otherwise.
    if not is_ragged(length) or walk.is_full(length):
        return rebuild_scan(op.eqn, values, advance, allocated)

    # A body that may not end or may raise on padding is skipped there, by a branch.
    skips = depends_on_rows(program)
    fixed_moves, carry, row_moves = scan_parts(op.eqn, [*map(walk.may_be_linear, op.eqn.invars)])
    # A tangent may begin as a constant.
    moves = [*fixed_moves, *(True for _ in carry), *row_moves]

    def carry_of(given: Sequence[jax.Array]) -> Values:
        return scan_parts(op.eqn, [*given])[1]

    def skipped(*given: jax.Array) -> Values:
        jaxpr, _ = open_jaxpr(program)
        avals = [atom.aval for atom in jaxpr.outvars[len(carry) :]]
        zeros = [lax.full(walk.shape(aval.shape), 0, aval.dtype) for aval in avals]
        return [*carry_of(given), *zeros]

    # From the end the iterations of padding come first, and leave the initial carry as it is.
    def body(i: jax.Array, *arguments: jax.Array) -> tuple[jax.Array, Values]:
        given = [*arguments]
        inside = i < walk.count(length)
        if skips:
            out = lax.cond(inside, advance, skipped, *given)
        else:
            held = carry_of(given)
            if walk.is_differentiated:
                given = _cleared(inside, given, moves)
            out = advance(*given)
            for k, old in enumerate(held):
                out[k] = lax.select(lax.broadcast(inside, old.shape), out[k], old)
        return i + step, out

    step = np.int32(-1 if reverse else 1)
    first = jnp.asarray(allocated - 1 if reverse else 0, np.int32)
    return scan_beside(first, op.eqn, scan_parts(op.eqn, values), body, allocated)[1]


def _cleared(
    inside: jax.Array,
    values: Values,
    moves: Sequence[bool],
) -> Values:
    """Zeros in place of the values that may be tangents, in an iteration of padding. There the
    derivative of the body may be infinite, and the zeros of the cotangent meet it: JAX transposes
    this too, so the NaNs go nowhere.
    """

    def cleared(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, np.inexact):
            return x
        return jnp.where(inside, x, lax.full_like(x, 0))

    pairs = zip(values, moves, strict=True)
    return [cleared(x) if is_moving else x for x, is_moving in pairs]


def depends_on_rows(jaxpr: AnyJaxpr) -> bool:
    """Return whether a program holds a `while` loop or a callback, so that its termination or its
    errors depend on its values.

    Such a program is not run on rows of padding, whose values are arbitrary: the loop may not end
    there. Others run on them, since for a small body a `select` is cheaper than a `cond`.
    """
    return any(map(_is_open, equations(jaxpr)))


def _is_open(eqn: JaxprEqn) -> bool:
    if eqn.primitive.name == "call_hi_primitive":
        return depends_on_rows(expand_hi_primitive(Op(eqn)))
    return eqn.primitive.name in _OPEN


_OPEN = ("while", "pure_callback", *CALLBACKS)


def _solve(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    operands = solve_operands(op.eqn, values)
    return walk.run(op.params["jaxprs"].solve, operands)


RULES: dict[str, Rule] = {
    **dict.fromkeys(CALLS, Rule(_uses, _call, makes=True)),
    **dict.fromkeys(REMATS, Rule(_uses, _remat, makes=True)),
    "call_hi_primitive": Rule(_uses, _expand, makes=True),
    "cond": Rule(_uses, _cond, makes=True),
    "while": Rule(_uses, _while, makes=True),
    "scan": Rule(_uses, _scan, LoopCarry(), makes=True),
    "custom_linear_solve": Rule(_uses, _solve, makes=True),
}
