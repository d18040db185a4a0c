"""`jitney.precision_report`: what a low type costs in accuracy, on given data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._errors import OptionError
from .._interface.derivatives import Derivative, program_called
from .._interface.optimize import optimize
from .._interface.program import Program
from .._jax.trees import is_a, is_number
from .._owners import public
from .._precision import LOW
from .._program.tolerance import AUTO_LOW, WHOLE, PrecisionReport, report_on
from .._signature.options import policy_of


@public
def precision_report(
    f: Callable[..., Any] | Derivative[..., Any],
    /,
    *args: Any,
    tolerance: float = 1e-2,
    low: str | None = None,
    **kwargs: Any,
) -> PrecisionReport:
    """Run a function beside its float64 shadow, and say which products must stay in float32 for a
    tolerance to hold.

    The shadow is the traced program in float64, with the same random numbers; custom derivative
    rules are followed as they were traced. If the result is one number, the gradient with respect
    to all floating-point arrays among the arguments is compared too. Products are pinned greedily,
    the costliest first, and released again where they need not be; the choice is verified on the
    autocast itself. Error is that on these data.

    Args:
        f: A function, a program of `@optimize`, or one of its derivatives.
        args: Its arguments: values, not shapes.
        tolerance: The worst relative error, in the 2-norm, of any output and gradient.
        low: "bf16" or "fp16", in which products are computed, or "bf16-all" or "fp16-all", in which
            everything is: then nothing is pinned, and the report is on that policy as it is. If it
            is not said, what the program's own `precision=` names, else bf16.
        kwargs: Arguments by name; `wrt` too, of a derivative.

    Raises:
        OptionError: The tolerance or the type is none, or an argument has no value.
    """
    program: Any = f
    if not is_a(f, Program):
        undecorated = callable(f) and not is_a(f, Derivative)
        program = (
            optimize(program)
            if undecorated
            else program_called("jitney.precision_report()", program, kwargs)
        )
    core = program.core
    low = low if low is not None else _low_of(core.options.precision)
    if (
        not is_a(low, str)
        or low not in (*LOW, *WHOLE)
        or not is_number(tolerance)
        or not 0 < tolerance < np.inf
    ):
        raise OptionError(
            core.where,
            f"{low=}, {tolerance=} is nothing to hold on to.",
            "The type is bf16, fp16, bf16-all or fp16-all, the tolerance above 0.",
            'write tolerance=1e-2, low="bf16".',
            code="J208",
        )
    entry, arrays = program.abstract(args, kwargs, None)
    return report_on(entry, arrays, tolerance, low)


def _low_of(precision: Any) -> str:
    """The low type of a program, as its decorator says it, and whether everything is in it."""
    policy = policy_of(precision)
    if policy is not None:
        return next(iter(policy.types), AUTO_LOW)
    return precision if precision in WHOLE else AUTO_LOW
