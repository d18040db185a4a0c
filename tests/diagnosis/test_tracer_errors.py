"""JAX's errors about traced values, in the words of the one who wrote the function."""

import inspect
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize
from jitney._diagnosis.tracer_errors import low_product_error
from jitney._errors import Where
from jitney.errors import ContractError, TraceError
from tests._arrays import array

X = array(np.linspace(-1, 1, 4, dtype=np.float32))


def place(fn, text):
    """`file:line (`code`)` of the line of a function that has `text`."""
    lines, first = inspect.getsourcelines(fn)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"test_tracer_errors.py:{first + offset} (`{lines[offset].strip()}`)"


def branch(x, threshold):
    y = 2 * x
    if y[0] > threshold:
        return y
    return -y


def refusal(fn, *args, **options):
    with pytest.raises(TraceError) as caught:
        optimize(**options)(fn)(*args)
    return str(caught.value)


def test_names_function_line_code_and_arguments():
    """The condition depends on both."""
    first = refusal(branch, X, jnp.float32(0)).splitlines()[0]
    assert (
        first == f"branch() at test_tracer_errors.py:{inspect.getsourcelines(branch)[1]}:"
        f" {place(branch, 'if y')} needs a concrete value, which depends on 'x' and 'threshold'."
    )


def test_names_only_the_argument_that_matters():
    """The threshold is static here."""
    text = refusal(branch, X, 0.5)
    assert "which depends on 'x'." in text
    assert "static=" not in text  # of many elements: what is computed from them is data


class Model(eqx.Module):
    rates: list[Array]

    def __call__(self, x):
        return x if bool(self.rates[1] > 0) else -x


def test_names_the_path_in_a_module():
    """The second of its rates; `static` would be the whole argument, so the number alone is
    named.
    """
    text = refusal(lambda model, x: model(x), Model([jnp.float32(1), jnp.float32(2)]), X)
    assert "which depends on 'model.rates[1]'." in text
    assert "if 'model.rates[1]' takes few values, pass a Python number there" in text
    assert place(Model.__call__, "bool(") in text


@pytest.mark.parametrize(
    ("fn", "code"),
    [
        (lambda x, n: jnp.zeros(int(n)) + x, "int(n)"),
        (lambda x, n: [x for _ in range(n)], "range(n)"),
        (lambda x, n: x * np.sin(n), "np.sin(n)"),
        (lambda x, n: x[x > 0], "x[x > 0]"),
        (lambda x, n: x[: float(n)], "float(n)"),
        (lambda x, n: jnp.arange(n), "jnp.arange(n)"),
        (lambda x, n: jnp.zeros(n), "jnp.zeros(n)"),
        (lambda x, n: x.reshape(n, -1), "x.reshape(n, -1)"),
        (lambda x, n: jax.random.normal(jax.random.key(0), (n,)), "jax.random.normal("),
        (lambda x, n: np.zeros(n), "np.zeros(n)"),
        (lambda x, n: jnp.tile(x, n), "jnp.tile(x, n)"),
        (lambda x, n: x[:n], "x[:n]"),
        (lambda x, n: x.at[n:].set(0.0), "x.at[n:]"),
        (lambda x, n: jnp.vander(x, n), "jnp.vander(x, n)"),
        (lambda x, n: {1: x, 2: -x}[n], "[n]"),
        (lambda x, n: f"{n:.2f}", ":.2f"),
        (lambda x, n: x[jnp.arange(4) < n], "jnp.arange(4) < n"),
        (lambda x, n: jnp.where(jnp.arange(4) < n), "jnp.where("),
    ],
)
def test_every_kind_of_concrete_value(fn, code):
    """Conversion, loop, NumPy, mask, float, shape, slice, key: the line is named, the argument
    where one is to blame, and the fix.
    """
    first, *_, fix = refusal(fn, X, jnp.int32(2)).splitlines()
    assert code in first
    assert first.endswith(
        "which depends on 'x'." if code == "x[x > 0]" else "which depends on 'n'."
    )
    assert fix.startswith("Fix: ")


def test_a_mask_is_told_of_where_and_size():
    """The shape stays, or has a bound; no advice to hold the data static."""
    text = refusal(lambda x: x[x > 0].sum(), X)
    assert "jnp.where(mask, x, 0)" in text
    assert "size=10" in text
    assert "static" not in text
    assert "`size=`" in refusal(lambda x: jnp.nonzero(x > 0), X)


def test_the_traced_end_of_a_slice_is_named_alone():
    """What is cut, and an index beside it, are data as they should be."""
    assert "which depends on 'stop'." in refusal(
        lambda x, i, stop: x[i, :stop], X.reshape(2, 2), jnp.int32(0), jnp.int32(1)
    )


@pytest.mark.parametrize(
    "fn", [lambda x, n: jnp.zeros(n) + x[:n], lambda x, n: x[x > 0], lambda x, n: x.reshape(n, -1)]
)
def test_shapes_of_values_run_un_jitted_under_eager(fn):
    """With the numbers of the function itself."""
    with pytest.warns(JitneyWarning, match="un-jitted"):
        np.testing.assert_array_equal(
            optimize(on_trace_error="eager")(fn)(X, jnp.int32(2)), fn(X, jnp.int32(2))
        )


@pytest.mark.parametrize("how", ["compile", "lower"])
def test_a_shape_of_a_value_is_explained_ahead_of_time(how):
    """As it is in a call."""
    with pytest.raises(TraceError, match="which depends on 'n'"):
        getattr(optimize(lambda n: jnp.zeros(n)), how)(jnp.int32(2))


class RayTracer:
    """Of the user's, with a name like those of JAX."""

    __hash__ = None

    def __repr__(self):
        return "RayTracer(int)"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.zeros(2.5),
        lambda x: jnp.zeros(RayTracer()),
        lambda x: x[: RayTracer()],
        lambda x: {RayTracer(): x},
        lambda x: f"{RayTracer():.2f}",
        lambda x: x + "a",
        lambda x: x(3),
        lambda x: [*x[0]],
        lambda x: x.reshape(7),
        lambda x: x["a"],
        lambda x: jnp.zeros(np.zeros(RayTracer())),
    ],
)
def test_mistakes_that_no_value_would_mend_stay_the_users(fn):
    """What plain `jax.jit` raises, for both choices of `on_trace_error`."""
    with pytest.raises((TypeError, IndexError)) as plain:
        jax.jit(fn)(X)
    for choice in ("raise", "eager"):
        with pytest.raises(type(plain.value)) as caught:
            optimize(on_trace_error=choice)(fn)(X)
        assert not isinstance(caught.value, TraceError)
        assert str(caught.value) == str(plain.value)


def test_jax_own_error_is_the_cause():
    """Its details stay within reach."""
    with pytest.raises(TraceError) as caught:
        optimize(branch)(X, 0.5)
    assert isinstance(caught.value.__cause__, jax.errors.TracerBoolConversionError)


@pytest.mark.parametrize("how", ["compile", "lower"])
def test_ahead_of_time_the_error_is_the_same(how):
    """Nothing was called."""
    with pytest.raises(TraceError, match="which depends on 'x'"):
        getattr(optimize(branch), how)(X, 0.5)


def test_a_line_in_a_helper_is_the_innermost_of_the_users():
    """The helper asks, not its caller."""

    def helper(y):
        return bool(y.sum() > 0)

    def outer(x):
        return x if helper(x) else -x

    assert place(helper, "bool(") in refusal(outer, X)


def test_eager_gives_the_numbers_of_the_function_and_warns_once():
    """Both branches, counted."""
    f = optimize(on_trace_error="eager")(branch)
    with pytest.warns(JitneyWarning, match="which depends on 'x'") as caught:
        np.testing.assert_array_equal(f(X, 0.5), -2 * np.asarray(X))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "un-jitted" in str(caught[0].message)
    np.testing.assert_array_equal(f(-X, 0.5), -2 * np.asarray(X))
    np.testing.assert_array_equal(f(jnp.ones(3), 0.5), np.full(3, 2.0))
    assert (f.stats.calls, f.stats.eager, f.stats.hits, f.stats.traces) == (3, 3, 0, 1)


def test_eager_counts_beside_compiled_calls():
    """One static value can be traced, the other cannot."""

    @optimize(on_trace_error="eager")
    def f(x, concrete: bool):
        return (x if x[0] > 0 else -x) if concrete else x + 1

    with pytest.warns(JitneyWarning):
        f(X, True)
    for _ in range(3):
        f(X, False)
    assert (f.stats.calls, f.stats.eager, f.stats.hits) == (4, 1, 2)


def test_eager_passes_results_that_are_no_arrays():
    """The tree is the user's own."""
    f = optimize(on_trace_error="eager")(lambda x: (x, "up") if x[0] > 0 else ({"down": -x}, None))
    with pytest.warns(JitneyWarning):
        out, nothing = f(X)
    np.testing.assert_array_equal(out["down"], -np.asarray(X))
    assert nothing is None


def test_eager_keeps_the_other_stages():
    """The contract is checked and the precision holds; a call with the mapped axis traces all the
    same, and says so.
    """

    @optimize(on_trace_error="eager", vmap="batch", precision="f64")
    def f(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return (x + 2.0**24) - 2.0**24 if x.sum() > 0 else y

    with pytest.warns(JitneyWarning):
        np.testing.assert_array_equal(
            f(X + 2, X), np.asarray(np.asarray(X, np.float64) + 2 + 2.0**24 - 2.0**24, np.float32)
        )
    with pytest.raises(TypeError, match="axis 'n' has two sizes"):
        f(X, X[1:])
    with pytest.raises(TraceError, match="Un-jitted it fails too, because `vmap`"):
        f(jnp.ones((2, 4)), X)


def test_eager_under_grad():
    """Values are concrete there, so the branch is taken; inside an outer jit there is none to
    take.
    """
    f = optimize(on_trace_error="eager")(lambda x: (x**2).sum() if x.sum() > 0 else x.sum())
    with pytest.warns(JitneyWarning):
        np.testing.assert_allclose(jax.grad(f)(X + 2), 2 * (np.asarray(X) + 2), rtol=1e-6)
    with pytest.raises(TraceError, match="Un-jitted it fails too"):
        jax.jit(f)(X)


def test_what_can_be_traced_stays_compiled_under_eager():
    """The option is for those that cannot."""
    f = optimize(on_trace_error="eager")(lambda x: x + 1)
    f(X)
    f(X)
    assert (f.stats.eager, f.stats.hits) == (0, 1)


def test_a_leaked_tracer_is_jax_own_error():
    """That is a fault of the body which running it un-jitted would hide."""
    leaked = []

    @optimize(on_trace_error="eager")
    def leak(x):
        leaked.append(x)
        return x

    leak(X)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        optimize(on_trace_error="eager")(lambda x: x + leaked[0])(X)


# it is float64 on some machines
WIDE = [np.zeros(2, np.longdouble)] if np.longdouble(0).itemsize > 8 else []


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a"]),
        np.zeros(2, "V4"),
        np.zeros(2, [("a", "f4")]),
        np.array("2020", "M8[Y]"),
        np.datetime64("2020"),
        *WIDE,
    ],
    ids=lambda value: str(value.dtype),
)
def test_what_jax_does_not_compute_with_is_a_sentence(value):
    """Arrays and scalars of NumPy: text, raw bytes, records, dates, numbers of more than 64
    bits.
    """
    with pytest.raises(
        ContractError, match=f"'x' is an? (array|scalar) of {re.escape(str(value.dtype))}"
    ):
        optimize(lambda x, y: y)(value, X)


class Mine(Exception):
    pass


@pytest.mark.parametrize(
    "kind", [Mine, TypeError, ValueError, RuntimeError, KeyError, FloatingPointError, StopIteration]
)
@pytest.mark.parametrize(
    "options",
    [{}, {"on_trace_error": "eager"}, {"donate": "x"}, {"debug_nans": True}, {"compiler": "fast"}],
)
def test_errors_of_the_body_are_the_users_own(kind, options):
    """The same object, unchanged."""
    error = kind("mine")

    @optimize(**options)
    def f(x):
        raise error

    with pytest.raises(kind) as caught:
        f(X)
    assert caught.value is error
    assert caught.value.args == ("mine",)


def test_a_product_that_the_cpu_compiler_has_no_kernel_for_is_explained():
    """With the flag that turns the fusion off that loses it; other errors of the backend are the
    user's to see.
    """
    lost = RuntimeError(
        "UNIMPLEMENTED: Unsupported element type for DotThunk::Execute: BF16 x BF16 = F32"
    )
    assert "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= " in str(
        low_product_error(lost, Where("f"))
    )
    assert low_product_error(RuntimeError("RESOURCE_EXHAUSTED"), Where("f")) is None
