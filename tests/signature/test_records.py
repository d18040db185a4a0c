"""Dataclasses that JAX has no tree for: refused where they hold arrays, static where they do not."""

import dataclasses
from dataclasses import InitVar, dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import optimize
from jitney.errors import ContractError, StaticError
from tests._arrays import array

X = array(np.arange(3.0, dtype=np.float32))


@dataclass
class Mutable:
    x: object
    k: int = 2


@dataclass(frozen=True)
class Frozen:
    x: object
    k: int = 2


@dataclass(slots=True)
class Slots:
    x: object
    k: int = 2


@dataclass(eq=False)
class ByIdentity:
    x: object
    k: int = 2


@dataclass
class Nested:
    inner: Frozen
    k: int = 2

    @property
    def x(self):
        return self.inner.x


@dataclass
class Listed:
    many: list
    k: int = 2

    @property
    def x(self):
        return self.many[0]["x"]


@dataclass
class Made:
    """Its arrays come from a default factory."""

    x: object = field(default_factory=lambda: jnp.arange(3.0))
    k: int = 2


@dataclass
class Initialised:
    """It makes its array from what `__init__` alone takes."""

    n: InitVar[int]
    x: object = field(init=False)
    k: int = 2

    def __post_init__(self, n):
        self.x = jnp.arange(float(n))


MAKERS = {
    "mutable": Mutable,
    "frozen": Frozen,
    "slots": Slots,
    "eq=False": ByIdentity,
    "nested": lambda x: Nested(Frozen(x)),
    "in a container": lambda x: Listed([{"x": x}]),
    "factory": lambda x: Made(),
    "InitVar": lambda x: Initialised(3),
}
MAKE = pytest.mark.parametrize("name", MAKERS)


def scaled(value):
    return value.x * value.k


@MAKE
@pytest.mark.parametrize("of", [jnp.asarray, np.asarray], ids=["jax", "numpy"])
def test_one_with_arrays_is_refused_at_its_first_call(name, of):
    """With the field, and with what to write, which helps each of these classes."""
    value = MAKERS[name](of(X))
    held = next(f.name for f in dataclasses.fields(value) if f.name not in ("k", "n"))
    says = rf"'value' is of the class `{type(value).__name__}`, a dataclass with arrays: {held}\."
    with pytest.raises(ContractError, match=says) as raised:
        optimize(scaled)(value)
    registered = "write @jax.tree_util.register_dataclass above its @dataclass, or make"
    # JAX makes a registered dataclass anew by its `__init__`, from its fields alone.
    assert (registered in str(raised.value)) == (name != "InitVar")
    assert f"make `{type(value).__name__}` an eqx.Module" in str(raised.value)


@pytest.mark.parametrize(
    "wrap",
    [lambda v: [v], lambda v: {"a": (1, v)}],
    ids=["list", "dict"],
)
def test_one_inside_of_a_tree_is_refused_by_its_path(wrap):
    """A list of data sets, a dict of them."""
    with pytest.raises(ContractError, match=r"values\[.*\]. is of the class `Mutable`"):
        optimize(lambda values: 1)(wrap(Mutable(X)))


def test_one_with_arrays_of_a_trace_is_refused():
    """Under an outer `jit`, where its array has no numbers."""
    with pytest.raises(ContractError, match="'value' is of the class `Mutable`"):
        jax.jit(lambda x: optimize(scaled)(Mutable(x)))(X)


def test_an_array_that_comes_later_is_refused_when_it_comes():
    """The first value of the field has no array, and the class is the same."""
    f = optimize(scaled)
    value = ByIdentity(1.5)
    assert f(value) == 3.0
    value.x = X
    with pytest.raises(ContractError, match="a dataclass with arrays: x"):
        f(value)
    value = Mutable(1.5)
    assert f(value) == 3.0
    value.x = X
    with pytest.raises(ContractError, match="a dataclass with arrays: x"):
        f(value)


@MAKE
def test_one_that_is_declared_static_is_a_constant(name):
    """`static=` says so, and a change in place is another value."""
    f = optimize(static="value")(scaled)
    value = MAKERS[name](np.arange(3.0))
    np.testing.assert_array_equal(f(value), [0, 2, 4])
    if name in ("mutable", "slots", "eq=False", "factory", "InitVar"):
        value.x = np.arange(3.0) + 1
        np.testing.assert_array_equal(f(value), [2, 4, 6])


@pytest.mark.parametrize("cls", [Mutable, Frozen, Slots, ByIdentity])
def test_one_without_arrays_is_static(cls):
    """Settings: numbers, texts, None."""
    f = optimize(lambda x, settings: x * settings.k)
    np.testing.assert_array_equal(f(X, cls(None)), [0, 2, 4])
    np.testing.assert_array_equal(f(X, cls("a", 3)), [0, 3, 6])


def test_one_that_is_registered_is_data():
    """One program for all numbers, and its fields that are not arrays stay static."""

    @jax.tree_util.register_dataclass
    @dataclass
    class Known:
        x: jax.Array
        k: int = 2
        inner: Frozen | None = None

    f = optimize(scaled)
    for i in range(3):
        np.testing.assert_array_equal(f(Known(X + i)), 2 * (X + i))
    assert f.stats.traces == 1
    value = Known(X)
    value.x = value.x + 1
    np.testing.assert_array_equal(f(value), 2 * (X + 1))
    assert f.stats.traces == 1


@pytest.mark.parametrize(
    "name", ["mutable", "frozen", "slots", "eq=False", "nested", "in a container"]
)
def test_a_result_that_holds_arrays_of_the_trace_is_refused(name):
    """It would be handed on with arrays that have no numbers."""
    with pytest.raises(StaticError, match=r"whose '.*' is or holds an array of the trace"):
        optimize(lambda x: [MAKERS[name](x * 2)])(X)


def test_a_result_without_arrays_is_handed_on():
    """Settings that the body returns beside its arrays."""
    x, settings = optimize(lambda x: (x + 1, Frozen("a")))(X)
    np.testing.assert_array_equal(x, X + 1)
    assert settings == Frozen("a")


def test_a_field_of_a_module_is_refused_by_its_path():
    """A module is taken apart down to it."""

    class Model(eqx.Module):
        data: Mutable

    with pytest.raises(ContractError, match=r"'model\.data' is of the class `Mutable`") as raised:
        optimize(lambda model: model.data.x)(Model(Mutable(X)))
    assert "static=" not in str(raised.value)
