"""A batch whose way is chosen by measuring, on a machine whose seconds are drawn: so what is chosen
hangs on the seed and on no clock, and any way may be.

The same call is made until its choice has fallen, and once more. In some cases the choice is that
of another size, or was written down by an earlier process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jitney import optimize
from jitney._program.auto import choice_record
from jitney._program.auto.search import WIDTHS
from tests._machine import Machine, run_by

from ._options import Arrays, Option, Way, _planned, _stacked
from ._program import Program
from ._sizes import pick

# A choice has fallen after so many calls.
CALLS = 16
# Elements of a batch, of which 17 and 18 have one record.
FEW, MANY = (2, 3, 5, 18), (18, 20, 66, 70)
NARROW = 40  # axes up to which there are many
BY_HAND: tuple[dict[str, Any], ...] = ({}, {}, {}, {"workers": 2}, {"chunk": {"b": 2}})


def auto(rng: Any, fn: Callable[..., Any], program: Program, n: int) -> Way:
    copies = int(pick(rng, MANY if n < NARROW and rng.random() < 0.5 else FEW))
    how: bool | str = "exact" if rng.random() < 0.4 else True
    options: dict[str, Any] = {"vmap": "b", "auto": how, **pick(rng, BY_HAND)}
    rates = seconds(rng)
    before = str(pick(rng, ("nothing", "nothing", "another size", "another process")))
    made = optimize(**options)(fn)

    def ours(arrays: Arrays) -> Any:
        machine = Machine()
        machine.rates, machine.compiling = rates, 1e-3
        with (
            run_by(machine),
            tempfile.TemporaryDirectory() as folder,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(choice_record, "folder", lambda name: Path(folder) / name)
            if before == "another size" and copies > 2:
                called({name: x[:-1] for name, x in arrays.items()}, made)
            if before == "another process":
                called(arrays, optimize(**options)(program.compiled()))
                found(arrays, Path(folder))
            return called(arrays, made)

    def found(arrays: Arrays, folder: Path) -> None:
        """Check that a choice which was written down is read."""
        made(**arrays)
        told = str(made.plan(**arrays))
        if any(each.is_file() for each in folder.rglob("*")) and "an earlier process" not in told:
            raise AssertionError(f"auto={how!r} does not find the choice of an earlier process")

    def called(arrays: Arrays, f: Callable[..., Any]) -> Any:
        """The result of the last of several calls, after a comparison with those before it."""
        outs = [jax.block_until_ready(f(**arrays)) for _ in range(CALLS)]
        changes = [k for k in range(1, CALLS) if not same(outs[k - 1], outs[k])]
        if len(changes) > (how is True):
            raise AssertionError(f"auto={how!r} has other bits at calls {changes}")
        return outs[-1]

    inner = jax.jit(lambda arrays: jax.vmap(lambda a: fn(**a))(arrays))
    text = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return Way(
        ours,
        inner,
        f"optimize({text})(f) after {before}, if {min(rates, key=lambda way: rates[way])} is best:",
        _planned(made),
        f"mapped {copies}",
        "close",
        partial(_stacked, copies=copies),
    )


def seconds(rng: Any) -> dict[object, float]:
    """Seconds of an element in each way: the further from the best, the more."""
    widths = [*WIDTHS, None]
    best, threads = int(rng.integers(len(widths))), bool(rng.random() < 0.5)
    rates: dict[object, float] = {}
    for at, width in enumerate(widths):
        for threaded in (False, True):
            name = "whole" if width is None else f"{width:,} at a time"
            name = f"{name} in threads" if threaded else name
            rates[name] = 0.1 * 1.4 ** abs(at - best) * (1.2 if threaded != threads else 1.0)
    return rates


def same(ours: Any, theirs: Any) -> bool:
    """Whether results are equal to the bit."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(bits(a) == bits(b) for a, b in pairs)


def bits(leaf: Any) -> tuple[Any, ...]:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array.dtype, array.shape, array.tobytes()


AUTO = {"auto": Option(auto, 0.7)}
