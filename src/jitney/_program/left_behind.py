"""Arrays of a trace that a body leaves in objects of plain classes: a result that JAX cannot look into, or an attribute that it sets.

JAX says nothing of these: the objects hold arrays without numbers, and whoever reads one later gets an error that names no line of
theirs. So it is said by the call that leaves them.
"""

from __future__ import annotations

import warnings
from typing import Any

from jax.core import Tracer

from .._body.function import Function
from .._errors import JitneyWarning, StaticError, Where, sentence
from .._jax.trees import is_a, tree_flatten, type_of
from .._owners import users_level
from .._signature.plain_objects import article, is_plain
from .._view.result import Outcome

_held_by: Any = vars


def refuse_left_in_result(where: Where, outcome: Outcome) -> None:
    """Check that no object in a result holds an array of the trace.

    Raises:
        StaticError: One does.
    """
    for _, leaf in outcome.rest:
        if not is_plain(type_of(leaf)):
            continue
        held = next((name for name, part in _held_by(leaf).items() if _is_left(part)), None)
        if held is not None:
            raise StaticError(
                sentence(where, f"the result is or holds {article(leaf)}, whose {held!r} is an array of the trace.",
                         "Arrays leave a compiled function in tuples, lists, dicts and Equinox modules. Other objects are handed on as "
                         "they are, with arrays that have no numbers.",
                         f"return the arrays, or make {type_of(leaf).__name__} an eqx.Module."),
                code="J311",
            )  # fmt: skip


def warn_left_in_attributes(core: Function, outcome: Outcome) -> None:
    """Say of which objects the body has set an attribute to an array of the trace."""
    for value, name in outcome.written:
        told = f"{type_of(value).__name__}.{name}"
        if _is_left(_held_by(value).get(name)) and core.counters.warn_once(f"left in {told}"):
            text = sentence(
                core.where, f"it writes an array of the trace into {told!r}.",
                "A body runs once for each program, and its arrays have no numbers then: what it writes into an object is none that can be "
                "read later, and later calls write nothing.",
                "return the new value, and set the attribute behind the call; or return a new eqx.Module.",
            )  # fmt: skip
            warnings.warn(text, JitneyWarning, stacklevel=users_level())


def _is_left(part: Any) -> bool:
    return any(is_a(leaf, Tracer) for leaf in tree_flatten(part)[0])
