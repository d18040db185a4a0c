"""Calibrate an ultrasonic block by NIST's data (Chwirut1), as one writes it for SciPy: `python
examples/trf/ultrasonic.py`.

It knows nothing of JAX. `moved.py` runs it once more with `curve_fit` from the drop-in.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import curve_fit

FILE = Path(__file__).parent / "data" / "Chwirut1.dat"
response, distance = np.loadtxt(FILE, skiprows=60, unpack=True)


def echo(x: np.ndarray, b1: float, b2: float, b3: float) -> np.ndarray:
    """An exponential over a line."""
    return np.exp(-b1 * x) / (b2 + b3 * x)


def fit() -> tuple[np.ndarray, np.ndarray]:
    """Fit them, from NIST's first start."""
    return curve_fit(echo, distance, response, p0=[0.1, 0.01, 0.02])


if __name__ == "__main__":
    found, covariance = fit()
    for name, value, error in zip("123", found, np.sqrt(np.diag(covariance)), strict=True):
        print(f"b{name} = {value:.7f} +- {error:.7f}")
