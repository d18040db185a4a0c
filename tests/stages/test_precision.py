"""`precision`: the body computes in another type, what goes in and out keeps its own."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Float32

from jitney import JitneyWarning, optimize
from jitney.errors import OptionError
from tests._arrays import array

X = array(np.linspace(0, 1, 5, dtype=np.float32))
TYPES = {"bf16-all": jnp.bfloat16, "fp16-all": jnp.float16, "f32": jnp.float32, "f64": np.float64}


def recorded(**options):
    """A program that returns its argument, and the dtypes that its body saw by path."""
    seen = {}

    def body(tree):
        seen.update(
            {
                jax.tree_util.keystr(path): leaf.dtype
                for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
            }
        )
        return tree

    return optimize(**options)(body), seen


def decision(program, *args):
    (found,) = [d for d in program.plan(*args).to_dict()["decisions"] if d["name"] == "precision"]
    return found["taken"], found["why"]


@pytest.mark.parametrize("policy", TYPES)
@pytest.mark.parametrize("given", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_the_body_computes_in_the_type_and_the_result_comes_back(policy, given):
    """Whatever the type of the argument."""
    f, seen = recorded(precision=policy)
    out = f(X.astype(given))
    assert seen[""] == TYPES[policy]
    assert out.dtype == given


@pytest.mark.core("bf16-all", "f32")
@pytest.mark.parametrize("policy", TYPES)
def test_what_is_no_float_stays(policy):
    """Integers, booleans, complex numbers and random keys are as they were, inside and outside."""
    f, seen = recorded(precision=policy)
    tree = {
        "i": jnp.arange(3),
        "b": X > 0,
        "c": X.astype(jnp.complex64),
        "k": jax.random.key(0),
        "u": jnp.uint8(3),
        "x": X.astype(jnp.float16),
    }
    out = f(tree)
    for name in "ibcku":
        assert seen[f"['{name}']"] == out[name].dtype == tree[name].dtype
    assert out["x"].dtype == jnp.float16


def test_an_exact_annotation_keeps_its_type():
    """`Float32[...]` among `Float[...]`."""
    seen = {}

    @optimize(precision="bf16-all")
    def body(x: Float[Array, "n"], exact: Float32[Array, "n"]):
        seen.update(x=x.dtype, exact=exact.dtype)
        return x.astype(exact.dtype) + exact

    assert body(X, X).dtype == jnp.float32
    assert seen == {"x": jnp.bfloat16, "exact": jnp.float32}
    assert "exact keeps its exact dtype" in decision(body, X, X)[1]


def test_an_exact_field_of_a_module_keeps_its_type_or_says_otherwise():
    """A module is one argument; without an exact annotation in the signature all its floats are
    cast.
    """
    seen = {}

    class Model(eqx.Module):
        w: Float[Array, "n"]

    @optimize(precision="bf16-all")
    def body(model: Model, x: Float[Array, "n"]):
        seen["w"] = model.w.dtype
        return model, model.w * x

    model, product = body(Model(X), X)
    assert seen["w"] == jnp.bfloat16
    assert model.w.dtype == product.dtype == jnp.float32


def test_products_are_those_of_the_low_type():
    """1 + 2**-9 is 1 in bfloat16, whose last digit is 2**-7. (XLA may skip a rounding between two
    casts, so the body rounds.)
    """

    @optimize(precision="bf16-all")
    def bits(x):
        return jax.lax.bitcast_convert_type(x, jnp.int16)

    assert bits(jnp.float32(1 + 2**-9)) == bits(jnp.float32(1))


@pytest.mark.core("bf16-all")
@pytest.mark.parametrize("policy", ["bf16-all", "fp16-all", "f64"])
def test_gradients_keep_the_type_of_the_parameters(policy):
    """Through a module, in both directions of nesting."""

    class Model(eqx.Module):
        w: Array
        n: int

    @optimize(precision=policy)
    def loss(model, x):
        return (model.w * x).sum()

    model = Model(X, 3)
    for grad in (
        eqx.filter_grad(loss)(model, X),
        optimize(precision=policy)(eqx.filter_grad(loss.__wrapped__))(model, X),
    ):
        assert grad.w.dtype == jnp.float32
        np.testing.assert_allclose(grad.w, X, rtol=1e-2)


def test_results_that_the_body_makes_in_another_type_are_left():
    """Only what comes out in the compute type is cast back."""

    @optimize(precision="bf16-all")
    def body(x):
        return x, x.astype(jnp.float16), x.astype(jnp.int32), x > 0, (x.sum(), "text")

    out = body(X)
    assert [leaf.dtype for leaf in out[:4]] == [jnp.float32, jnp.float16, jnp.int32, jnp.bool_]
    assert out[4][0].dtype == jnp.float32
    assert out[4][1] == "text"


def test_results_come_back_in_the_widest_type_that_was_cast():
    """float16 and float32 in, float32 out."""

    @optimize(precision="bf16-all")
    def body(a, b):
        return a + b

    assert body(X.astype(jnp.float16), X).dtype == jnp.float32


def test_nothing_to_cast_is_a_skip_with_its_reason():
    """An argument that has the type already."""
    f, _ = recorded(precision="bf16-all")
    assert decision(f, X.astype(jnp.bfloat16)) == (False, "no argument to cast to bfloat16")
    assert decision(f, X) == (True, "1 of 1 arrays computed in bfloat16, results back to float32")


def test_a_float_argument_is_cast_too():
    """A Python number for a `float`."""

    @optimize(precision="fp16-all")
    def body(x: float):
        return x * 2

    out = body(1.0)
    assert out.dtype == jnp.float32
    assert out == 2


MASK = np.array([True, True, False])
TABLE = np.array([1.0, 2e9, 3.0], np.float32)


@jax.jit
def beside(x):
    return jnp.where(x > 0, x, -1e9)


def meant(x):
    return (
        jax.nn.softmax(jnp.where(MASK, x, jnp.finfo(x.dtype).min))
        + jnp.where(MASK, x, -jnp.inf)
        + 65504.0
    )


LOST = {
    "where": (lambda x: jnp.where(MASK, x, -1e9), "-1e+09"),
    "operand": (lambda x: jnp.maximum(x, -1e30), "-1e+30"),
    "full": (lambda x: jnp.full(3, 1e5, x.dtype), "100000"),
    "array": (lambda x: x * jnp.asarray(TABLE, x.dtype), "2e+09"),
    "scan": (
        lambda x: lax.scan(lambda c, _: (jnp.where(MASK, c, -1e9), None), x, length=2)[0],
        "-1e+09",
    ),
    "vmap": (lambda x: jax.vmap(lambda x: jnp.where(x > 0, x, -1e9))(x), "-1e+09"),
    "helper": (beside, "-1e+09"),
}
KEPT = {
    "meant": meant,
    "float32": lambda x: x * TABLE,
    "far": lambda x: jnp.float32(1e9) * MASK + x,
    "integer": lambda x: x + jnp.arange(3) * 100_000,
}


def constants(body, policy):
    with jax.numpy_dtype_promotion("standard"):  # one of these mixes types
        plan = optimize(precision=policy)(body).plan(X3).to_dict()
    return [line["why"] for line in plan["decisions"] if line["name"] == "constants"]


X3 = array(np.arange(3.0))


@pytest.mark.core("where", "operand")
@pytest.mark.parametrize("name", LOST)
def test_a_constant_that_the_type_lacks_is_a_line_of_the_plan(name):
    """The number, where it is written, and what becomes of it."""
    body, number = LOST[name]
    (why,) = constants(body, "fp16-all")
    sign = "-" if number.startswith("-") else ""
    assert re.fullmatch(
        rf"{re.escape(number)} at test_precision.py:\d+ \(.*\) is {sign}inf in float16, whose"
        r" largest number is 65504",
        why,
    )


@pytest.mark.core("meant")
@pytest.mark.parametrize("name", KEPT)
def test_other_constants_are_no_line_of_the_plan(name):
    """Infinities that are written so, what fits, and what stays in float32."""
    assert constants(KEPT[name], "fp16-all") == []


def test_a_body_of_one_type_has_a_plan():
    """It may refuse any other, which says so."""

    def body(x):
        assert x.dtype == jnp.float16
        return x - 1e9

    (why,) = constants(body, "fp16-all")
    assert (
        why == "the body cannot be traced in the types of its arguments, so nothing says which"
        " constants are out of range"
    )


def test_bfloat16_lacks_the_least_number_of_float32():
    """Which masks are made of, too."""

    def body(x):
        return jnp.where(MASK, x, float(np.finfo(np.float32).min))

    (why,) = constants(body, "bf16-all")
    assert why.startswith("-3.40282e+38 at test_precision.py:")
    assert constants(LOST["where"][0], "bf16-all") == []


def logsumexp(x):
    return jnp.log(jnp.sum(jnp.exp(x)))


VALUES = np.linspace(-3, 3, 1001)
EXACT = float(np.log(np.sum(np.exp(VALUES))))


def test_f64_needs_no_global_flag():
    """Twelve digits from NumPy's doubles, and the flag as it was."""
    f = optimize(precision="f64")(logsumexp)
    out = f(VALUES)
    assert out.dtype == np.float64
    assert abs(float(out) - EXACT) < 1e-12
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32


def test_f64_computes_float32_arguments_in_double():
    """2**24 + 1 - 2**24 is 0 in float32."""

    @optimize(precision="f64")
    def cancel(big, one):
        return (big + one) - big

    assert cancel(jnp.float32(2**24), jnp.float32(1)) == 1
    assert cancel(jnp.float32(2**24), jnp.float32(1)).dtype == jnp.float32


def test_f64_holds_ahead_of_time():
    """`compile`, `lower` and `plan` see doubles too."""
    f = optimize(precision="f64")(logsumexp)
    assert "f64" in f.lower(VALUES).as_text()
    assert abs(float(f.lower(VALUES).compile()(VALUES)) - EXACT) < 1e-12
    assert f.plan(VALUES).to_dict()["arguments"] == ["x: float64[1001]"]
    f.compile(VALUES)
    traces = f.stats.traces
    assert abs(float(f(VALUES)) - EXACT) < 1e-12
    assert f.stats.traces == traces
    assert not jax.config.jax_enable_x64


def test_f64_holds_for_sizes_of_annotations():
    """`Float` is JAX's default float, so float32 arguments come from `sizes`."""

    @optimize(precision="f64")
    def cancel(x: Float[Array, "n"]):
        return (x + 1) - x

    cancel.compile(sizes={"n": 3})
    traces = cancel.stats.traces
    np.testing.assert_array_equal(cancel(jnp.full(3, 2.0**24, jnp.float32)), np.ones(3))
    assert cancel.stats.traces == traces == 1


def test_f64_under_grad_and_jit():
    """Inside another trace the scope is the same."""
    f = optimize(precision="f64")(lambda x: ((x + 1) - x).sum())
    x = jnp.full(3, 2.0**24, jnp.float32)
    assert jax.jit(f)(x) == 3
    np.testing.assert_allclose(
        jax.grad(optimize(precision="f64")(logsumexp))(X), jax.nn.softmax(X), rtol=1e-6
    )


def test_f64_survives_eager():
    """A body that cannot be traced runs un-jitted, in double all the same."""

    @optimize(precision="f64", on_trace_error="eager")
    def cancel(big, one):
        return (big + one) - big if one > 0 else big

    with pytest.warns(UserWarning, match="un-jitted"):
        assert cancel(jnp.float32(2**24), jnp.float32(1)) == 1
    assert cancel(jnp.float32(2**24), jnp.float32(1)) == 1


def test_tf32_sets_the_precision_of_products():
    """In the lowered program; types stay."""
    f = optimize(precision="tf32")(lambda a, b: a @ b)
    a = jnp.eye(4)
    assert (
        "TF32" in f.lower(a, a).as_text().upper()
        or "precision = [HIGH, HIGH]" in f.lower(a, a).as_text()
    )
    plain = optimize(lambda a, b: a @ b)
    assert f.lower(a, a).as_text() != plain.lower(a, a).as_text()
    assert f(a, a).dtype == jnp.float32
    assert decision(f, a, a)[0]


def test_what_is_no_policy_says_so():
    """With those that are."""
    with pytest.raises(OptionError, match=r"is not a policy.*\n.*bf16-all"):
        optimize(precision="float8")(logsumexp)


def test_a_result_is_as_wide_as_the_widest_argument():
    """Of float64 and float32 it is float64: nothing that was given is rounded on the way back."""

    @optimize(precision="f64")
    def f(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return x + y

    wide, narrow = np.full(3, 1 / 3), np.ones(3, np.float32)
    assert f(wide, narrow).dtype == f(narrow, wide).dtype == np.float64
    np.testing.assert_array_equal(f(wide, narrow), wide + 1)
    assert f(narrow, narrow).dtype == np.float32


@pytest.mark.core("argmax")
@pytest.mark.parametrize(
    "body",
    [
        jnp.argmax,
        jax.scipy.special.i0,
        lambda x: x * jax.random.uniform(jax.random.key(0), x.shape),
    ],
)
def test_f64_that_an_outer_jit_cannot_lower_is_a_sentence(body):
    """JAX lowers the outer program with the 32 bits that it has. With 64, or outside of it, the
    function is what it was.
    """
    f = optimize(precision="f64")(lambda x: body(x))
    expected = f(X)
    with pytest.raises(
        OptionError,
        match=(
            r"inside an outer `jit` whose numbers have 32 bits[\s\S]*Fix: make the outer function"
        ),
    ):
        jax.jit(lambda x: f(x))(X)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(lambda x: f(x))(X), expected)
    np.testing.assert_array_equal(optimize(precision="f64")(lambda x: f(x))(X), expected)


def max_pool(x):
    return jnp.sum(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,), (2,), "VALID") ** 2)


@pytest.mark.core("pool")
@pytest.mark.parametrize(
    "body", [max_pool, lambda x: jnp.sum(jax.scipy.special.i1e(x))], ids=["pool", "bessel"]
)
def test_f64_whose_derivative_an_outer_jit_cannot_lower_is_a_sentence(body):
    """Forward and backward. The value, and the derivative with 64 bits around it, are right."""
    f = optimize(precision="f64")(body)
    np.testing.assert_allclose(jax.jit(f)(X), body(X), rtol=1e-6)
    for derivative in (jax.grad(f), lambda x: jax.jvp(f, (x,), (x,))):
        with pytest.raises(
            OptionError, match=r"have 32 bits, differentiated: [\s\S]*Fix: make the outer function"
        ):
            jax.jit(derivative)(X)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(jax.grad(f))(X), jax.grad(body)(X), rtol=1e-5)


TRANSFORMS = {
    "vmap": lambda f, x: jax.vmap(f)(np.stack([x, x])),
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,))[1],
    "grads": lambda f, x: jax.vmap(jax.grad(f))(np.stack([x, x])),
}


@pytest.mark.core("vmap-pad")
@pytest.mark.parametrize("options", [{}, {"pad": {"n": "pow2"}}], ids=["bare", "pad"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_f64_under_a_transform_takes_an_array_of_numpy(name, options):
    """JAX keeps it as it is, float64, in a trace that says float32."""

    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.exp(x))

    x = np.linspace(-1, 1, 5)
    got = TRANSFORMS[name](optimize(total, precision="f64", **options), x)
    np.testing.assert_allclose(got, TRANSFORMS[name](total, x), rtol=1e-6)


@pytest.mark.rest
def test_f64_of_which_an_outer_jit_can_lower_the_forward_derivative_warns():
    """JAX's error of the gradient comes when the call is over; the derivative forward is right."""
    f = optimize(precision="f64")(lambda x: jnp.median(x))
    with pytest.warns(
        JitneyWarning, match=r"have 32 bits, differentiated backward \(forward it works\): "
    ):
        value, slope = jax.jit(lambda x: jax.jvp(f, (x,), (jnp.arange(5.0),)))(X)
    assert (value, slope) == (X[2], 2)
    np.testing.assert_array_equal(jax.jit(lambda x: f.grad(x)["x"])(X), jax.grad(jnp.median)(X))
