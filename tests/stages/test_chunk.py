"""`chunk=` and `memory=`: a long axis worked on piece by piece, inside one program."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Key

import jitney
from jitney import JitneyWarning, optimize
from jitney.errors import AxisError, ContractError, OptionError
from tests._examples import examples

RNG = np.random.default_rng(0)


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def residual(
    w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    r = x @ w - y
    return jnp.var(r), jax.nn.softmax(r)


chunked = optimize(chunk={"n": 8})(residual)


@pytest.mark.rest
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 40))
@examples({"n": 1}, {"n": 7}, {"n": 8}, {"n": 9}, {"n": 40})
def test_any_size_equals_the_whole(n):
    """Less than a chunk, whole chunks and a rest."""
    w, x, y = rows(3), rows(n, 3), rows(n)
    for got, want in zip(chunked(w, x, y), jax.jit(residual)(w, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.rest
def test_values_of_the_whole_axis_are_never_there():
    """The program's temporaries grow with the chunk, not with the axis."""

    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sort(jnp.outer(jnp.ones(64), jnp.ones(64)) * x[:, None, None], axis=1))

    def temporaries(fn):
        return (
            jax.jit(fn)
            .lower(jax.ShapeDtypeStruct((4096,), np.float32))
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    whole = optimize(f).lower(jnp.ones(4096)).compile().memory_analysis().temp_size_in_bytes
    cut = (
        optimize(chunk={"n": 64})(f)
        .lower(jnp.ones(4096))
        .compile()
        .memory_analysis()
        .temp_size_in_bytes
    )
    assert cut < whole / 10


def test_under_vmap_and_of_a_mapped_axis():
    """The axis of the body while another is mapped, or the mapped one."""

    @optimize(vmap="b", chunk={"n": 7})
    def mean(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.mean(jnp.sin(x))

    @optimize(vmap="b", chunk={"b": 2})
    def ordered(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sort(x)

    x = rows(5, 30)
    np.testing.assert_allclose(mean(x), np.sin(x).mean(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(ordered(x), np.sort(x, 1))


def test_auto_takes_what_suits_caches():
    """The plan says how many at a time, and in how many passes."""

    @optimize(chunk={"n": "auto"})
    def f(x: Float[Array, "n k"]) -> Float[Array, ""]:
        return jnp.var(jnp.sin(x))

    x = rows(2000, 3)
    np.testing.assert_allclose(f(x), np.sin(x).var(), rtol=1e-3)
    lines = {d["name"]: d["why"] for d in f.plan(sizes={"n": 10**8, "k": 3}).to_dict()["decisions"]}
    assert lines["chunk"] == "n=100000000 in chunks as suits caches"
    assert lines["passes"].startswith("2 over the data, ")
    assert 1024 <= int(lines["passes"].split()[4]) * 3 * 4 <= 64 * 2**20


def test_what_cannot_be_cut_is_an_error():
    """It names the axis, the line and the operation; nothing runs all at once in its place."""

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.abs(jnp.fft.fft(x))

    with pytest.raises(
        AxisError,
        match=(
            r"axis 'n' cannot be cut into chunks: test_chunk.py:\d+ \(f\) looks along it:"
            r" transforms along it \(`fft`\)"
        ),
    ):
        f(rows(5))
    with pytest.raises(AxisError, match="transforms"):
        f.plan(rows(5))


def test_an_axis_that_memory_cannot_cut_is_refused_with_the_bytes_of_all_of_it():
    """The fix works as it is written, and no error of jitney's own stands before it."""

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.abs(jnp.fft.fft(x))

    x = rows(1000)
    with pytest.raises(AxisError, match=r"room for all of it: memory=\d+\.") as error:
        optimize(memory="1 KiB")(f)(x)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    enough = int(str(error.value).partition("memory=")[2].partition(".")[0])
    np.testing.assert_allclose(optimize(memory=enough)(f)(x), np.abs(np.fft.fft(x)), rtol=1e-3)


def test_what_is_done_at_once_is_said_with_what_it_takes():
    """A sort of the norms of rows: 8 bytes for each row, while the rows times a matrix are there
    for one chunk at a time.
    """

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n k"], w: Float[Array, "k m"]) -> Float[Array, "n"]:
        return jnp.sort(jnp.sum((x @ w) ** 2, axis=1))

    x, w = rows(500, 3), rows(3, 7)
    np.testing.assert_allclose(f(x, w), np.sort(((x @ w) ** 2).sum(1)), rtol=1e-5)
    said = " ".join(str(f.plan(x, w)).split())
    assert re.search(
        r"1 over the data, 2 of n at a time; 3.9\d* KiB are there as a whole, for `sort` at"
        r" test_chunk.py:\d+ \(f\)",
        said,
    )


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c + x.sum()), None), 0.0, None, length=3)[
                0
            ],
            (
                r"reads what is put together over all of it only when that is done, inside"
                r" `jax.lax.scan` \(`sin`\)"
            ),
        ),
        (
            lambda x: jax.lax.scan(lambda c, _: (c + jnp.argmax(x), None), 0, None, length=3)[0],
            r"looks along it inside `jax.lax.scan`: argmax",
        ),
        (
            lambda x: jax.lax.while_loop(lambda c: c < x.sum(), lambda c: c + 1, 0.0),
            r"reads what is put together .*`jax.lax.while_loop`",
        ),
    ],
)
def test_a_loop_that_cannot_be_streamed_is_named_as_it_is_written(body, what):
    """`jax.lax.scan`, not JAX's name of an operation; `chunk` passes over the data in each
    iteration, which a stream would read again and again.
    """

    @optimize
    def f(x: Float[Array, "n"]):
        return body(x)

    with pytest.raises(AxisError, match=what):
        jitney.stream(f, x=np.ones(5, np.float32), chunk={"n": 2}, progress=False)


@pytest.mark.rest
def test_each_element_may_have_a_key():
    """Its draws are its own, in whatever chunk it is."""

    @optimize(chunk={"n": 2})
    def f(keys: Key[Array, "n"], x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        return jax.vmap(
            lambda key, row: jnp.where(jax.random.bernoulli(key, 0.5, row.shape), row, 0)
        )(keys, x)

    keys, x = jax.random.split(jax.random.key(0), 5), rows(5, 3)
    kept = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (3,)))(keys)
    np.testing.assert_array_equal(f(keys, x), np.where(kept, x, 0))


@pytest.mark.rest
def test_an_error_of_a_loop_under_vmap_is_raised():
    """Which `eqx.error_if` asks of all elements together: one in the last chunk is in error."""

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        def turn(c):
            return eqx.error_if(c, c == 3, "is three") + 1

        return jax.vmap(lambda a: jax.lax.while_loop(lambda c: c < 5, turn, a))(x)

    np.testing.assert_array_equal(
        f(jnp.array([4.0, 0.5, 9.0, 1.5, 4.5])), [5.0, 5.5, 9.0, 5.5, 5.5]
    )
    with pytest.raises(Exception, match="is three"):
        jax.block_until_ready(f(jnp.array([4.0, 0.5, 9.0, 1.5, 2.0])))


@pytest.mark.core("jit", "memory", "memory in jit", "memory mapped")
@pytest.mark.parametrize(
    ("option", "outer", "fix"),
    [
        ({"chunk": {"n": 4}}, jax.jit, r"cut that: @jitney.optimize\(chunk={'n': 4}\) in place"),
        ({"memory": 10**9}, jax.jit, r"cut that: @jitney.optimize\(memory=1000000000\) in"),
        ({"chunk": {"n": 4}}, lambda f: jax.hessian(f), r"take them with `\.hessian`"),
        ({"memory": 10**9}, lambda f: jax.grad(f), r"take its derivative with `\.grad`"),
        ({"memory": 10**9}, jax.vmap, "map over it with"),
    ],
    ids=["jit", "memory in jit", "two derivatives", "memory", "memory mapped"],
)
def test_under_outer_transforms_that_it_does_not_act_in_it_is_told_of_the_remedy(
    option, outer, fix
):
    """And the numbers are those of the plain function."""

    def total(x: Float[Array, "n"]):
        return jnp.sum(x**2)

    x = rows(3, 20) if outer is jax.vmap else rows(20)
    with pytest.warns(JitneyWarning, match=f"not cut into chunks(.|\n)*{fix}"):
        out = outer(optimize(**option)(total))(x)
    np.testing.assert_allclose(out, outer(total)(x), rtol=1e-5)


def test_a_gradient_inside_is_chunked():
    """The gradient for what does not have the axis is a sum over the chunks."""

    @optimize(chunk={"n": 8})
    def gradient(
        w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
    ) -> Float[Array, "k"]:
        return jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)

    w, x, y = rows(3), rows(20, 3), rows(20)
    np.testing.assert_allclose(gradient(w, x, y), 2 * x.T @ (x @ w - y) / 20, rtol=1e-4)


def test_results_may_hold_the_size():
    """The size of the call, not that of a chunk."""

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]):
        return x.sum(), x.shape[0], x.shape

    assert f(np.ones(5, np.float32))[1:] == (5, (5,))


def test_a_number_made_of_the_size_is_no_result():
    """It would be an array here and a number there."""

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]):
        return x.sum(), x.shape[0] + 0.0

    with pytest.raises(AxisError, match="a Python number made of its size"):
        f(np.ones(5, np.float32))


def test_without_jit_nothing_is_cut():
    """Inside `jax.disable_jit` the body sees the whole arrays, as values."""
    seen = []

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        seen.append(x)
        return jnp.sum(x)

    with jax.disable_jit():
        assert float(f(np.ones(5, np.float32))) == 5
    assert [x.shape for x in seen] == [(5,)]


def test_methods_and_statics():
    """A module with a chunked method, and a static argument."""

    class Model(eqx.Module):
        w: Array

        @optimize(chunk={"n": 4}, static="power")
        def loss(self, x: Float[Array, "n k"], power: int) -> Float[Array, ""]:
            return jnp.sum((x @ self.w) ** power)

    w, x = rows(3), rows(9, 3)
    for power in (1, 2):
        np.testing.assert_allclose(
            Model(jnp.asarray(w)).loss(x, power), ((x @ w) ** power).sum(), rtol=1e-4
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": {"m": 4}}, "'m', which is not an axis"),
        ({"chunk": 4}, "does not say which axis"),
        ({"chunk": {"n": 0}}, "does not say which axis"),
        ({"chunk": {"n": True}}, "does not say which axis"),
        ({"chunk": {"n": 4, "k": 4}}, "cuts several axes"),
        ({"chunk": {"n": 4}, "pad": {"n": "pow2"}}, "together are not supported yet"),
        ({"chunk": {"n": 4}, "memory": "2GiB"}, "says it already"),
        ({"chunk": {"n": "auto"}, "memory": "much"}, "is not a size"),
        ({"chunk": {"n": "auto"}, "memory": -1}, "is not a size"),
    ],
)
def test_options_that_cannot_be_are_refused_at_decoration(options, message):
    """With a sentence and a fix."""
    with pytest.raises(OptionError, match=message):
        optimize(**options)(residual)


def test_what_is_wrong_at_any_size_is_its_own_error():
    """Not one of the axis."""

    @optimize(chunk={"n": 4})
    def f(x: Float[Array, "n"], y: Float[Array, "m"]) -> Float[Array, ""]:
        return jnp.sum(x) + jnp.dot(y, jnp.ones(y.shape[0] + 1))

    with pytest.raises(TypeError, match="dot_general"):
        f(np.ones(9, np.float32), np.ones(3, np.float32))


def test_a_split_of_another_axis_gathers_nothing():
    """The gates of a recurrent cell are slices, as in plain JAX: gathers are copies, which cost a
    GRU a twentieth of its time.
    """

    def gates(x: Float[Array, "n k"]) -> Float[Array, "n j"]:
        a, b = jnp.split(x, 2, axis=1)
        return jnp.tanh(a) * b

    assert "gather" not in optimize(chunk={"n": 4})(gates).lower(jnp.ones((9, 6))).as_text()


@pytest.mark.parametrize("sizes", [(5, 10), (10, 5)])
@pytest.mark.parametrize("way", ["chunk", "auto", "grad", "stream", "accumulate"])
def test_an_axis_of_two_sizes_is_not_cut_though_nothing_is_checked(sizes, way):
    """With `contracts=False` too: a chunk is so many elements of each array, and the rest of the
    longer one would be left out.
    """

    def both(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x) + jnp.sum(y)

    unchecked = optimize(contracts=False)(both)
    x, y = (np.ones(n, np.float32) for n in sizes)
    calls = {
        "chunk": lambda: optimize(contracts=False, chunk={"n": 2})(both)(x, y),
        "auto": lambda: optimize(contracts=False, chunk={"n": "auto"})(both)(x, y),
        "grad": lambda: optimize(contracts=False, chunk={"n": 2})(both).grad(x, y),
        "stream": lambda: jitney.stream(unchecked, x=x, y=y, chunk={"n": 2}, progress=False),
        "accumulate": lambda: jitney.accumulate(unchecked, axis="n", microbatch=2, wrt="x")(x, y),
    }
    with pytest.raises(
        ContractError, match=f"axis 'n' has two sizes, {sizes[0]} from 'x' and {sizes[1]} from 'y'"
    ):
        calls[way]()


def test_under_memory_an_axis_of_two_sizes_is_no_axis_to_cut():
    """What fits runs, as it does without `memory`."""

    def both(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x) + jnp.sum(y)

    assert optimize(contracts=False, memory="1GiB")(both)(jnp.ones(5), jnp.ones(10)) == 15


@pytest.mark.parametrize("i", [-1, 1, 2, 7])
def test_a_branch_in_a_branch_that_reads_random_keys_runs_at_once(i):
    """Keys are not fed zeros, so nothing can be taken out of the branches; they draw as in plain
    JAX.
    """

    def f(x: Float[Array, "n"], i: Float[Array, ""]) -> Float[Array, ""]:
        keys = jax.random.split(jax.random.key(0), x.shape[0])

        def outer(c):
            draw = lambda c: jax.random.normal(keys[jnp.int32(c)])
            return jax.lax.cond(c > 1, draw, lambda c: c, c)

        return jax.lax.cond(i > 0, outer, lambda c: -c, i) + jnp.sum(x)

    given = np.ones(8, np.float32), np.float32(i)
    np.testing.assert_array_equal(optimize(chunk={"n": 2})(f)(*given), jax.jit(f)(*given))


def test_results_are_weakly_typed_where_those_of_plain_jax_are():
    """What a loop collects of a carry that begins with a Python number: times bfloat16 it is
    bfloat16.
    """

    def sums(x: Float[Array, "n"]):
        total, before = jax.lax.scan(lambda c, v: (c + v, c), 0.0, x)
        return before, total, jnp.where(total > 0, 1.0, 2.0), jnp.mean(x)

    x = jnp.arange(11.0)
    want = jax.jit(sums)(x)
    streamed = optimize(sums).stream(np.asarray(x), chunk={"n": 4}, progress=False).result
    assert [each.weak_type for each in streamed[1:]] == [each.weak_type for each in want[1:]]
    assert streamed[2].weak_type
    for f in (optimize(chunk={"n": 4})(sums), optimize(chunk={"n": 11})(sums)):
        for mine, theirs in zip(f(x), want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)
            assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type)
    pulled = jax.grad(lambda x: optimize(chunk={"n": 4})(sums)(x)[0].sum())(x)
    np.testing.assert_array_equal(pulled, np.arange(10, -1, -1))
