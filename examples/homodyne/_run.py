"""One fit from its configuration to its results, and on from where it was stopped."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import jitney

from . import _output, _posterior
from ._compared import compare
from ._config import Config
from ._fit import Journal
from ._layout import Layout, layout
from ._log import Log
from ._measurement import Measurement
from ._mode_fit import ModeFit, fit_mode
from ._posterior import Posterior, posterior
from ._prepare import Prepared, prepare
from ._strategy import FEW, chosen
from .model import Setup

USUAL = (10, 30)  # evaluations of a fit from a fair start
PASS, MARK = "pass.checkpoint", "pass.of"  # of a pass from disk that broke off
LONG = 10.0  # seconds that are left, from which on it is said
COMPILED = 30.0  # seconds of an evaluation of which compiling is a small part


def run(config: Config, log: Log, *, fresh: bool = False) -> bool:
    """Fit, and write what came out; whether it converged.

    Args:
        config: What.
        log: What is said, and kept.
        fresh: Whether to begin again, whatever was stopped.
    """
    began = time.perf_counter()
    folder = config.at(config["checkpoint"]["folder"])
    out = config.at(config["output"]["folder"])
    log.say(
        f"{config.path}: {config.mode.name}; jitney {jitney.__version__}, jax {jax.__version__}"
    )
    if fresh:
        _forget(folder)
    if config["posterior"]["chains"]:
        _posterior.nuts()  # a missing package is said before the fit
    data = _prepared(config, folder / "data", log)
    measurement = _measurement(config, data)
    plan = layout(config.mode, data.angles, **_parameters(config))
    way, why, chunk = _way(config, measurement, plan, data)
    log.say(f"strategy: {way} ({why})")
    if way == "streamed" and config["posterior"]["chains"]:
        parts = config["posterior"]["parts"]
        log.say(
            f"note: the posterior is not streamed: it holds {_held(measurement) / parts:.3g} GiB of"
            f" points in memory, a part of {parts} at a time; [posterior] `parts` divides them",
            style="yellow",
        )
    journal = _journal(config, folder, data, (way, chunk))
    if journal.known:
        log.say(f"going on from {folder}: {len(journal.known)} evaluations are known")
    reading = time.perf_counter() - began
    watch = _Watch(log, journal, config["fit"]["max_evaluations"])
    try:
        fit = fit_mode(
            config.mode,
            measurement,
            way=way,
            nan="mask",
            chunk=chunk,
            retries=config["fit"]["retries"],
            checkpoint=folder / PASS if way == "streamed" else None,
            checkpoint_every=config["checkpoint"]["within"],
            around=lambda evaluate: journal.surroundings(_own_pass(evaluate, folder, journal)),
            progress=watch,
            bar=log.seen and data.points > FEW,
            tolerances=_tolerances(config),
            **_parameters(config),
        )
    finally:
        journal.write()
    took = {
        "strategy": way,
        "why": why,
        "evaluations": fit.evaluations,
        "evaluations_from_checkpoint": len(journal.known) - journal.added,
        "seconds_reading": reading,
        "seconds_fitting": time.perf_counter() - began - reading,
    }
    drawn = _drawn(config, measurement, fit, log)
    _written(config, out, data, measurement, fit, took, drawn)
    _told(log, fit, out)
    if drawn is not None:
        log.say(f"posterior, {drawn.draws.shape[0]} chains of {drawn.draws.shape[1]} draws:")
        for name, mean, deviation in zip(drawn.names, drawn.mean, drawn.deviation, strict=True):
            own = [_output.scaled(name, each) for each in (mean, deviation)]
            log.say(f"{name:16} {own[0]:>14.8g} {own[1]:>11.2g}  {_output.unit(name)}".rstrip())
        for warning in drawn.warnings:
            log.say(f"warning: {warning}", style="yellow")
    return fit.success


def _forget(folder: Path) -> None:
    """Remove what a stopped fit left; other files of the folder stay."""
    names = ("evaluations.npz", PASS, MARK)
    found = [folder / name for name in names]
    found += [folder / "data" / n for n in ("data.json", "t1.npy", "t2.npy", "measured.npy")]
    for path in found:
        path.unlink(missing_ok=True)


def _prepared(config: Config, folder: Path, log: Log) -> Prepared:
    choice = config.choice
    log.say(f"reading {choice.file}")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=log.console, transient=True, disable=not log.seen) as progress:
        task = progress.add_task("maps", total=None)
        data = prepare(
            choice, folder, lambda done, of: progress.update(task, completed=done, total=of)
        )
    log.say(
        f"{data.points:,} points: {data.angles} angles, {len(data.frames):,} frames of"
        f" {data.frames[0]} to {data.frames[-1]}, {data.frame_time:g} s apart, q = {data.q:g} per"
        f" Angstrom;"
        f" layout {data.layout}"
    )
    for note in data.notes:
        log.say(f"note: {note}", style="yellow")
    return data


def _measurement(config: Config, data: Prepared) -> Measurement:
    sigma = config["data"]["sigma"]
    return Measurement(
        data.path("t1"),
        data.path("t2"),
        data.path("measured"),
        np.radians(data.phi),
        Setup(data.q, config["instrument"]["gap"]),
        None if sigma is None else np.asarray(sigma, float),
    )


def _held(data: Measurement) -> float:
    """GiB of all points and their times."""
    arrays = data.opened()
    return sum(each.nbytes for each in (arrays.t1, arrays.t2, arrays.measured)) / 2**30


def _parameters(config: Config) -> dict[str, Any]:
    return {**config.parameters, "by_angle": config["fit"]["by_angle"]}


def _tolerances(config: Config) -> dict[str, Any]:
    fit = config["fit"]
    return {
        **{name: fit[name] for name in ("ftol", "xtol", "gtol", "polish")},
        "max_nfev": fit["max_evaluations"],
    }


def _way(
    config: Config, data: Measurement, plan: Layout, prepared: Prepared
) -> tuple[str, str, int]:
    asked, chunk = config["fit"]["strategy"], config["fit"]["chunk"]
    if asked != "auto":
        return asked, "as the configuration says", chunk
    way, why, fitting = chosen(data, plan, prepared.points, config["fit"]["memory"])
    return way, why, min(chunk, fitting or chunk)


def _journal(config: Config, folder: Path, data: Prepared, way: tuple[str, int]) -> Journal:
    """Of all that the products depend on, to their last bits; tolerances are not of these."""
    of = (
        config.mode.name,
        way,
        _parameters(config),
        config["instrument"],
        config["data"]["sigma"],
        jitney.__version__,
        jax.__version__,
    )
    also = hashlib.sha256(repr(of).encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    every = config["checkpoint"]["every"]
    return Journal(folder / "evaluations.npz", data, also=also, every=every)


def _own_pass(
    evaluate: Callable[[np.ndarray], np.ndarray], folder: Path, journal: Journal
) -> Callable[[np.ndarray], np.ndarray]:
    """The same, where the checkpoint of a pass of other parameters, or of another fit, is put
    aside: it would be refused.
    """

    def own(z: np.ndarray) -> np.ndarray:
        mark, of = folder / MARK, journal.key.tobytes() + z.tobytes()
        if not mark.exists() or mark.read_bytes() != of:
            (folder / PASS).unlink(missing_ok=True)
            mark.write_bytes(of)
        return evaluate(z)

    return own


class _Watch:
    """Says how far a fit is, after each evaluation, and how long more of them would take. How many
    it will be nobody knows before.
    """

    def __init__(self, log: Log, journal: Journal, limit: int):
        self.log, self.journal, self.added, self.limit = log, journal, 0, limit
        self.before = time.perf_counter()

    def __call__(self, count: int, cost: float) -> None:
        now = time.perf_counter()
        seconds, self.before = now - self.before, now
        added, self.added = self.added, self.journal.added
        if added == self.added:
            self.log.keep(f"evaluation {count}: known, cost {cost:.10g}")
            return
        text = f"evaluation {count}: cost {cost:.10g}, {seconds:.2f} s"
        each = seconds / (self.added - added)  # before the first, contrast and offset are found
        if added == 0:
            text += ", with compiling"
        if added or each > COMPILED:
            text += left(count, each, self.limit)
        self.log.say(text)


def left(count: int, seconds: float, limit: int) -> str:
    """Words for the time that more evaluations take.

    Args:
        count: How many were made.
        seconds: What the last one took.
        limit: How many there may be.
    """
    few, many = (max(0, min(usual, limit) - count) for usual in USUAL)
    if many:
        if many * seconds <= LONG:
            return ""
        return f"; fits take {USUAL[0]} to {USUAL[1]}: {few} to {many} more are" + (
            f" {duration(few * seconds)} to {duration(many * seconds)}"
        )
    rest = limit - count
    return f"; {rest} more, at which it stops, are {duration(rest * seconds)}" if rest > 0 else ""


def duration(seconds: float) -> str:
    """In the unit that fits."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _drawn(config: Config, data: Measurement, fit: ModeFit, log: Log) -> Posterior | None:
    """The posterior, if it is asked for."""
    asked = config["posterior"]
    if not asked["chains"]:
        return None
    log.say("drawing from the posterior")
    began = time.perf_counter()

    def drew(done: int, of: int) -> None:
        each = (time.perf_counter() - began) / done
        more = f"; {of - done} more are about {duration((of - done) * each)}" if done < of else ""
        log.say(f"chain {done} of {of} is drawn, {duration(each)} each{more}")

    return posterior(fit, data, **asked, priors=config.priors, progress=drew)


def _written(
    config: Config,
    out: Path,
    data: Prepared,
    measurement: Measurement,
    fit: ModeFit,
    took: dict[str, Any],
    drawn: Posterior | None,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    step = data.frame_time * config["data"]["every"]
    found = compare(measurement, fit, config.mode, step)
    content = _output.summary(config, data, fit, took, found, drawn)
    _output.write_json(out / "result.json", content)
    if config["output"]["hdf5"]:
        _output.write_hdf5(out / "result.h5", content, fit, found, drawn)
    if config["output"]["pictures"]:
        from . import _pictures

        title = f"{Path(data.source).name}: {config.mode.name}, {fit.points:,} points"
        _pictures.maps(found, data.phi, title, out / "maps.png")
        _pictures.by_angle(found, fit, data.phi, title, out / "by_angle.png")


def _told(log: Log, fit: ModeFit, out: Path) -> None:
    """The parameters, and what is wrong with them."""
    log.say(f"{'parameter':16} {'value':>14} {'std. error':>11}")
    for name, value, error in zip(fit.names, fit.x, fit.errors, strict=True):
        own = [_output.scaled(name, each) for each in (value, error)]
        shown = f"{own[1]:.2g}" if name in fit.free or error else "held"
        log.say(f"{name:16} {own[0]:>14.8g} {shown:>11}  {_output.unit(name)}".rstrip())
    log.say(
        f"chi squared by degree of freedom {fit.reduced:.5g}; {fit.evaluations} evaluations in this"
        f" run; {fit.message}"
    )
    for note in fit.notes:
        log.say(f"note: {note}")
    for warning in fit.warnings:
        log.say(f"warning: {warning}", style="yellow")
    log.say(f"results: {out.resolve()}")
