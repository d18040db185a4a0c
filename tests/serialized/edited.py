"""Edits around a function, each seen by three real processes: none may be given a program of before
the edit.

Run from the project's root: `python -m tests.serialized.edited [NAME ...]`. The first process makes the
programs, the second finds or traces them, and the third has the edited sources (`edited.json`: in a
text {n} is the name of the case and {d} a folder of its own). In each the reference is `jax.jit` of
the same function, by `eqx.filter_jit`. A case may say `OPTIONS` of its program, how its result is
read (`READ`), that it is read in chunks (`STREAM`), and how many `devices` it takes; where a
run-time check fails, what it says is compared. The status is 1 if any result differs. Those that
change what others see have processes of their own.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CASES = Path(__file__).with_suffix(".json")
HEAD = """import jax, jax.numpy as jnp, numpy as np, functools, operator, types, dataclasses, enum, typing, collections, math
import equinox as eqx
"""
PHASES = ("made", "again", "edited")
X = np.arange(1, 4, dtype=np.float32)


def main(names: list[str]) -> int:
    """Run the cases, print what falls, how many were found, and of those that were asked for what
    became of each.
    """
    cases = [case for case in json.loads(CASES.read_text()) if not names or case["name"] in names]
    counts = {case["name"]: case.get("devices", 1) for case in cases}
    together = [
        [case["name"] for case in cases if "alone" not in case and counts[case["name"]] == count]
        for count in sorted({*counts.values()})
    ]
    groups = [*together, *([case["name"]] for case in cases if "alone" in case)]
    with tempfile.TemporaryDirectory() as folder:
        said: dict[str, dict[str, Any]] = {}
        for phase in PHASES:
            write(Path(folder), cases, "_after" if phase == "edited" else "")
            for group in filter(None, groups):
                for name, outcome in process(Path(folder), phase, group, counts[group[0]]).items():
                    said.setdefault(name, {})[phase] = outcome
    stale = [
        name for name, phases in said.items() if any(not same(phases[phase]) for phase in PHASES)
    ]
    for name in stale:
        print(
            "STALE",
            name,
            {phase: (said[name][phase]["got"], said[name][phase]["want"]) for phase in PHASES},
        )
    for name in names:
        print(
            name, *(": ".join((phase, *said[name][phase]["notes"])) for phase in PHASES), sep="\n  "
        )
    found = sum("found" in " ".join(phases["again"]["notes"]) for phases in said.values())
    print(
        f"{len(said)} edits: {len(stale)} stale; {found} found by the second process, the others"
        " traced"
    )
    return int(bool(stale))


def write(folder: Path, cases: list[dict[str, Any]], edit: str) -> None:
    """The sources and data of each case, before or after its edit."""
    for case in cases:
        name, own = f"edited_{case['name']}", folder / case["name"]
        own.mkdir(exist_ok=True)
        text = case["after" if edit else "before"].replace("{n}", name).replace("{d}", str(own))
        (folder / f"{name}.py").write_text(f"{HEAD}{text}\n")
        if "helper" in case:
            (folder / f"{name}_h.py").write_text(f"{case[f'helper{edit}']}\n")
        kind, _, data = case.get(f"data{edit}", "").partition(":")
        if kind == "npy":
            np.save(own / "data.npy", np.array([float(data)]))
        elif kind == "more":
            (own / "b.txt").write_text("x")
        elif kind == "optmod":
            (folder / f"{name}_opt.py").write_text(f"K={data}\n")
        elif kind:
            (own / "data.txt").write_text(kind)


def process(folder: Path, phase: str, names: list[str], devices: int) -> dict[str, Any]:
    """What a process of so many virtual devices computes for these cases."""
    env = {
        **os.environ,
        "ZZK": "333" if phase == "edited" else "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        "JITNEY_CACHE_DIR": f"{folder}/cache",
    }
    if devices > 1:
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    env["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    command = [
        sys.executable,
        "-c",
        "import sys; from tests.serialized import edited; edited.child(sys.argv[1:])",
        *names,
    ]
    run = subprocess.run(
        command,
        env=env,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def child(names: list[str]) -> None:
    """Call each function decorated and under plain `jax.jit`, by Equinox, whose errors say what the
    author wrote.
    """
    import equinox as eqx

    import jitney

    outcomes: dict[str, Any] = {}
    for name in names:
        module = importlib.import_module(f"edited_{name}")
        program = jitney.optimize(cache="program", **getattr(module, "OPTIONS", {}))(module.body)
        plain = eqx.filter_jit(lambda x, body=module.body: body(x))
        streams: list[str] = []
        called = (
            program
            if not hasattr(module, "STREAM")
            else partial(streamed, program, module.STREAM, streams)
        )
        got, want = (outcome_of(fn, getattr(module, "READ", np.asarray)) for fn in (called, plain))
        kept = [entry.kept for entry in program.core.entries.values() if entry.kept is not None]
        outcomes[name] = {
            "got": got,
            "want": want,
            "notes": [*streams, *(why for each in kept for _, why in each.notes.values())],
        }
    print(json.dumps(outcomes))


def streamed(program: Any, chunk: Any, notes: list[str], x: Any) -> Any:
    """The value of a stream over the argument."""
    import jitney

    value, stats = jitney.stream(program, x, chunk=chunk, progress=False)
    notes.append(str(stats.kept))
    return value


def outcome_of(fn: Any, read: Any) -> Any:
    """What a call gives, as numbers, or what the check says that fails."""
    import equinox as eqx

    from jitney._jax.equinox_checks import words_of

    try:
        return np.asarray(read(fn(jnp_x()))).tolist()
    except eqx.EquinoxRuntimeError as error:
        return words_of(error)


def jnp_x() -> Any:
    """The argument, as JAX's."""
    import jax.numpy as jnp

    return jnp.asarray(X)


def same(outcome: dict[str, Any]) -> bool:
    """Whether both say the same."""
    if isinstance(outcome["got"], str) or isinstance(outcome["want"], str):
        return outcome["got"] == outcome["want"]
    return np.allclose(outcome["got"], outcome["want"], equal_nan=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
