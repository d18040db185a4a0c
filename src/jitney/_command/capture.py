"""`profile`: a trace of some seconds of a process that runs, through JAX's profiler server.

JAX's own command, `python -m jax.collect_profile`, asks the server and writes the files. It needs
xprof. The tables are those of `jitney.profile`, without the calls of Programs, which have names
only inside that block.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from .._errors import OptionError

_WHERE = "python -m jitney profile"
_MILLISECONDS = 1000


def carry_out(given: argparse.Namespace) -> int:
    """Capture, print the tables, and say what opens the files."""
    host, port = _address(given.address)
    if not 0 < given.seconds < float("inf"):
        raise OptionError(
            _WHERE,
            f"--seconds {given.seconds:g} is not a length of time.",
            "It is a positive number.",
            "write --seconds 5.",
            code="J205",
        )
    if importlib.util.find_spec("xprof") is None:
        raise OptionError(
            _WHERE,
            "xprof is not installed.",
            "JAX captures a profile of another process with it.",
            'python -m pip install "jitney[profile]"',
            code="J205",
        )
    folder = Path(given.out)
    milliseconds = str(round(given.seconds * _MILLISECONDS))
    command = ["-m", "jax.collect_profile", port, milliseconds, "--host", host]
    done = subprocess.run(  # noqa: S603 - JAX's command with a checked address
        [sys.executable, *command, "--log_dir", str(folder), "--no_perfetto_link"],
        capture_output=True,
        text=True,
        check=False,
    )
    written = folder.glob("plugins/profile/*/*.xplane.pb")
    files = sorted(written, key=lambda file: file.stat().st_mtime)
    if done.returncode != 0 or not files:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was written"]
        raise OptionError(
            _WHERE,
            f"nothing was captured from {host}:{port}: {said[-1]}",
            "A process listens there after `jitney.configure(profiler_port=...)`.",
            "see that it runs, and that this machine reaches the port.",
            code="J205",
        )
    sys.stdout.write(_text(files[-1], given.seconds))
    return 0


def _address(text: str) -> tuple[str, str]:
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise OptionError(
            _WHERE,
            f"{text!r} is not an address.",
            "It is the host, which may be left out, a colon, and the port.",
            "write localhost:9999.",
            code="J205",
        )
    return host or "127.0.0.1", port


def _text(file: Path, seconds: float) -> str:
    """Tables of a captured file, and what to open it with."""
    from .._measured.annotations import CALLED, COMPILED
    from .._measured.profile_figures import figures as figures_of
    from .._measured.trace_file import read
    from .._text.console import figures, text_of

    found = figures_of(read(file, (CALLED, COMPILED)))
    programs = [
        ("program", "where", "runs", "device s"),
        *((p.name, p.place, f"{p.runs}", f"{p.device_seconds:.6f}") for p in found.programs),
    ]
    operations = [
        ("operation", "program and scope", "runs", "device s"),
        *(
            (
                o.name,
                ", ".join(filter(None, (o.program, o.scope))),
                f"{o.times}",
                f"{o.seconds:.6f}",
            )
            for o in found.operations
        ),
    ]
    title = f"profile of {seconds:g} s"
    tables = [text_of(figures(title, programs[:_SHOWN]))]
    tables.append(text_of(figures("by operation", operations[:_SHOWN])))
    root = file.parents[3]
    return "\n\n".join(
        [
            *tables,
            f"in {file.parent}\nOpen it with:  xprof --logdir {root}",
            "https://ui.perfetto.dev opens the .trace.json.gz beside it.\n",
        ]
    )


# Rows of a table, with its heads.
_SHOWN = 13
