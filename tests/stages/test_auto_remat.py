"""`remat="auto"`: the gradient is the same, it fits, and no more is recomputed than has to be."""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._remat import EVERYTHING, MeasuredOption, Option, Problem, choose
from jitney._remat.flops import flops
from jitney.errors import BudgetError, OptionError
from tests._arrays import array

pytestmark = pytest.mark.real_xla

LAYERS, ROWS, WIDTH = 6, 256, 32
RNG = np.random.default_rng(0)
WS = [array(RNG.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5) for _ in range(LAYERS)]
X = array(RNG.normal(size=(ROWS, WIDTH)))


def loop(ws: list, x: Float[Array, "batch n"]) -> Float[Array, ""]:
    """Layers in a Python loop, between operations that are none."""
    x = jnp.cos(x)
    for w in ws:
        x = jnp.sin(x @ w) + jnp.exp(-(x**2))
    return jnp.sum(x**2)


def scanned(ws: list, x: Float[Array, "batch n"]) -> Float[Array, ""]:
    """The same, as a loop of the program."""
    x, _ = jax.lax.scan(
        lambda x, w: (jnp.sin(x @ w) + jnp.exp(-(x**2)), None), jnp.cos(x), jnp.stack(ws)
    )
    return jnp.sum(x**2)


def backwards(ws: list, x: Float[Array, "batch n"]) -> Float[Array, ""]:
    """From the last layer to the first, with a result of each turn."""
    x, each = jax.lax.scan(
        lambda x, w: (jnp.sin(x @ w), jnp.mean(x**3)), x, jnp.stack(ws), reverse=True
    )
    return jnp.sum(x**2) + jnp.sum(each * jnp.arange(1.0, LAYERS + 1))


def reference(ws, x):
    """The gradient of `loop` in float64, by the chain rule in numpy."""
    ws, x = [np.asarray(w, np.float64) for w in ws], np.cos(np.asarray(x, np.float64))
    kept = []
    for w in ws:
        kept.append((x, x @ w))
        x = np.sin(x @ w) + np.exp(-(x**2))
    back, grads = 2 * x, []
    for w, (x, z) in zip(reversed(ws), reversed(kept), strict=True):
        inner = back * np.cos(z)
        grads.insert(0, x.T @ inner)
        back = inner @ w.T - 2 * x * np.exp(-(x**2)) * back
    return grads


def taken(fn, *arguments):
    """Temporaries and arguments, by the compiler."""
    found = jax.jit(fn).lower(*arguments).compile().memory_analysis()
    return found.temp_size_in_bytes + found.argument_size_in_bytes


def close(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def whole():
    """What the gradient takes that saves everything."""
    return taken(jax.grad(loop), WS, X)


@pytest.fixture(scope="module")
def whole_scanned():
    """The same of the loop of the program, which is searched in fewer compiles."""
    return taken(jax.grad(scanned), WS, X)


def recomputes(fn, *arguments):
    return any(name in str(jax.make_jaxpr(fn)(*arguments)) for name in ("checkpoint[", "remat2["))


@pytest.mark.rest
def test_a_gradient_that_does_not_fit_recomputes_and_fits(whole):
    """Half-way to what recomputing all layers takes; the compiled program keeps to it, and the plan
    says how.
    """
    budget = int(0.8 * whole)
    f = optimize(remat="auto", memory=budget)(loop)
    close(f.grad(WS, X, wrt="ws"), reference(WS, X))
    compiled = f.grad.program(wrt="ws").lower(WS, X).compile().memory_analysis()
    assert compiled.temp_size_in_bytes + compiled.argument_size_in_bytes <= 1.02 * budget
    (why,) = [
        d["why"]
        for d in f.grad.plan(WS, X, wrt="ws").to_dict()["decisions"]
        if d["name"] == "derivative"
    ]
    assert re.search(r"saves .* instead of .* recomputed", why)


@pytest.mark.rest
def test_what_fits_saves_everything(whole):
    """Nothing is under `jax.checkpoint` then."""
    f = optimize(remat="auto", memory=2 * whole)(loop)
    assert not recomputes(lambda ws: f.grad(ws, X, wrt="ws"), WS)
    close(f.grad(WS, X, wrt="ws"), reference(WS, X))


class Net(eqx.Module):
    ws: list[Array]
    name: str = eqx.field(static=True)


@pytest.mark.rest
def test_a_loss_inside_a_training_step_is_seen_with_its_choice_by_the_outer_gradient(whole_scanned):
    """`eqx.filter_grad` of the program inside another program: the step takes less, its gradient is
    the same.
    """

    def loss(model: Net, x: Float[Array, "batch n"]) -> Float[Array, ""]:
        return scanned(model.ws, x)

    def step(loss, model, x):
        return eqx.filter_grad(loss)(model, x)

    small = optimize(remat="auto", memory=int(0.7 * whole_scanned))(loss)
    model = Net(WS, "net")
    close(optimize(partial(step, small))(model, X).ws, reference(WS, X))
    arrays, rest = eqx.partition(model, eqx.is_array)
    mine, plain = (
        taken(lambda a, x, f=f: step(f, eqx.combine(a, rest), x), arrays, X) for f in (small, loss)
    )
    assert mine < 0.9 * plain


@pytest.mark.rest
def test_examples_share_the_memory(whole_scanned):
    """A per-example loss under `vmap`: what is chosen is for all of them, so it depends on how many
    there are.
    """

    def one(ws: list, x: Float[Array, "n"]) -> Float[Array, ""]:
        return scanned(ws, x)

    f = optimize(vmap="example", remat="auto", memory=int(0.7 * whole_scanned))(one)
    mean = lambda ws, x: jnp.sum(f(ws, x))
    assert not recomputes(jax.grad(mean), WS, X[:4])
    assert recomputes(jax.grad(mean), WS, X)
    close(jax.grad(mean)(WS, X), reference(WS, X))


@pytest.mark.rest
def test_where_nothing_fits_the_error_names_the_least_that_does():
    """That much is enough then; and it lists what was found."""
    with pytest.raises(BudgetError, match="its gradient does not fit into 1 KiB") as caught:
        optimize(remat="auto", memory="1KiB")(scanned).grad(WS, X, wrt="ws")
    assert "saves everything" in str(caught.value)
    least = int(re.search(r"memory=(\d+)", str(caught.value))[1])
    close(optimize(remat="auto", memory=least)(scanned).grad(WS, X, wrt="ws"), reference(WS, X))


def test_a_call_by_itself_says_that_no_gradient_is_asked():
    """It serves as it is; so does one whose body takes the gradient."""
    f = optimize(remat="auto", memory="1KiB")(lambda ws, x: jax.grad(loop)(ws, x))
    close(f(WS, X), reference(WS, X))
    (line,) = [d for d in f.plan(WS, X).to_dict()["decisions"] if d["name"] == "remat"]
    assert not line["taken"]
    assert "no gradient of it is asked" in line["why"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no memory to keep to"),
        ({"memory": "1GiB", "chunk": {"batch": "auto"}}, "not supported yet"),
        ({"memory": "1GiB", "pad": {"batch": "pow2"}}, "not supported yet"),
    ],
    ids=str,
)
def test_it_needs_a_memory_and_nothing_that_has_it_too(options, says):
    """At decoration."""
    with pytest.raises(OptionError, match=says):
        optimize(remat="auto", **options)(loop)


def problem(fn):
    leaves, tree = jax.tree.flatten((WS, X))
    return Problem(
        jax.make_jaxpr(lambda *flat: [fn(*jax.tree.unflatten(tree, flat))])(*leaves)
    ), leaves


OPTIONS = [
    Option("dots", whole=True),
    Option("nothing", 5, 2),
    Option("dots", 6, 1),
    Option("nothing", 6, 3, rolled=True),
    Option("dots", 5, 2, rolled=True),
]


@pytest.mark.core("backwards-options1")
@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (loop, OPTIONS),
        (backwards, [Option("nothing", 5, 2)]),
        (scanned, [Option("dots", 6, 1), Option("nothing", 6, 3)]),
    ],
)
def test_every_option_has_the_same_gradient(fn, options):
    """Loops of either direction, groups that do not divide the layers, and Python loops that are
    rolled up.
    """
    found, leaves = problem(fn)
    assert sum(stack.count for stack in found.stacks) == LAYERS
    expected = jax.grad(lambda flat: fn(flat[:LAYERS], flat[LAYERS]))(leaves)
    for run in map(found.fn, options):
        close(jax.jit(jax.grad(lambda flat, run=run: run(flat)[0]))(leaves), expected)


def test_layers_are_found_in_a_python_loop():
    """All equal ones, without what stands before and behind; they are alike, so that a loop can be
    made of them.
    """
    (stack,) = problem(loop)[0].stacks
    assert (stack.count, stack.turns, stack.identical) == (LAYERS, 0, True)
    assert stack.start >= 1


def test_layers_with_rules_of_their_own_are_not_made_a_loop():
    """Two rules of differentiation may differ where the functions do not."""

    def scaled(k):
        rule = jax.custom_vjp(jnp.sin)
        rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (k * g,))
        return rule

    rules = [scaled(float(k)) for k in range(LAYERS)]

    def body(ws, x):
        for w, rule in zip(ws, rules, strict=True):
            x = rule(x @ w)
        return jnp.sum(x)

    found, leaves = problem(body)
    assert not any(option.rolled for option in found.options())
    expected = jax.grad(lambda flat: body(flat[:LAYERS], flat[LAYERS]))(leaves)
    close(
        jax.jit(jax.grad(lambda flat: found.fn(Option("nothing", 6, 2))(flat)[0]))(leaves), expected
    )


@pytest.mark.rest
def test_mapped_layers_with_rules_that_do_the_same_are_made_a_loop():
    """`jax.nn.relu` under `jax.vmap`, whose rule JAX wraps anew in each layer."""

    def body(ws, x):
        for w in ws:
            x = jax.vmap(lambda row, w=w: jax.nn.relu(row @ w))(x)
        return jnp.sum(x)

    found, leaves = problem(body)
    assert any(option.rolled for option in found.options())
    expected = jax.grad(lambda flat: body(flat[:LAYERS], flat[LAYERS]))(leaves)
    close(
        jax.jit(jax.grad(lambda flat: found.fn(Option("nothing", 6, 2, rolled=True))(flat)[0]))(
            leaves
        ),
        expected,
    )


@pytest.mark.rest
def test_residuals_of_a_loop_are_not_moved_to_the_host(monkeypatch):
    """XLA for GPUs fails on it."""
    monkeypatch.setattr("jitney._remat.problem.offload_obstacle", lambda: None)
    options = problem(loop)[0].options()
    assert any(option.saved == "offloaded" for option in options)
    assert any(option.rolled for option in options)
    assert not any(option.rolled and option.saved == "offloaded" for option in options)


@pytest.mark.parametrize("fn", [loop, scanned])
def test_saving_nothing_of_the_whole_is_no_option(fn):
    """It would compute everything again and hold it all at once."""
    options = problem(fn)[0].options()
    assert EVERYTHING in options
    assert not [
        option
        for option in options
        if option.saved == "nothing" and (option.whole or option.group >= LAYERS)
    ]


def test_operations_are_counted_over_loops():
    """2mnk for a product, times the turns; what no result needs is not counted."""

    def body(w, x):
        x, _ = jax.lax.scan(lambda x, _: (x @ w, None), x, length=5)
        jnp.sin(x)
        return x

    assert flops(jax.make_jaxpr(body)(jnp.ones((3, 3)), jnp.ones((7, 3)))) == 5 * 2 * 7 * 3 * 3


@pytest.mark.rest
def test_results_that_are_no_numbers_pass(whole_scanned):
    """A loss with an auxiliary count and a name, under `jax.grad`."""

    def loss(ws: list, x: Float[Array, "batch n"]):
        return scanned(ws, x), {"rows": jnp.int32(x.shape[0]), "name": "loop"}

    f = optimize(remat="auto", memory=int(0.7 * whole_scanned))(loss)
    grads, aux = jax.grad(f, has_aux=True)(WS, X)
    close(grads, reference(WS, X))
    assert (int(aux["rows"]), aux["name"]) == (ROWS, "loop")


@pytest.mark.rest
def test_the_frontier_is_a_table_and_a_picture(whole):
    """What is not dominated is on it, what fits and recomputes least is chosen, and what is not
    there has its reason.
    """
    from xml.etree import ElementTree as ET

    found = jitney.analysis.frontier(optimize(scanned), WS, X, wrt="ws", memory=whole)
    best = [way for way in found.ways if way.best]
    assert [way.bytes for way in best] == sorted((way.bytes for way in best), reverse=True)
    assert [way.recomputed for way in best] == sorted(way.recomputed for way in best)
    assert found.chosen == next(way for way in best if way.bytes <= whole)
    assert (
        "the memory of a CPU is that of the host" in " ".join(str(found).split())
        or found.unsupported is None
    )
    marks = [each for each in ET.fromstring(found.svg()).iter() if each.tag.endswith("circle")]
    assert len(marks) == len(found.ways)
    assert 'what remat="auto" takes within this memory' in str(found)
    assert "sought down to" not in str(found)


@pytest.mark.rest
def test_a_frontier_without_a_limit_says_how_far_it_goes():
    """Its last line is the least of what was sought, and a lower limit finds less."""
    found = jitney.analysis.frontier(optimize(scanned), 6 * WS, jnp.tile(X, (4, 1)), wrt="ws")
    assert found.down_to is not None
    words = " ".join(str(found).split())
    assert "sought down to" in words
    assert "less may be possible, which a lower memory= finds" in words
    assert ("· " in str(found)) == (not all(way.best for way in found.ways))
    assert ("another one takes no more memory" in words) == ("· " in str(found))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda f: jitney.analysis.frontier(f, WS, X, memory="lots"), OptionError, "not a size"),
        (
            lambda f: jitney.analysis.frontier(f, WS, X, wrt="v"),
            jitney.errors.DerivativeError,
            "'v' is not an argument",
        ),
        (
            lambda f: jitney.analysis.frontier(optimize(lambda x: x), jnp.arange(3)),
            jitney.errors.DerivativeError,
            "has no gradient",
        ),
    ],
)
def test_a_frontier_of_nothing_is_an_error(call, error, says):
    """With its reason."""
    with pytest.raises(error, match=says):
        call(optimize(loop))


class Valley(Problem):
    """A compiler that takes less for some layers, and more again for fewer and for all, of one kind
    alone.
    """

    best = Option("nothing", layers=8, group=2, rolled=True)

    def measure(self, option):
        off = abs(option.layers - self.best.layers) + 3 * abs(option.group - self.best.group)
        least = (
            700 if (option.saved, option.rolled) == (self.best.saved, self.best.rolled) else 1100
        )
        size = 1000 if option == EVERYTHING else least + 40 * off
        return self.points.setdefault(option, MeasuredOption(option, size, 10 * option.layers))


@pytest.mark.core("700")
@pytest.mark.parametrize("budget", [700, 790, 990])
def test_what_no_guess_finds_is_found_step_by_step(budget):
    """What fits is found though every line through measured options says that nothing does, and not
    all options are compiled for it.
    """
    ws = [jnp.eye(4)] * 16
    problem = Valley(
        jax.make_jaxpr(lambda *flat: [loop(list(flat[:-1]), flat[-1])])(*ws, jnp.ones((8, 4)))
    )
    found = choose(problem, budget)
    assert found.point.bytes <= budget
    assert len(found.points) <= 40 < len(problem.options())
