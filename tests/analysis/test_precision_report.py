"""`jitney.analysis.precision_report` and `precision="auto:..."`: errors measured against
float64, and the products that must stay.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.analysis import precision_report
from jitney.errors import OptionError, PrecisionError
from tests._arrays import array

rng = np.random.default_rng(3)


def draw(*shape):
    return array(rng.normal(size=shape))


class Net(eqx.Module):
    first: Float[Array, "4 4"]
    last: Float[Array, "4 4"]

    def __call__(self, x):
        return jnp.sin(40 * (jnp.cos(x @ self.first) @ self.last))


NET, X = Net(draw(4, 4), draw(4, 4)), draw(3, 4)


def sensitive(model: Net, x: Float[Array, "n 4"]) -> Float[Array, "n 4"]:
    return model(x)


def double(model, x, low=()):
    """The network in NumPy's doubles, with the factors of some products rounded to bfloat16."""

    def r(a, name):
        a = np.asarray(a)
        return (a.astype(np.float32).astype(ml_dtypes.bfloat16) if name in low else a).astype(
            np.float64
        )

    h = np.cos(r(x, "first") @ r(model.first, "first"))
    return np.sin(40 * (r(h, "last") @ r(model.last, "last")))


def off(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def test_errors_are_those_against_doubles():
    """Of all products together, and of each alone, as NumPy finds them."""
    report = precision_report(sensitive, NET, X, tolerance=10.0)
    exact = double(NET, X)
    (row,) = report.deviations
    assert (row.kind, row.name) == ("output", "result")
    assert row.single < 1e-4
    np.testing.assert_allclose(row.low, off(double(NET, X, ("first", "last")), exact), rtol=0.05)
    assert {p.name: p.alone for p in report.products} == {
        f"model.{name}": pytest.approx(off(double(NET, X, (name,)), exact), rel=0.05)
        for name in ("first", "last")
    }
    assert {p.source.partition(":")[0] for p in report.products} == {"test_precision_report.py"}
    assert report.holds
    assert report.policy == {"default": "bf16"}
    assert not jax.config.jax_enable_x64


class Uneven(eqx.Module):
    """The error of its second product is worth a hundredth of the first's."""

    first: Float[Array, "4 4"]
    last: Float[Array, "4 4"]

    def __call__(self, x):
        return jnp.sum(jnp.sin(x @ self.first) ** 2) + 0.01 * jnp.sum(jnp.sin(x @ self.last))


UNEVEN = Uneven(draw(4, 4), draw(4, 4))


def test_what_it_names_is_pinned_and_the_tolerance_holds():
    """The costly product, and not the other; the policy can be passed on as it is; gradients are
    compared by the argument's path.
    """

    def loss(model, x):
        return model(x)

    report = precision_report(loss, UNEVEN, X, tolerance=2e-3)
    assert [d.name for d in report.deviations] == ["result", "model.first", "model.last", "x"]
    assert report.policy == {"default": "bf16", "model.first": "f32"} or report.policy == {
        "default": "bf16",
        "model.first": "f32",
        "model.last": "f32",
    }
    assert report.holds
    exact = np.sum(
        np.sin(np.asarray(X, np.float64) @ np.asarray(UNEVEN.first, np.float64)) ** 2
    ) + 0.01 * np.sum(np.sin(np.asarray(X, np.float64) @ np.asarray(UNEVEN.last, np.float64)))
    assert abs(float(optimize(precision=report.policy)(loss)(UNEVEN, X)) - exact) < 2e-3 * abs(
        exact
    )
    shown = str(report)
    assert "holds to 0.002" in shown
    assert "model.first" in shown
    assert report.to_dict()["policy"] == report.policy


def test_a_loop_under_vmap_stops_for_each_element_in_doubles_too():
    """The exact numbers are NumPy's, a row at a time."""

    def one(w, x):
        return lax.while_loop(lambda x: x @ x < 10, lambda x: 1.5 * (w @ x), x)

    def rows(w, x):
        return jax.vmap(one, (None, 0))(w, x)

    turn = np.array([[0.8, -0.6], [0.6, 0.8]], np.float32)
    x = np.array([[1.0, 0.3], [0.1, 0.2], [5.0, 1.0]], np.float32)
    report = precision_report(rows, array(turn), array(x), tolerance=10.0)

    exact = x.astype(np.float64)
    single = np.asarray(rows(array(turn), array(x)), np.float64)
    for i, row in enumerate(exact):
        while row @ row < 10:
            row = 1.5 * (turn.astype(np.float64) @ row)
        exact[i] = row
    (deviation,) = report.deviations
    np.testing.assert_allclose(deviation.single, off(single, exact), atol=1e-7)


@pytest.mark.rest
def test_the_shadow_follows_loops_branches_draws_and_rules_of_derivatives():
    """Each in float64 with what float32 has seen: the float32 error is rounding, not another
    function.
    """

    @jax.custom_jvp
    def clipped(x):
        return jnp.clip(x, -1, 1)

    clipped.defjvp(lambda p, t: (clipped(*p), t[0]))

    def loss(w, x, key):
        x = x + 0.1 * jax.random.normal(key, x.shape)
        x = lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=3)[0]
        x = lax.cond(x.sum() > -1e9, lambda x: x @ w, lambda x: x, x)
        return jnp.sum(clipped(3 * x)) + jnp.sum(jnp.linalg.cholesky(w @ w.T + jnp.eye(4)))

    report = precision_report(loss, 0.3 * NET.first, X, jax.random.key(1), tolerance=10.0)
    assert max(d.single for d in report.deviations) < 2e-5
    assert max(d.low for d in report.deviations) > 1e-4
    assert report.holds


@pytest.mark.parametrize(
    ("options", "text"), [({"low": "f32"}, "low='f32'"), ({"tolerance": 0.0}, "tolerance=0.0")]
)
def test_what_cannot_be_measured_is_refused(options, text):
    """Another type, no tolerance, and shapes without values."""
    with pytest.raises(OptionError, match=text):
        precision_report(sensitive, NET, X, **options)
    with pytest.raises(OptionError, match="no values"):
        precision_report(sensitive, NET, jax.ShapeDtypeStruct((3, 4), jnp.float32))


# precision="auto:..."


def test_auto_holds_its_tolerance_and_the_plan_says_how():
    """On the first call's values; before it, the plan says that nothing is chosen yet; a warm call
    neither traces nor chooses.
    """

    @optimize(precision="auto:1e-3", donate="y")
    def loss(model: Net, x: Float[Array, "n 4"], y: Float[Array, "n 4"]) -> Float[Array, "n 4"]:
        return model(x) + 0 * y

    def why():
        (line,) = [
            d["why"]
            for d in loss.plan(NET, X, X).to_dict()["decisions"]
            if d["name"] == "precision"
        ]
        return line

    assert "not called yet" in why()
    assert off(np.asarray(loss(NET, X, X + 0)), double(NET, X)) < 1e-3
    assert (
        "model.first in f32, model.last in f32; chosen on the first call's arguments to hold 0.001"
        in why()
    )
    before = loss.stats.traces
    loss(NET, X, X + 0)
    assert loss.stats.traces == before == 1


@pytest.mark.rest
def test_auto_chooses_for_each_new_key():
    """The values that decide are those of the call that needs a new program; under padding too."""

    @optimize(precision="auto:1e-1", pad={"n": [4, 8]})
    def loss(w: Float[Array, "4 4"], x: Float[Array, "n 4"]) -> Float[Array, "n 4"]:
        return jnp.sin(x @ w)

    small, large = X, 300 * jnp.concatenate([X, X])
    for x in (small, large):
        assert (
            off(
                np.asarray(loss(NET.first, x)),
                np.sin(np.asarray(x, np.float64) @ np.asarray(NET.first, np.float64)),
            )
            < 1e-1
        )
    assert loss.stats.traces == 2


def test_auto_says_where_it_has_no_values():
    """Ahead of time by sizes, and inside a transformation; and where nothing holds."""

    def f(w: Float[Array, "4 4"], x: Float[Array, "n 4"]) -> Float[Array, ""]:
        return jnp.sum(x @ w)

    with pytest.raises(OptionError, match=r"f\(\) at .*no values.*\n.*\n.*precision_report"):
        optimize(precision="auto:1e-2")(f).compile(NET.first, sizes={"n": 3})
    with pytest.raises(OptionError, match="no values"):
        jax.grad(optimize(precision="auto:1e-2")(f))(NET.first, X)
    with pytest.raises(
        PrecisionError, match=r"no choice of products holds 1e-12.*\n.*float64 shadow"
    ):
        optimize(precision="auto:1e-12")(f)(NET.first, X)


@pytest.mark.parametrize("bad", ["auto", "auto:", "auto:0", "auto:x", "auto:-1"])
def test_auto_needs_a_tolerance(bad):
    """At decoration."""
    with pytest.raises(OptionError, match="auto"):
        jitney.optimize(precision=bad)(sensitive)


@pytest.mark.rest
def test_one_policy_has_one_figure():
    """With nothing pinned, "bf16" and "pinned" are one program, and its error is that of the
    decorated function.
    """
    w, x = draw(32, 32), draw(16, 32)

    def f(w: Float[Array, "a b"], x: Float[Array, "n a"]) -> Float[Array, "n b"]:
        return jnp.tanh(x @ w) @ w

    (row,) = precision_report(f, w, x, tolerance=1.0).deviations
    exact = np.tanh(np.asarray(x, float) @ np.asarray(w, float)) @ np.asarray(w, float)
    assert row.low == row.pinned
    assert row.low == pytest.approx(
        off(np.asarray(optimize(f, precision="bf16")(w, x)), exact), rel=1e-3
    )


@pytest.mark.core("None-bf16", "bf16-bf16", "fp16-fp16")
@pytest.mark.parametrize(
    ("precision", "low"),
    [
        (None, "bf16"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
        ({"default": "fp16", "w": "f32"}, "fp16"),
        ({"default": "f32", "w": "fp16"}, "fp16"),
        ("fp16-all", "fp16-all"),
        ("f64", "bf16"),
    ],
)
def test_the_type_is_that_of_the_program(precision, low):
    """Unless another is asked for; the report says which."""
    w, x = draw(4, 4), draw(3, 4)
    program = optimize(lambda w, x: x @ w, precision=precision)
    report = precision_report(program, w, x)
    assert report.low == low
    assert f": {low} " in " ".join(str(report).split())
    assert precision_report(program, w, x, low="bf16").low == "bf16"


def spread(x: Float[Array, "n"]) -> Float[Array, ""]:
    """No product at all: the variance of numbers that are far from 0."""
    return jnp.mean((x - jnp.mean(x)) ** 2)


FAR = array(100 + rng.normal(size=64))


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["bf16-all", "fp16-all"])
def test_a_function_in_a_low_type_as_a_whole_is_judged_as_such(policy):
    """By what it returns, and by its gradient; products are none of it."""
    program = optimize(precision=policy)(spread)
    x = np.asarray(FAR, float)
    value, gradient = np.mean((x - x.mean()) ** 2), 2 * (x - x.mean()) / x.size
    report = program.precision_report(FAR, tolerance=1e-3)
    output, of_x = report.deviations
    assert output.low == pytest.approx(off(float(program(FAR)), value), rel=1e-3)
    assert of_x.low == pytest.approx(
        off(np.asarray(program.grad(FAR)["x"], float), gradient), rel=1e-2
    )
    assert (report.holds, report.policy, report.products) == (False, policy, ())
    assert f"{policy} does not hold to 0.001, with precision='{policy}'" in " ".join(
        str(report).split()
    )
    assert precision_report(spread, FAR, low=policy).worst == pytest.approx(report.worst)


@pytest.mark.rest
def test_a_solve_in_a_low_type_is_refused_by_the_report_too():
    """As the program refuses it."""
    program = optimize(precision="fp16-all")(lambda a: jnp.linalg.inv(a))
    with pytest.raises(OptionError, match="would be computed in float16"):
        precision_report(program, jnp.eye(3))


@pytest.mark.rest
def test_complex_results_are_measured():
    """Their parts come from products of real arrays."""

    def f(w: Float[Array, "a b"], x: Float[Array, "n a"]):
        return lax.complex(x @ w, jnp.sin(x @ w))

    w, x = draw(32, 32), draw(16, 32)
    (row,) = precision_report(f, w, x, tolerance=1.0).deviations
    z = np.asarray(x, float) @ np.asarray(w, float)
    assert row.low == pytest.approx(
        off(np.asarray(optimize(f, precision="bf16")(w, x)), z + 1j * np.sin(z)), rel=1e-3
    )
    with pytest.raises(PrecisionError, match="no choice of products holds"):
        optimize(f, precision="auto:1e-12")(w, x)
