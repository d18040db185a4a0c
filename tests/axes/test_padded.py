"""Every body of `_cases.py`, on an axis that is longer than what is valid of it, against the same
body at exact size.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney._axes import Refused, demand, run_padded, trace
from tests._compiles import compiles_quickly
from tests._examples import examples
from tests._selection import params
from tests.axes import _cases as cases

LOW, HIGH = 5, 8
GARBAGE = {"f": np.nan, "i": 77, "b": True}


def program(case, low=LOW, high=HIGH):
    ranges = {"d0": (low, high)}
    traced = trace(case.flat, lambda sizes: case.avals(sizes["d0"]), ranges)
    return traced, demand(traced.jaxpr, ranges)


def arguments(case, n, rng):
    def made(aval):
        x = rng.normal(size=aval.shape) * 2
        return (
            rng.integers(0, 4, aval.shape).astype(aval.dtype)
            if aval.dtype.kind == "i"
            else x.astype(aval.dtype)
        )

    return [made(aval) for aval in case.avals(n)]


def padded(case, exact, high, garbage):
    out = []
    for array, aval in zip(exact, case.avals(high), strict=True):
        x = np.full(aval.shape, garbage[aval.dtype.kind], aval.dtype)
        x[tuple(slice(0, size) for size in array.shape)] = array
        out.append(x)
    return out


def run_of(case, low=LOW, high=HIGH):
    """The padded program, which serves each size of a bucket."""
    return _run_of(case, low, high, compiles_quickly())


@functools.cache
def _run_of(case, low, high, quick):
    del quick
    traced, _ = program(case, low, high)
    return jax.jit(lambda n, *arrays: run_padded(traced.jaxpr, arrays, {"d0": high}, {"d0": n}))


def agree(case, run, groups, high=HIGH, garbages=(GARBAGE,)):
    """Of several sizes, each with its arguments, and of all that may stand behind them."""
    for (n, exact), wants in zip(groups.items(), case.exact([*groups.values()]), strict=True):
        for garbage in garbages:
            results = run(np.int32(n), *padded(case, exact, high, garbage))
            for i, (got, want) in enumerate(zip(results, wants, strict=True)):
                valid = np.asarray(got)[tuple(slice(0, size) for size in want.shape)]
                assert (valid.shape, valid.dtype) == (want.shape, want.dtype)
                said = f"result {i} at size {n} before {garbage}"
                np.testing.assert_allclose(
                    valid, want, rtol=case.tolerance, atol=case.tolerance, err_msg=said
                )


def drawn(case, *sizes):
    return {n: arguments(case, n, np.random.default_rng(n)) for n in sizes}


@pytest.mark.parametrize("case", params(case for case in cases.CASES if case.core))
def test_padded_equals_exact(case):
    """With NaN behind what is valid, at the least size of the bucket."""
    agree(case, run_of(case), drawn(case, LOW))


@pytest.mark.rest
@pytest.mark.parametrize("case", params(cases.CASES))
def test_padded_equals_exact_at_any_size(case):
    """At the least, a middle and the largest size of the bucket, in one program."""
    agree(case, run_of(case), drawn(case, LOW, LOW + 1, HIGH))


@pytest.mark.core("by an index of its own", "set, clipped", "partition")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases.CASES])
def test_padded_equals_exact_in_float64(case):
    """With positions of 64 bits, which JAX narrows where it knows the size."""
    wide = case.wide
    with jax.enable_x64(True):
        agree(wide, run_of(wide), drawn(wide, LOW, HIGH))


@pytest.mark.core(
    "fft",
    "singular vectors",
    "callback",
    "windows that begin with something",
    "a reduction of one's own",
    "shrinking",
    "eigenvalues",
    "sum from a number on",
)
@pytest.mark.parametrize("case", cases.REFUSED, ids=lambda case: case.name)
def test_what_cannot_be_proven_is_refused(case):
    """With a reason; never a number."""
    with pytest.raises(Refused) as refused:
        program(case)
    assert refused.value.what


def test_what_traces_at_no_size_is_no_refusal():
    """A boolean mask fails under plain `jax.jit` too, and that error is the one to read."""
    with pytest.raises(jax.errors.NonConcreteBooleanIndexError):
        program(cases.NEVER)


@pytest.mark.core(
    "mean",
    "product",
    "segment sum",
    "largest from a number on",
    "all but the least two",
    "cumulative max from the end",
    "loop until",
)
@pytest.mark.parametrize("case", [*cases.REDUCED, *cases.ORDERED], ids=lambda case: case.name)
def test_what_stands_behind_is_never_looked_at(case):
    """Infinities and huge numbers in the padding, as NaNs."""
    kinds = (np.inf, -np.inf, -np.nan, 1e30)
    garbages = [{**GARBAGE, "f": np.float32(kind), "i": np.iinfo(np.int32).min} for kind in kinds]
    agree(case, run_of(case), drawn(case, LOW), garbages=garbages)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0]
ORDER = {case.name: case for case in cases.ORDERED + cases.REDUCED}


@pytest.mark.rest
@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(
        [
            "sort",
            "argsort",
            "largest",
            "median",
            "argmax by column",
            "min and argmin",
            "log-sum-exp",
            "cumulative max from the end",
        ]
    ),
    values=st.lists(st.sampled_from(SPECIAL), min_size=LOW, max_size=HIGH),
)
@examples(
    {"name": "sort", "values": [np.nan, -2.0, np.inf, -np.inf, 1.5]},
    {"name": "sort", "values": [np.nan] * 5},
    {"name": "sort", "values": [np.inf] * 8},
    {"name": "argsort", "values": [0.0, -0.0, 0.0, -0.0, np.nan, np.inf, np.nan, np.inf]},
    {"name": "argsort", "values": [-2.0, np.inf, np.inf, np.nan, np.nan]},
    {"name": "largest", "values": [np.inf, np.nan, np.inf, np.nan, -np.inf]},
    {"name": "largest", "values": [-np.inf] * 5},
    {"name": "median", "values": [np.inf, -np.inf, 1.5, -2.0, 0.0, -0.0]},
    {"name": "median", "values": [1.5, -2.0, np.nan, 1.5, 1.5]},
    {"name": "argmax by column", "values": [-np.inf, np.nan, np.inf, np.nan, 0.0]},
    {"name": "argmax by column", "values": [-np.inf] * 5},
    {"name": "min and argmin", "values": [0.0, -0.0, np.inf, 0.0, 1.5, 1.5, 0.0]},
    {"name": "min and argmin", "values": [np.inf] * 5},
    {"name": "min and argmin", "values": [np.inf, -np.inf, np.nan, -np.inf, np.nan]},
    {"name": "log-sum-exp", "values": [-np.inf] * 5},
    {"name": "log-sum-exp", "values": [np.inf, -np.inf, 1.5, 0.0, -2.0]},
    {"name": "log-sum-exp", "values": [np.nan, -np.inf, 1.5, 0.0, -2.0]},
    {
        "name": "cumulative max from the end",
        "values": [1.5, np.nan, -np.inf, -np.inf, -2.0, -np.inf],
    },
    {"name": "cumulative max from the end", "values": [-np.inf] * 8},
)
def test_nans_and_infinities_among_the_valid_keep_their_order(name, values):
    """Padding sorts behind every NaN, and ties go to the first, as at exact size."""
    case = ORDER[name]
    x = np.array(values, np.float32)
    agree(
        case,
        run_of(case),
        {len(values): [np.stack([x] * 3, 1) if name == "argmax by column" else x]},
    )


BUCKETS = [(2, 2), (3, 4), (5, 8), (9, 16), (17, 31)]
BY_NAME = {case.name: case for case in cases.CASES}


def sizes_of(name):
    """A case by its name, a bucket of sizes that it has, and one of these."""
    fitting = [bucket for bucket in BUCKETS if BY_NAME[name].least <= bucket[0]]
    return st.sampled_from(fitting).flatmap(
        lambda bucket: st.tuples(st.just(name), st.just(bucket), st.integers(*bucket))
    )


@pytest.mark.rest
@settings(max_examples=40, deadline=None)
@given(chosen=st.sampled_from(sorted(BY_NAME)).flatmap(sizes_of))
@examples(
    {"chosen": ("argsort", (2, 2), 2)},  # a bucket of one size
    # the smallest size that the case has, and the smallest of a bucket
    {"chosen": ("partition", (3, 4), 3)},
    {"chosen": ("standardise", (5, 8), 8)},  # nothing is padded
    {"chosen": ("gradient of a cumulative sum", (9, 16), 9)},  # almost half is padded
    {"chosen": ("pad between", (17, 31), 30)},  # a bucket that is no power of two
    {"chosen": ("determinant along it", (2, 2), 2)},  # refused: of two rows it is another program
)
def test_any_case_in_any_bucket(chosen):
    """A random body, bucket, size and numbers: the same as at exact size, or refused."""
    name, bucket, n = chosen
    case = BY_NAME[name]
    try:
        run = run_of(case, *bucket)
    except Refused:
        return
    agree(case, run, drawn(case, n), bucket[1])


IDENTITIES = ["sum", "max", "min", "prod", "any", "sort", "cumsum", "argmax", "argmin"]


@pytest.mark.core("float32", "int8", "bool")
@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, np.int32, np.int8, np.uint8, np.bool_]
)
def test_identities_of_every_dtype(dtype):
    """The padding of a reduction is its identity in the dtype at hand: also of elements on one side
    of zero, and of the outermost ones.
    """
    case = cases.Case(
        "identities",
        lambda x: [getattr(jax.numpy, name)(x) for name in IDENTITIES],
        [(("n",), dtype)],
        1e-2,
    )
    with jax.enable_x64(dtype is np.float64):
        x = (
            np.random.default_rng(1)
            .integers(0 if dtype is np.bool_ else 1, 2 if dtype is np.bool_ else 5, 6)
            .astype(dtype)
        )
        x = -x if np.issubdtype(dtype, np.signedinteger) or np.issubdtype(dtype, np.floating) else x
        ends = (
            (0, 1)
            if dtype is np.bool_
            else (-np.inf, np.inf)
            if np.issubdtype(dtype, np.floating)
            else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        )
        for array in (x, *(np.full(6, end, dtype) for end in ends)):
            agree(
                case,
                run_of(case),
                {6: [array]},
                garbages=[{"f": np.nan, "i": 99, "u": 200, "b": True}],
            )


@pytest.mark.rest
def test_two_axes_at_once():
    """Each has its own true size; a product over one, a softmax over the other."""
    ranges = {"d0": (3, 4), "d1": (5, 8)}

    def body(x, y):
        return [jax.nn.softmax(x @ y, axis=0), (x.sum(0) * y.mean(1)).sum()]

    def avals(sizes):
        n, m = sizes["d0"], sizes["d1"]
        return [jax.ShapeDtypeStruct((n, m), np.float32), jax.ShapeDtypeStruct((m, n), np.float32)]

    traced = trace(body, avals, ranges)
    demand(traced.jaxpr, ranges)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 6)).astype(np.float32), rng.normal(size=(6, 3)).astype(np.float32)
    wide, high = np.full((4, 8), np.nan, np.float32), np.full((8, 4), np.nan, np.float32)
    wide[:3, :6], high[:6, :3] = x, y
    product, total = run_padded(
        traced.jaxpr, [wide, high], {"d0": 4, "d1": 8}, {"d0": np.int32(3), "d1": np.int32(6)}
    )
    e = np.exp(x @ y - (x @ y).max(0))
    np.testing.assert_allclose(product[:3, :3], e / e.sum(0), rtol=1e-5)
    np.testing.assert_allclose(total, (x.sum(0) * y.mean(1)).sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.int2, jnp.uint2])
def test_sorts_of_two_bits_are_refused(dtype):
    """XLA compiles no sort of them with a key beside, and raised an error of its own; its sort of
    them alone is wrong in plain JAX.
    """
    body = lambda x: [jnp.sort(x)]
    traced = trace(
        body, lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), dtype)], {"d0": (5, 8)}
    )
    with pytest.raises(Refused, match=f"sorts {jnp.dtype(dtype).name} along it"):
        demand(traced.jaxpr, {"d0": (5, 8)})
