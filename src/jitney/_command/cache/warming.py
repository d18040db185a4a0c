"""`cache warm FILE`: compile functions for the sizes in a file, so that later processes find them.

```toml
[[warm]]
function = "pkg.module:residual"
sizes = { points = [256, 512], fit = 8 }  # each size with each other
```
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..._diagnosis.jax_work import watch
from ..._errors import JitneyError, OptionError
from ..._interface.program import Program
from ..._jax.compile_cache import cache
from ..._text.json import Data

_KEYS = {"function", "sizes"}
_SHAPE = (
    'A file has [[warm]] tables with `function = "pkg.module:name"` and `sizes = { n = [256,'
    " 512] }`."
)


@dataclass(frozen=True)
class Wanted:
    """Entry of the file: a function and the sizes of its axes."""

    where: str
    function: str
    sizes: Mapping[str, tuple[int, ...]]

    def size_combinations(self) -> Iterator[dict[str, int]]:
        """Yield every size of an axis with every size of the others."""
        for sizes in itertools.product(*self.sizes.values()):
            yield dict(zip(self.sizes, sizes, strict=True))


def carry_out(given: argparse.Namespace) -> int:
    """Compile all entries of the file, once it is read whole and all functions are found."""
    wanted = read(Path(given.file))
    # Functions are imported as from `python -m`: the current folder first.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    programs = [(entry, _program(entry)) for entry in wanted]
    cache.ensure()
    if not cache.facts().enabled:
        sys.stderr.write(f"There is no cache to fill: {cache.facts().reason}.\n")
        return 1
    for entry, program in programs:
        for sizes in entry.size_combinations():
            _warm(entry, program, sizes)
    return 0


def read(file: Path) -> list[Wanted]:
    """Return the entries of a file.

    Raises:
        OptionError: The file is missing or malformed; the message names the entry.
    """
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(
            str(file),
            f"it cannot be read ({error.strerror or error}).",
            "name a file that is there.",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(str(file), f"it is no TOML: {error}.", "correct that line.") from None
    tables = told.get("warm")
    if set(told) != {"warm"} or not isinstance(tables, list) or not tables:
        raise _wrong(
            str(file),
            f"it has {', '.join(map(repr, told)) or 'nothing'} where [[warm]] tables are read.",
            "write [[warm]] above each entry.",
        )
    return [
        _entry(f"{file}, entry {i}", table) for i, table in enumerate(cast("list[Any]", tables), 1)
    ]


def _entry(where: str, table: Any) -> Wanted:
    if not isinstance(table, dict):
        raise _wrong(where, f"it is {table!r}, which is not a table.", "write [[warm]] above it.")
    entry = cast("Data", table)
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise _wrong(where, f"{unknown[0]!r} is not known.", "correct or remove it.")
    function = entry.get("function")
    if not isinstance(function, str) or function.count(":") != 1 or not all(function.split(":")):
        raise _wrong(
            where, f"function={function!r} does not name a function.", 'write "pkg.module:name".'
        )
    sizes = entry.get("sizes", {})
    if not isinstance(sizes, dict):
        raise _wrong(where, f"sizes={sizes!r} is not a table.", "write sizes = { n = [256, 512] }.")
    return Wanted(
        f"{where} ({function})",
        function,
        {axis: _sizes(where, axis, given) for axis, given in cast("Data", sizes).items()},
    )


def _sizes(where: str, axis: str, given: object) -> tuple[int, ...]:
    several: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
    # `type` and not `isinstance`: booleans of TOML are ints in Python.
    if not several or any(type(size) is not int or size < 0 for size in several):
        raise _wrong(
            where,
            f"sizes of axis {axis!r} are {given!r}.",
            "write one size, or a list of sizes, each a whole number.",
        )
    return tuple(several)


def _program(entry: Wanted) -> Program[..., object]:
    """Import the decorated function of an entry."""
    name, _, path = entry.function.partition(":")
    try:
        found = importlib.import_module(name)
    except ImportError as error:
        raise _wrong(
            entry.where,
            f"{name!r} cannot be imported ({error}).",
            "start where it can be, or set PYTHONPATH.",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise _wrong(entry.where, f"{part!r} is not in {name}.", "correct the name.")
        found = getattr(found, part)
    if not isinstance(found, Program):
        raise _wrong(
            entry.where, "it is not a program of jitney.", "decorate it with @jitney.optimize."
        )
    return cast("Program[..., object]", found)


def _warm(
    entry: Wanted,
    program: Program[..., object],
    sizes: dict[str, int],
) -> None:
    began = time.perf_counter()
    with watch() as seen:
        try:
            program.compile(sizes=sizes)
        except JitneyError as error:
            raise OptionError(
                f"{entry.where}, sizes {_text(sizes)}:\n{error}", code="J205"
            ) from error
    did = (
        "compiled"
        if seen.compiles
        else "in the cache already"
        if seen.cache_hits
        else "compiled before in this process"
    )
    sys.stdout.write(
        f"{entry.function} {_text(sizes)}: {did}, {time.perf_counter() - began:.2f} s\n"
    )
    sys.stdout.flush()


def _text(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={size}" for axis, size in sizes.items()) or "(no sizes)"


def _wrong(where: str, what: str, fix: str) -> OptionError:
    return OptionError(where, what, _SHAPE, fix, code="J205")
