"""Leaked tracers: arrays of a trace that a body leaves in objects of plain classes, in a result
that JAX cannot look into or in an attribute.

JAX is silent when they are left, and a later reader gets an error that names neither the object nor
the fix. Results are checked when they are returned. An attribute may well be scratch space that
only the body itself reads, each time after it has set it; so an attribute is reported only where it
was read before it was set, in the trace that fails.
"""

from __future__ import annotations

from dataclasses import is_dataclass

import jax
from jax.core import Tracer

from ..._errors import StaticError, TraceError, Where
from ..._jax.trees import tree_flatten
from ..._signature.records import tree_fix
from ..._values.attribute_reads import AttributeReads
from ..._values.attributes import attributes_of
from ..._values.mutable_objects import article, is_plain
from ..._view.result import Outcome


def refuse_left_in_result(where: Where, outcome: Outcome) -> None:
    """Check that no object in a result holds an array of the trace.

    Raises:
        StaticError: An object holds one.
    """
    for _, leaf in outcome.rest:
        if not is_plain(type(leaf)) and not is_dataclass(leaf):
            continue
        held = next((name for name, part in attributes_of(leaf).items() if _is_left(part)), None)
        if held is not None:
            raise StaticError(
                where,
                f"the result is or holds {article(leaf)}, whose {held!r} is or holds an array of"
                " the trace.",
                "Arrays leave a compiled function in tuples, lists, dicts and Equinox modules."
                " Other objects are handed on as they are, with arrays that have no numbers.",
                f"return the arrays, or {tree_fix(type(leaf))}",
                code="J311",
            )


def left_error(
    error: Exception,
    where: Where,
    reads: AttributeReads | None,
) -> TraceError | None:
    """Return the error for a body that reads an attribute which an earlier trace has set; None for
    other errors.
    """
    if reads is None or not isinstance(error, jax.errors.UnexpectedTracerError):
        return None
    left = next(
        (f"{type(value).__name__}.{name}" for value, name, part in reads.read() if _is_left(part)),
        None,
    )
    if left is None:
        return None
    return TraceError(
        where,
        f"it reads {left!r}, where a trace before this one has left an array of its own.",
        "A body runs once for each program, to be traced: what it writes into an object is an array"
        " without numbers, and later calls write nothing.",
        "return the new value, and set the attribute behind the call; or return a new eqx.Module.",
        code="J272",
    )


def _is_left(part: object) -> bool:
    for leaf in tree_flatten(part)[0]:
        if isinstance(leaf, Tracer):
            return True
        if is_dataclass(leaf) and any(map(_is_left, attributes_of(leaf).values())):
            return True
    return False
