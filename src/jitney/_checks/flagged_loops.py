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
from .._jax.programs.control import any_goes_on, freeze_finished, scan_beside, while_beside
from .._jax.programs.jaxprs import scan_parts, while_parts
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
        places = zip(scan_parts(eqn, values), scan_parts(eqn, list(at)), strict=True)
        fixed, carry, rows = (select_live(*each) for each in places)
        body = self.part(eqn.params["jaxpr"], used, at)

        def turn(before: Code, *arguments: jax.Array) -> tuple[Code, Carry]:
            out, flag = body(before, *arguments)
            return code_of(flag), out

        code, out = scan_beside(code_of(flag), eqn, (fixed, carry, rows), turn)
        return scatter_live(out, used), code

    def loop(
        self,
        eqn: JaxprEqn,
        values: list[Value],
        flag: Flag,
        used: Used,
    ) -> Results:
        used = self.live.loop_results(eqn, used)
        at_test, at_body, at_carry = while_parts(eqn, list(self.live.inputs(eqn, used)))
        places = zip(while_parts(eqn, values), (at_test, at_body, at_carry), strict=True)
        of_test, of_body, carry = (select_live(*each) for each in places)

        # The condition may read fewer carries than the loop has.
        condition = eqn.params["cond_jaxpr"]
        read = self.live.of(condition, (True,)).inputs[len(at_test) :]

        test = self.part(condition, (True,), [*at_test, *read])
        body = self.part(eqn.params["body_jaxpr"], used, [*at_body, *at_carry])

        def goes_on(flag: Flag, carry: Sequence[jax.Array]) -> tuple[Bool, Code]:
            whole = scatter_live(carry, at_carry)
            (go,), flag = test(flag, *of_test, *select_live(whole, read))
            return go, code_of(flag)

        def turn(before: Code, *arguments: jax.Array) -> tuple[Code, Carry]:
            out, flag = body(before, *arguments)
            return code_of(flag), out

        # `while_loop` takes a condition that returns a bool only, so a flag made in it needs the
        # other form.
        if self.condition_has_check(condition):
            return self.while_with_checked_condition(
                goes_on, partial(_with_constants, turn, of_body), carry, flag, used
            )

        def goes(before: Code, *carry: jax.Array) -> Bool:
            go, _ = goes_on(None, carry)
            return goes_well(before) & go

        code, last = while_beside(code_of(flag), eqn, ([], of_body, carry), goes, turn)
        return scatter_live(last, used), code

    def condition_has_check(self, test: object) -> bool:
        """Return whether the condition of a loop contains a check or calls Python."""
        return any(calls_equinox(eqn) or is_callback(eqn) for eqn in self.insides.equations(test))

    def while_with_checked_condition(
        self,
        goes_on: Callable[[Flag, Sequence[jax.Array]], tuple[Bool, Code]],
        turn: Callable[[Flag, Carry], tuple[Code, Carry]],
        carry: Carry,
        flag: Flag,
        used: Used,
    ) -> Results:
        """Build a loop whose condition contains a check.

        The condition is evaluated once before the loop and then at the end of each iteration, on
        the carry as the next iteration sees it. Its result and its flag are part of the carry, so
        this loop is not the old one with values beside it.
        """

        def step(state: tuple[Code, Bool, Carry]) -> tuple[Code, Bool, Carry]:
            before, go, carry = state
            code, out = turn(before, carry)
            out = freeze_finished(go, out, carry)
            # A check that failed in the body leaves zeros for the condition to read.
            out = jax.lax.cond(goes_well(code), list, _blank, out)
            go, code = goes_on(code, out)
            return code, go, out

        def goes(state: tuple[Code, Bool, Carry]) -> Bool:
            flag, go, _ = state
            return jax.lax.bitwise_and(goes_well(flag), any_goes_on(go))

        go, flag = goes_on(flag, carry)
        flag, _, last = jax.lax.while_loop(goes, step, (flag, go, carry))
        return scatter_live(last, used), flag


def _blank(values: Carry) -> Carry:
    # `full_like` keeps the weak type, which `zeros` does not: the branches of a `cond` have to
    # agree.
    return [jax.lax.full_like(x, 0) for x in values]


def _with_constants(
    turn: Callable[..., tuple[Code, Carry]],
    constants: Sequence[jax.Array],
    flag: Flag,
    carry: Carry,
) -> tuple[Code, Carry]:
    return turn(flag, *constants, *carry)
