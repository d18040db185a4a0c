"""Remedies of `python -m jitney stream`: the line that a message gives is written, and the stream
runs.
"""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from unittest.mock import patch

import h5py
import numpy as np

from ._case import Remedy
from ._commands import command

CONFIG = """
[stream]
function = "remedied.py:total"
progress = false
[data]
x = "x.npy"
[output]
file = "result.npz"
"""
ONE = "_command/streaming"
HDF5 = 'x = {{ file = "x.h5", dataset = "{}" }}'


def streamed(*changes):
    """A stream whose configuration has some of its text replaced, and its result."""
    rows = np.arange(8.0, dtype=np.float32)
    np.save("x.npy", rows)
    with h5py.File("x.h5", "w") as file:
        file["entry/x"] = rows
    text = CONFIG
    for old, new in changes:
        text = text.replace(old, new)
    pathlib.Path("config.toml").write_text(text)
    command("stream", "config.toml")
    with np.load("result.npz") as arrays:
        return arrays["result"]


def wrong(old, new):
    return functools.partial(streamed, (old, new))


def without_h5py():
    """The same where that package is not installed."""
    find = importlib.util.find_spec
    with patch("importlib.util.find_spec", lambda name: None if name == "h5py" else find(name)):
        return streamed(('x = "x.npy"', HDF5.format("entry/x")))


def case(at, words, fails, follows=streamed):
    return Remedy(f"{ONE}/{at}", words, fails, follows, np.float32(140))


X = 'x = "x.npy"'
CASES = [
    case("command.py:carry_out", "--template > config.toml", lambda: command("stream")),
    case("command.py:_prepare", "name a folder that can", wrong('"result', '"x.npy/result')),
    case("config.py:read", "prints one that is right", wrong("[stream]", "[stream")),
    case("config.py:_checked", "did you mean", wrong("[output]", "[outputs]")),
    case("config.py:_checked", " shows them", wrong("[output]", "[zebra]")),
    case("config.py:_checked", "write […]", wrong("[stream]", "values = 3\n[stream]")),
    case("config.py:_section", "did you mean", wrong("progress", "progres")),
    case("config.py:_section", " shows them", wrong("progress", "zebra")),
    case("config.py:_section", "write … = … below […]", wrong('file = "result.npz"', "")),
    case("config.py:_section", "correct it, as … = …", wrong("false", '"no"')),
    case("config.py:_entry", "did you mean", wrong(X, 'x = { files = "x.npy" }')),
    case("config.py:_entry", "remove it", wrong(X, 'x = { file = "x.npy", zebra = 1 }')),
    case("config.py:_entry", 'write … = "….npy"', wrong(X, "x = 3")),
    case("command.py:program_of", "decorate it with @jitney.optimize", wrong("total", "plain")),
    case("command.py:arguments_of", "did you mean", wrong("x =", "xs =")),
    case(
        "command.py:arguments_of",
        "remove one of the two",
        wrong(X, f"{X}\n[values]\nx = [1.0]"),
    ),
    case("command.py:arguments_of", 'write … = "….npy" below [data]', wrong(X, "")),
    case(
        "command.py:_opened",
        "remove it, or give `open`",
        wrong(X, 'x = { file = "x.npy", dataset = "x" }'),
    ),
    case(
        "command.py:_opened",
        "python -m pip install ",
        without_h5py,
        wrong(X, HDF5.format("entry/x")),
    ),
    case(
        "command.py:_opened",
        'write … = { file = "…", dataset = "..." }',
        wrong(X, HDF5.format("x")),
        wrong(X, HDF5.format("entry/x")),
    ),
]
