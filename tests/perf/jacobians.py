"""Is a Jacobian made in the cheapest mode? `f.jacobian` against every candidate, over problems of
all structures.

Run from the project's root: `python -m tests.perf.jacobians`. The candidates are
`jax.jit(jax.jacfwd(f))`, `jax.jit(jax.jacrev(f))`, coloured directions, and forward passes in
chunks of 32. All are compared with the un-jitted `jax.jacfwd(f)` first, and a candidate that gives
other numbers is out of the race. `f.jacobian` is called inside `jax.jit` too, so that modes are
compared and not the two microseconds that a jitney call takes more (`tests.perf.warm_call` has
these). Times are the least of several rounds in turn, compiling apart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jitney
from examples._figures import record
from tests.perf._problems import PROBLEMS, Problem

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "25"))
SECONDS = 0.008  # of each round and candidate
CHUNK = 32
CANDIDATES = ("forward", "reverse", "coloured", "chunked")


def chunked(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Forward passes, some at a time: the columns, one after the other."""

    def jacobian(x: Any) -> Any:
        eye = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
        rows = jax.lax.map(lambda t: jax.jvp(fn, (x,), (t,))[1], eye, batch_size=CHUNK)
        return jnp.moveaxis(rows, 0, -1).reshape(*rows.shape[1:], *x.shape)

    return jacobian


def candidates(problem: Problem) -> Mapping[str, Callable[[Any], Any]]:
    fn, _ = problem
    coloured = jitney.lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x))
    return {
        "forward": jax.jit(jax.jacfwd(fn)),
        "reverse": jax.jit(jax.jacrev(fn)),
        "coloured": coloured.jacobian,
        "chunked": jax.jit(chunked(fn)),
    }


def seconds(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """The least time of a call of each, measured in turn."""
    counts: dict[str, int] = {}
    for name, call in calls.items():
        start = time.perf_counter()
        jax.block_until_ready(call())
        counts[name] = max(1, int(SECONDS / max(time.perf_counter() - start, 1e-6)))
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            # after what the candidate before it did to caches and memory
            jax.block_until_ready(call())
            start = time.perf_counter()
            for _ in range(counts[name]):
                jax.block_until_ready(call())
            best[name] = min(best[name], (time.perf_counter() - start) / counts[name])
    return best


def measure(name: str, problem: Problem) -> float:
    """Print a line, and give back how many times the best candidate `f.jacobian` takes."""
    fn, at = problem
    x = jnp.asarray(at)
    auto = jitney.lazy_derivatives(wrt="x")(lambda x: fn(x))
    jacobian = jax.jit(auto.jacobian)
    calls: dict[str, Callable[[], Any]] = {
        key: lambda f=f: f(x) for key, f in candidates(problem).items()
    }
    start = time.perf_counter()
    jax.block_until_ready(jacobian(x))
    first = time.perf_counter() - start
    want = jax.jacfwd(fn)(x)  # not compiled as a whole
    np.testing.assert_allclose(jacobian(x), want, rtol=2e-3, atol=2e-3, err_msg=name)
    wrong = [
        key for key, call in calls.items() if not np.allclose(call(), want, rtol=2e-3, atol=2e-3)
    ]
    for key in wrong:
        del calls[key]
    times = seconds({**calls, "auto": lambda: jacobian(x)})
    best = min(calls, key=lambda key: times[key])
    mode = next(
        line.why for line in auto.jacobian.plan(x).lines if line.name == "derivative"
    ).split(":")[0]
    ratio = times["auto"] / times[best]
    shown = "".join(
        f"{times[key] * 1e6:10.0f}" if key in times else f"{'wrong':>10}"
        for key in (*CANDIDATES, "auto")
    )
    print(
        f"{name:26}{shown}{ratio:7.2f}  {mode} (best: {best}), first call {first:.2f} s", flush=True
    )
    return ratio


def main() -> None:
    print(f"Jacobians, microseconds a call, jax {jax.__version__}, {jax.default_backend()}")
    print(
        f"{'':26}{'forward':>10}{'reverse':>10}{'coloured':>10}{'chunked':>10}{'jitney':>10}{'ratio':>7}"
    )
    chosen = os.environ.get("JITNEY_BENCH_ONLY")
    ratios = {
        name: measure(name, problem)
        for name, problem in PROBLEMS.items()
        if not chosen or chosen in name
    }
    slow = [name for name, ratio in ratios.items() if ratio > 1.1]
    print(f"{len(ratios)} problems; more than 1.1 times the best: {', '.join(slow) or 'none'}")
    record(problems=len(ratios), slow=len(slow))


if __name__ == "__main__":
    main()
