"""Everything at once for an hour: `python -m tests.soak --minutes 60`.

Four threads call programs in turn, at sizes and with functions that change all the time, beside
calls that fail: padded, mapped, cut, streamed, with donated arguments, run-time checks and static
values, written to files and loaded again. Each result is compared with NumPy's. Once a minute a
line says how many calls there were, and what the process holds: memory, threads, open files, the
folder of compiled programs. A wrong result or an unexpected error ends it. `--plain` does the same
under `jax.jit`, to tell what JAX holds itself.

Before that, fresh objects of a megabyte, closures, and attributes that are replaced: few of them
may live on, and memory stays flat.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

THREADS = 4
LARGEST = 100
LARGE = 330_000  # numbers, 1.3 MB
WARM, FRESH = 40, 300  # fresh objects of each kind, before memory is looked at and then
MOST_ALIVE, MOST_MB = 17, 100  # of those; jitney keeps 16 MiB of what one object has held
Random = np.random.Generator
Act = Callable[[Random], None]


def spread(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean((x - jnp.mean(x)) ** 2))


def norms(x: Float[Array, "k"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(x * x))


def shifted(x: Float[Array, "n"], names: dict[str, int]) -> Float[Array, "n"]:
    return x + sum(names.values())


def checked(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(eqx.error_if(x, jnp.any(x < 0), "below zero"))


def step(
    weights: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
) -> Float[Array, "k"]:
    return weights - 0.1 * jax.grad(lambda weights: jnp.mean((x @ weights - y) ** 2))(weights)


def drawn(random: Random, *shape: int) -> np.ndarray:
    return random.normal(size=shape).astype(np.float32)


def size(random: Random) -> int:
    return int(random.integers(1, LARGEST))


def close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, rtol=2e-5, atol=2e-5)


class Soak:
    """The programs, made once, and what is done with them.

    Args:
        plain: Use `jax.jit` and nothing of jitney's.
    """

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self.spread = self.compiled(spread, pad={"n": "pow2"})
        self.norms = self.compiled(norms, jax.jit(jax.vmap(norms)), vmap="row", pad={"row": "pow2"})
        self.cut = self.compiled(spread, chunk={"n": 64})
        self.shifted = self.compiled(shifted, static="names")
        self.step = self.compiled(step, donate="weights", pad={"n": "pow2"})
        self.checked = self.compiled(checked, eqx.filter_jit(checked), pad={"n": "pow2"})

    def compiled(self, fn: Callable[..., Any], plain: Any = None, **options: Any) -> Any:
        return (plain or jax.jit(fn)) if self.plain else jitney.optimize(**options)(fn)

    @property
    def acts(self) -> tuple[Act, ...]:
        """What is done; the last ones are jitney's alone."""
        shared = (
            self.padded,
            self.mapped,
            self.chunked,
            self.static,
            self.trained,
            self.fresh,
            self.failed_check,
        )
        return (
            shared
            if self.plain
            else (*shared, self.refused, self.differentiated, self.streamed, self.filed)
        )

    def padded(self, random: Random) -> None:
        x = drawn(random, size(random))
        close(self.spread(x), x.std())

    def mapped(self, random: Random) -> None:
        x = drawn(random, size(random), 5)
        close(self.norms(x), np.linalg.norm(x, axis=1))

    def chunked(self, random: Random) -> None:
        x = drawn(random, size(random))
        close(self.cut(x), x.std())

    def static(self, random: Random) -> None:
        x, names = drawn(random, 8), {"a": int(random.integers(4)), "b": int(random.integers(4))}
        close(self.shifted(x, names), x + sum(names.values()))

    def trained(self, random: Random) -> None:
        weights, x = drawn(random, 3), drawn(random, size(random), 3)
        y = x @ weights
        close(self.step(jnp.array(weights), x, y), weights)

    def fresh(self, random: Random) -> None:
        """A function that nobody has called before, and nobody keeps."""
        factor, x = float(random.normal()), drawn(random, 4)
        close(self.compiled(lambda x: factor * x)(x), np.float32(factor) * x)

    def failed_check(self, random: Random) -> None:
        x = np.abs(drawn(random, size(random)))
        close(self.checked(x), x.sum())
        x[int(random.integers(x.size))] = -1
        try:
            self.checked(x).block_until_ready()
        except Exception as error:  # that of Equinox is of a class that is not public
            if "below zero" not in str(error):
                raise
        else:
            raise AssertionError("a failed check was not told")

    def refused(self, random: Random) -> None:
        try:
            self.spread(drawn(random, 2, 2))
        except jitney.errors.ContractError:
            return
        raise AssertionError("a wrong shape was taken")

    def differentiated(self, random: Random) -> None:
        x = drawn(random, size(random) + 1)
        close(self.spread.grad(x)["x"], (x - x.mean()) / x.size / x.std())

    def streamed(self, random: Random) -> None:
        x = drawn(random, size(random))
        close(jitney.stream(self.spread, x, chunk={"n": 64}).result, x.std())

    def filed(self, random: Random) -> None:
        x = drawn(random, 1 + size(random) % 8)
        with tempfile.TemporaryDirectory() as folder:
            self.spread.export(Path(folder) / "program", x)
            close(jitney.load(Path(folder) / "program")(x), x.std())


class Model:
    """An object of a plain class with an array of a megabyte, which knows itself by way of a
    callback.
    """

    def __init__(self, value: float) -> None:
        self.weights = np.full(LARGE, value, np.float32)
        self.callback = self.times

    def times(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * self.weights[0]

    def call(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.callback(x)


def closing(value: float) -> Callable[[Any], Any]:
    weights = np.full(LARGE, value, np.float32)
    return lambda x: x * weights[0]


def called(fn: Callable[[Any], Any], x: Float[Array, "n"]) -> Float[Array, "n"]:
    return fn(x)


def of_fresh_objects(plain: bool) -> dict[str, Callable[[float], tuple[Any, Any]]]:
    """From a number to what it is put into, which is new for each call or replaced, and the result
    of the call.
    """
    optimize = jax.jit if plain else jitney.optimize
    program, model, x = (
        jax.jit(called, static_argnums=0) if plain else jitney.optimize(called),
        Model(0),
        np.ones(3, np.float32),
    )

    def method(value: float) -> tuple[Any, Any]:
        fresh = Model(value)
        return fresh, optimize(fresh.call)(x)

    def closure(value: float) -> tuple[Any, Any]:
        fresh = closing(value)
        return fresh, optimize(fresh)(x)

    def argument(value: float) -> tuple[Any, Any]:
        fresh = closing(value)
        return fresh, program(fresh, x)

    def attribute(value: float) -> tuple[Any, Any]:
        model.weights = np.full(LARGE, value, np.float32)
        return model.weights, optimize(model.call)(x)

    return {"method": method, "closure": closure, "argument": argument} | (
        {} if plain else {"attribute": attribute}
    )


def run_fresh(plain: bool) -> None:
    """Each kind many times, after some that fill what is bounded.

    Raises:
        AssertionError: Memory grows, or objects live on.
    """
    for name, use in of_fresh_objects(plain).items():
        objects: list[weakref.ref[Any]] = []
        before = 0.0
        for count in range(FRESH + WARM):
            if count == WARM:
                gc.collect()
                before = held()["MB"]
            fresh, result = use(count)
            close(result, np.full(3, count, np.float32))
            objects.append(weakref.ref(fresh))
            del fresh
        gc.collect()
        alive, grown = sum(each() is not None for each in objects), held()["MB"] - before
        print(f"{FRESH} fresh, {name}: {alive} live, {grown:+.0f} MB", flush=True)
        if not plain and (alive > MOST_ALIVE or grown > MOST_MB):
            raise AssertionError(f"what calls were given is held: {name}")


def held() -> dict[str, float]:
    """What this process holds: MB of memory, thousands of Python's objects, threads, open files, MB
    of compiled programs.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    folder = Path(os.environ["JITNEY_CACHE_DIR"])
    kept = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "thousand objects": len(gc.get_objects()) / 1e3,
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "MB kept": kept / 1e6,
    }


def run(soak: Soak, seconds: float, seed: int, every: float = 60) -> None:
    """Until the time is over, or the first thread fails, whose error is raised."""
    done, start, stop = Counter[str](), time.monotonic(), threading.Event()

    def work(number: int) -> None:
        random = np.random.default_rng([seed, number])
        while time.monotonic() < start + seconds and not stop.is_set():
            act = soak.acts[int(random.integers(len(soak.acts)))]
            act(random)
            done[act.__name__] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        running = {pool.submit(work, number) for number in range(THREADS)}
        while running:
            ended, running = wait(running, every, FIRST_EXCEPTION)
            if any(future.exception() for future in ended):
                stop.set()
            gc.collect()
            figures = ", ".join(f"{value:.0f} {name}" for name, value in held().items())
            print(
                f"{(time.monotonic() - start) / 60:5.1f} min: {done.total()} acts, {figures}",
                flush=True,
            )
            for future in ended:
                future.result()
    print(*(f"{count} {name}" for name, count in sorted(done.items())), sep=", ")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="the same under `jax.jit`")
    chosen = parser.parse_args()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "(?s).*static .* takes its 9th value", jitney.JitneyWarning
        )
        run_fresh(chosen.plain)
    run(Soak(chosen.plain), 60 * chosen.minutes, chosen.seed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("JITNEY_CACHE_DIR", folder)
        main()
