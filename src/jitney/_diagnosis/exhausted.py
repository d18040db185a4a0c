"""Advice on an error of a device that has no memory left.

The error stays that of JAX, whose type programs may wait for; what can be done is a note on it.
"""

from __future__ import annotations

import jax

from .._errors import Where
from .._signature.options import Options

_MARKS = ("RESOURCE_EXHAUSTED", "Out of memory")


def is_exhausted(error: Exception) -> bool:
    """Return whether an error is that of a device without memory."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and any(mark in text for mark in _MARKS)


def note_exhausted(error: Exception, where: Where, options: Options) -> None:
    """Add to an error of a call which option has it take less memory; nothing to other errors."""
    if not is_exhausted(error):
        return
    if options.memory is not None:
        do = f"a smaller budget than memory={options.memory!r} cuts an axis into smaller chunks"
    elif options.chunk:
        do = "smaller sizes in `chunk` take less at a time"
    else:
        do = 'memory="auto" cuts an axis into chunks that fit, where the function allows it'
    if options.pad:
        # XLA makes some arrays of a program and fuses others away, so no rule says it beforehand.
        do += "; `pad` makes axes as long as their buckets, and finer buckets take less"
    gone = "; donated arguments may be gone, and have to be made anew" if options.donate else ""
    error.add_note(f"{where}: out of memory: {do}{gone} (docs/problems/out-of-memory.md).")
