"""Rows of unlike lengths through a file: a loaded function gives what the function gives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key

import jitney
from jitney.errors import AxisError, ContractError, ExportError
from jitney.types import PaddedRows
from tests._arrays import array
from tests._monitor import listening

from ._models import saved, to_the_bit

RNG = np.random.default_rng(5)
W = np.float32(0.3)


def rows(*sizes, dtype=np.float32):
    return [RNG.normal(size=n).astype(dtype) for n in sizes]


def shapes(*sizes):
    return [jax.ShapeDtypeStruct((n,), np.float32) for n in sizes]


def mapped(body, *axes, **options):
    pad = dict.fromkeys(axes or ("t",), "pow2")
    return jitney.optimize(**{"vmap": "row", "pad": pad, **options})(body)


def score(w: Float[Array, ""], x: Float[Array, "t"]):
    """Row minus its mean, and its weighted sum."""
    z = x - jnp.mean(x)
    return {"each": w * z, "sum": jnp.sum(jax.nn.softmax(w * z) * z)}


def head(x: Float[Array, "t"]):
    return x[:8] * 2


def squares(w: Float[Array, ""], x: Float[Array, "t"]):
    return w**2 * jnp.sum(x**2)


class Curve(eqx.Module):
    t: Float[Array, "n"]
    scale: Float[Array, ""]
    power: int = eqx.field(static=True)


def of_curves(curve: Curve, w: Float[Array, ""]):
    return w * jnp.sum(curve.t**curve.power) * curve.scale, curve


def of_graph(
    x: Float[Array, "nodes 2"], sources: Int[Array, "edges"], weights: Float[Array, "edges+1"]
):
    return x + jnp.sum(x[sources], axis=0), jnp.sum(weights)


def drawn(x: Float[Array, "t"], key: Key[Array, ""]):
    return x * jax.random.normal(key), key


def counted(x: Float[Array, "t"]):
    n = x.shape[0]
    return x * (1 - n / (n + 1))


@pytest.mark.core("few-*")
@pytest.mark.parametrize("ragged", ["list", "padded"])
@pytest.mark.parametrize(
    ("examples", "calls"),
    [
        ((1, 4), [[3, 4, 1] * 6, (3, 4)]),
        ((1, 2, 4, 30), [(30, 1, 3, 4, 17), [3, 4, 2, 20] * 6, (1, 1), (25,)]),
    ],
    ids=["few", "many"],
)
def test_loaded_rows_give_what_the_function_gives(tmp_path, examples, calls, ragged):
    """In the caller's order, for other numbers of rows and other lengths of the buckets, exact ones
    among them.
    """
    f = mapped(score, ragged=ragged)
    loaded = saved(tmp_path, f, W, shapes(*examples))
    for sizes in calls:
        given = rows(*sizes)
        ours, theirs = loaded(W, given), f(W, given)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        # A bucket that has a program takes it for other numbers of rows, and a file has others.
        close = functools.partial(np.testing.assert_allclose, rtol=2e-6, atol=1e-6)
        jax.tree.map(close, ours, theirs)


def test_all_forms_of_rows_are_taken(tmp_path):
    """Tuples, values with offsets, padded arrays, a result of `ragged="padded"`, and `lengths`."""
    f, given = mapped(score), rows(3, 4)
    loaded = saved(tmp_path, f, W, given)
    table = np.stack([np.pad(x, (0, 8 - len(x)), constant_values=np.nan) for x in given])
    lengths = np.array([len(x) for x in given])
    expected = f(W, given)
    for form in (
        tuple(given),
        [jnp.asarray(x) for x in given],
        jitney.ragged(np.concatenate(given), np.cumsum([0, *lengths])),
        jitney.ragged(table, lengths=lengths),
        PaddedRows(table, {0: lengths}),
    ):
        to_the_bit(loaded(W, form), expected)
    to_the_bit(loaded(w=W, x=table, lengths={"t": lengths}), expected)
    stack = np.stack([given[0]] * 3)
    to_the_bit(loaded(W, stack), f(W, stack))


def curve(n):
    return Curve(*rows(n), np.float32(n), 2)


def graph(*sizes):
    each = [
        (
            RNG.normal(size=(n, 2)).astype(np.float32),
            RNG.integers(0, n, m).astype(np.int32),
            *rows(m + 1),
        )
        for n, m in sizes
    ]
    return tuple(map(list, zip(*each, strict=True)))


def keyed(*sizes):
    return rows(*sizes), jax.random.split(jax.random.key(3), len(sizes))


@pytest.mark.parametrize(
    ("body", "axes", "examples", "given"),
    [
        (
            of_curves,
            ("n",),
            lambda: ([curve(3), curve(8), curve(1)], W),
            lambda: ([curve(n) for n in (7, 1, 4, 5)], W),
        ),
        (
            of_graph,
            ("nodes", "edges"),
            lambda: graph((3, 5), (7, 1)),
            lambda: graph((4, 8), (5, 1), (3, 6)),
        ),
        (drawn, ("t",), lambda: keyed(3, 6), lambda: keyed(4, 5, 3)),
        (head, ("t",), lambda: (rows(3, 20),), lambda: (rows(17, 20),)),
        (counted, ("t",), lambda: (rows(5, 6, 3),), lambda: (rows(6, 6, 5, 3),)),
    ],
    ids=["modules", "two axes", "keys", "a head", "numbers of Python"],
)
@pytest.mark.core("modules")
def test_rows_of_all_kinds_go_through_a_file(tmp_path, body, axes, examples, given):
    f = mapped(body, *axes)
    arguments = given()
    to_the_bit(saved(tmp_path, f, *examples())(*arguments), f(*arguments))


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [{"chunk": {"row": 4}}, {"memory": "1MiB"}, {"precision": "bf16"}, {"remat": True}],
    ids=["chunk", "memory", "precision", "remat"],
)
def test_options_of_rows_go_through_a_file(tmp_path, options):
    f, given = mapped(score, **options), rows(3, 4, 20, *[5] * 11)
    to_the_bit(saved(tmp_path, f, W, shapes(3, 5, 20))(W, given), f(W, given))


@pytest.mark.rest
def test_rows_of_64_bits_go_through_a_file(tmp_path):
    f, given = mapped(head, precision="f64"), rows(5, 7, dtype=np.float64)
    to_the_bit(saved(tmp_path, f, given)(given), f(given))


class Scaled(eqx.Module):
    w: Array

    @jitney.optimize(vmap="row", pad={"t": "pow2"})
    def apply(self, x: Float[Array, "t"], *, shift: Float[Array, ""]):
        return self.w * x + shift


def test_a_method_with_rows_goes_through_a_file(tmp_path):
    """The file holds the object; keywords are keywords."""
    model, given = Scaled(array(3.0)), rows(3, 4)
    loaded = saved(tmp_path, model.apply, given, shift=W)
    to_the_bit(loaded(given, shift=2 * W), model.apply(given, shift=2 * W))


@pytest.mark.rest
def test_gradients_of_rows_go_through_a_file(tmp_path):
    """Of `f.value_and_grad`, and `jax.grad` around the loaded function, with respect to what rows
    share and to rows.
    """
    f, given = mapped(squares), rows(3, 4, 6)
    f.value_and_grad.export(tmp_path / "g.jitney", W, given, wrt="w")
    loaded = jitney.load(tmp_path / "g.jitney")
    np.testing.assert_allclose(
        loaded(W, given)[1], [2 * W * np.sum(x**2) for x in given], rtol=1e-5
    )

    loaded = saved(tmp_path, f, W, given, vjp_order=1)
    slope, slopes = jax.grad(lambda w, x: jnp.sum(loaded(w, x)), (0, 1))(W, given)
    np.testing.assert_allclose(slope, sum(2 * W * np.sum(x**2) for x in given), rtol=1e-5)
    for own, x in zip(slopes, given, strict=True):
        np.testing.assert_allclose(own, 2 * W**2 * x, rtol=1e-5)


def test_a_row_without_a_program_is_a_sentence(tmp_path):
    """Longer than the buckets, of a bucket between them, of another dtype or rank; the file says
    what it has.
    """
    loaded = saved(tmp_path, mapped(head), rows(1, 4, 30))
    for sizes in ((3, 33), (3, 12), (3, 0)):
        with pytest.raises(
            ContractError, match=r"(?s)row 1: no exported program takes x.*has t=1, t=3-4, t=17-32"
        ) as error:
            loaded(rows(*sizes))
        assert error.value.code == "J219"
    with pytest.raises(ContractError, match=r"row 0: 'x' has 2 axes"):
        loaded([np.ones((3, 2), np.float32)])
    with pytest.raises(ContractError, match=r"was exported with rows of 1 axes"):
        loaded(np.ones(3, np.float32))
    with pytest.raises(ContractError, match="'x' has no rows"):
        loaded([])
    with pytest.raises(AxisError, match="inside an outer `jit`"):
        jax.jit(loaded)(rows(3, 4))


def test_numbers_of_a_size_that_the_file_lacks_are_a_sentence(tmp_path):
    """Python computed them when the file was written."""
    loaded = saved(tmp_path, mapped(counted), rows(5, 6))
    with pytest.raises(ContractError, match="row 1 has t=7, and Python computes numbers"):
        loaded(rows(5, 7))


def test_a_file_of_rows_has_a_format_of_its_own(tmp_path):
    """An earlier jitney says so, and does not misread it; a file without rows is as it was."""
    saved(tmp_path, mapped(head), rows(3))
    assert (tmp_path / "f.jitney").read_bytes().startswith(b"jitney program 0002\n")
    saved(tmp_path, jitney.optimize(head), sizes={"t": 3})
    assert (tmp_path / "f.jitney").read_bytes().startswith(b"jitney program 0001\n")


def test_what_cannot_be_exported_of_rows_is_a_sentence(tmp_path):
    """Sizes beside rows, a second derivative, rows that it is bound to."""
    f = mapped(squares)
    for more, what in (
        ({"sizes": {"t": 4}}, "rows, and sizes="),
        ({"vjp_order": 2}, "vjp_order=2"),
    ):
        with pytest.raises(ExportError, match=what):
            f.export(tmp_path / "f.jitney", W, rows(3), **more)


def test_a_plan_of_rows_of_64_bits_changes_no_call():
    """The plan puts rows into the groups of a call, with its dtypes."""
    f, given = mapped(head, precision="f64"), rows(5, 7, dtype=np.float64)
    f.plan(given)
    for row, x in zip(f(given), given, strict=True):
        np.testing.assert_array_equal(row, x[:8] * 2)


def test_a_large_captured_array_is_in_the_file(tmp_path):
    """In the process it is an argument of the program."""
    table = np.arange(300_000, dtype=np.float32)

    def scaled(x: Float[Array, "t"]):
        return x * jnp.asarray(table)[7]

    given = rows(3, 4, 9)
    f = mapped(scaled)
    loaded = saved(tmp_path, f, given)
    table = np.zeros_like(table)
    for out, row in zip(loaded(given), given, strict=True):
        np.testing.assert_array_equal(out, 7 * row)


def picked(x: Float[Array, "t"]) -> Float[Array, ""]:
    """Python computes no number here, and looks at the size."""
    return x[x.shape[0] % 4]


def scaled(x: Float[Array, "t"]) -> Float[Array, ""]:
    return jnp.sum(x) * (2.0 if x.shape[0] % 2 else 1.0)


@pytest.mark.parametrize("body", [picked, scaled])
@pytest.mark.parametrize("sizes", [(73, 80, 130, 257), (3, 3, 5, 7), (8, 6, 5, 9, 12, 16)])
@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
def test_sizes_that_python_looked_at_have_the_program_of_their_own(tmp_path, body, sizes):
    """Of a bucket, whose program is not that of its other sizes: these are refused."""
    whole = [np.arange(n, dtype=np.float32) % 7 for n in sizes]
    f = mapped(body)
    f.export(tmp_path / "f.jitney", whole)
    loaded = jitney.load(tmp_path / "f.jitney")
    np.testing.assert_array_equal(loaded(whole), [body(jnp.asarray(row)) for row in whole])
    with pytest.raises(ContractError, match="export it with"):
        loaded([np.ones(6 if 6 not in sizes else 7, np.float32)])


def test_each_program_is_compiled_once_or_twice_under_memory(tmp_path):
    """What is learned of one bucket, as how many rows keep to `memory`, repeats no other one."""
    f = mapped(squares, memory="8KiB")
    with listening() as events:
        f.export(tmp_path / "f.jitney", W, rows(*(2**k + 1 for k in range(2, 9))))
    programs = jitney.load(tmp_path / "f.jitney").programs
    assert events.count("compile", "squares") <= 2 * len(programs)
