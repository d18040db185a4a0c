"""Lines of a plan that follow from options alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .option import Decision

if TYPE_CHECKING:
    from .table import Options

USUAL_ERROR = "an error names argument and line"
NOT_ASKED = "not asked for"


def of_contracts(options: Options) -> Iterable[Decision]:
    checked = options.contracts
    why = "checked once for each new call key" if checked else "`contracts=False`"
    return [("contract", checked, why)]


def of_trace_errors(options: Options) -> Iterable[Decision]:
    eager = options.on_trace_error == "eager"
    why = "the function runs un-jitted if it cannot be traced" if eager else USUAL_ERROR
    return [("trace errors", eager, why)]


def of_debug_nans(options: Options) -> Iterable[Decision]:
    checked = bool(options.debug_nans)
    why = "every result is checked, which waits for it" if checked else NOT_ASKED
    return [("debug_nans", checked, why)]
