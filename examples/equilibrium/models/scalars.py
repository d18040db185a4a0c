"""The economy of `sectors.py` as tools of the field generate it: a block of scalar formulas a
sector, and a name for every number.
"""

from typing import Any

from jax.numpy import exp

from .._model import Model
from .._variables import Point, derived
from .sectors import SECTORS

CONTROLS = {"inv": 0.15, "y": 0.75, "mp": 0.15, "q": 1.0, "ret": 1.04}


def params(sectors: int = SECTORS, **changed: float) -> dict[str, float]:
    """Parameters by name."""
    common = {"alpha": 0.33, "beta": 0.96, "delta": 0.1, "phi": 1.5, "gamma": 2.0, "rho": 0.9}
    return common | {f"Zbar_{i}": 0.5 + 0.02 * i for i in range(sectors)} | changed


def block(i: int) -> dict[str, Any]:
    """Intermediates of one sector."""
    logK, z, inv, y, mp, q = (f"{name}_{i}" for name in ("logK", "z", "inv", "y", "mp", "q"))
    K, Z, power, ratio, gap, Zbar = (
        f"{name}_{i}" for name in ("K", "Z", "power", "ratio", "gap", "Zbar")
    )

    def pays(at: Any) -> Any:
        p, gap_i = at.params, getattr(at, gap)
        saved = 0.5 * p["phi"] * gap_i * (getattr(at, ratio) + p["delta"])
        return getattr(at, mp) + saved + (1.0 - p["delta"]) * getattr(at, q)

    rules = {
        "K": lambda at: exp(getattr(at, logK)),
        "Z": lambda at: at.params[Zbar] * exp(getattr(at, z)),
        "power": lambda at: exp(at.params["alpha"] * getattr(at, logK)),
        "output": lambda at: getattr(at, Z) * getattr(at, power),
        "marginal": lambda at: at.params["alpha"] * getattr(at, y) / getattr(at, K),
        "ratio": lambda at: getattr(at, inv) / getattr(at, K),
        "gap": lambda at: getattr(at, ratio) - at.params["delta"],
        "cost": lambda at: (
            0.5 * at.params["phi"] * getattr(at, gap) * getattr(at, gap) * getattr(at, K)
        ),
        "carried": lambda at: (1.0 - at.params["delta"]) * getattr(at, K) + getattr(at, inv),
        "pays": pays,
    }
    return {f"{name}_{i}": rule for name, rule in rules.items()}


def point(sectors: int) -> type[Point]:
    """The point of all blocks."""

    def left(at: Any) -> Any:
        return sum(
            getattr(at, f"y_{i}") - getattr(at, f"inv_{i}") - getattr(at, f"cost_{i}")
            for i in range(sectors)
        )

    rules = {"left": left, "utility": lambda at: at.c ** (-at.params["gamma"])}
    for i in range(sectors):
        rules |= block(i)
    made = type("Scalars", (Point,), {name: derived(rule) for name, rule in rules.items()})
    for name in rules:
        getattr(made, name).__set_name__(made, name)
    return made


def equations(params: dict[str, Any], now: Any, ahead: Any) -> dict[str, Any]:
    """One residual for each control and state."""
    found = {"resources": now.c - now.left}
    price = params["beta"] * ahead.utility
    for i in range(sum(name.startswith("Zbar_") for name in params)):
        at, then = (
            (lambda name, i=i: getattr(now, f"{name}_{i}")),
            (lambda name, i=i: getattr(ahead, f"{name}_{i}")),
        )
        found[f"output {i}"] = at("y") - at("output")
        found[f"marginal product {i}"] = at("mp") - at("marginal")
        found[f"Tobin's q {i}"] = at("q") - 1.0 - params["phi"] * at("gap")
        found[f"return {i}"] = at("ret") - at("pays")
        found[f"Euler {i}"] = at("q") * now.utility - price * then("ret")
        found[f"capital {i}"] = then("K") - at("carried")
    return found


def model(sectors: int = SECTORS) -> Model:
    """The model with this many sectors."""
    each = range(sectors)
    controls = {"c": float(sectors)} | {
        f"{name}_{i}": value for name, value in CONTROLS.items() for i in each
    }
    states, shocks = {f"logK_{i}": 0.4 for i in each}, {f"z_{i}": 0.0 for i in each}
    persistence = lambda p: {f"z_{i}": p["rho"] for i in each}  # noqa: E731
    return Model(
        equations,
        controls,
        states,
        shocks,
        persistence,
        params(sectors),
        point(sectors),
        name=f"{sectors} sectors of scalars",
    )
