"""Loops with checks in them: the flag is one more value of the carry, and dead values are left
out of the new loop.

    scan      the flag goes through every iteration; a failed check ends nothing, as a scan has a
              fixed length
    while     no iteration begins once a check has failed; a condition that holds a check is
              evaluated at the end of the iteration before, since `while_loop` takes no flag of it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax

from .._jax.equinox_checks import Insides, calls_equinox, is_callback
from .._jax.programs.jaxprs import open_jaxpr, scan_parts, while_parts
from .._jax.programs.liveness import Liveness, Used
from .._jax.typed import AnyJaxpr, JaxprEqn
from .flags import (
    Code,
    Flag,
    code_of,
    goes_well,
)
from .live_values import (
    Part,
    Results,
    Value,
    scatter_live,
    select_live,
)

Carry = list[jax.Array]
"""Live carry of a loop."""
Bool = jax.Array
"""The result of the condition of a loop: a bool, or a batch of them."""


@dataclass(frozen=True)
class FlaggedLoops:
    """Builder of the loops of one program.

    Args:
        live: Liveness of the program.
        insides: Its sub-jaxprs, and which of them call back.
        part: Turns a sub-jaxpr into a function of the flag and its live arguments, given which of
            its results and arguments are live.
    """

    live: Liveness
    insides: Insides
    part: Callable[[AnyJaxpr, Sequence[bool], Sequence[bool]], Part]

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
        fixed = select_live(fixed, at_fixed)
        carry = select_live(carry, at_carry)
        rows = select_live(rows, at_rows)
        body = self.part(eqn.params["jaxpr"], used, at)
        count = len(carry)

        def turn(state: tuple[Code, Carry], row: Carry) -> tuple[tuple[Code, Carry], Carry]:
            before, carry = state
            out, flag = body(before, *fixed, *carry, *row)
            return (code_of(flag), out[:count]), out[count:]

        options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        (flag, last), ys = jax.lax.scan(turn, (code_of(flag), carry), rows, **options)
        return scatter_live([*last, *ys], used), flag

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
        of_test = select_live(of_test, at_test)
        of_body = select_live(of_body, at_body)
        carry = select_live(carry, at_carry)

        # The condition may read fewer carries than the loop has.
        condition = eqn.params["cond_jaxpr"]
        read = self.live.of(condition, (True,)).inputs[len(at_test) :]

        test = self.part(condition, (True,), [*at_test, *read])
        turn = self.part(eqn.params["body_jaxpr"], used, [*at_body, *at_carry])

        def goes_on(flag: Flag, carry: Carry) -> tuple[Bool, Code]:
            whole = scatter_live(carry, at_carry)
            (go,), flag = test(flag, *of_test, *select_live(whole, read))
            return go, code_of(flag)

        # `while_loop` takes a condition that returns a bool only, so a flag made in it needs the
        # other form.
        if self.condition_has_check(condition):
            body = partial(_with_constants, turn, of_body)
            return self.while_with_checked_condition(goes_on, body, carry, flag, used)

        def goes(state: tuple[Code, Carry]) -> Bool:
            flag, carry = state
            well = goes_well(flag)
            go, _ = goes_on(None, carry)
            return jax.lax.bitwise_and(well, _continues(go))

        def step(state: tuple[Code, Carry]) -> tuple[Code, Carry]:
            before, carry = state
            out, flag = turn(before, *of_body, *carry)
            # JAX freezes the carry of finished elements when it lowers a `while` with a batched
            # condition. The new condition is a scalar, so it is done here.
            if is_mapped:
                go, _ = goes_on(None, carry)
                out = _freeze_carry(go, out, carry)
            return code_of(flag), out

        result = open_jaxpr(condition)[0].outvars[0]
        is_mapped = bool(result.aval.shape)
        flag, last = jax.lax.while_loop(goes, step, (code_of(flag), carry))
        return scatter_live(last, used), flag

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
            code = code_of(flag)
            # A check that failed in the body leaves zeros for the condition to read.
            out = jax.lax.cond(goes_well(code), list, _blank, out)
            go, code = goes_on(code, out)
            return code, go, out

        def goes(state: tuple[Code, Bool, Carry]) -> Bool:
            flag, go, _ = state
            return jax.lax.bitwise_and(goes_well(flag), _continues(go))

        go, flag = goes_on(flag, carry)
        flag, _, last = jax.lax.while_loop(goes, step, (flag, go, carry))
        return scatter_live(last, used), flag


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


def _blank(values: Carry) -> Carry:
    # `full_like` keeps the weak type, which `zeros` does not: the branches of a `cond` have to
    # agree.
    return [jax.lax.full_like(x, 0) for x in values]


def _with_constants(
    turn: Part,
    constants: Sequence[jax.Array],
    flag: Flag,
    carry: Carry,
) -> Results:
    return turn(flag, *constants, *carry)
