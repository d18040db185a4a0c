"""A table of examples for a property, one row for each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis


def examples(*rows: dict[str, object]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Apply `hypothesis.example` for each row of arguments; the rows run in the order written."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        for row in reversed(rows):
            test = hypothesis.example(**row)(test)
        return test

    return decorate
