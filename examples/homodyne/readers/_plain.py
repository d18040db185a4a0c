"""Maps in a plain NumPy file, for programs of one's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from ._reader import Bin, Square
from ._tree import npz, refuse


class Plain(Square):
    """`np.savez(file, c2=..., phi=..., q=..., dt=...)`: maps of shape (angles, frames, frames),
    angles in degrees, q in 1/Angstrom, one or one for each map, and seconds between frames.
    """

    name = "npz"
    what = "a NumPy file of one's own: c2 (angles, frames, frames), phi (degrees), q, dt"

    maps: np.ndarray

    @classmethod
    def fits_path(cls, path: Path) -> bool:
        """Whether the file is of this layout."""
        return path.suffix == ".npz"

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """All maps are read at once."""
        with npz(path) as file:
            if "c2" not in file:
                refuse(
                    f"{path.name} has no array 'c2', only {', '.join(file.files) or 'none'}.",
                    "The layout 'npz' keeps the maps there.",
                    "np.savez(file, c2=maps, phi=degrees, q=q, dt=seconds).",
                )
            maps = np.asarray(file["c2"])
            phi, q, dt = (
                np.asarray(file[key], float).ravel() if key in file else None
                for key in ("phi", "q", "dt")
            )
        maps = maps[None] if maps.ndim == 2 else maps
        if maps.ndim != 3 or maps.shape[1] != maps.shape[2]:
            refuse(
                f"c2 of {path.name} has shape {maps.shape}.",
                "It is angles by frames by frames.",
                "reshape it.",
            )
        for key, have, sizes in (("phi", phi, (len(maps),)), ("q", q, (1, len(maps)))):
            if have is not None and have.size not in sizes:
                refuse(
                    f"{key} of {path.name} has {have.size} entries, for {len(maps)} maps.",
                    "It has one for each" + (", or one for all." if key == "q" else "."),
                    "write it again.",
                )
        bins = tuple(
            Bin(
                None if q is None else float(q[i % q.size]),
                None if phi is None else float(phi[i]),
                f"{path.name}: c2[{i}]",
                i,
            )
            for i in range(len(maps))
        )
        found = cls(bins, maps.shape[1], None if dt is None else float(dt[0]))
        found.maps = maps
        yield found

    def matrix(self, region: Bin) -> np.ndarray:
        """One of them."""
        return self.maps[region.index]
