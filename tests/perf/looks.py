"""Print what a padded call costs whose Python looks at sizes: `python -m tests.perf.looks`.

A body with a symbolic trace, the same with a size as a number (made from examples), at exact size,
and by hand: the body again with a mask, and the size as an argument of `jax.jit`. Seconds are of
processors, so other work on the machine changes them little; the sides take turns, each with
functions of its own, and the median counts. Results are compared first.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from examples._figures import record
from examples._lines import lines_of
from jitney import configure, optimize

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "3"))
LAYERS = 8
BUCKET = 32


def _body(x: Any, scale: Any) -> Any:
    for k in range(LAYERS):
        x = jnp.tanh(x * (k + 1) / scale) + jnp.cos(x) * jnp.mean(x)
    return x


def _functions() -> tuple[Any, Any]:
    """Fresh ones, so that nothing was traced or compiled before."""

    def symbolic(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return _body(x, jnp.arange(x.shape[0], dtype=x.dtype) + 1)

    def looking(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return _body(x, np.arange(len(x), dtype=np.float32) + 1)

    return symbolic, looking


def by_hand(started: Callable[[], None] = lambda: None) -> Callable[[Any], Any]:
    """What one writes without jitney; `started` is called by each trace."""

    @jax.jit
    def masked(x: Any, n: Any) -> Any:
        started()
        places = jnp.arange(BUCKET, dtype=x.dtype)
        inside, scale = places < n, places + 1
        for k in range(LAYERS):
            mean = jnp.sum(jnp.where(inside, x, 0)) / n
            x = jnp.tanh(x * (k + 1) / scale) + jnp.cos(x) * mean
        return x

    def run(x: Any) -> Any:
        n = len(x)
        padded = np.pad(x, (0, BUCKET - n))
        return np.asarray(masked(padded, np.float32(n)))[:n]

    return run


def lines(way: str) -> int:
    """Lines of code beside the body: of ours the decorator's."""
    return lines_of(sys.modules[__name__], "by_hand") - 1 if way == "by hand" else 1


def _seconds(call: Any) -> tuple[float, Any]:
    began = time.process_time()
    out = np.asarray(call())
    return time.process_time() - began, out


def _round() -> dict[str, tuple[float, float, float, int, int]]:
    first, new = np.ones(20, np.float32), np.ones(25, np.float32)
    symbolic, looking = _functions()
    ways = {
        "symbolic": (symbolic, {"pad": {"n": [BUCKET]}}),
        "from examples": (looking, {"pad": {"n": [BUCKET]}}),
        "exact": (looking, {}),
        "by hand": (looking, None),
    }
    found: dict[str, tuple[float, float, float, int, int]] = {}
    for name, (fn, options) in ways.items():
        calls = 0

        def count() -> None:
            nonlocal calls
            calls += 1

        def counted(x: Float[Array, "n"], fn: Any = fn) -> Float[Array, "n"]:
            count()
            return fn(x)

        traced, _ = _seconds(lambda fn=fn: jax.make_jaxpr(lambda x: fn(x))(first).eqns and 0)
        f = by_hand(count) if options is None else optimize(counted, **options)
        once, a = _seconds(lambda f=f: f(first))
        of_first = calls
        again, b = _seconds(lambda f=f: f(new))
        np.testing.assert_allclose(a, jax.jit(fn)(first), rtol=1e-5)
        np.testing.assert_allclose(b, jax.jit(fn)(new), rtol=1e-5)
        found[name] = (once, again, traced, of_first, calls - of_first)
    return found


def main() -> None:
    configure(cache=False)  # first calls are to be compiled
    _round()
    rounds = [_round() for _ in range(ROUNDS)]
    head = "first call, ms", "its traces", "a new size, ms", "its traces", "one trace, ms", "lines"
    print("| way |", " | ".join(head), "|")
    print("|---" * 7 + "|")
    figures: dict[str, dict[str, float]] = {}
    for name in rounds[0]:
        once, again, traced = (
            1e3 * statistics.median(each[name][k] for each in rounds) for k in range(3)
        )
        first, new = rounds[-1][name][3:]
        figures[name] = {"first": once, "new": again, "traces": first}
        print(
            f"| {name} | {once:.0f} | {first} | {again:.1f} | {new} | {traced:.1f} | {lines(name)} |"
        )
    record(ms=figures)


if __name__ == "__main__":
    main()
