"""One fit, three ways to sum its products: at once, in chunks inside one program, and read from
disk piece by piece.

Within a mesh the points lie over its devices, those of each piece from disk too: each device sums
the products of its own, and the sums are added at the end.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jitney

from ..trf import ProductsResult, least_squares_by_products
from ._data import Data
from .model import Setup, gram

START = np.array([1.3e4, -0.3, 250.0, 4e-4, -0.2, 2e-5, 0.05, 0.33, 1.01])
BOUNDS = (
    np.array([0.0, -0.99, 0.0, 0.0, -0.99, 0.0, -np.pi / 2, 0.0, 0.5]),
    np.array([1e6, 2.0, 1e5, 1.0, 2.0, 0.1, np.pi / 2, 1.0, 1.5]),
)
TIGHT = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12, "polish": 3}
CHUNK = 2**14

Products = Callable[[np.ndarray], np.ndarray]

at_once = jitney.optimize(vmap="phi", precision="f64", shard={"points": "*"}, mesh="optional")(gram)
in_chunks = jitney.optimize(vmap="phi", precision="f64", chunk={"points": CHUNK})(gram)


@dataclass(frozen=True)
class Fit:
    """A result, and how it was come by."""

    way: str
    result: ProductsResult
    seconds: float


def in_memory(data: Data, program: Any = at_once) -> Products:
    """All points at once, from arrays that are read once."""
    t1, t2, measured = (np.array(data.mapped(name)) for name in ("t1", "t2", "measured"))
    t1, t2, measured = jax.device_put((t1, t2, measured))
    return lambda vector: _summed(
        program(vector, Setup(), data.phi.astype(np.float32), t1, t2, measured)
    )


def chunked(data: Data) -> Products:
    """The same arrays, worked on in chunks."""
    return in_memory(data, in_chunks)


def streamed(
    data: Data, checkpoint: Path | None = None, chunk: int = 4 * CHUNK, progress: bool = False
) -> Products:
    """Read from disk at each evaluation; with a checkpoint an evaluation that breaks off goes on,
    on as many devices.
    """

    def products(vector: np.ndarray) -> np.ndarray:
        found = at_once.stream(
            vector=vector,
            setup=Setup(),
            phi=data.phi.astype(np.float32),
            t1=data.path("t1"),
            t2=data.path("t2"),
            measured=data.path("measured"),
            chunk={"points": chunk},
            checkpoint=checkpoint,
            progress=progress,
        )
        return _summed(found.result)

    return products


def _summed(products: Any) -> np.ndarray:
    """Over the angles."""
    return np.asarray(products, np.float64).sum(axis=0)


class Journal:
    """The products that a fit has evaluated, in a file: a fit that broke off takes the same steps,
    and evaluates what is missing.

    Args:
        path: Where.
        data: What is fitted, with the folder of a `data.json`, or words for it; a file of other
            data is put aside.
        also: What else the products depend on.
        every: The file is written after so many evaluations.
    """

    def __init__(self, path: Path, data: Any, also: str = "", every: int = 1):
        self.path, self.every, self.added = path, every, 0
        words = data if isinstance(data, str) else (data.folder / "data.json").read_text()
        described = words + also
        self.key = np.frombuffer(hashlib.sha256(described.encode()).digest(), np.uint8)
        self.known: dict[bytes, np.ndarray] = {}
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                if np.array_equal(file["key"], self.key):
                    self.known = {
                        x.tobytes(): products
                        for x, products in zip(file["x"], file["products"], strict=True)
                    }

    def surroundings(self, products: Products) -> Products:
        """The same products, looked up before they are evaluated, and kept."""

        def kept(vector: np.ndarray) -> np.ndarray:
            found = self.known.get(vector.tobytes())
            if found is None:
                found = self.known[vector.tobytes()] = products(vector)
                self.added += 1
                if self.added % self.every == 0:
                    self.write()
            return found

        return kept

    def write(self) -> None:
        """All that is known, as one file that is replaced as a whole."""
        if not self.known:
            return
        x = np.frombuffer(b"".join(self.known)).reshape(len(self.known), -1)
        buffer = io.BytesIO()
        np.savez(buffer, key=self.key, x=x, products=np.stack(list(self.known.values())))
        new = self.path.with_suffix(".new")
        new.write_bytes(buffer.getvalue())
        new.replace(self.path)

    def remove(self) -> None:
        """The fit is done."""
        self.path.unlink(missing_ok=True)


def fit(
    products: Products, data: Data, progress: Callable[[int, float], None] | None = None
) -> ProductsResult:
    """Fit the nine parameters."""
    return least_squares_by_products(
        products, START, data.points, BOUNDS, progress=progress, **TIGHT
    )
