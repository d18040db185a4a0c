"""Rows of unlike lengths: a list under `vmap` and `pad`. References: calls of each row, NumPy."""

import gc
import re
import warnings
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

import jitney
from jitney import optimize
from jitney._axes.rule import POINTWISE, Rule
from jitney._axes.rules import RULES
from jitney._program.rows import group, lots
from jitney._program.rows.columns import Column
from jitney.errors import AxisError, ContractError, OptionError, VerificationError
from tests._monitor import listening
from tests._switched import environment

RNG = np.random.default_rng(0)
SIZES = (3, 8, 1, 20, 5, 0, 3)


def rows(sizes=SIZES, *shape):
    return [RNG.normal(size=(n, *shape)).astype(np.float32) for n in sizes]


Y = rows()
X = rows(SIZES, 3)
W = RNG.normal(size=3).astype(np.float32)


def loss(w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum((x @ w - y) ** 2)


def mapped(fn=loss, **options):
    return optimize(vmap="row", pad={"n": "pow2"}, **options)(fn)


def each(fn, *columns):
    """Calls at each row."""
    return [fn(*arrays) for arrays in zip(*columns, strict=True)]


def close(got, want, **tolerances):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, **{"rtol": 2e-5, "atol": 1e-5, **tolerances})


def slopes(x, y):
    """Derivatives of `loss` with respect to `w` and `x`, by NumPy."""
    misfit = x @ W - y
    return 2 * misfit @ x, 2 * misfit[:, None] * W


DATA = ([x for x in X if len(x)], [y for y in Y if len(y)])


# What comes back.


def test_results_are_those_of_each_row_in_the_callers_order():
    """Stacked where all are equal in shape, a list where they have the axis."""

    def both(y: Float[Array, "n"]):
        return {"sum": jnp.sum(y**2), "sorted": jnp.sort(y), "steps": jnp.diff(y, prepend=0)}

    given = Y + rows((5, 8, 6, 7) * 4)
    out = mapped(both)(given)
    assert isinstance(out["sum"], jax.Array)
    assert isinstance(out["sorted"], list)
    for name in out:
        close(out[name], [both(y)[name] for y in given])


def test_the_form_of_a_result_hangs_on_no_length():
    """Rows that all run at exact size are a list too, and one row is."""
    f = mapped(doubled)
    for sizes in ((1, 1), (0, 1), (4, 4), (7,)):
        given = rows(sizes)
        out, total = f(given)
        assert isinstance(out, list)
        close(out, [2 * y for y in given])
        assert total.shape == (len(sizes),)


def doubled(y: Float[Array, "n"]):
    return y * 2, jnp.sum(y)


@pytest.mark.parametrize(
    "given",
    [
        lambda: tuple(Y),
        lambda: np.array([*Y, None], dtype=object)[:-1],
        lambda: [jnp.asarray(y) for y in Y],
        lambda: jitney.ragged(np.concatenate(Y), np.cumsum([0, *SIZES])),
        lambda: jitney.ragged(jnp.concatenate(Y), np.cumsum([0, *SIZES])),
        lambda: jitney.ragged(
            np.stack([np.pad(y, (0, 20 - len(y)), constant_values=np.nan) for y in Y]),
            lengths=SIZES,
        ),
    ],
    ids=["tuple", "objects", "jax", "offsets", "offsets of jax", "lengths"],
)
def test_rows_come_in_many_forms(given):
    """What is beyond a length is never looked at."""
    out, total = mapped(doubled)(given())
    close(out, [2 * y for y in Y])
    close(total, [y.sum() for y in Y])


def test_offsets_may_leave_out_the_ends():
    values = np.arange(10.0, dtype=np.float32)
    out, _ = mapped(doubled)(jitney.ragged(values, [2, 5, 5, 7]))
    close(out, [2 * values[2:5], values[5:5], 2 * values[5:7]])


@pytest.mark.rest
def test_two_axes_are_ragged_at_once():
    """Each combination of buckets is a program; 0 and 1 run at exact size along that axis alone."""

    @optimize(vmap="row", pad={"n": "pow2", "m": "pow2"})
    def f(x: Float[Array, "n"], y: Float[Array, "m"], w: Float[Array, "k"]):
        return jnp.sum(jnp.outer(x, y)), jnp.cumsum(x), jnp.outer(y, w)

    def plain(x, y):
        return np.outer(x, y).sum(), np.cumsum(x), np.outer(y, W)

    xs, ys = rows((3, 8, 1, 20)), rows((7, 1, 9, 2))
    for got, want in zip(f(xs, ys, W), zip(*each(plain, xs, ys), strict=True), strict=True):
        close(got, want)


@pytest.mark.rest
def test_arrays_with_an_axis_more_are_mapped_beside_rows():
    """And those as annotated are shared."""

    @optimize(vmap="row", pad={"n": "pow2"})
    def f(y: Float[Array, "n"], scale: Float[Array, ""], shift: Float[Array, ""]):
        return jnp.sum(y) * scale + shift

    scales = np.arange(len(Y), dtype=np.float32)
    close(f(Y, scales, np.float32(2)), [y.sum() * s + 2 for y, s in zip(Y, scales, strict=True)])


def test_another_number_of_rows_compiles_nothing_where_its_programs_are_there():
    """Beside a mapped array too."""

    @optimize(vmap="row", pad={"n": "pow2"})
    def f(y: Float[Array, "n"], scale: Float[Array, ""]):
        return jnp.sum(y) * scale

    f(rows((5,) * 9), np.ones(9, np.float32))
    given = rows((6,) * 17)
    with listening() as seen:
        out = f(given, np.ones(17, np.float32))
    assert seen.count("compile") == 0
    close(out, [y.sum() for y in given])


class Curve(eqx.Module):
    t: Float[Array, "n"]
    y: Float[Array, "n 2"]
    name: str = eqx.field(static=True, default="")


def test_modules_are_rows():
    """So are their results."""

    @optimize(vmap="row", pad={"n": "pow2"})
    def f(curve: Curve, scale: float):
        return jnp.sum(curve.t[:, None] * curve.y), Curve(curve.t * scale, curve.y)

    curves = [Curve(y, np.stack([y, y], 1)) for y in Y]
    total, made = f(curves, 2.0)
    close(total, [2 * np.sum(y**2) for y in Y])
    close(made.t, [2 * y for y in Y])


class Scaled(eqx.Module):
    x: Float[Array, "n"]
    scale: Float[Array, ""]


def test_weak_types_are_those_of_each_row():
    """At exact size too; rows that differ in them have another dtype each."""

    @optimize(vmap="row", pad={"n": "pow2"})
    def f(row: Scaled):
        return jnp.sum(row.x) * row.scale, row.scale * jnp.bfloat16(2)

    given = [Scaled(jnp.ones(n, jnp.bfloat16), jnp.asarray(2.0)) for n in (1, 5, 6, 0)]
    for chosen in (given, given[:1], given[1:3]):
        for got, want in zip(f(chosen), zip(*map(f, chosen), strict=True), strict=True):
            assert got.dtype == want[0].dtype == jnp.bfloat16
            close(got, want)
    given[2] = Scaled(given[2].x, jnp.float32(2))
    with pytest.raises(ContractError, match=r"row 2 of 'row' is float32 .* row 0 weakly typed"):
        f(given)


def test_python_computes_with_the_size_of_each_row():
    def f(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(y) * (1 - y.shape[0] / (y.shape[0] + 1.5))

    close(mapped(f)(Y), each(f, Y))


def test_a_choice_by_the_size_is_that_of_each_row():
    def f(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(y) if y.shape[0] > 4 else jnp.sum(y**2)

    close(mapped(f)(Y), each(f, Y))


SPECIAL = 100


@pytest.mark.core("call", "compile first")
@pytest.mark.parametrize("how", ["call", "compile first", "one first"])
def test_each_size_is_looked_at_where_python_may_have_seen_it(how):
    """From the first call on: the row that is traced is not the special one."""

    def by_identity(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(y) * (2.0 if y.shape[0] is SPECIAL else 1.0)

    def by_type(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(y) * (2.0 if type(y.shape[0]) is int and y.shape[0] % 7 == 0 else 1.0)

    for fn, sizes in ((by_identity, (90, 100, 110)), (by_type, (90, 98, 100))):
        f, given = mapped(fn), [np.ones(n, np.float32) for n in sizes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jitney.JitneyWarning)
            if how == "compile first":
                f.compile(given)
            elif how == "one first":
                f(given[:1])
            for _ in range(2):
                close(f(given), each(fn, given))


@pytest.mark.core("40")
@pytest.mark.parametrize("most", [1, 40, 100])
def test_the_arrays_of_a_block_are_bounded(monkeypatch, most):
    """By bytes: fewer rows of a long bucket go into one."""
    monkeypatch.setattr(group, "_MOST_BYTES", most)
    out, total = mapped(doubled)(Y * 4)
    close(out, [2 * y for y in Y * 4])
    close(total, [y.sum() for y in Y * 4])


@pytest.mark.parametrize("exactly", [False, True])
@given(count=st.integers(1, 3000), most=st.integers(1, 600), cheap=st.integers(0, 600))
@example(count=1000, most=600, cheap=0)
@example(count=37, most=64, cheap=0)
@example(count=37, most=600, cheap=600)
@example(count=1, most=1, cheap=9)
def test_rows_are_cut_into_parts(exactly, count, most, cheap):
    """All of them, at most an eighth more, or what is cheap, and none more where effects would
    happen twice.
    """
    parts = lots.rungs_of(count, most, exactly=exactly, cheap=cheap)
    assert sum(rows for rows, _ in parts) == count
    assert all(1 <= rows <= rung <= most for rows, rung in parts)
    assert sum(rung for _, rung in parts) <= count + (0 if exactly else max(count // 8, cheap))


def test_no_program_is_smaller_than_what_is_cheap():
    """So another number of rows finds the programs of the first."""
    assert lots.rungs_of(5, 512, exactly=False, cheap=7) == [(5, 8)]
    assert lots.rungs_of(530, 512, exactly=False, cheap=70) == [(512, 512), (18, 64)]
    assert lots.rungs_of(70, 512, exactly=False, cheap=70) == [(64, 64), (6, 64)]
    assert lots.rungs_of(70, 512, exactly=False, cheap=511) == [(70, 512)]
    assert lots.rungs_of(5, 512, exactly=True, cheap=600) == [(1, 1)] * 5


def test_lots_have_the_rows_of_a_group_in_the_order_of_the_caller():
    """Each with its own sizes, of which two axes of unlike arrays may differ; what is found out is
    asked once for all rows of the same sizes.
    """
    sizes = RNG.integers(1, 6, (40, 2)).tolist()
    sizes[7] = [3, 1 << 20]  # no table of sizes so long
    pairs = [np.zeros(pair, np.int8) for pair in sizes]
    both = [np.zeros((second,), np.int8) for _, second in sizes]
    columns = [Column("each", pairs), Column("each", both), Column("shared", W)]
    odd, even = (group.RowGroup(name, None, ()) for name in ("odd", "even"))
    asked = []

    def learn(dims, row):
        assert dims == (*sizes[row], sizes[row][1])
        asked.append(dims)
        return group.Member(odd if dims[0] % 2 else even, {"n": dims[0], "m": dims[1]})

    chosen = np.arange(3, 40)
    found = lots.lots_of(columns, chosen, dict, learn)
    assert len(asked) == len(set(asked)) == len({tuple(sizes[row]) for row in chosen})
    assert len(found) == 2
    for lot in found:
        rest = lot.group.key == "odd"
        assert lot.rows.tolist() == [row for row in chosen if sizes[row][0] % 2 == rest]
        own = lot.sizes(np.arange(len(lot.rows)))
        assert list(zip(own["n"], own["m"], strict=True)) == [tuple(sizes[r]) for r in lot.rows]


@pytest.mark.rest
def test_rows_in_float64():
    with jax.enable_x64(True):
        given = [y.astype(np.float64) for y in Y]
        out, _ = mapped(doubled)(given)
        assert out[0].dtype == np.float64
        close(out, [2 * y for y in given], rtol=1e-14)


@pytest.mark.core("options0")
@pytest.mark.parametrize(
    "options", [{"precision": "f64"}, {"precision": "bf16"}, {"compiler": "fast"}, {"remat": True}]
)
def test_other_options_act_on_each_row(options):
    """In values and types."""
    f = mapped(**options)
    x, y = DATA
    want = [f(W, *row) for row in zip(x, y, strict=True)]
    got = f(W, x, y)
    assert got.dtype == want[0].dtype
    close(got, want, rtol=1e-4)


@pytest.mark.rest
def test_without_a_cache_nothing_is_kept():
    f = mapped(squares, cache=False)
    with listening() as seen:
        f(Y)
    assert [seen.count(what) for what in ("persistent hit", "persistent miss")] == [0, 0]


def test_rows_of_keys_and_integers():
    @optimize(vmap="row", pad={"n": "pow2"})
    def f(key: Int[Array, "2"], y: Int[Array, "n"]):
        return jax.random.normal(jax.random.wrap_key_data(key.astype(jnp.uint32))) + jnp.max(
            y
        ).astype(jnp.float32)

    keys = [np.array([0, i], np.int32) for i in range(3)]
    ys = [np.arange(n, dtype=np.int32) for n in (3, 9, 4)]
    want = [
        float(jax.random.normal(jax.random.wrap_key_data(k.astype(np.uint32)))) + y.max()
        for k, y in zip(keys, ys, strict=True)
    ]
    close(f(keys, ys), want)


@pytest.mark.core("rbg")
@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_rows_that_would_draw_together_are_refused(impl):
    """A key that all share is drawn from once."""

    def body(key: Int[Array, "k"], y: Float[Array, "n"]):
        key = jax.random.wrap_key_data(key.astype(jnp.uint32), impl=impl)
        return jnp.sum(y) * jax.random.normal(key, (2,))

    keys = [np.arange(i, i + 4, dtype=np.int32) for i in range(3)]
    ys = [np.ones(n, np.float32) for n in (3, 9, 4)]
    with pytest.raises(AxisError, match="draws for all rows at once"):
        mapped(body)(keys, ys)
    close(mapped(body)(keys[0], ys), [body(keys[0], y) for y in ys])


# Derivatives.


def test_a_gradient_is_that_of_each_row():
    """Of what is shared one for each row, of rows a list."""
    f = mapped()
    grads = f.grad(W, *DATA, wrt=("w", "x"))
    want = each(slopes, *DATA)
    close(grads["w"], [w for w, _ in want], rtol=1e-4)
    close(grads["x"], [x for _, x in want], rtol=1e-4)
    value, again = f.value_and_grad(W, *DATA, wrt="w")
    close(value, each(lambda x, y: np.sum((x @ W - y) ** 2), *DATA), rtol=1e-4)
    close(again, grads["w"])


@pytest.mark.rest
def test_jax_differentiates_through_rows():
    """With respect to shared parameters: the sum over rows; and to the rows."""
    f = mapped()
    got = jax.grad(lambda w: jnp.sum(f(w, *DATA)))(W)
    want = each(slopes, *DATA)
    close([got], [sum(w for w, _ in want)], rtol=1e-4)
    rows_of = [jnp.asarray(x) for x in DATA[0]]
    by_rows = jax.grad(lambda x: jnp.sum(f(W, x, DATA[1])))(rows_of)
    close(by_rows, [x for _, x in want], rtol=1e-4)


@pytest.mark.core("two buckets")
@pytest.mark.parametrize(
    "mixtures",
    [
        ((3, 5, 5), (6, 4, 7), (8, 8, 3)),
        ((3, 5, 5, 6, 9, 9, 10, 2), (5, 9, 6, 3, 9, 2, 5, 10), (9, 16, 7, 4, 11, 2, 8, 5)),
    ],
    ids=["two buckets", "four buckets"],
)
def test_a_gradient_around_a_fresh_mixture_compiles_nothing(mixtures):
    """Where its programs are there: as many rows, of other lengths."""
    f = mapped()

    def gradient(sizes):
        x, y = rows(sizes, 3), rows(sizes)
        return jax.grad(lambda w: jnp.sum(f(w, x, y)))(W)

    first, *fresh = mixtures
    gradient(first)
    with listening() as seen:
        for sizes in fresh:
            gradient(sizes)
    assert seen.count("compile") == 0


@pytest.mark.rest
def test_a_gradient_of_a_logarithm_is_finite():
    """What masks by hand get wrong: the padding is in no derivative."""

    def f(w: Float[Array, ""], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.log(jnp.abs(y) - w))

    given = [np.abs(y) + 1 for y in Y if len(y)]
    got = jax.grad(lambda w: jnp.sum(mapped(f)(w, given)))(jnp.float32(0.5))
    np.testing.assert_allclose(got, sum(np.sum(-1 / (y - 0.5)) for y in given), rtol=1e-5)


@pytest.mark.rest
def test_values_in_one_array_have_a_gradient():
    offsets = np.cumsum([0, *SIZES])
    got = jax.grad(lambda v: jnp.sum(mapped(squares)(jitney.ragged(v, offsets))))(
        jnp.concatenate(Y)
    )
    np.testing.assert_allclose(got, 2 * np.concatenate(Y), rtol=1e-6)


def squares(y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(y**2)


# What is counted, said, verified.


def test_padding_and_calls_are_counted():
    f = mapped(squares)
    f(rows((5, 6, 8, 3)))
    stats = f.stats
    assert stats.calls == 1
    assert stats.sizes == {"n": {5: 1, 6: 1, 8: 1, 3: 1}}
    assert stats.padding["n"] == pytest.approx((8 + 8 + 8 + 4) / 22 - 1)


def test_a_wrong_row_is_found(monkeypatch):
    """`verify` compares each row of new shapes with the plain function."""
    monkeypatch.setitem(RULES, "reduce_sum", Rule(RULES["reduce_sum"].uses, POINTWISE.pad))
    with pytest.raises(VerificationError, match="Under pad over 'n'"):
        mapped(squares, verify=True)(jitney.ragged(np.ones(20, np.float32), [0, 5]))


@pytest.mark.rest
def test_right_rows_are_verified():
    close(mapped(squares, verify=True)(Y), each(squares, Y))


@pytest.mark.core("two")
@pytest.mark.parametrize("given", [Y[:2], Y], ids=["two", "all"])
def test_a_failed_check_is_equinoxs_error(given):
    def f(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(eqx.error_if(y, jnp.any(y > 100), "too large"))

    close(mapped(f)(given), [y.sum() for y in given])
    with pytest.raises(eqx.EquinoxRuntimeError, match="too large"):
        mapped(f)([Y[0], 1e4 * np.ones(5, np.float32)])


def test_effects_of_a_row_happen_once():
    told = []

    def f(y: Float[Array, "n"]) -> Float[Array, ""]:
        jax.debug.callback(lambda n: told.append(float(n)), jnp.sum(y))
        return jnp.sum(y)

    out = mapped(f)(Y)
    jax.effects_barrier()
    np.testing.assert_allclose(sorted(told), sorted(map(float, out)), rtol=1e-6)


@pytest.mark.parametrize("how", ["disable_jit", "disabled"])
def test_rows_run_as_written_where_nothing_is_compiled(how):
    """`jax.disable_jit` and JITNEY_DISABLE, as whoever debugs wants it."""
    seen = []

    def body(y: Float[Array, "n"]):
        seen.append(y.shape)
        return jnp.sum(y), y * 2

    scope = jax.disable_jit() if how == "disable_jit" else environment(JITNEY_DISABLE="eager")
    with scope:
        total, twice = mapped(body)(Y[:3])
    close(total, [y.sum() for y in Y[:3]])
    close(twice, [2 * y for y in Y[:3]])
    assert seen[:3] == [(size,) for size in SIZES[:3]]


def test_functions_with_rows_are_let_go():
    def body(y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(y)

    f = mapped(body)
    f(Y[:2])
    gone = weakref.ref(body)
    del f, body
    gc.collect()
    assert gone() is None


def test_numbers_that_do_not_fit_are_an_error():
    """As those of one array are: nothing wraps around in silence."""

    def largest(y: Int[Array, "n"]) -> Int[Array, ""]:
        return jnp.max(y)

    assert mapped(largest)([np.array([1, 5]), np.array([7])]).tolist() == [5, 7]
    with pytest.raises(ContractError, match="int32 does not hold"):
        mapped(largest)([np.array([1, 2**40]), np.array([7])])


# What is refused.


def spectrum(y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.fft.fft(y).real


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mapped()(W, X, Y[:4]), ContractError, "'row' has two sizes, 7 from 'x' and 4"),
        (
            lambda: mapped()(W, X, [Y[0], Y[1][:3], *Y[2:]]),
            ContractError,
            "row 1: axis 'n' has two sizes, 8 from 'x' and 3 from 'y'",
        ),
        (
            lambda: mapped()(W, [X[0], X[1][:, :2]], Y[:2]),
            ContractError,
            "row 1: axis 'k' has two sizes, 3 from 'w' and 2 from 'x'",
        ),
        (lambda: mapped(squares)([]), ContractError, "'y' has no rows"),
        (lambda: mapped(squares)([1.0, 2.0]), ContractError, "row 0 of 'y' is a float"),
        (
            lambda: mapped(squares)([Y[0], Y[1].astype(int)]),
            ContractError,
            "row 1 of 'y' is int32 with 1 axes, and row 0 float32 with 1 axes",
        ),
        (
            lambda: mapped(squares)([Y[0], X[0]]),
            ContractError,
            r"row 1 of 'y' is float32 with 2 axes.*pass rows of 1 axes",
        ),
        (lambda: mapped(squares)([Y[0], None]), ContractError, "is a NoneType.*leave that row out"),
        (
            lambda: optimize(vmap="row", pad={"n": "pow2"})(named)(
                [Curve(Y[0], X[0][:, :2]), Curve(Y[1], X[1][:, :2], "other")]
            ),
            ContractError,
            "row 1 of 'curve' has another structure than row 0",
        ),
        (lambda: mapped(spectrum)(Y), AxisError, r"transforms along it \(`fft`\).*row by row"),
        (lambda: jax.jit(lambda w: mapped()(w, X, Y))(W), AxisError, "inside an outer `jit`"),
        (lambda: mapped(squares, donate="y")(Y), OptionError, "do not go with donate"),
        (
            lambda: optimize(vmap={"row": {"x": 0}}, pad={"n": "pow2"})(loss)(W, X, Y),
            ContractError,
            "'y' is a list of rows, and `vmap` shares it",
        ),
    ],
    ids=[
        "counts",
        "sizes",
        "other axes",
        "none",
        "numbers",
        "dtypes",
        "ranks",
        "nothing",
        "structures",
        "fft",
        "jit",
        "donate",
        "shared",
    ],
)
def test_what_cannot_be_is_a_sentence(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert re.search(message, str(raised.value), re.DOTALL)


def test_two_sizes_in_modules_of_one_row_name_it():
    """The fields of each module agree, and those of two differ: at which row, in which argument."""

    def apart(a: Curve, b: Curve) -> Float[Array, ""]:
        return jnp.sum(a.t) - jnp.sum(b.t)

    curves = [Curve(y, x[:, :2]) for x, y in zip(X, Y, strict=True)]
    others = [*curves[:3], curves[1], *curves[4:]]
    message = r"row 3: axis 'n' has two sizes, 20 from 'a.t' and 8 from 'b.t'"
    with pytest.raises(ContractError, match=message):
        mapped(apart)(curves, others)


def named(curve: Curve) -> Float[Array, ""]:
    return jnp.sum(curve.t)


def test_the_median_element_of_short_rows_is_padded():
    short = rows((2, 3, 5, 4, 1, 9))
    at_middle = mapped(middle)(short)
    np.testing.assert_array_equal(at_middle, [row[len(row) // 2] for row in short])


def middle(y: Float[Array, "n"]) -> Float[Array, ""]:
    return y[len(y) // 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jitney.ragged(Y[3]), "no offsets are given"),
        (lambda: jitney.ragged(Y[3], [0, 3], lengths=[3]), "both given"),
        (lambda: jitney.ragged(Y, [0, 3]), "a list is no array of elements"),
        (lambda: jitney.ragged(np.array(Y, object), [0, 3]), "a ndarray holds objects"),
        (lambda: jitney.ragged(Y[3], [0, 5, 3]), "do not ascend from 0 to 20"),
        (lambda: jitney.ragged(Y[3], [0, 50]), "do not ascend from 0 to 20"),
        (lambda: jitney.ragged(Y[3], [0.0, 5.0]), "offsets are float64"),
        (lambda: jitney.ragged(X[3], lengths=[4]), "1 lengths are given for an array"),
        (lambda: jitney.ragged(X[3], lengths=[4] * 20), "lengths from 4 to 4, of rows of 3"),
    ],
)
def test_offsets_and_lengths_have_to_fit(call, message):
    with pytest.raises(ContractError, match=message):
        call()


def area(t: Float[Array, "n"], y: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    """By other operations at two points, as `jnp.trapezoid` has them."""
    return jnp.trapezoid(y, t), 2 * t


@pytest.mark.parametrize("sizes", [(2, 3, 17, 1, 0, 2, 9), (2, 2)])
def test_rows_of_two_points_may_need_other_operations(sizes):
    """They run exact, all in one program: no other size has their bucket."""
    t, y = rows(sizes), rows(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        areas, doubled = mapped(area)(t, y)
    np.testing.assert_allclose(areas, list(map(np.trapezoid, y, t)), rtol=2e-5, atol=1e-6)
    close(doubled, [2 * row for row in t])
