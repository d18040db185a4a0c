"""One call for each feature, beside the flat call of `jax.jit` that does the same by hand.
`tests.perf.warm_call` times them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

V = Float[Array, "n"]
Call = Callable[..., Any]
Pair = tuple[str, Call, Call]
X = jnp.ones(1000)
SIZE = jax.device_put(np.asarray(1000, np.int32))
THREADS = 4
SETTINGS = {
    "an int": 3,
    "a dict of 5": dict.fromkeys("abcde", 1.0),
    "a list of 100": [*range(100)],
    "an array of 1000": np.ones(1000),
}


def added(x, y, z):
    return x + y + z


def annotated(x: V, y: V, z: V) -> V:
    return x + y + z


def scaled(x: V, y: V) -> V:
    return x + 2 * y


def sum_of_one(x: V) -> Float[Array, ""]:
    return jnp.sum(x)


def sum_of_five(a: V, b: V, c: V, d: V, e: V) -> Float[Array, ""]:
    return jnp.sum(a + b + c + d + e)


def by_hand(total: Callable[..., Any]) -> Callable[..., Any]:
    """The least that fills a bucket: new memory, two copies, one program with the true size."""

    @jax.jit
    def padded(size: Any, *arrays: Any) -> Any:
        valid = jnp.arange(1024) < size
        return total(*[jnp.where(valid, x, 0) for x in arrays])

    def call(*arrays: Any) -> Any:
        return padded(SIZE, *map(filled, arrays))

    return call


def by_hand_cut() -> Callable[..., Any]:
    """The same with the axis in the result, whose part is an array of JAX without a program."""
    padded = jax.jit(scaled)

    def call(*arrays: Any) -> Any:
        return jax.device_put(np.asarray(padded(*map(filled, arrays)))[:1000])

    return call


def filled(x: Any) -> Any:
    out = np.empty(1024, np.float32)
    out[:1000] = x
    out[1000:] = out[999:1000]
    return out


def one(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sin(x) + 1


def with_settings(x, settings):
    return x + np.size(settings)


def checked(x):
    return eqx.error_if(jnp.sqrt(x), jnp.any(x < 0), "must not be negative")


def both(jitted: Call, program: Call, *args: Any) -> tuple[Call, Call]:
    """Two calls on the same arguments, bound now: all pairs are listed before one is timed."""
    return lambda: jitted(*args), lambda: program(*args)


def features() -> Iterator[Pair]:
    """Names, and the calls under `jax.jit` and `jitney`."""
    jitted, program = jax.jit(added), jitney.optimize(annotated)
    yield "contracts", *both(jitted, program, X, X, X)
    yield from pads()
    yield donated()
    for name, settings in SETTINGS.items():
        yield static(name, settings)
    mapped, ours = jax.jit(jax.vmap(one)), jitney.optimize(vmap="n")(one)
    yield "vmap", *both(mapped, ours, X)
    yield sharded()
    yield from checks()


def pads() -> Iterator[Pair]:
    """In a bucket of 1024: what fills it, and what is cut out of it. By hand there is a program for
    each size.
    """
    sums = {1: sum_of_one, 5: sum_of_five}
    jitted, program = jax.jit(scaled), jitney.optimize(pad={"n": "pow2"})(scaled)
    full = jnp.ones(1024)
    yield "pad, a size that fills its bucket", *both(jitted, program, full, full)
    yield "pad, a size that does not", *both(jitted, program, X, X)
    yield "  a NumPy bucket by hand", *both(jitted, by_hand_cut(), X, X)
    for name, count in (("one array", 1), ("five arrays", 5)):
        jitted, program = jax.jit(sums[count]), jitney.optimize(pad={"n": "pow2"})(sums[count])
        arrays = (X,) * count
        yield f"pad, {name}, not in the result", *both(jitted, program, *arrays)
        yield f"  a NumPy bucket by hand, {name}", *both(jitted, by_hand(sums[count]), *arrays)
    # Calls that may have rows of unlike lengths, and have none.
    mapped = jax.jit(jax.vmap(scaled))
    batched = jitney.optimize(vmap="row", pad={"n": "pow2"})(scaled)
    rows = jnp.ones((4, 1024))
    yield "vmap and pad", *both(mapped, batched, rows, rows)


def donated() -> Pair:
    """A state that goes in and comes out."""
    jitted, program = jax.jit(scaled, donate_argnums=0), jitney.optimize(donate="x")(scaled)
    held = [X + 0, X + 0]

    def by_hand() -> Any:
        held[0] = jitted(held[0], X)
        return held[0]

    def ours() -> Any:
        held[1] = program(held[1], X)
        return held[1]

    return "donate", by_hand, ours


def static(name: str, settings: Any) -> Pair:
    """A static value, which by hand is closed over."""
    jitted, program = (
        jax.jit(lambda x: with_settings(x, settings)),
        jitney.optimize(static="settings")(with_settings),
    )
    return f"static, {name}", lambda: jitted(X), lambda: program(X, settings)


def sharded() -> Pair:
    """Over the devices that there are."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    along = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    x = jax.device_put(X, along)
    jitted, program = (
        jax.jit(scaled, in_shardings=(along, along)),
        jitney.optimize(shard={"n": "data"}, mesh=mesh)(scaled),
    )
    return f"shard over {jax.device_count()}", *both(jitted, program, x, x)


def checks() -> Iterator[Pair]:
    """Under `jax.jit` they are callbacks, whose errors no call waits for."""
    jitted = jax.jit(checked)
    for name, options in (
        ("checks", {}),
        ("checks, cache=False", {"cache": False}),
        ('runtime_checks="later"', {"runtime_checks": "later"}),
    ):
        program: Any = jitney.optimize(checked, **options)
        yield name, *both(jitted, program, X)


def in_threads(calls: int) -> Pair:
    """As many calls in each of several threads at once, of one program."""
    jitted, program = jax.jit(added), jitney.optimize(annotated)

    def at_once(f: Callable[..., Any]) -> None:
        def work() -> None:
            for _ in range(calls):
                f(X, X, X)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return f"{THREADS} threads at once", lambda: at_once(jitted), lambda: at_once(program)
