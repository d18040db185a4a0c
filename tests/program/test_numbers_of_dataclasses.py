"""Floats in frozen dataclasses that JAX has no tree for: data, as in a registered class, or held
where the body needs them; beside plain JAX with the class registered.
"""

import dataclasses
import enum
import functools
import math
import threading
import typing
from dataclasses import InitVar, dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import load, optimize
from jitney.errors import ContractError
from tests._arrays import array

X = np.arange(1.0, 5.0, dtype=np.float32)
T = typing.TypeVar("T")


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


@dataclass(frozen=True)
class Plain:
    rate: float
    order: int = 2
    name: str = "a"


@dataclass(frozen=True, slots=True)
class Slots:
    rate: float
    order: int = 2


@dataclass(frozen=True, kw_only=True)
class Keywords:
    order: int = 2
    rate: float


@dataclass(frozen=True)
class Base:
    rate: float


@dataclass(frozen=True)
class Sub(Base):
    order: int = 2


@dataclass(frozen=True)
class Of(typing.Generic[T]):
    rate: T
    order: int = 2


@dataclass(frozen=True)
class Nested:
    inner: Plain
    betas: tuple = (0.9, 0.99)
    mode: Mode = Mode.UP
    sizes: tuple = (2, 3)
    table: dict = field(default_factory=lambda: {"b": 1, "a": 2})
    nothing: None = None

    @property
    def rate(self):
        return self.inner.rate * self.betas[0]

    @property
    def order(self):
        return self.inner.order


@dataclass(frozen=True)
class Checked:
    """Its numbers are looked at where it is made, which is outside of the trace."""

    rate: float
    order: int = 2

    def __post_init__(self):
        if not self.rate > 0:
            raise ValueError("rate")


@dataclass(frozen=True)
class Derived:
    """A field that is computed from another one."""

    base: float
    rate: float = field(init=False)
    order: int = 2

    def __post_init__(self):
        object.__setattr__(self, "rate", self.base / 2)


@dataclass(frozen=True)
class OwnInit:
    rate: float
    order: int = 2

    def __init__(self, twice):
        object.__setattr__(self, "rate", twice / 2)
        object.__setattr__(self, "order", 2)


@dataclass(frozen=True)
class OfInitVar:
    twice: InitVar[float]
    rate: float = 0.0
    order: int = 2

    def __post_init__(self, twice):
        object.__setattr__(self, "rate", twice / 2)


@dataclass(frozen=True)
class Cached:
    rate_: float
    order: int = 2

    @functools.cached_property
    def rate(self):
        return self.rate_ * 2

    @classmethod
    def seen(cls, rate):
        made = cls(rate)
        assert made.rate == rate * 2
        return made


TRACED = {
    "plain": Plain,
    "slots": Slots,
    "kw_only": lambda rate: Keywords(rate=rate),
    "inherits": Sub,
    "generic": Of,
    "nested": lambda rate: Nested(Plain(rate)),
    "checks": Checked,
    "computes a field": Derived,
    "has an __init__": OwnInit,
    "InitVar": OfInitVar,
    "cached_property": Cached,
    "cached_property that was read": Cached.seen,
    "in a dict": lambda rate: {"a": [Plain(rate)]},
}


def scaled(x, settings):
    if isinstance(settings, dict):
        settings = settings["a"][0]
    return x * settings.rate**settings.order - settings.rate


@pytest.mark.core
@pytest.mark.parametrize("name", TRACED)
def test_floats_of_a_frozen_dataclass_are_data(name):
    """One program for all values, with the numbers of the body that has them as constants."""
    f = optimize(scaled)
    for rate in (0.5, 0.25, 1.5, 3.0):
        settings = TRACED[name](rate)
        got = f(X, settings)
        np.testing.assert_allclose(got, scaled(X, settings), rtol=1e-6)
    assert f.stats.traces == 1


@pytest.mark.parametrize("x64", [False, True], ids=["f32", "f64"])
def test_results_are_those_of_a_registered_class(x64):
    """To the bit, with dtypes and weak types."""

    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Known:
        rate: float
        order: int = field(default=2, metadata={"static": True})

    def body(x, s):
        return x * s.rate**s.order, s.rate, s.rate * x.astype(np.float16), s.rate / 3

    f = optimize(body)
    with jax.enable_x64(x64):
        for rate in (0.1, -0.0, math.inf, math.nan, 1 / 3):
            got, want = f(X, Plain(rate)), jax.jit(body)(X, Known(rate))
            for a, b in zip(got, want, strict=True):
                assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
                np.testing.assert_array_equal(a, b)


@dataclass(frozen=True)
class Extra:
    """An attribute beside its fields is computed from one of them."""

    rate: float
    order: int = 2

    def __post_init__(self):
        object.__setattr__(self, "half", self.rate / 2)


@dataclass(frozen=True)
class Uncompared:
    """A memo that its key does not hold."""

    rate: float
    order: int = 2
    memo: dict = field(default_factory=dict, compare=False)

    @property
    def half(self):
        return self.memo.setdefault("half", self.rate / 2)


@dataclass(frozen=True)
class UncomparedBesideList(Uncompared):
    """It has no hash, with the memo or without."""

    sizes: list = field(default_factory=list)


@dataclass(frozen=True)
class OwnHash:
    rate: float
    order: int = 2

    def __hash__(self):
        return hash(self.order)

    def __eq__(self, other):
        return self.order == other.order and self.rate == other.rate

    @functools.cached_property
    def half(self):
        return self.rate / 2


@dataclass(frozen=True, eq=False)
class ByIdentity:
    rate: float
    order: int = 2
    half = property(lambda self: self.rate / 2)


@dataclass(frozen=True)
class Interned:
    rate: float
    order: int = 2
    half = property(lambda self: self.rate / 2)

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)


@dataclass
class Mutable:
    rate: float
    order: int = 2
    half = property(lambda self: self.rate / 2)


@dataclass(frozen=True)
class Failure(Exception):
    rate: float
    order: int = 2
    half = property(lambda self: self.rate / 2)


WHOLE = {
    "attribute": Extra,
    "memo": Uncompared,
    "memo beside a list": UncomparedBesideList,
    "hash": OwnHash,
    "eq=False": ByIdentity,
    "__new__": Interned,
    "mutable": Mutable,
    "exception": Failure,
}


@pytest.mark.core
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore::jitney.errors.RetraceWarning")
def test_one_that_holds_more_than_its_key_stays_static(name):
    """What it has computed from its numbers is never older than they are."""

    @optimize
    def f(x, settings):
        return x * settings.half + settings.rate

    for rate in (0.5, 0.25, 2.0):
        settings = WHOLE[name](rate)
        settings.half  # noqa: B018 - read outside first, as a memo
        np.testing.assert_allclose(f(X, settings), X * rate / 2 + rate, rtol=1e-6)
    assert f.stats.traces == 3


def test_a_field_that_is_not_compared_is_in_no_key():
    """As of each static dataclass."""
    labelled = dataclasses.make_dataclass(
        "Labelled",
        [("rate", float), ("sizes", list), ("label", str, field(compare=False))],
        frozen=True,
    )
    f = optimize(lambda x, s: x * s.rate)
    for label in "abc":
        np.testing.assert_array_equal(f(X, labelled(0.5, [1], label)), X * 0.5)
    assert f.stats.traces == 1


@functools.lru_cache
def remembered(settings):
    return settings.rate * 2


@functools.partial(jax.jit, static_argnames="settings")
def compiled(x, settings):
    return x * settings.rate


DEFAULT = Plain(0.5)
HOLDS = {
    "branch": lambda x, s: x if s.rate > 1 else -x,
    "memo": lambda x, s: x * remembered(s),
    "static of a jit": compiled,
    "equality": lambda x, s: x if s == DEFAULT else -x,
    "one of": lambda x, s: x if s in (DEFAULT,) else -x,
    "key": lambda x, s: {DEFAULT: x}.get(s, -x),
    "checked": lambda x, s: x * Checked(s.rate).rate,
    "float": lambda x, s: x * float(s.rate),
    "filter_jit": lambda x, s: eqx.filter_jit(lambda x, s: x * s.rate)(x, s),
    "match": lambda x, s: _matched(x, s),
    "returned": lambda x, s: _returned(x, s),
}


def _matched(x, settings):
    match settings:
        case Plain(rate=0.5):
            return x
        case _:
            return -x


def _returned(x, settings):
    return x, replace(settings, rate=settings.rate / 2)


@pytest.mark.parametrize("what", HOLDS)
@pytest.mark.filterwarnings("ignore::jitney.errors.RetraceWarning")
def test_numbers_that_the_body_needs_are_held(what):
    """With the results of the static argument, and a reason in the plan."""
    body = HOLDS[what]
    f = optimize(body)
    for rate in (0.5, 2.0, 0.25):
        got, want = f(X, Plain(rate)), body(X, Plain(rate))
        if what == "returned":
            assert got[1] == want[1]
            got, want = got[0], want[0]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert f.stats.traces == 3
    assert any(line.startswith("settings.rate") or "rate = 0.5" in line for line in _static(f))


def _static(f):
    return f.plan(X, Plain(0.5)).static


@pytest.mark.core
def test_numbers_that_a_hash_needs_are_held_together():
    """Two traces find them, however many there are."""
    many = dataclasses.make_dataclass(
        "Many", [(f"a{i}", float, 0.5) for i in range(12)], frozen=True
    )
    runs = []

    @functools.partial(jax.jit, static_argnames="s")
    def inner(x, s):
        return x * s.a0

    @optimize
    def f(x, s):
        runs.append(1)
        return inner(x, s)

    np.testing.assert_array_equal(f(X, many(2.0)), 2 * X)
    assert len(runs) <= 6


def test_other_fields_are_static():
    """The body has them as they are: in their order, of their types."""

    @optimize
    def f(x, s):
        assert (s.mode, s.sizes, s.nothing) == (Mode.UP, (2, 3), None)
        assert [*s.table] == ["b", "a"]
        assert type(s.inner.order) is int
        assert type(s.betas) is tuple
        return x * s.betas[1] + len(s.inner.name)

    np.testing.assert_allclose(f(X, Nested(Plain(0.5))), X * 0.99 + 1, rtol=1e-6)
    np.testing.assert_allclose(f(X, Nested(Plain(0.5, name="abc"))), X * 0.99 + 3, rtol=1e-6)
    assert f.stats.traces == 2


def test_a_field_that_is_a_float_here_and_an_int_there_is_two_programs():
    """In either order."""
    for rates in ((1.0, 1, 2.0, None), (1, 1.0, None, 2.0)):
        f = optimize(lambda x, s: x * 3 if s.rate is None else x * s.rate)
        for rate in rates:
            np.testing.assert_array_equal(
                f(X, Plain(rate)), X * (3 if rate is None else np.float32(rate))
            )
        assert f.stats.traces == 3


@pytest.mark.parametrize("options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}, {"vmap": "b"}])
def test_options_take_its_numbers(options):
    """Padded, cut and mapped calls, and their derivatives."""
    from jaxtyping import Array, Float

    @optimize(**options)
    def f(x: Float[Array, "n"], settings: Plain):
        return jnp.sum(x) * settings.rate**settings.order

    x = np.stack([X, X]) if "vmap" in options else X
    for rate in (0.5, 0.25, 2.0):
        np.testing.assert_allclose(f(x, Plain(rate)), x.sum(-1) * rate**2, rtol=1e-6)
    assert f.stats.traces == 1
    if "vmap" not in options:
        slopes = f.grad(X, Plain(0.5))
        np.testing.assert_allclose(slopes["x"], np.full(4, 0.25), rtol=1e-6)


def test_a_program_that_a_body_calls_takes_a_traced_number():
    """It is data there too, and is differentiated through."""
    inner = optimize(lambda x, s: x * s.rate)
    outer = optimize(lambda x, s: inner(x, s) + s.rate)
    for rate in (0.5, 0.25):
        np.testing.assert_array_equal(outer(X, Plain(rate)), X * rate + rate)
    assert (inner.stats.traces, outer.stats.traces) == (1, 1)
    slope = jax.grad(lambda rate: jnp.sum(inner(X, Plain(rate))))(0.5)
    np.testing.assert_allclose(slope, X.sum())


def test_an_array_in_a_field_is_refused_as_before():
    """By the name of the field."""
    f = optimize(scaled)
    f(X, Plain(0.5))
    with pytest.raises(ContractError, match="a dataclass with arrays: rate"):
        f(X, Plain(array(0.5)))


def test_static_keeps_it_whole():
    """The body has the very numbers."""
    f = optimize(static="s")(lambda x, s: x if s.rate > 1 else x * hash(s))
    np.testing.assert_array_equal(f(X, Plain(2.0)), X)
    assert not any("rate = " in line for line in f.plan(X, Plain(2.0)).static)


def test_a_field_of_a_module_stays_static():
    """As all that is no array in a module."""

    class Model(eqx.Module):
        settings: Plain

    f = optimize(lambda model, x: x if model.settings.rate > 1 else -x)
    np.testing.assert_array_equal(f(Model(Plain(2.0)), X), X)
    np.testing.assert_array_equal(f(Model(Plain(0.5)), X), -X)


def test_threads_share_one_program():
    """Each with its own numbers."""
    f, got = optimize(scaled), {}

    def call(i):
        got[i] = np.asarray(f(X, Plain(0.25 * i)))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(12):
        np.testing.assert_allclose(got[i], scaled(X, Plain(0.25 * i)), rtol=1e-6)
    assert f.stats.traces == 1


def test_warm_calls_look_at_each_instance():
    """A generated function takes the numbers; what else differs is another call."""
    f = optimize(scaled)
    for i in range(6):
        settings = Plain(0.5 * i)
        np.testing.assert_allclose(f(X, settings), scaled(X, settings), rtol=1e-6)
    for settings in (Plain(0.5, 3), Plain(0.5, True), Plain(2, 2), Sub(0.5), Sub(0.5, 3), Of(0.25)):
        np.testing.assert_allclose(f(X, settings), scaled(X, settings), rtol=1e-6)
    for settings in (Cached.seen(0.25), Cached(0.5), Cached.seen(2.0), Cached.seen(3.0)):
        np.testing.assert_allclose(f(X, settings), scaled(X, settings), rtol=1e-6)


def test_other_ways_to_ask_take_it():
    """`compile`, `lower`, `plan`, `eval_shape`, pickling, and the contract of the annotation."""

    @optimize
    def f(x, s: Plain):
        return x * s.rate

    f.compile(X, Plain(0.5))
    np.testing.assert_array_equal(f(X, Plain(0.25)), X * 0.25)
    assert f.stats.traces == 1
    np.testing.assert_array_equal(f.lower(X, Plain(0.5)).compile()(X, Plain(4.0)), X * 4)
    assert f.eval_shape(X, Plain(0.5)).shape == X.shape
    assert "s.order = 2" in f.plan(X, Plain(0.5)).static
    with pytest.raises(ContractError):
        f(X, Slots(0.5))


def test_a_loaded_program_takes_other_numbers(tmp_path):
    """Of instances with the same other fields, or of a dict of them."""
    f = optimize(scaled)
    f.export(tmp_path / "f", X, Nested(Plain(0.5)))
    loaded = load(tmp_path / "f")
    for rate in (0.5, 0.25):
        settings = Nested(Plain(rate))
        np.testing.assert_allclose(loaded(X, settings), scaled(X, settings), rtol=1e-6)
    for wrong in (
        Nested(Plain(1)),
        Nested(Plain(0.5, 3)),
        Nested(Plain(0.5), betas=(0.9,)),
        Nested(Plain(0.5), table={"a": 2, "b": 1}),
        Plain(0.5),
    ):
        with pytest.raises(ContractError):
            loaded(X, wrong)


def test_one_with_itself_inside_has_no_key():
    """As before."""
    settings = Nested(Plain(0.5))
    object.__setattr__(settings, "nothing", settings)
    with pytest.raises(Exception, match="contains itself"):
        optimize(scaled)(X, settings)
