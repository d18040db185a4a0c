"""`optimize` in the place of `eqx.filter_jit`: on functions without annotations, the same results;
and the differences that remain.
"""

import functools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import Program, no_compiles, optimize
from jitney.errors import ContractError, OptionError, StaticError, TraceError
from tests._arrays import array, filled, random_key, weak
from tests._monitor import listening
from tests._tracing import count_traces

Point = namedtuple("Point", ["x", "y"])
N = np.linspace(0.0, 1.0, 4, dtype=np.float32)
X = array(N)
I = array(np.arange(6).reshape(2, 3))
KEY = random_key(0)
MLP = filled(lambda: eqx.nn.MLP(4, 2, 3, 1, key=KEY))


class Counter(eqx.Module):
    """A module with everything that a module may hold."""

    weight: Array
    host: np.ndarray
    number: float
    act: Callable[..., Any]
    name: str = eqx.field(static=True)
    nothing: None = None

    def __call__(self, x):
        return self.act(self.weight * x) * self.number + self.host


def counter():
    return Counter(X, np.full(4, 2.0, np.float32), 3.0, jnp.sin, "counter")


def partial_of_module(x):
    return eqx.tree_at(lambda m: m.weight, counter(), x)


def custom_derivative():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(primals[0]), 2 * tangents[0]))
    return f


def control_flow(x, n):
    y = jax.lax.fori_loop(0, 3, lambda i, y: y * 2, x)
    z, ys = jax.lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(()), x)
    return jax.lax.cond(x.sum() > 0, lambda: y, lambda: -y), z, ys, [n] * n


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "an array": (lambda x: x + 1, (X,), {}),
    "a keyword": (lambda x, *, by: x * by, (X,), {"by": X}),
    "a default array": (lambda x, y=X: x + y, (X,), {}),
    "a default number": (lambda x, k=2: x * k, (X,), {}),
    "*args and **kwargs": (lambda *a, **k: (sum(a), k), (X, X), {"z": X, "kind": "text"}),
    "no arguments": (lambda: jnp.arange(3), (), {}),
    "no arrays": (lambda n, s: (n + 1, s * 2), (3, "ab"), {}),
    "None": (lambda x: None, (X,), {}),
    "a NumPy array": (lambda x: x * 2, (np.arange(3.0),), {}),
    "a NumPy array out": (lambda x: (np.arange(3), x), (X,), {}),
    "a NumPy scalar": (lambda x: x * 2, (np.float32(2),), {}),
    "float64 from the host": (lambda x: x, (np.array([1.0, 2.0]),), {}),
    "int64 from the host": (lambda x: x, (np.array([1, 2]),), {}),
    "a Python int": (lambda k: (k, jnp.full(k, k)), (3,), {}),
    "a Python float": (lambda k: k * jnp.ones(2), (3.5,), {}),
    "a Python bool": (lambda k: jnp.ones(2) if k else jnp.zeros(2), (True,), {}),
    "a Python complex": (lambda k: k * jnp.ones(2, jnp.complex64), (1 + 2j,), {}),
    "weak type in": (lambda x: x * 2, (weak(2.0),), {}),
    "weak type out": (lambda x: jnp.asarray(3) + 1, (X,), {}),
    "strong scalar": (lambda x: x * 2, (array(2.0),), {}),
    "int32": (lambda x: x // 2, (I,), {}),
    "uint8 overflow": (lambda x: x + jnp.uint8(200), (array(np.arange(100), np.uint8),), {}),
    "bool": (lambda x: ~x, (array([True, False]),), {}),
    "bfloat16": (lambda x: x * x, (array(N, jnp.bfloat16),), {}),
    "float16": (lambda x: x * x, (array(N, np.float16),), {}),
    "complex64": (lambda x: x.conj(), (array(N * 1j, np.complex64),), {}),
    "zero-size": (lambda x: (x.sum(), x * 2), (array(np.zeros((0, 3))),), {}),
    "NaN and infinity": (lambda x: (x / x, -x), (array([0.0, np.inf, np.nan]),), {}),
    "a new-style key": (lambda k: jax.random.normal(k, (3,)), (KEY,), {}),
    "keys in and out": (lambda k: jax.random.split(k), (KEY,), {}),
    "an old-style key": (lambda k: jax.random.split(k), (array([0, 1], np.uint32),), {}),
    "a dict": (lambda d: {**d, "c": d["a"]}, ({"b": X, "a": 1},), {}),
    "an ordered dict": (lambda d: d, (OrderedDict(z=X, a=X),), {}),
    "a list": (lambda x: [*x, x[0]], ([X, 2, "s"],), {}),
    "a named tuple": (lambda p: Point(p.y, p.x), (Point(X, 1),), {}),
    "empty containers": (lambda a, b, c: (a, b, c, [], {}, ()), ((), [], {}), {}),
    "nested containers": (
        lambda t: {"out": [t, (t["a"][0],)]},
        ({"a": [X, {"b": (X, None)}]},),
        {},
    ),
    "a function in and out": (lambda f, x: (f, f(x)), (jnp.cos, X), {}),
    "a lambda out": (lambda x: functools.partial, (X,), {}),
    "a string out": (lambda x: ("text", x, b"bytes", 3, 2.5, None), (X,), {}),
    "a shape out": (lambda x: x.shape, (I,), {}),
    "a dtype": (lambda x, dtype: (x.astype(dtype), dtype), (X, jnp.int32), {}),
    "a type out": (lambda x: int, (X,), {}),
    "the argument itself": (lambda x: (x, x), (X,), {}),
    "an argument that is not used": (lambda x, y: y, (X, I), {}),
    "a module": (lambda m, x: m(x), (counter(), X), {}),
    "a module out": (partial_of_module, (X,), {}),
    "a network": (lambda m, x: m(x), (MLP, X), {}),
    "gradients of a network": (eqx.filter_grad(lambda m, x: jnp.sum(m(x) ** 2)), (MLP, X), {}),
    "filter_value_and_grad": (
        eqx.filter_value_and_grad(lambda m, x: jnp.sum(m(x) ** 2)),
        (MLP, X),
        {},
    ),
    "filter_vmap": (eqx.filter_vmap(MLP), (array([N, N]),), {}),
    "filter_jvp": (lambda x: eqx.filter_jvp(jnp.sin, (x,), (x,)), (X,), {}),
    "an eqx.Partial": (lambda p, x: p(x), (eqx.Partial(jnp.multiply, X), X), {}),
    "jacfwd": (jax.jacfwd(lambda x: x**2), (X,), {}),
    "jacrev": (jax.jacrev(lambda x: x**2), (X,), {}),
    "hessian": (jax.hessian(lambda x: jnp.sum(x**3)), (X,), {}),
    "a custom derivative": (jax.grad(lambda x: custom_derivative()(x).sum()), (X,), {}),
    "checkpoint": (jax.grad(jax.checkpoint(lambda x: jnp.sin(x).sum())), (X,), {}),
    "control flow": (control_flow, (X, 2), {}),
    "an inner filter_jit": (eqx.filter_jit(lambda x, k: (x * k, k)), (X, 2), {}),
    "an inner jit": (jax.jit(lambda x: x * 2), (X,), {}),
    "an inner program": (optimize(lambda x, k: (x * k, k)), (X, 2), {}),
    "a shape-dtype struct out": (lambda x: jax.eval_shape(jnp.sin, x), (X,), {}),
    "associative scan": (lambda x: jax.lax.associative_scan(jnp.add, x), (X,), {}),
    "linear algebra": (lambda x: jnp.linalg.svd(x.astype(jnp.float32)), (I,), {}),
    "a while loop of Equinox": (
        lambda x: eqx.internal.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x), kind="lax"
        ),
        (X,),
        {},
    ),
    "a passing error_if": (lambda x: eqx.error_if(x, jnp.any(x < 0), "negative"), (X,), {}),
    "stop_gradient": (jax.grad(lambda x: jnp.sum(jax.lax.stop_gradient(x) * x)), (X,), {}),
    "filter_eval_shape": (lambda x: eqx.filter_eval_shape(lambda y: (y * 2, "s"), x), (X,), {}),
    "filter_closure_convert": (
        lambda x: eqx.filter_closure_convert(lambda y: y + x, x)(x),
        (X,),
        {},
    ),
    "a pure callback": (
        lambda x: eqx.filter_pure_callback(lambda y: np.asarray(y) * 2, x, result_shape_dtypes=x),
        (X,),
        {},
    ),
    "a mutable default": (lambda x, extra={"k": 1}: (x, extra), (X,), {}),
}


def described(leaf):
    """What two results must have in common, besides values."""
    if isinstance(leaf, jax.Array):
        return type(leaf), leaf.shape, leaf.dtype, getattr(leaf, "weak_type", None), leaf.committed
    return type(leaf), getattr(leaf, "shape", None), getattr(leaf, "dtype", None)


def alike(got, want):
    assert described(got) == described(want)
    if isinstance(want, jax.Array) and jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
        got, want = jax.random.key_data(got), jax.random.key_data(want)
    if isinstance(want, (jax.Array, np.ndarray, np.generic)):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    else:
        assert got is want or got == want


# Equinox asks jax 0.10.0 for it
OLDEST_FILTER_JVP = pytest.mark.filterwarnings("ignore:jax.core.find_top_trace is deprecated")


@pytest.mark.core(
    "gradients of a network",
    "keys in and out",
    "a keyword",
    "NaN and infinity",
    "an inner program",
    "a passing error_if",
    "bfloat16",
    "weak type in",
    "a module out",
    "a Python float",
    "a function in and out",
    "nested containers",
    "a named tuple",
    "None",
)
@OLDEST_FILTER_JVP
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_filter_jit(case):
    """Structure, types, dtypes, weak types and values, on the first call and on a warm one."""
    fn, args, kwargs = CASES[case]
    ours, theirs = optimize(fn), eqx.filter_jit(fn)
    for _ in range(2):
        got, want = ours(*args, **kwargs), theirs(*args, **kwargs)
        assert jax.tree.structure(got) == jax.tree.structure(want)
        jax.tree.map(alike, got, want)


@pytest.mark.core(
    "a keyword",
    "a default number",
    "*args and **kwargs",
    "a Python int",
    "weak type in",
    "a dict",
    "a named tuple",
    "a lambda out",
    "a module",
    "gradients of a network",
    "an eqx.Partial",
    "a mutable default",
)
@OLDEST_FILTER_JVP
@pytest.mark.parametrize("case", CASES)
def test_the_same_arguments_need_one_trace(case):
    """Arguments made anew, as a loop makes them, are found again: what is static compares equal."""
    fn, args, kwargs = CASES[case]
    f = optimize(lambda *a, **k: fn(*a, **k)) if isinstance(fn, Program) else optimize(fn)
    f(*args, **kwargs)
    traces = f.stats.traces  # of programs of the same function in other tests, too
    for _ in range(2):
        f(*jax.tree.map(lambda leaf: leaf, args), **dict(kwargs))
    assert f.stats.traces == traces


TRACES = {
    "another value of an array": ((X,), (array(N + 1),)),
    "NumPy for JAX": ((X,), (np.asarray(X),)),
    "another shape": ((X,), (array(N[1:]),)),
    "another dtype": ((X,), (array(N, np.int32),)),
    "weak type": ((array(2.0),), (weak(2.0),)),
    "another number": ((2,), (3,)),
    "another container": (([X],), ((X,),)),
    "None for an array": ((X,), (None,)),
    "another string": (("a",), ("b",)),
    "another function": ((jnp.sin,), (jnp.cos,)),
    "an array for a number": ((2,), (weak(2),)),
    "the same network made again": (
        (MLP,),
        (filled(lambda: eqx.nn.MLP(4, 2, 3, 1, key=KEY), seed=1),),
    ),
    "another depth": ((MLP,), (filled(lambda: eqx.nn.MLP(4, 2, 3, 2, key=KEY)),)),
}


@pytest.mark.core(
    "another value of an array",
    "another shape",
    "weak type",
    "another container",
    "another string",
    "an array for a number",
    "another depth",
)
@pytest.mark.parametrize("case", TRACES)
def test_what_needs_another_trace_is_as_in_filter_jit(case):
    """The same pairs of calls share a trace, and the same do not."""
    counts = []
    for decorator in (optimize, eqx.filter_jit):
        body = count_traces(lambda *args: jax.tree.map(lambda leaf: leaf, args))
        f = decorator(body)
        for args in TRACES[case]:
            f(*args)
        counts.append(body.traces)
    assert counts[0] == counts[1]


def test_debug_counts_traces_and_looks_at_gradients(capfd):
    """`eqx.debug.assert_max_traces` and `eqx.debug.backward_nan`, as under `filter_jit`."""

    @optimize
    @eqx.debug.assert_max_traces(max_traces=1)
    def f(x):
        return jax.grad(
            lambda x: jnp.sum(jnp.sqrt(eqx.debug.backward_nan(x, name="here", terminate=False)))
        )(x)

    jax.block_until_ready(f(X))
    jax.effects_barrier()
    assert "here" in capfd.readouterr().out
    f(X)
    with pytest.raises(RuntimeError, match="1 times"):
        f(X[1:])


def test_debug_shows_what_is_never_used(capsys):
    """`eqx.debug.store_dce` inside a program, `inspect_dce` after it."""

    @optimize
    def f(x):
        kept, _ = eqx.debug.store_dce((x, x * 2), name="here")
        return kept

    f(X)
    eqx.debug.inspect_dce(name="here")
    assert "<DCE'd>" in capsys.readouterr().out


def test_debug_announce_and_print(capfd):
    """Printing from inside a program."""

    @optimize
    def f(x):
        jax.debug.print("value {}", x[1] * 3)
        return eqx.debug.announce_transform(x, name="here")

    jax.block_until_ready(f(X))
    jax.effects_barrier()
    out = capfd.readouterr().out
    assert "value 1.0" in out
    assert "here" in out


def test_branched_errors():
    """Of several messages, the one that applies."""

    @optimize
    def f(x, which):
        return eqx.branched_error_if(x, jnp.any(x > 0), which, ["zero", "one"])

    np.testing.assert_array_equal(f(-X, jnp.asarray(0)), -np.asarray(X))
    for which, text in enumerate(["zero", "one"]):
        with pytest.raises(eqx.EquinoxRuntimeError, match=text):
            f(X, jnp.asarray(which))


@pytest.mark.core("checkpoint")
@pytest.mark.parametrize(
    "outer", [jax.jit, jax.vmap, lambda f: jax.checkpoint(f)], ids=["jit", "vmap", "checkpoint"]
)
def test_errors_of_a_check_below_an_outer_transformation(outer):
    """A program around another that maps or jits it raises Equinox's error."""
    inner = optimize(lambda x: eqx.error_if(x, x < 0, "must not be negative"))
    f = (
        optimize(lambda x: outer(inner)(x) + 1)
        if outer is jax.vmap
        else optimize(lambda x: outer(inner)(x[0]) + 1)
    )
    f(X + 1)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(-X - 1)


@pytest.mark.rest
def test_shared_layers_and_state():
    """`eqx.nn.Shared` and stateful layers."""
    linear = eqx.nn.Linear(3, 3, key=KEY)
    shared = eqx.nn.Shared((linear, linear), where=lambda pair: pair[1], get=lambda pair: pair[0])

    def both(shared, x):
        first, second = shared()
        return second(first(x))

    np.testing.assert_allclose(
        optimize(both)(shared, jnp.ones(3)), linear(linear(jnp.ones(3))), rtol=1e-5
    )
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="batch")

    def apply(norm, state, x):
        return jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    x = jax.random.normal(KEY, (5, 3))
    got, _ = optimize(apply)(norm, state, x)
    np.testing.assert_allclose(got.mean(0), np.zeros(3), atol=1e-6)


# The differences, one test for each on the page docs/moving.md.


def test_donation_is_by_name():
    """`donate="all"` is the name of a parameter that is not there."""
    with pytest.raises(OptionError, match="`donate` names 'all', which is not a parameter"):
        optimize(donate="all")(lambda x, y: x + y)
    x, y = jnp.ones(4), jnp.ones(4)
    optimize(donate="x")(lambda x, y: x + y)(x, y)
    assert x.is_deleted()
    assert not y.is_deleted()


def test_the_warning_about_buffers_without_use_is_shown():
    """`filter_jit(donate="all")` hides it; the plan says which argument it is about."""
    f = optimize(donate="x")(lambda x, y: x.sum() + y)
    with pytest.warns(UserWarning, match="Some donated buffers were not usable"):
        f(jnp.ones(4), jnp.ones(()))
    assert "the buffer of 'x' is donated but not reused" in " ".join(
        str(f.plan(jnp.ones(4), jnp.ones(()))).split()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eqx.filter_jit(lambda x, y: x.sum() + y, donate="all")(jnp.ones(4), jnp.ones(()))


def test_annotations_count():
    """A number annotated `float` is traced; an array for `int` is an error that names what to
    write.
    """

    def power(x, exponent: float):
        return x**exponent

    for decorator, expected in ((optimize, 1), (eqx.filter_jit, 2)):
        body = count_traces(power)
        f = decorator(body)
        f(X, 2.0)
        f(X, 3.0)
        assert body.traces == expected

    def times(x, k: int):
        return x * k

    with pytest.raises(ContractError, match=r'Int\[Array, ""\]'):
        optimize(times)(X, jnp.asarray(2))
    np.testing.assert_array_equal(eqx.filter_jit(times)(I, jnp.asarray(2)), 2 * np.asarray(I))


def test_check_false_still_lets_annotations_decide_what_is_static():
    """It turns the checks off, not the meaning."""

    def times(x, k: float):
        return x * k

    body = count_traces(times)
    f = optimize(body, contracts=False)
    f(X, 2.0)
    f(X, 3.0)
    assert body.traces == 1


def test_programs_wait_for_no_marker(monkeypatch):
    """Equinox waits for one on each call; a program does not, and one that holds a check waits for
    the number of what failed alone.
    """
    waits = []
    waiting = type(X).block_until_ready
    monkeypatch.setattr(
        type(X), "block_until_ready", lambda self: waits.append(self.shape) or waiting(self)
    )
    calls = {
        "filter_jit": eqx.filter_jit(lambda x: x + 1),
        "plain": optimize(lambda x: x + 1),
        "checked": optimize(lambda x: eqx.error_if(x, jnp.any(x < 0), "negative")),
    }
    waited = {}
    for name, f in calls.items():
        f(X)
        waits.clear()
        f(X)
        waited[name] = waits.copy()
    assert len(waited["filter_jit"]) == 1
    assert (waited["plain"], waited["checked"]) == ([], [()])


def test_a_tracer_where_a_value_is_needed():
    """Named by argument and line; a `TypeError`, with JAX's own error as its cause."""
    f = optimize(lambda x, flag: x if flag else -x)
    with pytest.raises(TraceError, match=r"'flag'") as caught:
        f(X, jnp.asarray(True))
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value.__cause__, jax.errors.TracerBoolConversionError)
    assert "test_filter_jit.py" in str(caught.value)


def test_unhashable_static_values():
    """Keyed by their parts, where `filter_jit` says that they cannot be hashed; what has no parts
    is a `StaticError`.
    """

    class Opaque:
        __hash__ = None

    f = lambda x, s: (x, len(s)) if isinstance(s, set) else x
    assert optimize(f)(X, {1, 2})[1] == 2
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        eqx.filter_jit(f)(X, {1, 2})
    with pytest.raises(StaticError):
        optimize(f)(X, Opaque())


@pytest.mark.filterwarnings("ignore:.*updates its arguments in place:jitney.JitneyWarning")
def test_static_values_are_copied():
    """What the caller or the body changes later changes no compiled program."""

    def body(x, options):
        options.add(4)
        return x * len(options)

    options = {1, 2}
    f = optimize(body)
    for _ in range(2):
        np.testing.assert_array_equal(f(X, options), 3 * np.asarray(X))
    assert options == {1, 2}
    options.add(3)
    np.testing.assert_array_equal(f(X, options), 4 * np.asarray(X))
    assert f.stats.traces == 2


def test_a_bound_method_is_a_program():
    """With all that a program has; under `filter_jit` it is an `eqx.Partial`."""

    class Line(eqx.Module):
        slope: Float[Array, ""]

        @optimize
        def ours(self, t):
            return self.slope * t

        @eqx.filter_jit
        def theirs(self, t):
            return self.slope * t

    line = Line(jnp.asarray(2.0))
    assert isinstance(line.ours, Program)
    assert type(line.theirs) is not Program
    assert line.ours.compile(X).stats.compiles + line.ours.stats.persistent_hits == 1
    assert jax.tree.leaves(line.ours) == [line.slope]


def test_equal_functions_share_programs():
    """Decorated twice, traced once, and counted together."""
    body = count_traces(lambda x: x * 2)
    one, two = optimize(body), optimize(body)
    one(X)
    two(X)
    assert body.traces == 1
    assert one.stats == two.stats


def test_the_persistent_cache_is_on():
    """Each program asks it."""
    optimize(lambda x: x)(X)
    if not jax.config.jax_compilation_cache_dir:
        pytest.skip("no persistent cache here")
    with listening() as events:
        optimize(lambda x: jnp.cosh(x) * 5)(X)
    assert events.count("persistent hit") + events.count("persistent miss") == 1


@pytest.mark.core("{}", "{'pad': {'n': [16]}}")
@pytest.mark.parametrize(
    "options",
    [{}, {"pad": {"n": [16]}}, {"precision": "f64"}, {"compiler": "fast"}, {"donate": "x"}],
    ids=str,
)
def test_after_compile_a_function_with_checks_compiles_nothing(options):
    """Nor is it traced again; its first call raises."""

    @optimize(cache=False, **options)
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return eqx.error_if(jnp.tanh(x) * 7, jnp.any(x < 0), "negative")

    bad, good = -X, X + 0
    f.compile(sizes={"n": X.size})
    with no_compiles():
        with pytest.raises(eqx.EquinoxRuntimeError, match="negative"):
            f(bad)
        f(good)
    assert (f.stats.traces, f.stats.compiles) == (1, 1)
