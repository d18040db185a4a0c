"""Data of every kind that a stream reads, and runs that are broken off."""

import os
from pathlib import Path

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, stream
from jitney._stream.resume import Checkpoint
from tests.stream.test_stream import Chunks, Sliceable, archive, in_zarr, saved

F = np.float32


@optimize
def mean(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(x)


@optimize
def variance(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.var(x)


class Stops(BaseException):
    """The run is broken off."""


def hdf5(x, folder):
    path = folder / f"{len(list(folder.glob('*.h5')))}.h5"
    with h5py.File(path, "w") as file:
        file["data"] = x
    return h5py.File(path, "r")["data"]


def mapped(x, folder):
    return np.load(saved(x, folder), mmap_mode="r")


def in_a_folder(x, folder):
    import zarr  # here, since importing it is slow

    return zarr.create_array(str(folder / "z"), data=x, chunks=(8,), overwrite=True)


def in_chunk_files(x, folder):
    import zarr  # here, since importing it is slow

    own = {"chunks": (6,), "compressors": None, "overwrite": True}
    return zarr.create_array(str(folder / "f"), data=x, **own)


SOURCES = {
    "NumPy": lambda x, folder: x.copy(),
    "device": lambda x, folder: jnp.asarray(x),
    "memory map": mapped,
    "path": saved,
    "parts": lambda x, folder: [x[:30].copy(), x[30:].copy()],
    "paths": lambda x, folder: [saved(x[:30], folder, "a"), saved(x[30:], folder, "b")],
    "sliceable": lambda x, folder: Sliceable(x.copy()),
    "HDF5": hdf5,
    "Zarr": in_a_folder,
    "chunk files": in_chunk_files,
    "Zarr in memory": lambda x, folder: in_zarr(x, (8,)),
    "npz": lambda x, folder: archive(x[:, None], folder, np.savez),
    "compressed npz": lambda x, folder: archive(x[:, None], folder, np.savez_compressed),
    "chunks": lambda x, folder: Chunks(x.copy(), 7),
}


def breaks_off(monkeypatch, program, data, path, after):
    """Run until so many chunks are done and written."""
    reached, times = Checkpoint.save_if_due, []

    def stop(self, progress):
        reached(self, progress)
        times.append(1)
        if len(times) == after:
            raise Stops

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save_if_due", stop)
        with pytest.raises(Stops):
            stream(
                program, **data, chunk={"n": 8}, checkpoint=path, checkpoint_every=1, progress=False
            )


def of_rows(program, kind):
    """`npz` sources hold columns, as their helper names them."""
    if "npz" not in kind:
        return program

    @optimize
    def of_column(x: Float[Array, "n 1"]) -> Float[Array, ""]:
        return program(x[:, 0])

    return of_column


def age(folder):
    """Files that nobody has written for long."""
    for path in Path(folder).rglob("*"):
        os.utime(path, (1, 1))


class Iterations:
    """Each iteration gives the next of these, the last one again and again."""

    def __init__(self, *contents):
        self.contents, self.times = contents, 0

    def __iter__(self):
        self.times += 1
        return iter(self.contents[min(self.times, len(self.contents)) - 1])
