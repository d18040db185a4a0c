"""`stream config.toml`: run the stream that a file describes, and write its result.

Ctrl-C and SIGTERM, which a cluster sends before it kills, end the run with a checkpoint. The same
command goes on from it, to the same bits.

Files with several arrays are opened by the packages that read them, which are imported here alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import importlib.util
import io
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType, ModuleType
from typing import cast

import numpy as np

from ..._errors import OptionError, name_fix
from ..._host.atomic_files import replace_file
from ..._interface.program import Program
from ..._jax.trees import is_number, keystr, tree_flatten_with_path
from ..._jax.typed import NumPyArray
from ..._report.streamed import Streamed
from ..._signature.hints import ArrayHint
from ..._stream.stream import stream
from ..bench.parsing import WHERE
from ..bench.target import find
from .config import DataFiles, StreamConfig, read
from .keys import template

_WHERE = "python -m jitney stream"
# As a shell counts: 128 and the number of the signal.
_STOPPED = {"Ctrl-C": 130, "SIGTERM": 143}


def carry_out(given: argparse.Namespace) -> int:
    """Print the template, or run the stream."""
    if given.template:
        sys.stdout.write(template())
        return 0
    if given.file is None:
        raise OptionError(
            _WHERE,
            "it has no file.",
            "A stream is described by a file in TOML.",
            f"{_WHERE} --template > config.toml, and fill it in.",
            code="J205",
        )
    config = read(Path(given.file))
    program = program_of(config)
    arguments = arguments_of(config, program)
    _prepare(config)
    with _terminated_as_interrupted() as why:
        try:
            result = stream(
                program,
                chunk=config.chunk,
                checkpoint=config.checkpoint,
                checkpoint_every=None if config.checkpoint is None else config.every,
                retries=config.retries,
                progress=config.progress,
                **arguments,
            )
        except KeyboardInterrupt:
            sys.stderr.write(f"\nStopped by {why[0]}. {_what_next(config)}\n")
            return _STOPPED[why[0]]
        _write(config, result)
    return 0


def _prepare(config: StreamConfig) -> None:
    """See before the run that its files can be written."""
    folders = [("output", "file", config.output.parent)]
    if config.checkpoint is not None:
        folders.append(("checkpoint", "folder", config.checkpoint.parent))
    for section, key, folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise config.lines.wrong(
                section,
                key,
                f"{str(folder)!r} cannot be written ({error.strerror}).",
                "The result of a long run would be lost.",
                "name a folder that can.",
            ) from None
    if config.checkpoint is not None and not config.resume:
        config.checkpoint.unlink(missing_ok=True)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Generator[list[str]]:
    """Raise `KeyboardInterrupt` at SIGTERM too, and note which it was."""
    why = ["Ctrl-C"]

    def terminated(number: int, frame: FrameType | None) -> None:
        why[0] = "SIGTERM"
        raise KeyboardInterrupt

    # Python sets handlers in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield why
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield why
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_next(config: StreamConfig) -> str:
    if config.checkpoint is None or not config.checkpoint.exists():
        return "Nothing is stored: [checkpoint] names a folder, and a first chunk has to be done."
    return f"The same command goes on from {config.checkpoint}."


def _write(config: StreamConfig, streamed: Streamed[object]) -> None:
    """Write the arrays of the result, by their places in it."""
    leaves = [
        (path, leaf)
        for path, leaf in tree_flatten_with_path(streamed.result)[0]
        if hasattr(leaf, "dtype") or is_number(leaf)
    ]
    places = [keystr(path) for path, _ in leaves]
    # `['loss'][0]` is `loss.0`, unless two places would have one name.
    dotted = [re.sub(r"[\[\]'.]+", ".", place) for place in places]
    names = [name.strip(".") or "result" for name in dotted]
    if len(set(names)) < len(names):
        names = places
    arrays: dict[str, NumPyArray] = {}
    for name, (_, leaf) in zip(names, leaves, strict=True):
        arrays[name] = np.asarray(leaf)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    replace_file(config.output, content.getvalue(), durable=True)
    sys.stdout.write(f"{streamed.stats}\n{config.output}: {', '.join(arrays) or 'no arrays'}\n")


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
