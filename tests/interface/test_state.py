"""`State` and `derived`: named quantities that are one vector."""

import copy
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Complex, Float

import jitney
from jitney import optimize
from jitney.errors import StateError
from jitney.states import State, derived
from tests._examples import examples

COUNT = []


class Economy(State):
    log_capital: Float[Array, "sector"]
    labour: Float[Array, ""]
    price: Float[Array, ""]
    share: Float[Array, "2 sector"]

    @derived
    def capital(self) -> Float[Array, "sector"]:
        """Capital stock."""
        COUNT.append("capital")
        return jnp.exp(self.log_capital)

    @derived
    def output(self) -> Float[Array, "sector"]:
        return self.capital**0.3 * self.labour**0.7 + 0 * jnp.sum(self.capital)


@pytest.fixture
def economy():
    COUNT.clear()
    return Economy.of(jnp.arange(1.0, 12.0))


def test_a_vector_and_back(economy):
    """In the order of declaration; shapes come from the annotations and the length."""
    np.testing.assert_array_equal(economy.log_capital, [1, 2, 3])
    np.testing.assert_array_equal(economy.labour, 4)
    np.testing.assert_array_equal(economy.share, [[6, 7, 8], [9, 10, 11]])
    np.testing.assert_array_equal(economy.array, np.arange(1.0, 12.0))
    np.testing.assert_array_equal(economy.of(economy.array * 2).price, 10)
    assert economy.names[:4] == ("log_capital[0]", "log_capital[1]", "log_capital[2]", "labour")
    assert economy.names[-1] == "share[1,2]"


def test_one_split_each_way():
    """Whatever the number of fields: one split, and one unstack for numbers that stand together."""
    names = [f"x{i}" for i in range(50)]
    cls = type(
        "Many",
        (State,),
        {"__annotations__": {**dict.fromkeys(names, Float[Array, ""]), "v": Float[Array, "3"]}},
    )
    apart = jax.make_jaxpr(lambda vector: jax.tree.leaves(cls.of(vector)))(jnp.ones(53))
    together = jax.make_jaxpr(lambda state: state.array)(cls.of(jnp.ones(53)))
    assert len(apart.eqns) <= 2 + 50 * (jax.__version__ == "0.10.0")
    assert len(together.eqns) <= 2 + 60 * (jax.__version__ == "0.10.0")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=5), st.booleans())
@examples(
    {"shapes": [], "traced": False},
    {"shapes": [], "traced": True},
    {"shapes": [[]], "traced": False},
    {"shapes": [[0]], "traced": False},
    {"shapes": [[1], [], [1, 1]], "traced": False},  # fields of one number each
    {"shapes": [[0, 3], [3, 0], [0, 0]], "traced": True},
    # equal shapes, and numbers beside each other
    {"shapes": [[2], [2], [], [], [2, 2]], "traced": True},
    {"shapes": [[3, 2], [0], [2, 3], [], [1, 3]], "traced": True},
    {"shapes": [[3, 2], [0], [2, 3], [], [1, 3]], "traced": False},
)
def test_any_shapes_come_back(shapes, traced):
    """NumPy stays NumPy; empty fields and fields of rank 0 to 2."""
    fields = {
        f"f{i}": np.asarray(np.random.default_rng(i).normal(size=shape).astype(np.float32))
        for i, shape in enumerate(shapes)
    }
    cls = type("Some", (State,), {"__annotations__": dict.fromkeys(fields, Float[Array, "..."])})
    state = cls(**fields)
    flat = [value.ravel() for value in fields.values()]
    np.testing.assert_array_equal(state.array, np.concatenate(flat) if flat else [])
    back = (jax.jit(lambda s: s.of(s.array)) if traced else lambda s: s.of(s.array))(state)
    for name, value in fields.items():
        np.testing.assert_array_equal(getattr(back, name), value)
        assert traced or isinstance(getattr(back, name), np.ndarray)


def test_derived_fields_are_computed_when_read(economy):
    """Once for each state, however often they are read; what is made from another vector has its
    own.
    """
    assert COUNT == []
    np.testing.assert_allclose(economy.output, np.exp([1, 2, 3]) ** 0.3 * 4**0.7, rtol=1e-6)
    assert economy.output is economy.output
    assert economy.capital is economy.capital
    assert COUNT == ["capital"]
    np.testing.assert_allclose(economy.of(economy.array + 1).capital, np.exp([2, 3, 4]), rtol=1e-6)
    assert COUNT == ["capital"] * 2
    assert Economy.capital.__doc__ == "Capital stock."


def test_derived_fields_pass_no_transform(economy):
    """They are no leaves; in a jitted, differentiated or mapped function they follow from the
    arguments again.
    """
    economy.output  # noqa: B018  # must not come along
    assert len(jax.tree.leaves(economy)) == 4
    grad = jax.jit(jax.grad(lambda e: jnp.sum(e.capital)))(economy)
    np.testing.assert_allclose(grad.log_capital, economy.capital, rtol=1e-6)
    moved = eqx.tree_at(lambda e: e.log_capital, economy, economy.log_capital + 1)
    np.testing.assert_allclose(moved.capital, np.exp([2, 3, 4]), rtol=1e-6)
    batch = jax.vmap(Economy.of)(jnp.stack([economy.array, economy.array + 1]))
    np.testing.assert_allclose(
        jax.vmap(lambda e: e.capital)(batch), np.exp([[1, 2, 3], [2, 3, 4]]), rtol=1e-6
    )
    f = optimize(lambda e: e.output)
    np.testing.assert_allclose(f(economy), economy.output, rtol=1e-6)
    np.testing.assert_allclose(f(moved), moved.output, rtol=1e-6)
    assert f.stats.traces == 1


def test_a_state_that_was_read_is_of_the_structure_it_was(economy):
    """So it goes with one that was not, in branches and loops, and shares their programs."""
    fresh, structure = economy.of(economy.array), jax.tree.structure(economy)
    economy.output  # noqa: B018
    assert jax.tree.structure(economy) == structure
    f = optimize(lambda e: e.labour)
    f(fresh)
    f(economy)
    assert f.stats.traces == 1
    chosen = jax.lax.cond(economy.labour > 0, lambda e: (e.output, e)[1], lambda e: e, economy)
    last, outputs = jax.lax.scan(lambda e, _: (e, e.output), economy, None, length=2)
    np.testing.assert_allclose(outputs, [economy.output] * 2, rtol=1e-6)
    for other in (chosen, last):
        assert jax.tree.structure(other) == structure


def test_nothing_leaks_from_a_trace(economy):
    """A state of concrete arrays that a traced function closes over, there and inside a loop, gives
    arrays afterwards.
    """
    fresh = economy.of(economy.array)

    def body(carry, _):
        return carry + jnp.sum(fresh.output), fresh.capital * carry

    with jax.check_tracer_leaks():
        total = jax.jit(lambda x: jax.lax.scan(body, x, None, length=3)[0] + jnp.sum(fresh.output))(
            0.0
        )
    np.testing.assert_allclose(total, 4 * jnp.sum(economy.output), rtol=1e-6)
    assert isinstance(fresh.capital, jax.Array)
    assert not isinstance(fresh.capital, jax.core.Tracer)
    inner = jax.jit(
        lambda e: (
            jax.lax.scan(lambda c, _: (c + jnp.sum(e.capital), None), 0.0, None, length=2)[0]
            + jnp.sum(e.capital)
        )
    )
    np.testing.assert_allclose(inner(fresh), 3 * jnp.sum(economy.capital), rtol=1e-6)


def test_chains_are_traced_once(economy):
    """A derived field that is used twice by each of the next would be 2^20 evaluations."""
    fields = {"x0": derived(lambda self: self.labour * 1.0)}
    for i in range(20):
        fields[f"x{i + 1}"] = derived(
            lambda self, i=i: getattr(self, f"x{i}") + getattr(self, f"x{i}")
        )
    cls = type("Chain", (State,), {"__annotations__": {"labour": Float[Array, ""]}, **fields})
    state = cls(labour=jnp.asarray(1.0))
    assert float(jax.jit(lambda s: s.x20)(state)) == 2**20
    assert float(jax.jit(lambda y: state.x20 * y)(1.0)) == 2**20


def test_copies_and_pickles_carry_core_fields(economy):
    """And compute the rest again."""
    economy.output  # noqa: B018
    for other in (copy.deepcopy(economy), copy.copy(economy), pickle.loads(pickle.dumps(economy))):
        assert set(vars(other)) <= {"log_capital", "labour", "price", "share"}
        np.testing.assert_allclose(other.output, economy.output)


class Partial(State):
    known: Float[Array, ""]
    open: Float[Array, ""] | None = None
    other: jax.Array | None = None

    @derived
    def both(self):
        return self.known + self.open

    @derived
    def above(self):
        return self.both * 2


def test_missing_inputs_are_an_error():
    """Named with the derived field that needs them; reading the missing field itself is None."""
    state = Partial(jnp.asarray(1.0))
    assert state.open is None
    with pytest.raises(
        StateError,
        match=r"Partial.both: it needs 'open', which is missing\.\n(.|\n)*Fix: give 'open' a value",
    ):
        state.above  # noqa: B018
    np.testing.assert_array_equal(state.array, [1])
    assert Partial(jnp.asarray(1.0), jnp.asarray(2.0)).above == 6


def test_a_circle_is_an_error():
    """With the way round."""
    fields = {"a": derived(lambda self: self.b), "b": derived(lambda self: self.a)}
    cls = type("Circle", (State,), fields)
    with pytest.raises(StateError, match="derived from itself: a -> b -> a"):
        cls().a  # noqa: B018


def test_a_field_that_overrides_another_may_read_it(economy):
    """By `super()`, however many there are; each is computed once, and a parent's rule that reads
    the field gets the child's.
    """

    class Taxed(Economy):
        @derived
        def capital(self) -> Float[Array, "sector"]:
            COUNT.append("taxed")
            return 0.5 * super().capital

    class Twice(Taxed):
        @derived
        def capital(self) -> Float[Array, "sector"]:
            return 0.5 * super().capital + 0 * super().capital

    state = Twice.of(economy.array)
    np.testing.assert_allclose(state.capital, np.exp(np.arange(1, 4)) / 4, rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(lambda s: s.output)(state), state.capital**0.3 * economy.labour**0.7, rtol=1e-6
    )
    assert COUNT == ["taxed", "capital"] * 2


def test_a_circle_through_a_parent_is_an_error():
    """That is one too."""
    one = type(
        "One",
        (State,),
        {"a": derived(lambda self: self.b), "b": derived(lambda self: jnp.ones(()))},
    )
    two = type("Two", (one,), {"b": derived(lambda self: super(two, self).a)})
    with pytest.raises(StateError, match="derived from itself: b -> a -> b"):
        two().b  # noqa: B018


def test_it_prints_by_name(economy):
    """Core fields, derived ones, and what is missing."""
    text = str(economy)
    assert text.splitlines()[0] == "Economy"
    assert "labour       4." in text
    assert "(derived)" in text
    assert "Partial.both: it needs 'open'" in str(Partial(jnp.asarray(1.0)))
    assert "ShapeDtypeStruct" in str(jax.eval_shape(lambda: economy))
    seen = []
    jax.jit(lambda e: seen.append(str(e)))(economy)
    assert "f32[3]" in seen[0]


class Nested(State):
    inner: Economy
    name: str = eqx.field(static=True)


def test_states_nest(economy):
    """An inner state is part of the vector; without an instance its shapes are not known."""
    state = Nested(economy, "n")
    np.testing.assert_array_equal(state.array, economy.array)
    assert state.names[3] == "inner.labour"
    assert state.of(state.array * 2).name == "n"
    with pytest.raises(StateError, match=r"Nested.of\(\): 'name' is static and has no default"):
        Nested.of(state.array)


class TwoAxes(State):
    a: Float[Array, "n"]
    b: Float[Array, "n+1 m"]


WRONG = {
    "length": (
        lambda e: e.of(jnp.ones(3)),
        "the vector has shape (3,), and the fields take 11 elements",
    ),
    "rank": (lambda e: e.of(jnp.ones((11, 1))), "the vector has shape (11, 1)"),
    "no size": (
        lambda e: Economy.of(jnp.ones(4)),
        "no size of 'sector' makes the fields 4 elements long",
    ),
    "two sizes": (lambda e: TwoAxes.of(jnp.ones(4)), "the sizes of 'm', 'n' are not known"),
    "integers": (lambda e: Partial(jnp.asarray(1)).array, "it is int32[]"),
    "text": (lambda e: Partial("x").array, "it is 'x'"),
    "dtypes": (
        lambda e: Partial(jnp.ones(2), jnp.ones((), jnp.bfloat16)).array,
        "several dtypes: float32 (known), bfloat16 (open)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case, economy):
    """With what it is, and what to do."""
    make, message = WRONG[case]
    with pytest.raises(StateError) as error:
        make(economy)
    assert message in str(error.value)
    assert "\nFix: " in str(error.value)


def test_sizes_may_be_given():
    """By name, where the length does not tell them; expressions follow."""
    state = TwoAxes.of(np.arange(8.0), sizes={"n": 2})
    assert state.b.shape == (3, 2)
    assert TwoAxes.of(np.arange(8.0), sizes={"m": 2}).a.shape == (2,)


class Wave(State):
    amplitude: Complex[Array, "n"]


def test_complex_fields_come_back():
    """From an instance and from the class; a complex vector does not fit real fields."""
    wave = Wave(jnp.asarray([1 + 2j, 3 - 1j]))
    np.testing.assert_array_equal(wave.of(2 * wave.array).amplitude, [2 + 4j, 6 - 2j])
    np.testing.assert_array_equal(Wave.of(wave.array).amplitude, wave.amplitude)
    for real in (TwoAxes, TwoAxes.of(np.arange(8.0), sizes={"n": 2})):
        with pytest.raises(StateError, match="the vector is complex64"):
            real.of(jnp.ones(8, jnp.complex64), **({"sizes": {"n": 2}} if real is TwoAxes else {}))


def test_annotated_float_takes_a_number():
    """In the dtype of the others."""
    cls = type("Rate", (State,), {"__annotations__": {"rate": float, "x": Float[Array, "n"]}})
    state = cls(rate=0.5, x=jnp.ones(2))
    assert state.array.dtype == jnp.float32
    np.testing.assert_array_equal(state.array, [0.5, 1, 1])
    assert cls.of(state.array).rate.shape == ()


def test_states_are_arguments_of_programs(economy):
    """Contracts check their fields; derivatives of states are states."""

    @jitney.lazy_derivatives(wrt="e")
    def welfare(e: Economy) -> Float[Array, ""]:
        return jnp.sum(jnp.log(e.output))

    grad = welfare.grad(economy)
    assert isinstance(grad, Economy)
    np.testing.assert_allclose(grad.labour, 3 * 0.7 / 4, rtol=1e-6)
    with pytest.raises(jitney.errors.ContractError, match="axis 'sector' has two sizes"):
        welfare(eqx.tree_at(lambda e: e.share, economy, jnp.ones((2, 4))))


class Number(State):
    x: Float[Array, "..."]

    @derived
    def y(self):
        return jnp.square(self.x) + 1


class Sum(State):
    x: Float[Array, ""]

    @derived
    def concrete(self):
        """States that nobody holds, of numbers of NumPy's."""
        return sum(Number(np.float32(k)).y for k in range(4)) + self.x

    @derived
    def parts(self):
        """States that nobody holds, of tracers."""
        return sum(Number(self.x * k).y for k in range(4))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        jax.jit,
        lambda f: jax.vmap(f, axis_size=2, in_axes=None),
        optimize,
        jax.checkpoint,
    ],
)
def test_states_that_nobody_holds_have_their_own_values(wrap):
    """A temporary state dies, and the next one takes its place in memory."""
    state = Sum(jnp.float32(3.0))
    np.testing.assert_allclose(wrap(lambda: state.concrete)(), 1 + 2 + 5 + 10 + 3)
    np.testing.assert_allclose(wrap(lambda: Sum(jnp.float32(3.0)).parts)(), 4 + 9 * (1 + 4 + 9))
    np.testing.assert_allclose(jax.jit(lambda s: s.concrete + s.parts)(state), 21 + 130)


def test_an_array_that_is_changed_in_place_has_other_values():
    """NumPy's can be, in a field, in a list, and in a state inside."""
    x = np.arange(3, dtype=np.float32)
    listed = type(
        "Listed",
        (State,),
        {"__annotations__": {"xs": list}, "y": derived(lambda self: self.xs[0] + 1)},
    )([x])
    outer = type(
        "Outer",
        (State,),
        {"__annotations__": {"inner": Number}, "y": derived(lambda self: self.inner.y)},
    )(Number(x))
    state, view = Number(x), Number(x[::2])
    before = [np.array(s.y) for s in (state, listed, outer, view)]
    x += 1
    after = [s.y for s in (state, listed, outer, view)]
    np.testing.assert_allclose(before[0], [1, 2, 5])
    for value, want in zip(after, ([2, 5, 10], [2, 3, 4], [2, 5, 10], [2, 10]), strict=True):
        np.testing.assert_allclose(value, want)
    listed.xs[0] = jnp.zeros(3)
    np.testing.assert_allclose(listed.y, [1, 1, 1])


def test_a_vector_and_its_state_share_no_memory(economy):
    """SciPy writes to the vector that it has handed out, and whoever has a state's vector may do so
    too.
    """
    for vector, made in (
        (np.zeros(11), economy.of),
        (np.zeros(11), Economy.of),
        (np.zeros(1), Number(np.zeros(1)).of),
    ):
        state = made(vector)
        vector += 1
        assert not state.array.any()
        state.array[:] = 2
        assert not state.array.any()


def test_what_can_change_unseen_is_computed_each_time():
    """An object of a class that nothing is known of, in a static field; a reference."""

    class Rate:
        value = 1.0

    rate = Rate()
    fields = {
        "__annotations__": {"rate": Rate},
        "rate": eqx.field(static=True),
        "y": derived(lambda self: self.rate.value * 2),
    }
    state = type("Rated", (State,), fields)(rate)
    assert state.y == 2
    rate.value = 5.0
    assert state.y == 10
    reference = jax.new_ref(jnp.float32(1))
    held = type(
        "Held",
        (State,),
        {"__annotations__": {"x": jax.Ref}, "y": derived(lambda self: self.x[...] + 1)},
    )(reference)
    assert held.y == 2
    reference[...] = 5.0
    assert held.y == 6


def test_a_field_is_computed_anew_under_other_settings():
    """What was computed in single precision is not handed out in double, nor the other way
    round.
    """
    state = type(
        "Third",
        (State,),
        {"__annotations__": {"x": jax.Array}, "y": derived(lambda self: jnp.asarray(1 / 3))},
    )(jnp.ones(1))
    assert state.y.dtype == np.float32
    with jax.enable_x64(True):
        assert state.y.dtype == np.float64
        np.testing.assert_allclose(state.y, 1 / 3, rtol=1e-15)
    assert state.y.dtype == np.float32


def test_a_value_of_a_loop_does_not_leave_it():
    """One reading may go through several traces: a field read inside a scan, and again behind
    it.
    """

    @derived
    def both(self):
        inside = jax.lax.scan(lambda c, _: (c + self.y, None), jnp.zeros(2), None, length=3)[0]
        return inside + self.y

    cls = type(
        "Loop",
        (State,),
        {
            "__annotations__": {"x": jax.Array},
            "y": derived(lambda self: jnp.exp(self.x)),
            "both": both,
        },
    )
    state = cls(jnp.ones(2))
    np.testing.assert_allclose(jax.jit(lambda: state.both)(), 4 * np.exp(np.ones(2)), rtol=1e-6)
    np.testing.assert_allclose(state.both, 4 * np.exp(np.ones(2)), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda s: s.both)(state), 4 * np.exp(np.ones(2)), rtol=1e-6)
