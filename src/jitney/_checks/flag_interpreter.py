"""Interpreter that evaluates a jaxpr with its run-time checks as data.

A check is a `cond` whose raising branch calls back into Python. Here the callback is replaced by an
int32, the flag, which is threaded through every equation and sub-jaxpr that holds a check:

    a = cond[identity, raise] (x < 0) x        flag = select(x < 0, 1 << 16, 0)
                                           ->  a    = cond[identity, zeros] (x < 0) x
    b = sqrt a                                 b    = sqrt a

The flag is the number of the check that fails first in the order of the program, 0 while none has.
Once a check has failed, no `while` is entered or continued, and no other callback is called, as if
the program had stopped there.

The `cond` of a check stays, with zeros in the branch that raised: it keeps XLA's fusions as they
were, so that all numbers are equal to the bit. Without it, a product before a check and a sum
behind it become one operation with one rounding. Derivatives and maps have been taken by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from .._jax.equinox_checks import Insides, calls_equinox, is_callback, message_index, raising
from .._jax.mesh import explicit_mesh
from .._jax.programs.evaluation import interpret
from .._jax.programs.jaxprs import (
    effectful_equations,
    open_jaxpr,
    rebind,
    runs,
    solve_operands,
    standing_at,
)
from .._jax.programs.liveness import Liveness, Used
from .._jax.programs.primitives import PLAIN_CALLS, REMATS
from .._jax.trees import extended, issubdtype
from .._jax.typed import AnyJaxpr, ClosedJaxpr, JaxprEqn
from .flagged_loops import FlaggedLoops
from .flags import Code, Flag, code_of, failed_code, first_failed, goes_well
from .live_values import (
    Part,
    Results,
    Value,
    fill_empty,
    flat_results,
    scatter_live,
    select_live,
    trace_part,
    zeros,
)
from .table import MOST, CheckTable


class Unflaggable(Exception):
    """Reason why the checks of a program stay callbacks."""


def evaluate_flagged(
    closed: ClosedJaxpr,
    arrays: Sequence[object],
    table: CheckTable,
) -> tuple[list[jax.Array], Code]:
    """Evaluate a closed jaxpr; return its results and the number of the check that failed first.

    Raises:
        Unflaggable: The program has ordered effects, mutates references, has explicit axes of a
            mesh, or holds a check in a primitive that is not supported.
    """
    # JAX has no public names for the classes of ordered effects.
    ordered = [effect for effect in closed.effects if type(effect).__name__.startswith("Ordered")]
    if ordered:
        raise Unflaggable("what it does in order would be done after a check that failed")
    plain, _ = open_jaxpr(closed)
    if any(True for _ in effectful_equations(plain.eqns)):
        raise Unflaggable("it changes references in place")
    if explicit_mesh(arrays) is not None:
        raise Unflaggable("where its arrays lie is a part of their types")
    all_live = (True,) * len(plain.outvars)
    out, flag = _FlagInterpreter(table).run(closed, arrays, None, all_live)
    return out, code_of(flag)


class _FlagInterpreter:
    """Interpreter state of one evaluation. Values that are not live are None."""

    def __init__(self, table: CheckTable) -> None:
        self.table = table
        self.live = Liveness()
        # One function per called jaxpr and set of live results: two calls of a function stay calls
        # of one.
        self._calls: dict[tuple[int, Used, bool], _JittedCall] = {}
        # The tuples hold the equations, so that their ids are not given to other objects.
        self._contained: dict[tuple[int, str], tuple[JaxprEqn, bool]] = {}
        self.insides = Insides()

    def run(
        self,
        program: AnyJaxpr,
        values: Sequence[Value],
        flag: Flag,
        used: Sequence[bool],
    ) -> Results:
        needed = self.live.of(program, used).results

        def results(eqn: JaxprEqn, inputs: list[Value]) -> list[Value]:
            nonlocal flag
            # Equations that are not in `needed` are dead code, which XLA would drop with their
            # checks.
            mine = needed.get(id(eqn))
            if mine is None:
                return fill_empty([None] * len(eqn.outvars), eqn.outvars)
            out, flag = self.operation(eqn, inputs, flag, mine)
            return fill_empty(out, eqn.outvars)

        plain, _ = open_jaxpr(program)
        out = interpret(program, fill_empty(values, plain.invars), results)
        return out, flag

    def operation(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        callback = raising(eqn)
        if callback is not None:
            return self.check(eqn, values, flag, callback, used)
        if calls_equinox(eqn):
            raise Unflaggable("it calls back into Equinox for more than an error")
        if is_callback(eqn):
            return self.quiet(eqn, values, flag), flag
        if not self.enters(eqn, values, flag):
            return rebind(eqn, values), flag
        return self.rebuild(eqn, values, flag, used)

    def check(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        callback: JaxprEqn,
        used: Used,
    ) -> Results:
        number = self.table.code(callback)
        of_keys = any(issubdtype(atom.aval.dtype, extended) for atom in eqn.outvars)
        if len(self.table) > MOST or of_keys:
            raise Unflaggable("it has more checks than a number can tell, or one of keys")

        branch = values[0]
        failed = failed_code(branch, number, message_index(eqn, values))

        # Operand 0 chooses the branch; the others go into the branches.
        at = self.live.inputs(eqn, used)[1:]
        operands = select_live(values[1:], at)
        results = [atom.aval for atom in select_live(eqn.outvars, used)]

        def good(*arrays: jax.Array) -> list[Value]:
            out, _ = self.part(eqn.params["branches"][0], used, at)(None, *arrays)
            return out

        def blank(*_: jax.Array) -> list[jax.Array]:
            return list(map(zeros, results))

        branches = trace_part(good, operands), trace_part(blank, operands)
        out = rebind(eqn, [branch, *operands], branches=branches)
        return scatter_live(out, used), first_failed(flag, failed)

    def quiet(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
    ) -> list[jax.Array]:
        """Call a callback if no check has failed so far; return zeros otherwise."""
        if flag is None:
            return rebind(eqn, values)
        avals = [atom.aval for atom in eqn.outvars]

        def call() -> list[jax.Array]:
            return rebind(eqn, values)

        def blank() -> list[jax.Array]:
            return list(map(zeros, avals))

        return list(jax.lax.cond(goes_well(flag), call, blank))

    def enters(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
    ) -> bool:
        """Return whether an equation has to be rebuilt rather than bound as it is.

        It has to if it contains a check, if a check before it has to stop something inside it, or
        if an operand is dead.
        """
        if not self.insides.programs(eqn):
            return False
        if any(value is None for value in values) or self.contains(eqn, "checks"):
            return True
        return flag is not None and self.contains(eqn, "stops")

    def contains(self, eqn: JaxprEqn, what: str) -> bool:
        """Return whether an equation contains a callback of Equinox ("checks"), or a loop or
        callback that has to stop after a failed check ("stops").
        """
        key = (id(eqn), what)
        if key not in self._contained:
            within = self.insides.nested_equations(eqn)
            if what == "checks":
                contains = any(map(calls_equinox, within))
            else:
                contains = _stops(eqn) or any(map(_stops, within))
            self._contained[key] = eqn, contains
        return self._contained[key][1]

    def rebuild(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        name, program = eqn.primitive.name, runs(eqn)
        with standing_at(eqn):
            if name in PLAIN_CALLS:
                return self.evaluate_call(eqn, values, flag, used)
            if name in REMATS:
                return self.remat(eqn, values, flag, used)
            if program is not None or (program := self.insides.compiled_jaxpr(eqn)) is not None:
                return self.run(program, values, flag, used)
            loops = FlaggedLoops(self.live, self.insides, self.part)
            rules = {
                "cond": self.branches,
                "scan": loops.scan,
                "while": loops.loop,
            }
            if name in rules:
                return rules[name](eqn, values, flag, used)
            if name == "custom_linear_solve":
                solve = eqn.params["jaxprs"].solve
                all_live = (True,) * len(eqn.outvars)
                return self.run(solve, solve_operands(eqn, values), flag, all_live)
        raise Unflaggable(f"it has a check, or a loop behind one, inside of `{name}`")

    def part(
        self,
        program: AnyJaxpr,
        used: Sequence[bool],
        at: Sequence[bool],
    ) -> Part:
        """Turn a sub-jaxpr into a function of the flag and its live arguments.

        It returns the live results only, and the new flag.
        """

        def run(flag: Flag, *arrays: jax.Array) -> Results:
            out, flag = self.run(program, scatter_live(arrays, at), flag, used)
            return select_live(out, used), flag

        return run

    def evaluate_call(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        params = eqn.params
        places = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
        if any(isinstance(place, jax.sharding.Sharding) for place in places):
            raise Unflaggable("it has a check in a function that says where its arrays lie")
        # A call stays a call, under its own name.
        at = self.live.inputs(eqn, used)
        key = (id(params["jaxpr"]), used, flag is None)
        if key not in self._calls:
            run = self.part(params["jaxpr"], used, at)
            run.__name__ = run.__qualname__ = params["name"]
            jitted = jax.jit(run, inline=params["inline"])
            self._calls[key] = _JittedCall(params["jaxpr"], jitted)
        out, flag = self._calls[key].jitted(flag, *select_live(values, at))
        return scatter_live(out, used), flag

    def remat(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        """Rebuild a rematerialised sub-jaxpr as the same primitive, which keeps XLA from merging
        what the backward pass recomputes with what the forward pass computed.
        """
        at = self.live.inputs(eqn, used)
        operands = [code_of(flag), *select_live(values, at)]
        part = self.part(eqn.params["jaxpr"], used, at)
        plain, constants = open_jaxpr(trace_part(flat_results(part), operands))
        if constants:
            raise Unflaggable("it has a check in what is computed again, with constants")
        *out, flag = rebind(eqn, operands, jaxpr=plain)
        return scatter_live(out, used), flag

    def branches(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        at = self.live.inputs(eqn, used)[1:]
        # All branches have to return the same types, so the flag becomes an operand even where it
        # is None. Not `rebuild_cond`: the equation's index is clamped already.
        operands = [code_of(flag), *select_live(values[1:], at)]
        parts = [self.part(branch, used, at) for branch in eqn.params["branches"]]
        branches = tuple(trace_part(flat_results(part), operands) for part in parts)
        *out, flag = rebind(eqn, [values[0], *operands], branches=branches)
        return scatter_live(out, used), flag


@dataclass(frozen=True)
class _JittedCall:
    """Function that is called in the program, with its checks as data."""

    # Held, so that its id is not given to another object.
    jaxpr: AnyJaxpr
    jitted: Part


def _stops(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "while" or is_callback(eqn)
