"""`debug_nans`: the operation and the line that made the first NaN or infinity of a result."""

from __future__ import annotations

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jitney._diagnosis.nonfinite.interpreter import locate
from jitney._diagnosis.nonfinite.marked_values import has_nonfinite
from jitney._diagnosis.nonfinite.message import message
from jitney._errors import Where
from tests._arrays import array, random_key
from tests._examples import examples

X = array([-1.0, 0.0, 1.0])


def found(fn, *args):
    """What `locate` says of a function whose result really is not finite."""
    assert has_nonfinite(jax.tree.leaves(jax.jit(fn)(*args)))
    finding = locate(jax.make_jaxpr(fn)(*args), jax.tree.leaves(args))
    assert finding is not None
    return finding


def line_of(fn, text):
    """The place of the line of a function that has `text`, as a finding spells it."""
    lines, first = inspect.getsourcelines(fn)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"test_nonfinite.py:{first + offset}"


@pytest.mark.core("*-log-NaN0", "*-log-inf")
@pytest.mark.parametrize(
    ("fn", "primitive", "kind"),
    [
        (lambda x: jnp.log(x - 0.5), "log", "NaN"),
        (lambda x: x / x, "div", "NaN"),
        (lambda x: jnp.exp(200 * x), "exp", "inf"),
        (lambda x: jnp.sqrt(x), "sqrt", "NaN"),
        (lambda x: jnp.dot(1e30 * x, 1e30 * x), "dot_general", "inf"),
        (lambda x: jnp.linalg.cholesky(x[0] * jnp.eye(3)), "cholesky", "NaN"),
        (lambda x: jnp.linalg.solve(jnp.zeros((3, 3)), x), "triangular_solve", "NaN"),
        (lambda x: jnp.log((0 * x).astype(jnp.complex64)), "log", "inf"),
        (lambda x: eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0))(jnp.log(x)), "log", "NaN"),
    ],
)
def test_names_the_operation_and_the_kind(fn, primitive, kind):
    """Invalid operations give NaN, overflow and poles give inf."""
    finding = found(fn, X)
    assert (finding.primitive, finding.kind) == (primitive, kind)


def test_names_the_line_and_the_function_of_the_user():
    """JAX's own frames and those of installed packages are not where a user looks."""

    def residual(x):
        y = x + 1
        z = jnp.log(y - 3)
        return 2 * z

    assert found(residual, X).source == f"{line_of(residual, 'jnp.log')} (residual)"


def test_a_gradient_leads_to_the_line_of_the_forward_pass():
    """The slope of `sqrt` at 0 is infinite, by the division in its derivative."""

    def root(x):
        return jnp.sqrt(x)

    finding = found(jax.grad(root), 0.0)
    assert (finding.primitive, finding.kind) == ("div", "inf")
    assert finding.source == f"{line_of(root, 'jnp.sqrt')} (root)"


def test_a_masked_gradient_names_the_infinity_behind_the_nan():
    """The well-known trap: `where` masks the value, its gradient is 0 times infinity."""
    finding = found(jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)), 0.0)
    assert (finding.primitive, finding.kind) == ("mul", "NaN")
    assert finding.cause is not None
    assert (finding.cause.primitive, finding.cause.kind) == ("div", "inf")
    assert "give it another number there, and mask its result" in message(finding, "f()")


@pytest.mark.core("<lambda>0")
@pytest.mark.parametrize(
    "fn", [lambda x: jnp.where(x > 0, 1 / x, 0.0), lambda x: jnp.where(x > 0, x**-3, 0.0)]
)
def test_a_negative_power_of_zero_is_a_division(fn):
    """Which is what JAX differentiates a division to: no number is too large, and no wider dtype
    helps.
    """
    assert "mask the divisor too" in message(found(jax.grad(fn), 0.0), "f()")


@pytest.mark.core("False")
@pytest.mark.parametrize("reverse", [False, True])
def test_names_the_iteration_of_a_scan(reverse):
    """Counted by position in what is scanned, in either direction."""

    def loop(x):
        return lax.scan(
            lambda c, a: (c + a, jnp.log(a - x[2])),
            0.0,
            jnp.array([5.0, 4.0, 3.0, 0.5, 2.0]),
            reverse=reverse,
        )

    finding = found(loop, X)
    assert (finding.primitive, finding.path) == ("log", ("scan iteration 3",))


def test_names_the_iteration_where_a_carry_goes_bad():
    """A NaN that stays in the carry belongs to the iteration that made it, the last one is not to
    blame.
    """
    finding = found(
        lambda x: lax.fori_loop(
            0, 1000, lambda i, c: jnp.sqrt(c - jnp.where(i == 437, 9.0, 0.0)) + x[1], 4.0
        ),
        X,
    )
    assert (finding.primitive, finding.path) == ("sqrt", ("scan iteration 437",))


def test_a_nan_that_a_loop_rejects_is_not_reported():
    """Each iteration makes a NaN and drops it, as a line search does; one of them keeps one."""

    def body(c, i):
        trial = jnp.log(-c)
        kept = jnp.where(jnp.isfinite(trial), trial, c)
        return jnp.where(i == 70, jnp.sqrt(-kept), kept), None

    finding = found(lambda c: lax.scan(body, c, jnp.arange(100))[0], 1.0)
    assert (finding.primitive, finding.path) == ("sqrt", ("scan iteration 70",))


def test_names_the_iteration_of_a_while():
    """100, 9.95, 2.99, 1.41, 0.64: the next one is the root of a negative number."""

    def loop(x):
        return lax.while_loop(
            lambda s: s[0] < 9, lambda s: (s[0] + 1, jnp.sqrt(s[1] - x)), (0, 100.0)
        )[1]

    assert found(loop, 1.0).path == ("while iteration 4",)


def test_a_nan_leads_back_to_an_infinity_of_an_earlier_iteration():
    """2, 1, log 1 = 0, log 0 = -inf, log -inf = NaN."""
    finding = found(
        lambda x: lax.fori_loop(0, 9, lambda i, c: jnp.where(c > 1, c - 1, jnp.log(c)), x), 2.0
    )
    assert (finding.kind, finding.path) == ("NaN", ("scan iteration 3",))
    assert finding.cause is not None
    assert (finding.cause.kind, finding.cause.path) == ("inf", ("scan iteration 2",))


@pytest.mark.rest
def test_a_loop_whose_infinities_come_and_go_is_searched_for_the_nan():
    """More infinities than are followed inside; the NaN is still found."""

    def body(c, i):
        a, b = c
        return (
            jnp.where(jnp.isinf(a), 1.0, jnp.exp(1000 * a)),
            jnp.where(i == 700, jnp.sqrt(-b), b),
        ), None

    finding = found(lambda b: lax.scan(body, (1.0, b), jnp.arange(1000))[0], 1.0)
    assert (finding.primitive, finding.path) == ("sqrt", ("scan iteration 700",))


def test_a_long_loop_is_not_interpreted_step_by_step():
    """A million iterations run compiled; interpreted they would take many minutes."""

    def loop(x):
        step = lambda i, c: jnp.where(i == 999_990, jnp.log(-1 - c), 0.999 * c)
        return lax.fori_loop(0, 1_000_000, step, x)

    assert found(loop, 1.0).path == ("scan iteration 999990",)


def test_nested_loops_and_branches_are_named_from_the_outside_in():
    """The path reads as the code is indented."""

    def inner(i, c):
        return lax.cond(c > 0.5, lambda c: c - 0.25, lambda c: jnp.log(c - 0.75), c)

    def outer(c, _):
        return lax.fori_loop(0, 4, inner, c), None

    # 2.0 to 0.5 takes 6 steps of 0.25
    finding = found(lambda c: lax.scan(outer, c, None, length=5)[0], 2.0)
    assert finding.path == ("scan iteration 1", "scan iteration 2", "cond branch 0")
    assert finding.source == f"{line_of(inner, 'jnp.log')} (<lambda>)"


def test_names_the_branch_of_a_switch():
    """Only the branch that is taken is followed."""
    branches = [jnp.log, lambda x: x, lambda x: x / 0]
    assert found(lambda i, x: lax.switch(i, branches, x), 2, X).path == ("cond branch 2",)


def test_follows_jitted_helpers():
    """The name of the helper is part of the path."""

    @jax.jit
    def helper(x):
        return jnp.log(x)

    finding = found(lambda x: helper(x).sum(), X)
    assert finding.path == ("jit helper",)
    assert finding.source == f"{line_of(helper, 'jnp.log')} (helper)"


def test_follows_custom_derivatives_and_rematerialised_code():
    """Functions with rules of their own are ordinary code here."""

    @jax.custom_jvp
    def forward(x):
        return jnp.log(x)

    forward.defjvp(lambda primals, tangents: (forward(*primals), tangents[0] / primals[0]))

    @jax.custom_vjp
    def reverse(x):
        return jnp.log(x)

    reverse.defvjp(lambda x: (reverse(x), x), lambda x, ct: (ct / x,))

    for fn in (forward, reverse, jax.checkpoint(lambda x: jnp.log(x))):
        assert found(fn, X).primitive == "log"
    assert found(jax.grad(lambda x: jax.checkpoint(jnp.sqrt)(x).sum()), 0 * X).primitive == "div"


@pytest.mark.rest
def test_a_vmapped_loop_is_one_loop():
    """The rows share the iterations; the first that fails counts."""
    loop = jax.vmap(
        lambda x: lax.while_loop(
            lambda s: s[0] < 9, lambda s: (s[0] + 1, jnp.sqrt(s[1] - 1)), (0, x)
        )[1]
    )
    assert found(loop, jnp.array([1000.0, 1.0])).path == ("while iteration 1",)


def test_what_is_masked_away_is_not_to_blame():
    """The first NaN in program order never reaches the result; the second does."""

    def masked(x):
        safe = jnp.where(x > 0, jnp.log(x), 0.0)
        return safe + jnp.sqrt(x - 2)

    assert found(masked, X).primitive == "sqrt"


def test_finite_results_have_no_finding():
    """A masked logarithm is no fault."""
    assert locate(jax.make_jaxpr(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))(X), [X]) is None


def test_a_nan_of_an_argument_is_said_to_be_one():
    """Its position in the flat arguments, also through a loop."""
    y = X.at[1].set(jnp.nan)
    for fn in (lambda x, y: x * y, lambda x, y: lax.scan(lambda c, a: (c + a, a), 0.0, y)):
        finding = found(fn, X, y)
        assert (finding.primitive, finding.kind, finding.argument) == ("argument", "NaN", 1)
    assert "argument y already has a NaN" in message(finding, "f()", ("x", "y"))


def test_a_nan_of_an_argument_that_reaches_no_result_is_not_to_blame():
    """The argument is bad, the fault is elsewhere."""
    y = X.at[1].set(jnp.nan)
    assert found(lambda x, y: jnp.log(x - 2) + y[0], X, y).primitive == "log"


@pytest.mark.parametrize(
    "fn", [lambda x: x + 1, lambda x: jnp.where(x > 0, jnp.inf, x), lambda x: lax.cummax(x)]
)
def test_an_infinity_from_outside_is_meant(fn):
    """Bounds of -inf and inf pass through programs."""
    x = jnp.array([-jnp.inf, 1.0, jnp.inf])
    assert locate(jax.make_jaxpr(fn)(x), [x]) is None


def test_what_does_not_come_again_is_said_to_be_the_programs():
    """A compiled program rounds differently; here its result is made up."""
    jaxpr = jax.make_jaxpr(lambda x: 2 * x)(X)
    finding = locate(jaxpr, [X], [X / 0])
    assert finding is not None
    assert (finding.primitive, finding.kind) == ("program", "NaN")
    assert "no operation makes one" in message(finding, "f()")
    assert locate(jaxpr, [X], [X]) is None


def test_an_overflow_beside_a_meant_infinity_is_found():
    """Attention masks with -inf; the overflow is in another element."""
    finding = found(lambda x: jnp.exp(jnp.where(x > 0, 1000 * x, -jnp.inf)), X)
    assert (finding.primitive, finding.kind) == ("exp", "inf")


@pytest.mark.rest
def test_an_overflow_in_a_maximum_that_starts_at_minus_infinity_is_found():
    """The carry is infinite before and after, with different signs."""
    finding = found(
        lambda x: lax.scan(lambda c, a: (jnp.maximum(c, jnp.exp(a)), None), -jnp.inf, x)[0], 100 * X
    )
    assert (finding.primitive, finding.path) == ("exp", ("scan iteration 2",))


def test_nan_comes_before_infinity():
    """The infinity is made first, the NaN is worse."""
    finding = found(lambda x: (jnp.exp(1000 + x), jnp.log(x - 2)), X)
    assert (finding.primitive, finding.kind) == ("log", "NaN")


def test_a_nan_written_into_the_code_is_called_a_constant():
    """No operation made it."""
    finding = found(lambda x: jnp.where(x > 0, jnp.nan, x), X)
    assert finding.primitive == "constant"
    assert "written into the code at test_nonfinite.py" in message(finding, "f()")


@pytest.mark.rest
def test_keys_and_integers_pass_through():
    """Random keys in a carry, integer and boolean operands."""

    def step(key, a):
        key, sub = jax.random.split(key)
        return key, jnp.log(2.5 - a.astype(float)) + jax.random.normal(sub)

    finding = found(lambda n: lax.scan(step, jax.random.key(0), jnp.arange(n.size)), jnp.arange(4))
    assert (finding.primitive, finding.path) == ("log", ("scan iteration 3",))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_narrow_dtypes_overflow_where_they_do(dtype):
    """60000 * 2 is past float16 and not past the others."""
    x = jnp.array([0.0, 2.0], dtype)
    jaxpr = jax.make_jaxpr(lambda x: x * 60000)(x)
    finding = locate(jaxpr, [x])
    assert (finding is not None) == (dtype == jnp.float16)


def test_double_precision_is_followed_in_its_scope():
    """1e200 squared is past float64, 1e30 squared is not."""
    with jax.enable_x64(True):
        x = jnp.array([1e30, 1e200])
        finding = found(lambda x: jnp.exp(-x[0]) + x * x, x)
        assert finding.primitive == "mul"
        assert "float64[2]" in finding.inputs


def test_jax_debug_nans_does_not_interfere():
    """JAX's own switch would raise while the jaxpr is evaluated."""
    jaxpr = jax.make_jaxpr(lambda x: jnp.log(x))(X)
    with jax.debug_nans(True):
        finding = locate(jaxpr, [X])
    assert finding is not None
    assert finding.primitive == "log"


def test_the_message_says_where_what_and_how_to_mend_it():
    """The three parts, with the range of the inputs."""

    def residual(x):
        return jnp.log(x)

    text = message(found(lambda x: residual(x), X), Where("fit", "fit.py", 12)).splitlines()
    place = f"{line_of(residual, 'jnp.log')} (residual), element [0]"
    assert (
        text[0]
        == f"fit() at fit.py:12: `log` made the first NaN at {place}, from float32[3] (-1 to 1)"
    )
    assert text[1].startswith("With debug_nans=True")
    assert text[2].startswith("Fix: keep what it is taken of above 0")


@pytest.mark.parametrize(
    ("leaves", "bad"),
    [
        ([array([1.0, np.nan])], True),
        ([array(np.inf, jnp.bfloat16)], True),
        ([array(-np.inf, np.float16)], True),
        ([array([complex(0, np.nan)])], True),
        ([np.array([np.inf])], True),
        ([float("nan")], True),
        ([X, array(np.zeros(3), jnp.bfloat16), array(np.ones(2), np.complex64)], False),
        (
            [
                array(np.zeros((0, 3))),
                array(np.arange(3)),
                True,
                3,
                None,
                "text",
                random_key(0),
                np.zeros(2, jax.dtypes.float0),
            ],
            False,
        ),
        ([], False),
    ],
)
def test_nonfinite_looks_at_floats_and_complex_only(leaves, bad):
    """Integers, keys, text and empty arrays cannot be bad."""
    assert has_nonfinite(leaves) is bad


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["neg", "sin", "add", "log", "square"]), min_size=1, max_size=8),
    st.floats(-2, 2, width=32, allow_subnormal=False),
)
@examples(
    {"chain": ["log"], "start": -1.0},
    {"chain": ["add", "log"], "start": -0.5},
    {"chain": ["sin", "neg", "log", "square"], "start": 2.0},
    {"chain": ["log", "log", "log"], "start": 0.5},  # the second
    {"chain": ["log", "add", "sin", "log"], "start": 0.0},  # log is infinite, its sine is NaN
    {"chain": ["log", "square", "add", "neg", "sin"], "start": -0.0},
    {"chain": ["log", "neg", "log", "add"], "start": 0.0},  # infinite to the end
    {"chain": ["square", "sin", "add", "neg", "add", "sin", "square", "log"], "start": -2.0},
)
def test_a_chain_is_blamed_on_its_first_bad_link(chain, start):
    """NumPy, one step at a time, says which link goes bad."""
    steps = {
        "neg": np.negative,
        "sin": np.sin,
        "add": lambda x: x + np.float32(0.5),
        "log": np.log,
        "square": np.square,
    }
    traced = {
        "neg": jnp.negative,
        "sin": jnp.sin,
        "add": lambda x: x + 0.5,
        "log": jnp.log,
        "square": jnp.square,
    }
    value, first = np.float32(start), None
    with np.errstate(all="ignore"):
        for link in chain:
            value = steps[link](value)
            first = first or (link if np.isnan(value) else None)
    x = jnp.float32(start)

    def run(x):
        for link in chain:
            x = traced[link](x)
        return x

    finding = locate(jax.make_jaxpr(run)(x), [x])
    assert (finding.primitive if finding and finding.kind == "NaN" else None) == {
        None: None,
        "add": "add",
    }.get(first, first)
