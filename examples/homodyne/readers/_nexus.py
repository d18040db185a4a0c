"""The NeXus definition of results of X-ray photon correlation."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from ._aps import numbered
from ._reader import Bin, Square
from ._tree import Tree, refuse, tree

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
PER_ANGSTROM = {"1/nm": 0.1, "nm^-1": 0.1, "nm-1": 0.1}
MODES = ("one_array_q_first", "one_array_q_last", "data_exchange_keys")


class Nexus(Square):
    """A file of the application definition NXxpcs (NeXus, contributed definitions).

    `ENTRY/twotime/two_time_corr_func` is an array of all maps, or a group with one for each bin;
    its attributes `storage_mode`, `time_origin_location` and `baseline_reference` say which axis is
    that of the bins, at which corner time begins, and whether 0 or 1 is no correlation. Bins are
    listed in `ENTRY/instrument/masks`, the time of a frame in the group of the detector.
    """

    name = "nxxpcs"
    what = "NeXus NXxpcs: ENTRY/twotime/two_time_corr_func, ENTRY/instrument/masks"

    file: Tree
    maps: Any
    axis: int | None  # of the bins, where all maps are one array
    flipped: bool
    baseline: float

    @classmethod
    def fits(cls, file: Tree) -> bool:
        """Whether the file is of this layout."""
        return _entry(file) is not None

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """While the file is open."""
        with tree(path, cls.name) as file:
            entry = _entry(file) or "/entry"
            where = f"{entry}/twotime/two_time_corr_func"
            maps = file.need(where, "the maps")
            paths, axis = _paths(file, where, maps)
            q, phi = _listed(file, f"{entry}/instrument", len(paths))
            bins = tuple(
                Bin(q[i], None if phi is None else phi[i], path, i) for i, path in enumerate(paths)
            )
            shape = maps.shape if axis is not None else file.need(paths[0], "a map").shape
            found = cls(bins, shape[1 if axis == 0 else 0], _frame_time(file, entry))
            found.file, found.maps, found.axis = file, maps, axis
            found.flipped = _word(maps, "time_origin_location") == "lower_left"
            found.baseline = float(maps.attrs.get("baseline_reference", 1))
            if found.baseline != 1:
                found.note(f"{where} has its baseline at {found.baseline:g}: 1 is added.")
            if phi is None:
                found.lack(f"{path.name} has no {entry}/instrument/masks/dynamic_phi_list.")
            yield found

    def matrix(self, region: Bin) -> np.ndarray:
        """From the file, time from the corner of row 0 and column 0, and 1 for no correlation."""
        if self.axis is None:
            found = self.file.array(region.where, "a map")
        else:
            at = (region.index,) if self.axis == 0 else (..., region.index)
            found = np.asarray(self.maps[at])
        if self.flipped:
            found = found[::-1]
        shift = 1 - self.baseline
        if shift == 0:
            return found
        return np.where(found == 0, 0.0, found + shift)  # an empty half stays empty


def _entry(file: Tree) -> str | None:
    """The first entry with a map."""
    for name in file.file:
        if f"{name}/twotime/two_time_corr_func" in file:
            return f"/{name}"
    return None


def _paths(file: Tree, where: str, maps: Any) -> tuple[list[str], int | None]:
    """A path for each map, and the axis of the bins."""
    if hasattr(maps, "keys"):
        return list(numbered(file, where, "the maps").values()), None
    mode = _word(maps, "storage_mode")
    if maps.ndim == 2:
        return [where], None
    if maps.ndim != 3 or mode not in MODES[:2]:
        refuse(
            f"{where} of {file.path.name} has shape {maps.shape} and the storage_mode {mode!r}.",
            f"It is {MODES[0]!r} or {MODES[1]!r}, for three axes, or {MODES[2]!r}, a group.",
            "write the attribute `storage_mode`.",
        )
    axis = 0 if mode == MODES[0] else 2
    return [f"{where}[{i}]" for i in range(maps.shape[axis])], axis


def _listed(
    file: Tree, instrument: str, count: int
) -> tuple[list[float | None], list[float | None] | None]:
    """The q of each map in 1/Angstrom, and its angle in degrees."""
    masks = f"{instrument}/masks"
    listed = file.array(f"{masks}/dynamic_q_list", "the q of each bin")
    where = f"{masks}/dynamic_phi_list"
    phi = file.array(where, "angles").ravel().astype(float) if where in file else None
    if listed.ndim == 2 and listed.shape[1] == 2:  # pairs of q and phi
        listed, phi = listed[:, 0], listed[:, 1].astype(float)
    for path, have in ((f"{masks}/dynamic_q_list", listed), (where, phi)):
        if have is not None and have.size != count:
            refuse(
                f"{path} of {file.path.name} has {have.size} entries, and there are {count} maps.",
                "It has one for each.",
                "write the list of the bins that were correlated.",
            )
    q = listed.ravel().astype(float) * PER_ANGSTROM.get(
        _units(file, f"{masks}/dynamic_q_list"), 1.0
    )
    if phi is not None and where in file and _units(file, where).startswith("rad"):
        phi = np.degrees(phi)
    return list(q), None if phi is None else list(phi)


def _frame_time(file: Tree, entry: str) -> float | None:
    """Seconds between frames, from the first detector that says."""
    for name in file.need(f"{entry}/instrument", "the detector"):
        where = f"{entry}/instrument/{name}/frame_time"
        if where in file:
            found = file.number(where, "the time of a frame")
            return found * SECONDS.get(_units(file, where) or "s", 1.0)
    return None


def _word(dataset: Any, name: str) -> str:
    """An attribute as text."""
    found = dataset.attrs.get(name, "")
    return found.decode() if isinstance(found, bytes) else str(found)


def _units(file: Tree, where: str) -> str:
    """The units of a dataset, as written there."""
    return _word(file.file[where], "units").strip().lower()
