"""Fourteen nonlinear-regression sets of NIST's Statistical Reference Datasets, with their models
and certified results.

The files in `data/` are NIST's own, unchanged. NIST certifies eleven digits, found with 128-bit
arithmetic from two starts, the first of them far off.
https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FOLDER = Path(__file__).parent / "data"
Curve = Callable[..., Float[Array, "points"]]


def saturation(x: Float[Array, "points"], b1: Array, b2: Array) -> Float[Array, "points"]:
    """Exponential approach to b1."""
    return b1 * (1 - jnp.exp(-b2 * x))


def decay_over_line(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array
) -> Float[Array, "points"]:
    """Ultrasonic calibration: an exponential over a line."""
    return jnp.exp(-b1 * x) / (b2 + b3 * x)


def power(x: Float[Array, "points"], b1: Array, b2: Array) -> Float[Array, "points"]:
    """Radiated energy of a carbon filament lamp."""
    return b1 * x**b2


def two_peaks(
    x: Float[Array, "points"],
    b1: Array,
    b2: Array,
    b3: Array,
    b4: Array,
    b5: Array,
    b6: Array,
    b7: Array,
    b8: Array,
) -> Float[Array, "points"]:
    """Two Gaussians on a decaying baseline."""
    return (
        b1 * jnp.exp(-b2 * x)
        + b3 * jnp.exp(-((x - b4) ** 2) / b5**2)
        + b6 * jnp.exp(-((x - b7) ** 2) / b8**2)
    )


def quadratic_ratio(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array, b5: Array
) -> Float[Array, "points"]:
    """Scanning electron microscope line widths: one parabola over another."""
    return (b1 + b2 * x + b3 * x**2) / (1 + b4 * x + b5 * x**2)


def three_decays(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array, b5: Array, b6: Array
) -> Float[Array, "points"]:
    """Lanczos' sum of three exponentials."""
    return b1 * jnp.exp(-b2 * x) + b3 * jnp.exp(-b4 * x) + b5 * jnp.exp(-b6 * x)


def kowalik_osborne(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array
) -> Float[Array, "points"]:
    """Enzyme reaction: a line over a parabola."""
    return b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4)


def two_decays(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array, b5: Array
) -> Float[Array, "points"]:
    """Osborne's two exponentials and a constant."""
    return b1 + b2 * jnp.exp(-x * b4) + b3 * jnp.exp(-x * b5)


def monolayer(x: Float[Array, "points"], b1: Array, b2: Array) -> Float[Array, "points"]:
    """Dental monomolecular adsorption."""
    return b1 * (1 - (1 + b2 * x / 2) ** (-2))


def breakdown(
    x: Float[Array, "two points"], b1: Array, b2: Array, b3: Array
) -> Float[Array, "points"]:
    """Log of the dielectric breakdown strength after x[0] weeks at x[1] degrees Celsius."""
    return b1 - b2 * x[0] * jnp.exp(-b3 * x[1])


def sigmoid(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array
) -> Float[Array, "points"]:
    """Growth of onions: a generalised logistic curve."""
    return b1 / (1 + jnp.exp(b2 - b3 * x)) ** (1 / b4)


def quantum_defect(
    x: Float[Array, "points"], b1: Array, b2: Array, b3: Array, b4: Array
) -> Float[Array, "points"]:
    """Quantum defects in iodine atoms."""
    return b1 - b2 * x - jnp.arctan(b3 / (x - b4)) / jnp.pi


MODELS: Mapping[str, Curve] = MappingProxyType(
    {
        "BoxBOD": saturation,
        "Chwirut1": decay_over_line,
        "Chwirut2": decay_over_line,
        "DanWood": power,
        "Gauss1": two_peaks,
        "Kirby2": quadratic_ratio,
        "Lanczos3": three_decays,
        "MGH09": kowalik_osborne,
        "MGH17": two_decays,
        "Misra1a": saturation,
        "Misra1b": monolayer,
        "Nelson": breakdown,
        "Rat43": sigmoid,
        "Roszman1": quantum_defect,
    }
)


@dataclass(frozen=True, eq=False)
class Reference:
    """One data set with what NIST certifies about its fit.

    Attributes:
        name: NIST's name of the set.
        model: The curve, `model(x, *b)`.
        x: Predictor; two rows for Nelson.
        y: Response; its logarithm for Nelson.
        starts: The two starts, one a row.
        certified: Certified parameters, to eleven digits.
        deviations: Their certified standard deviations.
        rss: Certified residual sum of squares.
    """

    name: str
    model: Curve
    x: Float[np.ndarray, "..."]
    y: Float[np.ndarray, "points"]
    starts: Float[np.ndarray, "two k"]
    certified: Float[np.ndarray, "k"]
    deviations: Float[np.ndarray, "k"]
    rss: float

    def digits(self, x: Float[np.ndarray, "k"]) -> float:
        """Correct digits of the worst parameter; NIST gives eleven."""
        worst = float(np.max(np.abs(x - self.certified) / np.abs(self.certified)))
        return min(11.0, -np.log10(worst)) if worst > 0 else 11.0


def load(name: str) -> Reference:
    """Read one set from its file.

    Raises:
        KeyError: The set is not one of `MODELS`.
    """
    model = MODELS[name]
    lines = (FOLDER / f"{name}.dat").read_text().splitlines()
    headings = [i for i, line in enumerate(lines) if line.startswith("Data:")]
    header, body = lines[: headings[-1]], lines[headings[-1] + 1 :]
    parameters = np.array(
        [
            line.split("=")[1].split()
            for line in header
            if line.strip().startswith("b") and "=" in line
        ],
        dtype=np.float64,
    )
    rss = next(
        float(line.split(":")[1]) for line in header if line.startswith("Residual Sum of Squares")
    )
    rows = np.array([line.split() for line in body if line.strip()], dtype=np.float64)
    y, x = rows[:, 0], np.ascontiguousarray(rows[:, 1:].T)
    if name == "Nelson":
        y = np.log(y)
    else:
        x = x[0]
    start1, start2, certified, deviations = parameters.T
    return Reference(name, model, x, y, np.stack([start1, start2]), certified, deviations, rss)
