"""Remedies of data that change while they are read, and of what a stream cannot do. Each runs in
an empty folder.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney import optimize

from ._case import Remedy

ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)
SQUARES = np.sum(ROWS**2, axis=0)
SOURCES, FILES, STREAM = (
    "_stream/data/sources.py",
    "_stream/data/files.py",
    "_stream/stream.py",
)
RUN = "_stream/stream_run.py"
PATH = pathlib.Path("rows.npy")


def energy(rows: Float[Array, "n d"]):
    return jnp.sum(rows**2, axis=0)


def spread(rows: Float[Array, "n d"]):
    """It goes through the data twice."""
    return jnp.sum((rows - jnp.mean(rows, axis=0)) ** 2, axis=0)


def smallest(rows: Float[Array, "n d"]):
    return jnp.sort(rows, axis=0)[0]


def logarithms(rows: Float[Array, "n d"]):
    return jnp.sum(jnp.log(rows))


def stream(rows, fn=energy, options=None, **more: Any):
    given = {"chunk": {"n": 3}, "progress": False, **more}
    return jitney.stream(optimize(**options or {})(fn), rows, **given).result


class Turning:
    """Rows that come in another order each time."""

    def __init__(self):
        self.times = 0

    def __iter__(self):
        self.times += 1
        return iter([ROWS[:: 1 if self.times % 2 else -1]])


class Fixed:
    def __iter__(self):
        return iter([ROWS])


def of_saved():
    np.save(PATH, ROWS)
    return stream(PATH)


def summed(memory):
    """A stream of 65,536 rows under a limit."""

    def total(x: Float[Array, "n"]):
        return jnp.sum(x)

    x = np.ones(2**16, np.float32)
    return jitney.optimize(memory=memory)(total).stream(x, progress=False).result


def of_integers(path):
    """A stream of a file for an annotation of floats."""
    np.save(path, np.arange(32).reshape(8, 4))
    return stream(path)


def of_numbers(number):
    """A stream of two files."""
    np.save("one.npy", number)
    return stream([pathlib.Path("one.npy")] * 2)


def written_meanwhile():
    """Another program writes to the file while the second chunk is read."""
    from jitney._stream.data.reading import ChunkReader

    np.save(PATH, ROWS)
    part, times = ChunkReader._part, []

    def writing(self, source, rows, out=None):
        times.append(rows)
        if len(times) == 2:
            np.save(PATH, ROWS + 1)
        return part(self, source, rows, out)

    with patch.object(ChunkReader, "_part", writing):
        return stream(PATH, retries=0)


def mapped(*, cut):
    """An array in a mapped file, which is cut to a part or is not."""
    np.save(PATH, ROWS)
    rows = np.load(PATH, mmap_mode="r")
    if cut:
        os.truncate(PATH, 200)
    return stream(rows, retries=0)


def begins_anew():
    np.save(PATH, ROWS)
    os.truncate(PATH, 200)
    return mapped(cut=False)


def verified(rows, limit=100):
    """A stream of a file, of which so many bytes are read to verify it."""
    np.save(PATH, rows)
    with patch("jitney._stream.verify.LIMIT", limit):
        return stream(PATH, options={"verify": True})


CASES = [
    Remedy(
        f"{STREAM}:_check_keywords",
        "stream a program without `workers`",
        lambda: stream(ROWS, options={"vmap": {"b": {"rows": 0}}, "workers": 2}),
        lambda: stream(ROWS),
        SQUARES,
    ),
    Remedy(
        "_stream/chosen_steps.py:_warn_of_small_chunks",
        'give it more, such as memory="64MiB"',
        lambda: summed("256B"),
        lambda: summed("64MiB"),
        2.0**16,
    ),
    Remedy(
        "_stream/arguments.py:_demand_dtype",
        "or write the data in another dtype",
        lambda: of_integers(PATH),
        of_saved,
        SQUARES,
    ),
    Remedy(
        f"{SOURCES}:ConcatenatedSource.__init__",
        "write each number as an array of one row",
        lambda: of_numbers(np.float32(3)),
        lambda: of_numbers(np.full((1, 4), 3, np.float32)),
        np.full(4, 18.0),
    ),
    Remedy(
        "_stream/data/reading.py:ChunkReader._change_error",
        "start again: without the checkpoint, and with data that do not change",
        lambda: stream(Turning(), spread),
        lambda: stream(Fixed(), spread),
        np.sum((ROWS - ROWS.mean(0)) ** 2, axis=0),
        core=True,
    ),
    Remedy(
        f"{FILES}:FileSource._change_error",
        "start again when nobody writes to it",
        written_meanwhile,
        of_saved,
        SQUARES,
    ),
    Remedy(
        f"{FILES}:_check_size",
        "start again when nobody writes to it",
        lambda: mapped(cut=True),
        begins_anew,
        SQUARES,
    ),
    Remedy(
        "_stream/steps.py:_check_whole_values",
        "give the function memory=… or more",
        lambda: stream(ROWS, smallest, {"memory": "100 B"}, chunk={"n": 2}),
        lambda: stream(ROWS, smallest, {"memory": "1 MiB"}, chunk={"n": 2}),
        ROWS[0],
    ),
    Remedy(
        "_stream/steps.py:_check_whole_values",
        "or call it with `chunk`, on data that are in memory",
        lambda: stream(ROWS, smallest, {"memory": "100 B"}, chunk={"n": 2}),
        lambda: optimize(chunk={"n": 2})(smallest)(ROWS),
        ROWS[0],
    ),
    Remedy(
        f"{RUN}:StreamRun._check_checkpoint",
        "drop checkpoint=...",
        lambda: stream(ROWS, smallest, checkpoint="run.ckpt"),
        lambda: stream(ROWS, smallest),
        ROWS[0],
    ),
    Remedy(
        f"{RUN}:StreamRun.__init__",
        "call the function itself there",
        lambda: jax.jit(stream)(ROWS),
        lambda: jax.jit(optimize(energy))(ROWS),
        SQUARES,
    ),
    Remedy(
        f"{STREAM}:_refuse_nonfinite",
        "call the function itself on a part of the data",
        lambda: stream(ROWS, logarithms, {"debug_nans": True}),
        lambda: optimize(debug_nans=True)(logarithms)(ROWS[1:]),
        np.sum(np.log(ROWS[1:])),
    ),
    Remedy(
        "_stream/verify.py:verify_stream",
        "stream a part of them to verify",
        lambda: verified(ROWS),
        lambda: verified(ROWS[:6]),
        np.sum(ROWS[:6] ** 2, axis=0),
    ),
]
