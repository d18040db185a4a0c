"""`workers`: a mapped axis that is split over threads, and the same results as without."""

import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Inexact, Int, Shaped

from jitney import optimize
from jitney._serialized import request
from jitney.errors import ContractError, JitneyError, NonFiniteError, OptionError
from tests._arrays import array
from tests._tracing import count_traces

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="`workers` are for CPUs")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(23, 5)).astype(np.float32)
W = RNG.normal(size=(5,)).astype(np.float32)


def programs_of(f):
    return f.stats.compiles + f.stats.persistent_hits


def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.exp(-w * w) - y


def by_hand(w, y):
    return np.exp(-(np.float64(w) ** 2)) - y


@pytest.mark.core("23-*", "9-8", "7-3", "1-2")
@pytest.mark.parametrize("workers", [1, 2, 3, 8, "auto"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 23])
def test_any_size_gives_the_rows_of_the_whole(workers, size):
    """Also where the parts overlap, and where there are fewer rows than workers."""
    f = optimize(vmap="row", workers=workers)(residual)
    out = f(array(W), array(ROWS[:size]))
    assert out.shape == (size, 5)
    np.testing.assert_allclose(out, by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)


def test_no_rows_give_no_rows():
    """An empty axis has no parts."""
    assert optimize(vmap="row", workers=2)(residual)(array(W), array(ROWS[:0])).shape == (0, 5)


def test_arrays_of_numpy_are_cut_as_well():
    """Those that are not contiguous too, and a later change of the argument changes no result."""

    def same(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x

    given = np.asfortranarray(ROWS.copy())
    out = optimize(vmap="row", workers=2)(same)(given)
    given[:] = 0
    np.testing.assert_array_equal(out, ROWS)


@pytest.mark.core("bool", "bfloat16")
@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int32",
        "uint16",
        "uint32",
        "float16",
        "bfloat16",
        "float32",
        "complex64",
        "int4",
        "float8_e4m3fn",
    ],
)
def test_every_dtype_passes(dtype):
    """Elements come back as they are."""

    def turned(x: Shaped[Array, "n"]):
        return x[::-1]

    given = jnp.asarray(np.arange(42).reshape(14, 3) % 7).astype(dtype)
    out = optimize(vmap="row", workers=3)(turned)(given)
    assert out.dtype == given.dtype
    assert bool(jnp.all(out == given[:, ::-1]))


def test_numbers_of_64_bits_stay_so():
    """In the threads too, which have settings of their own."""

    def third(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x / 3

    given = np.arange(10.0).reshape(5, 2)
    f = optimize(vmap="row", workers=2)(third)
    assert f(given).dtype == np.float32
    with jax.enable_x64(True):
        out = f(given)
        assert out.dtype == np.float64
        np.testing.assert_allclose(out, given / 3, rtol=1e-15)
    assert f(given).dtype == np.float32


def test_float64_inside_keeps_the_types_outside():
    """`precision="f64"` computes in 64 bits."""

    def small(x: Float[Array, ""]) -> Float[Array, ""]:
        return (x + 1e-9) - x

    given = np.ones(5, np.float32)
    out = optimize(vmap="row", workers=2, precision="f64")(small)(given)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, 1e-9, rtol=1e-6)


def test_a_setting_that_changes_the_program_makes_another():
    """As `jax.jit` traces once more."""

    def mixed(x: Float[Array, "n"], k: Int[Array, ""]):
        return x * k

    f = optimize(vmap="row", workers=2)(mixed)
    given, k = array(ROWS[:4]), array(np.int32(3))
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_array_equal(f(given, k), ROWS[:4] * np.float32(3))
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion"):
        f(given, k)


class Model(eqx.Module):
    scale: Float[Array, ""]
    shift: Float[Array, "n"]
    name: str = eqx.field(static=True, default="m")

    def __call__(self, x: Float[Array, "n"]):
        return self.scale * x + self.shift

    @optimize(vmap="row", workers=2)
    def applied(self, x: Float[Array, "n"]):
        return self(x)


def test_trees_modules_texts_and_none_come_back():
    """The structure of a result is that of one element."""

    def many(model: Model, x: dict[str, Float[Array, "n"]], *, kind: str):
        y = model(x["a"])
        return {"y": (y, jnp.sum(y)), "none": None, "kind": kind, "model": model, "size": y.shape}

    model = Model(array(np.float32(2)), array(W))
    out = optimize(vmap="row", workers=2)(many)(model, {"a": array(ROWS)}, kind="k")
    whole = 2 * ROWS + W
    np.testing.assert_allclose(out["y"][0], whole, rtol=1e-6)
    np.testing.assert_allclose(out["y"][1], whole.sum(1), rtol=1e-5, atol=1e-5)
    assert (out["none"], out["kind"], out["size"]) == (None, "k", (5,))
    assert type(out["model"]) is Model
    np.testing.assert_array_equal(out["model"].shift, np.broadcast_to(W, (23, 5)))


def test_modules_that_are_mapped_are_cut():
    """Each element has a model of its own."""

    def apply(model: Model, x: Float[Array, "n"]):
        return model(x)

    models = Model(array(np.arange(23, dtype=np.float32)), array(ROWS))
    out = optimize(vmap="row", workers=4)(apply)(models, array(W))
    np.testing.assert_allclose(out, np.arange(23)[:, None] * W + ROWS, rtol=1e-5, atol=1e-6)


def test_methods_are_split():
    """Of the object that they are bound to."""
    model = Model(array(np.float32(2)), array(W))
    np.testing.assert_allclose(model.applied(array(ROWS)), 2 * ROWS + W, rtol=1e-6)


def test_keywords_static_values_and_numbers():
    """A number that the body needs is static, another one is shared."""

    @optimize(vmap="row", workers=2)
    def powers(x: Float[Array, "n"], factor: float, times):
        for _ in range(times):
            x = x * factor
        return x

    for times in (2, 3):
        out = powers(x=array(ROWS), factor=2.0, times=times)
        np.testing.assert_allclose(out, ROWS * 2.0**times, rtol=1e-6)


def test_an_axis_at_another_position():
    """The dict form of `vmap`."""

    def total(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x * y)

    f = optimize(vmap={"row": {"x": 1, "y": 0}}, workers=3)(total)
    out = f(array(np.ascontiguousarray(ROWS.T)), array(ROWS))
    np.testing.assert_allclose(out, (ROWS**2).sum(1), rtol=1e-5)


def test_of_several_axes_the_outermost_is_split():
    """The inner ones are whole in each part."""

    def product(x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
        return x * y

    f = optimize(vmap={"i": {"x": 0}, "j": {"y": 0}}, workers=2)(product)
    np.testing.assert_array_equal(f(ROWS[:, 0], W), np.outer(ROWS[:, 0], W))
    assert "i=23 in 2 parts of 12" in str(f.plan(ROWS[:, 0], W))


@pytest.mark.core("True")
@pytest.mark.parametrize("typed", [True, False])
def test_draws_are_those_of_the_whole(typed):
    """Keys that were split before, of both kinds, and keys among the results."""

    def draw(key: jax.Array):
        return jax.random.normal(key, (3,)), jax.random.fold_in(key, 1)

    make = jax.random.key if typed else jax.random.PRNGKey
    keys = jax.random.split(make(7), 11)
    dims = {"row": {"key": 0}}
    ours, theirs = optimize(vmap=dims, workers=2)(draw)(keys), jax.vmap(draw)(keys)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1].dtype == theirs[1].dtype
    data = jax.random.key_data if typed else np.asarray
    np.testing.assert_array_equal(data(ours[1]), data(theirs[1]))


@pytest.mark.core("rbg-True", "unsafe_rbg-False")
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_draws_that_depend_on_the_keys_beside_them_are_refused(impl, typed):
    """JAX maps these generators over all keys at once; `"auto"` runs them whole."""

    def draw(key: jax.Array):
        return jax.random.normal(key, (3,))

    make = jax.random.key if typed else jax.random.PRNGKey
    dims = {"row": {"key": 0}}
    with jax.default_prng_impl(impl):
        keys = jax.random.split(make(7, impl=impl), 6)
        with pytest.raises(OptionError, match=r"draws for all elements at once(.|\n)*threefry2x32"):
            optimize(vmap=dims, workers=2)(draw)(keys)
        out = optimize(vmap=dims, workers="auto")(draw)(keys)
        np.testing.assert_array_equal(out, jax.jit(jax.vmap(draw))(keys))


def centred(x: Float[Array, ""]) -> Float[Array, ""]:
    """Its own rule for `vmap` subtracts the mean of all elements."""
    same = jax.custom_batching.custom_vmap(lambda x: x * 0)
    same.def_vmap(lambda size, are_mapped, x: (x - jnp.mean(x), True))
    return same(x)


def test_a_rule_for_vmap_that_sees_all_elements_is_not_split():
    """It makes something else of a part; JAX's own such rules map each element alone."""
    x = RNG.normal(size=12).astype(np.float32)
    with pytest.raises(OptionError, match=r"has its own rule for `jax.vmap` \(`custom_vmap`\)"):
        optimize(vmap="row", workers=2)(centred)(x)
    out = optimize(vmap="row", workers="auto")(centred)(x)
    np.testing.assert_allclose(out, x - x.mean(), rtol=1e-5, atol=1e-6)

    def doubled(x: Float[Array, ""]) -> Float[Array, ""]:
        return jax.custom_batching.sequential_vmap(lambda x: x * 2)(x)

    np.testing.assert_array_equal(optimize(vmap="row", workers=2)(doubled)(x), x * 2)


def drawn(x: Float[Array, ""]) -> Float[Array, ""]:
    return x + jax.random.normal(jax.random.key(jnp.int32(x), impl="rbg"))


@pytest.mark.parametrize("body", [centred, drawn])
def test_a_kept_program_is_not_split_either(body, tmp_path, monkeypatch):
    """It is one call, which shows none of its operations; kept or loaded, results are the whole."""
    monkeypatch.setattr(request, "own", lambda: tmp_path)
    x = np.arange(12, dtype=np.float32)
    for _ in range(2):
        f = optimize(vmap="row", workers="auto", cache="program")(body)
        np.testing.assert_allclose(f(x), jax.jit(jax.vmap(body))(x), rtol=1e-5, atol=1e-6)
        with pytest.raises(OptionError, match=r"has its own rule|draws for all elements"):
            optimize(vmap="row", workers=2, cache="program")(body)(x)


def test_weak_types_stay_weak():
    """Of arguments and of results, so that what follows has the same dtypes."""

    def body(x: Inexact[Array, ""], y: Inexact[Array, ""]):
        return x * y, 2.0 * jnp.ones(()), jnp.asarray(3.0)

    given = jnp.broadcast_to(jnp.asarray(2.0), (5,))
    assert given.weak_type
    low = array(np.ones(5), jnp.bfloat16)
    ours = optimize(vmap="row", workers=2)(body)(given, low)
    theirs = jax.jit(jax.vmap(body))(given, low)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_array_equal(one, other)


def test_nan_and_infinity_stay_where_they_are():
    """In the rows that both parts compute too."""
    given = ROWS.copy()
    given[11, 2], given[12, 0], given[22, 4] = np.nan, np.inf, -np.inf
    out = optimize(vmap="row", workers=2)(residual)(array(W), array(given))
    np.testing.assert_allclose(out, by_hand(W, given), rtol=1e-6, atol=1e-6)


def test_arrays_that_were_put_on_a_device_stay_there():
    """As without `workers`."""
    device = jax.devices()[0]
    f = optimize(vmap="row", workers=2)(residual)
    out = f(jax.device_put(W, device), jax.device_put(ROWS, device))
    assert out.committed
    assert not f(array(W), array(ROWS)).committed
    np.testing.assert_allclose(out, by_hand(W, ROWS), rtol=1e-6, atol=1e-6)


def test_a_result_can_be_donated():
    """Though its buffer came from the host."""
    out = optimize(vmap="row", workers=2)(residual)(array(W), array(ROWS))
    expected = np.array(out) + 1
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1, donate_argnums=0)(out), expected)


def test_sizes_share_the_program_of_their_parts():
    """9 and 10 rows are two parts of 5: one trace, none for a remainder."""
    body = count_traces(residual)
    f = optimize(vmap="row", workers=2)(body)
    for size in (9, 10, 9):
        np.testing.assert_allclose(f(W, ROWS[:size]), by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)
    assert body.traces == 1
    assert programs_of(f) == 1


def test_lapack_on_many_numbers_is_refused():
    """XLA may hang there, in two threads of plain JAX too; in narrow chunks it does not."""

    def solved(a: Float[Array, "n n"]) -> Float[Array, "n"]:
        return jnp.linalg.solve(a, a[0])

    a = RNG.normal(size=(400, 6, 6)).astype(np.float32) + 6 * np.eye(6, dtype=np.float32)
    with pytest.raises(OptionError, match=r"numbers at once, and above 4,096 XLA may hang"):
        optimize(vmap="row", workers=2)(solved)(a)
    with pytest.raises(OptionError, match="narrower chunks"):
        optimize(vmap="row", workers=2)(solved).plan(a)
    f = optimize(vmap="row", workers=2, chunk={"row": 50})(solved)
    np.testing.assert_allclose(np.einsum("rij,rj->ri", a, f(a)), a[:, 0], rtol=1e-3, atol=1e-3)
    assert "workers   row=400 in 2 parts of 200" in str(f.plan(a))


@pytest.mark.rest
@pytest.mark.parametrize("options", [{"workers": "auto"}, {"workers": 2, "chunk": {"row": "fast"}}])
def test_lapack_on_many_numbers_runs_where_the_width_may_be_chosen(options):
    """Whole in one thread, or in narrow chunks."""

    def solved(a: Float[Array, "n n"]) -> Float[Array, "n"]:
        return jnp.linalg.solve(a, a[0])

    a = RNG.normal(size=(400, 6, 6)).astype(np.float32) + 6 * np.eye(6, dtype=np.float32)
    out = optimize(vmap="row", **options)(solved)(a)
    np.testing.assert_allclose(np.einsum("rij,rj->ri", a, out), a[:, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.core("48")
@pytest.mark.parametrize("size", [16, 48, 64])
def test_chunks_are_as_wide_as_without_workers(size):
    """So results are equal to the bit, also those of LAPACK and of matrix products."""

    def solved(a: Float[Array, "n n"], w: Float[Array, "n m"]):
        return jnp.linalg.solve(a, jnp.sum(a @ w, axis=1)), jnp.exp(a)

    a = RNG.normal(size=(size, 6, 6)).astype(np.float32)
    w = RNG.normal(size=(6, 9)).astype(np.float32)
    options = {"vmap": "row", "chunk": {"row": 8}}
    ours, theirs = optimize(**options, workers=2)(solved)(a, w), optimize(**options)(solved)(a, w)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_part_is_a_number_of_whole_chunks():
    """24 elements are three chunks: two of them in the first part, and two in the last."""
    f = optimize(vmap="row", chunk={"row": 8}, workers=2)(residual)
    text = " ".join(str(f.plan(W, np.zeros((24, 5), np.float32))).split())
    assert "row=24 in 2 parts of 16, in 2 threads; 8 of 24 are computed twice" in text


@pytest.mark.core("1", "7", "auto")
@pytest.mark.parametrize("chunk", [1, 4, 7, 30, "auto"])
def test_chunks_and_loops_of_lanes(chunk):
    """Each lane ends by itself with chunks of one, and with any width the results are the same."""

    def halved(x: Float[Array, ""]) -> Float[Array, ""]:
        return jax.lax.while_loop(lambda s: s > 1.0, lambda s: s * 0.5, x)

    given = np.arange(23, dtype=np.float32)
    f = optimize(vmap="lane", chunk={"lane": chunk}, workers=2)(halved)
    np.testing.assert_array_equal(f(given), jax.vmap(halved)(given))


def test_threads_of_the_user_trace_once():
    """Eight threads with one new set of shapes."""
    body = count_traces(residual)
    f = optimize(vmap="row", workers=2)(body)
    barrier = threading.Barrier(8)

    def call(number):
        barrier.wait(60)
        return f(W, ROWS + number)

    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(call, range(8)))
    for number, out in enumerate(outs):
        np.testing.assert_allclose(out, by_hand(W, ROWS + np.float32(number)), rtol=1e-6, atol=1e-5)
    assert body.traces == 1
    assert programs_of(f) == 1


def printing(x: Float[Array, "n"]) -> Float[Array, "n"]:
    jax.debug.print("{}", x[0])
    return x + 1


def pure(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.pure_callback(
        np.sin, jax.ShapeDtypeStruct((5,), np.float32), x, vmap_method="broadcast_all"
    )


@pytest.mark.parametrize("body", [printing, pure])
def test_a_callback_is_an_error_with_its_line(body):
    """Of the call and of its plan: a number of workers is a demand, and callbacks have an order."""
    f = optimize(vmap="row", workers=2)(body)
    line = rf"test_worker_calls.py:\d+ \({body.__name__}\) calls Python"
    with pytest.raises(OptionError, match=line):
        f(ROWS)
    with pytest.raises(OptionError, match=line):
        f.plan(ROWS)


@pytest.mark.parametrize("cores", [1, 3])
def test_the_plan_says_why_auto_does_not_split(cores, monkeypatch):
    """By cores first, then by what the body does."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1" if cores == 1 else "64")
    text = str(optimize(vmap="row", workers="auto")(printing).plan(ROWS))
    assert "workers   skipped: " in text


def test_auto_runs_a_callback_whole(capfd):
    """In order, and once each; the plan has the reason."""
    f = optimize(vmap="row", workers="auto")(printing)
    np.testing.assert_array_equal(f(ROWS[:4]), ROWS[:4] + 1)
    jax.effects_barrier()
    assert len(capfd.readouterr().out.split()) == 4


def checked(x: Float[Array, "n"]) -> Float[Array, "n"]:
    x = eqx.error_if(x, x[0] < 0, "the first is negative")
    return eqx.error_if(jnp.sqrt(x), x[1] < 0, "the second is negative")


@pytest.mark.core("22-now", "0-later")
@pytest.mark.parametrize("when", ["now", "later"])
@pytest.mark.parametrize("row", [0, 11, 22])
def test_a_check_raises_wherever_it_fails(row, when):
    """In the part of any thread, and a later call is as before."""
    f = optimize(vmap="row", workers=2, runtime_checks=when)(checked)
    given = np.abs(ROWS)
    np.testing.assert_allclose(f(given), np.sqrt(given), rtol=1e-6)
    bad = given.copy()
    bad[row, 0] = -1
    with pytest.raises(eqx.EquinoxRuntimeError, match="the first is negative"):
        f(bad)
    np.testing.assert_allclose(f(given), np.sqrt(given), rtol=1e-6)


def test_of_two_checks_the_first_of_the_program_raises():
    """As where all rows are one call, whichever thread comes first."""
    f = optimize(vmap="row", workers=2)(checked)
    bad = np.abs(ROWS)
    bad[0, 1] = bad[22, 0] = -1
    with pytest.raises(eqx.EquinoxRuntimeError, match="the first is negative"):
        f(bad)


def test_under_transforms_it_is_one_call():
    """Of the user's `jit`, `grad` and `vmap`; the plan of such a call says so."""
    f = optimize(vmap="row", workers=2)(residual)
    theirs = jax.jit(jax.vmap(residual, (None, 0)))
    w, y = array(W), array(ROWS)
    np.testing.assert_allclose(jax.jit(f)(w, y), theirs(w, y), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda w: f(w, y))(w), theirs(w, y), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda: f(w, y))(), theirs(w, y), rtol=1e-6)
    ours = jax.grad(lambda w: f(w, y).sum())(w)
    np.testing.assert_allclose(ours, jax.grad(lambda w: theirs(w, y).sum())(w), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(f, (None, 0))(w, y[None]), theirs(w, y)[None], rtol=1e-6)
    seen = []
    jax.jit(lambda w: (seen.append(str(f.plan(w, y))), w)[1])(w)
    assert "workers   skipped: under an outer trace" in seen[0]


def test_without_jit_it_is_one_call():
    """`jax.disable_jit` shows values to whoever debugs."""
    seen = []

    def body(x: Float[Array, "n"]) -> Float[Array, "n"]:
        seen.append(x)
        return x + 1

    f = optimize(vmap="row", workers=2)(body)
    f(ROWS)
    seen.clear()
    with jax.disable_jit():
        np.testing.assert_array_equal(f(ROWS), ROWS + 1)
    assert len(seen) == 1


def test_derivatives_are_split():
    """A derivative under `vmap` is one of each element."""

    def loss(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum((jnp.sin(w) - y) ** 2)

    f = optimize(vmap="row", workers=2)(loss)
    value, gradient = f.value_and_grad(W, ROWS, wrt="w")
    np.testing.assert_allclose(value, ((np.sin(W) - ROWS) ** 2).sum(1), rtol=1e-5)
    np.testing.assert_allclose(gradient, 2 * (np.sin(W) - ROWS) * np.cos(W), rtol=1e-4, atol=1e-5)
    assert "row=23 in 2 parts of 12" in str(f.value_and_grad.plan(W, ROWS, wrt="w"))


@pytest.mark.core(
    "{'cache': 'program'}",
    "{'compiler'*",
    "{'verify'*",
    "{'on_trace_error'*",
    "{'contracts'*",
    "{'max_compiles'*",
)
@pytest.mark.parametrize(
    "options",
    [
        {"compiler": "fast"},
        {"cache": False},
        {"cache": "program"},
        {"contracts": False},
        {"verify": True},
        {"debug_nans": True},
        {"remat": True},
        {"precision": "bf16-all"},
        {"max_compiles": "raise:1"},
        {"on_trace_error": "eager"},
    ],
    ids=str,
)
def test_other_options_act_as_usual(options):
    """Results are those of the same function without workers."""
    f, g = (
        optimize(vmap="row", workers=2, **options)(residual),
        optimize(vmap="row", **options)(residual),
    )
    for _ in range(2):
        np.testing.assert_allclose(f(W, ROWS), g(W, ROWS), rtol=1e-6)


def test_a_nan_is_named():
    """`debug_nans` looks at the whole result."""

    def root(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.log(x)

    f = optimize(vmap="row", workers=2, debug_nans=True)(root)
    with pytest.raises(NonFiniteError, match="log"):
        f(ROWS)


def test_a_body_that_cannot_be_traced_is_explained():
    """By the same error, and it runs un-jitted where that is asked for."""

    def branching(x: Float[Array, ""]) -> Float[Array, ""]:
        return x if x > 0 else -x

    with pytest.raises(JitneyError, match="branching"):
        optimize(vmap="row", workers=2)(branching)(W)


def test_two_sizes_are_refused_with_both():
    """Those of the call, not of a part."""

    def total(x: Float[Array, ""], y: Float[Array, ""]):
        return x + y

    with pytest.raises(ContractError, match="two sizes, 5 from 'x' and 4 from 'y'"):
        optimize(vmap="row", workers=2)(total)(W, W[:4])


def test_compiled_ahead_is_what_calls_run():
    """No trace and no compile is left for the call."""
    body = count_traces(residual)
    f = optimize(vmap="row", workers=2)(body)
    f.compile(w=array(W), sizes={"row": 23})
    assert (body.traces, programs_of(f)) == (1, 1)
    np.testing.assert_allclose(f(array(W), array(ROWS)), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert (body.traces, programs_of(f)) == (1, 1)


def test_auto_counts_the_cores_that_the_process_may_use(monkeypatch):
    """Batch systems say so in variables."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    f = optimize(vmap="row", workers="auto")(residual)
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert "workers   skipped: one worker, 1 core, by " in str(f.plan(W, ROWS))


def test_the_plan_says_how_it_is_split():
    """Parts, threads, and what is computed twice."""
    text = " ".join(str(optimize(vmap="row", workers=2)(residual).plan(W, ROWS)).split())
    assert "workers row=23 in 2 parts of 12, in 2 threads; 1 of 23 are computed twice" in text
