"""What a warm call costs: `jitney.optimize` against `jax.jit` on the flat leaves and
`eqx.filter_jit`, in turn in one process.

Run from the project's root: `python -m tests.perf.warm_call`. Results are compared first; compiling
is not timed. Each figure is the least of many laps of 25 calls, in microseconds a call. A line
shows that a call returns before the device is done, and one each feature's cost.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import jitney
from examples._figures import record

from ._features import THREADS, features, in_threads

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "15"))
CALLS = 500
LAPS = 20  # that a round has
Call = Callable[[], Any]


def one(x):
    return x + 1


def three(x, y, z):
    return x + y + z


def annotated(
    x: Float[Array, "n"], y: Float[Array, "n"], z: Float[Array, "n"]
) -> Float[Array, "n"]:
    return x + y + z


def apply(model, x):
    return model(x)


def arrays_case(
    fn: Callable[..., Any], plain: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[Call, Call, Call]:
    """The same call under `jax.jit`, `optimize` and `filter_jit`."""
    jitted, program, filtered = jax.jit(plain), jitney.optimize(fn), eqx.filter_jit(plain)
    return (
        lambda: jitted(*args, **kwargs),
        lambda: program(*args, **kwargs),
        lambda: filtered(*args, **kwargs),
    )


def gradient_case() -> tuple[Call, Call, Call]:
    """The gradient with respect to one of two arrays."""

    def loss(x: Float[Array, "n"], y: Float[Array, "k"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(x) ** 2) * jnp.sum(y**3)

    x, y = jnp.ones(4), jnp.ones(3)
    jitted, program, filtered = (
        jax.jit(jax.grad(loss)),
        jitney.lazy_derivatives(wrt="x")(loss),
        eqx.filter_jit(eqx.filter_grad(loss)),
    )
    return lambda: jitted(x, y), lambda: program.grad(x, y), lambda: filtered(x, y)


def model_case(depth: int, kind: str) -> tuple[str, tuple[Call, Call, Call]]:
    """An MLP as an argument, another one in each call, or decorated itself; `jax.jit` gets its
    arrays ready flat.
    """
    model = eqx.nn.MLP(4, 4, 4, depth, key=jax.random.key(0))
    x = jnp.ones(4)
    arrays, rest = eqx.partition(model, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)
    flat = jax.jit(lambda x, *leaves: eqx.combine(jax.tree.unflatten(treedef, leaves), rest)(x))
    name = f"{kind} MLP of {len(leaves)} arrays"
    if kind == "decorated":
        program, filtered = jitney.optimize(model), eqx.filter_jit(model)
        return name, (lambda: flat(x, *leaves), lambda: program(x), lambda: filtered(x))
    program, filtered = jitney.optimize(apply), eqx.filter_jit(apply)
    if kind == "new":
        models = itertools.cycle([jax.tree.map(lambda leaf: leaf, model) for _ in range(200)])
        return name, (
            lambda: flat(x, *leaves),
            lambda: program(next(models), x),
            lambda: filtered(next(models), x),
        )
    return name, (lambda: flat(x, *leaves), lambda: program(model, x), lambda: filtered(model, x))


def returned_case(depth: int) -> tuple[str, tuple[Call, Call, Call]]:
    """A change of an MLP, which is returned: among its leaves is a function. `jax.jit` gets and
    gives its arrays.
    """
    model = eqx.nn.MLP(4, 4, 4, depth, key=jax.random.key(0))

    def doubled(model: Any) -> Any:
        return jax.tree.map(lambda leaf: 2 * leaf if eqx.is_array(leaf) else leaf, model)

    arrays = eqx.filter(model, eqx.is_array)
    jitted, program, filtered = jax.jit(doubled), jitney.optimize(doubled), eqx.filter_jit(doubled)
    name = f"returned MLP of {len(jax.tree.leaves(arrays))} arrays"
    return name, (lambda: jitted(arrays), lambda: program(model), lambda: filtered(model))


def loop_case(depth: int, *, adam: bool) -> tuple[str, tuple[Call, Call, Call]]:
    """A training loop: what comes out of a call goes into the next one. `jax.jit` gets and gives
    flat arrays.
    """
    model = eqx.nn.MLP(4, 4, 16, depth, key=jax.random.key(0))
    optimiser = optax.adam(1e-3) if adam else optax.sgd(1e-3)
    state, x = optimiser.init(eqx.filter(model, eqx.is_array)), jnp.ones(4)

    def step(model: Any, state: Any, x: Any) -> Any:
        grads = eqx.filter_grad(lambda model: jnp.sum(model(x) ** 2))(model)
        updates, state = optimiser.update(grads, state, model)
        return eqx.apply_updates(model, updates), state

    arrays, rest = eqx.partition((model, state), eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def flat(leaves: list[Any], x: Any) -> list[Any]:
        return jax.tree.leaves(
            eqx.filter(
                step(*eqx.combine(jax.tree.unflatten(treedef, leaves), rest), x), eqx.is_array
            )
        )

    jitted, program, filtered = jax.jit(flat), jitney.optimize(step), eqx.filter_jit(step)
    held: list[Any] = [leaves, (model, state), (model, state)]

    def flat_step() -> Any:
        held[0] = jitted(held[0], x)
        return held[0]

    def our_step() -> Any:
        held[1] = program(*held[1], x)
        return held[1]

    def filtered_step() -> Any:
        held[2] = filtered(*held[2], x)
        return held[2]

    name = f"training, {len(leaves)} arrays{' with Adam' if adam else ''}"
    return name, (flat_step, our_step, filtered_step)


def of_many_steps(n: int = 10_000) -> str:
    """Seconds of many tiny steps: one by one under `jax.jit` and under `optimize`, and in one
    program.
    """
    _, (jitted, program, _) = loop_case(2, adam=False)

    def step(model: Any) -> Any:
        grads = eqx.filter_grad(lambda model: jnp.sum(model(jnp.ones(4)) ** 2))(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, grads))

    run = jitney.scan_steps(step, n)
    model = eqx.nn.MLP(4, 4, 16, 2, key=jax.random.key(0))
    run(model)
    seconds = []

    def one_by_one(call: Call) -> Any:
        # no result is kept: Python's garbage collector would go through ten thousand models, again
        # and again
        for _ in range(n):
            out = call()
        return out

    for go in (lambda: one_by_one(jitted), lambda: one_by_one(program), lambda: run(model)):
        start = time.perf_counter()
        jax.block_until_ready(eqx.filter(go(), eqx.is_array))
        seconds.append(time.perf_counter() - start)
    return (
        f"{n} steps: {seconds[0]:.2f} s one by one under jax.jit, {seconds[1]:.2f} s under"
        f" optimize, {seconds[2]:.3f} s by scan_steps"
    )


def arrays_of(result: Any) -> Any:
    """To compare results by."""
    return np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(result, eqx.is_array))]
    )


def race(calls: Sequence[Call], count: int = CALLS) -> list[float]:
    """Microseconds a call, each the least of many short laps in turn: a long one is hit by what
    else runs on the machine.
    """
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS * LAPS if count >= LAPS else ROUNDS):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(max(1, count // LAPS)):
                call()
            least[i] = min(least[i], (time.perf_counter() - start) / max(1, count // LAPS) * 1e6)
    return least


def returns_at_once() -> str:
    """Milliseconds until a call of a long program returns, and until its result is there."""

    @jitney.optimize
    def long(x):
        return jax.lax.fori_loop(0, 60, lambda _, y: y @ x / 700.0, x)

    x = jnp.ones((700, 700))
    long(x).block_until_ready()
    start = time.perf_counter()
    out = long(x)
    returned = time.perf_counter() - start
    out.block_until_ready()
    return (
        f"a program of {(time.perf_counter() - start) * 1e3:.0f} ms returns after"
        f" {returned * 1e3:.2f} ms"
    )


def of_features() -> dict[str, dict[str, float]]:
    """One line for each, with equal results first."""
    print(f"\n{'one feature':36} {'jax.jit':>8} {'jitney':>8} {'ratio':>6} {'more':>7}")
    pairs = [(*pair, CALLS) for pair in features()] + [(*in_threads(CALLS), 1)]
    found: dict[str, dict[str, float]] = {}
    for name, jitted, program, calls in pairs:
        for ours, theirs in zip(jax.tree.leaves(program()), jax.tree.leaves(jitted()), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        jit, ours = race([jitted, program], calls)
        if calls == 1:  # of all threads together
            jit, ours = jit / (CALLS * THREADS), ours / (CALLS * THREADS)
        print(f"{name:36} {jit:8.2f} {ours:8.2f} {ours / jit:6.2f} {ours - jit:7.2f}")
        found[name] = {"jit": jit, "jitney": ours}
    return found


def main() -> None:
    x = jnp.ones(4)
    cases = [
        ("one array", arrays_case(one, one, x)),
        ("three arrays", arrays_case(three, three, x, x, x)),
        ("three annotated arrays", arrays_case(annotated, three, x, x, x)),
        ("three arrays, one by keyword", arrays_case(three, three, x, x, z=x)),
        ("a gradient", gradient_case()),
        *(
            model_case(depth, kind)
            for kind in ("argument", "new", "decorated")
            for depth in (2, 8, 32)
        ),
        returned_case(8),
        *(loop_case(depth, adam=adam) for adam in (False, True) for depth in (2, 8, 32)),
    ]
    print(f"jax {jax.__version__}, equinox {eqx.__version__}; microseconds a warm call")
    print(
        f"{'':32} {'jax.jit':>8} {'jitney':>8} {'filter_jit':>10} {'of jax.jit':>10}"
        f" {'of filter_jit':>13}"
    )
    found: dict[str, dict[str, float]] = {}
    for name, calls in cases:
        expected, *others = [arrays_of(call()) for call in calls]
        for other in others:
            np.testing.assert_allclose(other, expected, rtol=1e-5)
        jit, ours, filtered = race(calls)
        found[name] = {"jit": jit, "jitney": ours}
        print(
            f"{name:32} {jit:8.2f} {ours:8.2f} {filtered:10.2f} {ours / jit:10.2f}"
            f" {ours / filtered:13.2f}"
        )
    print(of_many_steps())
    print(returns_at_once())
    record(us=found, features=of_features())


if __name__ == "__main__":
    main()
