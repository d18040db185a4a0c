"""Axes that only the fields of a class name, under each option, beside plain JAX."""

import dataclasses
import warnings
from typing import Any, NamedTuple, NotRequired, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import ContractError, OptionError
from tests._tracing import count_traces

RNG = np.random.default_rng(5)


class Module(eqx.Module):
    x: Float[Array, "n d"]
    w: Float[Array, "n"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    x: Float[Array, "n d"]
    w: Float[Array, "n"]


class Named(NamedTuple):
    x: Float[Array, "n d"]
    w: Float[Array, "n"]
    tag: Any = None


class Typed(TypedDict):
    w: Float[Array, "n"]
    x: Float[Array, "n d"]
    more: NotRequired[Float[Array, "m"]]


@jax.tree_util.register_pytree_node_class
class Keyless:
    """Its children have no names, and another order than its annotations."""

    x: Float[Array, "n d"]
    w: Float[Array, "n"]

    def __init__(self, x, w):
        self.x, self.w = x, w

    def tree_flatten(self):
        return (self.w, self.x), None

    @classmethod
    def tree_unflatten(cls, _, children):
        w, x = children
        return cls(x, w)


KINDS = [Module, Registered, Named, Typed, Keyless]
KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
WIDE = pytest.mark.parametrize(
    "wide",
    [
        pytest.param(False, id="float32"),
        pytest.param(True, id="float64", marks=pytest.mark.rest),
    ],
)


@pytest.fixture
def precision(wide):
    with jax.enable_x64(wide):
        yield np.float64 if wide else np.float32


def made(kind, n, dtype=np.float32, d=3):
    x, w = RNG.normal(size=(n, d)).astype(dtype), RNG.uniform(1, 2, size=n).astype(dtype)
    return kind(x=jnp.asarray(x), w=jnp.asarray(w))


def parts(value):
    return (value["x"], value["w"]) if isinstance(value, dict) else (value.x, value.w)


def body_of(kind):
    """Something elementwise, sums along `n`, and a normalisation."""

    def f(data, scale: float = 2.0):
        x, w = parts(data)
        return jnp.abs(x) * scale, jnp.abs(x).T @ w, jax.nn.softmax(w)

    f.__annotations__["data"] = kind
    return f


def assert_equal(got, f, *args):
    """Elementwise results to the bit, the others within rounding, of the same dtype."""
    want = jax.jit(f)(*args)
    np.testing.assert_array_equal(got[0], want[0])
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12 if b.dtype == np.float64 else 2e-6)


@pytest.mark.core("float32-Module")
@KIND
@WIDE
def test_sizes_share_the_program_of_their_bucket(kind, precision):
    """5, 6 and 7 rows are one program, and 8 rows too."""
    f = count_traces(body_of(kind))
    padded = optimize(pad={"n": [8]})(f)
    padded(made(kind, 5, precision))
    before = f.traces
    for n in (5, 6, 7):
        data = made(kind, n, precision)
        assert_equal(padded(data), body_of(kind), data)
    assert f.traces == before


@pytest.mark.core("float32-Registered")
@KIND
@WIDE
def test_a_long_axis_is_cut_into_chunks(kind, precision):
    """Thirteen rows, four at a time."""
    data = made(kind, 13, precision)
    cut = optimize(chunk={"n": 4})(body_of(kind))
    assert "n=13 in chunks of 4" in str(cut.plan(data))
    assert_equal(cut(data), body_of(kind), data)


@pytest.mark.core("float32-Registered")
@KIND
@WIDE
def test_a_stream_reads_along_it(kind, precision):
    """The arrays of a class, a part of the rows at a time."""
    data = made(kind, 40, precision)
    streamed = optimize(body_of(kind)).stream(data, chunk={"n": 7}, progress=False)
    assert streamed.stats.chunks > 1
    assert_equal(streamed.result, body_of(kind), data)


@pytest.mark.core("float32-Module", "float32-Keyless")
@KIND
@WIDE
def test_vmap_adds_an_axis_before_those_of_the_fields(kind, precision):
    """Each array has one axis more than its field says, and the axis within is padded."""
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *(made(kind, 5, precision),) * 3)
    f = body_of(kind)
    mapped = optimize(vmap="batch", pad={"n": "pow2"})(f)
    want = jax.jit(jax.vmap(f))(stacked)
    for a, b in zip(mapped(stacked), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6)


@pytest.mark.core("Module", "Registered", "Typed")
@KIND
def test_an_argument_without_annotation_has_the_axes_of_its_class(kind):
    """All but a TypedDict, which is a dict like any other."""
    data, f = made(kind, 5), body_of(kind)
    del f.__annotations__["data"]
    padded = optimize(pad={"n": [8]})(f)
    if kind is Typed:
        with pytest.raises(OptionError, match="`pad` names 'n', which is not an axis"):
            padded(data)
    else:
        assert_equal(padded(data), f, data)
        assert "n 5 -> 8" in str(padded.plan(data))


@pytest.mark.core("Module", "Registered")
@KIND
def test_facts_are_told_of_it(kind):
    """As of the axes of a signature."""
    facts = optimize(body_of(kind)).axes(made(kind, 5))
    assert facts["n"].kind == "contracted and reduced"
    assert facts["n"].refused is None
    assert facts["d"].kind == "pointwise"


@pytest.mark.core("Module", "Registered")
@KIND
def test_it_has_a_size_ahead_of_time(kind):
    """Of an example, or of a class whose fields describe its instances; a module is none such."""
    f = count_traces(body_of(kind))
    padded = optimize(pad={"n": [8]})(f)
    example = [made(kind, 5)] if kind in (Module, Keyless) else []
    padded.compile(*example, sizes={"n": 5, "d": 3})
    before = f.traces
    data = made(kind, 7)
    assert_equal(padded(data), body_of(kind), data)
    assert f.traces == before


def test_a_class_that_has_more_than_its_fields_needs_an_example():
    """A static field without a default has no value."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Held:
        x: Float[Array, "n"]
        order: int

    def total(held: Held):
        return held.x.sum() ** held.order

    with pytest.raises(ContractError, match=r"nothing tells what 'held\.order' is"):
        optimize(total).compile(sizes={"n": 5})
    with pytest.raises(ContractError, match=r"'held\.x' is annotated .*axis 'n' has no size"):
        optimize(total).compile()


@pytest.mark.rest
@pytest.mark.parametrize("kind", [Module, Named, Typed], ids=lambda kind: kind.__name__)
def test_the_range_of_an_export_is_one_of_its_sizes(kind, tmp_path):
    """A file for 2 to 16 rows gives at each size what the function gives."""
    f = body_of(kind)
    optimize(f).export(tmp_path / "f.jitney", made(kind, 5), sizes={"n": range(2, 17)})
    loaded = jitney.load(tmp_path / "f.jitney")
    for n in (2, 9, 16):
        data = made(kind, n)
        assert_equal(loaded(data), f, data)


# Several instances.


def two(a: Module, b: Module):
    return a.x.sum(0) + b.x.sum(0), a.w.sum() * b.w.sum()


@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}], ids=["pad", "chunk"]
)
def test_two_instances_that_differ_are_refused_by_name(options):
    """A contract binds the axes of each instance anew; an option acts on one axis of that name."""
    f = optimize(**options)(two)
    for got, want in zip(f(made(Module, 5), made(Module, 5)), (3,), strict=False):
        assert got.shape == (want,)
    with pytest.raises(
        ContractError,
        match=r"axis 'n' has two sizes, 5 from 'a.x' and 6 from 'b.x'(.|\n)*instances",
    ):
        f(made(Module, 5), made(Module, 6))
    # Without an option that acts on it each has its own.
    a, b = made(Module, 5), made(Module, 6)
    np.testing.assert_allclose(optimize(two)(a, b)[0], two(a, b)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}], ids=["pad", "chunk"]
)
def test_a_field_and_an_argument_that_differ_are_both_named(options):
    """Under one option they are one axis."""

    def f(data: Registered, y: Float[Array, "n"]):
        return data.w.sum() + y.sum()

    with pytest.raises(ContractError, match=r"axis 'n' has two sizes, 5 from .* and 4 from 'y'"):
        optimize(**options)(f)(made(Registered, 5), jnp.ones(4))
    data = made(Registered, 5)
    got = optimize(**options)(f)(data, jnp.ones(5))
    np.testing.assert_allclose(got, f(data, jnp.ones(5)), rtol=1e-6)


def test_facts_of_instances_that_differ_say_so():
    """There is no one size to tell of."""
    facts = optimize(two).axes(made(Module, 5), made(Module, 6))
    assert facts["n"].kind == "unknown"
    assert "has two sizes, 5 from 'a.x' and 6 from 'b.x'" in facts["n"].refused
    assert facts["d"].kind == "pointwise"


@pytest.mark.rest
def test_a_list_of_modules_is_padded_as_one():
    """Each instance in it has the axis."""

    def total(modules: list[Module]):
        return sum(each.x.T @ each.w for each in modules)

    modules = [made(Module, 6) for _ in range(3)]
    padded = optimize(pad={"n": [8]})(total)
    np.testing.assert_allclose(padded(modules), total(modules), rtol=1e-5)
    assert "n 6 -> 8" in str(padded.plan(modules))


# Fields of all kinds.


class Mixed(eqx.Module):
    x: Float[Array, "n"]
    mask: Float[Array, "n"] | None
    inner: Registered
    table: dict[str, Float[Array, "n"]]
    bare: Any
    wide: Float[Array, "{self.times}*n"]
    order: int = eqx.field(static=True)
    times: int = eqx.field(static=True, default=2)


def mixed(n, mask=True, bare=1.5):
    return Mixed(
        jnp.arange(n, dtype=np.float32),
        jnp.ones(n) if mask else None,
        made(Registered, n),
        {"a": jnp.ones(n)},
        bare,
        jnp.arange(2.0 * n),
        2,
    )


def of_mixed(value: Mixed):
    masked = value.x if value.mask is None else value.x * value.mask
    pairs = value.wide.reshape(-1, value.times).sum(1)
    return (masked + pairs * value.table["a"]) ** value.order, value.inner.x.sum(0)


@pytest.mark.core("with")
@pytest.mark.parametrize("mask", [True, False], ids=["with", "without"])
def test_fields_that_are_optional_static_nested_or_sized_by_the_instance(mask):
    """Each array of the instance that has the axis is padded, one of twice its size too."""
    padded = optimize(pad={"n": [8]})(of_mixed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (5, 7):
            value = mixed(n, mask)
            for got, want in zip(padded(value), of_mixed(value), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5)
    assert padded.stats.traces <= 2


def test_an_axis_of_a_field_that_is_none_is_an_axis_all_the_same():
    """A typo is not one, and the first call says so: an instance of a subclass may have more."""

    class Masked(eqx.Module):
        x: Float[Array, "n"]
        mask: Float[Array, "k"] | None = None

    def total(value: Masked):
        return value.x.sum()

    assert optimize(pad={"k": "pow2"})(total)(Masked(jnp.ones(3))) == 3
    with pytest.raises(OptionError, match=r"`pad` names 'nn'(.|\n)*are k, n(.|\n)*mean 'n'"):
        optimize(pad={"nn": "pow2"})(total)(Masked(jnp.ones(3)))


def test_a_subclass_may_name_the_axis():
    """The annotation is the base, which names none."""

    class Base(eqx.Module):
        pass

    class Own(Base):
        x: Float[Array, "n"]

    def total(value: Base):
        return value.x.sum()

    padded = optimize(pad={"n": [8]})(total)
    assert padded(Own(jnp.ones(5))) == 5
    assert "n 5 -> 8" in str(padded.plan(Own(jnp.ones(5))))


def test_a_mapped_axis_is_not_one_of_the_fields():
    """An annotation says what the body sees."""
    with pytest.raises(OptionError, match="an axis that the fields of its classes have already"):
        optimize(vmap="n")(two)


@pytest.mark.rest
def test_names_that_jitney_gave_are_for_shard_alone():
    """Two layers of one library differ in `out`, and nobody wrote that name."""
    layers = [
        eqx.nn.Linear(3, 4, key=jax.random.key(0)),
        eqx.nn.Linear(4, 2, key=jax.random.key(1)),
    ]

    def f(layers, x: Float[Array, "out in"]):
        for layer in layers:
            x = jax.vmap(layer)(x)
        return x

    x = jnp.ones((5, 3))
    padded = optimize(pad={"out": [8]})(f)
    np.testing.assert_allclose(padded(layers, x), f(layers, x), rtol=1e-5)
    assert "out 5 -> 8" in str(padded.plan(layers, x))


def test_a_stack_of_modules_is_not_padded_by_the_names_of_one():
    """Its arrays have an axis in front, and `n` is not where the field says."""
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *(made(Module, 5),) * 3)

    def f(data: Module):
        return data.w.sum()

    padded = optimize(pad={"n": [8]})(f)
    np.testing.assert_allclose(padded(stacked), f(stacked), rtol=1e-6)
    assert "no array has an axis 'n'" in str(padded.plan(stacked))


@pytest.mark.core("annotated")
@pytest.mark.parametrize("annotated", [True, False], ids=["annotated", "bare"])
def test_gradients_are_accumulated_along_it(annotated):
    """Over microbatches of a class; another name is refused at the first call at the latest."""

    def loss(w, data):
        return jnp.mean((data.x @ w) ** 2 * data.w)

    if annotated:
        loss.__annotations__.update(w=Float[Array, "d"], data=Module)
    w, data = jnp.ones(3), made(Module, 12)
    _, got = jitney.accumulate(loss, axis="n", microbatch=4, wrt="w")(w, data)
    np.testing.assert_allclose(got, jax.grad(loss)(w, data), rtol=1e-5)
    with pytest.raises(OptionError, match="`accumulate` names 'rows', which is not an axis"):
        jitney.accumulate(loss, axis="rows", microbatch=4, wrt="w")(w, data)


@pytest.mark.rest
def test_memory_cuts_it():
    """As the longest axis of an argument."""

    def waves(data: Module):
        return jnp.sin(data.x[:, :, None] * jnp.arange(500.0)).sum((1, 2))

    data = made(Module, 5000)
    bounded = optimize(memory="16MiB")(waves)
    assert "n=5000 in chunks" in str(bounded.plan(data))
    np.testing.assert_allclose(bounded(data), waves(data), rtol=1e-3, atol=1e-3)


@pytest.mark.rest
def test_a_derivative_is_padded_along_it():
    """With respect to the instance, which comes back as one."""

    def loss(data: Module):
        return jnp.sum(jnp.sin(data.x) * data.w[:, None]) / data.w.sum()

    data = made(Module, 6)
    (got,) = optimize(pad={"n": [8]})(loss).grad(data).values()
    want = jax.grad(loss)(data)
    assert isinstance(got, Module)
    np.testing.assert_allclose(got.x, want.x, rtol=1e-5)
    np.testing.assert_allclose(got.w, want.w, rtol=1e-4, atol=1e-6)
