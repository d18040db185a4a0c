"""Many steps in one program are the same steps one by one."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize, scan_steps
from jitney._jax.ticks import Ticks
from jitney.errors import ContractError, OptionError
from tests._arrays import array

F = np.float32
X = array(np.arange(3, dtype=F))
ZERO, TWO = F(0), F(2)


class Carry(NamedTuple):
    a: Any
    b: Any


def training():
    """An MLP, its optimiser's state, and a step."""
    model = eqx.nn.MLP(3, "scalar", 4, 1, key=jax.random.key(0))
    adam = optax.adam(1e-2)

    def step(model, state, x, y):
        loss, grads = eqx.filter_value_and_grad(
            lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2)
        )(model)
        updates, state = adam.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, loss

    return model, adam.init(eqx.filter(model, eqx.is_array)), step


def test_steps_of_a_training_loop_are_those_of_a_loop():
    """A model with functions in it, a state, a batch for each step, a loss of each."""
    model, state, step = training()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 8, 3)).astype(F), rng.normal(size=(5, 8)).astype(F)
    with jax.numpy_dtype_promotion("standard"):
        run = scan_steps(step, 5, carry=2, over=("x", "y"))
        got = run(model, state, x, y)
        plain, want, losses = eqx.filter_jit(step), (model, state), []
        for i in range(5):
            *want, loss = plain(*want, x[i], y[i])
            losses.append(loss)
    for a, b in zip(
        jax.tree.leaves(eqx.filter(got[:2], eqx.is_array)),
        jax.tree.leaves(eqx.filter(want, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[2], losses, rtol=1e-5)
    assert got[0].activation is model.activation
    assert run.stats.compiles == 1


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_step_that_returns_its_state_alone_returns_it(n):
    """However many there are; keywords and defaults too."""

    def step(x, *, by=TWO, plus=ZERO):
        return x * by + plus

    want = X
    for _ in range(n):
        want = step(want, plus=F(1))
    np.testing.assert_array_equal(scan_steps(step, n)(X, plus=F(1)), want)


def test_a_state_that_is_a_tuple_is_told_from_several_results():
    """By its structure."""
    alone = scan_steps(lambda state: (state[0] + 1, state[1] * 2), 3)
    a, b = alone((X, X))
    np.testing.assert_array_equal(a, X + 3)
    np.testing.assert_array_equal(b, X * 8)
    named, kept = scan_steps(lambda state: (Carry(state.a + 1, state.b), jnp.sum(state.a)), 3)(
        Carry(X, None)
    )
    np.testing.assert_array_equal(named.a, X + 3)
    np.testing.assert_array_equal(kept, [3, 6, 9])


def test_what_is_kept_may_hold_more_than_arrays():
    """Text stays as it is; arrays get an axis."""
    _, told = scan_steps(lambda x: (x + 1, {"name": "sum", "value": jnp.sum(x)}), 2)(X)
    assert told["name"] == "sum"
    np.testing.assert_array_equal(told["value"], [3, 6])


def test_an_element_of_a_tree_goes_to_each_step():
    """Keys, and batches in dicts with text among them."""
    keys = jax.random.split(jax.random.key(0), 4)

    def step(x, key, batch):
        assert batch["name"] == "b"
        return x + jax.random.normal(key, (3,)) * batch["scale"]

    got = scan_steps(step, 4, over=["key", "batch"])(
        X, keys, {"scale": jnp.arange(4, dtype=F), "name": "b"}
    )
    want = X
    for i in range(4):
        want = want + jax.random.normal(keys[i], (3,)) * F(i)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_program_keeps_its_contract_and_its_options():
    """Its signature is checked in each step; what it donates is donated once."""

    @optimize(donate="x")
    def step(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return x + y

    run = scan_steps(step, 4)
    x = jnp.zeros(3)
    np.testing.assert_array_equal(run(x, X), X * 4)
    assert x.is_deleted()
    with pytest.raises(ContractError, match="'n'"):
        run(jnp.zeros(3), jnp.zeros(4))


def test_gradients_go_through_all_steps():
    """By `jax.grad` and by the program's own."""
    run = scan_steps(lambda x, w: jnp.sin(x) * w, 3)
    want = jax.grad(lambda w: jnp.sum(jnp.sin(jnp.sin(jnp.sin(X) * w) * w) * w))(F(0.5))
    np.testing.assert_allclose(jax.grad(lambda w: jnp.sum(run(X, w)))(F(0.5)), want, rtol=1e-5)


def test_numbers_that_python_holds_stay_as_they_are():
    """A static argument of a step is one of the loop."""
    run = scan_steps(lambda x, times: x + times, 3, static="times")
    np.testing.assert_array_equal(run(X, 2), X + 6)


@pytest.mark.parametrize(
    ("step", "given", "text"),
    [
        (lambda x: x[:2], (X,), r"x comes in as float32\[3\] and goes out as float32\[2\]"),
        (
            lambda x: x.astype(jnp.float16),
            (X,),
            r"x comes in as float32\[3\] and goes out as float16\[3\]",
        ),
        (
            lambda state: {**state, "n": state["n"] + 1},
            ({"x": X, "n": 0},),
            r"state\['n'\] comes in as 0 .*jnp.asarray\(0\)",
        ),
        (lambda state: ({"x": state["x"], "y": X}, 1), ({"x": X},), "another structure"),
        (lambda x: [x], (X,), "a step returns a list, which does not begin with x"),
        (lambda x: (), (X,), "a step returns a tuple"),
    ],
)
def test_a_step_that_does_not_fit_the_next_one_is_refused(step, given, text):
    """With the path, and what came in and went out."""
    with pytest.raises(ContractError, match=f"(?s){text}"):
        scan_steps(step, 3)(*given)


def test_data_with_another_number_of_elements_is_refused():
    """Not cut, not repeated."""
    run = scan_steps(lambda x, y: x + y, 3, over="y")
    with pytest.raises(ContractError, match=r"(?s)y is float32\[4\].*for each of 3 steps"):
        run(jnp.zeros(()), jnp.zeros(4))
    with pytest.raises(ContractError, match=r"y is float32\[\]"):
        run(jnp.zeros(()), jnp.zeros(()))


@pytest.mark.parametrize(
    ("n", "given", "text"),
    [
        (-1, {}, "n=-1 is not a number of steps"),
        (2.0, {}, "n=2.0 is not a number of steps"),
        (True, {}, "n=True is not a number of steps"),
        (2**31, {}, "n=2147483648 is not a number of steps"),
        (3, {"carry": 3}, "carry=3 does not fit"),
        (3, {"carry": 0}, "carry=0 does not fit"),
        (3, {"over": "z"}, "over='z': it is not an argument"),
        (3, {"over": "x"}, "over='x': it is handed on"),
        (3, {"over": 5}, "over=5 names no arguments"),
    ],
)
def test_what_cannot_be_is_refused_at_once(n, given, text):
    """When the loop is made."""
    with pytest.raises(OptionError, match=text):
        scan_steps(lambda x, y: x, n, **given)


@pytest.mark.parametrize("step", [max, dict, print])
def test_a_builtin_has_no_arguments_with_names(step):
    """Some tell no signature at all."""
    with pytest.raises(OptionError, match="of which this one has 0"):
        scan_steps(step, 3)


def test_a_bar_shows_how_far_it_is(capfd):
    """A hundred callbacks at most, call after call."""
    run = scan_steps(lambda x: x + 1, 250, progress=True)
    for _ in range(2):
        np.testing.assert_array_equal(run(X), X + 250)
        jax.effects_barrier()
    told = capfd.readouterr()
    assert "Traceback" not in told.err
    assert jitney.scan_steps is scan_steps


@pytest.mark.parametrize("n", [1, 99, 100, 101, 199, 200, 250])
def test_a_bar_moves_a_hundred_times_at_most(n):
    """And at least half as often, where there are as many steps."""
    assert min(n, 50) <= n // Ticks("run", n)._every <= 100


def test_it_has_the_name_of_the_step():
    """In reports and messages."""

    def step(x):
        """One step."""
        return x

    run = scan_steps(step, 2)
    assert (run.__name__, run.__doc__) == ("step", "One step.")
    assert "step" in str(run.plan(X))


class Growth:
    """A step that is a method, of an object that changes."""

    def __init__(self):
        self.rate = 2.0

    def step(self, total, x):
        return total * self.rate + x, total

    @optimize
    def program(self, total: Float[Array, ""], x: Float[Array, ""]):
        return self.step(total, x)

    def __call__(self, total, x):
        return self.step(total, x)


def stepped(total, x, of):
    return of.step(total, x)


@pytest.mark.core("object", "program", "by keyword")
@pytest.mark.parametrize(
    "step_of",
    [
        lambda it: it.step,
        lambda it: it.program,
        lambda it: it,
        lambda it: functools.partial(Growth.step, it),
        lambda it: functools.partial(stepped, of=it),
    ],
    ids=["method", "program", "object", "partial", "by keyword"],
)
def test_a_step_sees_that_its_object_has_changed(step_of):
    """What it is bound to is no constant of the program."""
    it = Growth()
    run = scan_steps(step_of(it), 3, over="x")
    for rate in (2.0, 3.0, 2.0):
        it.rate = rate
        last, totals = run(jnp.asarray(1.0), X)
        want = [1.0, rate, rate**2 + 1, (rate**2 + 1) * rate + 2]
        np.testing.assert_allclose([*totals, last], want)
