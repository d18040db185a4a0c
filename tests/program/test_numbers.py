"""Python numbers among the arguments: traced as `jax.jit` traces them, or held where the body needs
their values; beside plain JAX.
"""

import collections
import dataclasses
import enum
import math
import threading
import typing
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from jitney import load, optimize
from jitney.errors import ContractError, DerivativeError, RetraceWarning, TraceError
from tests._arrays import array

X = np.arange(1.0, 5.0, dtype=np.float32)
LONG = np.arange(1.0, 9.0, dtype=np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    weights: typing.Any
    step: typing.Any = 0


class Rates(typing.NamedTuple):
    first: float
    second: float


class Chosen(typing.TypedDict):
    order: int
    a: typing.Any


class Layer(eqx.Module):
    weight: Array
    rate: float


class Level(float, enum.Enum):
    HIGH = 2.0


def equal(got, want):
    """To the bit, with dtypes, weak types and structure."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = jnp.asarray(a), jnp.asarray(b)
        assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        np.testing.assert_array_equal(a, b)


PLACES = {
    "argument": lambda number: number,
    "dict": lambda number: {"a": number, "b": X},
    "list": lambda number: [number, 2.0],
    "tuple": lambda number: (X, (number,)),
    "named tuple": lambda number: Rates(number, 1.0),
    "registered": lambda number: State(X, number),
    "partial": lambda number: jax.tree_util.Partial(jnp.multiply, number),
}


@pytest.mark.core("f32-*", "f64-argument")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("x64", [False, True], ids=["f32", "f64"])
def test_floats_are_data_as_under_jit(place, x64):
    """One program for all values, with the dtypes and weak types of plain JAX."""

    def body(x, p):
        return jax.tree.map(lambda leaf: x * leaf, p) if place != "partial" else p(x)

    f = optimize(body)
    with jax.enable_x64(x64):
        for number in (0.5, -0.0, math.inf, math.nan, 3.0):
            equal(f(X, PLACES[place](number)), jax.jit(body)(X, PLACES[place](number)))
    assert f.stats.traces == 1


@pytest.mark.parametrize("number", [2 + 1j, 3.0, 4], ids=["complex", "float", "int"])
def test_numbers_of_a_registered_class_are_data(number):
    """An int among them, as the step of a training state."""

    def body(s):
        return s.weights * s.step, s.step + 1

    f = optimize(body)
    x = X.astype(np.complex64) if isinstance(number, complex) else X
    for value in (number, number + 1, number + 2):
        equal(f(State(x, value)), jax.jit(body)(State(x, value)))
    assert f.stats.traces == 1


@pytest.mark.core
def test_a_training_state_is_two_programs():
    """Its step is a number first, and an array from then on."""

    @optimize
    def step(s):
        return State(s.weights * 2, s.step + 1)

    s = State(X)
    for _ in range(6):
        s = step(s)
    assert (int(s.step), step.stats.traces) == (6, 2)


@pytest.mark.parametrize(
    "argument",
    [3, True, Level.HIGH, (3,), {"n": 3}, [3], Layer(array([1.0]), 0.5)],
    ids=["int", "bool", "enum", "tuple", "dict", "list", "module"],
)
def test_other_numbers_stay_static(argument):
    """The body can branch on each, and plain Python numbers come in."""

    @optimize
    def body(x, p):
        leaves = [leaf for leaf in jax.tree.leaves(p) if not eqx.is_array(leaf)]
        assert not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        return x * sum(leaves) if sum(leaves) > 0 else x

    np.testing.assert_allclose(
        body(X, argument),
        X * (0.5 if isinstance(argument, Layer) else float(jax.tree.leaves(argument)[0])),
    )


NEEDS = {
    "branch": lambda x, a: x if a > 1 else -x,
    "shape": lambda x, a: jnp.zeros(int(a)) + x[0],
    "index": lambda x, a: [x, 2 * x, 3 * x][int(a)],
    "range": lambda x, a: sum(x for _ in range(int(a))),
    "key": lambda x, a: {1.0: x, 2.0: 2 * x}[a],
    "type": lambda x, a: x * a if isinstance(a, float) else 1 / 0,
    "attribute": lambda x, a: x * a.hex().count("0"),
    "math": lambda x, a: x * math.sin(a),
    "text": lambda x, a: x * len(f"{a:.1f}"),
    "numpy": lambda x, a: x * np.float32(a),
}


@pytest.mark.core("{}-branch", "{}-shape", "{}-type", "{'pad'*-branch", "{'chunk'*-type")
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("options", [{}, {"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}], ids=str)
@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
def test_a_number_that_the_body_needs_is_held(need, options):
    """The other stays data; the results are those of the static argument."""
    body = NEEDS[need]
    if options and need in ("shape", "index"):
        options = {}

    @optimize(**options)
    def f(x: Float[Array, "n"], a, b):
        return body(x, a) * b

    for a, b in ((1.0, 0.5), (2.0, 0.5), (2.0, 0.25), (1.0, 0.125)):
        np.testing.assert_allclose(f(X, a, b), body(X, a) * b, rtol=1e-6)
    assert f.stats.traces == 2
    (static,) = f.plan(X, 1.0, 0.5).static
    assert static.startswith("a = 1.0: ")
    assert "test_numbers.py:" in static


@pytest.mark.core
@pytest.mark.parametrize("first", ["short", "long"])
def test_what_is_held_hangs_on_shapes_and_not_on_the_order(first):
    """Each shape is asked for itself, whichever came before."""

    @optimize
    def f(x, a):
        if x.shape[0] > 4:
            return 2 * x if a > 0 else x
        return x * a

    shapes = (X, LONG) if first == "short" else (LONG, X)
    for a in (0.5, 0.25):
        for x in shapes:
            np.testing.assert_array_equal(f(x, a), 2 * x if len(x) > 4 else x * np.float32(a))
    # One program for the short, one for each value of the long.
    assert f.stats.traces == 3
    assert not f.plan(X, 0.5).static
    assert f.plan(LONG, 0.5).static


def test_what_is_held_hangs_on_no_value():
    """A value that would take the other branch makes no difference to which numbers are held."""

    def body(x, n, a):
        return x * a if n > 1 else (x if a > 0 else -x)

    first, second = optimize(body), optimize(lambda x, n, a: body(x, n, a))
    for n, a in ((2.0, 0.5), (1.0, 0.5), (2.0, 0.25), (1.0, 0.25)):
        np.testing.assert_array_equal(first(X, n, a), body(X, n, np.float32(a)))
    for n, a in ((1.0, 0.25), (2.0, 0.25), (1.0, 0.5), (2.0, 0.5)):
        np.testing.assert_array_equal(second(X, n, a), body(X, n, np.float32(a)))
    assert first.stats.traces == second.stats.traces == 3


def test_a_number_and_an_array_at_one_place_are_two_programs():
    """Where the body needs a number, an array is an error, whichever came first; and an array is
    differentiated, where a number is not.
    """

    @optimize
    def f(x, p):
        return jnp.sum(x) * p["a"] if p["a"] > 0 else jnp.sum(x)

    for _ in range(2):
        with pytest.raises(TraceError, match="depends on"):
            f(X, {"a": array(0.5)})
        np.testing.assert_allclose(f(X, {"a": 0.5}), 0.5 * X.sum())

    @optimize
    def g(x, a):
        return jnp.sum(x) * a

    for _ in range(2):
        assert set(g.grad(X, 0.5)) == {"x"}
        assert set(g.grad(X, array(0.5))) == {"x", "a"}


def test_an_error_of_the_body_is_raised_as_before():
    """No number is at fault, and the trace is not repeated for ever."""

    @optimize
    def f(x, a):
        if jnp.sum(x) > 0:
            return x * a
        return x

    for _ in range(2):
        with pytest.raises(TraceError, match="depends on 'x'"):
            f(X, 0.5)

    @optimize
    def g(x, a):
        raise KeyError(a)

    with pytest.raises(KeyError):
        g(X, 0.5)


ANNOTATED = {
    "float | array": float | Float[Array, ""],
    "float or Array": typing.Union[float, Array],  # noqa: UP007
    "array-like float": Float[ArrayLike, ""],
    "array-like": ArrayLike,
    "array-like of any": Shaped[ArrayLike, ""],
    "real": typing.Union[Float[ArrayLike, ""], Int[ArrayLike, ""]],  # noqa: UP007
    "optional": float | None,
}


@pytest.mark.core("float | array", "array-like float")
@pytest.mark.parametrize("hint", ANNOTATED)
def test_annotations_that_take_arrays_trace_numbers(hint):
    """Of either kind: a float, and an int where the annotation takes one."""

    def body(x, a):
        return x * a

    body.__annotations__ = {"a": ANNOTATED[hint]}
    f = optimize(body)
    for number in (0.5, 2.0, np.float32(3.0)):
        equal(f(X, number), jax.jit(lambda x, a: x * a)(X, number))
    assert f.stats.traces <= 2
    whole = optimize(body)
    for number in (1, 2, 3):
        np.testing.assert_array_equal(whole(X, number), X * number)
    assert whole.stats.traces - f.stats.traces <= 1


def test_an_array_like_number_that_is_a_size_is_held():
    """It was static before, and code that counts on it runs on."""

    @optimize
    def f(x, n: ArrayLike):
        return jnp.zeros(n) + x[0]

    assert f(X, 3).shape == (3,)
    assert f(X, 4).shape == (4,)


def test_a_float_by_annotation_is_never_held():
    """The author has said that it is traced: the error says what to declare."""

    @optimize
    def f(x, a: float):
        return x if a > 0 else -x

    with pytest.raises(TraceError, match="depends on 'a'"):
        f(X, 0.5)


def test_what_static_names_is_static():
    """A float among it, as ever."""

    @optimize(static="a")
    def f(x, a):
        return x if a > 0 else -x

    f(X, 0.5), f(X, 0.25)
    assert f.stats.traces == 2
    assert f.plan(X, 0.5).static == ("a = 0.5",)


@pytest.mark.core
def test_derivatives_are_with_respect_to_arrays():
    """A number is not differentiated unless it is named."""

    @optimize
    def f(x, p, a):
        return jnp.sum(x**2) * a * p["scale"]

    got = f.grad(X, {"scale": 2.0}, 0.5)
    np.testing.assert_allclose(got["x"] if isinstance(got, dict) else got, 2 * X, rtol=1e-6)
    np.testing.assert_allclose(f.grad(X, {"scale": 2.0}, 0.5, wrt="a"), 2 * np.sum(X**2), rtol=1e-6)
    with pytest.raises(DerivativeError, match="'p'"):
        f.grad(X, {"scale": 2.0}, 0.5, wrt="p")


def test_numbers_of_a_donated_or_mapped_tree():
    """No buffer, and the same for each element."""

    def body(s):
        return {"w": s["w"] * s["rate"], "rate": s["rate"]}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = optimize(donate="s")(body)({"w": jnp.asarray(X), "rate": 0.5})
    equal(got, jax.jit(body)({"w": X, "rate": 0.5}))
    mapped = optimize(vmap={"b": {"s": 0}})(body)({"w": np.stack([X, X]), "rate": 0.5})
    np.testing.assert_array_equal(mapped["w"], 0.5 * np.stack([X, X]))


def test_what_is_compiled_ahead_serves_other_values():
    """`lower`, `trace`, `eval_shape` and `compile` ask about numbers too."""

    @optimize
    def f(x, a, order=2.0):
        return x * a if order > 1 else x

    f.compile(X, 0.5)
    assert f.stats.traces == 1
    np.testing.assert_array_equal(f(X, 0.25), X * 0.25)
    assert f.stats.traces == 1
    np.testing.assert_array_equal(f.lower(X, 0.5).compile()(X, 4.0), X * 4)
    assert f.eval_shape(X, 0.5).shape == X.shape


def test_the_third_value_of_a_static_number_is_a_warning():
    """By its path, once, with what to write."""

    @optimize
    def power(x, n):
        return x**n

    power(X, 1), power(X, 2)
    with pytest.warns(RetraceWarning, match=r"(?s)'n' takes its 3rd value.*Int\[ArrayLike"):
        power(X, 3)
    power(X, 4)

    @optimize
    def apply(layer, x):
        return layer.rate * x

    @optimize
    def declared(x, n: int):
        return x**n

    for n in range(4):
        declared(X, n)

    apply(Layer(array([1.0]), 0.5), X), apply(Layer(array([1.0]), 0.25), X)
    with pytest.warns(RetraceWarning, match=r"(?s)'layer.rate' takes its 3rd.*jnp.asarray"):
        apply(Layer(array([1.0]), 0.125), X)


def test_threads_hold_the_same_numbers():
    """Several first calls at once, of both shapes."""

    @optimize
    def f(x, a, b):
        return x * b if a > 1 else -x * b

    got = {}

    def call(i):
        x, a, b = (X, LONG)[i // 2 % 2], 1.0 + i % 2, 0.5 * i
        got[i] = np.asarray(f(x, a, b)), np.asarray(x * b if a > 1 else -x * b, np.float32)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 12
    for mine, theirs in got.values():
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.core("short")
@pytest.mark.parametrize("first", ["short", "long"])
def test_shapes_that_need_different_numbers_hold_their_own(first):
    """Whichever came before; each plan names what its shape needs."""

    @optimize
    def f(x, a, b):
        if x.shape[0] > 4:
            return x * a if b > 0 else -x * a
        return x * b if a > 0 else -x * b

    for a, b in ((0.5, 0.25), (0.125, 0.25), (0.125, 0.5)):
        for x in (X, LONG) if first == "short" else (LONG, X):
            np.testing.assert_array_equal(f(x, a, b), x * np.float32(a if len(x) > 4 else b))
    assert [line[0] for line in f.plan(X, 0.5, 0.5).static] == ["a"]
    assert [line[0] for line in f.plan(LONG, 0.5, 0.5).static] == ["b"]
    assert f.stats.traces == 4


def _refused_by_callback(x, a):
    def checked(value):
        if value > 1:
            raise ValueError("too large")
        return value

    return x * jax.pure_callback(checked, jax.ShapeDtypeStruct((), np.float32), a)


LATE = {
    "callback": (_refused_by_callback, {}),
    "nan": (lambda x, a: jnp.log(x - a), {"debug_nans": True}),
    "check": (lambda x, a: eqx.error_if(x * a, a > 1, "too large"), {}),
}


@pytest.mark.core("nan")
@pytest.mark.parametrize("what", LATE)
@pytest.mark.filterwarnings("ignore::jitney.errors.PrecisionWarning")
def test_an_error_of_a_run_holds_no_number(what):
    """Its trace came to an end: the number stays data, and the call is not run twice."""
    body, options = LATE[what]
    f = optimize(**options)(body)
    with pytest.raises(Exception, match=r"too large|NaN"):
        jax.block_until_ready(f(X, 5.0))
    for a in (0.5, 0.25):
        f(X, a)
    assert (f.stats.traces, f.plan(X, 0.5).static) == (1, ())


def test_an_error_of_the_first_trace_alone_is_raised():
    """No number is at fault if the same trace can be made after it."""
    ready = []

    @optimize
    def f(x, a):
        if not ready:
            ready.append(True)
            raise RuntimeError("not ready")
        return x * a

    with pytest.raises(RuntimeError, match="not ready"):
        f(X, 0.5)
    f(X, 0.5)
    assert f.plan(X, 0.5).static == ()


def test_past_the_limit_of_compiles_no_number_is_held():
    """The error is about the limit."""
    f = optimize(max_compiles="raise:1")(lambda x, a: x * a)
    f(X, 0.5)
    with pytest.raises(Exception, match="max_compiles"):
        f(LONG, 0.5)
    assert f.plan(LONG, 0.5).static == ()


@pytest.mark.core("call", "lower")
@pytest.mark.parametrize("ask", ["call", "lower", "plan"])
def test_a_policy_by_values_comes_with_held_numbers(ask):
    """It is chosen for the program that holds them, and errors of its trace are explained."""

    @optimize(precision="auto:1e-2")
    def f(x, a, b):
        return x @ x * a if b > 0 else x @ x

    if ask != "call":
        getattr(f, ask)(X, 0.5, 0.5)
    for a in (0.5, 0.25):
        np.testing.assert_allclose(f(X, a, 0.5), X @ X * a, rtol=1e-2)
    assert f.stats.traces == 1
    (static,) = f.plan(X, 0.5, 0.5).static
    assert static.startswith("b = 0.5: needed as a number at ")

    g = optimize(precision="auto:1e-2")(lambda x, a: x @ x * a if jnp.sum(x) > 0 else x @ x)
    with pytest.raises(TraceError, match="depends on 'x'"):
        g(X, 0.5)


def test_a_loaded_program_takes_other_numbers(tmp_path):
    """Of those that it traces; a held one is part of the program."""

    @optimize
    def f(x, p, a, order=2.0):
        return x * p["scale"] * a if order > 1 else x

    f.export(tmp_path / "f", X, {"scale": 0.5}, 1.0)
    loaded = load(tmp_path / "f")
    for scale, a in ((0.5, 1.0), (0.25, 3.0)):
        np.testing.assert_array_equal(loaded(X, {"scale": scale}, a), X * scale * a)
    for wrong in ((3, 2.0), (True, 2.0), (0.5, 3.0)):
        with pytest.raises(ContractError):
            loaded(X, {"scale": 0.5}, *wrong)


def test_of_unnamed_numbers_those_are_held_that_the_body_needs():
    """The error of a check of types names none; the others stay data."""

    @optimize
    def f(x, *rates):
        for rate in (rates[1], rates[4]):
            assert isinstance(rate, float)
        return x * sum(rates)

    rates = [0.5] * 6
    for last in (0.5, 0.25):
        np.testing.assert_array_equal(f(X, *rates, last), X * (3 + last))
    assert f.stats.traces == 1
    assert [line[:8] for line in f.plan(X, *rates, 0.5).static] == ["rates[1]", "rates[4]"]


@pytest.mark.core("grad")
@pytest.mark.parametrize("what", ["grad", "jacobian", "hessian"])
def test_a_derivative_by_a_number_holds_others(what):
    """What it is with respect to is never held."""

    def body(x, a, order):
        return jnp.sum(x) * a**2 if order > 1 else jnp.sum(x)

    got = getattr(optimize(body), what)(X, 3.0, 2.0, wrt="a")
    want = jax.hessian if what == "hessian" else jax.grad
    np.testing.assert_allclose(got, want(body, 1)(X, 3.0, 2.0), rtol=1e-6)


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
def test_each_value_of_a_typed_dict_goes_by_its_own_annotation(cls):
    """JAX sorts the keys of a dict, and not those of an OrderedDict."""

    @optimize
    def f(x, p: Chosen):
        return x * p["a"] if p["order"] > 1 else x

    for a in (0.5, 0.25):
        np.testing.assert_array_equal(f(X, cls([("order", 2), ("a", a)])), X * a)
    assert f.stats.traces == 1


@pytest.mark.parametrize("number", [2**40, -(2**31) - 1])
def test_a_whole_number_beyond_32_bits_is_named(number):
    """As one of a NumPy array is; with 64 bits it is data."""
    f = optimize(lambda s: s.weights * s.step)
    with pytest.raises(ContractError, match=rf"'s.step' .* holds {number}, which int32 does not"):
        f(State(X, number))
    with jax.enable_x64(True):
        np.testing.assert_allclose(f(State(X, number)), X * number, rtol=1e-6)
