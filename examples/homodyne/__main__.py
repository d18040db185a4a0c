"""Fit synthetic two-time correlations in memory, in chunks and from disk, and compare: `python -m
examples.homodyne`.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

import jitney

from .._summary import Watch
from . import _command
from ._data import TRUTH, Data
from ._fit import START, Fit, Journal, at_once, chunked, fit, in_memory, streamed
from ._picture import draw
from .model import NAMES, Setup, gram

AGREE = 1e-10


def options() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne",
        description=__doc__,
        epilog=f"With measured data: {', '.join(_command.COMMANDS)}; `fit --help`, for one.",
    )
    parser.add_argument(
        "--points", type=float, default=1e6, help="about how many in all (default: %(default)g)"
    )
    parser.add_argument("--angles", type=int, default=8, help="how many (default: %(default)s)")
    parser.add_argument(
        "--memory",
        help="such as 2GiB, or auto: print first which way fits into it, from compiled programs"
        " (15 s for a million points)",
    )
    parser.add_argument(
        "--only", choices=("in memory", "chunked", "streamed"), help="one way instead of all three"
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        help="that share the pieces from disk, -1 for all (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/homodyne"),
        help="folder for data and picture (default: %(default)s)",
    )
    chosen = parser.parse_args()
    chosen.points = int(chosen.points)
    if chosen.angles < 1 or chosen.points < 100 * chosen.angles:
        parser.error("take one angle at least, and 100 points for each")
    try:
        chosen.mesh = nullcontext() if chosen.devices == 1 else jitney.mesh(points=chosen.devices)
    except jitney.errors.MeshError as error:
        parser.error(str(error))
    return chosen


def made(folder: Path, points: int, angles: int, console: Console) -> Data:
    """The data, written under a progress bar if they are not there."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("writing data", total=points)
        return Data.make(
            folder, points, angles, advance=lambda count: progress.advance(task, count)
        )


def fits(
    data: Data, only: str | None, console: Console, mesh: AbstractContextManager[Any]
) -> list[Fit]:
    """Fit each way. The one from disk goes on where an earlier run broke off, and its pieces lie
    over the devices of the mesh.
    """
    journal = Journal(data.folder / "fit.npz", data)
    ways: dict[str, Callable[[], Callable[[np.ndarray], np.ndarray]]] = {
        "in memory": lambda: in_memory(data),
        "chunked": lambda: chunked(data),
        "streamed": lambda: journal.surroundings(
            streamed(data, data.folder / "products.checkpoint")
        ),
    }
    found: list[Fit] = []
    for way in [only] if only else list(ways):
        console.print(f"{way}: compiling, then about a dozen evaluations of all points")
        with console.status(way) as status, mesh if way == "streamed" else nullcontext():
            began = time.perf_counter()
            show = lambda count, cost, way=way, status=status: status.update(  # noqa: E731
                f"{way}: evaluation {count}, cost {cost:.6g}"
            )
            result = fit(ways[way](), data, show)
            found.append(Fit(way, result, time.perf_counter() - began))
        console.print(f"  {result.nfev} evaluations, {found[-1].seconds:.1f} s", highlight=False)
    journal.remove()
    return found


def table(found: list[Fit]) -> Table:
    """True and fitted values, a parameter a line, and how far apart the ways are."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (
        "parameter",
        "true",
        "fitted",
        "std. error",
        "(fitted - true) / error",
        "ways apart, relative",
    ):
        out.add_column(name, justify="left" if name == "parameter" else "right")
    last, gaps = found[-1].result, apart(found)
    for i, name in enumerate(NAMES):
        z = (last.x[i] - TRUTH[i]) / last.errors[i]
        out.add_row(
            name,
            f"{TRUTH[i]:g}",
            f"{last.x[i]:.8g}",
            f"{last.errors[i]:.2g}",
            f"{z:+.2f}",
            f"{gaps[i]:.1e}",
        )
    return out


def apart(found: list[Fit]) -> np.ndarray:
    """The largest relative difference between two fits, for each parameter."""
    x = np.array([each.result.x for each in found])
    return np.ptp(x, axis=0) / np.abs(x).max(axis=0)


def main() -> int:
    """A command of `_command.py`, or the demonstration."""
    if sys.argv[1:2] and sys.argv[1] in _command.COMMANDS:
        return _command.main(sys.argv[1:])
    return demonstrate()


def demonstrate() -> int:
    """Make the data, fit, compare and draw; the exit code says whether all ways agree, 130 that it
    was interrupted.
    """
    chosen, console, watch = options(), Console(), Watch()
    data = made(
        chosen.out / f"{chosen.points}-{chosen.angles}", chosen.points, chosen.angles, console
    )
    console.print(
        f"{data.points:,} points: {data.angles} angles, all pairs of {data.frames:,} frames, in"
        f" {data.folder}",
        soft_wrap=True,
    )
    if chosen.memory:
        console.print("Compiling to see which way fits ...")
        console.print(strategy(data, chosen.memory))
    try:
        found = fits(data, chosen.only, console, chosen.mesh)
    except KeyboardInterrupt:
        console.print(
            "Interrupted. The fit from disk goes on from there if the same command is given again."
        )
        return 130
    console.print(table(found))
    for each in found:
        console.print(
            f"{each.way:10} {each.seconds:7.2f} s, {each.result.nfev} evaluations, cost"
            f" {each.result.cost:.12g}",
            highlight=False,
        )
    difference = apart(found).max()
    if len(found) > 1:
        console.print(
            f"Largest relative difference between the ways: {difference:.1e} (limit {AGREE:g})."
        )
    console.print("Drawing, and timing warm calls beside plain jax.jit ...")
    draw(data, found[-1].result.x, chosen.out / "fit.png")
    if chosen.only != "streamed":
        compared(watch, data)
    watch.keep(chosen.out)
    console.print(f"Picture: {(chosen.out / 'fit.png').resolve()}", soft_wrap=True)
    return 0 if difference <= AGREE and all(each.result.success for each in found) else 1


def compared(watch: Watch, data: Data) -> None:
    """Time the sums of products of all points as jitney's program and as plain `jax.jit` of the
    same function, mapped by hand.
    """
    t1, t2, measured = jax.device_put(
        tuple(np.array(data.mapped(name)) for name in ("t1", "t2", "measured"))
    )
    phi = data.phi.astype(np.float32)

    def products(vector: Any, phi: Any, t1: Any, t2: Any, measured: Any) -> Any:
        vector, phi, t1, t2, measured = (
            x.astype(np.float64) for x in (vector, phi, t1, t2, measured)
        )
        return jax.vmap(lambda phi, measured: gram(vector, Setup(), phi, t1, t2, measured))(
            phi, measured
        )

    plain = jax.jit(products)

    def under_x64() -> Any:
        with jax.enable_x64(True):
            return plain(START, phi, t1, t2, measured)

    watch.compare(
        f"products of {data.points:,} points",
        lambda: at_once(START, Setup(), phi, t1, t2, measured),
        under_x64,
        rtol=1e-5,
    )


def strategy(data: Data, memory: str) -> jitney.types.Strategy:
    """What the sizes at hand take, by the compiler."""
    times = jax.ShapeDtypeStruct((data.pairs,), np.float32)  # which all angles share
    measured = jax.ShapeDtypeStruct((data.angles, data.pairs), np.float32)
    return jitney.analysis.strategy(
        at_once,
        np.zeros(9),
        Setup(),
        data.phi.astype(np.float32),
        times,
        times,
        measured,
        sizes={"points": data.pairs, "phi": data.angles},
        memory=memory,
    )


if __name__ == "__main__":
    sys.exit(main())
