"""What a file cannot hold is a sentence when it is written, and the file that was there stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import ContractError, ExportError, OptionError
from tests._arrays import array

X = array(np.arange(6.0))


class Hashed:
    """Hashable, and of no data."""


def _closure(by):
    return lambda x: x * by


@pytest.mark.parametrize(
    ("f", "args", "what"),
    [
        (
            jitney.optimize(lambda x: (jax.debug.print("{}", x), x)[1]),
            (X,),
            r"it calls Python: `debug_\w+` at test_refusals\.py",
        ),
        (
            jitney.optimize(lambda x: jax.pure_callback(np.sin, x, x)),
            (X,),
            "it calls Python: `pure_callback`",
        ),
        (jitney.optimize(lambda x: x**2, debug_nans=True), (X,), "it has `debug_nans`"),
        (jitney.optimize(lambda x: x**2).linearize, (X,), "which a file cannot hold"),
        (
            jitney.lazy_derivatives(sparse=True)(lambda x: x**2).jacobian,
            (X,),
            r"is or holds a jax\.experimental\.sparse\.bcoo\.BCOO",
        ),
        (
            jitney.optimize(lambda x, how: how(x)),
            (X, _closure(2.0)),
            "'how' is or holds .*a function in a function that holds values",
        ),
        (jitney.optimize(lambda x, how: x), (X, Hashed()), "'how' is or holds a Hashed"),
        (
            jitney.optimize(lambda x: jax.tree_util.Partial(jnp.sin, x)),
            (X,),
            "'result' is or holds a jax",
        ),
    ],
)
def test_what_a_file_cannot_hold_is_a_sentence(tmp_path, f, args, what):
    """Callbacks, linear maps, sparse arrays, functions with values in them, unknown objects;
    nothing is written.
    """
    (tmp_path / "f.jitney").write_text("what was there")
    with pytest.raises(ExportError, match=what):
        f.export(tmp_path / "f.jitney", *args)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("f.jitney", "what was there")
    ]


def test_a_program_over_devices_is_not_exported(tmp_path):
    """A file holds one program for one device."""

    @jitney.optimize(shard={"data": "n"}, mesh=jax.make_mesh((1,), ("data",)))
    def f(x: Float[Array, "n"]):
        return x

    with pytest.raises(ExportError, match="it has `shard`"):
        f.export(tmp_path / "f.jitney", X)


def test_chunks_are_of_one_size(tmp_path):
    """A program in chunks is exported for sizes, not for a range."""

    @jitney.optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]):
        return jnp.sum(x)

    with pytest.raises(ExportError, match="`chunk` is decided for one"):
        f.export(tmp_path / "f.jitney", sizes={"n": range(2, 9)})
    f.export(tmp_path / "f.jitney", sizes={"n": 6})
    assert float(jitney.load(tmp_path / "f.jitney")(X)) == 15.0


@pytest.mark.parametrize(
    "sizes",
    [
        {"n": "any"},
        {"n": True},
        {"n": -1},
        {"n": ()},
        {"n": range(9)},
        {"n": range(2, 9, 2)},
        {"n": 2.0},
    ],
)
def test_what_is_no_size_is_a_sentence(tmp_path, sizes):
    """Sizes are ints, tuples of them, and ranges from 2 on."""

    @jitney.optimize
    def f(x: Float[Array, "n"]):
        return x

    with pytest.raises(ExportError, match="'n'"):
        f.export(tmp_path / "f.jitney", sizes=sizes)


def test_an_axis_that_is_not_there_is_a_sentence(tmp_path):
    """By `compile`'s own words, and where examples leave nothing to size."""
    f = jitney.optimize(lambda x: x)
    with pytest.raises(ContractError, match="'m'"):
        f.export(tmp_path / "f.jitney", X, sizes={"m": 3})
    with pytest.raises(ContractError, match="'m'"):
        f.export(tmp_path / "f.jitney", X, sizes={"m": range(2, 5)})


def test_export_under_a_trace_is_a_sentence(tmp_path):
    """What is exported is a whole program."""
    f = jitney.optimize(lambda x: x)

    def traced(x):
        f.export(tmp_path / "f.jitney", x)
        return x

    with pytest.raises(ExportError, match="while something is traced"):
        jax.jit(traced)(X)


@pytest.mark.parametrize("order", [-1, True, 1.0])
def test_how_often_it_can_be_differentiated_is_a_number(tmp_path, order):
    """0, 1, 2, ..."""
    with pytest.raises(ExportError, match="vjp_order"):
        jitney.optimize(lambda x: x).export(tmp_path / "f.jitney", X, vjp_order=order)


def test_without_flatbuffers_there_is_a_sentence(tmp_path, monkeypatch):
    """It names what to install."""
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r'pip install "jitney\[export\]"'):
        jitney.optimize(lambda x: x).export(tmp_path / "f.jitney", X)


def test_products_chosen_by_values_need_values(tmp_path):
    """`precision="auto:..."` asks for examples, as a call ahead of time does."""

    @jitney.optimize(precision="auto:1e-1")
    def f(x: Float[Array, "n"]):
        return x @ x

    with pytest.raises(ExportError, match="`precision` is decided for one"):
        f.export(tmp_path / "f.jitney", X, sizes={"n": range(2, 9)})
    with pytest.raises(OptionError):
        f.export(tmp_path / "f.jitney", jax.ShapeDtypeStruct((6,), jnp.float32))
    f.export(tmp_path / "f.jitney", X)
    np.testing.assert_allclose(jitney.load(tmp_path / "f.jitney")(X), 55.0, rtol=1e-1)


def test_a_body_that_needs_values_is_the_error_of_a_call(tmp_path):
    """Which argument, which line."""
    f = jitney.optimize(lambda x: x if x[0] > 0 else -x)
    with pytest.raises(jitney.errors.TraceError, match="'x'"):
        f.export(tmp_path / "f.jitney", X)
