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

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from .._jax.equinox_checks import Insides, calls_equinox, is_callback, raising, which
from .._jax.evaluation import interpret
from .._jax.jaxprs import (
    bound,
    effectful_equations,
    opened,
    runs,
    scan_parts,
    solve_operands,
    standing_at,
    while_parts,
)
from .._jax.mesh import explicit_around
from .._jax.primitives import PLAIN_CALLS, REMATS
from .._jax.trees import extended, issubdtype
from .._jax.typed import AnyJaxpr, Aval, JaxprEqn
from .liveness import Liveness, Used, is_empty
from .table import LEAST_INDEX, MASK, MOST, MOST_INDEX, CheckTable, message_bits

Flag = Any
"""An int32 of the program; None before the first check."""
Results = tuple[list[Any], Flag]


class Unflaggable(Exception):
    """Reason why the checks of a program stay callbacks."""


def evaluate_flagged(
    closed: Any, arrays: Sequence[object], table: CheckTable
) -> tuple[list[Any], Any]:
    """Evaluate a closed jaxpr; return its results and the number of the check that failed first.

    Raises:
        Kept: The program has ordered effects, mutates references, has explicit axes of a mesh, or
            holds a check in a primitive that is not supported.
    """
    # JAX has no public names for the classes of ordered effects.
    ordered = [effect for effect in closed.effects if type(effect).__name__.startswith("Ordered")]
    if ordered:
        raise Unflaggable("what it does in order would be done after a check that failed")
    if any(True for _ in effectful_equations(opened(closed)[0].eqns)):
        raise Unflaggable("it changes references in place")
    if explicit_around(arrays) is not None:
        raise Unflaggable("where its arrays lie is a part of their types")
    out, flag = _FlagInterpreter(table).run(
        closed, arrays, None, (True,) * len(opened(closed)[0].outvars)
    )
    return out, np.int32(0) if flag is None else flag


class _FlagInterpreter:
    """Interpreter state of one evaluation. Values that are not live are None."""

    def __init__(self, table: CheckTable) -> None:
        self.table = table
        self.live = Liveness()
        # One function per called jaxpr and set of live results: two calls of a function stay calls
        # of one.
        self._calls: dict[Any, tuple[Any, Any]] = {}
        self._asked: dict[Any, tuple[Any, bool]] = {}
        self.insides = Insides()

    def run(
        self, program: AnyJaxpr, values: Sequence[Any], flag: Flag, used: Sequence[bool]
    ) -> Results:
        needed = self.live.of(program, used).results

        def results(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
            nonlocal flag
            # Equations that are not in `needed` are dead code, which XLA would drop with their
            # checks.
            mine = needed.get(id(eqn))
            if mine is None:
                return _filled([None] * len(eqn.outvars), eqn.outvars)
            out, flag = self.operation(eqn, inputs, flag, mine)
            return _filled(out, eqn.outvars)

        return interpret(program, _filled(values, opened(program)[0].invars), results), flag

    def operation(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        callback = raising(eqn)
        if callback is not None:
            return self.check(eqn, values, flag, callback, used)
        if calls_equinox(eqn):
            raise Unflaggable("it calls back into Equinox for more than an error")
        if is_callback(eqn):
            return self.quiet(eqn, values, flag), flag
        if not self.enters(eqn, values, flag):
            return bound(eqn, values), flag
        return self.rebuild(eqn, values, flag, used)

    def check(
        self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, callback: Any, used: Used
    ) -> Results:
        code = self.table.code(callback)
        if len(self.table) > MOST or any(
            issubdtype(atom.aval.dtype, extended) for atom in eqn.outvars
        ):
            raise Unflaggable("it has more checks than a number can tell, or one of keys")

        # The code has the number of the check in its upper bits, and the index of the message
        # below. The index may be traced, if the message is chosen at run time.
        index = which(eqn, values)
        if isinstance(index, jax.Array):
            index = jax.lax.clamp(_typed(LEAST_INDEX, index), index, _typed(MOST_INDEX, index))
            code = jax.lax.bitwise_or(
                np.int32(code),
                jax.lax.bitwise_and(jax.lax.convert_element_type(index, np.int32), np.int32(MASK)),
            )
        else:
            code = np.int32(code | message_bits(int(index)))
        failed = jax.lax.select(jax.lax.ne(values[0], _typed(0, values[0])), code, np.int32(0))

        # Operand 0 of a `cond` chooses the branch. Branch 0 is the one in which the check holds.
        at = self.live.inputs(eqn, used)[1:]
        given = _select_live(values[1:], at)
        results = [atom.aval for atom in _select_live(eqn.outvars, used)]
        good = _program(
            lambda *x: self.part(eqn.params["branches"][0], used, at)(None, *x)[0], given
        )
        blank = _program(lambda *_: list(map(_zeros, results)), given)
        return _scatter_live(bound(eqn, [values[0], *given], branches=(good, blank)), used), _first(
            flag, failed
        )

    def quiet(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag) -> list[Any]:
        """Call a callback if no check has failed so far; return zeros otherwise."""
        if flag is None:
            return bound(eqn, values)
        blank = [atom.aval for atom in eqn.outvars]
        return list(
            jax.lax.cond(
                jax.lax.eq(flag, np.int32(0)),
                lambda: bound(eqn, values),
                lambda: list(map(_zeros, blank)),
            )
        )

    def enters(self, eqn: JaxprEqn, values: list[Any], flag: Flag) -> bool:
        """Return whether an equation has to be rebuilt rather than bound as it is.

        It has to if it contains a check, if a check before it has to stop something inside it, or
        if an operand is dead.
        """
        if not self.insides.programs(eqn):
            return False
        return (
            any(value is None for value in values)
            or self.contains(eqn, "checks")
            or (flag is not None and self.contains(eqn, "stops"))
        )

    def contains(self, eqn: JaxprEqn, what: str) -> bool:
        """Return whether an equation contains a callback of Equinox ("checks"), or a loop or
        callback that has to stop after a failed check ("stops").
        """
        key = (id(eqn), what)
        if key not in self._asked:
            test = calls_equinox if what == "checks" else _stops
            # The cached tuple holds the equation, so that its id is not given to another object.
            self._asked[key] = (
                eqn,
                (what != "checks" and _stops(eqn)) or any(map(test, self.insides.within(eqn))),
            )
        return self._asked[key][1]

    def rebuild(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        name, program = eqn.primitive.name, runs(eqn)
        with standing_at(eqn):
            if name in PLAIN_CALLS:
                return self.called(eqn, values, flag, used)
            if name in REMATS:
                return self.remat(eqn, values, flag, used)
            if program is not None or (program := self.insides.compiled_as(eqn)) is not None:
                return self.run(program, values, flag, used)
            if name == "cond":
                return self.branches(eqn, values, flag, used)
            if name == "scan":
                return self.scan(eqn, values, flag, used)
            if name == "while":
                return self.loop(eqn, values, flag, used)
            if name == "custom_linear_solve":
                return self.run(
                    eqn.params["jaxprs"].solve,
                    solve_operands(eqn, values),
                    flag,
                    (True,) * len(eqn.outvars),
                )
        raise Unflaggable(f"it has a check, or a loop behind one, inside of `{name}`")

    def part(
        self, program: AnyJaxpr, used: Sequence[bool], at: Sequence[bool]
    ) -> Callable[..., Results]:
        """Turn a sub-jaxpr into a function of the flag and its live arguments.

        It returns the live results only, and the new flag.
        """

        def run(flag: Flag, *given: object) -> Results:
            left = iter(given)
            out, flag = self.run(
                program, [next(left) if is_given else None for is_given in at], flag, used
            )
            return [x for x, is_used in zip(out, used, strict=True) if is_used], flag

        return run

    def called(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        params = eqn.params
        if any(
            isinstance(place, jax.sharding.Sharding)
            for name in ("in_shardings", "out_shardings")
            for place in params.get(name, ())
        ):
            raise Unflaggable("it has a check in a function that says where its arrays lie")
        # A call stays a call, under its own name.
        at = self.live.inputs(eqn, used)
        key = (id(params["jaxpr"]), used, flag is None)
        if key not in self._calls:
            run = self.part(params["jaxpr"], used, at)
            run.__name__ = run.__qualname__ = params["name"]
            self._calls[key] = (params["jaxpr"], jax.jit(run, inline=params["inline"]))
        out, flag = self._calls[key][1](flag, *_select_live(values, at))
        return _scatter_live(out, used), flag

    def remat(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        """Rebuild a rematerialised sub-jaxpr as the same primitive, which keeps XLA from merging
        what the backward pass recomputes with what the forward pass computed.
        """
        at = self.live.inputs(eqn, used)
        given = [_int32(flag), *_select_live(values, at)]
        program = _program(_flat(self.part(eqn.params["jaxpr"], used, at)), given)
        plain, constants = opened(program)
        if constants:
            raise Unflaggable("it has a check in what is computed again, with constants")
        *out, flag = bound(eqn, given, jaxpr=plain)
        return _scatter_live(out, used), flag

    def branches(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        at = self.live.inputs(eqn, used)[1:]
        # All branches have to return the same types, so the flag becomes an operand even where it
        # is None.
        given = [_int32(flag), *_select_live(values[1:], at)]
        made = [
            _program(_flat(self.part(branch, used, at)), given) for branch in eqn.params["branches"]
        ]
        *out, flag = bound(eqn, [values[0], *given], branches=tuple(made))
        return _scatter_live(out, used), flag

    def scan(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        # Live results of a scan include every carry that a live carry or output reads in a later
        # iteration.
        used = self.live.loop_results(eqn, used)
        at = self.live.inputs(eqn, used)
        # Dead constants, carries and rows are left out of the new scan.
        fixed, carry, rows = (
            _select_live(part, needed)
            for part, needed in zip(scan_parts(eqn, values), scan_parts(eqn, list(at)), strict=True)
        )
        body = self.part(eqn.params["jaxpr"], used, at)
        count = len(carry)

        def turn(state: tuple[Flag, list[Any]], row: Any) -> Any:
            out, flag = body(state[0], *fixed, *state[1], *row)
            return (_int32(flag), out[:count]), out[count:]

        options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        (flag, last), ys = jax.lax.scan(turn, (_int32(flag), carry), rows, **options)
        return _scatter_live([*last, *ys], used), flag

    def loop(self, eqn: JaxprEqn, values: list[jax.Array], flag: Flag, used: Used) -> Results:
        used = self.live.loop_results(eqn, used)
        # `at` marks the live operands: constants of the condition, constants of the body, carry.
        at = list(self.live.inputs(eqn, used))
        tested, told, carry = (
            _select_live(part, needed)
            for part, needed in zip(while_parts(eqn, values), while_parts(eqn, at), strict=True)
        )

        # The condition may read fewer carries than the loop has.
        for_test, for_turn, carried = while_parts(eqn, at)
        asked = self.live.of(eqn.params["cond_jaxpr"], (True,)).inputs[len(for_test) :]

        test = self.part(eqn.params["cond_jaxpr"], (True,), [*for_test, *asked])
        turn = self.part(eqn.params["body_jaxpr"], used, [*for_turn, *carried])

        def goes_on(flag: Flag, carry: Sequence[object]) -> tuple[Any, Flag]:
            whole = _scatter_live(carry, carried)
            (go,), flag = test(flag, *tested, *_select_live(whole, asked))
            return go, _int32(flag)

        # `while_loop` takes a condition that returns a bool only, so a flag made in it needs the
        # other form.
        if self.condition_has_check(eqn.params["cond_jaxpr"]):
            return self.while_with_checked_condition(
                goes_on, partial(_with_constants, turn, told), carry, flag, used
            )

        def goes(state: tuple[Flag, list[Any]]) -> Any:
            return jax.lax.bitwise_and(
                jax.lax.eq(state[0], np.int32(0)), _any(goes_on(None, state[1])[0])
            )

        def step(state: tuple[Flag, list[Any]]) -> Any:
            out, flag = turn(state[0], *told, *state[1])
            # JAX freezes the carry of finished elements when it lowers a `while` with a batched
            # condition. The new condition is a scalar, so it is done here.
            if is_mapped:
                out = _where(goes_on(None, state[1])[0], out, state[1])
            return _int32(flag), out

        is_mapped = bool(opened(eqn.params["cond_jaxpr"])[0].outvars[0].aval.shape)
        flag, last = jax.lax.while_loop(goes, step, (_int32(flag), carry))
        return _scatter_live(last, used), flag

    def condition_has_check(self, test: object) -> bool:
        """Return whether the condition of a loop contains a check or calls Python."""
        return any(calls_equinox(eqn) or is_callback(eqn) for eqn in self.insides.equations(test))

    def while_with_checked_condition(
        self, goes_on: Any, turn: Any, carry: list[Any], flag: Flag, used: Used
    ) -> Results:
        """Build a loop whose condition contains a check.

        The condition is evaluated once before the loop and then at the end of each iteration, on
        the carry as the next iteration sees it. Its result and its flag are part of the carry.
        """

        def step(state: Any) -> Any:
            out, flag = turn(state[0], state[2])
            out, flag = _where(state[1], out, state[2]), _int32(flag)
            # A check that failed in the body leaves zeros for the condition to read.
            out = jax.lax.cond(jax.lax.eq(flag, np.int32(0)), list, _blank, out)
            go, flag = goes_on(flag, out)
            return flag, go, out

        def goes(state: Any) -> Any:
            return jax.lax.bitwise_and(jax.lax.eq(state[0], np.int32(0)), _any(state[1]))

        go, flag = goes_on(flag, carry)
        flag, _, last = jax.lax.while_loop(goes, step, (flag, go, carry))
        return _scatter_live(last, used), flag


def _stops(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "while" or is_callback(eqn)


def _first(flag: Flag, failed: Any) -> Any:
    return failed if flag is None else jax.lax.select(jax.lax.ne(flag, np.int32(0)), flag, failed)


def _any(go: Any) -> Any:
    """Return whether a loop goes on: with a batched condition, while one element does."""
    shape = jax.typeof(go).shape
    return jax.lax.reduce_or(go, tuple(range(len(shape)))) if shape else go


def _where(go: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    """Freeze the carry of elements of a batched loop that have ended.

    JAX does the same when it lowers a `while` with a batched condition.
    """
    shape = jax.typeof(go).shape
    if not shape:
        return list(new)
    return [
        jax.lax.select(jax.lax.broadcast_in_dim(go, x.shape, tuple(range(len(shape)))), x, y)
        for x, y in zip(new, old, strict=True)
    ]


def _int32(flag: Flag) -> Any:
    return np.int32(0) if flag is None else flag


def _typed(number: int, like: object) -> Any:
    """Return a number in the dtype of another value, clamped to its limits."""
    dtype = jax.typeof(like).dtype
    if dtype == np.bool_:
        return np.bool_(number)
    limits = np.iinfo(dtype)
    return dtype.type(min(max(number, int(limits.min)), int(limits.max)))


def _zeros(aval: Aval) -> Any:
    return jax.lax.full(aval.shape, 0, aval.dtype)


def _blank(values: Sequence[Any]) -> list[Any]:
    # `full_like` keeps the weak type, which `_zeros` does not: the branches of a `cond` have to
    # agree.
    return [jax.lax.full_like(x, 0) for x in values]


def _with_constants(
    turn: Callable[..., Results], told: Sequence[object], flag: Flag, carry: Sequence[object]
) -> Results:
    return turn(flag, *told, *carry)


def _filled(values: Sequence[Any], atoms: Sequence[Any]) -> list[Any]:
    """Replace dead values without elements by empty arrays of their type.

    Liveness never asks for an empty array, since its type is enough to build one.
    """
    return [
        _zeros(atom.aval) if x is None and is_empty(atom.aval) else x
        for x, atom in zip(values, atoms, strict=True)
    ]


def _select_live(values: Sequence[object], needed: Sequence[bool]) -> list[Any]:
    return [value for value, is_needed in zip(values, needed, strict=True) if is_needed]


def _scatter_live(values: Sequence[object], needed: Sequence[bool]) -> list[Any]:
    left = iter(values)
    return [next(left) if is_needed else None for is_needed in needed]


def _flat(part: Callable[..., Results]) -> Callable[..., list[Any]]:
    def run(*given: object) -> list[Any]:
        out, flag = part(*given)
        return [*out, flag]

    return run


def _program(fn: Callable[..., object], like: Sequence[object]) -> Any:
    """Trace a function of arguments of these types, weak types included."""
    avals = [jax.typeof(x) for x in like]
    return jax.make_jaxpr(fn)(
        *[
            jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=bool(getattr(x, "weak_type", False)))
            for x in avals
        ]
    )
