"""A training run in one file: weights, the optimiser's state, the history so far.

It is replaced as a whole, so that no kill leaves half of one.
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import equinox as eqx

_MAGIC = b"surrogate checkpoint 1\n"


def save(path: Path, key: Mapping[str, Any], step: int, history: list[Any], state: Any) -> None:
    """Write the file.

    Args:
        path: Where.
        key: What the run is made of, as JSON; a file of another key is refused.
        step: How many steps are done.
        history: Numbers that go with them.
        state: Model and optimiser.
    """
    buffer = io.BytesIO()
    buffer.write(json.dumps({"key": dict(key), "step": step, "history": history}).encode() + b"\n")
    eqx.tree_serialise_leaves(buffer, state)
    body = buffer.getvalue()
    replace(path, _MAGIC + hashlib.sha256(body).digest() + body)


def replace(path: Path, content: bytes) -> None:
    """Write a file as a whole: after a kill it is the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()
            raise


def load(path: Path, key: Mapping[str, Any], like: Any) -> tuple[int, list[Any], Any] | None:
    """Steps done, history and state; None if there is no file.

    Args:
        path: Where.
        key: What the run is made of.
        like: A state of the same structure and shapes.

    Raises:
        ValueError: The file is damaged, or of another run.
    """
    opened = _opened(path, key)
    if opened is None:
        return None
    found, arrays = opened
    return found["step"], found["history"], eqx.tree_deserialise_leaves(io.BytesIO(arrays), like)


def history(path: Path, key: Mapping[str, Any]) -> list[Any] | None:
    """The history alone, as `load` returns it; it needs no state that looks alike."""
    opened = _opened(path, key)
    return None if opened is None else opened[0]["history"]


def _opened(path: Path, key: Mapping[str, Any]) -> tuple[dict[str, Any], bytes] | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(_MAGIC)
    digest, body = content[head : head + 32], content[head + 32 :]
    if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
        raise ValueError(
            f"{path} is not a checkpoint, or it is damaged: remove it, or give another path."
        )
    line, _, arrays = body.partition(b"\n")
    found = json.loads(line)
    if found["key"] != json.loads(json.dumps(dict(key))):
        raise ValueError(
            f"{path} is of a run with other options: give these again, remove it, or give another"
            " path."
        )
    return found, arrays
