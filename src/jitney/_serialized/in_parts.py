"""Computations of several programs, such as the steps of a stream: found in the cache, or traced
and saved, as one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._body.body import CallPlanner
from .._jax.user_contexts import SERIALIZED
from .._record.unsure import NotDeterministic
from .._verify import is_verified
from .request import FOUND, MADE, UNWRITTEN, CacheRequest
from .stored import SerializedProgram, save
from .tracing import content_of


@dataclass(frozen=True)
class TracedParts:
    """A traced computation.

    Args:
        programs: Exported, by JAX.
        plan: Order in which they run, as plain data.
        treedef: The structure of the result.
        rest: The parts of the result that are not arrays.
    """

    programs: Sequence[Any]
    plan: Any
    treedef: Any
    rest: Any


@dataclass(frozen=True)
class CachedParts:
    """A cached computation.

    Args:
        programs: Serialised by `jax.export`.
        plan: Order in which they run.
        treedef: The structure of the result.
        rest: The parts of the result that are not arrays.
    """

    programs: Sequence[bytes]
    plan: Any
    treedef: Any
    rest: Any


def in_parts(
    body: CallPlanner, given: Sequence[object], of: Sequence[str], make: Callable[[], TracedParts]
) -> tuple[CachedParts | None, str]:
    """Return the programs, or None if they are not cached, and the outcome in words.

    Args:
        body: The function.
        given: Its arguments, or abstract ones.
        of: Name of the computation among others of the same arguments.
        make: Traces it.

    Raises:
        VerificationError: Under `verify`: the cached programs are not those of a fresh trace.
    """
    try:
        asked = CacheRequest.make(body, given, of=of)
        stored, changed = asked.found()
        why = FOUND
        if stored is None or is_verified(body.core.options):
            # A fresh value of this user context misses JAX's trace caches: all bodies run once
            # more, and their reads are recorded.
            with SERIALIZED(object()):
                fresh = _stored(body, asked, make)
            if stored is None:
                why = f"{MADE}{changed}" if save(asked.entry, fresh) else UNWRITTEN
            asked.check_same(fresh, stored or fresh)
            stored = stored or fresh
    except NotDeterministic as unsure:
        return None, f"not kept: {unsure}"
    body.warn_lost(stored.updates)
    return CachedParts(stored.programs, stored.plan, *asked.forms.read(stored.form)), why


def _stored(
    body: CallPlanner, asked: CacheRequest, make: Callable[[], TracedParts]
) -> SerializedProgram:
    recorded = asked.record_trace(make)
    made = recorded.made
    form = asked.forms.written(made.treedef, made.rest)
    programs = [content_of(program) for program in made.programs]
    beside: dict[str, Any] = {
        "asked": recorded.reads,
        "second": recorded.second,
        "plan": made.plan,
        "lengths": list(map(len, programs)),
    }
    beside["updates"] = body.updates
    return SerializedProgram(asked.key.text, form, recorded.libraries, b"".join(programs), **beside)
