"""Digest of what a traced program computes.

A body may read what another part of the user's code changes: an array of NumPy, a global, a counter
of its own. A program that JAX has compiled keeps what its trace has read. So where the same calls
get a second program, it is a trace of the same digest, or it is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from .. import _serialized
from .._jax.programs.program_parts import program_parts
from .._jax.typed import Array
from .._signature.options import Options
from .compiled_calls import CompiledCalls

CHANGED = "the body now computes something else than when it was first traced"


def traced_digest(entry: CompiledCalls, arrays: Sequence[Array]) -> str:
    """Return the digest of the program that runs calls with these arrays, which has been traced:
    JAX still has the trace.
    """
    return _kept_digest(entry, arrays) or _digest(entry.lower(arrays, "trace").jaxpr)


def digest_now(
    entry: CompiledCalls,
    arrays: Sequence[Array],
    options: Options | None = None,
    fn: Callable[..., object] | None = None,
) -> str:
    """Return the digest of a trace of now, which nobody counts; of options and a function that
    trace the same program, if they are given.
    """
    core = entry.core
    twin = core.of(fn or core.fn(), options or core.options)
    return traced_digest(entry.of(twin), arrays)


def _kept_digest(entry: CompiledCalls, arrays: Sequence[Array]) -> str | None:
    """Return the key of a program that is kept for other processes, which has all that its trace
    may read; None if it has no key.
    """
    if entry.kept is None:
        return None
    from .._record.unsure import NotDeterministic  # which other programs do not need

    try:
        with entry.numbers():
            return _serialized.key_of(entry, arrays).text
    except NotDeterministic:
        return None


def _digest(jaxpr: object) -> str:
    digest = hashlib.sha256()
    for part in program_parts(jaxpr):
        digest.update(part)
    return digest.hexdigest()
