"""Make what fell smaller: fewer lines, a smaller size, plainer numbers; and write it down as a
script that stands alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ._hunt import JITNEY, OPTIONS, Finding
from ._judge import difference, is_overflow, is_unstable, leaves_of, unblurred
from ._options import NotFloatingError, Way
from ._program import HEADER, Program

SMALLER = (0, 1, 2, 3, 5, 6, 7, 8, 9, 16, 17, 33, 64, 127, 128, 129, 255, 256, 257, 300)
AXES = ("", "n", "3", "n 3", "3 n", "n n")


@dataclass(frozen=True)
class Shrunk:
    """What is left, and what happens there."""

    program: Program
    arrays: Mapping[str, Any]
    n: int
    what: str
    way: Way


def shrunk(
    finding: Finding, program: Program, arrays: Mapping[str, Any], seconds: float = 25.0
) -> Shrunk | None:
    """The least that still falls, or None if it falls no more."""
    until = time.monotonic() + seconds
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        best = _falls(finding, program, arrays, finding.n)
        if best is None:
            return None
        moved = True
        while moved and time.monotonic() < until:
            moved = False
            for program, arrays, n in _smaller(best):
                if time.monotonic() > until:
                    break
                found = _falls(finding, program, arrays, n)
                if found is not None:
                    best, moved = found, True
                    break
    return best


def _smaller(best: Shrunk) -> Any:
    """Candidates, the most rewarding first."""
    program = best.program
    if len(program.lines) > 1:
        for k in reversed(range(len(program.lines) - 1)):
            made = _promoted(best, k)
            if made is not None:
                yield made
    for n in SMALLER:
        if n < best.n:
            yield program, _cut(program, best.arrays, n), n
    for plain in (_ones, _counted):
        arrays = {name: plain(x) for name, x in best.arrays.items()}
        if not all(np.array_equal(arrays[name], x) for name, x in best.arrays.items()):
            yield program, arrays, best.n


def _promoted(best: Shrunk, k: int) -> Any:
    """The value of a line as an argument."""
    program = best.program
    name = program.lines[k][0]
    try:
        value = np.asarray(
            program.only(name).compiled()(
                **{each: best.arrays[each] for each, _ in program.only(name).takes}
            )[0]
        )
    except Exception:  # noqa: BLE001
        return None
    for axes in AXES:
        if value.shape == tuple(best.n if part == "n" else int(part) for part in axes.split()):
            takes = ((name, axes), *program.takes)
            made = replace(
                program, takes=takes, lines=program.lines[:k] + program.lines[k + 1 :]
            ).pruned()
            arrays = {each: value if each == name else best.arrays[each] for each, _ in made.takes}
            return (made, arrays, best.n) if any("n" in axes for _, axes in made.takes) else None
    return None


def _cut(program: Program, arrays: Mapping[str, Any], n: int) -> dict[str, Any]:
    made = {}
    for name, axes in program.takes:
        parts = axes.split()
        made[name] = arrays[name][
            tuple(slice(0, n) if part == "n" else slice(None) for part in parts)
        ]
    return made


def _ones(x: Any) -> Any:
    return np.ones_like(x)


def _counted(x: Any) -> Any:
    return (np.arange(x.size) % 7 + 1).reshape(x.shape).astype(x.dtype)


def _falls(finding: Finding, program: Program, arrays: Mapping[str, Any], n: int) -> Shrunk | None:
    """What it does now, if it is of the kind that was found."""
    try:
        made = OPTIONS[finding.option].make(
            np.random.default_rng(finding.draw), program.compiled(), program, n
        )
        if made is None:
            return None
        given = made.reshaped(arrays)
        want = leaves_of(made.theirs(given))
    except Exception:  # noqa: BLE001
        return None
    try:
        if made.refusal(given) is not None:
            return None
        got = leaves_of(made.ours(given))
    except (*JITNEY, NotFloatingError):
        return None
    except Exception as error:  # noqa: BLE001
        line = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return (
            Shrunk(program, arrays, n, line, made)
            if finding.kind == "raw" and line[:25] == finding.what[:25]
            else None
        )
    if made.blurred and len(got) == len(want):
        got = unblurred(got, want)
    exact = (
        "bits" if finding.kind == "rounding" else "loose" if finding.exact == "loose" else "close"
    )
    what = difference(got, want, exact)
    if finding.kind == "raw" or what is None or is_unstable(made.theirs, given, got, exact):
        return None
    if is_overflow(made.ours, made.theirs, given, got, exact):
        return None
    return Shrunk(program, arrays, n, what, made)


def script(found: Shrunk) -> str:
    """A file that shows it."""
    program = found.way.shown or found.program
    arrays = ",\n    ".join(f"{name}={_literal(found.arrays[name])}" for name, _ in program.takes)
    x64 = any(
        str(x.dtype).endswith(("64", "128")) and str(x.dtype) != "complex64"
        for x in found.arrays.values()
    )
    setting = 'jax.config.update("jax_enable_x64", True)\n' if x64 else ""
    return (
        f"{HEADER}import jitney\nfrom jitney import"
        f" optimize\n{setting}\n\n{program.prelude}{program.source()}\n\narrays = dict(\n   "
        f" {arrays},\n)\nprint({found.way.code}(**arrays))\nprint(jax.jit(f)(**arrays))\n#"
        f" {found.what}\n"
    )


def _literal(x: Any) -> str:
    x = np.asarray(x)
    module = "np" if x.dtype.kind in "biufc" and x.dtype.isbuiltin == 1 else "jnp"
    dtype = f"{module}.{x.dtype.name if x.dtype != np.bool_ else 'bool_'}"
    wide = (
        x.astype(np.float64)
        if jax.dtypes.issubdtype(x.dtype, np.floating)
        else x.astype(np.int64)
        if x.dtype.kind == "V"
        else x
    )
    if x.size > 64:
        flat = wide.ravel()
        if (flat == flat[0]).all():
            return f"np.full({x.shape}, {flat[0].item()!r}).astype({dtype})".replace(
                "nan", "np.nan"
            ).replace("inf", "np.inf")
        if np.array_equal(_counted(x), x):
            return f"(np.arange({x.size}) % 7 + 1).reshape({x.shape}).astype({dtype})"
        return (
            f"np.random.default_rng(0).integers(0, 2, {x.shape}).astype({dtype})  # or other"
            " numbers"
        )
    text = repr(wide.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({text}).astype({dtype})" if x.size else f"np.zeros({x.shape}, {dtype})"
