"""`run`: start of a program in a process of its own, unchanged; see `launch.py`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .._errors import OptionError

_FORMATS = (".html", ".json")
# Budget where none is typed: this share of the memory that the process may use.
_SHARE = 0.9
_LAUNCH = Path(__file__).with_name("launch.py")


def carry_out(given: argparse.Namespace) -> int:
    """Replace this process by the program's; on Windows, which cannot, run it and wait."""
    where = "python -m jitney run"
    if given.report is not None and Path(given.report).suffix not in _FORMATS:
        raise OptionError(
            where,
            f"--report {given.report!r} is not a report.",
            f"A report is a file that ends in {' or '.join(_FORMATS)}.",
            "write --report out.html.",
            code="J205",
        )
    if not given.as_module and not Path(given.target).exists():
        raise OptionError(
            where,
            f"{given.target!r} is not there.",
            "What is run is a file, a folder with `__main__.py`, or -m and a module.",
            "correct the name, or start where it is found.",
            code="J205",
        )

    memory = _budget(where, given.memory, given.budget)
    report = "" if given.report is None else str(Path(given.report).absolute())
    how = "module" if given.as_module else "file"
    command = [
        sys.executable,
        *_options(sys.orig_argv),
        str(_LAUNCH),
        report,
        memory,
        how,
        given.target,
        *given.arguments,
    ]

    if os.name == "nt":
        return subprocess.run(command, check=False).returncode  # noqa: S603 - the user's own program
    return os.execv(sys.executable, command)  # noqa: S606


def _budget(where: str, watched: object, typed: str | None) -> str:
    """Return the bytes beyond which there is a warning; empty where memory is not watched."""
    if not watched and typed is None:
        return ""
    # Imported here, since mistakes of the command line are shown without them.
    from .._extent import AUTO, parsed_bytes
    from .._host.limits import host_memory

    if typed is None:
        return str(int(_SHARE * host_memory()[0]))
    size = parsed_bytes(typed)
    if size is None or size == AUTO:
        raise OptionError(
            where,
            f"--budget {typed!r} is not a size.",
            "It is the memory of the process beyond which there is a warning.",
            "write --budget 8GiB.",
            code="J205",
        )
    return str(size)


def _options(typed: list[str]) -> list[str]:
    """Return Python's own options, `-X dev -W error`, in front of `-m jitney`."""
    for i, word in enumerate(typed):
        if word == "-mjitney" or typed[i : i + 2] == ["-m", "jitney"]:
            return typed[1:i]
    return []
