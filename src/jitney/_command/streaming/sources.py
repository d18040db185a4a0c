"""Function and arguments of a configuration: names are found, and files are opened.

Files with several arrays are opened by the packages that read them, which are imported here alone.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np

from ..._errors import OptionError, name_fix
from ..._interface.program import Program
from ..._signature.hints import ArrayHint
from ..bench.parsing import WHERE
from ..bench.target import find
from .config import DataFiles, StreamConfig


def program_of(config: StreamConfig) -> Program[..., object]:
    """Import the function.

    Raises:
        OptionError: It is not there, or not decorated.
    """
    found = _found(config, "stream", "function", config.function)
    if not isinstance(found, Program):
        raise config.lines.wrong(
            "stream",
            "function",
            f"{config.function!r} is not a program of jitney.",
            "A stream runs what jitney can cut into chunks.",
            "decorate it with @jitney.optimize.",
        )
    return cast("Program[..., object]", found)


def arguments_of(config: StreamConfig, program: Program[..., object]) -> dict[str, object]:
    """Open the data, and return all arguments by name.

    Raises:
        OptionError: A name is not that of a parameter, or a parameter has no value.
    """
    parameters = {each.name: each for each in program.core.contract.parameters}
    takes = f"It takes {', '.join(parameters)}."
    for section, names in (("data", config.data), ("values", config.values)):
        for name in names:
            if name not in parameters:
                what = f"{config.function} has no parameter {name!r}."
                fix = name_fix(name, parameters)
                raise config.lines.wrong(section, name, what, takes, fix)
    for name, parameter in parameters.items():
        if name in config.data and name in config.values:
            what = f"{name!r} is in [data] too."
            rule = "[data] is what is read from files, [values] what is written here."
            raise config.lines.wrong("values", name, what, rule, "remove one of the two.")
        if name not in config.data and name not in config.values and not parameter.has_default:
            what = f"{config.function} has no value for {name!r}."
            fix = f'write {name} = "{name}.npy" below [data], or a number below [values].'
            raise config.lines.wrong("data", "", what, takes, fix)
    opened: dict[str, object] = {
        name: _data(config, name, entry) for name, entry in config.data.items()
    }
    for name, value in config.values.items():
        is_array = isinstance(value, list) and isinstance(parameters[name].hint, ArrayHint)
        opened[name] = np.asarray(value) if is_array else value
    return opened


def _found(config: StreamConfig, section: str, key: str, typed: str) -> object:
    """Import what a text names. Files and modules are found from the folder of the
    configuration.
    """
    folder = config.lines.path.resolve().parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    place, _, name = typed.rpartition(":")
    is_file = place.endswith(".py")
    try:
        return find(f"{folder / place}:{name}" if is_file else typed).f
    except OptionError as error:
        text = str(error).removeprefix(f"{WHERE}: ")
        raise OptionError(f"{config.lines.place(section, key)}: {text}", code="J205") from None


def _data(config: StreamConfig, name: str, entry: DataFiles) -> object:
    for file in entry.files:
        if not file.exists():
            raise config.lines.wrong(
                "data",
                name,
                f"{str(file)!r} is not there.",
                "Paths begin at the folder of the configuration.",
                _nearest(file),
            )
    opener = None if entry.opener is None else _opener(config, name, entry.opener)
    parts: list[object] = []
    for file in entry.files:
        opened = opener(file) if opener is not None else _opened(config, name, file, entry.dataset)
        # A table has several parts, which follow each other.
        parts += cast("list[object]", opened) if isinstance(opened, list) else [opened]
    return parts if entry.is_list or len(parts) != 1 else parts[0]


def _opener(config: StreamConfig, name: str, typed: str) -> Callable[[Path], object]:
    return cast("Callable[[Path], object]", _found(config, "data", name, typed))


def _nearest(file: Path) -> str:
    folder = file.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(file.name, names, 1)
    return f"did you mean {near[0]!r}?" if near else "correct the path."


def _opened(config: StreamConfig, name: str, file: Path, dataset: str | None) -> object:
    """Open a file by its ending: a path that streams read, or what a package makes of it."""
    kind = file.suffix.lower()
    if kind not in _PACKAGES:
        if dataset is None:
            return file
        endings = ", ".join(_PACKAGES)
        rule = f"Files that hold several arrays are {endings}; an .npz has one for each parameter."
        what = f"`dataset` is of no use for {file.name}."
        raise config.lines.wrong("data", name, what, rule, "remove it, or give `open`.")
    package, opens = _PACKAGES[kind]
    if importlib.util.find_spec(package) is None:
        what = f"{package} is not installed, which reads {file.name}."
        fix = f"python -m pip install {package}"
        raise config.lines.wrong("data", name, what, "It is not a part of jitney.", fix)
    found = opens(importlib.import_module(package), file, dataset)
    if found is None:
        what = f"{file.name} has no array under {dataset!r}."
        rule = "`dataset` is the name of an array in the file."
        fix = f'write {name} = {{ file = "{file.name}", dataset = "..." }}.'
        raise config.lines.wrong("data", name, what, rule, fix)
    return found


def _within(opened: object, dataset: str | None) -> object:
    """Array of that name in a file or group; None if there is no array."""
    try:
        found = opened if dataset is None else cast("dict[str, object]", opened)[dataset]
    except KeyError:
        return None
    return found if hasattr(found, "dtype") else None


def _hdf5(package: ModuleType, file: Path, dataset: str | None) -> object:
    return _within(package.File(file, "r"), dataset)


def _zarr(package: ModuleType, file: Path, dataset: str | None) -> object:
    return _within(package.open(str(file), mode="r"), dataset)


def _arrow(package: ModuleType, file: Path, dataset: str | None) -> object:
    """Column of a table: the parts that it is stored in, as arrays on the mapped file."""
    read = importlib.import_module(f"{package.__name__}.ipc")
    table = read.open_file(package.memory_map(str(file))).read_all()
    if dataset not in table.column_names:
        return None
    # A column with nulls, or of bits, has no array without a copy: the package says so.
    parts = [part.to_numpy(zero_copy_only=True) for part in table[dataset].chunks]
    return parts[0] if len(parts) == 1 else parts


_PACKAGES: dict[str, tuple[str, Callable[[ModuleType, Path, str | None], object]]] = {
    ".h5": ("h5py", _hdf5),
    ".hdf5": ("h5py", _hdf5),
    ".nxs": ("h5py", _hdf5),
    ".zarr": ("zarr", _zarr),
    ".arrow": ("pyarrow", _arrow),
    ".feather": ("pyarrow", _arrow),
}
