"""Programs that are made from traces at known sizes, where no trace with symbolic sizes goes
through: of Python that looks at a size, and of closed primitives.
"""

import functools
import math
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array, Float

import jitney
from jitney._axes import Refused, demand, trace
from jitney._axes.dims import evaluate
from jitney._axes.unified.fitted_dims import fit_dim

KEY = jax.random.wrap_key_data(np.uint32([0, 7]))
RANGES = {"d0": (5, 8)}
SIZES = (5, 6, 7, 8, 11, 12, 16)


def data(n):
    return np.random.default_rng(n).normal(size=n).astype(np.float32)


def padded(fn, buckets=(16,)):
    """The function, padded, as people call it."""

    def given(x: Float[Array, "n"]):
        return fn(x)

    return jitney.optimize(pad={"n": list(buckets)})(given)


def check(program, fn, sizes=SIZES):
    """Each result is that of plain JAX; return the sizes at which padding was refused."""
    refused = []
    for n in sizes:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = program(data(n))
        want = jax.jit(fn)(data(n))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type), n
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"size {n}")
        fill = next(d for d in program.plan(data(n)).to_dict()["decisions"] if d["name"] == "fill")
        if not fill["taken"] or any(issubclass(w.category, jitney.JitneyWarning) for w in caught):
            refused.append(n)
    return refused


UNIFIED = {
    "NumPy": lambda x: x * np.hanning(len(x)).astype(np.float32),
    "a number of the size": lambda x: x * float(len(x)) ** 0.5,
    "text": lambda x: x * float(f"{len(x)}.5"),
    "a number for nothing": lambda x: (x * 2, x[:0] * float(f"{len(x)}.5")),
    "half": lambda x: x[: len(x) // 2],
    "two thirds": lambda x: x[: int(len(x) * 2 / 3)],
    "a shuffle of NumPy's": lambda x: x[np.random.RandomState(len(x)).permutation(len(x))],
    "a position": lambda x: x.at[len(x) // 2].set(1.0) - x[len(x) - 1],
    "a condition that holds at all sizes": lambda x: x if len(x) > 3 else -x,
    "a loop of a few turns": lambda x: sum((x * i * len(x) for i in range(3)), x),
    "a loop over the size": lambda x: jax.lax.fori_loop(
        0, len(x), lambda i, c: c.at[i].add(c[i - 1] / 2), x
    ),
    "a triangle": lambda x: jnp.asarray(np.tri(len(x), dtype=np.float32)) @ x,
    "a gradient": jax.grad(lambda x: jnp.sum(x**2 * np.linspace(0, 1, len(x)).astype(x.dtype))),
    "shuffle": lambda x: jax.random.permutation(KEY, x),
    "a key of the size": lambda x: x + jax.random.normal(jax.random.key(len(x)), x.shape),
    "up to a length": lambda x: jnp.sum(jnp.pad(x, (0, 16 - len(x))) ** 2),
    "a branch": lambda x: jax.lax.cond(x[0] > 0, lambda v: v * len(v), jnp.sin, x),
    "a scan": lambda x: jax.lax.scan(lambda c, v: (c + v, c * len(x)), jnp.float32(0), x),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x) * len(x)),
}


@pytest.mark.core("NumPy", "a shuffle of NumPy's")
@pytest.mark.parametrize("name", UNIFIED)
def test_python_that_looks_at_sizes_is_padded(name):
    """Each size in the program of its bucket, equal to plain JAX."""
    program = padded(UNIFIED[name])
    assert check(program, UNIFIED[name]) == []
    assert "traced at sizes" in str(program.plan(data(8)))


CLIPPED = {
    "the first": lambda x: x[: min(len(x), 22)],
    "the last": lambda x: x[max(len(x) - 22, 0) :],
    "fewer than all": lambda x: x[: min(len(x) - 2, 22)] * min(len(x) - 2, 22),
    "the largest": lambda x: jax.lax.top_k(x, min(22, len(x)))[0],
    "at least": lambda x: jnp.pad(x, (0, max(0, 22 - len(x)))),
    "one or the last": lambda x: jnp.sin(x.at[min(len(x), 22) - 1].set(1.0)),
    "a window": lambda x: jnp.sin(x)[: min(len(x), 22)] * np.hanning(min(len(x), 22)),
    "turns": lambda x: jax.lax.fori_loop(0, min(len(x), 22), lambda i, c: c + x[i], jnp.float32(0)),
    "twice": lambda x: x[: min(len(x), 22)] + jnp.sin(x)[: min(len(x), 22)] * jnp.sum(x),
}


@pytest.mark.core("the first-*", "the largest-*")
@pytest.mark.parametrize("first", [30, 18])
@pytest.mark.parametrize("name", CLIPPED)
def test_a_size_up_to_a_number_is_one_program(name, first):
    """On both sides of the number; JAX writes no slice where the whole array is kept."""
    program = padded(CLIPPED[name], (16, 32))
    assert check(program, CLIPPED[name], (first, 21, 22, 23, 27, 32)) == []
    assert program.stats.compiles <= 1


def test_an_axis_of_exact_size_may_be_as_long_as_its_bucket():
    """The bucket of n ends at 6, below its size; such a call was looked up without end."""

    def product(x: Float[Array, "n m"]):
        return x[:6].T @ x[-6:]

    program = jitney.optimize(pad={"n": [9], "m": [16]})(product)
    for n, m in ((8, 12), (9, 5), (9, 12), (5, 9)):
        x = data(n * m).reshape(n, m)
        with warnings.catch_warnings(action="ignore"):
            got = program(x)
        np.testing.assert_allclose(got, x[:6].T @ x[-6:], rtol=1e-4, atol=1e-5)


FITTED = {
    "not n // 5 + 14": ((30, 17, 32), lambda n: min(n, 20)),
    "fewer": ((30, 17, 32), lambda n: min(n - 1, 18)),
    "not n // 2 - 2": ((8, 5, 7), lambda n: max(n - 6, 0)),
    "not 10 - n // 3": ((30, 17, 32), lambda n: max(22 - n, 0)),
    "at least": ((30, 17, 32), lambda n: max(n, 21)),
    "two thirds": ((31, 17, 32), lambda n: 2 * n // 3),
    "half": ((30, 17, 32), lambda n: n // 2),
    "half of a few": ((5, 8, 7), lambda n: n // 2),
}


@pytest.mark.parametrize("name", FITTED)
def test_of_several_expressions_the_simplest_is_taken(name):
    """It is right at all sizes, not just at those that were tried."""
    sizes, of = FITTED[name]
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 2", "n <= 64"])
    found = fit_dim([of(size) for size in sizes], [{"n": size} for size in sizes], {"n": n})
    assert [evaluate(found, {"n": k}) for k in range(2, 65)] == [of(k) for k in range(2, 65)]


def test_a_binary_search_may_unroll_as_many_turns_as_it_has():
    """Each size of a length of the search in one program; 4 and 5 turns are two programs."""

    def places(x):
        return jnp.searchsorted(jnp.sort(x), jnp.float32([-1, 0, 1]), method="scan_unrolled")

    assert check(padded(places, (32,)), places, (16, 17, 23, 30)) == []


def test_a_middle_element_of_few_sizes_is_padded():
    """Three sizes beside each other are also on a square, which says less than the quotient."""

    def middle(x):
        return x[len(x) // 2]

    assert check(padded(middle, (2, 4, 8)), middle, sizes=(2, 3, 4, 5, 6, 8)) == []


def test_a_plan_refuses_a_size_in_a_result_as_the_call_does():
    """Exact size in both, with what to write: as an array it is a result like any other."""
    program = padded(lambda x: (jnp.sum(x), len(x)))
    (fill,) = (d for d in program.plan(data(6)).to_dict()["decisions"] if d["name"] == "fill")
    assert "returns something besides arrays that depends on the size" in fill["why"]
    with pytest.warns(jitney.JitneyWarning, match=r"jnp\.asarray"):
        assert program(data(6))[1] == 6

    program = padded(lambda x: (jnp.sum(x), jnp.asarray(len(x))))
    assert [int(program(data(n))[1]) for n in (6, 7)] == [6, 7]
    assert program.stats.traces == 1


ONE_SIZE = 11
GUESSED_WRONG = {
    "a branch for one size": lambda x: x + 1 if len(x) == ONE_SIZE else x - 1,
    "parity": lambda x: x * 2 if len(x) % 2 else x * 3,
    "divisible by three": lambda x: x[::-1] if len(x) % 3 == 0 else x,
    "a power of two": lambda x: -x if len(x) & (len(x) - 1) == 0 else x,
    "a table": lambda x: x * {ONE_SIZE: 2.0}.get(len(x), 1.0),
    "a length that is a line at most sizes": lambda x: x[: len(x) - (len(x) == ONE_SIZE)],
    "a position that is a line at most sizes": lambda x: x[len(x) - 1 - (len(x) == ONE_SIZE)],
    "an axis": lambda x: jnp.sum(jnp.stack([x, x * x], axis=len(x) == ONE_SIZE), axis=0),
    "an order": lambda x: jnp.sort(x, descending=len(x) == ONE_SIZE),
    "turns of a loop": lambda x: jax.lax.fori_loop(
        0, 3 + (len(x) == ONE_SIZE), lambda i, c: c * 1.1, x
    ),
    "a promise": lambda x: (
        jnp.zeros(4, x.dtype)
        .at[np.array([1, 1 if len(x) == ONE_SIZE else 2])]
        .add(x[:2], unique_indices=len(x) != ONE_SIZE)
    ),
    "a number inside of a loop": lambda x: jax.lax.scan(
        lambda c, v: (c + v * math.cos(len(x)), c), jnp.float32(0), x
    )[1],
    "a number in one branch": lambda x: jax.lax.cond(
        x[0] > 0, lambda v: v * math.sin(len(v)), lambda v: v, x
    ),
    "a dtype": lambda x: x.astype(jnp.bfloat16 if len(x) == ONE_SIZE else x.dtype),
    "another constant of the same form": lambda x: (
        x + np.where(np.arange(len(x)) == 7, 5, 0).astype(np.float32)
    ),
    "fewer turns of a loop at larger sizes": lambda x: jax.lax.scan(
        lambda c, _: (c * 1.1, None), x, None, length=20 - len(x)
    )[0],
    "a function called twice, with a number each": lambda x: (
        jax.jit(lambda v, k: v * k, static_argnums=1)(x, 1 / len(x))
        + jax.jit(lambda v, k: v * k, static_argnums=1)(x, 2 / len(x))
    ),
}


@pytest.mark.core("a branch for one size", "turns of a loop")
@pytest.mark.parametrize("name", GUESSED_WRONG)
def test_a_program_that_is_wrong_at_a_size_is_not_used_there(name):
    """The trace of that size shows it; what it shows no difference in is right."""
    for first in (5, ONE_SIZE, 12):
        program = padded(GUESSED_WRONG[name])
        check(program, GUESSED_WRONG[name], (first, *SIZES))


def test_a_message_with_a_size_in_it_is_not_that_of_another_size(capsys):
    """A callback is made anew at each size, and may hold it."""

    def body(x):
        jax.debug.print(f"length {len(x)}: {{}}", jnp.sum(x * 0))
        return x * np.ones(len(x), np.float32)

    program = padded(body)
    for n in (5, 6, 7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jitney.JitneyWarning)
            program(data(n)).block_until_ready()
        jax.effects_barrier()
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("length")]
    assert [line.partition(":")[0] for line in printed] == ["length 5", "length 6", "length 7"]


def test_a_callback_that_holds_a_size_is_not_that_of_another_size():
    """Even where it is given nothing of the axis."""

    def body(x):
        n = len(x)
        shape = jax.ShapeDtypeStruct((), np.float32)
        seen = jax.pure_callback(lambda k: np.float32(k + n), shape, np.float32(0))
        return x * seen * np.ones(n, np.float32)

    check(padded(body), body, (5, 6, 7))


def test_a_check_whose_message_tells_a_size_is_refused():
    """Each size has a message of its own."""

    def body(x):
        x = eqx.error_if(x, jnp.sum(x) > 1e9, f"too large for {len(x)} points")
        return x * np.ones(len(x), np.float32)

    assert check(padded(body), body, (5, 6)) == [5, 6]


def test_code_that_does_as_many_operations_as_its_size_says_says_so():
    """Both ways are told."""
    with pytest.warns(jitney.JitneyWarning, match="as many operations as its size says"):
        padded(lambda x: sum(x[i] for i in range(len(x))))(data(5))


def test_shapes_that_JAX_cannot_tell_equal_run_exact():
    """Cotangents of an element in the middle: JAX asserts that their shapes are equal."""

    @jitney.optimize(pad={"n": "pow2"})
    def middle(x: Float[Array, "n"]) -> Float[Array, "n"]:
        def total(e):
            take = lambda c, _: (c, e[e.shape[0] // 2])
            return jnp.sum(jax.lax.scan(take, 0, jnp.arange(2))[1])

        return jax.grad(total)(x)

    with pytest.warns(
        jitney.errors.PaddingWarning, match="by numbers that JAX cannot have as symbols"
    ):
        found = middle(np.ones(5, np.float32))
    np.testing.assert_array_equal(found, [0, 0, 2, 0, 0])


def test_two_sizes_are_told_apart():
    """A number of one axis, and one of both."""

    def body(x: Float[Array, "n"], y: Float[Array, "m"]):
        table = np.outer(np.arange(len(x)), np.arange(len(y))).astype(np.float32)
        return x @ jnp.asarray(table) @ y / (len(x) * float(len(y)) + len(x))

    program = jitney.optimize(pad={"n": [8], "m": [8]})(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jitney.JitneyWarning)
        for n, m in ((5, 6), (6, 5), (7, 7), (3, 8)):
            got, want = program(data(n), data(m)), jax.jit(body)(data(n), data(m))
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert program.stats.compiles <= 1


CHUNKED = {
    "equal numbers": lambda x: jnp.sum(x * np.ones(len(x), np.float32) * len(x)),
    "a window": lambda x: x * np.hanning(len(x)).astype(np.float32),
    "a window of the rest": lambda x: x[1:] * np.hanning(len(x) - 1).astype(np.float32),
    "a table": lambda x: x @ np.vander(np.arange(len(x)) / len(x), 3).astype(np.float32),
    "a loop over the axis": lambda x: jax.lax.scan(
        lambda c, v: (c + v[0] * v[1], c), x[0], (x, np.hanning(len(x)).astype(np.float32))
    )[1],
    "a branch": lambda x: jax.lax.cond(
        x[0] > 0, lambda v: v * np.hanning(len(v)).astype(np.float32), jnp.sin, x
    ),
    "a shuffle": lambda x: x[np.random.RandomState(len(x)).permutation(len(x))],
    "groups": lambda x: jax.ops.segment_sum(x, np.arange(len(x)) ** 2 % 3, 3),
    "half": lambda x: jnp.sum(x[: len(x) // 2]),
}


@pytest.mark.core("a window")
@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_and_streams_read_their_part_of_what_python_computes(name):
    """The sum of all results, and its gradient."""
    fn = CHUNKED[name]

    def loss(x: Float[Array, "n"]):
        return jnp.sum(jnp.sin(fn(x)))

    for n in (12, 13):
        x = data(n)
        want = jax.jit(jax.value_and_grad(loss))(x)
        chunked = jitney.optimize(chunk={"n": 4})(loss).value_and_grad.program(wrt="x")(x)
        stream = jitney.stream(jitney.optimize(loss), x=x, chunk={"n": 4}, progress=False)
        for got, exact in ((chunked, want), (stream.result, want[0])):
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), got, exact)


def test_a_square_of_what_python_computes_is_not_cut():
    """It has the axis twice."""

    def triangle(x: Float[Array, "n"]):
        return jnp.asarray(np.tri(len(x), dtype=np.float32)) @ x

    with pytest.raises(jitney.JitneyError, match="makes an array with n and n elements"):
        jitney.optimize(chunk={"n": 4})(triangle)(data(12))


def closed(impl):
    """A primitive of another package, with this implementation."""
    primitive = Primitive("closed")
    primitive.def_impl(impl)
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(impl, multiple_results=False))
    batching.defvectorized(primitive)
    return primitive.bind


def test_a_closed_primitive_is_expanded_where_JAX_can_trace_it():
    """Its rule is that of what it computes."""
    centred = closed(lambda x: x - jnp.mean(x))
    body = lambda x: centred(x) * 2
    assert check(padded(body), lambda x: (x - jnp.mean(x)) * 2) == []


def test_a_result_of_a_closed_primitive_that_nothing_reads_may_differ():
    """What it computes for that result alone is as many operations as the size says; the traces
    are unified by what is read.
    """
    primitive = Primitive("closed")

    def doubled(x):
        return [2 * x, functools.reduce(lambda y, _: jnp.sin(y), range(x.shape[0]), x)]

    primitive.def_impl(doubled)
    primitive.def_abstract_eval(lambda x: [x, x])
    primitive.multiple_results = True
    mlir.register_lowering(primitive, mlir.lower_fun(doubled, multiple_results=True))

    def body(x):
        return primitive.bind(x)[0] * np.hanning(len(x)).astype(np.float32)

    assert check(padded(body), body, (6, 7, 11, 16)) == []


def test_a_closed_primitive_that_JAX_cannot_trace_is_refused():
    """It has no rule, as before."""
    flipped = closed(lambda x: np.flip(np.asarray(x)))
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    with pytest.raises(Refused, match="`closed` has no rule"):
        demand(trace(lambda x: [flipped(x)], avals, RANGES, {"d0": 6}).jaxpr, RANGES)


def test_least_squares_of_as_many_rows_as_the_size_says():
    """The reflectors of a padded matrix leave its padding alone. In the first bucket there are
    sizes with fewer rows than columns.
    """

    def solve(x):
        matrix = jnp.stack([jnp.ones_like(x), x, x**2], 1)
        return lx.linear_solve(lx.MatrixLinearOperator(matrix), jnp.sin(x), lx.QR()).value

    program = padded(solve, (8, 32))
    assert check(program, solve, (5, 11, 16, 31)) == [5]


@pytest.mark.core("value-tridiagonal")
@pytest.mark.parametrize("name", ["LU", "tridiagonal"])
@pytest.mark.parametrize("of", ["value", "gradient"])
def test_linear_solves_along_the_axis(name, of):
    """Of lineax, whose primitive is closed."""

    def solve(x):
        if name == "LU":
            matrix = 3 * jnp.eye(x.shape[0], dtype=x.dtype) + jnp.outer(x, x) / x.shape[0]
            return lx.linear_solve(lx.MatrixLinearOperator(matrix), x, lx.LU()).value
        operator = lx.TridiagonalLinearOperator(4 + x * x, x[1:] / 9, x[:-1] / 9)
        return lx.linear_solve(operator, x, lx.Tridiagonal()).value

    fn = solve if of == "value" else jax.grad(lambda x: jnp.sum(solve(x) ** 2))
    assert check(padded(fn), fn, (5, 6, 8, 16)) == []


def test_a_function_that_is_applied_in_place_may_hold_the_size():
    """It is a parameter of the scatter, and no operand."""

    def scaled(x):
        return x.at[0].apply(lambda v: v * np.float32(len(x)))

    f = padded(scaled)
    with pytest.warns(jitney.errors.PaddingWarning, match="applies a function that its size"):
        firsts = [f(data(n))[0] for n in (5, 6)]
    np.testing.assert_allclose(firsts, [data(n)[0] * n for n in (5, 6)], rtol=1e-6)


def test_a_length_is_first_the_expression_that_a_rule_of_jax_made():
    """JAX makes (n - 1) // 2 + 1 elements, Python n // 2 + 1: as many for odd n alone."""

    def halved(x: Float[Array, "n"]):
        every_second = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1,), (2,), "VALID")
        return every_second * jnp.arange(len(x) // 2 + 1).astype(x.dtype)

    program = jitney.optimize(pad={"n": "pow2"})(halved)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (21, 31, 17):
            x = np.arange(n, dtype=np.float32)
            np.testing.assert_allclose(program(x), halved(x), rtol=1e-6)
    assert program.stats.compiles == 1


@pytest.mark.parametrize("first", [20, 5])
def test_a_list_of_buckets_begins_before_the_slices_of_a_body(first):
    """Nothing is three elements shorter at size 2, so the program begins at a size that was traced;
    smaller ones run as in NumPy, after it and before it.
    """

    def inner(x: Float[Array, "n"]) -> Float[Array, "m"]:
        return x[: len(x) - 3 + len(x) % 2] if len(x) > 2 else x[:1]

    f = jitney.optimize(pad={"n": [32]}, cache=False)(inner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.errors.PaddingWarning)
        for n in (first, 22, 24, 2, 21, 3, 4, 32, 31):
            x = np.arange(1, n + 1, dtype=np.float32)
            np.testing.assert_array_equal(f(x), inner(x))
    assert f.stats.compiles <= 7


def test_the_plan_says_from_which_size_a_program_begins():
    """Its least example has 3 elements, and the bucket begins at 2."""

    def inner(x: Float[Array, "n"]) -> Float[Array, "m"]:
        return x[: len(x) - 3 + len(x) % 2] if len(x) > 2 else x[:1]

    f = jitney.optimize(pad={"n": [32]}, cache=False)(inner)
    lines = f.plan(np.zeros(20, np.float32)).to_dict()["decisions"]
    (why,) = (line["why"] for line in lines if line["name"] == "mask")
    assert why.startswith("one program for n from 3 to 32;")


def test_more_results_at_another_size_are_another_program():
    """A refusal, and exact sizes; no error of the comparison."""

    def fn(x):
        return [x * k for k in range(len(x) % 4 + 1)]

    assert check(padded(fn), fn, (5, 6, 7, 8))
