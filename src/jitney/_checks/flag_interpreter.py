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
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax.typing import ArrayLike

from .._jax.equinox_checks import Insides, calls_equinox, is_callback, message_index, raising
from .._jax.mesh import explicit_mesh
from .._jax.programs.evaluation import interpret
from .._jax.programs.jaxprs import (
    effectful_equations,
    open_jaxpr,
    rebind,
    runs,
    scan_parts,
    solve_operands,
    standing_at,
    while_parts,
)
from .._jax.programs.liveness import Liveness, Used, is_empty
from .._jax.programs.primitives import PLAIN_CALLS, REMATS
from .._jax.trees import extended, issubdtype
from .._jax.typed import AnyJaxpr, Atom, Aval, JaxprEqn
from .table import LEAST_INDEX, MASK, MOST, MOST_INDEX, CheckTable, message_bits

Code = jax.Array | np.int32
"""An int32 of the program: the number of the check that failed first, with its message."""
Flag = Code | None
"""The code so far; None before the first check."""
Value = Any
"""A value of the program: an array, or None where it is not live."""
Results = tuple[list[Value], Flag]
Carry = list[jax.Array]
"""Live carry of a loop."""
Part = Callable[..., Results]
"""A sub-jaxpr as a function of the flag and its live arguments."""
Bool = jax.Array
"""The result of the condition of a loop: a bool, or a batch of them."""
T = TypeVar("T")


class Unflaggable(Exception):
    """Reason why the checks of a program stay callbacks."""


def evaluate_flagged(
    closed: Any,
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
    return out, _int32(flag)


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
                return _fill_empty([None] * len(eqn.outvars), eqn.outvars)
            out, flag = self.operation(eqn, inputs, flag, mine)
            return _fill_empty(out, eqn.outvars)

        plain, _ = open_jaxpr(program)
        out = interpret(program, _fill_empty(values, plain.invars), results)
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

        # The code has the number of the check in its upper bits, and the index of the message
        # below. The index may be traced, if the message is chosen at run time.
        index = message_index(eqn, values)
        if isinstance(index, jax.Array):
            least, most = _clamp_to_dtype(LEAST_INDEX, index), _clamp_to_dtype(MOST_INDEX, index)
            index = jax.lax.clamp(least, index, most)
            number = np.int32(number)
            lower = jax.lax.convert_element_type(index, np.int32)
            lower = jax.lax.bitwise_and(lower, np.int32(MASK))
            code = jax.lax.bitwise_or(number, lower)
        else:
            code = np.int32(number | message_bits(int(index)))
        branch = values[0]
        has_failed = jax.lax.ne(branch, _clamp_to_dtype(0, branch))
        failed = jax.lax.select(has_failed, code, np.int32(0))

        # Operand 0 of a `cond` chooses the branch. Branch 0 is the one in which the check holds.
        at = self.live.inputs(eqn, used)[1:]
        operands = _select_live(values[1:], at)
        results = [atom.aval for atom in _select_live(eqn.outvars, used)]

        def good(*arrays: jax.Array) -> list[Value]:
            out, _ = self.part(eqn.params["branches"][0], used, at)(None, *arrays)
            return out

        def blank(*_: jax.Array) -> list[jax.Array]:
            return list(map(_zeros, results))

        branches = _program(good, operands), _program(blank, operands)
        out = rebind(eqn, [branch, *operands], branches=branches)
        return _scatter_live(out, used), _first(flag, failed)

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
            return list(map(_zeros, avals))

        return list(jax.lax.cond(_goes_well(flag), call, blank))

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
            rules = {
                "cond": self.branches,
                "scan": self.scan,
                "while": self.loop,
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
            out, flag = self.run(program, _scatter_live(arrays, at), flag, used)
            return _select_live(out, used), flag

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
        out, flag = self._calls[key].jitted(flag, *_select_live(values, at))
        return _scatter_live(out, used), flag

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
        operands = [_int32(flag), *_select_live(values, at)]
        part = self.part(eqn.params["jaxpr"], used, at)
        plain, constants = open_jaxpr(_program(_flat(part), operands))
        if constants:
            raise Unflaggable("it has a check in what is computed again, with constants")
        *out, flag = rebind(eqn, operands, jaxpr=plain)
        return _scatter_live(out, used), flag

    def branches(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        at = self.live.inputs(eqn, used)[1:]
        # All branches have to return the same types, so the flag becomes an operand even where it
        # is None.
        operands = [_int32(flag), *_select_live(values[1:], at)]
        parts = [self.part(branch, used, at) for branch in eqn.params["branches"]]
        branches = tuple(_program(_flat(part), operands) for part in parts)
        *out, flag = rebind(eqn, [values[0], *operands], branches=branches)
        return _scatter_live(out, used), flag

    def scan(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        # Live results of a scan include every carry that a live carry or output reads in a later
        # iteration.
        used = self.live.loop_results(eqn, used)
        at = self.live.inputs(eqn, used)
        # Dead constants, carries and rows are left out of the new scan.
        at_fixed, at_carry, at_rows = scan_parts(eqn, list(at))
        fixed, carry, rows = scan_parts(eqn, values)
        fixed = _select_live(fixed, at_fixed)
        carry = _select_live(carry, at_carry)
        rows = _select_live(rows, at_rows)
        body = self.part(eqn.params["jaxpr"], used, at)
        count = len(carry)

        def turn(state: tuple[Code, Carry], row: Carry) -> tuple[tuple[Code, Carry], Carry]:
            before, carry = state
            out, flag = body(before, *fixed, *carry, *row)
            return (_int32(flag), out[:count]), out[count:]

        options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        (flag, last), ys = jax.lax.scan(turn, (_int32(flag), carry), rows, **options)
        return _scatter_live([*last, *ys], used), flag

    def loop(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        used = self.live.loop_results(eqn, used)
        at_test, at_body, at_carry = while_parts(eqn, list(self.live.inputs(eqn, used)))
        of_test, of_body, carry = while_parts(eqn, values)
        of_test = _select_live(of_test, at_test)
        of_body = _select_live(of_body, at_body)
        carry = _select_live(carry, at_carry)

        # The condition may read fewer carries than the loop has.
        condition = eqn.params["cond_jaxpr"]
        read = self.live.of(condition, (True,)).inputs[len(at_test) :]

        test = self.part(condition, (True,), [*at_test, *read])
        turn = self.part(eqn.params["body_jaxpr"], used, [*at_body, *at_carry])

        def goes_on(flag: Flag, carry: Carry) -> tuple[Bool, Code]:
            whole = _scatter_live(carry, at_carry)
            (go,), flag = test(flag, *of_test, *_select_live(whole, read))
            return go, _int32(flag)

        # `while_loop` takes a condition that returns a bool only, so a flag made in it needs the
        # other form.
        if self.condition_has_check(condition):
            body = partial(_with_constants, turn, of_body)
            return self.while_with_checked_condition(goes_on, body, carry, flag, used)

        def goes(state: tuple[Code, Carry]) -> Bool:
            flag, carry = state
            goes_well = _goes_well(flag)
            go, _ = goes_on(None, carry)
            return jax.lax.bitwise_and(goes_well, _continues(go))

        def step(state: tuple[Code, Carry]) -> tuple[Code, Carry]:
            before, carry = state
            out, flag = turn(before, *of_body, *carry)
            # JAX freezes the carry of finished elements when it lowers a `while` with a batched
            # condition. The new condition is a scalar, so it is done here.
            if is_mapped:
                go, _ = goes_on(None, carry)
                out = _freeze_carry(go, out, carry)
            return _int32(flag), out

        result = open_jaxpr(condition)[0].outvars[0]
        is_mapped = bool(result.aval.shape)
        flag, last = jax.lax.while_loop(goes, step, (_int32(flag), carry))
        return _scatter_live(last, used), flag

    def condition_has_check(self, test: object) -> bool:
        """Return whether the condition of a loop contains a check or calls Python."""
        return any(calls_equinox(eqn) or is_callback(eqn) for eqn in self.insides.equations(test))

    def while_with_checked_condition(
        self,
        goes_on: Callable[[Flag, Carry], tuple[Bool, Code]],
        turn: Callable[[Flag, Carry], Results],
        carry: Carry,
        flag: Flag,
        used: Used,
    ) -> Results:
        """Build a loop whose condition contains a check.

        The condition is evaluated once before the loop and then at the end of each iteration, on
        the carry as the next iteration sees it. Its result and its flag are part of the carry.
        """

        def step(state: tuple[Code, Bool, Carry]) -> tuple[Code, Bool, Carry]:
            before, go, carry = state
            out, flag = turn(before, carry)
            out = _freeze_carry(go, out, carry)
            code = _int32(flag)
            # A check that failed in the body leaves zeros for the condition to read.
            out = jax.lax.cond(_goes_well(code), list, _blank, out)
            go, code = goes_on(code, out)
            return code, go, out

        def goes(state: tuple[Code, Bool, Carry]) -> Bool:
            flag, go, _ = state
            return jax.lax.bitwise_and(_goes_well(flag), _continues(go))

        go, flag = goes_on(flag, carry)
        flag, _, last = jax.lax.while_loop(goes, step, (flag, go, carry))
        return _scatter_live(last, used), flag


@dataclass(frozen=True)
class _JittedCall:
    """Function that is called in the program, with its checks as data."""

    # Held, so that its id is not given to another object.
    jaxpr: AnyJaxpr
    jitted: Part


def _stops(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "while" or is_callback(eqn)


def _first(flag: Flag, failed: jax.Array) -> jax.Array:
    if flag is None:
        return failed
    has_failed = jax.lax.ne(flag, np.int32(0))
    return jax.lax.select(has_failed, flag, failed)


def _continues(go: Bool) -> Bool:
    """Return whether a loop goes on: with a batched condition, while one element does."""
    axes = tuple(range(len(jax.typeof(go).shape)))
    return jax.lax.reduce_or(go, axes) if axes else go


def _freeze_carry(
    go: Bool,
    new: Sequence[jax.Array],
    old: Sequence[jax.Array],
) -> list[jax.Array]:
    """Freeze the carry of elements of a batched loop that have ended.

    JAX does the same when it lowers a `while` with a batched condition.
    """
    axes = tuple(range(len(jax.typeof(go).shape)))
    if not axes:
        return list(new)
    carry: list[jax.Array] = []
    for x, y in zip(new, old, strict=True):
        go_on = jax.lax.broadcast_in_dim(go, x.shape, axes)
        carry.append(jax.lax.select(go_on, x, y))
    return carry


def _goes_well(flag: Code) -> Bool:
    return jax.lax.eq(flag, np.int32(0))


def _int32(flag: Flag) -> Code:
    return np.int32(0) if flag is None else flag


def _clamp_to_dtype(number: int, like: jax.Array) -> ArrayLike:
    """Return a number in the dtype of another value, clamped to its limits."""
    dtype = jax.typeof(like).dtype
    if dtype == np.bool_:
        return np.bool_(number)
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    return dtype.type(min(max(number, least), most))


def _zeros(aval: Aval) -> jax.Array:
    return jax.lax.full(aval.shape, 0, aval.dtype)


def _blank(values: Carry) -> Carry:
    # `full_like` keeps the weak type, which `_zeros` does not: the branches of a `cond` have to
    # agree.
    return [jax.lax.full_like(x, 0) for x in values]


def _with_constants(
    turn: Part,
    constants: Sequence[jax.Array],
    flag: Flag,
    carry: Carry,
) -> Results:
    return turn(flag, *constants, *carry)


def _fill_empty(values: Sequence[Value], atoms: Sequence[Atom]) -> list[Value]:
    """Replace dead values without elements by empty arrays of their type.

    Liveness never asks for an empty array, since its type is enough to build one.
    """
    filled = list(values)
    for i, (value, atom) in enumerate(zip(values, atoms, strict=True)):
        if value is None and is_empty(atom.aval):
            filled[i] = _zeros(atom.aval)
    return filled


def _select_live(values: Sequence[T], needed: Sequence[bool]) -> list[T]:
    return [value for value, is_needed in zip(values, needed, strict=True) if is_needed]


def _scatter_live(values: Sequence[object], needed: Sequence[bool]) -> list[Value]:
    left = iter(values)
    return [next(left) if is_needed else None for is_needed in needed]


def _flat(part: Part) -> Callable[..., list[Value]]:
    def run(*operands: jax.Array) -> list[Value]:
        out, flag = part(*operands)
        return [*out, flag]

    return run


def _program(fn: Callable[..., object], operands: Sequence[Code]) -> object:
    """Trace a function of arguments of these types, weak types included."""
    arguments: list[jax.ShapeDtypeStruct] = []
    for operand in operands:
        aval = jax.typeof(operand)
        weak_type = bool(getattr(aval, "weak_type", False))
        arguments.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak_type))
    return jax.make_jaxpr(fn)(*arguments)
