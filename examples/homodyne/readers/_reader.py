"""What all layouts are to the rest: bins of the detector, and for each the correlations at pairs of
frames.

A correlation of a frame with itself has the shot noise of the detector in it, so no pair is of one
frame, and no diagonal has to be corrected.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from ._tree import refuse

HALVES = ("auto", "upper", "lower", "mean")
ASYMMETRY = 1e-3  # of the range of a map, of one pair; above it a note says so
UNLIKE = 0.05  # the same of the root mean square; above it the map is refused


@dataclass(frozen=True)
class Bin:
    """One region of the detector.

    Args:
        q: Wavevector, 1/Angstrom; None if the file does not say.
        phi: Angle in degrees; None if the file does not say.
        where: Of its map in the file.
        index: Place among the maps.
    """

    q: float | None
    phi: float | None
    where: str
    index: int


@dataclass(frozen=True)
class Pairs:
    """Pairs of frames, the first before the second, counted from 0; halves of frames where a
    layout has bins of age and lag.
    """

    first: np.ndarray
    second: np.ndarray
    places: np.ndarray | None = None  # in the map made flat, where it is not one of frames

    @property
    def size(self) -> int:
        """How many."""
        return self.first.size


@dataclass
class Reader(ABC):
    """One open file.

    Args:
        bins: Its regions.
        frames: How many frames each map has.
        frame_time: Seconds between frames of a map; None if the file does not say.
        before: Frames of a map that had passed before its first one, since the first of the
            series.
        notes: What a user should know.
        lacks: What the file does not have, and a configuration may say.
    """

    name: ClassVar[str]
    what: ClassVar[str]
    gaps: ClassVar[bool] = False  # whether NaN is for an element that is not there

    bins: tuple[Bin, ...]
    frames: int
    frame_time: float | None
    before: float = 0.0
    notes: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    @classmethod
    def beside(cls, path: Path) -> Path | None:
        """A second file, which q and times come from."""
        del path
        return None

    @abstractmethod
    def pairs(self, frames: np.ndarray) -> Pairs:
        """All pairs of these frames that the layout has."""

    @abstractmethod
    def values(self, region: Bin, pairs: Pairs, half: str = "auto") -> np.ndarray:
        """The correlations of a bin at pairs; NaN where the file has none."""

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def lack(self, text: str) -> None:
        """Keep a remark that something is not in the file."""
        self.note(text)
        self.lacks.append(text)


class Square(Reader):
    """A layout with a square map for each bin, row and column the two frames.

    Some programs write both halves, some one, with zeros or NaN in the other.
    """

    @abstractmethod
    def matrix(self, region: Bin) -> np.ndarray:
        """The map of a bin."""

    def pairs(self, frames: np.ndarray) -> Pairs:
        """All of them, those of the first frame first."""
        i, j = np.triu_indices(frames.size, 1)
        return Pairs(frames[i], frames[j])

    def values(self, region: Bin, pairs: Pairs, half: str = "auto") -> np.ndarray:
        """From the half that has numbers, or the mean of both."""
        matrix = self.matrix(region)
        if matrix.shape != (self.frames, self.frames):
            refuse(
                f"{region.where} has shape {matrix.shape}.",
                f"The maps of a file have one shape, here {self.frames} by {self.frames} frames.",
                "correlate again, or choose other bins by `q` and `angles`.",
            )
        upper = matrix[pairs.first, pairs.second].astype(float)
        if half == "upper":
            return upper
        lower = matrix[pairs.second, pairs.first].astype(float)
        if half == "lower":
            return lower
        filled = [bool(np.any(np.nan_to_num(each))) for each in (upper, lower)]
        if half == "auto" and not all(filled):
            return upper if filled[0] else lower
        if not all(filled):
            refuse(
                f"{region.where} has numbers in one half only.",
                "`half = 'mean'` takes the mean of both.",
                "half = 'auto'.",
            )
        return self.mean(region, upper, lower)

    def mean(self, region: Bin, upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """The mean of both halves, and a note if they are not alike."""
        apart = np.abs(upper - lower)
        known = apart[np.isfinite(apart)]
        gap = known.max(initial=0.0)
        span = np.ptp(np.concatenate([each[np.isfinite(each)] for each in (upper, lower)]))
        if known.size and np.sqrt(np.mean(known**2)) > UNLIKE * span:
            refuse(
                f"{region.where} is not symmetric: its halves differ by up to {gap:.2g}.",
                "The correlation of two frames does not depend on their order, so one half is of"
                " something else, or time does not begin at the corner of row 0 and column 0.",
                "[data] half = 'upper' or 'lower' takes one of them; look at the map first.",
            )
        if gap > ASYMMETRY * span:
            self.note(
                f"{region.where} is not symmetric: its halves differ by up to {gap:.2g}; their mean"
                " is taken."
            )
        return np.where(
            np.isnan(upper), lower, np.where(np.isnan(lower), upper, (upper + lower) / 2)
        )
