"""`roll="auto"`: equal layers are one loop where that is the same and worth it, and all else stays
as it is, with the reason.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import OptionError
from tests._arrays import array, random_key

LAYERS, ROWS, WIDTH = 6, 8, 8
RNG = np.random.default_rng(0)
WS = [array(RNG.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5) for _ in range(LAYERS)]
BS = [array(RNG.normal(size=WIDTH)) for _ in range(LAYERS)]
X = array(RNG.normal(size=(ROWS, WIDTH)))
KEY = random_key(0)


def half(x, w, b):
    h = jnp.sin(x @ w + b)
    h = h - jnp.mean(h, axis=-1, keepdims=True)
    h = h / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + 1e-3)
    return x + jnp.tanh(h) * jnp.exp(-(h**2))


def work(x, w, b):
    """A layer of enough operations."""
    return half(jnp.cos(half(x, w, b)), w, b + 1)


def other(x, w, b):
    """Another layer."""
    return jnp.cos(work(jnp.sin(x), w, b))


@jax.custom_jvp
def bent(x):
    return jnp.where(x > 0, x, 0.1 * x)


@bent.defjvp
def _(values, tangents):
    return bent(values[0]), 2 * tangents[0]


@jax.custom_vjp
def straight(x):
    return jnp.round(4 * x) / 4


straight.defvjp(lambda x: (jnp.round(4 * x) / 4, None), lambda _, g: (0.5 * g,))


def in_turn(layer):
    def run(ws, bs, x):
        for k, (w, b) in enumerate(zip(ws, bs, strict=True)):
            x = layer(x, w, b, k)
        return x

    return run


def of_slices(ws, bs, x):
    """Weights that are parts of one array."""
    whole = jnp.stack(ws) * 2
    for k, b in enumerate(bs):
        x = work(x, whole[k], b)
    return x


def iterated(ws, bs, x):
    for w, b in zip(jnp.stack(ws) * 2, jnp.stack(bs), strict=True):
        x = work(x, w, b)
    return x


def with_keys(ws, bs, x):
    """Dropout, with a key for each layer."""
    for key, w, b in zip(jax.random.split(KEY, LAYERS), ws, bs, strict=True):
        x = jnp.where(jax.random.bernoulli(key, 0.7, x.shape), work(x, w, b), 0.0)
    return x


def with_a_chain_of_keys(ws, bs, x):
    key = KEY
    for w, b in zip(ws, bs, strict=True):
        key, own = jax.random.split(key)
        x = jnp.where(jax.random.bernoulli(own, 0.7, x.shape), work(x, w, b), 0.0)
    return x


def with_hidden(ws, bs, x):
    """All states are results, and read together."""
    states = [x]
    for w, b in zip(ws, bs, strict=True):
        states.append(work(states[-1], w, b))
    return states[-1] + 0.1 * states[2] * states[3], states


def two_stacks(ws, bs, x):
    for w, b in zip(ws, bs, strict=True):
        x = work(x, w, b)
    y = jnp.flip(x, 0)
    for w, b in zip(ws, bs, strict=True):
        y = other(y, w, b) + x
    return y


def alternating(ws, bs, x):
    for k in range(0, LAYERS, 2):
        x = work(x, ws[k], bs[k])
        x = other(x, ws[k + 1], bs[k + 1])
    for k in range(0, LAYERS, 2):
        x = work(x, ws[k], bs[k])
        x = other(x, ws[k + 1], bs[k + 1])
    return x


def with_counts(ws, bs, x):
    """A count and a mask go from layer to layer beside what is real."""
    count, mask = jnp.int32(0), x > 0
    for w, b in zip(ws, bs, strict=True):
        x = jnp.where(mask, work(x, w, b), x)
        count, mask = count + jnp.sum(mask, dtype=jnp.int32), x > 0.001 * count.astype(x.dtype)
    return x * count.astype(x.dtype)


def looping(x, w, b, _):
    x, ys = jax.lax.scan(lambda x, _: (half(x, w, b), jnp.sum(x)), x, length=3)
    return x + jnp.sum(ys) / 100 + jnp.mean(work(x, w, b))


CONSTANT = array(RNG.normal(size=(ROWS, WIDTH)))
MODELS = {
    "plain": in_turn(lambda x, w, b, _: work(x, w, b)),
    "relu and softmax": in_turn(lambda x, w, b, _: jax.nn.softmax(jax.nn.relu(work(x, w, b)))),
    "rules of their own": in_turn(lambda x, w, b, _: straight(bent(work(x, w, b)))),
    "jitted": in_turn(lambda x, w, b, _: jax.jit(work)(x, w, b)),
    "numbers of its own": in_turn(lambda x, w, b, k: work(x, w, b) * (1 + 0.1 * k)),
    "folded keys": in_turn(
        lambda x, w, b, k: work(x, w, b) + jax.random.normal(jax.random.fold_in(KEY, k), x.shape)
    ),
    "closed over": in_turn(lambda x, w, b, _: work(x, w, b) * CONSTANT),
    "shared": in_turn(lambda x, w, b, k: work(x, WS[k // 2], b)),
    "a loop inside": in_turn(looping),
    "mapped": in_turn(lambda x, w, b, _: jax.vmap(lambda row: work(row, w, b))(x)),
    "slices": of_slices,
    "iterated": iterated,
    "keys": with_keys,
    "chain of keys": with_a_chain_of_keys,
    "hidden states": with_hidden,
    "two stacks": two_stacks,
    "alternating": alternating,
    "counts and masks": with_counts,
}


def loss_of(model):
    def loss(ws: list, bs: list, x: Float[Array, "batch n"]):
        return jnp.sum(jax.tree.leaves(model(ws, bs, x))[0] ** 2)

    return loss


def is_rolled(fn, *arguments, times=LAYERS):
    """Whether a program has a loop of so many turns."""
    return f"length={times}\n" in str(jax.make_jaxpr(fn)(*arguments))


def fast(fn):
    """Compiled in less time than usual."""
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0})


def close(found, expected, tolerance=2e-4):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        scale = float(jnp.max(jnp.abs(theirs))) if theirs.size else 0.0
        np.testing.assert_allclose(
            np.asarray(ours), np.asarray(theirs), rtol=tolerance, atol=tolerance * max(scale, 1.0)
        )


def layers_of(report):
    return [(d["taken"], d["why"]) for d in report.to_dict()["decisions"] if d["name"] == "layers"]


@pytest.mark.rest
@pytest.mark.parametrize("name", MODELS)
def test_layers_as_a_loop_have_the_values_and_the_gradient_of_the_function(name):
    """Below another program, which differentiates it; every result, to the last state."""
    model = MODELS[name]

    def annotated(ws: list, bs: list, x: Float[Array, "batch n"]):
        return model(ws, bs, x)

    def both(model):
        return lambda *a: (
            model(*a),
            jax.grad(lambda *a: jnp.sum(jax.tree.leaves(model(*a))[0] ** 2), (0, 1, 2))(*a),
        )

    f = optimize(roll="auto")(annotated)
    # where the first reads a number that is written down
    turns = LAYERS - 2 if name == "counts and masks" else LAYERS
    assert is_rolled(f, WS, BS, X, times=turns)
    assert not is_rolled(model, WS, BS, X, times=turns)
    close(fast(both(f))(WS, BS, X), fast(both(model))(WS, BS, X), 1e-3)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["relu and softmax", "keys"])
def test_its_own_derivative_is_of_a_loop_and_the_plan_says_of_how_many_layers(name):
    """`f.grad`, with respect to all its arguments."""
    loss = loss_of(MODELS[name])
    f = optimize(roll="auto")(loss)
    made = f.grad(WS, BS, X)
    close((made["ws"], made["bs"], made["x"]), jax.jit(jax.grad(loss, (0, 1, 2)))(WS, BS, X), 1e-3)
    assert layers_of(f.grad.plan(WS, BS, X))[0][0]
    assert "6 equal layers are one loop" in str(f.grad.plan(WS, BS, X))


@pytest.mark.core("plain")
@pytest.mark.parametrize("name", ["plain", "two stacks"])
def test_a_step_that_takes_its_gradient_itself_has_loops_both_ways(name):
    """The layers of the forward and those of the backward pass; the parameters are those of the
    plain step.
    """
    loss = loss_of(MODELS[name])

    def step(ws: list, bs: list, x: Float[Array, "batch n"]):
        return jax.tree.map(lambda w, g: w - 0.01 * g, (ws, bs), jax.grad(loss, (0, 1))(ws, bs, x))

    f = optimize(roll="auto")(step)
    assert sum(taken for taken, _ in layers_of(f.plan(WS, BS, X))) >= 2
    close(f(WS, BS, X), fast(step)(WS, BS, X), 1e-3)


# What stays as it is.


def before_that(ws, bs, x):
    """Each reads what the layer before the one before has made."""
    before = x
    for w, b in zip(ws, bs, strict=True):
        x, before = work(x, w, b), x
        x = x + before
    return x


def from_the_first(ws, bs, x):
    """Each reads what the first has made."""
    x = first = work(x, ws[0], bs[0])
    for w, b in zip(ws, bs, strict=True):
        x = work(x, w, b) + first
    return x


def printing(x, w, b, k):
    jax.debug.print("{}", x[0, 0], ordered=False)
    return work(x, w, b)


def own_rule(scale):
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (scale * g,))
    return rule


RULES = [own_rule(float(k)) for k in range(LAYERS)]


@pytest.mark.core("effects")
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (in_turn(printing), r"`debug_(callback|print)` in them does something besides computing"),
        (
            in_turn(lambda x, w, b, k: RULES[k](work(x, w, b))),
            "they differ in more than what they read",
        ),
        (
            in_turn(lambda x, w, b, k: jnp.sin(x @ w + b)),
            "no layers repeat that are worth a loop|a loop is worth it for",
        ),
    ],
    ids=["effects", "rules", "small"],
)
def test_what_is_not_equal_or_not_worth_it_stays_and_the_plan_says_why(model, says):
    """Callbacks, rules of differentiation that are not the same, layers of few operations."""
    f = optimize(roll="auto")(loss_of(model))
    assert not is_rolled(f, WS, BS, X)
    taken, why = layers_of(f.grad.plan(WS, BS, X))[0]
    assert not taken
    assert re.search(says, why)


@pytest.mark.rest
def test_rules_that_differ_are_each_layers_own():
    """A gradient whose layers have rules of their own."""
    loss = loss_of(in_turn(lambda x, w, b, k: RULES[k](work(x, w, b))))
    f = optimize(roll="auto")(loss)
    close(f.grad(WS, BS, X, wrt="ws"), fast(jax.grad(loss))(WS, BS, X), 1e-3)


def test_rules_that_differ_in_branches_are_each_layers_own():
    """JAX prints a branch without the rules of the functions in it, so its text does not say
    whether two are equal.
    """

    def layer(x, w, b, k):
        return jax.lax.cond(x[0, 0] > -100, RULES[3 if k == 2 else 1], lambda y: y, work(x, w, b))

    loss = loss_of(in_turn(layer))
    close(
        optimize(roll="auto")(loss).grad(WS, BS, X, wrt="ws"), fast(jax.grad(loss))(WS, BS, X), 1e-3
    )


def valued(scale):
    """What it computes and what its rule says of it are two programs."""
    rule = jax.custom_vjp(lambda x: scale * jnp.sin(x))
    rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g,))
    return rule


def pushed(scale):
    rule = jax.custom_jvp(lambda x: scale * jnp.sin(x))
    rule.defjvp(lambda at, along: (jnp.sin(at[0]), 2 * along[0]))
    return rule


def refused(x, g):
    raise NotImplementedError("it has no derivative")


def underived(_):
    rule = jax.custom_vjp(jnp.sin)
    rule.defvjp(lambda x: (jnp.sin(x), x), refused)
    return rule


def found(_):
    """A rule of a loop, which has no second derivative."""

    def turns(x):
        return jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.cos(s[1]) + x), (0, x)
        )[1]

    rule = jax.custom_vjp(turns)
    rule.defvjp(lambda x: (turns(x), x), lambda x, g: (turns(g),))
    return rule


@pytest.mark.rest
@pytest.mark.parametrize("rule", [valued, pushed, underived, found])
def test_a_function_with_a_rule_has_its_own_value_where_nothing_is_differentiated(rule):
    """Layers that differ in it alone stay apart; a rule that cannot be asked for two derivatives is
    not asked to be.
    """
    rules = [rule(float(k)) for k in range(LAYERS)]
    model = in_turn(lambda x, w, b, k: rules[k](work(x, w, b)))
    layers = jnp.stack(WS), jnp.stack(BS)  # in one array, so that they may be rolled
    close(
        optimize(roll="auto")(lambda *given: model(*given))(*layers, X),
        fast(model)(*layers, X),
        1e-3,
    )


@pytest.mark.rest
@pytest.mark.parametrize("model", [before_that, from_the_first])
def test_what_each_layer_reads_of_others_is_as_it_was(model):
    """Of the one before the one before, or of the first."""
    f = optimize(roll="auto")(loss_of(model))
    close(
        fast(lambda *a: jax.value_and_grad(f)(*a))(WS, BS, X),
        fast(jax.value_and_grad(loss_of(model)))(WS, BS, X),
        1e-3,
    )


@pytest.mark.rest
def test_weights_that_take_long_to_stack_stay_unless_they_are_stacked():
    """Wide layers for few rows; `jitney.stack` makes the loop worth it, and its gradient is that of
    the list.
    """
    width = 96
    layers = [
        tuple(
            jnp.asarray(RNG.normal(size=size) / width**0.5, jnp.float32)
            for size in ((width, width), width)
        )
        for _ in WS
    ]
    x = jnp.asarray(RNG.normal(size=(2, width)), jnp.float32)

    def loss(layers, x: Float[Array, "batch n"]):
        for w, b in layers:
            x = work(x, w, b)
        return jnp.sum(x**2)

    f = optimize(roll="auto")(loss)
    lines = layers_of(f.grad.plan(layers, x, wrt="layers"))
    assert not any(taken for taken, _ in lines)
    assert "`jitney.stack` does it once" in lines[0][1]
    stacked = jitney.stack(layers)
    assert layers_of(f.grad.plan(stacked, x, wrt="layers"))[0][0]
    close(list(f.grad(stacked, x, wrt="layers")), fast(jax.grad(loss))(layers, x), 1e-3)


def test_on_a_cpu_a_forward_pass_stays_as_it_is():
    """XLA compiles equal operations once there, without being told."""
    if jax.default_backend() != "cpu":
        pytest.skip("on a CPU")
    f = optimize(roll="auto")(loss_of(MODELS["plain"]))
    ((taken, why),) = layers_of(f.plan(WS, BS, X))
    assert not taken
    assert "a gradient of it may be rolled" in why


def test_without_the_option_nothing_is_rolled():
    """And its line of the plan is among those that were not asked for."""
    f = optimize(loss_of(MODELS["plain"]))
    assert not is_rolled(f, WS, BS, X)
    assert not layers_of(f.plan(WS, BS, X))


# With other options.


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [
        {"pad": {"batch": [12]}},
        {"chunk": {"batch": 4}},
        {"precision": "f64"},
        {"remat": True},
        {"remat": "auto", "memory": "1GiB"},
        {"donate": "bs"},
    ],
    ids=str,
)
def test_it_goes_with_other_options(options):
    """Each of them, on the gradient, which has a loop in all."""
    loss = loss_of(MODELS["plain"])
    f = optimize(roll="auto", **options)(loss)
    close(f.grad(WS, BS, X, wrt="ws"), fast(jax.grad(loss))(WS, BS, X), 1e-3)
    assert any(taken for taken, _ in layers_of(f.grad.plan(WS, BS, X, wrt="ws")))


@pytest.mark.rest
def test_mapped_examples_share_the_loop():
    """A per-example loss under `vmap`."""

    def loss(ws: list, bs: list, x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(MODELS["plain"](ws, bs, x) ** 2)

    f = optimize(vmap="batch", roll="auto")(loss)
    assert is_rolled(f, WS, BS, X)
    expected = fast(jax.vmap(jax.grad(loss), (None, None, 0)))(WS, BS, X)
    close(
        fast(lambda ws: jax.grad(lambda ws: jnp.sum(f(ws, BS, X)))(ws))(WS),
        [jnp.sum(g, 0) for g in expected],
        1e-3,
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"roll": True}, "does not say what is rolled"),
        (
            {"roll": "auto", "shard": {"batch": "data"}},
            "`roll` and `shard` together are not supported yet",
        ),
        ({"roll": "auto", "on_trace_error": "eager"}, "contradict each other"),
    ],
    ids=str,
)
def test_what_it_cannot_go_with_is_refused_at_decoration(options, says):
    """With what to write instead."""
    with pytest.raises(OptionError, match=says):
        optimize(**options)(loss_of(MODELS["plain"]))


KINDS = [
    lambda x, w, b: work(x, w, b),
    lambda x, w, b: other(x, w, b),
    lambda x, w, b: jax.nn.relu(work(x, w, b)),
    lambda x, w, b: jnp.sin(x @ w),
]


@pytest.mark.rest
@settings(max_examples=3, deadline=None)
@given(
    kinds=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=3),
    skip=st.booleans(),
)
@example(kinds=[(3, 1)], skip=True)  # one layer, that nothing repeats
# more layers than weights, one of another kind between two runs
@example(kinds=[(0, 4), (1, 1), (0, 3)], skip=False)
@example(kinds=[(2, 2), (3, 2)], skip=True)
def test_any_stack_of_layers_has_the_value_and_the_gradient_of_the_unrolled_one(kinds, skip):
    """Runs of layers of any kinds in any order, with the first state read again at the end or
    not.
    """

    def loss(ws: list, bs: list, x: Float[Array, "batch n"]):
        first, k = x, 0
        for kind, times in kinds:
            for _ in range(times):
                x, k = KINDS[kind](x, ws[k % LAYERS], bs[k % LAYERS]), k + 1
        return jnp.sum(x**2) + (jnp.sum(first * x) if skip else 0.0)

    f = optimize(roll="auto")(loss)
    found = fast(lambda *a: jax.value_and_grad(f, (0, 2))(*a))(WS, BS, X)
    close(found, fast(jax.value_and_grad(loss, (0, 2)))(WS, BS, X), 1e-3)
