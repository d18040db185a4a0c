"""What decorating gains beside other libraries: the first calls at several sizes, and the calls
after them.

    python -m tests.perf.libraries            all that are installed
    python -m tests.perf.libraries flax pandas

Each body is that of the page in `docs/with`. `jax.jit` compiles each size, and so does the library
itself; `jitney` pads to a bucket. Both start without a persistent cache, in one process, in turns by
size; results are asserted equal first. `warm` is the least of five rounds over the same sizes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["JITNEY_CACHE"] = "off"

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """One body: how it is decorated, the sizes, and the arguments at a size."""

    body: Callable[..., Any]
    options: dict[str, Any]
    sizes: tuple[int, ...]
    arguments: Callable[[int], tuple[Any, ...]]
    tolerance: float = 1e-4


def points(n: int) -> tuple[Any, Any]:
    """A noisy line."""
    x = RNG.standard_normal(n).astype(np.float32)
    return x, (0.3 + 1.2 * x + 0.5 * RNG.standard_normal(n)).astype(np.float32)


def flax() -> Case:
    """A step of `TrainState`."""
    import flax.linen as nn
    import optax
    from flax.training.train_state import TrainState

    net = nn.Sequential([nn.Dense(32), nn.tanh, nn.Dense(1)])
    params = net.init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    fresh = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-2))
    fresh = fresh.replace(step=jnp.zeros((), jnp.int32))

    def step(state, x: Float[Array, "batch 2"], y: Float[Array, "batch"]):
        def loss(params):
            return jnp.mean((state.apply_fn({"params": params}, x)[:, 0] - y) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    def arguments(n: int) -> tuple[Any, ...]:
        x = RNG.uniform(-1, 1, (n, 2)).astype(np.float32)
        return fresh, x, np.sin(3 * x[:, 0]) * x[:, 1]

    return Case(step, {"pad": {"batch": "pow2"}}, tuple(range(33, 65, 3)), arguments)


def numpyro() -> Case:
    """A whole run of NUTS."""
    import numpyro as pyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(x, y):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("n", x.shape[0]):
            pyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)

    def posterior(key, x: Float[Array, "n"], y: Float[Array, "n"]):
        mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
        mcmc.run(key, x, y)
        return {name: jnp.mean(draws) for name, draws in mcmc.get_samples().items()}

    return Case(
        posterior,
        {"pad": {"n": "pow2"}},
        (40, 50, 60),
        lambda n: (jax.random.key(0), *points(n)),
        0.1,  # chains part after rounding: means of 200 draws
    )


def blackjax() -> Case:
    """Draws of NUTS, in a loop of `lax.scan`."""
    import blackjax as bj

    def sample(q, key, x: Float[Array, "n"], y: Float[Array, "n"]):
        def density(q):
            return -jnp.sum((y - q["a"] - q["b"] * x) ** 2) / 0.5 - (q["a"] ** 2 + q["b"] ** 2) / 2

        nuts = bj.nuts(density, step_size=0.1, inverse_mass_matrix=jnp.ones(2))

        def one(state, key):
            state, _ = nuts.step(key, state)
            return state, state.position

        return jax.lax.scan(one, nuts.init(q), jax.random.split(key, 200))[1]["b"].mean()

    start = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    return Case(
        sample,
        {"pad": {"n": "pow2"}},
        (40, 50, 60),
        lambda n: (start, jax.random.key(0), *points(n)),
        0.1,
    )


def diffrax() -> Case:
    """Solves for several numbers of cells."""
    import diffrax as dfx

    def solve(y0: Float[Array, "species"], rate: Float[Array, "species"]):
        term = dfx.ODETerm(lambda t, y, rate: -rate * y)
        steps = dfx.PIDController(1e-5, 1e-6)
        solution = dfx.diffeqsolve(
            term, dfx.Tsit5(), 0.0, 2.0, 0.05, y0, args=rate, stepsize_controller=steps
        )
        return solution.ys[0]

    return Case(
        solve,
        {"vmap": "cell", "pad": {"cell": "pow2"}},
        (40, 50, 60),
        lambda n: (RNG.uniform(1, 2, (n, 3)).astype(np.float32), np.float32([0.5, 1, 2])),
    )


def optimistix() -> Case:
    """Fits for several numbers of curves."""
    import optimistix as optx

    x = np.linspace(0, 3, 60, dtype=np.float32)

    def fit(start: Float[Array, "k"], x: Float[Array, "points"], y: Float[Array, "points"]):
        def residual(p, _):
            return y - p[0] * jnp.exp(-p[1] * x)

        solver = optx.LevenbergMarquardt(1e-4, 1e-4)
        return optx.least_squares(residual, solver, start, throw=False).value

    return Case(
        fit,
        {"vmap": "curve", "pad": {"curve": "pow2"}},
        (40, 50, 60),
        lambda n: (np.ones(2, np.float32), x, np.exp(-RNG.uniform(0.2, 1, (n, 1)) * x)),
        1e-2,
    )


def pandas() -> Case:
    """A slope for each group."""

    def slope(x: Float[Array, "n"], y: Float[Array, "n"]):
        x = x - jnp.mean(x)
        return jnp.sum(x * y) / jnp.sum(x * x)

    return Case(slope, {"pad": {"n": "pow2"}}, tuple(range(5, 205)), points)


CASES = {each.__name__: each for each in (flax, numpyro, blackjax, diffrax, optimistix, pandas)}


def plain(case: Case) -> Callable[..., Any]:
    """The body as one compiles it without jitney."""
    if "vmap" not in case.options:
        return jax.jit(case.body)

    # the last argument that has one axis more is the one that is mapped
    ranks = {"solve": (0, None), "fit": (None, None, 0)}
    return jax.jit(jax.vmap(case.body, in_axes=ranks[case.body.__name__]))


def main() -> None:
    figures = {}
    for name in sys.argv[1:] or CASES:
        if importlib.util.find_spec(name) is None:
            print(f"{name:<12} is not installed")
            continue
        case = CASES[name]()
        ways = {"jax.jit": plain(case), "jitney": jitney.optimize(**case.options)(case.body)}
        arguments = [case.arguments(n) for n in case.sizes]
        first, warm = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, float("inf"))
        for given in arguments:
            got = []
            for way, f in ways.items():
                began = time.perf_counter()
                got.append(jax.block_until_ready(f(*given)))
                first[way] += time.perf_counter() - began
            for one, two in zip(*map(jax.tree.leaves, got), strict=True):
                np.testing.assert_allclose(one, two, rtol=case.tolerance, atol=case.tolerance)
        for _ in range(5):
            for way, f in ways.items():
                began = time.perf_counter()
                for given in arguments:
                    jax.block_until_ready(f(*given))
                warm[way] = min(warm[way], time.perf_counter() - began)
        figures[name] = {"first": first, "warm": warm}
        each = ", ".join(
            f"{way} {first[way]:6.2f} s, then {1e3 * warm[way] / len(case.sizes):8.3f} ms a call"
            for way in ways
        )
        print(f"{name:<12}{len(case.sizes):>4} sizes: {each}", flush=True)
    record(**figures)


if __name__ == "__main__":
    main()
