"""What `runtime_checks="later"` gains: a program of about 5 ms with a run-time check, 100 calls, and work
of the host between them.

Run from the project's root: `python -m tests.perf.later`. The calls are made in turn, with checks
that are waited for, with checks that are looked at later, and without any; the results are compared
first. The host's work reads a file's worth of bytes, which needs one core and leaves Python's lock
to others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jitney
from examples._figures import record

CALLS, ROUNDS = 100, 5
DATA = bytes(6_000_000)


def unchecked(x):
    return jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(y @ x), x)


def checked(x):
    return eqx.error_if(unchecked(x), jnp.any(jnp.isnan(x)), "not a number")


def seconds(f: Callable[[Any], Any], x: Any, *, works: bool) -> float:
    """Of all calls, to the end of the last."""
    start = time.perf_counter()
    for _ in range(CALLS):
        x = f(x)
        if works:
            hashlib.sha256(DATA).digest()
    x.block_until_ready()
    jitney.wait()
    return time.perf_counter() - start


def main() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(220, 220)) / 15, jnp.float32)
    programs = {
        "checks now": jitney.optimize(checked),
        "checks later": jitney.optimize(checked, runtime_checks="later"),
        "no checks": jitney.optimize(unchecked),
    }
    for f in programs.values():
        np.testing.assert_array_equal(f(x), jax.jit(unchecked)(x))
    start = time.perf_counter()
    for _ in range(CALLS):
        hashlib.sha256(DATA).digest()
    print(
        f"jax {jax.__version__}; {CALLS} calls; work of the host alone:"
        f" {(time.perf_counter() - start) / CALLS * 1e3:.2f} ms a call"
    )
    for works in (False, True):
        rounds = [
            {name: seconds(f, x, works=works) for name, f in programs.items()}
            for _ in range(ROUNDS)
        ]
        listed = ", ".join(
            f"{name} {min(each[name] for each in rounds) / CALLS * 1e3:.2f} ms" for name in programs
        )
        ratios = [each["checks later"] / each["checks now"] for each in rounds]
        listed += f"; later of now, round by round: {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{'with' if works else 'without'} work of the host: {listed}")
    record(least=min(ratios), most=max(ratios))  # of those with work of the host, the last


if __name__ == "__main__":
    main()
