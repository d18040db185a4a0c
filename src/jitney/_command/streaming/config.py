"""Configuration of a stream, read from its file and checked key by key; an error names file and
line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..._errors import OptionError, name_fix, repr_of
from ..._stream.chunk_axis import ChunkOf
from ..._text.json import Data
from .keys import FREE, KEYS, SECTIONS, Every, function, text

_TEMPLATE = "python -m jitney stream --template"


@dataclass(frozen=True)
class DataFiles:
    """Data of one argument.

    Args:
        files: Files that are read one behind the other; relative ones begin at the folder of the
            configuration.
        dataset: Name inside each file, for files that hold several arrays.
        opener: `module:function` that takes the path of a file and returns what is read by slices.
        is_list: Whether there was a list of files.
    """

    files: tuple[Path, ...]
    dataset: str | None
    opener: str | None
    is_list: bool


@dataclass(frozen=True)
class StreamConfig:
    """Configuration, checked.

    Args:
        lines: Its file, for messages.
        function: `module:function` or `script.py:function`.
        chunk: As of `jitney.stream`.
        retries: As of `jitney.stream`.
        progress: As of `jitney.stream`.
        data: What is read from files, by parameter.
        values: Other arguments, by parameter.
        checkpoint: The file that stores what is done; None if nothing is stored.
        every: As `checkpoint_every` of `jitney.stream`.
        resume: False begins anew, although there is a checkpoint.
        output: File of the result.
    """

    lines: ConfigFile
    function: str
    chunk: ChunkOf | None
    retries: int | None
    progress: bool
    data: Mapping[str, DataFiles]
    values: Data
    checkpoint: Path | None
    every: Every
    resume: bool
    output: Path


@dataclass(frozen=True)
class ConfigFile:
    """Text of a configuration, to name a line in a message."""

    path: Path
    text: str

    def place(self, section: str, key: str = "") -> str:
        """Return file and line of a section, or of a key in it, as `config.toml:7`."""
        found, inside = 0, False
        for number, line in enumerate(self.text.splitlines(), 1):
            header = re.match(r"\s*\[\s*\"?([^\]\"]+?)\"?\s*\]", line)
            if header:
                name, _, rest = header[1].partition(".")
                inside = name == section
                found = number if inside and (not found or rest == key) else found
            elif inside and key and re.match(rf"\s*\"?{re.escape(key)}\"?\s*[.=]", line):
                found = number
        return f"{self.path.name}:{found}" if found else self.path.name

    def wrong(self, section: str, key: str, what: str, rule: str, fix: str) -> OptionError:
        """Return the error of a line."""
        return OptionError(self.place(section, key), what, rule, fix, code="J205")


def read(path: Path) -> StreamConfig:
    """Read a configuration.

    Raises:
        OptionError: A line is wrong. The message names it, and what to write there.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise OptionError(
            str(path),
            f"it is not read: {what}.",
            "It is a file in TOML: texts are in quotes, lists in brackets.",
            f"{_TEMPLATE} prints one that is right.",
            code="J205",
        ) from None
    return _checked(ConfigFile(path, text), given)


def _checked(lines: ConfigFile, given: Data) -> StreamConfig:
    for section, content in given.items():
        if section not in SECTIONS:
            rule = f"The sections are {', '.join(SECTIONS)}."
            fix = name_fix(section, SECTIONS, f"{_TEMPLATE} shows them.")
            raise lines.wrong(section, "", f"there is no section {section!r}.", rule, fix)
        if not isinstance(content, dict):
            what = f"{section!r} is {repr_of(content)}, and not a section."
            raise lines.wrong(section, "", what, "A section has keys.", f"write [{section}].")
    tables = {section: cast("Data", given.get(section, {})) for section in SECTIONS}
    values = {
        (section, name): value
        for section in SECTIONS
        if section not in FREE
        for name, value in _section(lines, section, tables[section]).items()
    }
    folder = lines.path.parent
    stored = cast("str | None", values["checkpoint", "folder"])
    file = None if stored is None else folder / stored / f"{lines.path.stem}.checkpoint"
    return StreamConfig(
        lines,
        cast("str", values["stream", "function"]),
        cast("ChunkOf | None", values["stream", "chunk"]),
        cast("int | None", values["stream", "retries"]),
        cast("bool", values["stream", "progress"]),
        {name: _entry(lines, name, value) for name, value in tables["data"].items()},
        tables["values"],
        file,
        cast("Every", values["checkpoint", "every"]),
        cast("bool", values["checkpoint", "resume"]),
        folder / cast("str", values["output", "file"]),
    )


def _section(lines: ConfigFile, section: str, given: Data) -> dict[str, object]:
    keys = {key.name: key for key in KEYS if key.section == section}
    for name in given:
        if name not in keys:
            rule = f"The keys of [{section}] are {', '.join(keys)}."
            fix = name_fix(name, keys, f"{_TEMPLATE} shows them.")
            raise lines.wrong(section, name, f"there is no key {name!r}.", rule, fix)
    found: dict[str, object] = {}
    for name, key in keys.items():
        if name not in given and key.default is ...:
            fix = f"write {name} = {key.shown} below [{section}]."
            what = f"[{section}] has no {name!r}."
            raise lines.wrong(section, "", what, f"It is {key.says}.", fix)
        try:
            found[name] = key.reads(given[name]) if name in given else key.default
        except ValueError:
            what = f"{name!r} is {repr_of(given[name])}."
            fix = f"correct it, as {name} = {key.shown}."
            raise lines.wrong(section, name, what, f"It is {key.says}.", fix) from None
    return found


_ENTRY = ("file", "dataset", "open")


def _entry(lines: ConfigFile, name: str, value: object) -> DataFiles:
    table = cast("Data", value) if isinstance(value, dict) else {"file": value}
    unknown = [key for key in table if key not in _ENTRY]
    if unknown:
        what = f"{name!r} has a key {unknown[0]!r}."
        fix = name_fix(unknown[0], _ENTRY, "remove it.")
        raise lines.wrong("data", name, what, f"Its keys are {', '.join(_ENTRY)}.", fix)
    file = table.get("file")
    given = cast("list[object]", file) if isinstance(file, list) else [file]
    try:
        files = tuple(lines.path.parent / text(each) for each in given or [None])
        dataset = None if "dataset" not in table else text(table["dataset"])
        opener = None if "open" not in table else function(table["open"])
    except ValueError:
        raise lines.wrong(
            "data",
            name,
            f"{name!r} is {repr_of(value)}.",
            "It is a file in quotes, a list of them, or { file = ..., dataset = ... }.",
            f'write {name} = "{name}.npy".',
        ) from None
    return DataFiles(files, dataset, opener, isinstance(file, list))
