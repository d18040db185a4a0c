"""A computation of several programs, such as the steps of a stream: found, or made and kept, as one
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._body.body import Body
from .._jax.user_contexts import KEPT
from .._record.unsure import Unsure
from .._verify import is_verified
from .asked import FOUND, MADE, UNWRITTEN, Asked
from .stored import Stored, save
from .tracing import content_of


@dataclass(frozen=True)
class Parts:
    """What was traced.

    Args:
        programs: Exported, by JAX.
        plan: How they are run, as plain data.
        treedef: The structure of the result.
        rest: What that holds besides arrays.
    """

    programs: Sequence[Any]
    plan: Any
    treedef: Any
    rest: Any


@dataclass(frozen=True)
class KeptParts:
    """What was found, or is kept.

    Args:
        programs: Written by `jax.export`.
        plan: How they are run.
        treedef: The structure of the result.
        rest: What that holds besides arrays.
    """

    programs: Sequence[bytes]
    plan: Any
    treedef: Any
    rest: Any


def in_parts(
    body: Body, given: Sequence[Any], of: Sequence[str], make: Callable[[], Parts]
) -> tuple[KeptParts | None, str]:
    """The programs, None where they are not kept; and what became of them.

    Args:
        body: The function.
        given: Its arguments, or what stands for them.
        of: What tells the computation from others of the same arguments.
        make: Traces it.

    Raises:
        VerificationError: Under `verify`: what is found is not what is traced.
    """
    try:
        asked = Asked.make(body, given, of=of)
        stored, changed = asked.found()
        why = FOUND
        if stored is None or is_verified(body.core.options):
            # JAX forgets what it has traced: all bodies run again, and are seen
            with KEPT(object()):
                fresh = _stored(body, asked, make)
            if stored is None:
                why = f"{MADE}{changed}" if save(asked.entry, fresh) else UNWRITTEN
            asked.check_same(fresh, stored or fresh)
            stored = stored or fresh
    except Unsure as unsure:
        return None, f"not kept: {unsure}"
    body.warn_lost(stored.updates)
    return KeptParts(stored.programs, stored.plan, *asked.forms.read(stored.form)), why


def _stored(body: Body, asked: Asked, make: Callable[[], Parts]) -> Stored:
    recorded = asked.recorded(make)
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
    return Stored(asked.key.text, form, recorded.libraries, b"".join(programs), **beside)
