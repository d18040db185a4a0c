"""What a configuration chooses of a beamline's file: one q, some angles, some frames, a mask."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .readers import Bin, Pairs, Reader
from .readers._tree import refuse

AROUND = 0.1  # of q, in which bins that are not taken are counted


@dataclass(frozen=True)
class Choice:
    """The keys of the section `[data]` of a configuration.

    Args:
        file: The beamline's.
        layout: A name in `readers.LAYOUTS`, or "auto".
        analysis: Of a file of the ESRF that has several.
        q: In 1/Angstrom; may be left out where the file has one.
        q_tolerance: Bins are of the same q to this part of it.
        angles: Ranges in degrees; all angles without it.
        phi: In degrees, for each bin of a file that has none.
        frames: First and last one, counted from 1, both included.
        every: So many frames on, the next one is taken.
        dead_frames: Their numbers, or "auto" for those without a number at all.
        mask: A `.npy` file, frames by frames, or bins by frames by frames; not 0 is left out.
        nan: "refuse" names points that are not finite, "mask" leaves them out.
        half: Of a map: "upper", "lower", "mean" of both, or "auto".
        frame_time: Seconds between frames, in place of the file's.
        first_time: Time of the first frame of the file, in seconds; a frame's time by default.
        of_angles: Whether the model is one of the angle; else files may be without.
    """

    file: Path
    layout: str = "auto"
    analysis: str | None = None
    q: float | None = None
    q_tolerance: float = 0.001
    angles: tuple[tuple[float, float], ...] | None = None
    phi: tuple[float, ...] | None = None
    frames: tuple[int, int] | None = None
    every: int = 1
    dead_frames: str | tuple[int, ...] = "auto"
    mask: Path | None = None
    nan: str = "refuse"
    half: str = "auto"
    frame_time: float | None = None
    first_time: float | None = None
    of_angles: bool = True


class Selection:
    """Bins and frames of an open file."""

    def __init__(self, choice: Choice, reader: Reader):
        self.choice, self.reader = choice, reader
        self.file = choice.file.name
        self.frame_time = self._frame_time()
        self.bins = self._bins()
        self.frames = self._frames()

    @property
    def first_time(self) -> float:
        """Of the first frame of the file, in seconds."""
        given = self.choice.first_time
        return self.frame_time * (1 + self.reader.before) if given is None else given

    def _frame_time(self) -> float:
        given = self.choice.frame_time or self.reader.frame_time
        if given is None or not given > 0:
            refuse(
                f"{self.file} does not say how many seconds are between frames.",
                self._said("The model is one of time."),
                "[data] frame_time = 0.1, in seconds.",
            )
        return given

    def _said(self, otherwise: str) -> str:
        return " ".join(self.reader.lacks) or otherwise

    def _bins(self) -> list[Bin]:
        bins = self._of_one_q(self._with_phi())
        ranges = self.choice.angles
        if ranges is None:
            return bins
        near = [each for each in bins if any(within(angle(each), *own) for own in ranges)]
        if not near:
            wanted = " or ".join(f"{low:g} to {high:g}" for low, high in ranges)
            refuse(
                f"No bin of {self.file} is at {wanted} degrees.",
                f"At this q there are {few(angle(each) for each in bins)} degrees.",
                "[data] angles = [[from, to], ...], in degrees, or leave it out for all.",
            )
        return near

    def _with_phi(self) -> list[Bin]:
        """All bins, with the angles of the choice where they are given."""
        bins, given = list(self.reader.bins), self.choice.phi
        if given is not None:
            if len(given) != len(bins):
                refuse(
                    f"`phi` has {len(given)} angles, and {self.file} has {len(bins)} bins.",
                    "It has one for each bin of the file, in their order.",
                    f"`python -m examples.homodyne inspect {self.file}` lists them.",
                )
            return [Bin(b.q, p, b.where, b.index) for b, p in zip(bins, given, strict=True)]
        if any(each.phi is None for each in bins):
            if not self.choice.of_angles:
                return [Bin(b.q, b.phi or 0.0, b.where, b.index) for b in bins]
            refuse(
                f"{self.file} does not say the angles of its bins.",
                self._said("The model is one of the angle to the flow."),
                f"[data] phi = [...], in degrees, {len(bins)} of them; 0.0 for a ring.",
            )
        return bins

    def _of_one_q(self, bins: list[Bin]) -> list[Bin]:
        """A fit is of one wavevector."""
        asked, tolerance = self.choice.q, self.choice.q_tolerance
        if any(each.q is None for each in bins):
            if asked is None:
                refuse(
                    f"{self.file} does not say the q of its bins.",
                    self._said("The model is one of q."),
                    "[data] q = 0.0054, in 1/Angstrom.",
                )
            return [Bin(asked, each.phi, each.where, each.index) for each in bins]
        known = np.array([each.q for each in bins], float)
        several = wavevectors(bins)
        if asked is None:
            if np.ptp(known) > tolerance * known.max():
                refuse(
                    f"{self.file} has bins at {len(several)} wavevectors.",
                    f"A fit is of one. They are {few(several)} per Angstrom.",
                    f"[data] q = {several[0]:g}.",
                )
            self._spread(known, np.ones(known.size, bool))
            return bins
        near = np.abs(known - asked) <= tolerance * asked
        if not near.any():
            nearest = min(several, key=lambda each: abs(each - asked))
            refuse(
                f"No bin of {self.file} has q = {asked:g} per Angstrom, to {tolerance:g} of it.",
                f"They have {few(several)}.",
                f"[data] q = {nearest:g}, or a larger `q_tolerance`.",
            )
        self._spread(known, near)
        return [each for each, is_near in zip(bins, near, strict=True) if is_near]

    def _spread(self, known: np.ndarray, near: np.ndarray) -> None:
        """Say which q is taken, and which bins are not."""
        taken = known[near]
        if np.ptp(taken) > 1e-6 * taken.max():
            self.reader.note(
                f"The q of the chosen bins is {taken.min():.6g} to {taken.max():.6g} per Angstrom:"
                f" the mean, {taken.mean():.6g}, is that of the fit."
            )
        around = np.abs(known - taken.mean()) <= AROUND * taken.mean()
        left = int(np.sum(around & ~near))
        if left:
            self.reader.note(
                f"{left} more bins are within {AROUND:.0%} of this q, which a larger `q_tolerance`"
                " takes."
            )

    def _frames(self) -> np.ndarray:
        """Those that are used, counted from 0."""
        choice, count = self.choice, self.reader.frames
        first, last = choice.frames or (1, count)
        dead = () if isinstance(choice.dead_frames, str) else choice.dead_frames
        for key, numbers in (("frames", (first, last)), ("dead_frames", dead)):
            outside = [each for each in numbers if not 1 <= each <= count]
            if outside:
                refuse(
                    f"`{key}` has {outside[0]}.",
                    f"Frames are counted from 1, and the maps of {self.file} have {count}.",
                    f"[data] {key}: numbers from 1 to {count}.",
                )
        frames = np.arange(first - 1, last, choice.every)
        frames = frames[~np.isin(frames, np.array(dead, int) - 1)]
        if frames.size < 3:
            refuse(
                f"{frames.size} frames are left of {count}.",
                "A fit takes 3 at least.",
                "[data] frames = [first, last], both included; a smaller `every`.",
            )
        return frames

    def masked(self, pairs: Pairs) -> np.ndarray:
        """What the mask leaves out: one row for all bins, or one for each."""
        path = self.choice.mask
        if path is None:
            return np.zeros((1, pairs.size), bool)
        try:
            mask = np.lib.format.open_memmap(path, mode="r")
        except ValueError as error:
            refuse(
                f"The mask {path.name} cannot be read: {error}",
                "It is one NumPy array.",
                "np.save(file, mask).",
            )
        frames, bins = self.reader.frames, len(self.reader.bins)
        if pairs.places is not None or mask.shape not in ((frames,) * 2, (bins, frames, frames)):
            refuse(
                f"The mask {path.name} has shape {mask.shape}.",
                f"It is {(frames, frames)}, or {(bins, frames, frames)} with one for each bin of"
                " the file; maps of age and lag take none.",
                "reshape it. What is not 0 is left out.",
            )
        stack = mask[None] if mask.ndim == 2 else mask[[each.index for each in self.bins]]
        first, second = pairs.first, pairs.second
        return np.stack([(each[first, second] != 0) | (each[second, first] != 0) for each in stack])


def within(phi: float, low: float, high: float) -> bool:
    """Whether an angle in degrees is in a range, whatever full turn either of them is in."""
    return (phi - low) % 360 <= high - low or (phi - low + 1e-9) % 360 <= high - low


def angle(region: Bin) -> float:
    """Of a bin, which has one by now."""
    found: Any = region.phi
    return float(found)


def wavevectors(bins: Iterable[Bin]) -> list[float]:
    """Return the q of bins that say theirs, each once to six digits, 1/Angstrom."""
    return sorted({float(f"{each.q:.6g}") for each in bins if each.q is not None})


def few(values: Iterable[Any], most: int = 6) -> str:
    """The first ones, and how many there are."""
    listed = list(values)
    more = f", ... ({len(listed)} in all)" if len(listed) > most else ""
    return ", ".join(f"{each:.6g}" for each in listed[:most]) + more
