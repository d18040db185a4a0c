"""`jitney.analysis.precision_report`: the loss of accuracy by a low floating-point type, on
given data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._errors import OptionError
from .._interface.derivatives.derivative import Derivative, program_of_call
from .._interface.optimize import optimize
from .._interface.program import Program
from .._jax.trees import is_number
from .._owners import public
from .._precision import LOW
from .._program.tolerance.decide import AUTO_LOW, report_on
from .._program.tolerance.precision_report import WHOLE, PrecisionReport
from .._signature.options import policy_of


@public
def precision_report(
    f: Callable[..., object] | Derivative[..., object],
    /,
    *args: object,
    tolerance: float = 1e-2,
    low: str | None = None,
    **kwargs: object,
) -> PrecisionReport:
    """Compare a function in a low type with its float64 shadow, and find the products that must
    stay in float32 for a tolerance to hold.

    The shadow is the traced program in float64, with the same random numbers; custom derivative
    rules are followed as they were traced. If the result is a scalar, the gradient with respect to
    all floating-point arrays among the arguments is compared too. Products are pinned greedily, the
    costliest first, and released again where they need not be; the choice is verified on the
    autocast itself. The error is the one on these data.

    Args:
        f: A function, a program of `@optimize`, or one of its derivatives.
        args: Its arguments: values, not shapes.
        tolerance: The worst relative error, in the 2-norm, of any output and gradient.
        low: "bf16" or "fp16" to compute products in, or "bf16-all" or "fp16-all" to compute
            everything in: then nothing is pinned, and the report is on that policy as it is. By
            default the type of the program's own `precision=`, else bf16.
        kwargs: Arguments by name; for a derivative also `wrt`.

    Raises:
        OptionError: The tolerance or the type is invalid, or an argument has no value.
    """
    if isinstance(f, Program):
        program = f
    elif callable(f) and not isinstance(f, Derivative):
        program = optimize(f)
    else:
        program = program_of_call("jitney.analysis.precision_report()", f, kwargs)
    core = program.core
    low = low if low is not None else _low_of(core.options.precision)
    if (
        not isinstance(low, str)
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


def _low_of(precision: str | tuple[tuple[str, str], ...] | None) -> str:
    """The low type that a program's `precision=` names, or its policy for the whole program; bf16
    by default.
    """
    policy = policy_of(precision)
    if policy is not None:
        return next(iter(policy.types), AUTO_LOW)
    if isinstance(precision, str) and precision in WHOLE:
        return precision
    return AUTO_LOW
