"""`pad=`: sizes share the program of their bucket, and every number is that of the exact size."""

import copy
import math
import pickle
import threading
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int, Key, PyTree

import jitney
from jitney import Bucket, JitneyWarning, optimize
from jitney.errors import ContractError, OptionError
from tests._examples import examples
from tests._tracing import count_traces

RNG = np.random.default_rng(0)


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def shares(
    t: Float[Array, "n"], y: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Elements divided by a sum, and a mean."""
    r = jnp.exp(-t) - y
    return r / jnp.sum(r * r), jnp.mean(r)


def affine(w: Float[Array, "k m"], x: Float[Array, "k"]) -> Float[Array, "m"]:
    return jnp.tanh(x @ w)


@optimize(pad={"n": "pow2"})
def padded_shares(
    t: Float[Array, "n"], y: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    return shares(t, y)


class Decay(eqx.Module):
    """A module with a padded method."""

    rate: Float[Array, ""]

    @optimize(pad={"n": [4, 16]})
    def __call__(self, t: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.cumsum(jnp.exp(-self.rate * t))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(0, 70), on_device=st.booleans())
@examples(
    {"n": 0, "on_device": False},
    {"n": 1, "on_device": False},
    {"n": 1, "on_device": True},
    {"n": 2, "on_device": False},
    {"n": 4, "on_device": True},  # a whole bucket
    {"n": 5, "on_device": True},  # the first of the next one
    {"n": 5, "on_device": False},
    {"n": 7, "on_device": False},
    {"n": 8, "on_device": True},
    {"n": 70, "on_device": True},
)
def test_any_size_equals_exact(n, on_device):
    """NumPy or device arrays, empty and single ones too; results have the true size."""
    t, y = rows(n), rows(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        r = np.exp(-t) - y
        expected = r / np.sum(r * r), (np.mean(r) if n else np.float32(np.nan))
    got = padded_shares(*(map(jnp.asarray, (t, y)) if on_device else (t, y)))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-4, atol=1e-6)


def test_elementwise_results_are_equal_to_the_bit():
    """Padding does not touch what stands alone."""

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sin(x) * jnp.exp(-x) / (1 + x * x)

    x = rows(77)
    assert np.array_equal(optimize(pad={"n": "pow2"})(f)(x), jax.jit(f)(x))


def test_many_sizes_compile_few_programs():
    """As many as the powers of two between them, and one for size 1."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x * x)

    sizes = RNG.integers(1, 100_001, 200)
    for n in sizes:
        x = np.full(n, 0.5, np.float32)
        assert abs(float(f(x)) - n / 4) <= n * 1e-5
    assert f.stats.compiles <= math.ceil(math.log2(100_000)) + 1
    assert sum(f.stats.sizes["n"].values()) == np.count_nonzero(sizes > 1)


def test_sizes_in_one_bucket_share_one_trace():
    """5, 6 and 7 rows pad to 8; an axis that is mapped over needs no proof, so the body is traced
    once.
    """
    body = count_traces(affine)
    f = optimize(vmap="batch", pad={"batch": "pow2"})(body)
    w = rows(3, 2)
    for n in (5, 6, 7):
        x = rows(n, 3)
        np.testing.assert_allclose(f(w, x), np.tanh(x @ w), rtol=1e-5)
    assert body.traces == 1


def test_two_padded_axes_and_a_mapped_one():
    """Each axis has its ladder; an argument may be longer by one."""

    @optimize(vmap="fit", pad={"points": [10, 20], "fit": Bucket(multiple=4)})
    def f(
        a: float, t: Float[Array, "points"], y: Float[Array, "points+1"]
    ) -> Float[Array, "points"]:
        return jnp.cumsum(t) * a + jnp.mean(y)

    for points, fits in ((7, 3), (9, 4), (15, 5), (10, 1), (30, 3)):
        t, y = rows(fits, points), rows(fits, points + 1)
        expected = np.cumsum(t, 1) * 2 + y.mean(1, keepdims=True)
        np.testing.assert_allclose(f(2.0, t, y), expected, rtol=1e-4, atol=1e-5)
    assert f.stats.compiles == 4


def test_methods_and_pytrees():
    """A method of a module, and a tree of arrays that share an axis."""
    model, t = Decay(jnp.array(0.5)), rows(7)
    np.testing.assert_allclose(model(t), np.cumsum(np.exp(-0.5 * t)), rtol=1e-5)

    @optimize(pad={"n": "pow2"})
    def norm(data: PyTree[Float[Array, "n"]]) -> Float[Array, ""]:
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(data))

    data = {"a": rows(5), "b": (rows(5), rows(5))}
    np.testing.assert_allclose(
        norm(data), sum((x**2).sum() for x in jax.tree.leaves(data)), rtol=1e-5
    )


def test_a_decision_by_size_runs_exact_and_warns_once():
    """The warning names the line; other sizes of the bucket do not warn again."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * 2 if x.shape[0] == 6 else x

    with pytest.warns(
        JitneyWarning,
        match=r"'n' cannot be padded here: test_pad.py:\d+ \(f\) compares the size n with 6",
    ) as caught:
        np.testing.assert_array_equal(f(np.ones(6, np.float32)), np.full(6, 2))
    np.testing.assert_array_equal(f(np.ones(7, np.float32)), np.ones(7))
    np.testing.assert_array_equal(f(np.ones(6, np.float32)), np.full(6, 2))
    np.testing.assert_array_equal(f(np.ones(12, np.float32)), np.ones(12))
    assert [Path(warning.filename).name for warning in caught] == ["test_pad.py"]


@pytest.mark.parametrize(
    "made",
    [lambda x: (x, x.shape[0]), lambda x: (x, str(x.dtype) * (len(x.shape) + 0 * x.ndim), x.shape)],
)
def test_sizes_in_a_result_run_exact(made):
    """A result that holds the size as a Python number cannot come from a program for several
    sizes.
    """

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        return made(x)

    with pytest.warns(JitneyWarning, match="depends on the size"):
        assert f(np.ones(5, np.float32))[-1] in (5, (5,))


def test_a_size_in_the_structure_of_a_result_runs_exact():
    """As a static field of a module."""

    class Held(eqx.Module):
        x: Array
        size: int = eqx.field(static=True)

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        return Held(x, x.shape[0])

    with pytest.warns(JitneyWarning, match="cannot be padded"):
        assert f(np.ones(5, np.float32)).size == 5


def test_results_may_hold_more_than_arrays():
    """What does not depend on the size stays."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        return {"x": x, "name": "a", "fn": jnp.sin, "none": None}

    out = f(np.ones(5, np.float32))
    assert out["x"].shape == (5,)
    assert (out["name"], out["fn"], out["none"]) == ("a", jnp.sin, None)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*not padded inside an outer")
def test_outer_transforms_see_the_numbers_of_a_plain_function():
    """Under grad and vmap, which are padded, and under jit, which is not."""
    t, y = rows(5), rows(5)
    for outer in (
        lambda f: jax.grad(lambda t: f(t, y)[1]),
        lambda f: lambda t: jax.jit(f)(t, y),
        lambda f: lambda t: jax.vmap(f, (None, 0))(t, jnp.stack([y, t])),
    ):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
            outer(padded_shares)(t),
            outer(shares)(t),
        )


def test_without_jit_nothing_is_padded():
    """Inside `jax.disable_jit`, before and after the first call, the body sees the arrays as they
    are.
    """
    f = optimize(pad={"n": "pow2"})(copy_of(shares))
    t, y = rows(5), rows(5)
    for _ in range(2):
        with jax.disable_jit():
            np.testing.assert_allclose(f(t, y)[1], (np.exp(-t) - y).mean(), rtol=1e-4)
        np.testing.assert_allclose(f(t, y)[1], (np.exp(-t) - y).mean(), rtol=1e-4)


@pytest.mark.rest
def test_a_padded_derivative():
    """A derivative inside the body is padded as what it is: a shared parameter gets no NaN from the
    padding.
    """

    def loss(
        w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
    ) -> Float[Array, ""]:
        return jnp.mean(jnp.sqrt((x @ w - y) ** 2 + 1e-3) / jnp.linalg.norm(x, axis=1))

    @optimize(pad={"n": "pow2"})
    def gradient(
        w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
    ) -> Float[Array, "k"]:
        return jax.grad(loss)(w, x, y)

    w, x, y = rows(3), rows(11, 3), rows(11)
    np.testing.assert_allclose(gradient(w, x, y), jax.grad(loss)(w, x, y), rtol=1e-4, atol=1e-6)
    assert "n" in gradient.stats.sizes


def test_compile_ahead_serves_the_bucket():
    """Compiled for 1,000: a call with 900 neither traces nor compiles."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    f.compile(sizes={"n": 1000})
    before = f.stats
    assert float(f(np.ones(900, np.float32))) == 900
    assert (f.stats.traces, f.stats.compiles) == (before.traces, before.compiles)


def test_the_plan_tells_buckets_and_facts():
    """What is padded to what, and what each operation does along the axis; or why not, with the
    line.
    """

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"], bad: bool = False):
        return jnp.fft.fft(x) if bad else jnp.sum(jnp.sort(x)[:2])

    lines = {d["name"]: d for d in f.plan(sizes={"n": 100}).to_dict()["decisions"]}
    assert lines["fill"]["taken"]
    assert "n 100 -> 128 (28% padding)" in lines["fill"]["why"]
    assert "sorted" in lines["axis n"]["why"]
    lines = {d["name"]: d for d in f.plan(sizes={"n": 100}, bad=True).to_dict()["decisions"]}
    assert not lines["fill"]["taken"]
    assert "test_pad.py" in lines["fill"]["why"]
    assert "transforms along it" in lines["axis n"]["why"]


def test_axes_tells_the_facts():
    """Of every named axis, padded or not."""

    @optimize(vmap="fit")
    def f(w: Float[Array, "k"], x: Float[Array, "n k"]) -> Float[Array, "n"]:
        return jax.nn.softmax(x @ w)

    facts = jitney.analysis.axes(f, sizes={"n": 10, "k": 3, "fit": 2})
    assert facts["fit"].kind == "mapped"
    assert facts["k"].kind == "contracted"
    assert facts["n"].kind == "reduced"
    assert {use.how for use in facts["n"].uses} == {"max", "sum"}
    assert (facts["n"].levels, facts["k"].levels) == (2, 1)
    assert "n: reduced in 2 levels: max (test_pad.py" in str(facts)
    assert all(use.place.startswith("test_pad.py") for use in facts["n"].uses)
    assert jitney.analysis.axes(optimize(shares), sizes={"n": 9})["n"].refused is None
    with pytest.raises(ContractError, match="has a name"):
        jitney.analysis.axes(optimize(lambda x: x), jnp.ones(3))


def test_padding_is_counted():
    """Sizes seen, and how much was padded; a ladder can be fitted to them."""
    f = optimize(pad={"n": "pow2"})(copy_of(shares))
    for n in (5, 6, 6):
        f(rows(n), rows(n))
    assert f.stats.sizes == {"n": {5: 1, 6: 2}}
    assert f.stats.padding["n"] == pytest.approx(24 / 17 - 1)
    assert "2 sizes padded by 41.2% on average" in str(f.stats)
    assert Bucket.fit(f.stats.sizes["n"]).sizes == (5, 6)


def copy_of(fn):
    def twin(t: Float[Array, "n"], y: Float[Array, "n"]):
        return fn(t, y)

    return twin


def test_weakly_typed_arrays_compute_as_they_are():
    """A weak float32 with bfloat16 gives bfloat16, padded too, though NumPy knows no weak types."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * y

    weak = jnp.full(5, 1.5)
    y = jnp.ones(5, jnp.bfloat16)
    assert weak.weak_type
    assert f(weak, y).dtype == (weak * y).dtype == jnp.bfloat16
    with pytest.raises(Exception, match="promotion"):
        f(jnp.asarray(np.asarray(weak)), y)


def test_keys_are_padded():
    """The draws are those of each key."""

    @optimize(pad={"n": "pow2"})
    def f(keys: Key[Array, "n"]) -> Float[Array, "n"]:
        return jax.vmap(jax.random.uniform)(keys)

    keys = jax.random.split(jax.random.key(0), 5)
    np.testing.assert_array_equal(f(keys), jax.vmap(jax.random.uniform)(keys))
    assert "n 5 -> 8" in str(f.plan(keys))


def test_contracts_hold_at_the_true_size():
    """Two sizes of one axis are an error, although both would pad to one bucket."""
    with pytest.raises(ContractError, match="axis 'n' has two sizes, 5 from 't' and 6 from 'y'"):
        padded_shares(rows(5), rows(6))


def test_donated_arguments_can_be_padded():
    """The buffer that is given up is the padded one."""

    @optimize(pad={"n": "pow2"}, donate="x")
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x + 1

    np.testing.assert_array_equal(f(jnp.ones(5)), np.full(5, 2))


@pytest.mark.core("options0", "options1", "options3", "options4")
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16-all"},
        {"remat": True},
        {"cache": False},
        {"precision": "f64"},
        {"debug_nans": True},
        {"compiler": "fast"},
    ],
)
def test_other_options_compose(options):
    """The same numbers as without padding."""
    t, y = rows(5), rows(5)
    with_pad, without = (
        optimize(pad={"n": "pow2"}, **options)(copy_of(shares)),
        optimize(**options)(copy_of(shares)),
    )
    for a, b in zip(jax.tree.leaves(with_pad(t, y)), jax.tree.leaves(without(t, y)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-2 if "precision" in options else 1e-5, atol=1e-6)


def test_double_precision_has_keys_of_its_own():
    """float64 and float32 arrays of one shape are two programs, and each result has its argument's
    dtype.
    """

    @optimize(pad={"n": "pow2"}, precision="f64")
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x / jnp.sum(x)

    for dtype in (np.float32, np.float64, np.float32):
        x = np.array([1, 2, 3, 1e-9, 4], dtype)
        np.testing.assert_allclose(f(x), x / x.sum(), rtol=1e-6 if dtype is np.float32 else 1e-14)
        assert f(x).dtype == optimize(precision="f64")(f.__wrapped__)(x).dtype


def test_a_refusal_names_the_axis_that_is_meant():
    """Of several padded axes, one of them mapped."""

    @optimize(vmap="fit", pad={"fit": "pow2", "m": "pow2", "n": "pow2"})
    def f(x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        return x * jnp.sum(jnp.ones(20 - x.shape[1]))

    with pytest.warns(JitneyWarning, match=r"makes an array of - n \+ 20 elements"):
        f(rows(3, 5, 7))


def test_run_time_checks_see_valid_elements_only():
    """`eqx.error_if` on a reduction: padding raises nothing, a bad element does."""

    @optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return eqx.error_if(x, jnp.any(jnp.cumsum(x) < 0), "negative")

    x = np.array([5, -1, -1, -1, -1], np.float32)  # -1 repeated would sum below zero
    np.testing.assert_array_equal(f(x), x)
    with pytest.raises(RuntimeError, match="negative"):
        f(-x)


def test_along_a_mapped_axis_rows_of_the_data_are_filled_in():
    """The body runs on what is filled in there: a check that no row of the data fails stays
    silent.
    """

    @optimize(vmap="batch", pad={"batch": "pow2"})
    def inverse(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return 1 / eqx.error_if(x, jnp.any(x == 0), "a division by zero")

    x = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(inverse(x), 1 / x)
    np.testing.assert_array_equal(inverse(jnp.asarray(x)), 1 / x)
    np.testing.assert_array_equal(inverse(x), 1 / x)  # a warm call fills all arrays in one loop
    with pytest.raises(RuntimeError, match="a division by zero"):
        inverse(x - 1)


def test_threads_share_programs():
    """Eight threads, three sizes, one trace of the bucket and the right numbers."""
    f = optimize(pad={"n": "pow2"})(copy_of(shares))
    wrong = []

    def work(n):
        t, y = np.linspace(0, 1, n, dtype=np.float32), np.ones(n, np.float32)
        r = np.exp(-t) - y
        if not np.allclose(f(t, y)[1], r.mean(), rtol=1e-4):
            wrong.append(n)

    threads = [threading.Thread(target=work, args=(5 + i % 3,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.stats.traces == 1


def test_a_padded_program_pickles_and_copies():
    """As the function does."""
    assert pickle.loads(pickle.dumps(padded_shares)) is padded_shares
    assert copy.deepcopy(padded_shares) is padded_shares


@pytest.mark.parametrize("options", [{"pad": {"n": [8]}}, {"chunk": {"n": 3}}], ids=str)
def test_an_argument_may_be_called_like_the_size_that_travels_along(options):
    """It is told from the true size of an axis by what it is, not by its name."""

    def total(x: Float[Array, "n"], **more: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(x) + sum(more.values())

    assert float(optimize(total, **options)(jnp.arange(5.0), **{"size of n": jnp.float32(3)})) == 13


def test_integers_and_bools():
    """An axis of ints, and results of ints."""

    @optimize(pad={"n": "pow2"})
    def f(x: Int[Array, "n"]) -> tuple[Int[Array, ""], Int[Array, "n"]]:
        return jnp.max(x), jnp.argsort(x)

    x = np.array([3, -5, 7, -9, -1], np.int32)
    top, order = f(x)
    assert int(top) == 7
    np.testing.assert_array_equal(order, np.argsort(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pad": {"m": "pow2"}}, "'m', which is not an axis"),
        ({"pad": "pow2"}, "does not say which axis"),
        ({"pad": {}}, "does not say which axis"),
        ({"pad": {"n": "pow3"}}, "neither 'pow2' nor 'aligned'"),
        ({"pad": {"n": [0]}}, "above 0"),
        ({"pad": {"n": 8}}, "pow2"),
        ({"pad": {"n": "pow2"}, "contracts": False}, "contradict"),
    ],
)
def test_options_that_cannot_be_are_refused_at_decoration(options, message):
    """With a sentence and a fix."""
    with pytest.raises(OptionError, match=message):
        optimize(**options)(shares)


def test_the_plan_of_a_function_that_looks_for_nans_says_that_it_is_not_padded():
    """As its calls are not."""

    @optimize(pad={"n": "pow2"}, debug_nans=True)
    def logs(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.log(x))

    for n in (5, 6, 7):
        logs(jnp.ones(n))
    assert logs.stats.traces == 3
    assert [
        (line.name, line.taken)
        for line in logs.plan(jnp.ones(5)).lines
        if line.name in ("fill", "mask")
    ] == [
        ("fill", False),
        ("mask", False),
    ]


def area(t: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """By other operations at two points, as `jnp.trapezoid` has them."""
    return jnp.trapezoid(y, t)


def test_a_bucket_of_one_size_runs_exact_where_it_is_refused():
    """Without a warning: no other size would share the program."""
    f = optimize(pad={"n": "pow2"})(area)
    t, y = rows(2), rows(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.compile(t, y)
        np.testing.assert_allclose(f(t, y), np.trapezoid(y, t), rtol=1e-5)
    assert "(no other size has this bucket)" in f.plan(t, y).plan.stage("fill").why


def test_sizes_of_other_buckets_are_padded_beside_it():
    """Three and four points share a program."""
    f = optimize(pad={"n": "pow2"})(area)
    for n in (2, 4, 3):
        t, y = rows(n), rows(n)
        np.testing.assert_allclose(f(t, y), np.trapezoid(y, t), rtol=1e-5, atol=1e-6)
    assert f.plan(t, y).plan.stage("fill").why.startswith("n 3 -> 4")


def test_a_result_that_is_a_literal_of_an_inner_jit_is_an_array():
    """JAX writes it into the program as a bool of Python, as the state of a norm that has begun."""

    @optimize(pad={"n": "pow2"})
    def total(x: Float[Array, "n"]) -> tuple[Array, Array]:
        return jnp.sum(x), jax.jit(lambda y: (y, False))(x)[1]

    found, literal = total(jnp.ones(5))
    assert found == 5
    assert isinstance(literal, jax.Array)
    assert literal.dtype == bool
    assert not literal
