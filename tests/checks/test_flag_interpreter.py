"""A program with its checks as data, beside the same program with callbacks, which Equinox runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jitney._checks import CheckTable, Unflaggable, evaluate_flagged
from tests._arrays import array

X = np.arange(1.0, 5.0, dtype=np.float32)
check = eqx.error_if


def as_data(fn):
    """The function with its checks as data, and the number of what failed; with the table of the
    numbers.
    """
    table = CheckTable()

    def returning(*arrays):
        traced = jax.jit(fn).trace(*arrays)
        out, flag = evaluate_flagged(traced.jaxpr, jax.tree.leaves(arrays), table)
        return jax.tree.unflatten(jax.tree.structure(traced.out_info), out), flag

    return jax.jit(returning), table


def run(fn, *arrays):
    """One call, as a program makes it."""
    compiled, table = as_data(fn)
    out, flag = compiled(*arrays)
    if int(flag):
        table.fail(int(flag))
    return out


def error_of(run):
    """The class and the message of what a call raises."""
    with pytest.raises(Exception) as caught:
        run()
    return type(caught.value), [
        line
        for line in str(caught.value).splitlines()
        if line.startswith("equinox.EquinoxRuntimeError: ")
    ]


def scanned(x):
    def turn(carry, row):
        carry = check(carry * row, jnp.any(carry > 20), "scan")
        return carry + 1.0, carry * 2

    return lax.scan(turn, x, jnp.arange(1.0, 4.0))


def looped(x):
    return lax.while_loop(
        lambda s: s[0].sum() < 1000,
        lambda s: (check(s[0] * 2.1, s[1] > 7, "while") + 1, s[1] + 1),
        (x, 0),
    )


def branched(x):
    return lax.cond(
        x.sum() > 0,
        lambda x: check(x * 2, x[0] > 3, "A"),
        lambda x: check(x - 1, x[0] < -3, "B"),
        x,
    )


def stops_late(x):
    return lax.while_loop(
        lambda s: check(s, s.sum() > 500, "test").sum() < 100, lambda s: s * 1.5 + 0.1, x
    )


def endless(x):
    return lax.while_loop(lambda y: y < 1, lambda y: y * 2, check(x, x <= 0, "not above zero"))


def nested(x):
    def body(state):
        def turn(carry, _):
            return lax.cond(
                carry.sum() > 3,
                lambda c: check(c * 0.5, c[0] > 5, "in cond"),
                lambda c: c + 0.3,
                carry,
            ), None

        carry, _ = lax.scan(turn, state[0], None, length=5)
        return check(carry, jnp.any(carry < -9), "late"), state[1] + 1

    return lax.while_loop(lambda s: s[1] < 6, body, (x, 0))


@jax.custom_jvp
def with_jvp(x):
    return check(x * 2, x < 0, "its value")


with_jvp.defjvp(lambda x, t: (with_jvp(*x), check(t[0] * 2 * x[0], x[0] > 10, "its rule")))


@jax.custom_vjp
def with_vjp(x):
    return check(x * 2, x < 0, "its value")


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, g: (check(g * 2, x > 10, "its rule"),))


def several(x):
    return check(x, x < 0, "first") + check(x * 2, x < -1, "second")


def called(x):
    f = jax.jit(lambda x: check(x * 2, x > 100, "called") + 1)
    return f(f(f(x)))


def recomputed(x):
    return (
        jax.checkpoint(lambda x: check(jnp.sin(x) * x, x < 0, "recomputed"))(x) * jnp.cos(x)
    ).sum()


ON_THE_HOST = {
    "scan": (scanned, X, X * 10),
    "while": (looped, X, X * 0 - 1),
    "cond, first": (branched, X, X * 9),
    "cond, second": (branched, -X, -X * 9),
    "condition of a while": (stops_late, X, X * 90),
    "before a loop without end": (endless, X[0] * 0.1, -X[0]),
    "cond in scan in while": (nested, X, X * 50),
    "mapped loop": (jax.vmap(endless), X * 0.1, X - 2),
    "mapped condition": (jax.vmap(lambda x: stops_late(x[None])), X, X * 300),
    "mapped cond": (jax.vmap(lambda x: branched(x[None])), X * 0.1, X * 9),
    "grad": (jax.grad(lambda x: jnp.sin(several(x)).sum()), X, -X),
    "grad of scan": (jax.grad(lambda x: (scanned(x)[1] ** 2).sum()), X * 0.1, X * 10),
    "hessian": (jax.hessian(lambda x: several(jnp.sin(x)).prod()), X * 0.2, -X),
    "remat": (recomputed, X, -X),
    "grad of remat": (jax.grad(recomputed), X, -X),
    "custom_jvp": (with_jvp, X, -X),
    "jvp of custom_jvp": (lambda x: jax.jvp(with_jvp, (x * x,), (x,)), X * 0.5, X * 9),
    "custom_vjp": (with_vjp, X, -X),
    "grad of custom_vjp": (jax.grad(lambda x: with_vjp(x * x).sum()), X * 0.5, X * 9),
    "several, both fail": (several, X, -5 * X),
    "called thrice": (called, X, X * 30),
    "NaN": (
        lambda x: check(x + 1, jnp.isnan(x), "NaN"),
        X,
        np.where(X == 2, np.float32(np.nan), X),
    ),
    "pytree": (
        lambda x: check({"a": x, "b": (x * 2, 3, "text")}, x < 0, "of a tree")["b"][0],
        X,
        -X,
    ),
    "int": (lambda x: check(jnp.int32(x * 2), x < 0, "of whole numbers"), X, -X),
}
CASES = {name: (fn, array(good), array(bad)) for name, (fn, good, bad) in ON_THE_HOST.items()}


@pytest.mark.core("mapped cond", "grad", "scan", "while", "several, both fail")
@pytest.mark.parametrize("name", CASES)
def test_a_check_fails_as_with_callbacks(name):
    """The same numbers to the bit, and the same error with the same message."""
    fn, good, bad = CASES[name]
    with_callbacks = eqx.filter_jit(lambda x: fn(x))
    for ours, theirs in zip(
        jax.tree.leaves(run(fn, good)), jax.tree.leaves(with_callbacks(good)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    assert error_of(lambda: run(fn, bad)) == error_of(lambda: with_callbacks(bad))


@pytest.mark.core("1", "-1")
@pytest.mark.parametrize("which", [0, 1, 2, -1, -3])
def test_branched_errors_have_their_message(which):
    """That of the index, which counts from the end if it is negative, as with callbacks."""
    fn = lambda x, i: eqx.branched_error_if(x, x > 0, i, ["zero", "one", "two"])
    assert error_of(lambda: run(fn, X, which * jnp.ones((), int))) == error_of(
        lambda: eqx.filter_jit(fn)(X, jnp.asarray(which))
    )


def test_of_mapped_messages_the_largest_is_raised():
    """As Equinox says of `branched_error_if`."""
    fn = jax.vmap(lambda x, i: eqx.branched_error_if(x, x > 0, i, ["zero", "one", "two"]))
    with pytest.raises(eqx.EquinoxRuntimeError, match="one"):
        run(fn, X, jnp.array([0, 1, 0, 1]))


def test_a_check_whose_value_nothing_reads_is_not_made():
    """In calls, loops, and the gradient of what is linear, where XLA drops it with the value."""
    inner = jax.jit(lambda x: (check(x, x < 0, "unread"), x + 1))

    def turn(carry, _):
        return (carry[0] + 1, check(carry[1], carry[1] < 0, "unread")), None

    def step(state):
        return state[0] + 1, check(state[1], state[1] < 0, "unread")

    for fn in (
        lambda x: inner(x)[1],
        lambda x: lax.scan(turn, (x, x), None, length=3)[0][0],
        lambda x: lax.while_loop(lambda s: s[0].sum() < 20, step, (x, x))[0],
        jax.grad(lambda x: check(x * 2, x < 0, "unread").sum()),
    ):
        np.testing.assert_array_equal(run(fn, -X), eqx.filter_jit(fn)(-X))


EMPTY = {
    "one": lambda x: check(x, jnp.sum(x) < 1, "empty"),
    "summed": lambda x: check(x, jnp.sum(x) < 1, "empty").sum(),
    "one of two": lambda x: check((x, jnp.ones(2)), jnp.sum(x) < 1, "empty")[0].sum(),
    "branched": lambda x: eqx.branched_error_if(x, jnp.sum(x) < 1, 0, ["empty"]),
    "cut to nothing": lambda x: check(x + jnp.ones((2, 1)), jnp.sum(x) < 1, "empty")[2:],
    "looped": lambda x: lax.scan(
        lambda c, _: (check(c, jnp.sum(c) < 1, "empty"), c.sum()), x, None, length=3
    ),
    "turned": lambda x: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, check(s[1], s[0] >= 0, "empty")), (0, x)
    ),
    "in a branch": lambda x: lax.cond(
        x.sum() < 1, lambda y: check(y, jnp.sum(y) < 1, "empty") * 2, lambda y: y, x
    ),
    "called": lambda x: jax.jit(lambda y: (check(y, jnp.sum(y) < 1, "empty"), y.sum()))(x),
    "recomputed": lambda x: jax.grad(
        jax.checkpoint(lambda y: check(y, jnp.sum(y) < 1, "empty").sum())
    )(x),
}


@pytest.mark.core("one", "looped", "branched", "one of two", "cut to nothing")
@pytest.mark.parametrize("name", EMPTY)
def test_a_check_of_what_has_no_elements_is_not_made(name):
    """As under `eqx.filter_jit`, where XLA puts another empty array in its place, and op by op."""
    fn, x = EMPTY[name], jnp.zeros(0)
    for found, expected in zip(
        jax.tree.leaves(run(fn, x)), jax.tree.leaves(eqx.filter_jit(fn)(x)), strict=True
    ):
        assert (found.shape, found.dtype, found.weak_type) == (
            expected.shape,
            expected.dtype,
            expected.weak_type,
        )
        np.testing.assert_array_equal(found, expected)


def test_a_check_of_more_than_what_has_no_elements_is_made():
    """One of the arrays that it stands in front of has some, and they are read."""
    with pytest.raises(eqx.EquinoxRuntimeError, match="full"):
        run(lambda x: check((x, jnp.ones(2)), jnp.sum(x) < 1, "full")[1], jnp.zeros(0))


def test_what_is_weakly_typed_stays_so():
    """Of checks, branches, and loops that check in their condition: else it would have its way with
    the types of what it meets.
    """
    for fn in (
        lambda x: check(jnp.asarray(2.0), x[0] > 3, "check"),
        lambda x: lax.cond(
            x[0] > 0, lambda: check(jnp.asarray(1.0), x[0] > 3, "branch"), lambda: jnp.asarray(2.0)
        ),
        lambda x: lax.while_loop(
            lambda s: check(s[0], s[1] > 90, "test") < 3,
            lambda s: (s[0] + 1, s[1] * x[0]),
            (0, 1.0),
        ),
        lambda x: lax.scan(lambda c, row: (check(c, row > 9, "scan") * 2, c), 1.0, x),
    ):
        ours, theirs = jax.tree.leaves(run(fn, X)), jax.tree.leaves(eqx.filter_jit(fn)(X))
        assert [(x.dtype, x.weak_type) for x in ours] == [(x.dtype, x.weak_type) for x in theirs]


def test_a_product_before_a_check_and_a_sum_behind_it_are_rounded_one_by_one():
    """As with callbacks, where XLA cannot make one operation of them."""
    rng = np.random.default_rng(0)
    a, b, c = (jnp.asarray(rng.normal(size=4096), jnp.float32) for _ in range(3))
    fn = lambda a, b, c: check(a * b, jnp.any(jnp.isnan(a)), "NaN") + c
    np.testing.assert_array_equal(run(fn, a, b, c), np.asarray(a) * np.asarray(b) + np.asarray(c))


def test_what_calls_python_behind_a_check_is_not_called_when_it_fails():
    """As if the program had stopped there; before, and when none fails, it is."""
    told = []

    def fn(x):
        jax.debug.callback(lambda v: told.append(("before", float(v))), x[0])
        x = check(x, x < 0, "negative")
        jax.debug.callback(lambda v: told.append(("behind", float(v))), x[0])
        return jax.pure_callback(lambda v: told.append(("numbers", 0)) or np.asarray(v), x, x)

    np.testing.assert_array_equal(run(fn, X), X)
    jax.effects_barrier()
    assert sorted(told) == [("before", 1.0), ("behind", 1.0), ("numbers", 0)]
    told.clear()
    with pytest.raises(eqx.EquinoxRuntimeError, match="negative"):
        run(fn, -X)
    jax.effects_barrier()
    assert told == [("before", -1.0)]


@pytest.mark.rest
def test_it_can_be_exported():
    """Which a callback cannot: another process gets the numbers, and the number of what failed."""
    compiled, _ = as_data(jax.grad(lambda x: (scanned(x)[1] ** 2).sum()))
    again = jax.export.deserialize(jax.export.export(compiled)(X).serialize())
    np.testing.assert_array_equal(again.call(X * 0.1)[0], compiled(X * 0.1)[0])
    assert again.call(X * 10)[1] != 0


def in_shard_map(x):
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(
        lambda x: check(x, x < 0, "negative"),
        mesh=mesh,
        in_specs=jax.P("d"),
        out_specs=jax.P("d"),
        check_vma=False,
    )(x)


def in_order(x):
    jax.debug.callback(print, x[0], ordered=True)
    return check(x, x < 0, "negative")


@pytest.mark.parametrize("fn", [in_order, in_shard_map])
def test_what_cannot_be_followed_keeps_its_callbacks(fn):
    """Who runs it hears why."""
    with pytest.raises(Unflaggable):
        run(fn, X)
