"""Arguments of a stream are those of a call; its axis is chosen; its result is not an array."""

import functools
import inspect
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PyTree

import jitney
from jitney import optimize
from jitney.errors import ContractError, DataWarning, OptionError
from tests._arrays import array
from tests.stream._sources import SOURCES, F, of_rows
from tests.stream.test_stream import Chunks, Sliceable, rows, saved

X, T = rows(20), rows(20)[::-1].copy()
QUIET = {"progress": False}


@optimize
def decay(x: Float[Array, "n"], t: Float[Array, "n"], rate: float = 0.5, unit: str = "s"):
    return jnp.sum(x * jnp.exp(-rate * t)), unit


@optimize
def weighted(*xs: Float[Array, "n"], power: int = 1, **weights: Float[Array, "n"]):
    total = sum(jnp.sum(x**power) for x in xs)
    return total + sum(jnp.sum(2 * w) for w in weights.values())


class Model(eqx.Module):
    rate: Float[Array, ""]

    @optimize
    def loss(self, x: Float[Array, "n"], *, power: int = 2):
        return jnp.sum((self.rate * x) ** power)


class Plain:
    rate = 3.0

    @optimize
    def loss(self, x: Float[Array, "n"]):
        return self.rate * jnp.sum(x)

    @classmethod
    @optimize
    def of_class(cls, x: Float[Array, "n"]):
        return cls.rate * jnp.sum(x)


MODEL = Model(array(np.float32(2)))
PART = optimize(functools.partial(decay.__wrapped__, rate=2.0))
CALLS = {
    "positions": (decay, (X, T), {}),
    "keywords": (decay, (), {"t": T, "x": X}),
    "both": (decay, (X,), {"t": T, "rate": 1.0}),
    "a static argument": (decay, (X, T, 1.0, "x.npy"), {}),
    "many": (weighted, (X, T), {"power": 2}),
    "many by name": (weighted, (X,), {"first": T, "second": X}),
    "a method of a module": (MODEL.loss, (X,), {}),
    "a keyword-only parameter": (MODEL.loss, (X,), {"power": 3}),
    "a method": (Plain().loss, (X,), {}),
    "a method of a class": (Plain.of_class, (X,), {}),
    "an unbound method": (Model.loss, (MODEL, X), {}),
    "a partial": (PART, (X, T), {}),
    "a partial, with more": (PART, (X,), {"t": T, "unit": "min"}),
    "a gradient": (MODEL.loss.grad, (X,), {"wrt": "self"}),
    "a gradient by name": (decay.value_and_grad, (X, T), {"has_aux": True, "wrt": ("t", "x")}),
}


def close(got, want):
    """The same tree, with numbers up to the order of sums."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for ours, plain in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if isinstance(plain, str):
            assert ours == plain
        else:
            np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.core("positions", "many by name", "a method of a module")
@pytest.mark.parametrize("call", CALLS)
def test_a_stream_gives_what_the_call_gives(call):
    """Whatever the arguments are passed by, of a function and of what is bound."""
    program, args, kwargs = CALLS[call]
    streamed = program.stream(*args, chunk=6, **QUIET, **kwargs)
    close(streamed.result, program(*args, **kwargs))
    assert streamed.stats.chunks >= 4
    close(jitney.stream(program, *args, chunk={"n": 6}, **QUIET, **kwargs).result, streamed.result)


def test_directions_of_a_derivative_are_those_of_a_call():
    """`tangents` and `cotangent`, which are arguments of its program."""

    @optimize
    def energy(w: Float[Array, ""], x: Float[Array, "n"]):
        return w**2 * jnp.sum(x**2)

    w, along = jnp.float32(3), {"w": jnp.float32(1)}
    close(
        energy.jvp.stream(w, X, tangents=along, chunk=6, **QUIET).result,
        energy.jvp(w, X, tangents=along),
    )
    close(
        energy.vjp.stream(w, X, cotangent=jnp.float32(2), chunk=6, **QUIET).result,
        energy.vjp(w, X, cotangent=jnp.float32(2)),
    )
    with pytest.raises(jitney.errors.DerivativeError, match=r"missing tangents=\.\.\."):
        energy.jvp.stream(w, X)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.core("path", "chunks")
def test_a_source_stands_for_an_array_by_position(kind, tmp_path):
    """Each kind of data."""

    @optimize
    def total(x: Float[Array, "n"]):
        return jnp.sum(x)

    x = rows(40)
    got = of_rows(total, kind).stream(SOURCES[kind](x, tmp_path), chunk=7, **QUIET).result
    np.testing.assert_allclose(got, x.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hint", ["dict[str, Float[Array, 'n']]", "PyTree[Float[Array, 'n']]"])
def test_a_path_stands_for_an_array_inside_an_annotated_container(hint, tmp_path):
    """The container itself is passed as in a call, though its keys are names of parameters."""

    def product(a, b=2.0):
        return jnp.sum(a["a"] * a["b"]) * b

    product.__annotations__["a"] = eval(hint, {"Float": Float, "Array": Array, "PyTree": PyTree})
    data = {"a": saved(X, tmp_path), "b": Sliceable(T)}
    got, stats = optimize(product).stream(data, chunk=6, **QUIET)
    np.testing.assert_allclose(got, 2 * (X * T).sum(), rtol=1e-5)
    assert stats.chunks == 4


def test_a_list_of_arrays_is_a_list_where_the_annotation_is_one(tmp_path):
    """And parts of one array where that is what the annotation says."""

    @optimize
    def product(x: Float[Array, "n"], pair: list[Float[Array, "n"]]):
        return jnp.sum(x * pair[0] * pair[1])

    got = product.stream([X[:5], X[5:]], [T, saved(X, tmp_path)], chunk=6, **QUIET).result
    np.testing.assert_allclose(got, (X * T * X).sum(), rtol=1e-5)


def test_a_text_is_a_file_only_where_an_array_is_expected(tmp_path):
    """Of a union, the alternative that the value has."""

    @optimize(static="where")
    def total(x: Float[Array, "n"] | None, where, y: Float[Array, "n"] | str):
        return jnp.sum(y) if x is None else jnp.sum(x), where, y if isinstance(y, str) else ""

    path = saved(X, tmp_path)
    got = total.stream(path, "a.npy", "b.npy", chunk=6, **QUIET).result
    np.testing.assert_allclose(got[0], X.sum(), rtol=1e-5)
    assert got[1:] == ("a.npy", "b.npy")
    np.testing.assert_allclose(
        total.stream(None, "a.npy", X, chunk=6, **QUIET).result[0], X.sum(), rtol=1e-5
    )


def test_a_text_without_an_annotation_is_what_it_is_in_a_call(tmp_path):
    """Given, by default, or in a dict; whether or not there is such a file."""
    path = str(saved(X, tmp_path))

    @optimize
    def total(x: Float[Array, "n"], label="missing.npy", names: dict = {"a": "b.npz"}):  # noqa: B006
        return jnp.sum(x), label, names["a"]

    for more in ((), (path,), ("other.npy", {"a": path})):
        close(total.stream(X, *more, chunk=6, **QUIET).result, total(X, *more))


def test_a_path_stands_for_an_array_that_vmap_names(tmp_path):
    """Without an annotation too."""
    squares = optimize(vmap={"n": {"x": 0}})(lambda x, unit="s.npy": x**2)
    got = squares.stream(saved(X, tmp_path), chunk=6, **QUIET).result
    np.testing.assert_allclose(got, X**2, rtol=1e-6)


@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
def test_a_file_of_one_number_is_passed_whole(save, tmp_path):
    """Where the annotation is an array without axes."""

    @optimize
    def scaled(x: Float[Array, "n"], a: Float[Array, ""]):
        return a * jnp.sum(x)

    path = tmp_path / ("a.npy" if save is np.save else "a.npz")
    save(path, *([F(3)] if save is np.save else []), **({} if save is np.save else {"a": F(3)}))
    got = scaled.stream(X, path, chunk=6, **QUIET).result
    np.testing.assert_allclose(got, 3 * X.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["path", "chunks", "slices", "list"])
def test_data_in_another_byte_order_are_refused_as_in_a_call(kind, tmp_path):
    """From a file too, before anything is compiled."""
    other = X.astype(">f4")
    given = {
        "path": saved(other, tmp_path),
        "chunks": Chunks(other, 5),
        "slices": Sliceable(other),
        "list": [other, saved(other, tmp_path)],
    }
    with pytest.raises(ContractError, match="in the byte order of other machines"):
        decay.stream(given[kind], T, chunk=6, **QUIET)


def test_a_shape_is_not_data():
    """As in a call."""
    with pytest.raises(ContractError, match="'x' is a shape, and no array"):
        decay.stream(jax.ShapeDtypeStruct(X.shape, F), T, chunk=6, **QUIET)


def test_an_argument_without_the_axis_may_be_traced():
    """By `jax.grad` for one; nobody looks at the result then, which is said."""

    @optimize(debug_nans=True)
    def energy(w: Float[Array, ""], x: Float[Array, "n"]):
        return jnp.sum((w * x) ** 2)

    with pytest.warns(jitney.JitneyWarning, match="looks at nothing under an outer transform"):
        slope = jax.grad(lambda w: energy.stream(w, X, chunk=6, **QUIET).result)(F(3))
    np.testing.assert_allclose(slope, 6 * np.sum(X**2), rtol=1e-5)


@pytest.mark.parametrize(
    "traced",
    [
        lambda f, w: jax.jit(lambda x: f.stream(w, x, chunk=6, **QUIET).result)(X),
        lambda f, w: jax.jit(lambda w: f.stream(w, X, chunk=6, **QUIET).result)(w),
    ],
    ids=["data", "an argument of a result with the axis"],
)
def test_what_becomes_numbers_on_the_host_is_not_traced(traced):
    """It is said by name."""
    scaled = optimize(vmap={"n": {"x": 0}})(lambda w, x: w * x)
    with pytest.raises(ContractError, match="is traced by an outer transform"):
        traced(scaled, F(3))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_data_of_one_chunk_or_none(size):
    """One plain call."""
    streamed = decay.stream(X[:size], T[:size], **QUIET)
    close(streamed.result, decay(X[:size], T[:size]))
    assert streamed.stats.chunks == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(X),
        lambda f: f(),
        lambda f: f(X, T, speed=1.0),
        lambda f: f(X, T, x=X),
        lambda f: f(X, T, 1.0, "s", 3),
        lambda f: f({"time": T}, T),
    ],
    ids=["missing", "none", "unknown", "twice", "too many", "a dict"],
)
def test_a_call_that_does_not_fit_is_refused_as_the_call_itself(call):
    """In the same words."""
    with pytest.raises(ContractError) as plain:
        call(decay)
    with pytest.raises(ContractError) as streamed:
        call(decay.stream)
    assert str(streamed.value) == str(plain.value)


# Keywords of the stream that are parameters too.


@optimize
def smoothed(x: Float[Array, "n"], chunk: int = 1, *, retries: int = 1):
    return jnp.sum(x) * chunk * retries


def test_a_parameter_named_like_a_keyword_of_the_stream_is_passed_by_position():
    """Its default is its own; the keyword is the stream's."""
    got, stats = smoothed.stream(X, 3, chunk=6, **QUIET)
    np.testing.assert_allclose(got, 3 * X.sum(), rtol=1e-5)
    assert stats.chunks == 4
    np.testing.assert_allclose(smoothed.stream(X, **QUIET).result, X.sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("keyword", "value", "fix"),
    [
        ("chunk", 6, "write smoothed.stream(x, chunk, ...)."),
        ("retries", 2, "jitney.optimize(functools.partial(smoothed, retries=...))"),
    ],
)
def test_a_keyword_that_could_be_either_is_refused(keyword, value, fix):
    """Also where it is the stream's own default."""
    with pytest.raises(OptionError) as error:
        smoothed.stream(X, **{keyword: value})
    assert f"{keyword}= is a keyword of `stream`, and a parameter of the" in str(error.value)
    assert fix in str(error.value)


def test_a_parameter_that_a_partial_binds_is_not_meant():
    """The stream takes the keyword."""
    part = optimize(functools.partial(smoothed.__wrapped__, retries=4, chunk=2))
    np.testing.assert_allclose(
        part.stream(X, chunk=6, retries=0, **QUIET).result, 8 * X.sum(), rtol=1e-5
    )


# The axis.


def summed(x: Float[Array, "n d"], w: Float[Array, "d"] | None = None):
    return jnp.sum(x if w is None else x @ w)


@pytest.mark.parametrize(
    ("options", "args", "keywords", "chunks"),
    [
        ({}, (rows(20, 3),), {"chunk": 6}, 4),
        ({}, (rows(3, 20),), {"chunk": 6}, 4),
        ({"chunk": {"d": 2}}, (rows(20, 3),), {"chunk": 1}, 3),
        ({"chunk": {"n": 6}}, (rows(20, 3),), {}, 1),
        ({}, (rows(20, 3), rows(3)), {"chunk": "auto"}, 1),
        ({}, (rows(3, 20), Sliceable(rows(20))), {"chunk": 6}, 4),
        ({}, (Sliceable(rows(20, 3)), rows(3)), {"chunk": 6}, 4),
        ({}, (rows(20, 3), Sliceable(rows(3))), {"chunk": 2}, 2),
        ({}, (Chunks(rows(6, 20), 2),), {"chunk": 2}, 3),
    ],
    ids=[
        "the longest",
        "the longest is the second",
        "the function's own",
        "its size is not the stream's",
        "auto",
        "both have it",
        "of the source",
        "the only one of a source",
        "the first of rows in order",
    ],
)
def test_the_axis_is_chosen(options, args, keywords, chunks):
    """By the program's option, by what can be read, by length."""
    program = optimize(**options)(summed)
    got, stats = program.stream(*args, **keywords, **QUIET)
    whole = [np.concatenate(list(a)) if isinstance(a, Chunks) else a[:] for a in args]
    want = whole[0] @ whole[1] if len(whole) > 1 else whole[0]
    np.testing.assert_allclose(got, want.sum(), rtol=1e-4, atol=1e-4)
    assert stats.chunks == chunks


def test_the_functions_own_axis_may_be_of_arguments_that_are_left_out():
    """Then it is the longest that is there."""

    @optimize(chunk={"m": 4})
    def total(x: Float[Array, "n"], y: Float[Array, "m"] | None = None):
        return jnp.sum(x) + (0 if y is None else jnp.sum(y))

    got, stats = total.stream(X, chunk=6, **QUIET)
    np.testing.assert_allclose(got, X.sum(), rtol=1e-5)
    assert stats.chunks == 4


def test_an_axis_that_is_mapped_can_be_the_one():
    """`vmap` names it, and no annotation."""

    @optimize(vmap="batch")
    def energy(x: Float[Array, "3"]):
        return jnp.sum(x**2)

    x = rows(20, 3)
    got, stats = energy.stream(x, chunk=6, **QUIET)
    np.testing.assert_allclose(got, (x**2).sum(1), rtol=1e-5)
    assert stats.chunks == 4


def test_an_axis_that_was_chosen_and_cannot_be_cut_names_another():
    """The longest may be one that the function looks along."""

    @optimize
    def spectrum(x: Float[Array, "n k"]):
        return jnp.fft.fft(x, axis=1)

    with pytest.raises(jitney.errors.AxisError, match="axis 'k' cannot be cut") as error:
        spectrum.stream(rows(4, 20), chunk=3, **QUIET)
    note = '`stream` was given no axis, and took \'k\'; chunk={"n": "auto"} gives it another.'
    assert note in error.value.__notes__
    with pytest.raises(jitney.errors.AxisError) as error:
        spectrum.stream(rows(4, 20), chunk={"k": 3}, **QUIET)
    assert note not in error.value.__notes__


def test_the_size_of_a_chunk_may_be_an_integer_of_numpy():
    """As computed sizes are."""
    assert decay.stream(X, T, chunk=np.int64(6), **QUIET).stats.chunks == 4
    assert decay.stream(X, T, chunk={"n": np.int32(6)}, **QUIET).stats.chunks == 4


def test_an_axis_that_is_not_clear_is_an_error_with_the_candidates():
    """Two of a length, and sources that share none."""

    @optimize
    def product(x: Float[Array, "n"], y: Float[Array, "m"]):
        return jnp.sum(x) * jnp.sum(y)

    with pytest.raises(ContractError, match="'n' or 'd', each of 4 elements"):
        optimize(summed).stream(rows(4, 4))
    with pytest.raises(ContractError, match="'n' or 'm', none of which all data have"):
        product.stream(Sliceable(X), Sliceable(T))
    with pytest.raises(ContractError, match="no array has an axis with a name"):
        optimize(lambda x: jnp.sum(x)).stream(X)


# The former form.


@pytest.mark.core("a function", "a method", "a static argument")
@pytest.mark.parametrize(
    ("program", "data"),
    [
        (decay, {"x": X, "t": T}),
        (decay, {"t": T, "x": X, "unit": "min"}),
        (MODEL.loss, {"x": X}),
        (decay.value_and_grad.program(has_aux=True), {"x": X, "t": T}),
        (optimize(vmap={"n": {"x": 0}})(lambda x: x**2), {"x": X}),
    ],
    ids=["a function", "a static argument", "a method", "a derivative", "no annotation"],
)
def test_one_dict_by_names_still_works_with_a_warning_at_the_users_line(program, data):
    """Until 0.5.0."""
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(DeprecationWarning, match=r"goes in jitney 0\.5\.0") as caught:
        got = program.stream(data, chunk={"n": 6}, **QUIET).result
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, line)]
    close(got, program(**data))


def test_a_dict_is_data_where_the_first_parameter_takes_one():
    """By its annotation, though its keys are names of parameters."""

    @optimize
    def product(data: dict[str, Float[Array, "n"]], t: float = 1.0):
        return jnp.sum(data["data"] * data["t"]) * t

    got = product.stream({"data": X, "t": T}, chunk=6, **QUIET).result
    np.testing.assert_allclose(got, (X * T).sum(), rtol=1e-5)


@pytest.mark.parametrize("hint", [dict, None])
def test_a_dict_of_other_names_is_data_without_axes(hint):
    """Without an annotation it is the former form if it names the first parameter."""

    def product(data, t=1.0):
        return jnp.sum(data["t"]) * t

    if hint is not None:
        product.__annotations__["data"] = hint
    with pytest.raises(ContractError, match="no array has an axis with a name"):
        optimize(product).stream({"t": X}, **QUIET)


# What comes back.


def test_the_result_and_the_statistics_have_names_and_unpack():
    """A plain pair otherwise, which pickles."""
    streamed = decay.stream(X, T, chunk=6, **QUIET)
    result, stats = streamed
    assert (result is streamed.result, stats is streamed.stats) == (True, True)
    assert streamed[0] is result
    assert pickle.loads(pickle.dumps(streamed)).stats == stats
    assert streamed == (result, stats)
    with pytest.warns(DeprecationWarning, match="is called `result`"):
        assert streamed.value is result


USES = {
    "jnp.asarray": jnp.asarray,
    "np.asarray": np.asarray,
    "jnp.sum": jnp.sum,
    "np.sum": np.sum,
    "twice": lambda pair: 2 * pair,
    "times": lambda pair: pair * 2,
    "an array of NumPy": lambda pair: np.ones(2, F) * pair,
    "an array of JAX": lambda pair: jnp.ones(2) + pair,
    "plus": lambda pair: pair + 1,
    "minus": lambda pair: pair - 1,
    "compared": lambda pair: pair == 1.0,
    "not equal": lambda pair: pair != jnp.ones(2),
    "less": lambda pair: pair < 1,
    "its truth": bool,
    "a slice": lambda pair: pair[:10],
    "a column": lambda pair: pair[:, 0],
    "a number": float,
    "a tree": lambda pair: jax.tree.map(lambda leaf: 2 * leaf, pair),
    "traced": lambda pair: jax.jit(lambda x: x)(pair),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.core("jnp.asarray", "times", "a slice")
def test_a_pair_that_is_taken_for_an_array_is_an_error(use):
    """Never the numbers of something else."""

    @optimize
    def doubled(x: Float[Array, "n"]):
        return 2 * x

    with pytest.raises(TypeError):
        USES[use](doubled.stream(X, **QUIET))


def test_a_message_names_the_dtype_of_the_file(tmp_path):
    """Of int64, where JAX would make int32 of it."""
    np.save(tmp_path / "x.npy", np.arange(20))
    with pytest.raises(ContractError, match=r"'x' has dtype int64(.|\n)*annotate `Int\[Array"):
        decay.stream(tmp_path / "x.npy", T, **QUIET)


def test_a_list_of_single_numbers_is_an_error(tmp_path):
    """Such files have no rows that could stand one behind another."""
    np.save(tmp_path / "x.npy", np.float32(3))
    with pytest.raises(ContractError, match="part 0 of 'x' is a single float32"):
        decay.stream([tmp_path / "x.npy", tmp_path / "x.npy"], T, **QUIET)


def test_very_many_small_chunks_are_told_once():
    """A budget that fits a few rows is followed, with a warning that has the number of chunks."""
    total = optimize(memory="1KiB")(_total)
    x = np.ones(2**18, np.float32)
    with pytest.warns(DataWarning, match=r"memory=1 KiB leaves a stream [\d,]+ chunks of \d+ of"):
        assert total.stream(x, **QUIET).result == len(x)
    assert total.stream(x, **QUIET).result == len(x)


def _total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)
