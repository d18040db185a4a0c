"""What a fit leaves: `result.json`, and `result.h5` with the same numbers and the maps."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jitney

from ._compared import Compared
from ._config import DEGREES, Config
from ._mode_fit import ModeFit
from ._prepare import Prepared

UNITS = {
    "D0": "Angstrom^2/s^(1+alpha)",
    "D_offset": "Angstrom^2/s",
    "gamma0": "1/s^(1+beta)",
    "gamma_offset": "1/s",
    "v0": "Angstrom/s^(1+beta)",
    "v_offset": "Angstrom/s",
    "f1": "1/s",
    "f2": "s",
    "phi0": "degrees",
}


def scaled(name: str, value: float) -> float:
    """A parameter of the model in the units of a configuration."""
    return float(np.degrees(value)) if name in DEGREES else float(value)


def unit(name: str) -> str:
    """Of a parameter in a configuration, and in results."""
    kind = name.removesuffix("_ref").removesuffix("_sample")
    return UNITS.get(kind, "").replace("alpha", name.replace(kind, "alpha"))


def covariance(fit: ModeFit) -> np.ndarray:
    """Of the free parameters, in the units of results."""
    turn = np.array([scaled(name, 1.0) for name in fit.free])
    return fit.covariance * np.outer(turn, turn)


def summary(
    config: Config, data: Prepared, fit: ModeFit, took: Mapping[str, Any], found: Compared
) -> dict[str, Any]:
    """All numbers of a fit, as JSON has them: no infinity, which is null.

    Args:
        config: What was asked for.
        data: What was fitted.
        fit: The result.
        took: How it was summed, and how long that took.
        found: Data beside the model.
    """
    parameters = {
        name: {
            "value": scaled(name, value),
            "error": scaled(name, error) if name in fit.free or error else None,
            "unit": unit(name),
            "held": name not in fit.free and not error,
        }
        for name, value, error in zip(fit.names, fit.x, fit.errors, strict=True)
    }
    angles = [
        {
            "phi": float(data.phi[i]),
            "points": int(found.count[i]),
            "chi_squared_by_point": float(fit.reduced_by_angle[i]),
            "sigma": float(fit.sigma[i]),
            "rms": float(found.rms[i]),
            "mean": float(found.mean[i]),
        }
        for i in range(data.angles)
    ]
    content = {
        "success": fit.success,
        "message": fit.message,
        "mode": fit.mode,
        "parameters": parameters,
        "covariance": {"names": list(fit.free), "values": covariance(fit).tolist()},
        "chi_squared": fit.chi2,
        "chi_squared_by_freedom": fit.reduced,
        "points": fit.points,
        "iterations": fit.iterations,
        "success_rate": fit.success_rate,
        "warnings": list(fit.warnings),
        "notes": [*data.notes, *fit.notes],
        "angles": angles,
        "data": {
            "file": data.source,
            "layout": data.layout,
            "q": data.q,
            "frames": [data.frames[0], data.frames[-1]],
            "frames_used": len(data.frames),
            "frame_time": data.frame_time,
            "first_time": data.first_time,
            "pairs": data.pairs,
            "left_out": data.missing,
        },
        "took": dict(took),
        "configuration": {section: dict(config[section]) for section in config.values},
        "versions": {"jitney": jitney.__version__, "jax": jax.__version__},
    }
    return _finite(content)


def _finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file as a whole."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(path)


def write_hdf5(path: Path, content: Mapping[str, Any], fit: ModeFit, found: Compared) -> None:
    """Parameters, covariance, what each angle has, and data, model and residuals in maps.

    Args:
        path: Where; the file is replaced as a whole.
        content: Of `result.json`, which is kept as text.
        fit: The result.
        found: Data beside the model.
    """
    h5py = importlib.import_module("h5py")
    new = path.with_suffix(".new")
    with h5py.File(new, "w") as file:
        file.attrs["json"] = json.dumps(content)
        file["parameters/names"] = [name.encode() for name in fit.names]
        pairs = [
            [scaled(name, value) for name, value in zip(fit.names, row, strict=True)]
            for row in (fit.x, fit.errors)
        ]
        file["parameters/values"], file["parameters/errors"] = map(np.array, pairs)
        file["covariance/names"] = [name.encode() for name in fit.free]
        file["covariance/values"] = covariance(fit)
        for name in ("phi", "points", "chi_squared_by_point", "sigma", "rms", "mean"):
            file[f"angles/{name}"] = np.array([each[name] for each in content["angles"]], float)
        file["lags/lag"] = found.lag
        file["lags/measured"], file["lags/model"] = found.by_lag
        file["maps/edges"] = found.edges
        for name, each in zip(("measured", "model", "residual"), found.maps, strict=True):
            file.create_dataset(f"maps/{name}", data=each.astype(np.float32), compression="gzip")
    new.replace(path)
