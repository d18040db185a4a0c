"""The commands of a beamline: `python -m examples.homodyne fit config.toml`, `template`, `inspect`
and `make`.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from jitney.errors import JitneyError

COMMANDS = ("fit", "template", "inspect", "make")
INTERRUPTED = 130
WRONG = 2


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line, checked."""
    from ._modes import MODES
    from .readers import LAYOUTS

    parser = argparse.ArgumentParser(prog="python -m examples.homodyne", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser("fit", help="fit what a configuration says; again: go on")
    fit.add_argument("config", type=Path, help="a .toml or .yaml file, as `template` prints")
    fit.add_argument("--file", type=Path, help="another file than that of the configuration")
    fit.add_argument("--out", type=Path, help="another output folder, with its own checkpoint")
    fit.add_argument("--fresh", action="store_true", help="begin again, whatever was stopped")
    fit.add_argument("--quiet", action="store_true", help="say only what is wrong")
    fit.add_argument("--check", action="store_true", help="read the configuration, and stop")
    template = commands.add_parser("template", help="print a configuration with all its keys")
    template.add_argument("--mode", choices=list(MODES), default="laminar_flow")
    template.add_argument("--yaml", action="store_true", help="as YAML in the place of TOML")
    template.add_argument(
        "--file", default="results.hdf", help="the beamline's; q's are read from it"
    )
    inspect = commands.add_parser("inspect", help="say what a beamline's file has in it")
    inspect.add_argument("file", type=Path)
    inspect.add_argument("--layout", choices=["auto", *LAYOUTS], default="auto")
    inspect.add_argument("--analysis", help="of a file of the ESRF that has several")
    make = commands.add_parser("make", help="write a synthetic file, to try the others")
    make.add_argument("file", type=Path)
    make.add_argument("--layout", choices=list(LAYOUTS), default="aps-8idi")
    make.add_argument("--mode", choices=list(MODES), default="laminar_flow")
    make.add_argument("--frames", type=int, default=200)
    make.add_argument("--angles", type=int, default=8)
    make.add_argument("--noise", type=float, default=0.01)
    make.add_argument("--seed", type=int, default=0)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run a command; its exit code.

    0 for a fit that converged, 1 for one that did not, 2 for a wrong configuration or file or a
    missing package, 130 for one that was stopped, by Ctrl-C or by the signal of a batch system.
    """
    chosen = arguments(words)
    said = Console(stderr=True)
    try:
        return {"fit": _fit, "template": _template, "inspect": _inspect, "make": _make}[
            chosen.command
        ](chosen)
    except (ValueError, OSError, ImportError, JitneyError) as error:
        if isinstance(error, ValueError) and "\nFix: " not in str(error):
            raise
        said.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            said.print(note, highlight=False, markup=False, soft_wrap=True)
        return WRONG


def _fit(chosen: argparse.Namespace) -> int:
    from . import _config
    from ._log import Log
    from ._run import run

    config = _config.read(chosen.config).of(chosen.file, chosen.out)
    if chosen.check:
        print(f"{chosen.config} is right: {config.mode.name} of {config.choice.file}")
        return 0
    log = Log(config.at(config["output"]["folder"]) / "fit.log", Console(), quiet=chosen.quiet)
    signal.signal(signal.SIGTERM, _stopped)
    try:
        return 0 if run(config, log, fresh=chosen.fresh) else 1
    except KeyboardInterrupt:
        log.say(
            "Stopped. The same command goes on from here: python -m examples.homodyne"
            f" {shlex.join(word for word in sys.argv[1:] if word != '--fresh')}",
            style="yellow",
        )
        return INTERRUPTED
    except (ValueError, OSError, ImportError, JitneyError) as error:
        log.keep(str(error))
        raise


def _stopped(*_: Any) -> NoReturn:
    """What a batch system sends before it kills is Ctrl-C."""
    raise KeyboardInterrupt


def _template(chosen: argparse.Namespace) -> int:
    from ._select import wavevectors
    from ._template import template
    from .readers import opened

    found: list[float] = []
    if Path(chosen.file).is_file():
        with opened(Path(chosen.file)) as file:
            found = wavevectors(file.bins)
    sys.stdout.write(template(chosen.mode, yaml=chosen.yaml, file=chosen.file, q=found))
    return 0


def _inspect(chosen: argparse.Namespace) -> int:
    from .readers import opened

    with opened(chosen.file, chosen.layout, chosen.analysis) as file:
        console = Console()
        time = "not in the file" if file.frame_time is None else f"{file.frame_time:g} s"
        console.print(f"{chosen.file.name}: {file.what}", highlight=False, soft_wrap=True)
        console.print(f"{file.frames:,} frames, {time} apart; {len(file.bins)} bins")
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("bin", "q (1/Angstrom)", "phi (degrees)", "map"):
            table.add_column(name, justify="left" if name == "map" else "right")
        for number, each in enumerate(file.bins, 1):
            q, phi = ("-" if x is None else f"{x:.6g}" for x in (each.q, each.phi))
            table.add_row(str(number), q, phi, each.where)
        console.print(table)
        for note in file.notes:
            console.print(f"note: {note}", highlight=False, soft_wrap=True)
    return 0


def _make(chosen: argparse.Namespace) -> int:
    from ._make import make

    truth = make(
        chosen.file,
        chosen.layout,
        chosen.mode,
        frames=chosen.frames,
        angles=chosen.angles,
        noise=chosen.noise,
        seed=chosen.seed,
    )
    print(f"{chosen.file}: {chosen.layout}, {chosen.mode} with")
    for name, value in truth.items():
        print(f"  {name} = {value:g}")
    return 0
