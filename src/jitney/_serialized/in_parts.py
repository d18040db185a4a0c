"""Computations of several programs, such as the steps of a stream: found in the cache, or traced
and saved, as one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.export

from .._body.body import CallPlanner
from .._jax.typed import PyTreeDef
from .._jax.user_contexts import SERIALIZED
from .._record.unsure import NotDeterministic
from .._verify import is_verified
from .form import Rest
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

    programs: Sequence[jax.export.Exported]
    plan: Any
    treedef: PyTreeDef
    rest: Rest


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
    treedef: Hashable
    rest: Rest


def in_parts(
    body: CallPlanner,
    given: Sequence[object],
    of: Sequence[str],
    make: Callable[[], TracedParts],
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
        request = CacheRequest.make(body, given, of=of)
        stored, changed = request.lookup()
        why = FOUND
        if stored is None or is_verified(body.core.options):
            # A fresh value of this user context misses JAX's trace caches: all bodies run once
            # more, and their reads are recorded.
            with SERIALIZED(object()):
                fresh = _serialise_parts(body, request, make)
            if stored is None:
                why = f"{MADE}{changed}" if save(request.entry, fresh) else UNWRITTEN
            request.compare_programs(fresh, stored or fresh)
            stored = stored or fresh
    except NotDeterministic as unsure:
        return None, f"not cached: {unsure}"
    body.warn_lost_updates(stored.updates)
    treedef, rest = request.forms.read(stored.form)
    return CachedParts(stored.programs, stored.plan, treedef, rest), why


def _serialise_parts(
    body: CallPlanner,
    request: CacheRequest,
    make: Callable[[], TracedParts],
) -> SerializedProgram:
    recorded = request.record_trace(make)
    parts = recorded.made
    form = request.forms.to_data(parts.treedef, parts.rest)
    programs = [content_of(program) for program in parts.programs]
    return SerializedProgram(
        request.key.text,
        form,
        recorded.libraries,
        b"".join(programs),
        asked=recorded.reads,
        second=recorded.second,
        plan=parts.plan,
        lengths=list(map(len, programs)),
        updates=body.updates,
    )
