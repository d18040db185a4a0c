"""`remat="auto"` beside an exhaustive search over the same options, on four models.

    python -m tests.perf.remat [surrogate] [attention] [mlp] [transformer]

Memory is `compiled.memory_analysis()` of the gradient, temporaries and arguments. Recomputed
operations are counted from the program of the gradient, since `cost_analysis()` counts the body of
a loop once and leaves out what is handed to a library. For three limits of memory it prints what
the search recomputes, what the best of all options does, and how many options each compiled. That
the gradients are equal is asserted first.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from examples._figures import record
from examples.surrogate._expert import batch
from examples.surrogate._losses import LOSSES
from examples.surrogate.model import Surrogate
from jitney._jax.xla.memory import text
from jitney._remat import NoneFits, Problem, choose, flops_text
from jitney._remat.option import EVERYTHING

PARTS = (0.25, 0.5, 0.75)


def normal(i, *shape):
    return jax.random.normal(jax.random.key(i), shape) / shape[0] ** 0.5


def attend(p, x):
    """Pre-norm attention over the axis before the last."""
    h = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
    q, k, v = (h @ p[name] for name in "qkv")
    a = jax.nn.softmax(jnp.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5)
    return x + jnp.einsum("...ij,...jd->...id", a, v) @ p["o"]


def feed(p, x):
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def block(i, d):
    names = {
        "q": (d, d),
        "k": (d, d),
        "v": (d, d),
        "o": (d, d),
        "up": (d, 2 * d),
        "down": (2 * d, d),
    }
    return {name: normal(10 * i + j, *shape) for j, (name, shape) in enumerate(names.items())}


def attention():
    """Alternating attention over samples and over variables, four times, in a Python loop."""
    blocks = [block(i, 16) for i in range(4)]

    def loss(blocks, x):
        for p in blocks:
            x = feed(p, attend(p, jnp.swapaxes(attend(p, x), 0, 1)))
            x = jnp.swapaxes(x, 0, 1)
        return jnp.mean(jnp.max(x, 0) ** 2)

    return loss, (blocks, normal(99, 64, 8, 16))


def surrogate():
    """The model and loss of `examples/surrogate`, of eight examples of five variables."""
    data = batch(np.random.default_rng(0), 8, 5, 32)
    arrays, rest = eqx.partition(Surrogate(32, key=jax.random.key(0)), eqx.is_array)

    def loss(arrays, *data):
        return jnp.mean(
            jax.vmap(LOSSES["weighted"], (None, 0, 0, 0, 0))(eqx.combine(arrays, rest), *data)
        )

    return loss, (arrays, *map(jnp.asarray, data.arrays))


def mlp():
    """24 layers in a Python loop."""
    layers = [(normal(i, 64, 64), jnp.zeros(64)) for i in range(24)]

    def loss(layers, x):
        for w, b in layers:
            x = jnp.tanh(x @ w + b)
        return jnp.mean(x**2)

    return loss, (layers, normal(99, 512, 64))


def transformer():
    """Eight blocks in a `lax.scan` over their stacked parameters."""
    blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[block(i, 32) for i in range(8)])

    def loss(blocks, x):
        x, _ = jax.lax.scan(lambda x, p: (feed(p, attend(p, x)), None), x, blocks)
        return jnp.mean(x**2)

    return loss, (blocks, normal(99, 8, 64, 32))


class Known(Problem):
    """A problem whose options were all measured: what the search asks for is looked up."""

    def __init__(self, traced, known):
        super().__init__(traced)
        self.known = known

    def measure(self, option):
        return self.points.setdefault(option, self.known[option])


def compare(make):
    """Print what the search and the best option recompute within each limit, and give the ratios of
    the two.
    """
    loss, arguments = make()
    leaves, tree = jax.tree.flatten(arguments)
    traced = jax.make_jaxpr(lambda *flat: [loss(*jax.tree.unflatten(tree, flat))])(*leaves)
    problem, start = Problem(traced), time.perf_counter()
    options = problem.options()
    for option in options:
        problem.measure(option)
    known, seconds = problem.points, time.perf_counter() - start
    most, least = known[EVERYTHING].bytes, problem.least
    print(f"{make.__name__}: {make.__doc__.strip()}")
    print(
        f"  {len(options)} options in {seconds:.0f} s; everything {text(most)}, least"
        f" {text(least)}; forward {flops_text(problem.forward)}"
    )
    floats = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    def gradient(fn):
        """Of what holds floats."""

        def of(chosen):
            given = list(leaves)
            for i, leaf in zip(floats, chosen, strict=True):
                given[i] = leaf
            return fn(given)

        return jax.jit(jax.grad(of))([leaves[i] for i in floats])

    expected = gradient(lambda flat: loss(*jax.tree.unflatten(tree, flat)))
    ratios = []
    for part in PARTS:
        budget = int(least + part * (most - least))
        best = min(
            (point for point in known.values() if point.bytes <= budget),
            key=lambda point: point.flops,
        )
        search = Known(traced, known)
        found = choose(search, budget)
        if isinstance(found, NoneFits):
            print(f"  {text(budget):>10}: nothing found, of best {best}")
            continue
        grads = gradient(lambda flat, fn=found.fn: fn(flat)[0])
        for ours, theirs in zip(grads, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-5)
        again, whole = found.point.flops / max(1, best.flops), 3 * problem.forward
        ratios.append(again)
        total = (whole + found.point.flops) / (whole + best.flops)
        print(
            f"  {text(budget):>10}: recomputes {flops_text(found.point.flops):>10}, best"
            f" {flops_text(best.flops):>10}: {again:.2f}x, {total:.3f}x of all work;"
            f" {len(search.points)} compiled; saves {found.point.option}; best {best.option}"
        )
    return ratios


if __name__ == "__main__":
    models = {make.__name__: make for make in (surrogate, attention, mlp, transformer)}
    every = [ratio for name in sys.argv[1:] or models for ratio in compare(models[name])]
    record(least=min(every), most=max(every))
