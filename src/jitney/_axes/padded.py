"""The padded evaluator: a program with symbolic sizes, run at the sizes of its buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .rules import RULES
from .walk import Walk


def run_padded(
    jaxpr: Any, arrays: Sequence[Any], allocated: Mapping[str, int], valid: Mapping[str, Any], numbers: Mapping[Any, Any] | None = None
) -> list[Any]:
    """The results of a program, of which the leading parts are valid.

    Args:
        jaxpr: A program of which `demand` has proven that it can be padded.
        arrays: Its arguments, as long as allocated; what stands behind the valid part is never looked at.
        allocated: Symbol -> the size of the arrays.
        valid: Symbol -> the true size, an int32 scalar.
        numbers: What Python made of the true size, by variables of the program.
    """
    return Walk(allocated, valid, RULES, numbers=numbers).run(jaxpr, arrays)
