"""Streams beside the speed of memory, over files in the system's cache.

    python -m tests.perf.stream_speed [--mib 160] [--first]

The floor of each row reads all bytes once and does no more: `np.load(path, mmap_mode="r").sum()`, of
each file. Of the product, which computes far longer than it reads, it is the product of the mapped
file by NumPy. Beside it the same function by `jax.jit` on arrays that are in memory already, and the loop
that one writes by hand: a chunk of 4 MiB at a time is copied into one buffer and goes through one
compiled step. The stream runs with `checkpoint=` too, with nothing saved yet. Results are compared
first; the sides take turns, and a figure is a median of 15, a ratio the median of 15 ratios.

Of Arrow it is a column of an uncompressed IPC file that is mapped into memory, which takes `pyarrow`.

`--first` measures the first run of a function instead: CPU time of the loop by hand and of the
stream, each in a process of its own that has run a small program of `jax.jit` before; of the stream
also where another function was streamed before, so that its modules are there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import zarr
from jaxtyping import Array, Float

import jitney
from examples._figures import record

ROUNDS = 15
FIRSTS = 5
COLUMNS_OF_TABLE = ("floor", "in memory", "by hand", "stream", "kept", "of floor", "of stream")
COLUMNS = 64
CHUNK_BYTES = 4 * 2**20


@jitney.optimize
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


@jitney.optimize
def totals(
    a: Float[Array, "n"],
    b: Float[Array, "n"],
    c: Float[Array, "n"],
    d: Float[Array, "n"],
    e: Float[Array, "n"],
) -> Float[Array, ""]:
    return jnp.sum(a + b + c + d + e)


@jitney.optimize
def squares(x: Float[Array, "n k"]) -> Float[Array, "k k"]:
    return x.T @ x


def summed(x: np.ndarray[Any, Any]) -> object:
    return x.sum()


def multiplied(x: np.ndarray[Any, Any]) -> object:
    return x.T @ x


def by_hand(body: Callable[..., Any], arrays: list[np.ndarray[Any, Any]]) -> Callable[[], object]:
    step = jax.jit(lambda carry, *parts: carry + body(*parts))
    shape = jax.eval_shape(body, *arrays)
    rows = CHUNK_BYTES // sum(x.nbytes // len(x) for x in arrays)
    buffers = [
        np.empty((rows, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype)) for x in arrays
    ]

    def run() -> object:
        carry = np.zeros(shape.shape, shape.dtype)
        for start in range(0, len(arrays[0]), rows):
            parts = [x[start : start + rows] for x in arrays]
            for buffer, part in zip(buffers, parts, strict=True):
                buffer[: len(part)] = part
            filled = [buffer[: len(parts[0])] for buffer in buffers]
            carry = jax.block_until_ready(step(carry, *filled))
        return carry

    return run


def arrow_column(x: np.ndarray[Any, Any], path: Path) -> Any:
    """An array on a mapped file, in one piece; None without the package."""
    if importlib.util.find_spec("pyarrow") is None:
        return None
    arrow: Any = importlib.import_module("pyarrow")
    ipc: Any = importlib.import_module("pyarrow.ipc")
    table = arrow.table({"x": x})
    with arrow.OSFile(str(path), "wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (column,) = ipc.open_file(arrow.memory_map(str(path))).read_all()["x"].chunks
    return column.to_numpy(zero_copy_only=True)


def cases(folder: Path, size: int) -> dict[str, tuple[Any, list[Any], list[Path], bool]]:
    """Name of a row: the program, what it reads, files of the same bytes, and whether in float64."""
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(size, np.float32)
    parts = plain.reshape(5, -1)
    wide = plain[: size // 2].astype(np.float64)
    table = plain.reshape(-1, COLUMNS)
    paths: dict[str, Path] = {}
    of_parts = {f"part {i}": part for i, part in enumerate(parts)}
    for name, x in {"plain": plain, "wide": wide, "table": table, **of_parts}.items():
        paths[name] = folder / f"{name}.npy"
        np.save(paths[name], x)
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = plain
    dataset = h5py.File(folder / "x.h5", "r")["x"]
    blocks = zarr.create_array(
        str(folder / "x.zarr"), data=plain, chunks=(CHUNK_BYTES // 4,), compressors=None
    )
    five = [paths[name] for name in of_parts]
    return {
        "sum, .npy": (total, [paths["plain"]], [paths["plain"]], False),
        "sum of five .npy": (totals, list(five), five, False),
        "sum in float64, .npy": (total, [paths["wide"]], [paths["wide"]], True),
        "sum of float64 in float32": (total, [paths["wide"]], [paths["wide"]], False),
        "x.T @ x, .npy": (squares, [paths["table"]], [paths["table"]], False),
        "sum, HDF5": (total, [dataset], [paths["plain"]], False),
        "sum, Zarr": (total, [blocks], [paths["plain"]], False),
        "sum, Arrow": (
            total,
            [arrow_column(plain, folder / "x.arrow")],
            [paths["plain"]],
            False,
        ),
    }


def measure(program: Any, data: list[Any], files: list[Path]) -> dict[str, float]:
    """Milliseconds of each side, after their results were found equal, and two ratios."""
    checkpoint = files[0].with_name("run")
    arrays = [np.load(path, mmap_mode="r") for path in files]
    whole, jitted = [jnp.asarray(x) for x in arrays], jax.jit(program.body)
    floor = multiplied if program is squares else summed
    sides: dict[str, Callable[[], object]] = {
        "floor": lambda: [floor(np.load(path, mmap_mode="r")) for path in files],
        "memory": lambda: jax.block_until_ready(jitted(*whole)),
        "hand": by_hand(program.body, arrays),
        "stream": lambda: program.stream(*data, progress=False).result,
        "kept": lambda: program.stream(*data, progress=False, checkpoint=checkpoint).result,
    }
    want = np.asarray(sides["memory"](), np.float64)
    for side in ("hand", "stream", "kept"):
        got = np.asarray(sides[side](), np.float64)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    row = {name: 1e3 * float(np.median(taken)) for name, taken in seconds.items()}
    for name, side, beside in (("of_floor", "stream", "floor"), ("of_stream", "kept", "stream")):
        row[name] = float(np.median(np.divide(seconds[side], seconds[beside])))
    return row


def first(side: str, path: Path) -> float:
    """CPU seconds of the first run of one side, in this process."""
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(3)))
    x = np.load(path, mmap_mode="r")
    if side == "second":
        squares.stream(np.ones((8, 2), np.float32), chunk={"n": 4}, progress=False)
    start = time.process_time()
    if side == "hand":
        got = by_hand(total.body, [x])()
    else:
        got = total.stream(path, progress=False).result
    seconds = time.process_time() - start
    np.testing.assert_allclose(np.asarray(got), x.sum(), rtol=1e-3, atol=20)
    return seconds


def measure_first(size: int) -> None:
    found: dict[str, list[float]] = {"hand": [], "stream": [], "second": []}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "x.npy"
        np.save(path, np.random.default_rng(0).standard_normal(size, np.float32))
        for _ in range(FIRSTS):
            for side, seconds in found.items():
                command = [sys.executable, "-m", "tests.perf.stream_speed"]
                command += ["--side", side, "--path", str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds.append(float(done.stdout.split()[-1]))
    hand, streamed, second = (float(np.median(taken)) for taken in found.values())
    print(
        f"first run, CPU: by hand {hand:.3f} s; stream {streamed:.3f} s, {streamed / hand:.2f} times;"
        f" of a second function {second:.3f} s, {second / hand:.2f} times"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mib", type=int, default=160, help="of each row (default: %(default)s)")
    parser.add_argument("--first", action="store_true", help="measure the first run instead")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = options.mib * 2**20 // 4 // (5 * COLUMNS) * 5 * COLUMNS
    if options.side:
        print(first(options.side, options.path))
        return
    if options.first:
        measure_first(size)
        return
    found: dict[str, dict[str, float]] = {}
    print(f"{'ms':26}", *(f"{title:>10}" for title in COLUMNS_OF_TABLE))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for name, (program, data, files, wide) in cases(Path(folder), size).items():
            if data[0] is None:
                print(f"{name:26} not installed")
                continue
            with jax.enable_x64(wide):
                row = found[name] = measure(program, data, files)
            print(f"{name:26}", *(f"{figure:10.2f}" for figure in row.values()), flush=True)
    record(ms=found)


if __name__ == "__main__":
    main()
