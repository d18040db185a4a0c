"""`stream config.toml`: run the stream that a file describes, and write its result.

Ctrl-C and SIGTERM, which a cluster sends before it kills, end the run with a checkpoint. The same
command goes on from it, to the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import numpy as np

from ..._errors import OptionError
from ..._host.atomic_files import replace_file
from ..._jax.trees import is_number, keystr, tree_flatten_with_path
from ..._report.streamed import Streamed
from ..._stream.stream import stream
from .config import StreamConfig, read
from .keys import template
from .sources import arguments_of, program_of

_WHERE = "python -m jitney stream"
# As a shell counts: 128 and the number of the signal.
_STOPPED = {"Ctrl-C": 130, "SIGTERM": 143}


def carry_out(given: argparse.Namespace) -> int:
    """Print the template, or run the stream."""
    if given.template:
        sys.stdout.write(template())
        return 0
    if given.file is None:
        raise OptionError(
            _WHERE,
            "it has no file.",
            "A stream is described by a file in TOML.",
            f"{_WHERE} --template > config.toml, and fill it in.",
            code="J205",
        )
    config = read(Path(given.file))
    program = program_of(config)
    arguments = arguments_of(config, program)
    _prepare(config)
    with _terminated_as_interrupted() as why:
        try:
            result = stream(
                program,
                chunk=config.chunk,
                checkpoint=config.checkpoint,
                checkpoint_every=None if config.checkpoint is None else config.every,
                retries=config.retries,
                progress=config.progress,
                **arguments,
            )
        except KeyboardInterrupt:
            sys.stderr.write(f"\nStopped by {why[0]}. {_what_next(config)}\n")
            return _STOPPED[why[0]]
        _write(config, result)
    return 0


def _prepare(config: StreamConfig) -> None:
    """See before the run that its files can be written."""
    folders = [("output", "file", config.output.parent)]
    if config.checkpoint is not None:
        folders.append(("checkpoint", "folder", config.checkpoint.parent))
    for section, key, folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise config.lines.wrong(
                section,
                key,
                f"{str(folder)!r} cannot be written ({error.strerror}).",
                "The result of a long run would be lost.",
                "name a folder that can.",
            ) from None
    if config.checkpoint is not None and not config.resume:
        config.checkpoint.unlink(missing_ok=True)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Generator[list[str]]:
    """Raise `KeyboardInterrupt` at SIGTERM too, and note which it was."""
    why = ["Ctrl-C"]

    def terminated(number: int, frame: FrameType | None) -> None:
        why[0] = "SIGTERM"
        raise KeyboardInterrupt

    # Python sets handlers in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield why
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield why
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_next(config: StreamConfig) -> str:
    if config.checkpoint is None or not config.checkpoint.exists():
        return "Nothing is stored: [checkpoint] names a folder, and a first chunk has to be done."
    return f"The same command goes on from {config.checkpoint}."


def _write(config: StreamConfig, streamed: Streamed[object]) -> None:
    """Write the arrays of the result, by their places in it."""
    leaves = [
        (path, leaf)
        for path, leaf in tree_flatten_with_path(streamed.result)[0]
        if hasattr(leaf, "dtype") or is_number(leaf)
    ]
    places = [keystr(path) for path, _ in leaves]
    # `['loss'][0]` is `loss.0`, unless two places would have one name.
    names = [re.sub(r"[\[\]'.]+", ".", place).strip(".") or "result" for place in places]
    if len(set(names)) < len(names):
        names = places
    arrays = {name: np.asarray(leaf) for name, (_, leaf) in zip(names, leaves, strict=True)}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    replace_file(config.output, content.getvalue(), durable=True)
    sys.stdout.write(f"{streamed.stats}\n{config.output}: {', '.join(arrays) or 'no arrays'}\n")
