"""`remat="auto"` beside an exhaustive search over the same options, on four models.

    python -m tests.perf.remat [surrogate] [attention] [mlp] [transformer] [--by-hand]

Memory is `compiled.memory_analysis()` of the gradient, temporaries and arguments. Recomputed
operations are counted from the program of the gradient, since `cost_analysis()` counts the body of
a loop once and leaves out what is handed to a library. For three limits of memory it prints what
the search recomputes, what the best of all options does, and how many options each compiled. That
the gradients are equal is asserted first.

By hand is `jax.checkpoint` around each block, without a policy and with one that saves products, as
the documentation of JAX has it, and where blocks are equal the same in a `lax.scan` over their
stacked parameters; of these the one that fits and recomputes less. `--by-hand` compiles them alone,
beside saving everything.
"""

import functools
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
from jitney._jax.xla.compiler import FAST
from jitney._jax.xla.memory import counted_bytes, text
from jitney._remat import NoneFits, Problem, choose, flops_text
from jitney._remat.flops import flops
from jitney._remat.option import EVERYTHING

PARTS = (0.25, 0.5, 0.75)
PRODUCTS = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
BY_HAND = {
    "each block": (jax.checkpoint, False),
    "each block, products saved": (PRODUCTS, False),
    "each block in a loop": (jax.checkpoint, True),
    "each block in a loop, products saved": (PRODUCTS, True),
}


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


def as_it_is(block):
    return block


def stacked(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def attention(around=as_it_is, loop=False):
    """Alternating attention over samples and over variables, four times, in a Python loop."""
    blocks = [block(i, 16) for i in range(4)]

    @around
    def turn(p, x):
        x = feed(p, attend(p, jnp.swapaxes(attend(p, x), 0, 1)))
        return jnp.swapaxes(x, 0, 1)

    def loss(blocks, x):
        if loop:
            x, _ = jax.lax.scan(lambda x, p: (turn(p, x), None), x, stacked(blocks))
        for p in () if loop else blocks:
            x = turn(p, x)
        return jnp.mean(jnp.max(x, 0) ** 2)

    return loss, (blocks, normal(99, 64, 8, 16))


class Around(eqx.Module):
    """A block of the surrogate with something around it."""

    block: eqx.Module
    around: object = eqx.field(static=True)

    def __call__(self, *values):
        return self.around(lambda block, *values: block(*values))(self.block, *values)


def surrogate(around=as_it_is):
    """The model and loss of `examples/surrogate`, of eight examples of five variables."""
    data = batch(np.random.default_rng(0), 8, 5, 32)
    model = Surrogate(32, key=jax.random.key(0))
    if around is not as_it_is:
        blocks = type(model.blocks)(Around(each, around) for each in model.blocks)
        model = eqx.tree_at(lambda model: model.blocks, model, blocks)
    arrays, rest = eqx.partition(model, eqx.is_array)

    def loss(arrays, *data):
        return jnp.mean(
            jax.vmap(LOSSES["weighted"], (None, 0, 0, 0, 0))(eqx.combine(arrays, rest), *data)
        )

    return loss, (arrays, *map(jnp.asarray, data.arrays))


def mlp(around=as_it_is, loop=False):
    """24 layers in a Python loop."""
    layers = [(normal(i, 64, 64), jnp.zeros(64)) for i in range(24)]

    @around
    def layer(w, b, x):
        return jnp.tanh(x @ w + b)

    def loss(layers, x):
        if loop:
            x, _ = jax.lax.scan(lambda x, p: (layer(*p, x), None), x, stacked(layers))
        for w, b in () if loop else layers:
            x = layer(w, b, x)
        return jnp.mean(x**2)

    return loss, (layers, normal(99, 512, 64))


def transformer(around=as_it_is):
    """Eight blocks in a `lax.scan` over their stacked parameters."""
    blocks = stacked([block(i, 32) for i in range(8)])

    @around
    def turn(x, p):
        return feed(p, attend(p, x)), None

    def loss(blocks, x):
        x, _ = jax.lax.scan(turn, x, blocks)
        return jnp.mean(x**2)

    return loss, (blocks, normal(99, 8, 64, 32))


class Known(Problem):
    """A problem whose options were all measured: what the search asks for is looked up."""

    def __init__(self, traced, known):
        super().__init__(traced)
        self.known = known

    def measure(self, option):
        return self.points.setdefault(option, self.known[option])


def gradient(loss, arguments):
    """The gradient as a program of all that holds floats, and these."""
    leaves, tree = jax.tree.flatten(arguments)
    floats = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    def of(chosen):
        given = list(leaves)
        for i, leaf in zip(floats, chosen, strict=True):
            given[i] = leaf
        return loss(*jax.tree.unflatten(tree, given))

    return jax.jit(jax.value_and_grad(of)), [leaves[i] for i in floats]


def by_hand(make, way, expected):
    """Operations and bytes of the gradient with `jax.checkpoint` around each block; it is compared
    with the one without.
    """
    around, loop = way
    program, floats = gradient(*(make(around, loop) if loop else make(around)))
    traced = program.trace(floats)
    compiled = traced.lower().compile(dict(FAST))
    for ours, theirs in zip(compiled(floats)[1], expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-5)
    return flops(traced.jaxpr), counted_bytes(compiled)


def hands(make):
    """Print what both ways by hand take and recompute; give both, and what saving everything
    takes.
    """
    program, floats = gradient(*make())
    traced = program.trace(floats)
    compiled = traced.lower().compile(dict(FAST))
    expected, work, most = compiled(floats)[1], flops(traced.jaxpr), counted_bytes(compiled)
    print(f"{make.__name__}: {make.__doc__.strip()}")
    found = {}
    for name, way in BY_HAND.items():
        # the transformer is a loop already, and two blocks are none
        if way[1] and make not in (attention, mlp):
            continue
        of_hand, size = by_hand(make, way, expected)
        found[name] = of_hand - work, size
        part, again = size / most, (of_hand - work) / work
        print(
            f"  by hand, {name}: {text(size)}, {part:.2f} of {text(most)} with everything saved;"
            f" {flops_text(of_hand - work)} recomputed, {again:.2f} of the gradient"
        )
    return found


def compare(make):
    """Print what the search and the best option recompute within each limit, and give the ratios of
    the two.
    """
    of_hands = hands(make)
    loss, arguments = make()
    leaves, tree = jax.tree.flatten(arguments)
    traced = jax.make_jaxpr(lambda *flat: [loss(*jax.tree.unflatten(tree, flat))])(*leaves)
    problem, start = Problem(traced), time.perf_counter()
    options = problem.options()
    for option in options:
        problem.measure(option)
    known, seconds = problem.points, time.perf_counter() - start
    most, least = known[EVERYTHING].bytes, problem.least
    print(
        f"  {len(options)} options in {seconds:.0f} s; everything {text(most)}, least"
        f" {text(least)}; forward {flops_text(problem.forward)}"
    )
    program, floats = gradient(loss, arguments)
    expected = program(floats)[1]
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
        again_of, values = gradient(lambda *flat, fn=found.fn: fn(list(flat))[0], leaves)
        grads = again_of(values)[1]
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
        fits = [work for work, size in of_hands.values() if size <= budget]
        if fits:
            work = min(fits)
            total = (whole + work) / (whole + best.flops)
            print(f"{'by hand':>12}: recomputes {flops_text(work):>10}, {total:.3f}x of all work")
        else:
            print(f"{'by hand':>12}: none fits")
    return ratios


if __name__ == "__main__":
    models = {make.__name__: make for make in (surrogate, attention, mlp, transformer)}
    names = [name for name in sys.argv[1:] if name in models] or list(models)
    if "--by-hand" in sys.argv:
        for name in names:
            hands(models[name])
        raise SystemExit
    every = [ratio for name in names for ratio in compare(models[name])]
    record(least=min(every), most=max(every))
