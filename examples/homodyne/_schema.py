"""Every key of a configuration, once: its section, what it is unless it is written, what it may be,
and the words of the template.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .readers import LAYOUTS
from .readers._reader import HALVES

STRATEGIES = ("auto", "whole", "chunked", "streamed")


@dataclass(frozen=True)
class Kind:
    """What a value may be.

    Args:
        says: In words, after "It is ".
        reads: Gives the value, or raises `ValueError` or `TypeError`.
    """

    says: str
    reads: Callable[[Any], Any]


def real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    found = float(value)  # a YAML reader takes 1e4 for text
    if math.isnan(found):
        raise ValueError
    return found


def _several(value: Any) -> Any:
    """Not a text, whose letters would be taken one by one."""
    if isinstance(value, str):
        raise TypeError
    return value


def _above(low: float) -> Callable[[Any], float]:
    def reads(value: Any) -> float:
        found = real(value)
        if found <= low:
            raise ValueError
        return found

    return reads


def _whole(low: int) -> Callable[[Any], int]:
    def reads(value: Any) -> int:
        found = real(value)
        if not found.is_integer() or found < low:
            raise ValueError
        return int(found)

    return reads


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def held(value: Any) -> bool | float:
    return value if isinstance(value, bool) else real(value)


def pair(value: Any) -> tuple[float, float]:
    low, high = _several(value)
    return real(low), real(high)


def _frames(value: Any) -> tuple[int, int]:
    first, last = map(_whole(1), _several(value))
    if last < first:
        raise ValueError
    return first, last


def prior(value: Any) -> tuple[float, float]:
    """Mean and standard deviation."""
    mean, deviation = pair(value)
    if not deviation > 0:
        raise ValueError
    return mean, deviation


def _ranges(value: Any) -> tuple[tuple[float, float], ...]:
    found = tuple(map(pair, value))
    if not found or any(low > high for low, high in found):
        raise ValueError
    return found


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(real, _several(value)))


def _dead(value: Any) -> str | tuple[int, ...]:
    return value if value == "auto" else tuple(map(_whole(1), _several(value)))


def _sigma(value: Any) -> float | tuple[float, ...]:
    if value == []:
        raise ValueError
    return tuple(map(_above(0), value)) if isinstance(value, list) else _above(0)(value)


def _every(value: Any) -> int | str:
    if isinstance(value, str):
        number, unit = value[:-1], value[-1:]
        if unit != "s" or real(number) <= 0:
            raise ValueError
        return value
    return _whole(1)(value)


def one_of(names: Any) -> Kind:
    """One of some words."""
    words = tuple(names)

    def reads(value: Any) -> str:
        if value not in words:
            raise ValueError
        return value

    return Kind("one of " + ", ".join(map(repr, words)), reads)


TEXT = Kind("a text in quotes", text)
PATH = Kind("a path in quotes, from the folder of the configuration", text)
FLAG = Kind("true or false", flag)
ABOVE = Kind("a number above 0", _above(0))
REAL = Kind("a number", real)
WHOLE = Kind("a whole number, 1 or more", _whole(1))
COUNT = Kind("a whole number, 0 or more", _whole(0))
TOLERANCE = Kind("a number above 0, such as 1e-12", _above(0))
MEMORY = Kind("a size in quotes, such as '8GiB', or 'auto'", text)


@dataclass(frozen=True)
class Key:
    """One entry.

    Args:
        section: In which it stands.
        name: Its own.
        default: Unless it is written; `...` if it must be.
        kind: What it may be.
        why: The words of the template.
        shown: In the template, for what has no default.
    """

    section: str
    name: str
    default: Any
    kind: Kind
    why: str
    shown: Any = None


KEYS = (
    Key("data", "file", ..., PATH, "the beamline's file", "results.hdf"),
    Key(
        "data",
        "layout",
        "auto",
        one_of(("auto", *LAYOUTS)),
        "how the file is laid out; 'auto' looks into it",
    ),
    Key("data", "analysis", None, TEXT, "of a file of the ESRF with several analyses", "full"),
    Key("data", "q", None, ABOVE, "1/Angstrom; needed where the file has several", 0.0054),
    Key("data", "q_tolerance", 0.001, ABOVE, "bins are of this q to this part of it"),
    Key(
        "data",
        "angles",
        None,
        Kind("ranges in degrees, [[from, to], ...]", _ranges),
        "degrees; all without it",
        [[-10.0, 10.0], [80.0, 100.0]],
    ),
    Key(
        "data",
        "phi",
        None,
        Kind("a list of degrees, one for each bin of the file", _numbers),
        "degrees, one for each bin, where the file has none",
        [0.0],
    ),
    Key(
        "data",
        "frames",
        None,
        Kind("[first, last], counted from 1, both included", _frames),
        "first and last, counted from 1; all without it",
        [1, 1000],
    ),
    Key("data", "every", 1, WHOLE, "take every n-th frame: a first look at a long series"),
    Key(
        "data",
        "dead_frames",
        "auto",
        Kind("'auto', or a list of frames, counted from 1", _dead),
        "'auto' leaves out frames without a number, or their list",
    ),
    Key("data", "mask", None, PATH, "a .npy file; what is not 0 is left out", "mask.npy"),
    Key(
        "data",
        "nan",
        "refuse",
        one_of(("refuse", "mask")),
        "points that are not finite: named, or left out",
    ),
    Key("data", "half", "auto", one_of(HALVES), "of the maps"),
    Key("data", "frame_time", None, ABOVE, "seconds, in place of the file's", 0.1),
    Key(
        "data",
        "first_time",
        None,
        ABOVE,
        "seconds, of the first frame of the file; one frame_time without it",
        0.1,
    ),
    Key(
        "data",
        "sigma",
        None,
        Kind("a number above 0, or a list with one for each angle", _sigma),
        "standard deviation of a point; from neighbouring points without it",
        0.01,
    ),
    Key("instrument", "gap", 2.0e6, ABOVE, "Angstrom, between the plates; only flow needs it"),
    Key("fit", "by_angle", None, FLAG, "own contrast and offset at each angle", True),
    Key(
        "fit",
        "strategy",
        "auto",
        one_of(STRATEGIES),
        "'auto' takes the first that fits into the memory",
    ),
    Key("fit", "memory", "auto", MEMORY, "for strategy = 'auto'; 'auto' is the free memory"),
    Key("fit", "chunk", 65536, WHOLE, "points that are read at a time, if streamed"),
    Key("fit", "retries", 2, COUNT, "a chunk whose reading fails is read again so often"),
    Key("fit", "ftol", 1e-12, TOLERANCE, "stop when the cost changes by this part"),
    Key("fit", "xtol", 1e-12, TOLERANCE, "stop when the parameters change by this part"),
    Key("fit", "gtol", 1e-12, TOLERANCE, "stop when the scaled gradient is below"),
    Key("fit", "max_evaluations", 200, WHOLE, "stop after so many"),
    Key("fit", "polish", 3, COUNT, "Gauss-Newton steps at the end"),
    Key("posterior", "chains", 0, COUNT, "drawn after the fit, by NUTS of blackjax; 0: none"),
    Key("posterior", "draws", 1000, Kind("a whole number, 4 or more", _whole(4)), "of each chain"),
    Key("posterior", "warmup", 500, WHOLE, "steps before"),
    Key("posterior", "parts", 1, WHOLE, "of the data, each with its chains: for very many points"),
    Key("posterior", "seed", 0, COUNT, "of all random numbers"),
    Key("checkpoint", "folder", "checkpoint", PATH, "what a stopped fit goes on from"),
    Key("checkpoint", "every", 1, WHOLE, "write after so many evaluations of all points"),
    Key(
        "checkpoint",
        "within",
        "30s",
        Kind("seconds in quotes, such as '30s', or a number of chunks", _every),
        "within an evaluation, if streamed",
    ),
    Key("output", "folder", "out", PATH, "results, pictures and log"),
    Key("output", "pictures", True, FLAG, "maps.png and by_angle.png"),
    Key("output", "hdf5", True, FLAG, "result.h5, with maps; result.json is always written"),
)
SECTIONS = tuple(dict.fromkeys(key.section for key in KEYS))
