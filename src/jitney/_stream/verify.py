"""`verify` of `jitney.stream`: one plain call on all of the data, if they fit into memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._body.plain import ProgramChange, changes_of
from .._errors import VerificationWarning, format_error
from .._jax.typed import Array
from .._jax.xla.memory import text
from .._owners import users_level
from .._verify import Verification
from .data.sources import is_read

if TYPE_CHECKING:
    from .._program.entry import Specialization

LIMIT = 2**30
"""Largest number of bytes of data that are read whole for the comparison."""


def verify_stream(
    entry: Specialization,
    chunk: tuple[str, int],
    values: Sequence[Any],
    result: object,
    again: Callable[[tuple[object, ...]], object],
) -> None:
    """Compare the result of a stream under `verify`, once for each length of data and chunk size.

    Args:
        entry: The program.
        chunk: The axis, and the number of its elements that are read at a time.
        values: The arrays of the call, and the sources of those that are read.
        result: The result of the stream.
        again: Streams other data, one value for each parameter, without verification.

    Raises:
        VerificationError: The result differs from that of the plain function.
    """
    core = entry.core
    types = [(np.shape(x), str(getattr(x, "dtype", ""))) for x in values]
    key = ("stream", chunk, *types)
    if key in entry.verified:
        return
    read = [x for x in values if is_read(x)]
    sizes = (math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in read)
    size = sum(sizes)
    if size > LIMIT:
        entry.verified[key] = "left out"
        if core.counters.warn_once("verify stream"):
            what = f"a stream of {text(size)} is not verified."
            rule = (
                "What is compared with is one plain call on all of the data, which are read for it"
                f" up to {text(LIMIT)}."
            )
            warnings.warn(
                format_error(core.where, what, rule, "stream a part of them to verify."),
                VerificationWarning,
                stacklevel=users_level(),
            )
        return

    def streamed(arrays: Sequence[Array]) -> object:
        return again(entry.layout.values(arrays, entry.statics))

    # The changes set the tolerance; options that a stream replaces are not among them.
    arrays = [np.asarray(x[0 : x.shape[0]]) if is_read(x) else x for x in values]
    options = replace(core.options, chunk=(chunk,), memory=None)
    others = replace(
        core.options,
        chunk=(),
        memory=None,
        pad=(),
    )
    cut = ProgramChange("stream", (chunk[0],))
    changes = (cut, *changes_of(others, core.fn()))
    entry.verified[key] = Verification(
        entry,
        streamed,
        changes,
        options,
    ).verify(arrays, result)
