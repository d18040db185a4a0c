"""The arrays that a fit reads, from a beamline's file: what a configuration chooses of it, once, in
a folder of `.npy` files.

Times are float64: in float32 the lag of two neighbouring frames, late in a long series, has lost
four of its seven digits.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ._select import Choice, Selection, few
from .readers import LAYOUTS, Bin, Pairs, opened
from .readers._tree import refuse

NOTE = "data.json"
LISTED = 5  # pairs of frames in a message


@dataclass(frozen=True)
class Prepared:
    """Pairs of times, and the correlation at each angle and pair; NaN where it is left out.

    Args:
        folder: Of `t1.npy`, `t2.npy` and `measured.npy`.
        source: The beamline's file.
        layout: Its layout.
        phi: The angles, in degrees.
        q: Wavevector, 1/Angstrom.
        pairs: Of times, at each angle.
        missing: Points that are left out, of all angles.
        frames: That are used, counted from 1.
        frame_time: Seconds between frames of the file.
        first_time: Time of the first frame of the file, seconds.
        notes: What a user should know.
    """

    folder: Path
    source: str
    layout: str
    phi: np.ndarray
    q: float
    pairs: int
    missing: int
    frames: tuple[int, ...]
    frame_time: float
    first_time: float
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def angles(self) -> int:
        """How many."""
        return self.phi.size

    @property
    def points(self) -> int:
        """Points that are there, of all angles."""
        return self.pairs * self.angles - self.missing

    def path(self, name: str) -> Path:
        """The file of `t1`, `t2` or `measured`."""
        return self.folder / f"{name}.npy"

    def mapped(self, name: str) -> np.ndarray:
        """The array of that file, read when it is used."""
        return np.load(self.path(name), mmap_mode="r")


def prepare(
    choice: Choice, folder: Path, advance: Callable[[int, int], None] = lambda done, of: None
) -> Prepared:
    """The arrays of a choice, written unless they are there already.

    Args:
        choice: What.
        folder: Where; made if it is missing.
        advance: Called with the number of maps that are read, and of all.
    Raises:
        ReadError: The file lacks what its layout says, or what the choice asks for.
    """
    key, note = _key(choice), folder / NOTE
    if note.exists() and (known := json.loads(note.read_text())).pop("key") == key:
        for name in ("phi", "frames", "notes"):
            known[name] = np.array(known[name]) if name == "phi" else tuple(known[name])
        return Prepared(folder, **known)
    with opened(choice.file, choice.layout, choice.analysis) as reader:
        folder.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        found = _write(Selection(choice, reader), folder, advance)
    fields = {name: value for name, value in asdict(found).items() if name != "folder"}
    fields["phi"] = found.phi.tolist()
    note.write_text(json.dumps({"key": key, **fields}))
    return found


def _key(choice: Choice) -> str:
    """A digest of the choice, and of size and time of its files."""
    for path in (choice.file, choice.mask):
        if path is not None and not path.exists():
            refuse(
                f"{path} is not there.",
                "A fit reads its data from files, and paths begin at the configuration's folder.",
                "[data] correct `file` or `mask`.",
            )
    # With files beside, which q and times come from.
    paths = [choice.file, choice.mask, *(kind.beside(choice.file) for kind in LAYOUTS.values())]
    stamps = [
        (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns)
        for path in paths
        if path is not None and path.exists()
    ]
    return hashlib.sha256(repr((choice, stamps)).encode()).hexdigest()


def _write(chosen: Selection, folder: Path, advance: Callable[[int, int], None]) -> Prepared:
    """All arrays; a pair that is missing at all angles is not in them."""
    reader = chosen.reader
    pairs = reader.pairs(chosen.frames)
    unused = chosen.masked(pairs)
    open_file: Any = np.lib.format.open_memmap
    shape = (len(chosen.bins), pairs.size)
    measured = open_file(folder / "measured.npy", "w+", np.float32, shape)
    there = np.zeros(pairs.size, bool)
    missing = 0
    dead: dict[str, list[str]] = {}
    for place, region in enumerate(chosen.bins):
        values = reader.values(region, pairs, chosen.choice.half)
        out = _left_out(chosen, region, pairs, values, unused[place % len(unused)], dead)
        measured[place] = np.where(out, np.nan, values)
        there |= ~out
        missing += int(out.sum())
        advance(place + 1, len(chosen.bins))
    for without, maps in dead.items():
        others = len(maps) - 1
        more = f" and {others} more map{'s' * (others > 1)}" if others else ""
        reader.note(f"{without} in {maps[0]}{more}: left out.")
    if not there.any():
        refuse("No pair of frames is left.", "All are masked or missing.", "mask fewer.")
    missing -= len(chosen.bins) * int((~there).sum())
    measured.flush()
    if not there.all():
        _shortened(folder / "measured.npy", measured, there)
    for name, frames in (("t1", pairs.first), ("t2", pairs.second)):
        np.save(folder / f"{name}.npy", chosen.first_time + chosen.frame_time * frames[there])
    return Prepared(
        folder,
        str(chosen.choice.file),
        reader.name,
        np.array([each.phi for each in chosen.bins], float),
        float(np.mean([each.q for each in chosen.bins])),
        int(there.sum()),
        missing,
        tuple(map(int, chosen.frames + 1)),
        chosen.frame_time,
        chosen.first_time,
        tuple(reader.notes),
    )


def _left_out(
    chosen: Selection,
    region: Bin,
    pairs: Pairs,
    values: np.ndarray,
    unused: np.ndarray,
    without: dict[str, list[str]],
) -> np.ndarray:
    """The pairs of a bin that are masked, of frames without a number, or not finite; the last only
    where the choice allows it. Frames without a number are entered in `without`, with their maps.
    """
    missing = ~np.isfinite(values)
    if chosen.reader.gaps:
        return missing | unused
    good = ~missing & (values != 0)
    count = chosen.reader.frames
    alive = np.bincount(pairs.first[good], minlength=count)
    alive = alive + np.bincount(pairs.second[good], minlength=count)
    dead = np.zeros(count, bool)
    dead[chosen.frames] = alive[chosen.frames] == 0
    off = dead[pairs.first] | dead[pairs.second]
    if np.any(off & ~unused):
        numbers = few(np.flatnonzero(dead) + 1)
        one = dead.sum() == 1
        listed = f"Frame {numbers} has no numbers" if one else f"Frames {numbers} have no numbers"
        if chosen.choice.dead_frames != "auto":
            refuse(
                f"{listed} in {region.where}.",
                "The detector was off, or nothing reached it.",
                "[data] add them to `dead_frames`, or write dead_frames = 'auto'.",
            )
        without.setdefault(listed, []).append(region.where)
    bad = missing & ~off & ~unused
    if bad.any():
        where = np.flatnonzero(bad)[:LISTED]
        shown = ", ".join(f"({pairs.first[i] + 1}, {pairs.second[i] + 1})" for i in where)
        count = int(bad.sum())
        listed = (
            f"{region.where} is NaN or infinite at {count} pairs of frames:"
            f" {shown}{', ...' if count > LISTED else ''}"
        )
        if chosen.choice.nan == "refuse":
            refuse(
                f"{listed}.",
                "They are not of a dead frame, and not in the mask.",
                "[data] nan = 'mask' leaves them out.",
            )
        chosen.reader.note(f"{listed}: they are left out.")
    return off | missing | unused


def _shortened(path: Path, measured: np.ndarray, kept: np.ndarray) -> None:
    """Write the file again, without the columns that are not kept."""
    open_file: Any = np.lib.format.open_memmap
    new = path.with_suffix(".new")
    short = open_file(new, "w+", np.float32, (measured.shape[0], int(kept.sum())))
    for row, values in enumerate(measured):
        short[row] = values[kept]
    short.flush()
    new.replace(path)
