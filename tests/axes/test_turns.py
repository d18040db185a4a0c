"""Loops that go on until all elements of a cut axis are done: their turns are counted first, and
each chunk takes as many.
"""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jitney
from jitney import optimize
from jitney._axes import Refused
from tests.axes import _cases as cases
from tests.axes.test_chunked import agree, planned

X = np.array([9, -4, 3, 0, 14, 2, -7, 5, 1, 8, -2], np.int32)
SIZES = (11, 4), (9, 3), (7, 1)


def loop(more, turn, *start):
    """A loop whose condition and body take what is carried as arguments."""
    return jax.lax.while_loop(lambda c: more(*c), lambda c: turn(*c), start)


def begin_again(x):
    """Elements that are done begin again, as their condition is of the number of turns too."""
    return loop(
        lambda k, y: jnp.any((y * 3 + k * k) % 11 > 8) & (k < 40), lambda k, y: (k + 1, y + k), 0, x
    )


def until_none_is_left(x):
    """Every element goes on as long as one does; the condition is a negation."""
    return loop(lambda k, y: ~jnp.all(y > 20), lambda k, y: (k + 1, y + 3), 0, x)


def of_a_maximum(x):
    """Integers are compared with a number when their maximum is taken."""
    return loop(lambda k, y: jnp.max(y) > 0, lambda k, y: (k + 1, y - 2), 0, x)


def with_sums(x):
    """What is carried has sums and extremes over all elements, of each turn."""
    return loop(
        lambda k, y, t, m: jnp.any(y < 12) & (k < 30),
        lambda k, y, t, m: (k + 1, y + 1, t + jnp.sum(y * k), jnp.maximum(m, jnp.max(y % 7))),
        *(0, x, 5, -1),
    )


def with_a_flag(x):
    """The body says whether there is another turn."""
    return loop(
        lambda k, y, go: go & (k < 30), lambda k, y, go: (k + 1, y + k, jnp.any(y < 9)), 0, x, True
    )


def after_a_mean(x):
    """Two loops, each after a sum over all elements."""
    k, y = until_none_is_left(x - jnp.sum(x))
    return loop(
        lambda j, z: jnp.any(z > 0) & (j < k), lambda j, z: (j + 1, z - j), 0, y - jnp.max(y)
    )


def from_the_end(x):
    """What it begins with is cumulated from the end, and what it gives from the front."""
    k, y = until_none_is_left(jax.lax.cumsum(x, reverse=True))
    return k, jnp.cumsum(y)


def around_a_loop_of_each(x):
    """Each element has a loop of its own inside."""

    def turn(k, y):
        own = jax.vmap(lambda a: jax.lax.while_loop(lambda b: b < 0, lambda b: b + 4, a))(y)
        return k + 1, own + k

    return loop(lambda k, y: jnp.any(y < 15) & (k < 20), turn, 0, x)


def without_a_turn(x):
    return loop(lambda k, y: jnp.any(y > 100), lambda k, y: (k + 1, y + 1), 0, x)


def to_the_most(x):
    return loop(lambda k, y: jnp.any(y > -100) & (k < 7), lambda k, y: (k + 1, y + k), 0, x)


def sized(step, x):
    """A step that is shared shrinks while elements go on, and is a result."""
    return loop(
        lambda h, y: jnp.any(jnp.abs(y) > 0.5) & (h > 1e-6),
        lambda h, y: (h * 0.9, jnp.where(jnp.abs(y) > 0.5, y - h * jnp.sign(y), y)),
        step[0],
        x,
    )


BODIES = (
    begin_again,
    until_none_is_left,
    of_a_maximum,
    with_sums,
    with_a_flag,
    after_a_mean,
    from_the_end,
    around_a_loop_of_each,
    without_a_turn,
    to_the_most,
)


@pytest.mark.core("begin_again")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_all_that_is_carried_equals_the_whole(body):
    """The elements, what is shared, and the number of turns."""
    case = cases.Case(body.__name__, body, [(("n",), cases.I)], tolerance=0)
    agree(case, *SIZES)


@pytest.mark.rest
def test_a_shared_step_is_made_once():
    """It does not hang on the chunk, and is a result."""
    agree(cases.Case("sized", sized, [((3,), cases.F), (("n",), cases.F)]), *SIZES)


def solved(x: Float[Array, "n"], w: Float[Array, ""]) -> Float[Array, ""]:
    """An adaptive loop for each element, that is differentiable by checkpoints."""

    def one(a):
        return eqxi.while_loop(
            lambda c: c[0] < 2.0,
            lambda c: (c[0] + 0.2 + jnp.abs(c[1]) / 3, jnp.sin(w * c[1]) + c[1] / 2),
            (jnp.zeros((), a.dtype), a),
            max_steps=16,
            kind="checkpointed",
        )[1]

    return jnp.mean(jax.vmap(one)(x) ** 2)


FLOATS = jnp.linspace(-2, 3, 11, dtype=np.float32)
W = jnp.float32(0.7)


def test_a_gradient_goes_back_as_many_turns():
    """The loop back begins with the number of turns and with a schedule of checkpoints."""
    f = optimize(chunk={"n": 4})(solved)
    np.testing.assert_allclose(f(FLOATS, W), jax.jit(solved)(FLOATS, W), rtol=1e-6)
    wants = jax.jit(jax.grad(solved, (0, 1)))(FLOATS, W)
    got = f.grad(FLOATS, W, wrt=("x", "w"))
    np.testing.assert_allclose(got["x"], wants[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(got["w"], wants[1], rtol=1e-5)


@pytest.mark.rest
def test_microbatches_add_up():
    """The loss is a mean of terms, and what counts turns is no term."""
    value, grad = jitney.accumulate(solved, axis="n", microbatch=3, wrt="w")(FLOATS, W)
    want, slope = jax.value_and_grad(solved, 1)(FLOATS, W)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(grad, slope, rtol=1e-5)


def again(x: Int[Array, "n"]) -> tuple[Int[Array, ""], Int[Array, "n"]]:
    return begin_again(x)


ONE_THEN_OTHER = np.array([0, 2, 4, 0, 1, 3, 1, 5, 2, 2, 0], np.int32)


def by_turns(x: Int[Array, "n"]) -> tuple[Int[Array, ""], Int[Array, "n"]]:
    """Even numbers go on in three turns, odd ones in the next three, and so on up to 20: a chunk
    that is done begins again when the other one is.
    """
    return loop(
        lambda k, y: jnp.any((k // 3 + x) % 2 == 0) & (k < 20), lambda k, y: (k + 1, y + k), 0, x
    )


def test_chunks_that_go_on_by_turns_are_counted_as_often_as_they_do():
    """One pass finds six turns more, so that four are taken, the last of which finds no more."""
    k, y = optimize(chunk={"n": 4})(by_turns)(ONE_THEN_OTHER)
    assert k == 20
    np.testing.assert_array_equal(y, ONE_THEN_OTHER + 190)


def test_a_stream_counts_until_no_chunk_takes_more():
    """Each time from what was found before; the statistics have all passes."""
    got = jitney.stream(optimize(by_turns), ONE_THEN_OTHER, chunk={"n": 4})
    assert got.result[0] == 20
    np.testing.assert_array_equal(got.result[1], ONE_THEN_OTHER + 190)
    assert got.stats.passes > 3
    assert got.stats.read == got.stats.passes * 11


@pytest.mark.rest
def test_a_stream_goes_on_from_a_checkpoint(tmp_path):
    """Stopped after each chunk in turn: in the passes that count, and in the last one."""

    def total(x: Int[Array, "n"]) -> Int[Array, ""]:
        k, y = begin_again(x)
        return jnp.sum(y * k)

    class Stopping:
        dtype, shape = X.dtype, X.shape

        def __init__(self, after):
            self.after = after

        def __getitem__(self, at):
            self.after -= 1
            if self.after < 0:
                raise KeyboardInterrupt
            return X[at]

    f = optimize(total)
    want = int(jax.jit(total)(X))
    for after in range(1, 10):
        kept = tmp_path / f"{after}.ckpt"
        given = {"chunk": {"n": 4}, "checkpoint": kept, "checkpoint_every": 1, "progress": False}
        with pytest.raises(KeyboardInterrupt):
            jitney.stream(f, Stopping(after), **given)
        assert int(jitney.stream(f, X, **given).result) == want


@pytest.mark.rest
def test_padding_is_done_from_the_start():
    """No element of padding keeps a loop going, whatever it holds."""
    f = optimize(pad={"n": (8, 16)})(again)
    for n in (5, 8, 11):
        for a, b in zip(f(X[:n]), jax.jit(again)(X[:n]), strict=True):
            np.testing.assert_array_equal(a, b)
    assert f.stats.traces == 2
    g = optimize(pad={"n": (8, 16)})(solved)
    for n in (5, 8, 11):
        np.testing.assert_allclose(g(FLOATS[:n], W), jax.jit(solved)(FLOATS[:n], W), rtol=1e-6)


def test_the_plan_says_what_it_costs():
    """Passes that only count, and how often."""
    said = " ".join(str(optimize(chunk={"n": 4})(again).plan(X)).split())
    assert "2 over the data, 4 of n at a time; 1 of them counts the iterations of" in said
    assert "`jax.lax.while_loop` at test_turns.py:" in said
    assert "is repeated until no chunk takes more, so twice as a rule" in said


def test_checks_raise_and_prints_appear_as_often_as_in_plain_jax(capfd):
    """Passes that count print nothing; a check fails where it fails on the whole."""

    def body(x, worst):
        def turn(k, y):
            jax.debug.print("turn {}", k)
            return k + 1, eqx.error_if(y, y == worst, "is worst") + 1

        return loop(lambda k, y: jnp.any(y < 9), turn, 0, x)

    @optimize(chunk={"n": 4})
    def f(x: Int[Array, "n"], worst: Int[Array, ""]):
        return body(x, worst)

    jax.block_until_ready(f(X, jnp.int32(100)))
    jax.effects_barrier()
    ours = sorted(capfd.readouterr().out.splitlines())
    jax.block_until_ready(jax.jit(body)(X, 100))
    jax.effects_barrier()
    assert ours == sorted(capfd.readouterr().out.splitlines())
    assert len(ours) == 16
    with pytest.raises(Exception, match="is worst"):
        jax.block_until_ready(f(X, jnp.int32(12)))


def printing(x):
    def more(k, y):
        jax.debug.print("{}", k)
        return jnp.any(y < 9)

    return loop(more, lambda k, y: (k + 1, y + 1), 0, x)


REFUSED = {
    "in a loop": (
        lambda x: jax.lax.scan(lambda c, _: (until_none_is_left(c)[1], None), x, None, length=2)[0],
        r"reads what is put together over all of it .*inside `jax.lax.scan`",
    ),
    "in a branch": (
        lambda x: jax.lax.cond(jnp.sum(x) > 0, lambda y: until_none_is_left(y)[1], lambda y: y, x),
        r"reads what is put together over all of it .*inside `jax.lax.cond`",
    ),
    "in another": (
        lambda x: loop(
            lambda k, y: jnp.any(y < 30), lambda k, y: (k + 1, until_none_is_left(y)[1] + 1), 0, x
        ),
        r"reads what is put together over all of it .*inside `jax.lax.while_loop`",
    ),
    "until one is done": (
        lambda x: loop(lambda k, y: jnp.all(y < 30), lambda k, y: (k + 1, y + 1), 0, x),
        r"reads what is put together over all of it .*`jax.lax.while_loop`",
    ),
    "two of them": (
        lambda x: loop(
            lambda k, y: jnp.any(y < 30) & jnp.any(y > 3), lambda k, y: (k + 1, y - 1), 0, x
        ),
        r"reads what is put together over all of it .*`and`",
    ),
    "a float's maximum": (
        lambda x: loop(
            lambda k, y: jnp.max(y) > 3, lambda k, y: (k + 1, y - 1), 0, x.astype(np.float32)
        ),
        r"reads what is put together over all of it .*`gt`",
    ),
    "for each mapped element": (
        lambda x: jax.vmap(
            lambda y: jax.lax.while_loop(lambda y: jnp.any(y < 30), lambda y: y + 1, y)
        )(jnp.stack([x, x + 1])),
        r"goes on, for each element of `vmap` by itself, .*`jax.lax.while_loop`",
    ),
    "prints": (printing, r"calls back in its condition, .*`jax.lax.while_loop`"),
}


@pytest.mark.core("until one is done", "a float's maximum", "prints")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_the_same_for_each_chunk_is_refused(name):
    """With the line, and what is read there."""
    body, what = REFUSED[name]
    with pytest.raises(Refused, match=what):
        planned(cases.Case(name, body, [(("n",), cases.I)]), 9)
