"""A fit of any mode, its standard errors, and what is wrong with it.

The products of each angle are summed by `jitney`, all points at once, in chunks, or from disk; what
the free parameters see of them is `_layout.py`; the steps are `examples.trf`'s. With the residuals
r and their derivatives J, each divided by the noise, the products also hold how many points there
are, and the sum of their residuals.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from ..trf import least_squares_by_products
from ..trf._fail import fail
from . import _misfit
from ._fit import CHUNK, TIGHT
from ._layout import Layout, layout
from ._measurement import Measurement
from ._modes import MODES, Mode, Physical
from .model import Points, Scalar, Setup

Sums = Callable[[np.ndarray, np.ndarray], np.ndarray]

WAYS = ("whole", "chunked", "streamed")
_RIDGE = 1e-9  # of a column's length squared, where columns depend on each other


def products(
    mode: Mode,
    physical: Physical,
    optics: Float[Array, "2"],
    sigma: Scalar,
    setup: Setup,
    phi: Scalar,
    t1: Points,
    t2: Points,
    measured: Points,
) -> Float[Array, "rows rows"]:
    """The Gram matrix of one angle: of the derivatives by all its parameters and of the residuals,
    over the noise, and of ones where there is a point.
    """
    contrast, offset = optics
    there = jnp.isfinite(measured)

    def decay(physical: Physical) -> Points:
        return mode.shape(physical, setup, phi, t1, t2)

    def along(direction: Physical) -> Points:
        return contrast * jax.jvp(decay, (physical,), (direction,))[1]

    # Not `jacfwd`: it puts the parameters last, and each product then takes half as long again.
    slopes, shape = jax.vmap(along)(jnp.eye(physical.size)), decay(physical)
    residual = offset + contrast * shape - jnp.where(there, measured, 0.0)
    rows = jnp.stack([*slopes, shape, jnp.ones_like(shape), residual]) / sigma
    rows = jnp.where(there, jnp.concatenate([rows, jnp.ones_like(shape)[None]]), 0.0)
    return rows @ rows.T


at_once = jitney.optimize(vmap="phi", precision="f64")(products)


@cache
def in_chunks(points: int, *, bar: bool = False) -> Any:
    """The same products, of so many points at a time; with a bar, the same to the bit."""
    by = {"points": points}
    return jitney.optimize(vmap="phi", precision="f64", chunk=by, progress=bar)(products)


@dataclass
class Account:
    """What summing the products took.

    Args:
        evaluations: How often all points were summed.
        chunks: Chunks that were read from disk.
        failed: Readings of these that failed, and were made again.
    """

    evaluations: int = 0
    chunks: int = 0
    failed: int = 0

    @property
    def success_rate(self) -> float:
        """The part of the readings that did not fail; 1 where nothing is read in chunks."""
        return self.chunks / (self.chunks + self.failed) if self.chunks else 1.0


@dataclass(frozen=True)
class ModeFit:
    """A result.

    Args:
        mode: Name of the mode.
        names: Of all parameters, those of the mode first.
        x: Their values, in this order.
        errors: Standard errors; 0 for one that is held, infinite for one that the data do not
            determine.
        free: Names of those that were fitted; tied ones are named once.
        covariance: Of these.
        chi2: Sum of the squares of residuals over noise.
        points: Points that were there.
        sigma: Noise of a point at each angle, given or estimated.
        reduced_by_angle: Chi squared of each angle by its points.
        evaluations: How often all points were summed.
        iterations: Steps that were tried, without the evaluation of the start.
        success: Whether a tolerance was met.
        message: Why it stopped.
        success_rate: The part of the readings of chunks that did not fail.
        notes: Of what was decided on the way.
        warnings: Of what is wrong with the fit.
        layout: What was free, for a posterior.
    """

    mode: str
    names: tuple[str, ...]
    x: np.ndarray
    errors: np.ndarray
    free: tuple[str, ...]
    covariance: np.ndarray
    chi2: float
    points: int
    sigma: np.ndarray
    reduced_by_angle: np.ndarray
    evaluations: int
    iterations: int
    success: bool
    message: str
    success_rate: float
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    layout: Layout = field(repr=False)

    @property
    def freedom(self) -> int:
        """Points less free parameters."""
        return self.points - len(self.free)

    @property
    def reduced(self) -> float:
        """Chi squared by degree of freedom; 1 for a model that is right and a known noise."""
        return self.chi2 / max(1, self.freedom)

    def value(self, name: str) -> float:
        """Of one parameter."""
        return float(self.x[self.names.index(name)])

    def error(self, name: str) -> float:
        """Of one parameter."""
        return float(self.errors[self.names.index(name)])

    def __str__(self) -> str:
        rows = [
            f"{name:16} {value:>14.8g} {'held' if not error else f'{error:.2g}':>10}"
            for name, value, error in zip(self.names, self.x, self.errors, strict=True)
        ]
        judged = (
            f"chi squared {self.chi2:.6g} for {self.freedom:,} degrees of freedom:"
            f" {self.reduced:.5g}"
        )
        took = f"{self.message} {self.evaluations} evaluations, {self.iterations} iterations."
        said = [*(f"note: {note}" for note in self.notes)]
        said += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join([self.mode, *rows, judged, took, *said])


def fit_mode(
    mode: str | Mode,
    data: Measurement,
    *,
    way: str = "whole",
    nan: str = "refuse",
    chunk: int = 4 * CHUNK,
    retries: int = 2,
    checkpoint: Path | None = None,
    checkpoint_every: int | str | None = None,
    around: Callable[[Any], Any] = lambda evaluate: evaluate,
    progress: Callable[[int, float], None] | None = None,
    bar: bool = False,
    tolerances: dict[str, Any] | None = None,
    together: Sums = lambda own, same: own,
    **parameters: Any,
) -> ModeFit:
    """Fit a mode to a measurement.

    Args:
        mode: One of `MODES`, by name.
        data: The measurement.
        way: `"whole"`, `"chunked"` or `"streamed"`.
        nan: `"mask"` leaves out points that are not finite; `"refuse"` names the first.
        chunk: Points that are read at a time, of a fit from disk; and of one in chunks, if fewer
            than `CHUNK`.
        retries: How often a chunk whose reading failed is read again; then the error names it.
        checkpoint: File from which an evaluation from disk that broke off goes on.
        checkpoint_every: How often it is written, as of `jitney.stream`.
        around: Takes the function that evaluates the products of all angles at z, and gives one
            like it, as `Journal(path, key).surroundings` does.
        progress: Called after each evaluation, with their number and the cost.
        bar: Whether a terminal shows how many chunks of an evaluation are done, and the time that
            is left of it.
        tolerances: Of `least_squares_by_products`.
        together: Sums an array over all processes of a run, each with its part of the points, as
            `Together` does; the second array is the same in all.
        parameters: Of `layout`: start, bounds, held, tied, free, by_angle.
    Raises:
        ValueError: An argument or a point is wrong; the message says which, and what to do.
        OSError: A chunk could not be read; a note names its rows.
    """
    mode = _mode_of(mode)
    own = data.checked(nan)
    plan = layout(mode, data.angles, **parameters)
    size = np.array([own, data.opened().measured.shape[1], 1.0])
    there, pairs, processes = map(int, together(size, plan.start))
    if there < plan.start.size:
        fail(
            f"There are {there} points for {plan.start.size} free parameters.",
            "A fit takes a point for each at least.",
            "hold parameters, or take more frames.",
        )
    sigma = together(data.noise(), plan.start) / processes
    account = Account()
    evaluate = evaluation(
        way,
        data,
        plan,
        sigma,
        account,
        chunk=chunk,
        retries=retries,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        bar=bar,
    )
    known: dict[bytes, np.ndarray] = {}
    kept = around(evaluate)

    def at(z: np.ndarray) -> np.ndarray:
        if z.tobytes() not in known:
            known[z.tobytes()] = together(kept(z), z)
        return known[z.tobytes()]

    start, notes = started(plan, at)

    def gram(z: np.ndarray) -> np.ndarray:
        found = at(z)
        if not np.all(np.isfinite(found)):  # a step that went too far, which is taken back
            return np.full((z.size + 1, z.size + 1), np.nan)
        return regular(plan.gathered(found))

    _check_start(plan, start, at(start))
    result = least_squares_by_products(
        gram,
        start,
        there,
        (plan.lower, plan.upper),
        progress=progress,
        **{**TIGHT, **(tolerances or {})},
    )
    found = known[result.x.tobytes()]
    covariance, undetermined = _misfit.covariance(plan, found)
    if data.sigma is None:
        covariance = covariance * max(1e-300, _chi2(found)) / max(1, there - result.x.size)
    x = plan.full(result.x)
    errors = np.sqrt(np.diag(covariance))
    return ModeFit(
        mode.name,
        plan.names,
        x,
        np.where(plan.matrix.any(axis=1), errors[np.argmax(plan.matrix, axis=1)], 0.0),
        plan.free,
        covariance,
        _chi2(found),
        there,
        sigma,
        found[:, -2, -2] / np.maximum(1.0, found[:, -1, -1]),
        account.evaluations,
        result.nfev - 1,
        result.success,
        result.message,
        account.success_rate,
        (*notes, *_misfit.masked(found, data, pairs)),
        tuple(_misfit.warnings(plan, data, result, found, undetermined)),
        plan,
    )


def _mode_of(mode: str | Mode) -> Mode:
    if isinstance(mode, Mode):
        return mode
    if mode not in MODES:
        fail(f"mode={mode!r}.", f"The modes are {', '.join(MODES)}.", "write one of these.")
    return MODES[mode]


def evaluation(
    way: str,
    data: Measurement,
    plan: Layout,
    sigma: np.ndarray,
    account: Account,
    *,
    chunk: int = 4 * CHUNK,
    retries: int = 2,
    checkpoint: Path | None = None,
    checkpoint_every: int | str | None = None,
    bar: bool = False,
) -> Callable[[np.ndarray], np.ndarray]:
    """The products of all angles as a function of z."""
    if way not in WAYS:
        fail(f"way={way!r}.", f"The ways are {', '.join(WAYS)}.", "write one of these.")
    source = data if way == "streamed" else data.opened()
    arrays = (source.t1, source.t2, source.measured)
    if way != "streamed":
        with jax.enable_x64(True):  # times are float64 where lags are short for their age
            arrays = jax.device_put(tuple(np.array(array) for array in arrays))
    phi = np.asarray(data.phi, np.float64)
    program: Any = at_once
    if way == "chunked":
        program = in_chunks(min(chunk, CHUNK), bar=bar)

    def evaluate(z: np.ndarray) -> np.ndarray:
        x = plan.full(z)
        physical, optics = x[: len(plan.mode.names)], plan.optics(x, data.angles)
        account.evaluations += 1
        with jax.enable_x64(True):
            given = (plan.mode, physical, optics, sigma, data.setup, phi)
            if way != "streamed":
                return np.asarray(program(*given, *arrays), np.float64)
            found, stats = program.stream(
                *given,
                *arrays,
                chunk={"points": chunk},
                retries=retries,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every if checkpoint else None,
                progress=bar,
            )
        account.chunks += stats.chunks
        account.failed += stats.retries
        return np.asarray(found, np.float64)

    return evaluate


def started(
    plan: Layout, evaluate: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, list[str]]:
    """z where the fit starts, and what was decided about it.

    A start from which no derivative leads away is left; contrasts and offsets that the user did not
    give are the linear least-squares ones at the start of the others.
    """
    z, notes = plan.start.copy(), []
    for pair in plan.mode.saddles:
        values = plan.full(z)[[plan.names.index(name) for name in pair]]
        loose = [name for name in pair if name in plan.free]
        if loose and not np.any(values):
            at, name = plan.free.index(loose[0]), loose[0]
            typical = plan.mode.start[plan.mode.names.index(name)]
            z[at] = np.clip(typical, plan.lower[at], plan.upper[at])
            notes.append(
                f"{' = '.join(pair)} = 0 is a saddle, for the model is even in them: the fit"
                f" started at {name} = {z[at]:g}."
            )
    products = evaluate(z) if plan.unset else np.zeros(0)
    if plan.unset and np.all(np.isfinite(products)):
        gathered = plan.gathered(products)
        linear = [plan.free.index(name) for name in plan.unset]
        inner, slope = gathered[np.ix_(linear, linear)], gathered[linear, -1]
        moved = z[linear] - np.linalg.lstsq(inner, slope, rcond=1e-12)[0]
        low, high = plan.lower[linear], plan.upper[linear]
        margin = 1e-3 * (high - low)
        z[linear] = np.clip(moved, low + margin, high - margin)
    return z, notes


def regular(gram: np.ndarray) -> np.ndarray:
    """The same matrix where it is of full rank; else with so small a ridge that only directions
    which change nothing are damped, as at beta = 0, where gamma0 and gamma_offset are one.
    """
    inner = gram[:-1, :-1]
    if not np.all(np.isfinite(gram)):
        return gram
    lengths = np.sqrt(np.diag(inner))
    typical = lengths.max() or 1.0
    lengths = np.where(lengths > 0, lengths, 1e-6 * typical)
    scaled = inner / np.outer(lengths, lengths)
    least = np.linalg.eigvalsh(scaled)[0] if scaled.size else 1.0
    if least > len(scaled) * 1e-14:
        return gram
    out = gram.copy()
    out[:-1, :-1] += np.diag(_RIDGE * lengths**2)
    return out


def _check_start(plan: Layout, z: np.ndarray, found: np.ndarray) -> None:
    if np.all(np.isfinite(found)):
        return
    angles = np.flatnonzero(~np.isfinite(found).all(axis=(1, 2)))
    values = ", ".join(f"{n} = {v:.6g}" for n, v in zip(plan.free, z, strict=True))
    fail(
        f"The model is not finite at the start, at the angles {list(map(int, angles))}: {values}.",
        "The points are finite, so it is the parameters that are too large or too small for these"
        " times.",
        "start elsewhere.",
    )


def _chi2(found: np.ndarray) -> float:
    return float(found[:, -2, -2].sum())
