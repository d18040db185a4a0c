"""Results of beamline 8-ID of the Advanced Photon Source, before and after its upgrade."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from ._reader import Bin, Square
from ._tree import Tree, refuse, tree

NUMBERED = re.compile(r"_(\d+)$")


def numbered(file: Tree, group: str, why: str) -> dict[int, str]:
    """The maps of a group, by the number at the end of their names."""
    names = list(file.need(group, why).keys())
    found = {int(hit[1]): f"{group}/{name}" for name in names if (hit := NUMBERED.search(name))}
    if not found:
        file.missing(f"{group}/c2_00001", "the map of the first bin")
    return dict(sorted(found.items()))


class _Maps(Square):
    """Square maps, a dataset each, that are read when they are asked for."""

    file: Tree

    def matrix(self, region: Bin) -> np.ndarray:
        """From the file."""
        return self.file.array(region.where, "a map")


class Upgraded(_Maps):
    """Written by boost_corr since the upgrade, in the group /xpcs.

    After the names in boost_corr (`xpcs_aps_8idi/aps_8idi.py`, `twotime.py`) and in pyXpcsViewer
    (`core/file_io/aps_8idi.py`, `qmap_utils.py`, `xpcs_file.py`): `correlation_map/c2_00001`, ...
    are upper halves in float32, in the order of `processed_bins`; a bin, counted from 1, is looked
    up in `dynamic_index_mapping`, and that is a place in the grid of the two lists of values.
    """

    name = "aps-8idi"
    what = "APS 8-ID since the upgrade (boost_corr): /xpcs/twotime/correlation_map, /xpcs/qmap"

    @classmethod
    def fits(cls, file: Tree) -> bool:
        """Whether the file is of this layout."""
        return "xpcs/twotime" in file and "xpcs/dqlist" not in file

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """While the file is open."""
        with tree(path, cls.name) as file:
            twotime, qmap = "/xpcs/twotime", "/xpcs/qmap"
            maps = numbered(file, f"{twotime}/correlation_map", "the maps")
            processed = file.array(f"{twotime}/processed_bins", "the bin of each map").ravel()
            if max(maps) > processed.size:
                refuse(
                    f"{maps[max(maps)]} is map {max(maps)}, and {twotime}/processed_bins has"
                    f" {processed.size} entries.",
                    "It has the bin of each map, in their order.",
                    "correlate again.",
                )
            values = [_angles(file, qmap, dim) for dim in (0, 1)]
            where = _mapping(file, qmap)
            bins = tuple(
                _bin(file, values, where, int(processed[number - 1]), path, place)
                for place, (number, path) in enumerate(maps.items())
            )
            frame, steps = _clock(file, f"{twotime}/config")
            begin = file.number_or(f"{twotime}/config/begin_frame", 0.0)
            found = cls(
                bins,
                file.need(bins[0].where, "a map").shape[0],
                None if frame is None else frame * steps,
                begin / steps,
            )
            found.file = file
            yield found


def _angles(file: Tree, qmap: str, dim: int) -> np.ndarray:
    """The values of a bin along one direction of the grid: q, or the angle."""
    names = f"{qmap}/map_names"
    if names in file:
        given = [x.decode() if isinstance(x, bytes) else str(x) for x in file.file[names][()]]
        if given != ["q", "phi"]:
            refuse(
                f"{names} of {file.path.name} is {given}.",
                "The model is one of q and the angle phi.",
                "correlate with a map of q and phi.",
            )
    what = ("the q of the bins, in 1/Angstrom", "the angles of the bins, in degrees")[dim]
    return file.array(f"{qmap}/dynamic_v_list_dim{dim}", what).ravel().astype(float)


def _mapping(file: Tree, qmap: str) -> np.ndarray | None:
    """The place in the grid of each bin; none means that they are in order."""
    where = f"{qmap}/dynamic_index_mapping"
    return file.array(where, "places").ravel().astype(int) if where in file else None


def _bin(
    file: Tree, values: list[np.ndarray], where: np.ndarray | None, number: int, path: str, at: int
) -> Bin:
    """The q and angle of a bin."""
    place = number - 1
    if where is not None and 0 <= place < where.size:
        place = int(where[place])
    elif where is not None:
        place = -1
    q, phi = values
    if not 0 <= place < q.size * phi.size:
        refuse(
            f"{path} of {file.path.name} is of bin {number}, which is not in the grid.",
            f"/xpcs/qmap has {q.size} q by {phi.size} angles.",
            "correlate again with the map that is in the file.",
        )
    return Bin(float(q[place // phi.size]), float(phi[place % phi.size]), path, at)


def _clock(file: Tree, config: str) -> tuple[float | None, float]:
    """Seconds of a frame of the detector, and its frames in one of the map."""
    where = "/entry/instrument/detector_1/frame_time"
    steps = file.number_or(f"{config}/stride_frame", 1.0) * file.number_or(
        f"{config}/avg_frame", 1.0
    )
    return (file.number(where, "the time of a frame") if where in file else None), steps


class Before(_Maps):
    """Written by xpcs-eigen and others before the upgrade.

    After xpcs-eigen (`corr.cpp`, `configuration.cpp`) and the names that APS 8-ID documents for its
    files: `/exchange/C2T_all/g2_00001`, ... are upper halves in float32, numbered by bin from 1;
    `/xpcs/dqlist` and `/xpcs/dphilist`, of shape (1, bins), have q and angle; frames of a map are
    `exposure_period` times `avg_frames` times `stride_frames` apart.
    """

    name = "aps-8idi-before"
    what = (
        "APS 8-ID before the upgrade (xpcs-eigen): /exchange/C2T_all, /xpcs/dqlist, /xpcs/dphilist"
    )

    @classmethod
    def fits(cls, file: Tree) -> bool:
        """Whether the file is of this layout."""
        return "exchange" in file and "xpcs" in file and "xpcs/twotime" not in file

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """While the file is open."""
        with tree(path, cls.name) as file:
            maps = numbered(file, "/exchange/C2T_all", "the maps")
            q = file.array("/xpcs/dqlist", "the q of each bin").ravel().astype(float)
            angles = "/xpcs/dphilist"
            phi = file.array(angles, "angles").ravel().astype(float) if angles in file else None
            last = max(maps)
            for where, have in (("/xpcs/dqlist", q), (angles, phi)):
                if have is not None and last > have.size:
                    refuse(
                        f"{maps[last]} is of bin {last}, and {where} has {have.size} entries.",
                        "It has one for each bin.",
                        "correlate again with the map that is in the file.",
                    )
            bins = tuple(
                Bin(
                    float(q[number - 1]),
                    None if phi is None else float(phi[number - 1]),
                    where,
                    place,
                )
                for place, (number, where) in enumerate(maps.items())
            )
            period = "/measurement/instrument/detector/exposure_period"
            frame = file.number(period, "the time of a frame") if period in file else None
            steps = file.number_or("/xpcs/avg_frames", 1.0) * file.number_or(
                "/xpcs/stride_frames", 1.0
            )
            begin = file.number_or("/xpcs/data_begin_todo", 1.0) - 1
            found = cls(
                bins,
                file.need(bins[0].where, "a map").shape[0],
                None if frame is None else frame * steps,
                begin / steps,
            )
            if phi is None:
                found.lack(f"{path.name} has no {angles}, the angle of each bin.")
            found.file = file
            yield found
