"""The `max_compiles` option: how many programs a function may compile, and the reaction past
that.
"""

from __future__ import annotations

import warnings

from ..._body.function import FunctionInfo
from ..._errors import (
    CompileError,
    RetraceWarning,
    format_error,
    plural,
)
from ..._owners import users_level

# Causes that a message shows.
_SHOWN = 10
# Remedies that a message shows, the latest.
_REMEDIES = 3


def keep_limit(core: FunctionInfo) -> None:
    """Count a program that is about to be compiled; a hit of the persistent cache counts as well.

    Raises:
        CompileError: The limit is reached, and the option says "raise" or "eager".
    """
    limit = core.options.max_compiles
    if limit is None or core.counters.compile_events < limit.count:
        return
    told = _limit_message(core, limit.count)
    if limit.past != "warn":
        raise CompileError(told, code="J314")
    if core.counters.warn_once("max_compiles"):
        warnings.warn(told, RetraceWarning, stacklevel=users_level())


def is_past_limit(error: Exception) -> bool:
    """Return whether `keep_limit` raised an error."""
    return isinstance(error, CompileError) and error.code == "J314"


def _limit_message(core: FunctionInfo, count: int) -> str:
    causes = core.counters.sentences
    first = len(causes) - min(len(causes), _SHOWN)
    history = "\n".join(
        f"  {n}: {cause}"
        for n, cause in enumerate(causes[first:], core.counters.traces - len(causes) + first + 1)
    )
    compiled = core.counters.compile_events
    were = f"{plural(compiled, 'program')} {'was' if compiled == 1 else 'were'}"
    what = f"it is traced again, and {were} compiled, of max_compiles={count}:\n{history}\n "
    advised = core.counters.advise(core.counters.events)
    remedies = dict.fromkeys(
        cause.remedy for event in advised.causes for cause in event if cause.remedy
    )
    fix = "; ".join([*remedies][-_REMEDIES:]) or "keep shapes and static values the same"
    return format_error(
        core.where,
        what.rstrip(),
        "Each new shape, dtype, static value and structure of the arguments is a program of its"
        " own.",
        f"{fix}; or raise the limit.",
    )
