"""The second process that runs a program: the gradient of a neural ODE, solved by diffrax.

Today it is `jax.jit` with JAX's own persistent cache, set to keep every program: the compiled code
is found, but the function is traced and lowered again. By hand one keeps the compiled executable in
a file, which is of this jaxlib and this machine, and sees to it oneself that it is still the same
function. `cache="program"` finds all, and looks first at all that the trace had read.
"""

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BEGAN = time.perf_counter()  # before the imports, which are a part of a start

import diffrax  # noqa: E402
import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import serialize_executable  # noqa: E402

from .._timing import assert_equal  # noqa: E402
from ._gain import Gain, Line  # noqa: E402
from ._process import run  # noqa: E402


class Field(eqx.Module):
    """A vector field that is a network."""

    mlp: eqx.nn.MLP

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        """The slope at a state."""
        return self.mlp(y)


def loss(field: Field, starts: Any) -> Any:
    """The mean square of where trajectories end."""

    def end(y: Any) -> Any:
        term, solver = diffrax.ODETerm(field), diffrax.Heun()
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.1, y, throw=False).ys

    return jnp.mean(jax.vmap(end)(starts) ** 2)


def data() -> tuple[Field, np.ndarray]:
    """A field and sixteen starts."""
    starts = np.random.default_rng(0).normal(size=(16, 2)).astype(np.float32)
    return Field(eqx.nn.MLP(2, 2, 16, 1, key=jax.random.key(0))), starts


def plain(folder: Path) -> Callable[..., Any]:
    """`jax.jit`, as Equinox has it for modules."""
    return eqx.filter_jit(eqx.filter_grad(loss))


def by_hand(folder: Path) -> Callable[..., Any]:
    """A compiled executable, which the first process writes."""
    file = folder / "gradient.pickle"

    def gradient(field: Field, starts: Any) -> Any:
        arrays, rest = eqx.partition(field, eqx.is_array)
        leaves, tree = jax.tree.flatten(arrays)
        if not file.exists():

            def flat(leaves: list[Any], starts: Any) -> list[Any]:
                field = eqx.combine(jax.tree.unflatten(tree, leaves), rest)
                return jax.tree.leaves(eqx.filter_grad(loss)(field, starts))

            compiled = jax.jit(flat).lower(leaves, starts).compile()
            file.write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
        written = pickle.loads(file.read_bytes())  # noqa: S301 - this process's own file
        return serialize_executable.deserialize_and_load(*written)(leaves, starts)

    return gradient


def program(folder: Path) -> Callable[..., Any]:
    """A program of jitney's cache."""
    import jitney

    return jitney.optimize(cache="program")(eqx.filter_grad(loss))


SIDES = {"jax.jit": plain, "by hand": by_hand, "jitney": program}


def one(side: str, folder: Path) -> None:
    """The start of this process. Its result is in the folder."""
    given, made = data(), SIDES[side](folder)
    jax.block_until_ready(jnp.sin(jnp.ones(3)))
    begin = time.perf_counter()
    found = jax.block_until_ready(jax.tree.leaves(made(*given)))
    end = time.perf_counter()
    np.savez(folder / "result.npz", *(np.asarray(each) for each in found))
    print(json.dumps({"call": end - begin, "whole": end - BEGAN}))


def start(side: str, folder: Path) -> dict[str, float]:
    """A process with its cache in the folder. JAX's keeps every program, however short its
    compile.
    """
    settings = {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JITNEY_CACHE": "on",
        "JITNEY_CACHE_DIR": str(folder),
    }
    if side != "jitney":
        settings["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    return run("starts", side, str(folder), **settings)


def measure() -> Gain:
    """Fill the folders, start again from each, and compare."""
    with tempfile.TemporaryDirectory() as base:
        folders = {side: Path(base) / side.replace(" ", "-") for side in SIDES}
        for folder in folders.values():
            folder.mkdir(mode=0o700)
        with ThreadPoolExecutor() as pool:  # nothing is timed here
            list(pool.map(start, folders, folders.values()))
        found = {}
        for side, folder in folders.items():
            print(f"    second process: {side}", flush=True)
            found[side] = start(side, folder)
        results = {}
        for side, folder in folders.items():
            with np.load(folder / "result.npz") as file:
                results[side] = list(file.values())
    assert_equal(results, rtol=1e-4, atol=1e-6)
    return Gain(
        "starts",
        "a second process with the same program",
        "jax.jit with JAX's persistent cache, which keeps every program",
        "the executable in a file, for this machine alone; nothing looks whether it is out of date",
        'cache="program", which looks at all that the trace had read',
        "gradients to 1e-4, in float32",
        (
            Line("first call, s", *(each["call"] for each in found.values())),
            Line("first import to result, s", *(e["whole"] for e in found.values())),
        ),
    )


if __name__ == "__main__":
    one(sys.argv[1], Path(sys.argv[2]))
