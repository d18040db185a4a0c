"""`run`: start of a program in a process of its own, unchanged; see `launch.py`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .._errors import OptionError

_FORMATS = (".html", ".json")
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

    report = "" if given.report is None else str(Path(given.report).absolute())
    how = "module" if given.as_module else "file"
    command = [
        sys.executable,
        *_options(sys.orig_argv),
        str(_LAUNCH),
        report,
        how,
        given.target,
        *given.arguments,
    ]

    if os.name == "nt":
        return subprocess.run(command, check=False).returncode  # noqa: S603 - the user's own program
    return os.execv(sys.executable, command)  # noqa: S606


def _options(typed: list[str]) -> list[str]:
    """Return Python's own options, `-X dev -W error`, in front of `-m jitney`."""
    for i, word in enumerate(typed):
        if word == "-mjitney" or typed[i : i + 2] == ["-m", "jitney"]:
            return typed[1:i]
    return []
