"""Which layout a file has, by what is in it, or as it is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._aps import Before, Upgraded
from ._esrf import AgeLag, Dynamix
from ._nexus import Nexus
from ._plain import Plain
from ._pyxpcs import PyXpcs
from ._reader import Reader
from ._tree import INSPECT, refuse, tree

_ALL: tuple[Any, ...] = (Upgraded, Before, Nexus, AgeLag, Dynamix, PyXpcs, Plain)
LAYOUTS: dict[str, Any] = {layout.name: layout for layout in _ALL}
_OF_HDF5 = (Upgraded, Before, Nexus, AgeLag)
_BY_NAME = (Dynamix, PyXpcs, Plain)


@contextmanager
def opened(path: Path, layout: str = "auto", analysis: str | None = None) -> Iterator[Reader]:
    """A file by its layout, while it is open.

    Args:
        path: Of the file.
        layout: A name in `LAYOUTS`, or "auto" to see what is in the file.
        analysis: Of a file of the ESRF that has several.
    Raises:
        ReadError: It is not there, or lacks what its layout says.
    """
    if not path.exists():
        refuse(f"{path} is not there.", "A fit reads its data from a file.", "correct `file`.")
    kind = found(path) if layout == "auto" else LAYOUTS[layout]
    options = {"analysis": analysis} if kind is AgeLag else {}
    with kind.open(path, **options) as file:
        yield file


def found(path: Path) -> Any:
    """The layout of a file, by its name or what it holds."""
    for kind in _BY_NAME:
        if kind.fits_path(path):
            return kind
    with tree(path) as file:
        fits = [kind for kind in _OF_HDF5 if kind.fits(file)]
        names = ", ".join(sorted(file.file.keys())) or "nothing"
    if fits:
        return fits[0]
    return refuse(
        f"{path.name} is of no known layout: at its top it has {names}.",
        "The layouts are " + "; ".join(f"{each.name}: {each.what}" for each in _ALL) + ".",
        f"name one: `layout`; {INSPECT.format(path.name)}.",
    )
