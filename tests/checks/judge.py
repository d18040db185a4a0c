"""Equinox's own tests as the judge: as they are, with `jitney.optimize` in the place of
`eqx.filter_jit`, and in that of `jax.jit` too.

`python -m tests.checks.judge FOLDER [arguments of pytest]` takes a clone of Equinox at the version
that is installed. It prints how many tests passed each way, how many of them made a program of
jitney, and each that ended otherwise than as it is, with its error. None is skipped or changed; one
that asks for what jitney has on purpose in another way is a difference like all others, for
somebody to read.

It is a plugin of those runs of pytest as well, and stands alone: `tests` is a package of Equinox's
there.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = {
    "as they are": "nothing",
    "for eqx.filter_jit": "filter_jit",
    "for eqx.filter_jit and jax.jit": "jit",
}
MADE = Counter[str]()
ENDED: dict[str, dict[str, Any]] = {}


def donated(fn: Callable[..., Any], donate: str) -> dict[str, Any]:
    """Equinox's word for all arguments, and the arrays of a module that is called, as the names
    that jitney asks for.
    """
    if donate == "none":
        return {}
    names = list(inspect.signature(fn).parameters)
    is_instance = not (inspect.isroutine(fn) or inspect.isclass(fn))
    return {
        "donate": tuple(
            names[1:] if donate.endswith("except-first") else ["self"] * is_instance + names
        )
    }


def in_place_of_filter_jit(optimize: Any, plain: Any) -> Any:
    """What takes the arguments of `eqx.filter_jit`; jitney itself has Equinox's."""

    def filter_jit(fn: Any = None, *, donate: str = "none", **options: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("jitney."):
            return plain(fn, donate=donate, **options)
        if fn is None:
            return functools.partial(filter_jit, donate=donate, **options)
        MADE["now"] += 1
        return optimize(fn, **donated(fn, donate), **options)

    return filter_jit


def in_place_of_jit(optimize: Any, plain: Any) -> Any:
    """What takes a function as `jax.jit` does, for the tests alone: JAX and Equinox have their own.
    It traces numbers.
    """
    import jax

    def jit(fn: Any = None, **options: Any) -> Any:
        if (
            fn is None
            or options
            or not sys._getframe(1).f_globals.get("__name__", "").startswith("tests.")
        ):
            return plain(**options) if fn is None else plain(fn, **options)
        MADE["now"] += 1
        program = optimize(fn)

        def called(*args: Any, **kwargs: Any) -> Any:
            numbers = (bool, int, float, complex)
            return program(
                *jax.tree.map(
                    lambda x: jax.numpy.asarray(x) if isinstance(x, numbers) else x, args
                ),
                **kwargs,
            )

        return functools.update_wrapper(called, fn)

    return jit


def pytest_collection() -> None:
    """Behind Equinox's own `conftest.py`, which has to come before it is imported, and before its
    tests are.
    """
    import equinox
    import jax

    from jitney import optimize

    if os.environ["JITNEY_JUDGE"] != "nothing":
        equinox.filter_jit = in_place_of_filter_jit(optimize, equinox.filter_jit)
    if os.environ["JITNEY_JUDGE"] == "jit":
        jax.jit = in_place_of_jit(optimize, jax.jit)


def pytest_runtest_logreport(report: Any) -> None:
    """Note how each test ended, and whether it made a program."""
    if report.when == "setup":
        MADE["now"] = 0
    if report.when == "call" or report.outcome != "passed":
        said = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", "")).partition(
            "\n"
        )[0]
        ENDED[report.nodeid] = {"outcome": report.outcome, "said": said, "made": MADE["now"]}


def pytest_sessionfinish() -> None:
    Path(os.environ["JITNEY_JUDGE_FILE"]).write_text(json.dumps(ENDED))


def judged(folder: str, way: str, arguments: list[str]) -> dict[str, dict[str, Any]]:
    """One run of the tests in a process of its own, without a cache."""
    here = Path(__file__).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "ended.json")
        paths = os.pathsep.join([str(here.parent), str(here.parents[2] / "src")])
        given = {
            "JITNEY_JUDGE": way,
            "JITNEY_JUDGE_FILE": str(file),
            "JITNEY_CACHE": "off",
            "PYTHONPATH": paths,
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "judge",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | given, capture_output=True, text=True, check=False
        )
        return (
            json.loads(file.read_text()) if file.exists() else sys.exit(done.stdout + done.stderr)
        )


def main() -> None:
    folder, *arguments = sys.argv[1:]
    plain: dict[str, dict[str, Any]] = {}
    for name, way in WAYS.items():
        ended = judged(folder, way, arguments)
        plain = plain or ended
        made = sum(end["made"] > 0 for end in ended.values())
        print(
            f"{name}: {dict(Counter(end['outcome'] for end in ended.values()))}; {made} with a"
            " program"
        )
        for test in sorted({*plain, *ended}):
            before, now = plain.get(test, {}), ended.get(test, {})
            if before.get("outcome") != now.get("outcome"):
                print(
                    f"  {test}: {before.get('outcome')} -> {now.get('outcome')}: {now.get('said')}"
                )


if __name__ == "__main__":
    main()
