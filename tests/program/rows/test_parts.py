"""Arguments of which some parts are rows, or have the axis of `vmap`. References: calls of each
row.
"""

from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import ContractError

RNG = np.random.default_rng(5)
SCALES = np.array([1, 2, 3], np.float32)
TABLE = np.arange(9, dtype=np.float32).reshape(3, 3)


def mapped(body, vmap="row", **options):
    return jitney.optimize(vmap=vmap, pad={"t": "pow2"}, **options)(body)


def rows(*sizes):
    return [RNG.normal(size=n).astype(np.float32) for n in sizes]


X, Y = rows(5, 12, 7), rows(5, 12, 7)
WEIGHED = np.array([np.sum(x) * k for x, k in zip(X, SCALES, strict=True)])
DIFFERENT = np.array([np.sum(x) - np.sum(y) for x, y in zip(X, Y, strict=True)])


def scaled(pair: tuple[Float[Array, "t"], Float[Array, ""]]):
    return jnp.sum(pair[0]) * pair[1]


def different(pair: dict[str, Float[Array, "t"]]):
    return jnp.sum(pair["x"]) - jnp.sum(pair["y"])


class Pair(NamedTuple):
    x: Float[Array, "t"]
    y: Float[Array, "t"]


class Table(TypedDict):
    x: Float[Array, "t"]
    y: Float[Array, "t"]


def of_named(pair: Pair):
    return jnp.sum(pair.x) - jnp.sum(pair.y)


def of_table(pair: Table | None):
    return jnp.sum(pair["x"]) - jnp.sum(pair["y"])


def of_many(*curves: Float[Array, "t"]):
    return jnp.sum(curves[0]) - jnp.sum(curves[1])


def of_keywords(**curves: Float[Array, "t"]):
    return different(curves)


@pytest.mark.core("of_table-*")
@pytest.mark.parametrize(
    ("body", "given"),
    [
        (different, {"y": Y, "x": X}),
        (of_named, Pair(X, Y)),
        (of_table, {"y": Y, "x": X}),
    ],
)
def test_rows_stand_in_the_fields_of_a_container(body, given):
    """In a dict, a NamedTuple and an optional TypedDict, for calls and plans and compiles."""
    f = mapped(body)
    np.testing.assert_allclose(f(given), DIFFERENT, rtol=1e-4, atol=1e-5)
    assert "3 rows of 'row'" in str(f.plan(given))
    assert f.compile(given) is f


def test_rows_stand_in_arguments_without_names():
    """In `*args` and `**kwargs`, whose single arrays are no rows."""
    f, g = mapped(of_many), mapped(of_keywords)
    np.testing.assert_allclose(f(X[0], Y[0]), DIFFERENT[0], rtol=1e-4)
    np.testing.assert_allclose(f(X, Y), DIFFERENT, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(g(x=X, y=Y), DIFFERENT, rtol=1e-4, atol=1e-5)


@pytest.mark.core("different-*")
@pytest.mark.parametrize(
    ("body", "given", "want"),
    [(different, {"x": X, "y": Y}, DIFFERENT), (scaled, (X, SCALES), WEIGHED)],
)
def test_a_stream_takes_rows_in_the_items_of_containers(body, given, want):
    """Two at a time: they were one array each, concatenated."""
    streamed = mapped(body).stream(given, chunk={"row": 2}, progress=False)
    np.testing.assert_allclose(streamed.result, want, rtol=1e-4, atol=1e-5)


def test_a_stream_demands_as_many_rows_in_items():
    """Two rows in an item served each chunk of two of another argument."""

    def both(pair: tuple[Float[Array, "t"], Float[Array, ""]], y: Float[Array, "t"]):
        return scaled(pair) + jnp.sum(y)

    with pytest.raises(ContractError, match=r"two sizes, 2 from 'pair\[0\]' and 4 from 'y'"):
        mapped(both).stream((X[:2], SCALES[:2]), [*Y, Y[0]], chunk={"row": 2}, progress=False)


def test_lengths_cut_an_array_in_a_container():
    """Beside a stack of numbers in the same container."""
    table = np.stack([np.pad(x, (0, 12 - len(x)), constant_values=np.nan) for x in X])
    got = mapped(scaled)((table, SCALES), lengths={"t": [5, 12, 7]})
    np.testing.assert_allclose(got, WEIGHED, rtol=1e-4)


def product(heads, x: Float[Array, "t"]):
    return jnp.sum(heads["a"]) + jnp.sum(heads["b"]) * jnp.sum(x)


PRODUCTS = [6 + np.sum(b) * np.sum(x) for b, x in zip(TABLE, X, strict=True)]


@pytest.mark.parametrize("dims", [{"heads['b']": 0, "x": 0}, {"heads": 0, "heads.a": None, "x": 0}])
def test_the_dict_form_maps_the_parts_that_it_names(dims):
    """`heads["a"]` is shared, although it is as long as there are rows."""
    heads = {"a": np.array([1, 2, 3], np.float32), "b": TABLE}
    got = mapped(product, {"row": dims})(heads, X)
    np.testing.assert_allclose(got, PRODUCTS, rtol=1e-4)


def doubled(x: Float[Array, "t"]):
    return 2 * x


def any_rank(q: Float[Array, "..."], x: Float[Array, "t"]):
    return jnp.sum(q) * jnp.sum(x)


def test_the_dict_form_maps_an_array_whose_rank_is_open():
    """Beside rows as in a call with one array."""
    got = mapped(any_rank, {"row": {"q": 0, "x": 0}})(TABLE, X)
    want = [np.sum(q) * np.sum(x) for q, x in zip(TABLE, X, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.core("dims0-*")
@pytest.mark.parametrize(
    ("dims", "heads", "message"),
    [
        ({"x": 0}, {"a": TABLE}, "2 axes"),
        ({"heads": 0, "x": 0}, {"a": TABLE, "b": np.float32(2)}, "at position 0 of heads"),
        ({"heads.c": 0, "x": 0}, {"a": TABLE, "b": TABLE}, "which holds no array of this call"),
        ({"heads": 0, "x": 0}, {"a": TABLE, "b": TABLE[:2]}, r"3 from .*'a'.* and 2 from .*'b'"),
    ],
)
def test_the_dict_form_is_refused_beside_rows_as_without(dims, heads, message):
    """An array that it does not name, one without the axis, no array, and two sizes."""

    def annotated(heads: dict[str, Float[Array, "k"]], x: Float[Array, "t"]):
        return product(heads, x)

    body = annotated if len(dims) == 1 else product
    with pytest.raises(ContractError, match=message):
        mapped(body, {"row": dims})(heads, X)


def test_padded_rows_of_what_are_no_arrays_have_a_text():
    """`jax.tree.map` puts anything in their places."""
    padded = jax.tree.map(jnp.shape, mapped(doubled, ragged="padded")(X))
    assert repr(padded) == "PaddedRows((3, 12), {0: (3,)})"


def test_a_stack_beside_rows_may_be_abstract():
    """`compile` takes shapes alone."""

    def weighed(x: Float[Array, "t"], k: Float[Array, ""]):
        return jnp.sum(x) * k

    f = mapped(weighed)
    f.compile([jax.ShapeDtypeStruct((9,), np.float32)] * 3, jax.ShapeDtypeStruct((3,), np.float32))
    compiles = f.stats.compiles
    given = rows(9, 9, 9)
    f(given, SCALES)
    assert f.stats.compiles == compiles
