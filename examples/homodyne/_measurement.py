"""What was measured: pairs of times, and a value for each pair and angle. Faults of it are named
here, before anything is computed.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..trf._fail import fail
from .model import Setup

_BLOCK = 2**20  # pairs that are looked at at a time
_SECOND = np.sqrt(6.0)  # standard deviation of a - 2 b + c, in that of one of them
_MEDIAN = 0.6744897501960817  # median of |x|, in standard deviations of a normal x


@dataclass(frozen=True)
class Measurement:
    """A two-time correlation.

    Args:
        t1: First time of each pair, in seconds, above 0; an array, a memory map, or the path of an
            `.npy` file.
        t2: Second one, not before the first.
        measured: The correlation at each angle and pair, as `t1`. A point that is NaN is not there,
            which the fit wants to be told.
        phi: The angles, in radians.
        setup: The instrument.
        sigma: Standard deviation of a point, one for all or one for each angle. Without it the
            noise of neighbouring points is taken.
    """

    t1: Any
    t2: Any
    measured: Any
    phi: np.ndarray
    setup: Setup = field(default_factory=Setup)
    sigma: Any = None

    @property
    def angles(self) -> int:
        """How many."""
        return len(self.phi)

    def opened(self) -> "Measurement":
        """The same with arrays in the place of paths, read when they are used."""
        arrays = {
            name: np.load(value, mmap_mode="r") if isinstance(value, (str, Path)) else value
            for name in ("t1", "t2", "measured")
            for value in (getattr(self, name),)
        }
        return replace(self, **arrays)

    def checked(self, nan: str = "refuse") -> int:
        """The number of points that are there.

        Args:
            nan: `"mask"` leaves out points that are not finite, `"refuse"` names the first.
        Raises:
            ValueError: Shapes differ, times are not in order, or points are not finite.
        """
        if nan not in ("refuse", "mask"):
            fail(f"nan={nan!r}.", 'It is "refuse" or "mask".', 'write nan="mask".')
        self._check_shapes()
        there, missing, first = 0, 0, None
        for start, t1, t2, values in self._blocks():
            self._check_times(start, t1, t2)
            finite = np.isfinite(values)
            there += int(finite.sum())
            missing += int(finite.size - finite.sum())
            if first is None and not finite.all():
                angle, place = map(int, np.argwhere(~finite)[0])
                first = (angle, start + place, values[angle, place], t1[place], t2[place])
        if missing and (nan == "refuse" or not there):
            angle, place, value, t1, t2 = first or (0, 0, np.nan, 0.0, 0.0)
            fail(
                f"measured[{angle}, {place}] is {value}: angle {np.degrees(self.phi[angle]):.6g}"
                f" deg, t1 = {t1:.6g} s, t2 = {t2:.6g} s. {missing:,} of {missing + there:,} points"
                " are not finite.",
                "A fit takes finite points, or leaves out those that are not.",
                'leave them out with nan="mask", or look for dead pixels in the file.',
            )
        return there

    def noise(self) -> np.ndarray:
        """Standard deviation of a point at each angle.

        It is given, or it comes from second differences along t2 of three neighbouring points of
        one t1, in which a smooth correlation cancels, by their median. Noise that neighbours share
        is not seen.
        """
        if self.sigma is not None:
            given = np.asarray(self.sigma, float)
            if given.shape not in ((), (self.angles,)) or not np.all(given > 0):
                fail(
                    f"sigma has the shape {given.shape}, and its least value is"
                    f" {given.min(initial=np.inf):g}.",
                    f"It is above 0, one number or {self.angles}, one for each angle.",
                    "write sigma=0.01, or leave it out.",
                )
            return np.broadcast_to(given, (self.angles,)).copy()
        _, t1, _, values = next(self._blocks())
        t1, values = np.asarray(t1), np.asarray(values, float)
        level = t1[2:] == t1[:-2]
        second = np.abs(values[:, 2:] - 2 * values[:, 1:-1] + values[:, :-2])[:, level]
        found, unseen = np.ones(self.angles), []
        for angle, row in enumerate(second):
            row = row[np.isfinite(row)]
            if not row.size:
                unseen.append(angle)
                continue
            estimate = np.median(row) / (_MEDIAN * _SECOND)
            found[angle] = estimate if estimate > 0 else 1.0
        if unseen:
            warnings.warn(
                f"The noise at angle {', '.join(map(str, unseen))} is taken as 1: no three points"
                " that follow one another have one first time. Chi squared says nothing then, and a"
                " posterior is of that noise. Write sigma=.",
                stacklevel=3,
            )
        return found

    def _blocks(self) -> Iterator[tuple[int, Any, Any, Any]]:
        arrays = self.opened()
        for start in range(0, arrays.t1.shape[0], _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield start, arrays.t1[rows], arrays.t2[rows], np.asarray(arrays.measured[:, rows])

    def _check_shapes(self) -> None:
        arrays = self.opened()
        shapes = {name: tuple(getattr(arrays, name).shape) for name in ("t1", "t2", "measured")}
        pairs = shapes["t1"]
        if len(pairs) != 1 or shapes["t2"] != pairs or shapes["measured"] != (self.angles, *pairs):
            fail(
                f"The shapes are {', '.join(f'{k} {v}' for k, v in shapes.items())}, and there are"
                f" {self.angles} angles.",
                "`t1` and `t2` have an entry for each pair, `measured` has a row for each angle.",
                "bring them into this form.",
            )

    def _check_times(self, start: int, t1: np.ndarray, t2: np.ndarray) -> None:
        wrong = ~((t1 > 0) & (t2 >= t1))
        if np.any(wrong):
            place = int(np.flatnonzero(wrong)[0])
            fail(
                f"Pair {start + place} has t1 = {t1[place]:g} s and t2 = {t2[place]:g} s.",
                "The first time is above 0, for powers of time begin there, and the second one is"
                " not before it.",
                "count times from the first frame on, which is at one interval, and take each pair"
                " once.",
            )
