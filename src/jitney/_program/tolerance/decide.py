"""Choice of the policy of a call by its values, and the report that it is chosen by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import jax
import numpy as np

from ..._errors import OptionError, PrecisionError
from ..._jax.trees import Tracer, is_of_numbers
from ..._jax.typed import Array
from ..._precision import FULL, Policy
from ..._signature.options import ON_ERROR, tolerance_of
from ..entry import Specialization
from ..registry import REGISTRY
from ..tracing.traced_calls import Undecided
from .precision_report import PrecisionReport
from .shadowed_function import ShadowedFunction

_T = TypeVar("_T")
AUTO_LOW = "bf16"
"""The low dtype of `precision="auto:..."`."""


def with_policy(
    entry: Specialization,
    arrays: Sequence[Array],
    ask: Callable[[], _T],
) -> _T:
    """Return `ask()`; each time it finds that a policy has to be chosen by values, choose one with
    these arrays and call it once more.

    Raises:
        OptionError: The arrays have no values.
        PrecisionError: No choice holds the tolerance.
    """
    while True:
        try:
            return ask()
        except Undecided as undecided:
            key = undecided.key
        # Outside of `except`: an error of the choice does not carry Undecided as its context.
        decide(entry, key, arrays)


def decide(
    entry: Specialization,
    key: Hashable,
    arrays: Sequence[Array],
) -> None:
    """Choose the policy of `precision="auto:..."` for a call key, by the values of a call.

    Raises:
        OptionError: An argument has no value.
        PrecisionError: No choice holds the tolerance.
    """
    tolerance = tolerance_of(entry.core.options.precision)
    if tolerance is None:
        raise AssertionError("no tolerance was asked for")
    report = report_on(entry, arrays, tolerance, AUTO_LOW)
    if not report.holds:
        worst = max(report.deviations, key=lambda deviation: deviation.pinned)
        raise PrecisionError(
            entry.core.where,
            f"no choice of products holds {tolerance:g}: {worst.kind} {worst.name!r} is off by"
            f" {worst.pinned:.1e}.",
            f"In float32 it is off by {worst.single:.1e} from its float64 shadow; what is in"
            " float32 anyway cannot be pinned.",
            'ask for less (precision="auto:1e-2"), or compute in float64 (precision="f64").',
        )
    pinned = tuple((product.name, FULL) for product in report.products if product.pinned)
    why = (
        f"chosen on the first call's arguments to hold {tolerance:g}: off by {report.worst:.1e} at"
        " most"
    )
    entry.chosen[key] = Policy(report.low, pinned), why


def report_on(
    entry: Specialization,
    arrays: Sequence[Array],
    tolerance: float,
    low: str,
) -> PrecisionReport:
    """Return the report on a call; see `precision_report`.

    Raises:
        OptionError: An argument has no value.
    """
    where = entry.core.where
    if any(isinstance(array, (Tracer, jax.ShapeDtypeStruct)) for array in arrays):
        raise OptionError(
            where,
            "the error of a low type is asked for where arrays have no values.",
            "It is measured on data: not ahead of time by sizes, and not inside another"
            " transformation.",
            "call it with arrays first, or write the policy that `jitney.analysis.precision_report`"
            " gave.",
            code="J201",
        )

    given = zip(entry.paths, arrays, strict=False)
    no_numbers = [
        path
        for path, array in given
        if isinstance(array, (np.ndarray, np.generic)) and not is_of_numbers(array.dtype)
    ]
    if no_numbers:
        raise OptionError(
            where,
            f"{no_numbers[0]!r} holds no numbers that JAX has.",
            "The error of a low type is measured on numbers.",
            "pass an array of numbers.",
            code="J201",
        )

    # The same function without the options that change its numbers or where it runs.
    core = entry.core
    options = core.options.without(
        "precision",
        "donate",
        "pad",
        "chunk",
        "memory",
        "remat",
        "roll",
        "shard",
        "mesh",
        "accumulate",
        *ON_ERROR,
        "debug_nans",
    )
    plain_core = REGISTRY.core(core.fn(), options, core.namespace)
    plain = Specialization(
        plain_core,
        entry.layout,
        entry.weak_statics,
        None,
    )
    return ShadowedFunction(plain, arrays, low).report(tolerance)
