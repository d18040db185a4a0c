"""Solve the models, compare with published solutions, and draw both: `python -m
examples.equilibrium`.
"""

import argparse
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import jitney

from .._steps import steps
from .._summary import Watch
from ._calibration import calibration
from ._checks import Result, jobs
from ._linear import linearise
from ._path import perfect_foresight
from ._steady import program, steady_state
from ._sweep import sweep
from ._table import table
from .models import brock_mirman, scalars, sectors

DATES = 60  # of a draw: what is left of the shock after them is 0.0002


def options() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="python -m examples.equilibrium", description=__doc__)
    parser.add_argument(
        "--draws", type=int, default=1000, help="of parameters, in the sweep (default: %(default)s)"
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        help="that share the draws, -1 for all (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/equilibrium"),
        help="folder for pictures (default: %(default)s)",
    )
    chosen = parser.parse_args()
    if chosen.draws < 1:
        parser.error("take one draw at least")
    chosen.mesh = nullcontext()
    if chosen.devices != 1:
        try:
            chosen.mesh = jitney.mesh(draw=chosen.devices)
        except jitney.errors.MeshError as error:
            parser.error(str(error))
        if chosen.draws % chosen.mesh.shape["draw"]:
            parser.error(f"{chosen.mesh.shape['draw']} devices do not divide {chosen.draws} draws")
    return chosen


def solved(console: Console) -> list[Result]:
    """All models, one after the other."""
    work, found = list(jobs()), []
    with steps(console, len(work)) as begins:
        for name, job in work:
            begins(name)
            found.append(job())
    return found


def comparisons(found: list[Result]) -> Table:
    """Comparisons, one a line."""
    words = ("model", "what", "compared with")
    out = table((*words, "apart", "limit"), words)
    for check in (check for each in found for check in each.checks):
        colour = "green" if check.passed else "red"
        out.add_row(
            check.model,
            check.what,
            check.reference,
            f"[{colour}]{check.apart:.1e}[/]",
            f"{check.limit:g}",
        )
    return out


def economy(form: str, console: Console) -> np.ndarray:
    """Calibrate the 14 sectors, solve at new parameters, walk a path. Gives capital over that of
    the steady state, by date and sector.
    """
    model, first = (
        (sectors.model(), "logK[0]") if form == "vectors" else (scalars.model(), "logK_0")
    )
    began = time.perf_counter()
    calibrated = steady_state(model, model.params, {"beta": (first, float(np.log(1.5)))})
    beta = calibrated.theta[model.parameters.index(model.name, "beta")]
    changed = (
        eqx.tree_at(lambda p: p.alpha, model.params, 0.35)
        if form == "vectors"
        else scalars.params(alpha=0.35)
    )
    steady = steady_state(model, changed)
    linear = linearise(steady)
    # a dict's variables are sorted by name
    sector = np.array([int(name.strip("logK[]_")) for name in model.layouts[1].names])
    start = steady.x + np.log(0.8 + 0.01 * sector)
    path = perfect_foresight(steady, start, np.full(steady.x.size, 0.02), 41, "stable", linear)
    seconds = time.perf_counter() - began
    console.print(
        f"14 sectors on {form}: K_0 = 1.5 needs beta = {beta:.6f}; {linear.message.split('; ')[0]};"
        f" path in {path.turns} turns; {seconds:.2f} s in all",
        highlight=False,
        soft_wrap=True,
    )
    return np.exp(path.x - steady.x)[:, np.argsort(sector)]


def draws(count: int, console: Console) -> float:
    """Steady states, Jacobians and paths for random parameters in one program; the largest error of
    a steady state.
    """
    rng = np.random.default_rng(0)
    alpha, beta = rng.uniform(0.2, 0.5, count), rng.uniform(0.8, 0.98, count)
    params, off, shock = (
        brock_mirman.Params(alpha, beta),
        brock_mirman.States(-0.5),
        brock_mirman.Shocks(0.1),
    )
    began = time.perf_counter()
    found = sweep(brock_mirman.MODEL, params, off, shock, DATES)
    first = time.perf_counter() - began
    began = time.perf_counter()
    sweep(brock_mirman.MODEL, params, off, shock, DATES)
    again = time.perf_counter() - began
    gap = float(np.max(np.abs(found.x[:, 0] - np.log(alpha * beta) / (1 - alpha))))
    gap = gap if np.all(found.converged) else np.inf
    console.print(
        f"{count:,} draws of Brock-Mirman, steady state, Jacobians and path: {first:.2f} s, again"
        f" {again:.3f} s; apart from the closed form by {gap:.1e}",
        highlight=False,
        soft_wrap=True,
    )
    return gap


def compared(watch: Watch) -> None:
    """Time a steady state of the 14 sectors as jitney's program and as plain `jax.jit` of the same
    function.
    """
    model = sectors.model()
    ours = program(model)
    plain, given = (
        jax.jit(ours.__wrapped__),
        (model.theta(model.params), calibration(model, {}), *model.guess),
    )

    def under_x64(call: Any) -> Any:
        with jax.enable_x64(True):
            return call(*given)

    watch.compare("a steady state of 14 sectors", lambda: under_x64(ours), lambda: under_x64(plain))


def main() -> int:
    """Solve, compare, draw; the exit code says whether every comparison is within its limit, 130
    that it was interrupted.
    """
    chosen, console, watch = options(), Console(), Watch()
    try:
        found = solved(console)
        console.print(comparisons(found))
        console.print("Calibrating 14 sectors, then a path of each, in two forms (about 4 s) ...")
        vectors, blocks = economy("vectors", console), economy("scalars", console)
        with chosen.mesh:
            gap = draws(chosen.draws, console)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130
    console.print("Drawing, and timing warm calls beside plain jax.jit ...")
    from ._picture import draw, draw_sectors

    for each in found:
        draw(each, chosen.out / f"{each.name}.png")
    draw_sectors(vectors, chosen.out / "sectors.png")
    compared(watch)
    watch.keep(chosen.out)
    console.print(f"Pictures: {chosen.out.resolve()}", soft_wrap=True)
    same = float(np.max(np.abs(vectors - blocks)))
    console.print(f"Paths of the two forms of the 14 sectors differ by {same:.1e} (limit 1e-10).")
    passed = all(check.passed for each in found for check in each.checks)
    return 0 if passed and same <= 1e-10 and gap <= 1e-10 else 1


if __name__ == "__main__":
    sys.exit(main())
