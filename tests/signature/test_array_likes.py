"""What looks like an array and is not one is refused wherever arguments hold it; what JAX takes stays
as it is.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import ContractError
from tests._arrays import array, random_key


class Offers:
    """Numbers by one of NumPy's or JAX's protocols, as a data set of an open file or a tensor
    does.
    """

    shape, dtype = (3,), np.dtype("f4")

    def __init__(self, numbers=(1.0, 2.0, 3.0)):
        self.numbers = np.asarray(numbers, np.float32)

    def __hash__(self):  # by what it stands for, as those of open files do
        return hash(self.shape)

    def __eq__(self, other):
        return self is other


def offering(protocol):
    return type(
        f"Offers{protocol}", (Offers,), {protocol: lambda self, *args, **kwargs: self.numbers}
    )()


class Lazy:
    """No protocol, but a shape, a dtype and elements."""

    def __init__(self):
        self.shape, self.dtype = (3,), np.dtype("f4")

    def __getitem__(self, at):
        return np.ones(3, np.float32)[at]


class Unhashed(Lazy):
    __hash__ = None

    def __array__(self, dtype=None, copy=None):
        return np.ones(3, np.float32)


@dataclasses.dataclass(frozen=True)
class Description:
    """Of an array: equal to others by value."""

    shape: tuple
    dtype: str


class Grid:
    """An object of the user's that has a shape and a dtype, and no elements."""

    def __init__(self):
        self.shape, self.dtype = (3,), np.dtype("f4")

    def spacing(self, x):
        return x / self.shape[0]


class WithUnit(np.ndarray):
    def __array_finalize__(self, made_from):
        self.unit = getattr(made_from, "unit", None)


class Positions(np.ndarray):
    def norm(self):
        return np.sqrt((self**2).sum())


PROTOCOLS = (
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__cuda_array_interface__",
    "__dlpack__",
    "__jax_array__",
)
LIKES = {**{name: offering(name) for name in PROTOCOLS}, "elements": Lazy(), "no hash": Unhashed()}


class Model(eqx.Module):
    x: object
    fixed: object = eqx.field(static=True, default=None)


PLACES = {
    "an argument": lambda like: like,
    "a list": lambda like: [1.0, like],
    "a dict": lambda like: {"a": like},
    "a module": Model,
    "a static field": lambda like: Model(array(np.ones(3, np.float32)), (like,)),
    "a set": lambda like: frozenset([like]),
}


@pytest.mark.parametrize("like", LIKES.values(), ids=LIKES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.core("an argument-*", "*-__array__")
def test_what_looks_like_an_array_is_refused_wherever_it_is(place, like):
    """Its numbers would be those of the first call for ever."""
    if place == "a set" and type(like).__hash__ is None:
        return
    with pytest.raises(ContractError, match="looks like an array and is not one"):
        optimize(lambda t: jnp.ones(3))(PLACES[place](like))


@pytest.mark.parametrize(
    "options",
    [{}, {"pad": {"n": "pow2"}}, {"vmap": "b"}, {"cache": "program"}, {"contracts": False}],
    ids=str,
)
def test_it_is_refused_under_an_annotation_too(options, tmp_path, monkeypatch):
    """It has a shape and a dtype, as annotations ask."""
    monkeypatch.setenv("JITNEY_CACHE_DIR", str(tmp_path))

    @optimize(**options)
    def total(x: Float[Array, "n"]):
        return jnp.sum(jnp.asarray(x))

    with pytest.raises(ContractError, match=r"pass `jnp.asarray\(x\)`|pass `x\[:\]`"):
        total(LIKES["__array__"])


def test_a_set_that_holds_one_later_is_refused():
    """The first call of its types had none."""
    f = optimize(lambda x, names: x * len(names))
    assert f(1.0, frozenset("a")) == 1
    with pytest.raises(ContractError, match="'names' holds"):
        f(1.0, frozenset([LIKES["__array__"]]))


def test_an_attribute_that_looks_like_an_array_is_refused_where_it_is_read():
    """Of an object of a plain class, beside attributes that are no such thing."""

    class Study:
        def __init__(self):
            self.data, self.scale = LIKES["__array__"], 2.0

        def scaled(self, x):
            return x * self.scale

        def first(self, x):
            return x * np.asarray(self.data)[0]

    assert optimize(Study().scaled)(array(1.0)) == 2
    with pytest.raises(ContractError, match="reads 'data' of a Study"):
        optimize(Study().first)(array(1.0))


def test_what_static_names_is_the_callers_choice():
    """It says that this is no data."""
    f = optimize(lambda x, d: x * float(d.numbers[0]), static="d")
    assert f(1.0, LIKES["__array__"]) == 1


def test_what_describes_an_array_is_static():
    """A description by value, a class, a dtype; an object of the user's without elements."""
    f = optimize(lambda x, of: x * 2)
    for of in (
        Description((3,), "f4"),
        jnp.float32,
        np.float32,
        np.dtype("f4"),
        Grid(),
        np.ndarray,
    ):
        assert f(array(1.0), of) == 2
    assert optimize(Grid().spacing)(array(3.0)) == 1


@pytest.mark.rest
def test_arrays_and_trees_of_jax_are_what_they_are():
    """Keys, sparse arrays, references, shapes that stand for arrays."""
    assert optimize(lambda k: jax.random.normal(k))(random_key(0)).shape == ()
    matrix = sparse.BCOO.fromdense(jnp.eye(3))
    np.testing.assert_array_equal(optimize(lambda m: m @ jnp.ones(3))(matrix), np.ones(3))
    assert optimize(lambda x: x.sum()).plan(jax.ShapeDtypeStruct((3,), np.float32))


@pytest.mark.parametrize("options", [{}, {"pad": {"n": "pow2"}}, {"contracts": False}], ids=str)
def test_a_mask_is_not_lost(options):
    """JAX refuses a masked array by its first call alone; behind a call with a plain one too, and
    padded.
    """

    @optimize(**options)
    def mean(x: Float[Array, "n"]):
        return jnp.mean(x)

    plain = np.array([1, 2, 30], np.float32)
    assert mean(plain) == 11
    for _ in range(2):
        with pytest.raises(ContractError, match=r"x.filled\(...\)"):
            mean(np.ma.array(plain, mask=[False, False, True]))
    assert mean(plain) == 11


def test_a_unit_and_fields_are_not_lost():
    """Subclasses that say what becomes of them have something to say."""
    for x in (np.ones(3, np.float32).view(WithUnit), np.rec.array([(1, 2.0)])):
        with pytest.raises(ContractError, match="more than its numbers"):
            optimize(lambda x: x)(x)
    with pytest.raises(ContractError, match="computes with arrays of numbers"):
        optimize(lambda x: x)(np.zeros(2, [("a", "i4")]))


def test_subclasses_that_jax_takes_are_taken(tmp_path):
    """A matrix, a file that is mapped into memory, a class with a method more."""
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3,))
    mapped[:] = 1
    for x in (
        np.ones((1, 2), np.float32).view(np.matrix),
        mapped,
        np.ones(3, np.float32).view(Positions),
    ):
        np.testing.assert_array_equal(optimize(lambda x: 2 * x)(x), 2 * np.asarray(x))
