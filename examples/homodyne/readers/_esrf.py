"""Results of the beamlines ID10 and ID02 of the ESRF."""

import configparser
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from ._reader import Bin, Pairs, Reader, Square
from ._tree import Tree, npz, refuse, tree

MAGIC = "XPCSResultFile_v2.0"
CORRELATIONS = "/entry_0000/correlations"


class AgeLag(Reader):
    """A result file of the ESRF, of version 2.0.

    After the package xpcsutilities (`tools/result_file.py`, `gui/graphs/ttcf.py` and `g2.py`): the
    attribute `MagicString` is "XPCSResultFile_v2.0"; for each analysis,
    `/entry_0000/correlations/NAME/twotime` has `ttcf` of shape (bins, ages, lags), and `age` and
    `lag` in seconds, with NaN for those that are not used; `parameters/q` has a q for each bin, in
    1/nm; angles are not there. With age (t1 + t2) / 2 and lag t2 - t1, as the package
    xpcs-correlator defines them, an element is a pair of times. Bins of many frames are means over
    these, and are taken for the middle.
    """

    gaps = True
    name = "esrf"
    what = f"ESRF ID10 and ID02: {CORRELATIONS}/ANALYSIS/twotime with ttcf, age and lag"

    file: Tree
    ages: np.ndarray
    lags: np.ndarray

    @classmethod
    def fits(cls, file: Tree) -> bool:
        """Whether the file is of this layout."""
        return "entry_0000/correlations" in file

    @classmethod
    @contextmanager
    def open(cls, path: Path, analysis: str | None = None) -> Iterator[Self]:
        """While the file is open; of an analysis, where it has several."""
        with tree(path, cls.name) as file:
            _magic(file)
            group = f"{CORRELATIONS}/{_analysis(file, analysis)}"
            ttcf = file.need(f"{group}/twotime/ttcf", "the maps of age and lag")
            ages = file.array(f"{group}/twotime/age", "ages in seconds").ravel().astype(float)
            lags = file.array(f"{group}/twotime/lag", "lags in seconds").ravel().astype(float)
            q = file.array(f"{group}/parameters/q", "the q of each bin").ravel().astype(float)
            expected = (q.size, ages.size, lags.size)
            if ttcf.shape != expected:
                refuse(
                    f"{group}/twotime/ttcf has shape {ttcf.shape}.",
                    f"By parameters/q, age and lag it is {expected}: bins, ages, lags.",
                    "correlate again.",
                )
            known = np.unique(lags[np.isfinite(lags)])
            step = float(np.min(np.diff(known))) if known.size > 1 else None
            # The largest age and the largest lag do not come together.
            age, lag = np.meshgrid(ages, lags, indexing="ij")
            first = np.asarray(ttcf[0], float)
            ends = (age + lag / 2)[np.isfinite(first) & (first != 0)]
            last = np.max(ends, initial=0.0, where=np.isfinite(ends))
            frames = 1 if step is None else int(np.ceil(round(last / step, 6))) + 1
            bins = tuple(
                Bin(float(each) / 10, None, f"{group}/twotime/ttcf[{i}]", i)
                for i, each in enumerate(q)
            )
            found = cls(bins, frames, step)
            found.file, found.ages, found.lags = file, ages, lags
            found.lack(f"{path.name} has no angles: the layout has none.")
            yield found

    def pairs(self, frames: np.ndarray) -> Pairs:
        """The elements whose two times are among the frames, or between two that are."""
        age, lag = np.meshgrid(self.ages, self.lags, indexing="ij")
        step = self.frame_time or 1.0
        times = ((age - lag / 2) / step, (age + lag / 2) / step)
        first, second = (np.round(each.ravel(), 6) for each in times)
        known = np.zeros(self.frames + 1, bool)
        known[frames] = True

        def among(times: np.ndarray) -> np.ndarray:
            finite = np.where(np.isfinite(times), times, -1.0)
            near = np.floor(finite).astype(int), np.ceil(finite).astype(int)
            inside = (near[0] >= 0) & (near[1] < self.frames)
            low, high = (np.where(inside, each, self.frames) for each in near)
            return known[low] & known[high]

        kept = (lag.ravel() > 0) & among(first) & among(second)
        places = np.flatnonzero(kept)
        # Those of one first time together: the noise is estimated from neighbours among them.
        places = places[np.lexsort((second[places], first[places]))]
        return Pairs(first[places], second[places], places)

    def values(self, region: Bin, pairs: Pairs, half: str = "auto") -> np.ndarray:
        """NaN where no pair of frames has that age and lag, which the file has as NaN or 0."""
        del half  # there is one only
        dataset = self.file.need(region.where.partition("[")[0], "the maps")
        found = np.asarray(dataset[region.index], float).ravel()[pairs.places]
        return np.where(found == 0, np.nan, found)


def _magic(file: Tree) -> None:
    """Refuse another version."""
    found = file.file.attrs.get("MagicString", "")
    found = found.decode() if isinstance(found, bytes) else str(found)
    if found != MAGIC:
        refuse(
            f"The attribute MagicString of {file.path.name} is {found!r}.",
            f"This reader knows {MAGIC!r}.",
            "write the file with a newer version of the beamline's program.",
        )


def _analysis(file: Tree, name: str | None) -> str:
    """The analysis that is named, or the only one."""
    names = list(file.need(CORRELATIONS, "the analyses").keys())
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        refuse(
            f"{file.path.name} has the analyses {', '.join(names)}"
            + (f", and not {name!r}." if name else "."),
            "A fit takes one of them.",
            f"[data] analysis = {names[0]!r}." if names else "correlate again.",
        )
    return name


class Dynamix(Square):
    """Written by dynamix, the correlator of ID10 (silx-kit/dynamix, `cli/xpcs_ini.py`).

    `NAME_event_trc.npz` has one map of both halves as `data`, float32, of the q-bin that the entry
    `ttcf` of the configuration names; a copy of that is beside it as `input_xpcs_NAME.txt`, with
    `lagtime`, `firstq` and `stepq`. A q-bin is a ring: there are no angles.
    """

    name = "dynamix"
    what = "ESRF ID10 (dynamix): NAME_event_trc.npz, with input_xpcs_NAME.txt beside it"

    map: np.ndarray

    @classmethod
    def fits_path(cls, path: Path) -> bool:
        """Whether the file is of this layout."""
        return path.name.endswith("_trc.npz")

    @classmethod
    def beside(cls, path: Path) -> Path:
        """The configuration, which says q and the time of a frame."""
        name = re.sub(r"(_event)?_trc\.npz$", "", path.name)
        return path.with_name(f"input_xpcs_{name}.txt")

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """The map is read at once: there is one."""
        with npz(path) as file:
            if "data" not in file:
                refuse(
                    f"{path.name} has no array 'data', only {', '.join(file.files) or 'none'}.",
                    "dynamix keeps the map there.",
                    "name another file, or layout = 'npz'.",
                )
            values = np.asarray(file["data"])
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            refuse(
                f"The map of {path.name} has shape {values.shape}.",
                "It is frames by frames; dynamix writes a number where no map was asked for.",
                "correlate again with `ttcf` the number of a q-bin.",
            )
        q, frame_time, note = _settings(cls.beside(path))
        found = cls((Bin(q, None, f"{path.name}: data", 0),), values.shape[0], frame_time)
        found.map = values
        if note:
            found.lack(note)
        found.lack(f"{path.name} has no angle: its bin is a ring.")
        yield found

    def matrix(self, region: Bin) -> np.ndarray:
        """The only one."""
        return self.map


def _settings(path: Path) -> tuple[float | None, float | None, str]:
    """The q of the map and the time of a frame, by the configuration of the correlator."""
    if not path.exists():
        return None, None, f"{path.name} is not there: it has q and the time of a frame."
    parser = configparser.ConfigParser(interpolation=configparser.ExtendedInterpolation())
    parser.read(path)
    try:
        setup = parser["exp_setup"]
        number = int(parser["correlator"]["ttcf"])
        q = float(setup["firstq"]) + (number - 1) * float(setup["stepq"])
        return q, float(setup["lagtime"]), ""
    except KeyError as missing:
        return None, None, f"{path.name} has no {missing}, of which q and the time of a frame come."
