"""What stands beside a padded, cut or streamed axis: sizes that are expressions, arrays that are
not padded, functions with options of their own. Each runs, or says in a sentence why not.
"""

import re
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import JitneyWarning, optimize
from jitney.errors import AxisError, DerivativeError, OptionError
from tests._arrays import array
from tests._tracing import count_traces

RNG = np.random.default_rng(0)
F = np.float32


def rows(*shape):
    return RNG.uniform(0.1, 1, shape).astype(F)


def of_size(text):
    """A function of an array with n elements and of one whose size is an expression."""

    def both(x: Float[Array, "n"], y) -> Float[Array, ""]:
        return jnp.sum(x) + jnp.sum(y * y)

    both.__annotations__["y"] = Float[Array, text]
    return both


SIZES = [
    "n**2",
    "-1+n",
    "n+-1",
    "max(n,3)",
    "min(n,40)",
    "(n+1)*2",
    "2**2*n",
    "abs(n)",
    "sum((n,1))",
    "{3}*n",
    "-n+2*n",
    "n**0",
]


@pytest.mark.core("n**2", "(n+1)*2", "max(n,3)", "-n+2*n", "{3}*n")
@pytest.mark.parametrize("text", SIZES)
def test_a_size_that_is_an_expression_is_padded(text):
    """Two sizes of a bucket share a trace, and the numbers are NumPy's."""
    body = count_traces(of_size(text))
    f = optimize(pad={"n": "pow2"})(body)
    for n in (13, 11, 16):
        x, y = rows(n), rows(eval(text.replace("{3}", "3"), {"n": n}))
        expected = x.astype(float).sum() + (y.astype(float) ** 2).sum()
        np.testing.assert_allclose(f(x, y), expected, rtol=1e-6)
    assert f.stats.traces == 1


@pytest.mark.parametrize("text", ["n/2", "n*0.5", "{x.shape[0]}", "n%7"])
def test_a_size_that_is_known_at_one_size_only_runs_exact(text):
    """With one warning, that names the argument or the line."""
    x, y = rows(12), rows(int(eval(text.replace("{x.shape[0]}", "n"), {"n": 12})))
    f = optimize(pad={"n": "pow2"})(of_size(text))
    with pytest.warns(
        JitneyWarning, match=r"'n' cannot be padded here: (it has 'y'|test_beside.py:\d+)"
    ):
        out = f(x, y)
    np.testing.assert_allclose(out, x.astype(float).sum() + (y.astype(float) ** 2).sum(), rtol=1e-6)


@pytest.mark.parametrize("text", ["n**2", "n-1", "n//2", "n/2"])
def test_an_argument_that_no_chunk_cuts_is_named_in_a_sentence(text):
    """Its elements are not those of the axis."""
    x, y = rows(12), rows(int(eval(text, {"n": 12})))
    with pytest.raises(AxisError, match="axis 'n' cannot be cut into chunks: it has"):
        optimize(chunk={"n": 5})(of_size(text))(x, y)
    with pytest.raises(AxisError, match="axis 'n' cannot be cut into chunks: it has"):
        jitney.stream(optimize(of_size(text)), x=x, y=y, chunk={"n": 5}, progress=False)


class Scale(eqx.Module):
    width: int
    weight: Array

    def __call__(self, x: Float[Array, "n"], y: Float[Array, "{self.width}*n"]) -> Float[Array, ""]:
        return jnp.sum(x) * jnp.sum(y)

    def beside(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(self.weight * x)


def test_a_size_in_braces_is_padded():
    """`{self.width}*n` is twice n in a module of width 2."""
    f = optimize(pad={"n": "pow2"})(Scale(2, jnp.ones(3)))
    for n in (13, 11):
        x, y = rows(n), rows(2 * n)
        np.testing.assert_allclose(
            f(x, y), x.astype(float).sum() * y.astype(float).sum(), rtol=1e-6
        )
    assert f.stats.traces == 1


# An array of n elements that is not padded.

TWELVE = rows(12)


def closure(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * TWELVE)


def unannotated(x: Float[Array, "n"], y) -> Float[Array, ""]:
    return jnp.sum(x * y)


NOT_PADDED = [
    (closure, (), "an array of 12 elements, as many as 'n' has, is not an argument with that axis"),
    (
        unannotated,
        (TWELVE,),
        "'y' has as many elements along axis 0 as 'n', and no annotation names that axis",
    ),
    (Scale(2, array(TWELVE)).beside, (), "'self.weight' has as many elements along axis 0 as 'n'"),
]


@pytest.mark.parametrize(
    ("fn", "others", "why"), NOT_PADDED, ids=["closure", "unannotated", "field"]
)
def test_an_array_that_is_not_padded_runs_exact(fn, others, why):
    """With one warning, that names the line and the array."""
    x = rows(12)
    with pytest.warns(
        JitneyWarning, match=rf"test_beside.py:\d+ \((closure|unannotated|beside)\).*{why}"
    ):
        out = optimize(pad={"n": "pow2"})(fn)(x, *others)
    np.testing.assert_allclose(out, x.astype(float) @ TWELVE, rtol=1e-6)


@pytest.mark.parametrize(
    ("fn", "others", "why"), NOT_PADDED, ids=["closure", "unannotated", "field"]
)
def test_a_plan_says_which_array_is_not_padded(fn, others, why):
    """As the call does."""
    f = optimize(pad={"n": "pow2"})(fn)
    assert why in str(f.plan(rows(12), *others).plan.stage("fill").why)


def test_under_vmap_a_plan_says_what_the_warning_says():
    """Axes are those of an element: along axis 1 `x` has n, and no array has another size m."""

    def unfit(x: Float[Array, "n"], y: Float[Array, "n m"]):
        return jnp.reshape(x, (4, -1)) @ jnp.ones(5) + y.sum()

    f = optimize(vmap="b", pad={"n": "pow2"})(unfit)
    args = jnp.ones((3, 20)), jnp.ones((3, 20, 6))
    why = f.plan(*args).plan.stage("fill").why.removeprefix("at exact size: ")
    assert "as many elements" not in why
    with pytest.warns(JitneyWarning, match=re.escape(why)):
        f(*args)


@pytest.mark.parametrize(
    ("fn", "others", "why"), NOT_PADDED, ids=["closure", "unannotated", "field"]
)
def test_an_array_that_is_not_cut_is_named(fn, others, why):
    """In an error, since chunks are refused by one."""
    with pytest.raises(AxisError, match=why):
        optimize(chunk={"n": 5})(fn)(rows(12), *others)


# Functions with options of their own.


@optimize(precision="f64")
def squares(x):
    return jnp.sum(x * x), jnp.cumsum(x), x / jnp.max(x)


def with_f64(x: Float[Array, "n"], s: float):
    return squares(x * s)


def in_f64(x, s):
    y = (x * F(s)).astype(float)
    return (y * y).sum(), y.cumsum(), y / y.max()


def equals_in_f64(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b.astype(F))


def test_an_f64_function_inside_a_padded_one():
    """It keeps its 64 bits."""
    x = rows(13)
    equals_in_f64(optimize(pad={"n": "pow2"})(with_f64)(x, 3.0), in_f64(x, 3.0))


def test_an_f64_function_inside_one_in_chunks():
    """What is carried from chunk to chunk has 64 bits."""
    x = rows(13)
    equals_in_f64(optimize(chunk={"n": 5})(with_f64)(x, 3.0), in_f64(x, 3.0))


@pytest.mark.rest
@pytest.mark.parametrize("chunk", [5, "auto"])
def test_an_f64_function_inside_a_stream(chunk):
    """What is carried from chunk to chunk has 64 bits, and the arguments keep their 32."""
    x = rows(13)
    equals_in_f64(
        jitney.stream(optimize(with_f64), x=x, s=3.0, chunk={"n": chunk}, progress=False).result,
        in_f64(x, 3.0),
    )


def with_budget(budget):
    @optimize(memory=budget)
    def energy(x: Float[Array, "m"]) -> Float[Array, ""]:
        return jnp.sum(jnp.tanh(x * x))

    def outer(x: Float[Array, "n"]) -> Float[Array, ""]:
        return energy(2 * x)

    return energy, outer


@pytest.mark.rest
def test_a_budget_inside_a_padded_or_cut_function_that_all_of_it_keeps():
    """Nothing is cut inside."""
    x = rows(100)
    energy, outer = with_budget("1MiB")
    energy(x)  # a call at a known size before must not matter
    expected = np.tanh((2 * x.astype(float)) ** 2).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(optimize(pad={"n": "pow2"})(outer)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(optimize(chunk={"n": 30})(outer)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(
        jitney.stream(optimize(outer), x, chunk={"n": 30}, progress=False).result,
        expected,
        rtol=1e-5,
    )


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*it is not cut into chunks inside an outer")
def test_a_budget_inside_that_needs_chunks_of_its_own():
    """Padding is refused with a warning, and so is cutting."""
    x = rows(300)
    _, outer = with_budget(1700)
    why = (
        r"it calls energy\(\) at test_beside.py:\d+, which takes .* all at once, and whose `memory`"
        r" of 1.66 KiB"
    )
    with pytest.warns(JitneyWarning, match=why):
        out = optimize(pad={"n": "pow2"})(outer)(x)
    np.testing.assert_allclose(out, np.tanh((2 * x.astype(float)) ** 2).sum(), rtol=1e-5)
    with pytest.raises(AxisError, match=why):
        optimize(chunk={"n": 100})(outer)(x)


# Questions.


def scaled(x: Float[Array, "n"], s: float) -> Float[Array, ""]:
    return jnp.float32(2) * s


@pytest.mark.parametrize("chunk", [5, "auto"])
def test_a_stream_of_what_does_not_depend_on_the_data(chunk):
    """No pass is made over them."""
    value, stats = jitney.stream(
        optimize(scaled), x=rows(12), s=3.0, chunk={"n": chunk}, progress=False
    )
    assert float(value) == 6
    assert stats.passes == 0 or stats.chunks == 1


def test_a_derivative_of_nothing_is_refused_in_a_sentence():
    """Padded or not."""

    def nothing(x: Float[Array, "n"]) -> None:
        return None

    for options in ({}, {"pad": {"n": "pow2"}}, {"chunk": {"n": 5}}):
        with pytest.raises(DerivativeError, match="the function returns no array"):
            optimize(**options)(nothing).jacobian(rows(12))


def test_axes_of_a_plain_function():
    """It need not be decorated."""
    assert jitney.analysis.axes(scaled, rows(12), 3.0)["n"].kind == "pointwise"
    assert str(jitney.analysis.axes(average, sizes={"n": 5})) == str(
        jitney.analysis.axes(optimize(average), sizes={"n": 5})
    )
    with pytest.raises(OptionError, match="3 is not a program"):
        jitney.analysis.axes(3)


def average(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(x)


def test_axes_with_an_array_that_has_no_annotation():
    """Its size is known, so the axis is not: the fact says so."""
    found = jitney.analysis.axes(unannotated, rows(12), TWELVE)["n"]
    assert found.kind == "unknown"
    assert "needs to know a size" in found.refused


def test_what_padding_asks_of_an_inner_function_is_no_retrace_of_it():
    """A trace with symbolic sizes is no program of the inner function: it has no cause."""
    inner = optimize(lambda x: jnp.sum(x))

    def outer(x: Float[Array, "n"]) -> Float[Array, ""]:
        return inner(x)

    x = rows(12)
    inner(x)
    optimize(pad={"n": "pow2"})(outer)(x)
    assert not any("d0" in cause for cause in inner.stats.retraces)
