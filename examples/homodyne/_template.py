"""A configuration with every key, its default and what it is for, as TOML or YAML."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ._config import DEGREES, default
from ._layout import OPTICAL
from ._modes import MODES, Mode
from ._schema import KEYS, SECTIONS, Key
from ._select import few

HEAD = (
    "A fit of two-time X-ray correlations: python -m examples.homodyne fit THIS_FILE",
    "Lines that begin with # are not read: they show keys that have no default.",
)
MODE = "the model: " + ", ".join(MODES)


def template(
    mode: str, *, yaml: bool = False, file: str = "results.hdf", q: Sequence[float] = ()
) -> str:
    """A configuration for a mode.

    Args:
        mode: Name of the mode.
        yaml: YAML in the place of TOML.
        file: The beamline's.
        q: The wavevectors of the file, 1/Angstrom, to choose from.
    """
    lines = [*(f"# {line}" for line in HEAD)]
    for section in SECTIONS:
        lines += ["", f"{section}:" if yaml else f"[{section}]"]
        indent = "  " if yaml else ""
        if section == "fit":
            lines.append(_line("mode", mode, MODE, indent, yaml=yaml))
        lines += [
            _key(_of(key, q), indent, file, yaml=yaml) for key in KEYS if key.section == section
        ]
    lines += ["", *_parameters(MODES[mode], yaml=yaml)]
    return "\n".join(lines) + "\n"


def _of(key: Key, q: Sequence[float]) -> Key:
    """The key of the wavevector with those of the file."""
    if key.name != "q" or len(q) < 2:
        return key
    return replace(key, shown=q[0], why=f"1/Angstrom, one of {few(q)}")


def _key(key: Key, indent: str, file: str, *, yaml: bool) -> str:
    """A line; what has no default is a comment."""
    if key.default is None:
        return "# " + _line(key.name, key.shown, key.why, indent, yaml=yaml)
    value = file if key.default is ... else key.default
    return _line(key.name, value, key.why, indent, yaml=yaml)


def _line(name: str, value: Any, why: str, indent: str, *, yaml: bool) -> str:
    written = f"{indent}{name}{': ' if yaml else ' = '}{_written(value)}"
    return f"{written:<42} # {why}"


def _written(value: Any) -> str:
    """A value as both languages have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, int):
        return str(value)
    return _float(float(value))


def _float(value: float) -> str:
    """With a point, which YAML wants for a number, and with an exponent where that is shorter."""
    text = repr(value)
    if "e" in text and "." not in text:
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}.0e{exponent}"
    return text if "e" not in text else _signed(text)


def _signed(text: str) -> str:
    """The exponent with its sign, which YAML wants too."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def _parameters(mode: Mode, *, yaml: bool) -> Iterator[str]:
    yield "# Each parameter may have: start, bounds, held = true (or a number), tied = 'another',"
    held = ", ".join(mode.held) or "none"
    yield f"# also prior = [mean, sd], and free = true for one that the mode holds ({held})."
    yield "# Lengths in Angstrom, times in seconds, phi0 in degrees. A contrast or an offset"
    yield '# without start begins where the data say; "contrast[0]" is of the first angle alone.'
    yield "parameters:" if yaml else "[parameters]"
    for name in mode.names:
        low, high = (side[mode.names.index(name)] for side in (mode.lower, mode.upper))
        turned = [float(np.degrees(x)) if name in DEGREES else float(x) for x in (low, high)]
        yield _parameter(name, default(mode, name), turned, yaml=yaml)
    for name, (_, low, high) in OPTICAL.items():
        yield _parameter(name, None, [low, high], yaml=yaml)


def _parameter(name: str, start: float | None, bounds: list[float], *, yaml: bool) -> str:
    equal = ": " if yaml else " = "
    parts = [] if start is None else [f"start{equal}{_written(round(start, 9))}"]
    parts.append(f"bounds{equal}{_written([round(x, 9) for x in bounds])}")
    return f"{'  ' if yaml else ''}{name}{equal}{{ {', '.join(parts)} }}"
