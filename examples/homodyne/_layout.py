"""Which parameters of a mode are free, held or tied, and how the products of each angle add up to
those of the free ones.

All parameters are an affine function of the free ones, x = base + M z. A held one has a row of
zeros in M, tied ones have the same row, and the contrast of an angle has a row that other angles
lack. With B_a the rows of M that angle a knows, its Gram matrix G_a gives B_a^T G_a B_a.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trf._fail import fail
from ._modes import OPTICS, Mode

OPTICAL = {"contrast": (0.3, 0.0, 1.0), "offset": (1.0, 0.5, 1.5)}  # start and bounds


@dataclass(frozen=True)
class Layout:
    """The parameters of one fit.

    Args:
        mode: Whose they are.
        names: Of all, in the order of x.
        free: Names of the free ones, in the order of z.
        base: x where z is zero.
        matrix: M.
        start: Where z starts.
        lower: Bounds of z.
        upper: Bounds of z.
        unset: Contrasts and offsets for which no start was given: it comes from the data.
    """

    mode: Mode
    names: tuple[str, ...]
    free: tuple[str, ...]
    base: np.ndarray
    matrix: np.ndarray
    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    unset: tuple[str, ...]

    def full(self, z: np.ndarray) -> np.ndarray:
        """All parameters."""
        return self.base + self.matrix @ z

    def optics(self, x: np.ndarray, angles: int) -> np.ndarray:
        """Contrast and offset of each angle."""
        rows = x[len(self.mode.names) :].reshape(2, -1)
        return np.ascontiguousarray(np.broadcast_to(rows, (2, angles)).T)

    def places(self, angle: int) -> list[int]:
        """Where the parameters of an angle are in x."""
        count = len(self.mode.names)
        own = (len(self.names) - count) // 2
        at = angle if own > 1 else 0
        return [*range(count), count + at, count + own + at]

    def rows(self, angle: int) -> np.ndarray:
        """B: what an angle knows of M."""
        return self.matrix[self.places(angle)]

    def gathered(self, products: np.ndarray) -> np.ndarray:
        """The Gram matrix of the free parameters and the residuals, from those of the angles."""
        total = np.zeros((len(self.free) + 1,) * 2)
        for angle, own in enumerate(products):
            rows = self.rows(angle)
            local = np.zeros((len(rows) + 1, len(self.free) + 1))
            local[:-1, :-1], local[-1, -1] = rows, 1
            total += local.T @ own[: len(local), : len(local)] @ local
        return total


def layout(
    mode: Mode,
    angles: int,
    *,
    start: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    held: Mapping[str, float] | None = None,
    tied: Mapping[str, str] | None = None,
    free: Sequence[str] = (),
    by_angle: bool | None = None,
) -> Layout:
    """Lay out the parameters of a fit.

    Args:
        mode: The mode.
        angles: How many.
        start: Values by name, in place of the mode's. `contrast` is for all angles,
            `contrast[3]` for one.
        bounds: Lower and upper ones by name; equal ones hold the parameter there.
        held: Values of parameters that are not fitted.
        tied: By name another parameter that this one equals.
        free: Parameters that the mode holds and this fit does not.
        by_angle: Whether each angle has a contrast and an offset of its own; by default as the
            mode says.
    Raises:
        ValueError: A name is unknown, a tie leads nowhere, or a start is outside of its bounds.
    """
    own = angles if (mode.by_angle if by_angle is None else by_angle) and angles > 1 else 1
    optical = [f"{name}[{i}]" if own > 1 else name for name in OPTICS for i in range(own)]
    names = (*mode.names, *optical)
    values = dict(zip(mode.names, mode.start, strict=True))
    box = dict(zip(mode.names, zip(mode.lower, mode.upper, strict=True), strict=True))
    for name in optical:
        values[name], *both = OPTICAL[name.partition("[")[0]]
        box[name] = tuple(both)
    started = _spread(start, names, "start")
    values |= started
    box |= _spread(bounds, names, "bounds")
    fixed = {name: values[name] for name in mode.held if name not in free}
    fixed |= {name: low for name, (low, high) in box.items() if low == high}
    fixed |= _spread(held, names, "held")
    ties = _spread(tied, names, "tied")
    _known(free, names, "free")
    _undisputed(fixed, ties, started)
    roots = {name: _root(name, ties, names) for name in names}
    loose = [name for name in names if name not in fixed and roots[name] == name]
    base, matrix = np.zeros(len(names)), np.zeros((len(names), len(loose)))
    for i, name in enumerate(names):
        if roots[name] in fixed:
            base[i] = fixed[roots[name]]
        else:
            matrix[i, loose.index(roots[name])] = 1
    if not loose:
        fail(
            "No parameter is free.",
            "A fit has one at least.",
            "leave one of them out of `held`, `tied` and equal `bounds`.",
        )
    z = np.array([values[name] for name in loose], float)
    lower, upper = (np.array([box[name][side] for name in loose], float) for side in (0, 1))
    _inside(loose, z, lower, upper)
    unset = tuple(name for name in loose if name in optical and name not in started)
    return Layout(mode, names, tuple(loose), base, matrix, z, lower, upper, unset)


def _spread(given: Mapping[str, Any] | None, names: Sequence[str], where: str) -> dict[str, Any]:
    """By name, with `contrast` and `offset` for those of all angles."""
    found: dict[str, Any] = {}
    for name, value in (given or {}).items():
        ours = [other for other in names if other.partition("[")[0] == name] or [name]
        _known(ours, names, where)
        found |= dict.fromkeys(ours, value)
    found |= {name: value for name, value in (given or {}).items() if name in names}
    return found


def _known(given: Sequence[str], names: Sequence[str], where: str) -> None:
    for name in given:
        if name not in names:
            fail(
                f"`{where}` names {name!r}.",
                f"The parameters are {', '.join(names)}.",
                "write one of these.",
            )


def _undisputed(
    fixed: Mapping[str, float], ties: Mapping[str, str], started: Mapping[str, float]
) -> None:
    for name in fixed:
        if name in ties:
            fail(
                f"{name} is tied and held.",
                "A parameter that is tied has the value of another one.",
                f"hold {ties[name]}, or leave out one of both.",
            )
        if started.get(name, fixed[name]) != fixed[name]:
            fail(
                f"{name} is held at {fixed[name]:g} and starts at {started[name]:g}.",
                "A parameter that is held has one value.",
                "leave out its start.",
            )


def _root(name: str, ties: Mapping[str, str], names: Sequence[str]) -> str:
    seen = [name]
    while name in ties:
        name = ties[name]
        _known([name], names, "tied")
        if name in seen:
            fail(
                f"`tied` leads in a circle: {' = '.join([*seen, name])}.",
                "A parameter is tied to one that is free or held.",
                "leave out one of these ties.",
            )
        seen.append(name)
    return name


def _inside(names: Sequence[str], z: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
    for name, value, low, high in zip(names, z, lower, upper, strict=True):
        if not low < high:
            fail(
                f"The bounds of {name} are {low:g} and {high:g}.",
                "The lower one is below the upper one, or equal to it where the parameter is held.",
                "exchange them.",
            )
        if not low <= value <= high:
            fail(
                f"{name} starts at {value:g}, outside of its bounds, {low:g} and {high:g}.",
                "A fit starts inside.",
                f'write start={{"{name}": ...}} or bounds={{"{name}": (..., ...)}}.',
            )
