"""A configuration: read from TOML or YAML, checked key by key, and printed as a template.

A wrong line is named with its number and what to write instead.
"""

import difflib
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..trf._fail import fail
from ._layout import OPTICAL
from ._modes import MODES, OPTICS, Mode
from ._schema import KEYS, REAL, SECTIONS, Kind, flag, held, pair, prior, text
from ._select import Choice

DEGREES = ("phi0",)  # parameters that are radians in the model
ENTRIES = {
    "start": REAL,
    "bounds": Kind("[lower, upper]; equal ones hold the parameter there", pair),
    "held": Kind("true, or the number at which the parameter stays", held),
    "free": Kind("true, for a parameter that the mode holds", flag),
    "prior": Kind("[mean, standard deviation] of a normal prior, for a posterior", prior),
    "tied": Kind("the name of the parameter that this one equals", text),
}


class ConfigError(ValueError):
    """A configuration that cannot be meant."""


@dataclass(frozen=True)
class Config:
    """A configuration, checked.

    Args:
        path: Of its file; relative paths in it begin at its folder.
        mode: The model.
        values: By section and key, with defaults.
        parameters: `start`, `bounds`, `held`, `tied` and `free` of `fit_mode`, in the units of the
            model.
        priors: Of `posterior`, in the units of the model.
    """

    path: Path
    mode: Mode
    values: Mapping[str, Mapping[str, Any]]
    parameters: Mapping[str, Any]
    priors: Mapping[str, tuple[float, float]]

    def __getitem__(self, section: str) -> Mapping[str, Any]:
        return self.values[section]

    def at(self, path: str) -> Path:
        """A path of the configuration."""
        return self.path.parent / path

    def of(self, file: Path | None, out: Path | None) -> "Config":
        """The same for another file, whose results go to a folder of its own.

        Args:
            file: From the current folder; None for that of the configuration.
            out: Of the results, and of what a stopped fit goes on from; by default a folder in the
                configuration's, named after the file.
        """
        if file is None and out is None:
            return self
        if out is None:
            out = self.at(self["output"]["folder"]) / Path(str(file)).stem
        values = {section: dict(keys) for section, keys in self.values.items()}
        if file is not None:
            values["data"]["file"] = str(file.resolve())
        values["output"]["folder"] = str(out.resolve())
        values["checkpoint"]["folder"] = str(out.resolve() / "checkpoint")
        return replace(self, values=values)

    @property
    def choice(self) -> Choice:
        """What of the file is fitted."""
        given = {key: value for key, value in self["data"].items() if key != "sigma"}
        for key in ("file", "mask"):
            given[key] = None if given[key] is None else self.at(given[key])
        return Choice(**given, of_angles="phi0" in self.mode.names)


class Lines:
    """The lines of a configuration, to name one.

    Args:
        path: Of the file.
        text: Its content.
    """

    def __init__(self, path: Path, text: str):
        self.path, self.lines = path, text.splitlines()

    def of(self, section: str, key: str = "") -> str:
        """File and line of a section or of a key in it, as `config.toml:7`."""
        inside, found = False, 0
        for number, line in enumerate(self.lines, 1):
            header = re.match(rf"\s*\[+\s*([\w.\"]+)\s*\]+|^({SECTION}):", line)
            if header:
                name = header[1] or header[2]
                inside = name.split(".")[0] == section
                if inside and (not key or key in name.replace('"', "").split(".")[1:]):
                    return f"{self.path.name}:{number}"
                found = number if inside else found
            elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=:]", line):
                return f"{self.path.name}:{number}"
        return f"{self.path.name}:{found}" if found else self.path.name


SECTION = r"[A-Za-z_]+"


def _refuse(where: str, what: str, rule: str, fix: str) -> NoReturn:
    fail(f"{where}: {what}", rule, fix, ConfigError)


def read(path: Path) -> Config:
    """A configuration from its file.

    Raises:
        ConfigError: A line is wrong; the message names it, and says what to write.
    """
    try:
        text = path.read_text()
    except OSError as error:
        _refuse(
            str(path),
            f"{error.strerror}.",
            "A fit takes a configuration.",
            f"python -m examples.homodyne template > {path.name}.",
        )
    except UnicodeDecodeError:
        _refuse(
            str(path),
            "it is not text.",
            "A fit takes a configuration, which names the beamline's file.",
            f"python -m examples.homodyne template --file {path.name} > fit.toml.",
        )
    return checked(path, parsed(path, text), text)


def parsed(path: Path, text: str) -> dict[str, Any]:
    """The tables of a file, TOML, or YAML by its ending."""
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse(
            path.name,
            f"{error}.",
            "It is read as TOML: text is in quotes, true and false are not, lists are in brackets.",
            "correct that line; `python -m examples.homodyne template` prints one that is right.",
        )


def _yaml(path: Path, text: str) -> dict[str, Any]:
    if importlib.util.find_spec("yaml") is None:
        _refuse(
            path.name,
            "YAML is read by pyyaml, which is not installed.",
            "TOML is read without it.",
            "pip install pyyaml, or write the same as TOML: `... template` prints it.",
        )
    yaml = importlib.import_module("yaml")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = path.name if mark is None else f"{path.name}:{mark.line + 1}"
        _refuse(
            where,
            f"{getattr(error, 'problem', None) or error}.",
            "It is read as YAML: keys of a section are indented alike, with spaces.",
            "correct that line; `python -m examples.homodyne template --yaml` prints one that is"
            " right.",
        )
    return found if isinstance(found, dict) else {}


def checked(path: Path, given: Mapping[str, Any], text: str) -> Config:
    """The configuration of these tables."""
    lines = Lines(path, text)
    known = (*SECTIONS, "parameters")
    for section, content in given.items():
        if section not in known:
            _refuse(lines.of(section), *_unknown(section, known, "section"))
        if not isinstance(content, Mapping):
            _refuse(
                lines.of(section),
                f"`{section}` is {content!r}.",
                "It is a section of keys.",
                f"[{section}], and its keys below.",
            )
    mode = _mode(given.get("fit", {}), lines)
    values = {section: _section(section, given.get(section, {}), lines) for section in SECTIONS}
    parameters = _parameters(given.get("parameters", {}), mode, lines)
    priors = parameters.pop("prior", {})
    return Config(path, mode, values, parameters, priors)


def _unknown(name: str, known: Any, what: str) -> tuple[str, str, str]:
    near = difflib.get_close_matches(str(name), list(known), 1, 0.5)
    listed = ", ".join(known)
    fix = f"write {near[0]!r}." if near else "take one of these, or leave it out."
    return f"there is no {what} {name!r}.", f"The {what}s are {listed}.", fix


def _mode(fit: Mapping[str, Any], lines: Lines) -> Mode:
    name = fit.get("mode")
    if name is None:
        _refuse(
            lines.of("fit"),
            "[fit] has no `mode`.",
            f"A fit is of a model: {', '.join(MODES)}.",
            f"[fit] mode = {next(iter(MODES))!r}.",
        )
    if not isinstance(name, str) or name not in MODES:
        _refuse(lines.of("fit", "mode"), *_unknown(name, MODES, "mode"))
    return MODES[name]


def _section(section: str, given: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    keys = {key.name: key for key in KEYS if key.section == section}
    names = (*keys, "mode") if section == "fit" else tuple(keys)
    for name in given:
        if name not in names:
            _refuse(lines.of(section, name), *_unknown(name, names, "key"))
    found: dict[str, Any] = {}
    for name, key in keys.items():
        if name not in given:
            if key.default is ...:
                _refuse(
                    lines.of(section),
                    f"[{section}] has no `{name}`.",
                    f"It is {key.kind.says}: {key.why}.",
                    f"[{section}] {name} = {key.shown!r}.",
                )
            found[name] = key.default
        else:
            found[name] = _value(section, name, given[name], key.kind, lines)
    return found


def _value(section: str, name: str, given: Any, kind: Kind, lines: Lines) -> Any:
    try:
        return kind.reads(given)
    except (TypeError, ValueError):
        _refuse(
            lines.of(section, name),
            f"`{name}` is {given!r}.",
            f"It is {kind.says}.",
            f"correct it, or leave the line out; `python -m examples.homodyne template` explains"
            f" `{name}`.",
        )


def _parameters(given: Mapping[str, Any], mode: Mode, lines: Lines) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {
        entry: {} for entry in ("start", "bounds", "held", "tied", "prior")
    }
    free: list[str] = []
    names = (*mode.names, *OPTICS)
    for name, entries in given.items():
        where = lines.of("parameters", name)
        if name not in mode.names and name.partition("[")[0] not in OPTICS:
            what, rule, fix = _unknown(name, names, "parameter")
            rule = rule.replace("The parameters", f"The parameters of {mode.name}")
            _refuse(where, what, rule, fix)
        if not isinstance(entries, Mapping):
            _refuse(
                where,
                f"`{name}` is {entries!r}.",
                f"A parameter has {', '.join(ENTRIES)}.",
                f"{name} = {{ start = {entries!r} }}.",
            )
        for entry in entries:
            if entry not in ENTRIES:
                _refuse(where, *_unknown(entry, ENTRIES, "entry"))
        read = {
            entry: _value("parameters", name, value, ENTRIES[entry], lines)
            for entry, value in entries.items()
        }
        _place(found, free, name, read, mode, where)
    return {**{key: value for key, value in found.items() if value}, "free": tuple(free)}


def _place(
    found: dict[str, dict[str, Any]],
    free: list[str],
    name: str,
    read: dict[str, Any],
    mode: Mode,
    where: str,
) -> None:
    """Put the entries of a parameter where `fit_mode` takes them, in the units of the model."""
    scale = np.pi / 180 if name in DEGREES else 1.0
    if "start" in read:
        found["start"][name] = read["start"] * scale
    if "bounds" in read:
        low, high = read["bounds"]
        start = read.get("start")
        if low > high or (start is not None and not low <= start <= high):
            _refuse(
                where,
                f"`{name}` starts at {start:g}, and its bounds are {low:g} and {high:g}."
                if start is not None
                else f"the bounds of `{name}` are {low:g} and {high:g}.",
                "The lower bound is the first one, and a fit starts between them.",
                f"{name} = {{ start = ..., bounds = [{min(low, high):g}, {max(low, high):g}] }}.",
            )
        found["bounds"][name] = (low * scale, high * scale)
    if "held" in read and read["held"] is not False:
        held = read.get("start", default(mode, name)) if read["held"] is True else read["held"]
        found["held"][name] = float(held) * scale
        found["start"].pop(name, None)
    if read.get("free"):
        free.append(name)
    if "prior" in read:
        mean, deviation = read["prior"]
        found["prior"][name] = (mean * scale, deviation * scale)
    if "tied" in read:
        found["tied"][name] = read["tied"]


def default(mode: Mode, name: str) -> float:
    """Where a parameter starts unless a configuration says, in its units there."""
    if name in mode.names:
        start = mode.start[mode.names.index(name)]
        return float(np.degrees(start)) if name in DEGREES else float(start)
    return OPTICAL[name.partition("[")[0]][0]
