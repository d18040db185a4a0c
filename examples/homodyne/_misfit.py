"""What is wrong with a fit: the noise does not explain the residuals, parameters are not
determined, or lie where the physics ends.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..trf import ProductsResult
from . import _heterodyne
from ._layout import Layout
from ._measurement import Measurement

if TYPE_CHECKING:
    from ._modes import Mode

SIGNIFICANT = 5.0  # standard deviations of chi squared
NOTABLE = 1.02  # of chi squared by degree of freedom, which noise is never known better than
_NULL = 1e-13  # eigenvalue, by their number, of products of columns of length 1


def covariance(plan: Layout, found: np.ndarray) -> tuple[np.ndarray, list[list[str]]]:
    """Of the free parameters where residuals are over their noise; and parameters that the data do
    not determine, those of one direction together. Their variances are infinite.
    """
    inner = plan.gathered(found)[:-1, :-1]
    lengths = np.sqrt(np.diag(inner))
    safe = np.where(lengths > 0, lengths, 1.0)
    values, vectors = np.linalg.eigh(inner / np.outer(safe, safe))
    null = values < len(values) * _NULL
    kept = np.where(null, np.inf, values)
    out = (vectors / kept) @ vectors.T / np.outer(safe, safe)
    groups = []
    for vector in vectors[:, null].T:
        group = [i for i in range(len(values)) if abs(vector[i]) > 0.05]
        groups.append([plan.free[i] for i in group])
        out[group, group] = np.inf
    return out, groups


def masked(found: np.ndarray, data: Measurement, pairs: int) -> Iterator[str]:
    """A note of points that were left out, of so many pairs at each angle."""
    counts = found[:, -1, -1]
    missing = pairs - counts
    if np.any(missing):
        worst = int(np.argmax(missing))
        yield (
            f"{int(missing.sum()):,} points are not finite and were left out, most of them,"
            f" {int(missing[worst]):,}, at angle {np.degrees(data.phi[worst]):.6g} deg."
        )


def warnings(
    plan: Layout,
    data: Measurement,
    result: ProductsResult,
    found: np.ndarray,
    undetermined: list[list[str]],
) -> Iterator[str]:
    """Sentences."""
    if not result.success:
        yield f"The fit did not converge: {result.message}"
    yield from _noise(data, found, result.x.size)
    for group in undetermined:
        yield (
            f"The data do not determine {' and '.join(group)}"
            f"{': only together they change the model' if len(group) > 1 else ''}."
            f" Fix: hold {'one of them' if len(group) > 1 else 'it'}."
        )
    yield from _at_bounds(plan, result.x)
    yield from _physics(plan.mode, plan.full(result.x), data)


def _noise(data: Measurement, found: np.ndarray, parameters: int) -> Iterator[str]:
    chi2, counts = found[:, -2, -2], found[:, -1, -1]
    freedom = max(1.0, counts.sum() - parameters)
    reduced = chi2.sum() / freedom
    excess = (reduced - 1) / np.sqrt(2 / freedom)
    if excess < SIGNIFICANT or reduced < NOTABLE:
        return
    own = chi2 / np.maximum(1, counts)
    worst = np.argsort(own)[::-1][:3]
    listed = ", ".join(f"{np.degrees(data.phi[i]):.4g} deg {own[i]:.4g}" for i in worst)
    mean = found[:, -2, -1] / np.sqrt(np.maximum(1, counts))  # its standard deviations from zero
    shifted = int(np.sum(np.abs(mean) > SIGNIFICANT))
    source = "given" if data.sigma is not None else "of neighbouring points"
    yield (
        f"The model does not fit: chi squared is {reduced:.4g} times what the noise explains"
        f" ({source}). By angle, the worst: {listed}."
        + (
            f" The residuals of {shifted} angles have a mean that is not zero: `by_angle` gives"
            " each angle its contrast and offset."
            if shifted
            else ""
        )
        + " Standard errors are of no use until it does."
    )


def _at_bounds(plan: Layout, z: np.ndarray) -> Iterator[str]:
    span = plan.upper - plan.lower
    for name, value, low, high, width in zip(
        plan.free, z, plan.lower, plan.upper, span, strict=True
    ):
        near = min(value - low, high - value) < 1e-6 * width
        if near and np.isfinite(width):
            bound = low if value - low < high - value else high
            yield (
                f"{name} is at its bound, {bound:g}: its standard error, and those of others, hold"
                " for a free parameter."
            )


def _physics(mode: "Mode", x: np.ndarray, data: Measurement) -> Iterator[str]:
    arrays = data.opened()
    t = np.linspace(float(np.min(arrays.t1)), float(np.max(arrays.t2)), 1000)
    named = dict(zip(mode.names, x, strict=False))
    for end in ("", "_ref", "_sample"):
        if f"D0{end}" in named:
            rate = named[f"D0{end}"] * t ** named[f"alpha{end}"] + named[f"D_offset{end}"]
            if rate.min() < 0:
                yield f"The transport coefficient{end.replace('_', ' of ')} is negative at times."
    if mode.names == _heterodyne.NAMES:
        part = named["f0"] * np.exp(named["f1"] * (t - named["f2"])) + named["f3"]
        if part.min() < 0 or part.max() > 1:
            yield (
                f"The fraction of the sample leaves 0 to 1: it goes from {part.min():.4g} to"
                f" {part.max():.4g}."
            )
