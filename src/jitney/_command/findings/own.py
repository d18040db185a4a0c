"""Causes of traces and compiles of the program's decorated functions: `stats.causes`, and remedies.

Decorated functions are found among all objects that are alive when the program is over, since no
list of them exists; functions that were released before are missed.
"""

from __future__ import annotations

import gc
from typing import Any

from ..._interface.program import Program
from ..._owners import is_users, short
from ..._text.json import Data


def decorated_places() -> set[tuple[str, int]]:
    """Return file and line of each decorated function.

    JAX reports their programs as those of a function under `jax.jit`; the place identifies them.
    """
    # `issubclass(type(...))` and not `isinstance`, which would read `__class__` of arbitrary
    # objects, and so run the code of proxies.
    programs = [each for each in gc.get_objects() if issubclass(type(each), Program)]
    codes = [getattr(getattr(each, "__wrapped__", None), "__code__", None) for each in programs]
    return {(code.co_filename, code.co_firstlineno) for code in codes if code is not None}


def own_causes() -> list[Data]:
    """Return a row for each function and cause, longest first.

    Seconds are of whole programs, which may have several causes.
    """
    rows: dict[tuple[str, str], Data] = {}
    seen = set[Any]()

    for each in gc.get_objects():
        if not issubclass(type(each), Program):
            continue
        code = getattr(getattr(each, "__wrapped__", None), "__code__", None)
        stats = each.stats
        # Several objects may share one program, as bound methods do.
        known = (code, stats.trace_seconds, stats.causes)
        if code is None or not is_users(code.co_filename) or known in seen:
            continue
        seen.add(known)
        line = f"{short(code.co_filename)}:{code.co_firstlineno}"
        for event in stats.causes:
            for cause in event:
                nothing = {"times": 0, "seconds": 0.0, "example": ""}
                row = rows.setdefault(
                    (line, f"{cause.kind} {cause.argument} {cause.axis} {cause.remedy}"),
                    {
                        "function": code.co_name,
                        "line": line,
                        "cause": cause.kind,
                        **nothing,
                        "remedy": cause.remedy,
                    },
                )
                row["times"] += 1
                row["seconds"] += cause.seconds
                row["example"] = str(cause)
    return sorted(rows.values(), key=lambda row: -row["seconds"])
