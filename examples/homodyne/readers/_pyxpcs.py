"""Results of pyXPCS, the program of the ESRF and NSLS-II."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from ._reader import Bin, Square
from ._tree import refuse

TYPES = {
    "unsignedbyte": "u1",
    "unsignedshort": "u2",
    "unsignedinteger": "u4",
    "unsignedlong": "u4",
    "signedinteger": "i4",
    "floatvalue": "f4",
    "doublevalue": "f8",
}
NAME = re.compile(r"^(?P<prefix>.*)2times_q_(?P<number>\d+)\.edf$")


class PyXpcs(Square):
    """A map as pyXPCS exports it (Nikea/pyXPCS: `correlator_online_new.py`, `ytrc.py`).

    `PREFIX2times_q_N.edf` has the map of the q-bin N, counted from 1, in 16 bits between `MinValue`
    and `MaxValue` of its header; `PREFIXcf.dat` beside it has "#q values: ..." in its first line,
    and lags in its first column, the first of which is the time of a frame. The largest value is
    stored as 65536, which is 0 in 16 bits: what is stored as 0 is the smallest or the largest, and
    is left out. A q-bin is a ring: there are no angles.
    """

    gaps = True
    name = "pyxpcs"
    what = "pyXPCS: PREFIX2times_q_N.edf, with PREFIXcf.dat beside it"

    map: np.ndarray

    @classmethod
    def fits_path(cls, path: Path) -> bool:
        """Whether the file is of this layout."""
        return path.suffix.lower() == ".edf"

    @classmethod
    def beside(cls, path: Path) -> Path | None:
        """The curves, which say q and the time of a frame."""
        hit = NAME.match(path.name)
        return None if hit is None else path.with_name(f"{hit['prefix']}cf.dat")

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """The map is read at once: there is one."""
        header, stored = edf(path)
        low, high = (_value(path, header, key) for key in ("MinValue", "MaxValue"))
        values = np.where(stored == 0, np.nan, stored / 2**16 * (high - low) + low)
        q, frame_time, note = _curves(path)
        found = cls((Bin(q, None, path.name, 0),), values.shape[0], frame_time)
        found.map = values
        if note:
            found.lack(note)
        found.lack(f"{path.name} has no angle: its bin is a ring.")
        found.note(
            f"{int(np.isnan(values).sum())} elements of {path.name} are stored as 0, its smallest"
            " or its largest value: left out."
        )
        yield found

    def matrix(self, region: Bin) -> np.ndarray:
        """The only one."""
        return self.map


def edf(path: Path) -> tuple[dict[str, str], np.ndarray]:
    """Header and image of a file in the ESRF data format: text between braces, then binary."""
    content = path.read_bytes()
    end = content.find(b"}\n")
    if not content.lstrip().startswith(b"{") or end < 0:
        refuse(
            f"{path.name} has no header between braces.",
            "A file in the ESRF data format begins with one.",
            "name another layout.",
        )
    header: dict[str, str] = {}
    for entry in content[:end].decode("latin-1").split(";"):
        key, equal, value = entry.partition("=")
        if equal:
            header[key.strip(" {\r\n")] = value.strip()
    known = {key.lower(): value for key, value in header.items()}
    for key in ("Dim_1", "Dim_2", "DataType"):
        if key.lower() not in known:
            refuse(f"The header of {path.name} has no {key}.", "It has one.", "write it again.")
    kind = TYPES.get(known["datatype"].lower())
    if kind is None:
        refuse(
            f"The DataType of {path.name} is {known['datatype']!r}.",
            f"This reader knows {', '.join(TYPES)}.",
            "write it again.",
        )
    order = ">" if known.get("byteorder", "").lower() == "highbytefirst" else "<"
    shape = int(known["dim_2"]), int(known["dim_1"])
    body = content[end + 2 :]
    if shape[0] != shape[1] or len(body) < shape[0] * shape[1] * int(kind[1]):
        refuse(
            f"{path.name} has {len(body)} bytes of an image of {shape[1]} by {shape[0]} {kind}.",
            "It is frames by frames.",
            "copy the file again.",
        )
    return header, np.frombuffer(body, order + kind, shape[0] * shape[1]).reshape(shape)


def _value(path: Path, header: dict[str, str], key: str) -> float:
    if key not in header:
        refuse(
            f"The header of {path.name} has no {key}.",
            "pyXPCS writes the range of a map there.",
            "write the map with pyXPCS, or as `npz`.",
        )
    return float(header[key])


def _curves(path: Path) -> tuple[float | None, float | None, str]:
    """The q of the map and the time of a frame, by the correlation functions beside it."""
    hit = NAME.match(path.name)
    if hit is None:
        return None, None, f"{path.name} is not named PREFIX2times_q_N.edf, which says its q-bin."
    curves = path.with_name(f"{hit['prefix']}cf.dat")
    if not curves.exists():
        return None, None, f"{curves.name} is not there: it has q and the time of a frame."
    lines = curves.read_text().splitlines()
    values = [float(each) for each in lines[0].partition(":")[2].split()] if lines else []
    number = int(hit["number"])
    q = values[number - 1] if 0 < number <= len(values) else None
    frame = float(lines[1].split()[0]) if len(lines) > 1 else None
    note = (
        "" if q is not None else f"{curves.name} has {len(values)} q, and not that of bin {number}."
    )
    return q, frame, note
