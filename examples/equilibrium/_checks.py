"""The main job's work: solve each model, and say how far the solution is from what was
published.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._linear import Linear, impulse_response, linearise
from ._path import perfect_foresight
from ._reference import apart, load, policy, renamed, responses
from ._steady import at, steady_state
from .models import an_schorfheide, brock_mirman, gali, rbc

Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # by panel: ours, and the reference


@dataclass(frozen=True)
class Check:
    """One comparison: of what, with whom, how far apart, and the limit."""

    model: str
    what: str
    reference: str
    apart: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether it is within the limit."""
        return self.apart <= self.limit


@dataclass(frozen=True)
class Result:
    """What came of one model: comparisons, and what its picture shows."""

    name: str
    title: str
    checks: tuple[Check, ...]
    curves: Curves
    marks: bool = False  # numbers side by side instead of curves over time


def growth() -> Result:
    """Brock and Mirman: policy, and a path from half the capital."""
    data, name = load("brock_mirman"), "Brock-Mirman"
    steady = steady_state(brock_mirman.MODEL, brock_mirman.Params())
    linear = linearise(steady)
    ours = np.array([linear.H_x, linear.H_z, linear.G_x, linear.G_z]).ravel()
    known = data["path"]
    start = brock_mirman.States(steady["logk"] + np.log(known["k0_over_kss"]))
    path = perfect_foresight(steady, start, brock_mirman.Shocks(known["a0"]), 41, "stable", linear)
    k, c = np.exp(path["logk"]), np.exp(path["logc"])[:-1]
    checks = (
        Check(
            name,
            "policy",
            "closed form",
            apart(ours, np.array(list(data["loglinear"].values())).ravel()),
            1e-10,
        ),
        Check(name, "path", "closed form", max(apart(k, known["k"]), apart(c, known["c"])), 1e-10),
    )
    curves = {"capital": (k, np.array(known["k"])), "consumption": (c, np.array(known["c"]))}
    return Result("brock_mirman", "From half the capital, Brock and Mirman 1972", checks, curves)


def monetary() -> Result:
    """Gali: impact of a monetary shock; it dies out at the rate of the shock."""
    data = load("nk3_gali")
    linear = linearise(steady_state(gali.MODEL, gali.Params(**data["params"])))
    names = ("y", "pi", "i")
    response = impulse_response(linear, "v", 1.0, 16)
    decay = data["params"]["rho_v"] ** np.arange(16)
    curves = {
        label: (response[name], data[name] * decay)
        for name, label in zip(names, ("output gap", "inflation", "interest rate"), strict=True)
    }
    gap = max(apart(ours, theirs) for ours, theirs in curves.values())
    return Result(
        "gali",
        "A monetary shock, Gali chapter 3",
        (Check("Gali, chapter 3", "responses", "closed form", gap, 1e-10),),
        curves,
    )


def bayesian() -> Result:
    """An and Schorfheide: transition and impact."""
    data = load("nkmp_gensys")
    given = dict(zip(data["p0_order"], data["p0"], strict=True))
    params = an_schorfheide.Params(**{name: given[name] for name in vars(an_schorfheide.Params())})
    linear = linearise(steady_state(an_schorfheide.MODEL, params))
    place = {name: i for i, name in enumerate(data["vars"])}
    curves: Curves = {}
    for name, label in (
        ("c", "consumption"),
        ("ppi", "inflation"),
        ("R", "interest rate"),
        ("ylev", "output, level"),
    ):
        to_states, to_shocks = linear[name]
        ours = np.array([to_states[0], *(to_shocks * linear.steady.rho)[:2], *to_shocks])
        theirs = np.array(
            [*np.array(data["TT"])[place[name], [2, 5, 3]], *np.array(data["RR"])[place[name]]]
        )
        curves[label] = (ours, theirs)
    gap = max(float(np.max(np.abs(ours - theirs))) for ours, theirs in curves.values())
    check = Check("An-Schorfheide", "TT and RR", "gensys, as printed", gap, 1e-8)
    return Result(
        "an_schorfheide",
        "Responses to R, g, z of yesterday and to three shocks, An and Schorfheide 2007",
        (check,),
        curves,
        marks=True,
    )


def dynare(case: rbc.Case) -> Result:
    """One of Dynare's models, linearised where its file says the steady state is."""
    data = load(case.file)
    numbers = {renamed(name): value for name, value in data["steady_state"].items()}
    groups = [
        layout.group(np.array([numbers[name] for name in layout.names]))
        for layout in case.model.layouts[:2]
    ]
    params = case.params(data["params"])
    given, found = at(case.model, params, *groups), steady_state(case.model, params)
    linear = linearise(given)
    by_state, by_shock = policy(linear, data)
    response = impulse_response(linear, "a", float(np.sqrt(data["Sigma_e"][0][0])), 41)
    ours, theirs = responses(response, data, data["exo"][0])
    own, name, reference = np.concatenate([found.u, found.x]), case.model.name, "Dynare 5.4"
    # Dynare stopped the first model's steady state at residuals of 4e-8
    limit = 1e-8 if case.file in ("dynare_one_block_1_ss", "dynare_rbc_2_block_ss") else 1e-5
    checks = (
        Check(
            name,
            "steady state",
            reference,
            float(np.max(np.abs(own / np.concatenate([given.u, given.x]) - 1))),
            limit,
        ),
        Check(
            name,
            "ghx and ghu",
            reference,
            max(apart(by_state, data["ghx"]), apart(by_shock, data["ghu"])),
            1e-8,
        ),
        Check(
            name,
            "eigenvalues",
            reference,
            apart(_finite(linear), sorted(v for v in data["eig_abs"] if v is not None)),
            1e-8,
        ),
        Check(name, "responses", reference, apart(ours, theirs), 1e-8),
    )
    curves = dict(zip(data["endo"], zip(ours, theirs, strict=True), strict=True))
    return Result(case.file, f"One standard deviation of productivity: {name}", checks, curves)


def _finite(linear: Linear) -> np.ndarray:
    values = linear.eigenvalues
    return np.sort([*values[np.isfinite(values)], *linear.steady.rho])


def jobs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """All models by name, in the order of the table."""
    yield "Brock-Mirman", growth
    yield "Gali, chapter 3", monetary
    yield "An-Schorfheide", bayesian
    for case in rbc.CASES:
        yield case.model.name, lambda case=case: dynare(case)
