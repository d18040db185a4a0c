"""Jit: donation, compiler effort, and numbers equal to `jax.jit`."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import DonationError, OptionError
from tests._examples import examples
from tests._monitor import listening
from tests._tracing import count_traces


def fresh(*shape):
    """An array whose buffer is JAX's own: memory borrowed from NumPy, as `jnp.asarray` may take it,
    is never reused.
    """
    return jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)


def decisions(program, *args, **keywords):
    return [
        (d["name"], d["taken"], d["why"])
        for d in program.plan(*args, **keywords).to_dict()["decisions"]
    ]


def why(program, stage, *args):
    return next(reason for name, _, reason in decisions(program, *args) if name == stage)


@pytest.mark.rest
@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float16, np.int32, np.uint8, np.complex64, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
@examples(
    {"x": np.array(-0.0, np.float32)},
    {"x": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)},
    {"x": np.zeros((2, 0, 3), np.float32)},
    # the sum and the square overflow, the least of all is lost
    {"x": np.array([[65504, 300, 6e-8, -0.0]], np.float16)},
    # the sum and the square wrap around
    {"x": np.array([2**31 - 1, -(2**31), 46341, -1], np.int32)},
    {"x": np.arange(250, 258).reshape(2, 2, 2).astype(np.uint8)},
    {"x": np.array([complex(np.inf, np.nan), complex(-0.0, 0.0), 1j], np.complex64)},
    {"x": np.array([[True], [False]])},
    {"x": np.array([], np.bool_)},
)
def test_elementwise_results_equal_jax_jit_to_the_bit(x):
    """For any shape and dtype."""

    def body(a):
        return (
            a + a,
            jnp.where(a == a, a * a, a),
            jnp.tanh(a.astype(jnp.float32).real) if a.dtype != np.complex64 else a,
        )

    with np.errstate(all="ignore"):
        ours, theirs = optimize(body)(jnp.asarray(x)), jax.jit(body)(jnp.asarray(x))
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_call_returns_before_the_device_is_done():
    """A long program: its result is not there yet when the call returns."""

    @optimize
    def long(x):
        return jax.lax.fori_loop(0, 400, lambda _, x: jnp.tanh(x @ x), x)

    x = jnp.eye(256)
    long(x).block_until_ready()
    assert any(not long(x).is_ready() for _ in range(3))


def test_a_donated_buffer_becomes_the_result():
    """The same memory, and the argument is gone."""
    f = optimize(donate="x")(lambda x, y: x + y)
    x, y = fresh(64, 64), fresh(64, 64)
    before = x.unsafe_buffer_pointer()
    out = f(x, y)
    assert out.unsafe_buffer_pointer() == before
    assert x.is_deleted()
    assert not y.is_deleted()


def test_nothing_is_donated_unasked():
    """Arguments stay."""
    x = fresh(4)
    optimize(lambda x: x + 1)(x)
    assert not x.is_deleted()


class Model(eqx.Module):
    layers: list[Array]
    name: str = "model"


def test_using_a_donated_buffer_again_names_its_path():
    """A leaf inside a module inside a list."""
    f = optimize(donate="model")(
        lambda model, x: jax.tree.map(lambda leaf: leaf + x if eqx.is_array(leaf) else leaf, model)
    )
    model = Model([fresh(3), fresh(4)])
    again = Model([fresh(3), model.layers[1]])
    f(model, jnp.float32(1))
    with pytest.raises(
        DonationError,
        match=r"the buffer of 'model\.layers\[1\]' has been donated to an earlier call",
    ):
        f(again, jnp.float32(1))


def test_using_a_donated_buffer_again_names_the_key_of_a_dict():
    """Also where it is not the donated argument this time."""
    f = optimize(donate="a")(lambda a, b: a + b["w"])
    x = fresh(3)
    f(x, {"w": fresh(3)})
    with pytest.raises(DonationError, match=r"""the buffer of "b\['w'\]" has been donated"""):
        f(fresh(3), {"w": x})


def test_one_buffer_passed_twice_names_both_arguments():
    """One of them donated, in either order."""
    f = optimize(donate="x")(lambda x, y: x + y["w"])
    x = fresh(3)
    with pytest.raises(
        DonationError, match=r"""'x' and "y\['w'\]" are the same buffer, and 'x' is donated"""
    ):
        f(x, {"w": x})
    both = optimize(donate=("x", "y"))(lambda x, y: (x + y, x - y))
    z = fresh(3)
    with pytest.raises(DonationError, match="'x' and 'y' are the same buffer"):
        both(z, z)


class State(NamedTuple):
    count: Array
    momentum: dict[str, Array]


def test_an_optimiser_step_donates_model_and_state_over_many_steps():
    """Momentum descent on a quadratic, as numpy does it; one trace, and each step reuses the
    buffers of the last.
    """

    def step(model, opt: tuple[State, tuple[()]], target):
        grads = jax.grad(lambda m: ((m["w"] - target) ** 2).sum())(model)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, opt[0].momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, model, momentum), (
            State(opt[0].count + 1, momentum),
            (),
        )

    body = count_traces(step)
    f = optimize(donate=("model", "opt"))(body)
    model, opt = {"w": fresh(3)}, (State(jnp.int32(0), {"w": jnp.zeros(3)}), ())
    target = jnp.ones(3)
    w, m = np.arange(3.0), np.zeros(3)
    for _ in range(5):
        old = model["w"]
        model, opt = f(model, opt, target)
        assert old.is_deleted()
        m = 0.9 * m + 2 * (w - 1)
        w = w - 0.1 * m
    np.testing.assert_allclose(model["w"], w, rtol=1e-5)
    assert opt[0].count == 5
    assert body.traces == 1
    assert f.stats.compiles + f.stats.persistent_hits == 1


def test_numpy_arguments_can_be_donated_and_stay():
    """JAX copies them to the device first."""
    f = optimize(donate="x")(lambda x: x + 1)
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), [1, 2, 3])
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_under_an_outer_jit_nothing_is_donated():
    """Donation is the outermost jit's."""
    f = optimize(donate="x")(lambda x: x + 1)
    x = fresh(3)
    np.testing.assert_array_equal(jax.jit(lambda x: f(x) + x)(x), [1, 3, 5])
    assert not x.is_deleted()


def test_a_donated_argument_without_arrays_stands_in_the_plan():
    """A state that is still None."""
    f = optimize(donate=("x", "opt"))(lambda x, opt: x + 1)
    assert ("jit", True, "donates x; opt holds no array") in decisions(f, fresh(3), None)


def test_a_donated_buffer_that_no_result_can_take_over_stands_in_the_plan():
    """One result for two buffers of its shape, none for the integers; planning counts no trace and
    compiles nothing.
    """

    @optimize(donate=("a", "b", "i"))
    def f(a, b, i, c):
        return a + b, i.sum()

    args = (fresh(3), fresh(3), jnp.arange(4), fresh(3))
    with listening() as events:
        lines = [
            why for name, taken, why in decisions(f, *args) if name == "donation" and not taken
        ]
    assert len(lines) == 2
    assert "'b'" in lines[0]
    assert "float32[3]" in lines[0]
    assert "'i'" in lines[1]
    assert events.count("compile") == 0
    assert f.stats.traces == 0
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        f(*args)


def test_the_plan_says_what_donation_saves_as_the_compiler_does():
    """Two of three buffers are taken over; the compiler counts the bytes of the same two."""
    f = optimize(donate=("a", "b", "c"))(lambda a, b, c: (a + 1, b * 2, c.sum()))
    args = (fresh(8, 8), fresh(16), jnp.arange(4))
    lines = [(taken, why) for name, taken, why in decisions(f, *args) if name == "donation"]
    assert lines[0] == (True, "saves 320 B: results take over 2 buffers of a, b")
    assert [taken for taken, _ in lines[1:]] == [False]
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        compiled = f.lower(*args).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == 8 * 8 * 4 + 16 * 4


def test_nothing_donated_needs_no_line():
    """Nor does such a function run for its plan."""
    body = count_traces(lambda x: x + 1)
    assert "donation" not in [name for name, _, _ in decisions(optimize(body), fresh(3))]
    assert body.traces == 0


class Scaled(eqx.Module):
    layer: eqx.nn.Linear
    scale: float = eqx.field(static=True)
    activation: object = jnp.tanh

    def __call__(self, x):
        return self.scale * self.activation(self.layer(x))


@pytest.mark.rest
@jax.numpy_dtype_promotion("standard")  # as Adam needs it
def test_a_module_and_the_state_of_its_optimiser_are_donated_whole():
    """Every array of both is given up and taken over; static leaves come back as the same objects,
    and numbers are those of plain Adam.
    """
    optax = pytest.importorskip("optax")
    adam = optax.adam(0.1)

    def step(model, opt, x):
        grads = eqx.filter_grad(lambda m: jnp.sum(m(x) ** 2))(model)
        updates, opt = adam.update(grads, opt, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt

    def start():
        model = Scaled(eqx.nn.Linear(3, 3, key=jax.random.key(0)), 2.0)
        return model, adam.init(eqx.filter(model, eqx.is_inexact_array))

    f, x = optimize(donate=("model", "opt"))(step), fresh(3)
    model, opt = start()
    expected, state = start()
    for _ in range(2):
        given = [leaf for leaf in jax.tree.leaves((model, opt)) if eqx.is_array(leaf)]
        model, opt = f(model, opt, x)
        assert all(leaf.is_deleted() for leaf in given)
        assert (model.scale, model.activation, model.layer.use_bias) == (2.0, jnp.tanh, True)
        expected, state = step(expected, state, x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4) if eqx.is_array(a) else None,
        (model, opt),
        (expected, state),
    )
    total = sum(leaf.nbytes for leaf in jax.tree.leaves((model, opt)) if eqx.is_array(leaf))
    assert f.lower(model, opt, x).compile().memory_analysis().alias_size_in_bytes == total


def test_a_donating_body_that_cannot_be_traced_still_has_a_plan():
    """Which buffers could be reused is not known then."""
    f = optimize(donate="x")(lambda x: x if x[0] > 0 else -x)
    assert [
        taken
        for name, taken, why in decisions(f, fresh(3))
        if name == "donation" and "cannot be traced" in why
    ] == [False]


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
@pytest.mark.parametrize("text", ["mine", "that record is deleted"])
def test_errors_of_the_body_pass_a_donating_program(kind, text):
    """Their type and text are the user's own."""

    @optimize(donate="x")
    def f(x, y):
        raise kind(text)

    with pytest.raises(kind) as caught:
        f(fresh(3), fresh(3))
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text)


def test_a_failed_check_in_a_donating_program_is_not_blamed_on_donation():
    """The buffer went to this call, not to an earlier one."""

    @optimize(donate="x")
    def f(x):
        return eqx.error_if(x, jnp.any(x > 1), "too big")

    np.testing.assert_array_equal(f(jnp.ones(3)), np.ones(3))
    with pytest.raises(RuntimeError, match="too big"):
        f(fresh(3))


def test_donation_is_dropped_with_debug_nans_and_says_so():
    """A bad call runs again, so its arguments must stay."""
    f = optimize(donate="x", debug_nans=True)(lambda x: x + 1)
    x = fresh(3)
    f(x)
    assert not x.is_deleted()
    assert "because `debug_nans`" in why(f, "jit", x)


def test_fast_compiles_with_less_effort_and_the_same_numbers():
    """The plan says so; inside another trace it is a plain sub-program, with and without traced
    arguments.
    """
    f = optimize(compiler="fast")(lambda x: jnp.sin(x) @ jnp.cos(x))
    x = fresh(5)
    expected = np.sin(np.arange(5)) @ np.cos(np.arange(5))
    for call in (
        lambda: f(x),
        lambda: jax.jit(f)(x),
        lambda: jax.jit(lambda: f(x))(),
        lambda: jax.grad(lambda y: f(y))(x) @ x * 0 + f(x),
    ):
        np.testing.assert_allclose(call(), expected, rtol=1e-5)
    assert "short compile times" in why(f, "jit", x)


def test_fast_is_compiled_by_itself():
    """The persistent cache gives an equal function what was compiled with all effort, and not one
    that asks for less.
    """
    usual, equal, fast = (
        optimize(**o)(lambda x: jnp.sin(x) @ jnp.cos(3 * x)) for o in ({}, {}, {"compiler": "fast"})
    )
    for f in (usual, equal, fast):
        f(fresh(7))
    assert [(f.stats.compiles, f.stats.persistent_hits) for f in (usual, equal, fast)] == [
        (1, 0),
        (0, 1),
        (1, 0),
    ]


def test_fast_passes_the_errors_of_the_body():
    """Also a ValueError, which JAX raises for its own reasons too."""

    @optimize(compiler="fast")
    def f(x):
        raise ValueError("compiler_options are mine")

    with pytest.raises(ValueError, match="compiler_options are mine"):
        f(fresh(3))


@pytest.mark.rest
def test_options_of_xla_are_passed_on():
    """The plan has them; they are in the key of the persistent cache; in another order they are
    the same; and inside another trace they do nothing.
    """
    given = {"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": 0}
    turned = dict(reversed(given.items()))
    body = lambda x: jnp.sin(x) @ jnp.cos(2 * x)
    usual, f = optimize(body), optimize(compiler=given)(body)
    expected = np.sin(np.arange(9)) @ np.cos(2 * np.arange(9))
    for call in (usual, f, jax.jit(f), lambda x: jax.jit(lambda: f(x))()):
        np.testing.assert_allclose(call(fresh(9)), expected, rtol=1e-5)
    assert (f.stats.compiles, f.stats.persistent_hits) == (1, 0)
    assert "xla_backend_optimization_level=0" in why(f, "jit", fresh(9))
    assert optimize(compiler=turned)(body).options == f.options
    none = optimize(compiler={})(body)
    assert str(none.plan(fresh(9))) == str(optimize(compiler="default")(body).plan(fresh(9)))


@pytest.mark.rest
@pytest.mark.parametrize("way", ["donate", "checks", "rows", "ahead", "program", "stream"])
def test_options_of_xla_reach_each_way_of_compiling(way):
    """An option that XLA does not know is its own error, so the option has reached it."""
    made = {"compiler": {"xla_no_such_option": True}}
    one = fresh(3)
    if way == "donate":
        call = lambda: optimize(donate="x", **made)(lambda x: x + 1)(one)
    elif way == "checks":
        f = optimize(**made)(lambda x: eqx.error_if(x, jnp.any(x < 0), "negative"))
        call = lambda: f(one)
    elif way == "rows":

        @optimize(vmap="row", pad={"n": "pow2"}, **made)
        def of_row(x: Float[Array, "n"]) -> Float[Array, ""]:
            return x.sum()

        call = lambda: of_row([one, fresh(5)])
    elif way == "stream":
        f = optimize(vmap={"row": {"x": 0}}, **made)(lambda x: x + 1)
        call = lambda: jitney.stream(f, np.ones(4, np.float32), chunk=2, progress=False)
    elif way == "ahead":
        call = lambda: optimize(**made)(lambda x: x + 1).compile(one)
    else:
        call = lambda: optimize(cache="program", **made)(lambda x: x + 1)(one)
    with pytest.raises(Exception, match="xla_no_such_option"):
        call()


@pytest.mark.rest
def test_options_of_xla_are_not_of_kept_programs():
    """A program with them is not cached for other processes, and the plan says so."""
    f = optimize(cache="program", compiler={"xla_backend_optimization_level": 0})(lambda x: x + 1)
    assert "programs with `compiler={...}` are not cached yet" in str(f.plan(fresh(3)))


@pytest.mark.parametrize(
    "compiler",
    [
        {"xla_cpu_enable_fast_math": True},
        {"xla_cpu_enable_fast_min_max": True},
        {"xla_cpu_fast_math_honor_nans": False},
        {"xla_backend_extra_options": "unsafe"},
        {"O3": True},
        {"xla_step_marker_location": [1]},
        {1: True},
        ["xla_cpu_enable_fast_math"],
    ],
    ids=str,
)
def test_options_that_compute_other_numbers_are_refused(compiler):
    """Fast-math, what is no option of XLA, and what is no dict of them."""
    with pytest.raises(OptionError):
        optimize(compiler=compiler)(lambda x: x)


@pytest.mark.rest
def test_options_that_keep_numbers_exact_are_taken():
    """The names of fast-math, with the values that turn it off."""
    exact = {"xla_cpu_enable_fast_math": False, "xla_cpu_fast_math_honor_nans": True}
    assert optimize(compiler=exact)(lambda x: x + 1)(fresh(2)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "options",
    [{"donate": "z"}, {"donate": "x", "static": "x"}, {"compiler": "slow"}, {"donate": ("x", "x")}],
)
def test_options_that_cannot_be_are_refused_at_decoration(options):
    """A name that is no parameter, donated and static, an unknown effort, a name twice."""
    with pytest.raises(OptionError):
        optimize(**options)(lambda x: x)
