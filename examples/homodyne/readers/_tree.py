"""An HDF5 file in which a missing piece is named by its path, with what is there instead."""

import importlib
import importlib.util
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ...trf._fail import fail

INSPECT = "`python -m examples.homodyne inspect {}` lists what the file has"


class ReadError(ValueError):
    """A file that is not as its layout says."""


def refuse(what: str, rule: str, fix: str) -> NoReturn:
    """Raise a `ReadError` of three sentences."""
    fail(what, rule, fix, ReadError)


@contextmanager
def npz(path: Path) -> Iterator[Any]:
    """The arrays of a NumPy file while it is open."""
    if not zipfile.is_zipfile(path):
        refuse(
            f"{path.name} is not a file of NumPy arrays, or it is cut.",
            "np.savez writes such files.",
            "copy the file again, or name its layout: `layout`.",
        )
    with np.load(path, allow_pickle=False) as file:
        yield file


class Tree:
    """The groups and datasets of one open file.

    Args:
        path: Of the file, for messages.
        file: As `h5py.File` gives it.
        layout: Name of the layout, for messages.
    """

    def __init__(self, path: Path, file: Any, layout: str = ""):
        self.path, self.file, self.layout = path, file, layout

    def __contains__(self, where: str) -> bool:
        return where in self.file

    def need(self, where: str, why: str, instead: str = "") -> Any:
        """The group or dataset there, or an error that names its path."""
        if where not in self.file:
            self.missing(where, why, instead)
        return self.file[where]

    def missing(self, where: str, why: str, instead: str = "") -> NoReturn:
        """Name the path, and the names in the nearest group above it."""
        above = where.rstrip("/")
        while above and (above not in self.file or not hasattr(self.file[above], "keys")):
            above = above.rpartition("/")[0]
        names = sorted(self.file[above or "/"].keys())
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        refuse(
            f"{self.path.name} has no {where}.",
            f"The layout {self.layout!r} keeps there {why}; {above or '/'} has"
            f" {shown or 'nothing'}.",
            instead or f"write it, or name another layout; {INSPECT.format(self.path.name)}.",
        )

    def array(self, where: str, why: str, instead: str = "") -> np.ndarray:
        """The numbers there."""
        found = self.need(where, why, instead)
        if hasattr(found, "keys"):
            refuse(
                f"{where} of {self.path.name} is a group.",
                f"The layout {self.layout!r} keeps there {why}, a dataset.",
                "name another layout.",
            )
        return self.read(found)

    def read(self, dataset: Any) -> np.ndarray:
        """The numbers of a dataset; what HDF5 cannot decompress is named."""
        try:
            return np.asarray(dataset[()])
        except OSError as error:
            refuse(
                f"{dataset.name} of {self.path.name} cannot be read: {error}",
                "The file is cut, or its compression is one that HDF5 does not bring.",
                "install `hdf5plugin`, which is used where it is there, or copy the file again.",
            )

    def number(self, where: str, why: str, instead: str = "") -> float:
        """The one number there, of whatever shape."""
        found = self.array(where, why, instead)
        if found.size != 1:
            refuse(
                f"{where} of {self.path.name} has shape {found.shape}.",
                f"The layout {self.layout!r} keeps there {why}, one number.",
                "correct the file, or give the number in the configuration.",
            )
        return float(found.ravel()[0])

    def number_or(self, where: str, default: float) -> float:
        """The one number there, or the default where nothing is."""
        return self.number(where, "a number") if where in self.file else default


@contextmanager
def tree(path: Path, layout: str = "") -> Iterator[Tree]:
    """The tree of a file while it is open."""
    if importlib.util.find_spec("h5py") is None:
        refuse(
            f"{path.name} is an HDF5 file, and h5py is not installed.",
            "The layouts of beamlines are read through it.",
            "pip install h5py.",
        )
    if importlib.util.find_spec("hdf5plugin") is not None:  # it registers filters
        importlib.import_module("hdf5plugin")
    h5py = importlib.import_module("h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        refuse(
            f"{path.name} cannot be opened as HDF5: {error}",
            "It is of another format, cut, or another program writes it.",
            "copy the file again, or name its layout: `layout`.",
        )
    with file:
        yield Tree(path, file, layout)
