"""Seconds of a whole workflow, a fresh process for each: `python -m
examples.equilibrium.benchmark`.

The 14-sector economy: a steady state that is calibrated, its linear solution, steady state and
linear solution at new parameters, and a path of 41 dates twice. "Dense" is the same with
`f.value_and_jacobian` of jitney in place of the rolled graph. "Before" is `before.py`: plain
`jax.jit` and `jax.jacfwd`, one function and argument at a time, in a process that never imports
jitney. "By hand", of the vector form alone, is `workflow_by_hand.py`: derivatives written out for
this economy, in one jitted function, and the loops of "before". Cold is with an empty persistent
cache, warm with the cache that the cold run filled. Results must agree to 1e-8 before anything is
printed. Programs are all that XLA is asked for in the process, traces those of the model's
programs. The processes have one thread for BLAS. Of several rounds the fastest times count.

`--calls` times warm calls of the likelihood and of many policies beside the same written by hand
instead (`_calls.py`).
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from .._figures import record

FORMS, WAYS = ("vector", "scalar"), ("jitney", "dense", "by hand", "before")
PLAIN = ("before", "by hand")
WORDS = ("form", "way")
AGREE = 1e-8
ALPHA, DATES = 0.35, 41


def main() -> None:
    """Run each form each way, cold and warm, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.equilibrium.benchmark", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--rounds", type=int, default=3, help="of which the fastest counts (default: %(default)s)"
    )
    parser.add_argument(
        "--calls", action="store_true", help="time likelihood and policies beside code by hand"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="for each line of it (default: %(default)s)"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.calls:
        found = calls(chosen.seconds)
        show_calls(found)
        record(calls=found)
        return
    if chosen.one:
        print(json.dumps(workflow(*chosen.one)))
        return
    cases = [(form, way) for form in chosen.forms for way in chosen.ways]
    cases = [case for case in cases if case != ("scalar", "by hand")]
    # in turn, so that a busy machine is busy for all
    rounds = [[timed(*case) for case in cases] for _ in range(chosen.rounds)]
    compare([found for each in rounds for *_, found in each])
    rows = [(*case, *best([each[i] for each in rounds])) for i, case in enumerate(cases)]
    show(rows)
    record(
        ways={
            f"{form}, {way}": {"cold": cold, "programs": found["programs"]}
            for form, way, cold, _, found in rows
        }
    )


def calls(seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of each call, by a process with one thread for BLAS."""
    command = [sys.executable, "-m", f"{__package__}._calls", str(seconds)]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=env)
    if run.returncode:
        sys.exit(run.returncode)
    return json.loads(run.stdout.splitlines()[-1])


def show_calls(found: dict[str, dict[str, float]]) -> None:
    """Print them with their ratio."""
    from rich.console import Console

    from ._table import table

    out = table(("warm call", "jitney, ms", "by hand, ms", "ratio"), ("warm call",))
    for what, each in found.items():
        ours, by_hand = each["jitney"], each["by hand"]
        out.add_row(what, f"{ours:.3g}", f"{by_hand:.3g}", f"{ours / by_hand:.2f}")
    Console().print(out)


def best(
    measured: list[tuple[float, float, dict[str, Any]]],
) -> tuple[float, float, dict[str, Any]]:
    """The fastest cold and warm process, and the shortest times within."""
    cold, warm, found = zip(*measured, strict=True)
    return (
        min(cold),
        min(warm),
        found[0] | {name: min(each[name] for each in found) for name in ("imports", "path")},
    )


def timed(form: str, way: str) -> tuple[float, float, dict[str, Any]]:
    """Seconds of a cold and of a warm process, and what the warm one printed."""
    with tempfile.TemporaryDirectory() as folder:
        own = (
            {"JITNEY_CACHE_DIR": folder}
            if way not in PLAIN
            else {"JAX_COMPILATION_CACHE_DIR": folder, "JITNEY_CACHE": "off"}
        )
        keep = {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        env = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            **own,
            **(keep if way in PLAIN else {}),
        }
        seconds: list[float] = []
        for _ in ("cold", "warm"):
            began = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                f"{__package__}.benchmark",
                "--one",
                form,
                way,
                str(time.time()),
            ]
            run = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
            seconds.append(time.perf_counter() - began)
            if run.returncode:
                sys.exit(f"{form}, {way}: exit code {run.returncode}\n{run.stderr}")
        return *seconds, json.loads(run.stdout.splitlines()[-1])


def compare(found: list[dict[str, Any]]) -> None:
    """End the benchmark unless all ways gave the same numbers."""
    import numpy as np

    for name in ("beta", "capital", "consumption"):
        numbers = np.array([each[name] for each in found])
        apart = float(np.max(np.ptp(numbers, axis=0) / np.abs(numbers).max()))
        if apart > AGREE:
            sys.exit(
                f"{name} of two ways differs by {apart:.1e}, more than {AGREE:g}; only equal"
                " results are worth timing."
            )


def show(rows: list[tuple[Any, ...]]) -> None:
    """Print the table."""
    from rich.console import Console

    from ._table import table

    numbers = ("cold, s", "warm, s", "of it to import", "programs", "traces", "path, ms")
    out = table((*WORDS, *numbers), WORDS)
    for form, way, cold, warm, found in rows:
        counts = (str(found["programs"]), str(found["traces"]))
        out.add_row(
            form,
            way,
            f"{cold:.2f}",
            f"{warm:.2f}",
            f"{found['imports']:.2f}",
            *counts,
            f"{found['path'] * 1e3:.1f}",
        )
    Console().print(out)


def workflow(form: str, way: str, began: str) -> dict[str, Any]:
    """All of it in this process, which was started at a time."""
    import jax
    import numpy as np

    from .models import scalars, sectors

    if way not in PLAIN:
        import jitney  # noqa: F401

    imports, asked = time.time() - float(began), []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: asked.append(event) if "backend_compile" in event else None
    )
    model = (sectors if form == "vector" else scalars).model()
    model = dataclasses.replace(model, rolled=way != "dense")
    first = "logK[0]" if form == "vector" else "logK_0"
    found = _before(model, first, way) if way in PLAIN else _with_jitney(model, first)
    beta, path, seconds, own = found
    if way in PLAIN and "jitney" in sys.modules:
        sys.exit(f"{way} has imported jitney, which it is compared with.")
    capital, consumption = (
        path[1][:, model.layouts[1].names.index(first)],
        path[0][:, 0],
    )
    sizes = {"programs": len(asked), "traces": own, "imports": imports, "path": seconds}
    return {
        "beta": [float(beta)],
        "capital": np.exp(capital).tolist(),
        "consumption": consumption.tolist(),
        **sizes,
    }


def _changed(model: Any) -> Any:
    import equinox as eqx

    params = model.params
    return (
        params | {"alpha": ALPHA}
        if isinstance(params, dict)
        else eqx.tree_at(lambda p: p.alpha, params, ALPHA)
    )


def _with_jitney(model: Any, first: str) -> tuple[Any, ...]:
    import numpy as np

    from . import linearise, perfect_foresight, steady_state
    from ._path import program as path_program
    from ._steady import program as steady_program

    calibrated = steady_state(model, model.params, {"beta": (first, float(np.log(1.5)))})
    linearise(calibrated)
    steady = steady_state(model, _changed(model))
    linear = linearise(steady)
    start, z0 = steady.x + np.log(0.9), np.full(model.sizes["z"], 0.02)
    perfect_foresight(steady, start, z0, DATES, "stable", linear)
    began = time.perf_counter()
    path = perfect_foresight(steady, start, z0, DATES, "stable", linear)
    seconds = time.perf_counter() - began
    beta = calibrated.theta[model.parameters.index("", "beta")]
    return (
        beta,
        (path.u, path.x),
        seconds,
        sum(made(model).stats.traces for made in (steady_program, path_program)),
    )


def _before(model: Any, first: str, way: str) -> tuple[Any, ...]:
    import jax
    import numpy as np

    from . import Steady, linearise
    from ._linear import simulate
    from .before import Before
    from .workflow_by_hand import ByHand

    kind = ByHand if way == "by hand" else Before
    ours, known = kind(model), (*model.layouts[0].names, *model.layouts[1].names)
    free, pick = np.zeros(model.sizes["theta"]), np.zeros(len(known))
    place, none = model.parameters.index("", "beta"), np.zeros(len(known))
    free[place], pick[known.index(first)] = 1.0, 1.0
    rho = np.full(model.sizes["z"], 0.9)

    def solved(theta: Any, u: Any, x: Any) -> Any:
        return linearise(Steady(model, theta, u, x, rho, ours.blocks(theta, u, x), 0))

    with jax.enable_x64(True):
        calibrated = ours.steady(model.theta(model.params), free, pick, float(np.log(1.5)))
        solved(*calibrated)
        theta, u, x = ours.steady(model.theta(_changed(model)), free, none, 0.0)
        linear = solved(theta, u, x)
        for _ in range(2):
            began = time.perf_counter()
            du, dx, z = simulate(
                linear, np.full(x.size, np.log(0.9)), np.full(rho.size, 0.02), DATES
            )
            guess = (u + du[:-1], x + dx[1:])
            path_u, path_x = ours.path(
                theta, x + np.log(0.9), z, *guess, linear.G_x, (u, x), linear.G_z
            )
            seconds = time.perf_counter() - began
    last = u + linear.G_x @ (path_x[-1] - x) + linear.G_z @ z[-1]
    path = (np.vstack([path_u, last]), np.vstack([x + np.log(0.9), path_x]))
    return calibrated[0][place], path, seconds, ours.traces


if __name__ == "__main__":
    main()
