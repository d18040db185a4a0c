"""Argument parsers of the subcommands, and `main`, which imports and runs the one that was typed.

`python -m jitney cache ls --json` becomes a `Namespace` of
`what="ls", json=True, module_of="cache.command"`; `main` imports `jitney._command.cache.command`
and calls its `carry_out` with that namespace.
Parsing is separate from the commands so that `--help` and wrong options import none of them.

Exit statuses: 0; 1, a check failed or the cache is off; 2, the arguments are not understood, or a
file is missing. `run` returns the status of the program that it runs; `stream` that is stopped by a
signal 128 and its number.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from .._errors import JitneyError, format_error
from .._version import __version__

_PROG = "python -m jitney"


class _Parser(argparse.ArgumentParser):
    """Parser whose error messages have jitney's form: where, what, rule, fix."""

    def error(self, message: str) -> NoReturn:
        what = message if message.endswith(".") else f"{message}."
        self.exit(
            2,
            format_error(
                self.prog,
                what,
                f"Its usage is `{self.format_usage().removeprefix('usage: ').strip()}`.",
                f"see `{self.prog} --help`.",
            )
            + "\n",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand in `argv`, and return its exit status."""
    given = _parser().parse_args(argv)
    try:
        # Only the chosen command is imported.
        carried_out = importlib.import_module(f"jitney._command.{given.module_of}")
        return carried_out.carry_out(given)
    except JitneyError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description="See what JAX does in a program, what the machine gives it, and what is kept.",
    )
    parser.add_argument("--version", action="version", version=f"jitney {__version__}")
    # `parser_class`: errors of subcommands have jitney's form as well.
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )

    _run(
        commands.add_parser(
            "run", help="run a program as it is, and say what JAX did and what to change"
        )
    )
    _report(commands.add_parser("report", help="the page of a run that was kept as data"))
    _doctor(
        commands.add_parser(
            "doctor",
            help=(
                "devices, threads, memory, cache, versions and known faults, each with ok or a fix"
            ),
        )
    )
    _bench(
        commands.add_parser(
            "bench", help="what a function costs by the size of its axes, and how that grows"
        )
    )
    _stream(
        commands.add_parser(
            "stream", help="run a function over files, a chunk at a time, as a file describes it"
        )
    )
    _profile(
        commands.add_parser(
            "profile", help="a profile of some seconds of a process that runs, by its port"
        )
    )
    _monitor(
        commands.add_parser(
            "monitor", help="utilisation, memory and temperature of the machine at an interval"
        )
    )
    _show(
        commands.add_parser(
            "show",
            help="what a file of `f.export(...)` holds: its contract, plans, sizes and versions",
        )
    )
    _cache(
        commands.add_parser(
            "cache", help="the compiled programs that are kept: list, look after, fill"
        )
    )
    return parser


# `module_of` names the module that carries a command out. Each of the functions below sets it with
# `set_defaults`, and `cache warm` overrides that of `cache`.
def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", metavar="FILE", help="write the report to out.html or out.json too"
    )
    parser.add_argument(
        "--memory", action="store_true", help="the memory of the process and its devices too"
    )
    parser.add_argument(
        "--budget",
        metavar="SIZE",
        help="with --memory: warn beyond it (0.9 of what the process may use)",
    )
    parser.add_argument(
        "-m", dest="as_module", action="store_true", help="run a module, as `python -m` does"
    )
    parser.add_argument("target", metavar="PROGRAM", help="a file, or with -m a module")
    # Everything after the program's name is the program's own, options included.
    parser.add_argument(
        "arguments", metavar="...", nargs=argparse.REMAINDER, help="its own arguments"
    )
    parser.set_defaults(module_of="start")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="IN.json", help="what `run --report IN.json` has written")
    parser.add_argument("page", metavar="OUT.html", help="the page to write")
    parser.set_defaults(module_of="reread")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as data")
    parser.add_argument(
        "--no-measure",
        action="store_true",
        help="leave out what is measured, of at most about five seconds",
    )
    parser.set_defaults(module_of="machine.doctor")


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function", metavar="FUNCTION", help="script.py:function or package.module:function"
    )
    parser.add_argument(
        "--sizes",
        metavar="AXIS=SIZES",
        action="append",
        help="points=1e3:1e6, points=64:4096 or points=10,20; repeatable",
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", help="the value of a parameter; repeatable"
    )
    parser.add_argument(
        "--arguments",
        metavar="MAKE",
        help="a function beside it that takes sizes and returns arguments by name",
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="for the warm calls of all sizes (5)"
    )
    parser.add_argument("--json", action="store_true", help="as data")
    parser.add_argument("--out", metavar="FILE", help="draw it into out.svg or out.html too")
    parser.set_defaults(module_of="bench.command")


def _stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="CONFIG.toml", help="what is run on which files")
    parser.add_argument("--template", action="store_true", help="print one with every key")
    parser.set_defaults(module_of="streaming.command")


def _profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        metavar="HOST:PORT",
        help="the port is that of `jitney.configure(profiler_port=...)` in that process",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="length of the profile (3)")
    parser.add_argument(
        "--out", metavar="FOLDER", default="traces", help="where it is written (traces)"
    )
    parser.set_defaults(module_of="capture")


def _monitor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two lines (1)")
    parser.add_argument("--count", type=int, help="number of lines (until Ctrl-C)")
    parser.add_argument("--out", metavar="FILE", help="append each line as JSON to a file too")
    parser.set_defaults(module_of="machine.monitor")


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `f.export(FILE, ...)` has written")
    parser.add_argument("--json", action="store_true", help="as data")
    parser.set_defaults(module_of="exported")


def _cache(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(
        title="what to do", metavar="WHAT", dest="what", required=True, parser_class=_Parser
    )
    listed = what.add_parser("ls", help="each program with its size and last use")
    info = what.add_parser("info", help="where it is, how large, and why")
    for each in (listed, info):
        each.add_argument("--json", action="store_true", help="as data")
    cleared = what.add_parser("clear", help="delete all programs")

    pruned = what.add_parser("prune", help="delete some programs")
    pruned.add_argument(
        "--older-than", metavar="AGE", help="those not used for 30d, 12h, 90m or 45s"
    )
    pruned.add_argument(
        "--larger-than",
        metavar="SIZE",
        help="those used least recently, until the rest takes 2GB or less",
    )
    pruned.add_argument("--damaged", action="store_true", help="those that cannot be read any more")

    for each in (cleared, pruned):
        each.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(module_of="cache.command")

    warm = what.add_parser("warm", help="compile functions ahead of time, from a file")
    warm.add_argument("file", help="TOML: [[warm]] tables with `function` and `sizes`")
    warm.set_defaults(module_of="cache.warming")
