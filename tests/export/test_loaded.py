"""A loaded program is called as the function was, and gives what it gave."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import ContractError, DerivativeError, ExportError
from tests._arrays import array, filled, random_key

from ._models import Decay, Mode, Pair, data, decay, residual, saved, to_the_bit

N = np.arange(1.0, 7.0)
X = array(N)


def test_a_loaded_function_gives_what_jax_jit_gives(tmp_path):
    """To the bit, at each size that was exported."""
    loaded = saved(tmp_path, jitney.optimize(residual), decay(), sizes={"points": (5, 8)})
    for points in (5, 8):
        expected = jax.jit(lambda model, t, y: residual(model, t, y, 1.0))(decay(), *data(points))
        np.testing.assert_array_equal(loaded(decay(), *data(points)), expected)


def test_a_size_that_was_not_exported_is_a_sentence(tmp_path):
    """It names what was passed and the nearest program."""
    loaded = saved(tmp_path, jitney.optimize(residual), decay(), sizes={"points": (5, 8)})
    with pytest.raises(
        ContractError,
        match=(
            r"no exported program takes t: float32\[9\], y: float32\[9\]\.\nThe nearest takes t:"
            r" float32\[8\]"
        ),
    ):
        loaded(decay(), *data(9))


def test_a_call_against_the_contract_is_the_sentence_of_the_function(tmp_path):
    """Two sizes of one axis, a wrong dtype and a missing argument read as they do without a
    file.
    """
    f = jitney.optimize(residual)
    loaded = saved(tmp_path, f, decay(), sizes={"points": 5})
    t, y = data(5)
    for args in (
        (decay(), t, y[:3]),
        (decay(), t.astype(jnp.int32), y),
        (decay(), t),
        (decay(), t[None], y),
    ):
        with pytest.raises(ContractError) as ours:
            loaded(*args)
        with pytest.raises(ContractError) as theirs:
            f(*args)
        assert str(ours.value) == str(theirs.value)


def test_one_program_takes_all_sizes_of_a_range(tmp_path):
    """Where the function is the same for each; outside of the range is a sentence."""
    loaded = saved(tmp_path, jitney.optimize(residual), decay(), sizes={"points": range(2, 1000)})
    for points in (2, 3, 17, 999):
        np.testing.assert_array_equal(
            loaded(decay(), *data(points)), jax.jit(residual)(decay(), *data(points))
        )
    assert [program.sizes for program in loaded.programs] == [{"points": [2, 999]}]
    for points in (0, 1, 1000):
        with pytest.raises(ContractError, match="points from 2 to 999"):
            loaded(decay(), *data(points))


def halves(x):
    return (x[::2].sum(), x[: len(x) // 2]) if len(x) > 2 else x.sum()


def test_each_size_of_a_range_is_traced_where_python_looks_at_it(tmp_path):
    """Python may branch at any size, so a range is exported if every size is the same program."""

    @jitney.optimize
    def f(x: Float[Array, "n"]):
        return halves(x)

    loaded = saved(tmp_path, f, sizes={"n": range(4, 12)})
    for n in range(4, 12):
        x = jnp.arange(1.0, n + 1.0)
        for got, want in zip(loaded(x), jax.jit(halves)(x), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("rule", "sizes", "why"),
    [
        (lambda x: x * 2 if len(x) == 7 else x, range(4, 12), "other operations at size 7"),
        (halves, range(4, 261), "at most 256 of them, and there are 257"),
        (lambda x: x * np.hanning(len(x)), range(4, 12), "computes numbers of the size"),
    ],
)
def test_a_range_is_refused_where_python_may_do_otherwise(tmp_path, rule, sizes, why):
    """At a size between the traced ones, at one that no trace reaches, by a number of Python's."""

    @jitney.optimize
    def f(x: Float[Array, "n"]):
        return rule(x)

    with pytest.raises(ExportError, match=why):
        f.export(tmp_path / "f.jitney", sizes={"n": sizes})


@pytest.mark.core("<lambda>0", "<lambda>2")
@pytest.mark.parametrize(
    "rule",
    [
        lambda x: x * 3 if x.shape[0] == 3 else x,
        lambda x: x * (1 / len(x)),
        lambda x: sum(x[i] for i in range(len(x))),
    ],
)
def test_a_function_that_looks_at_its_size_has_no_program_for_a_range(tmp_path, rule):
    """`n == 3` is False of a symbol, so an unwatched export would be wrong at 3; it is refused, and
    a list of sizes is right.
    """

    @jitney.optimize
    def f(x: Float[Array, "n"]):
        return rule(x)

    with pytest.raises(ExportError, match="'n' cannot stand for all sizes of a range"):
        f.export(tmp_path / "f.jitney", sizes={"n": range(2, 9)})
    loaded = saved(tmp_path, f, sizes={"n": (3, 4)})
    for n in (3, 4):
        np.testing.assert_array_equal(loaded(X[:n]), jax.jit(rule)(X[:n]))


@pytest.mark.rest
def test_sizes_stand_above_those_of_examples(tmp_path):
    """An example says structure and dtype; `sizes` says how long its named axes are."""
    loaded = saved(
        tmp_path, jitney.optimize(residual), decay(), *data(3), sizes={"points": (1, range(2, 9))}
    )
    for points in (1, 2, 8):
        to_the_bit(
            loaded(decay(), *data(points)), jitney.optimize(residual)(decay(), *data(points))
        )


def test_a_mapped_axis_has_sizes_too(tmp_path):
    """Of `vmap`, listed or in a range; the axes inside keep theirs."""

    @jitney.optimize(vmap="batch")
    def f(x: Float[Array, "n"], w: Float[Array, "n"]):
        return jnp.sum(x * w)

    loaded = saved(tmp_path, f, jnp.ones((2, 3)), jnp.ones(3), sizes={"batch": range(2, 6), "n": 4})
    x, w = jnp.arange(20.0).reshape(5, 4), jnp.arange(4.0)
    np.testing.assert_allclose(loaded(x, w), np.asarray(x) @ np.asarray(w), rtol=1e-6)


@pytest.mark.core("*-args0", "*-args3", "*-args5", "*-args6", "*-args9", "*-args11")
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: (jnp.full(3, 2.0), jnp.sin(3.0), x, 3, "text"), (X,)),
        (lambda s: Pair(s.second, {"q": [s.first, None, Mode.PLAIN]}), (Pair(X, array(N * 2)),)),
        (lambda x: x + x, (array(N, jnp.int4),)),
        (lambda x: (x * 2, jnp.sum(x)), (array(N, jnp.bfloat16),)),
        (
            lambda a, b, c: (a + 1, ~b, c * 1j),
            (array(np.arange(3), np.uint8), array([True]), array(np.ones(2), np.complex64)),
        ),
        (lambda k: (jax.random.normal(k, (3,)), jax.random.split(k)), (random_key(1),)),
        (
            lambda x: jax.vjp(lambda i: i * 1, x)[1](np.zeros(x.shape, jax.dtypes.float0)),
            (array(np.arange(3)),),
        ),
        (lambda: jnp.ones(3), ()),
        (lambda model: (model.rate * 2, model), (decay(),)),
        (
            lambda model, x: (model, model(x)),
            (filled(lambda: eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))), array(np.ones(2))),
        ),
        (
            lambda x: jax.lax.while_loop(
                lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x)
            ),
            (X,),
        ),
        (lambda a: (jnp.linalg.solve(a, a), jnp.linalg.eigh(a)), (array(np.eye(3) + 1),)),
    ],
)
def test_results_are_those_of_the_program(tmp_path, f, args):
    """Structures, static leaves, dtypes, weak types and bits: of weak and narrow types, keys,
    float0, modules, loops and LAPACK.
    """
    program = jitney.optimize(f)
    to_the_bit(saved(tmp_path, program, *args)(*args), program(*args))


def test_a_float64_program_stays_one(tmp_path):
    """`precision="f64"` is a scope around each call, of a loaded program too."""

    @jitney.optimize(precision="f64")
    def f(x: Float[Array, "n"], s: float):
        return jnp.sum(x) / s, 1 / s

    total, inverse = saved(tmp_path, f, np.arange(4.0), 3.0)(np.arange(4.0), 3)
    assert (total.dtype, inverse.dtype) == (np.float64, np.float64)
    assert (float(total), float(inverse)) == (2.0, 1 / 3)


def test_numbers_of_64_bits_are_not_taken_where_jax_has_none(tmp_path):
    """What was exported with jax_enable_x64 says so where that is off."""
    with jax.enable_x64(True):
        loaded = saved(
            tmp_path, jitney.optimize(lambda x: x.astype(jnp.float64) * 2), X.astype(jnp.float32)
        )
        assert loaded(X.astype(jnp.float32)).dtype == np.float64
    with pytest.raises(ExportError, match="float64, and jax_enable_x64 is off here"):
        loaded(X.astype(jnp.float32))


@pytest.mark.core("value_and_grad", "jacobian")
@pytest.mark.parametrize("kind", ["value_and_grad", "grad", "hessian", "jacobian"])
def test_a_derivative_is_exported_as_it_is_called(tmp_path, kind):
    """As what `jax` gives of the plain function."""

    def loss(m, x):
        return jnp.sum((m * x) ** 3)

    derivative = getattr(jitney.optimize(loss), kind)
    derivative.export(tmp_path / "f.jitney", X, X, wrt="m")
    expected = getattr(jax, kind)(loss)(X, X) if kind != "jacobian" else jax.jacobian(loss)(X, X)
    for ours, theirs in zip(
        jax.tree.leaves(jitney.load(tmp_path / "f.jitney")(X, X)),
        jax.tree.leaves(expected),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_gradient_of_what_was_loaded_is_exported_with_it(tmp_path):
    """`vjp_order=1` lets `jax.grad` through; without it there is a sentence."""
    f = jitney.optimize(lambda x: jnp.sum(jnp.sin(x)))
    loaded = saved(tmp_path, f, X, vjp_order=1)
    np.testing.assert_allclose(jax.grad(loaded)(X), np.cos(np.asarray(X)), rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda x: loaded(x) * 2))(X), 2 * np.cos(np.asarray(X)), rtol=1e-6
    )
    with pytest.raises(DerivativeError, match="exported without its gradient"):
        jax.grad(saved(tmp_path, f, X))(X)


def test_under_jit_it_is_a_part_of_the_program_and_vmap_is_a_sentence(tmp_path):
    """JAX has no rule that maps an exported program."""
    loaded = saved(
        tmp_path, jitney.optimize(lambda x: jnp.sin(x)), jax.ShapeDtypeStruct((6,), jnp.float32)
    )
    np.testing.assert_array_equal(
        jax.jit(lambda x: loaded(x * 2))(X), jax.jit(lambda x: jnp.sin(x * 2))(X)
    )
    with pytest.raises(ExportError, match=r"cannot be mapped by `jax\.vmap`"):
        jax.vmap(loaded)(jnp.ones((3, 6)))


WHERE = {
    "": lambda f: f,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, r: (c, f(r)), 0, x[None])[1][0],
}


@pytest.mark.core("-0", "-1", "jit-1", "scan-0")
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("inside", WHERE)
def test_what_jax_cannot_do_with_it_is_a_sentence_wherever_it_stands(tmp_path, order, inside):
    """Maps, second derivatives, and first ones without a gradient; in a trace of JAX's too, which
    goes on when the call is over.
    """
    loaded = WHERE[inside](
        saved(tmp_path, jitney.optimize(lambda x: jnp.sum(jnp.sin(x))), X, vjp_order=order)
    )
    with pytest.raises(ExportError, match=r"cannot be mapped by `jax\.vmap`"):
        jax.vmap(loaded)(jnp.stack([X, X]))
    with pytest.raises(
        DerivativeError, match=r"exported with(out its gradient| first derivatives only)"
    ):
        jax.grad(lambda x: jnp.sum(jax.grad(loaded)(x)))(X)
    if order:
        np.testing.assert_allclose(jax.grad(loaded)(X), np.cos(np.asarray(X)), rtol=1e-6)
    else:
        with pytest.raises(DerivativeError, match="exported without its gradient"):
            jax.jvp(loaded, (X,), (X,))


def test_a_gradient_passes_what_is_no_real_number(tmp_path):
    """Whole numbers and keys among the arguments and the results have none."""

    def f(x, n, key):
        return jnp.sum(x * jax.random.uniform(key, x.shape) * n.astype(x.dtype)), n + 1, key

    given = (X, jnp.int32(3), jax.random.key(0))
    loaded = saved(tmp_path, jitney.optimize(f), *given, vjp_order=1)
    wanted = jax.jit(jax.grad(lambda x: f(x, *given[1:])[0]))(X)
    for fn in (loaded, jax.jit(loaded)):
        got = jax.grad(lambda x, fn=fn: fn(x, *given[1:])[0])(X)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.core("2")
@pytest.mark.parametrize("order", [1, 2, 3])
def test_it_is_differentiated_as_often_as_it_was_exported_for(tmp_path, order):
    """Each derivative is of the one before, in `jit` too; one more is a sentence. What is no real
    number is passed by all of them.
    """

    def f(x, n, key):
        return jnp.sum(jnp.sin(x) * n.astype(x.dtype)), n + 1, key

    given = (X, jnp.int32(3), jax.random.key(0))
    loaded = saved(tmp_path, jitney.optimize(f), *given, vjp_order=order)

    def derivative(x):
        return loaded(x, *given[1:])[0]

    expected = [3 * np.sin(X), 3 * np.cos(X), -3 * np.sin(X), -3 * np.cos(X)]
    for wanted in expected[1 : order + 1]:
        derivative = jax.grad(lambda x, before=derivative: jnp.sum(before(x)))
        np.testing.assert_allclose(jax.jit(derivative)(X), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(DerivativeError, match="exported with first derivatives only"):
        jax.grad(lambda x: jnp.sum(derivative(x)))(X)


def test_a_check_raises_as_it_did(tmp_path):
    """The message of `eqx.error_if`, by Equinox's own error; the messages of branches by their
    number.
    """
    f = jitney.optimize(lambda x: eqx.error_if(x, jnp.sum(x) < 0, "a negative sum") * 2)
    loaded = saved(tmp_path, f, X)
    np.testing.assert_array_equal(loaded(X), np.asarray(X) * 2)
    with pytest.raises(eqx.EquinoxRuntimeError, match="a negative sum"):
        loaded(-X)
    assert loaded.programs[0].checks == ("a negative sum",)
    with pytest.raises(ExportError, match="run-time checks, and is called under"):
        jax.jit(loaded)(X)
    branched = jitney.optimize(
        lambda x, i: eqx.branched_error_if(x, jnp.sum(x) < 0, i, ["the first", "the second"])
    )
    with pytest.raises(eqx.EquinoxRuntimeError, match="the second"):
        saved(tmp_path, branched, X, jnp.int32(0))(-X, jnp.int32(1))


def test_a_check_of_what_nothing_reads_is_not_in_the_file(tmp_path):
    """As in the program that is exported; the file is that of one without checks."""
    loaded = saved(
        tmp_path,
        jitney.optimize(lambda x: (eqx.error_if(x, jnp.sum(x) < 0, "a negative sum"), x * 2)[1]),
        X,
    )
    np.testing.assert_array_equal(loaded(-X), np.asarray(-X) * 2)
    assert loaded.programs[0].checks == ()


@pytest.mark.rest
def test_a_check_holds_at_all_sizes_of_a_range(tmp_path):
    """It is a number of the program whatever the size."""

    @jitney.optimize
    def f(x: Float[Array, "n"]):
        return eqx.error_if(x, jnp.min(x) < 0, "below zero")

    loaded = saved(tmp_path, f, sizes={"n": range(2, 9)})
    np.testing.assert_array_equal(loaded(X[:4]), X[:4])
    with pytest.raises(eqx.EquinoxRuntimeError, match="below zero"):
        loaded(-X)


def test_what_a_program_is_bound_to_is_in_the_file(tmp_path):
    """A method of a module takes its weights along; no argument stands for them."""
    mlp = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    loaded = saved(tmp_path, jitney.optimize(mlp), jnp.ones(2))
    np.testing.assert_array_equal(loaded(jnp.ones(2)), eqx.filter_jit(mlp)(jnp.ones(2)))
    assert "self" not in inspect.signature(loaded).parameters


def test_arguments_come_as_they_did(tmp_path):
    """By name, with defaults, in `*args` and `**kwargs`, and as whole static values."""
    f = jitney.optimize(lambda *xs, **named: sum(xs[1:], xs[0]) + named["last"])
    np.testing.assert_array_equal(
        saved(tmp_path, f, X, X, last=X)(X, X * 2, last=X * 3), np.asarray(X) * 6
    )
    loaded = saved(
        tmp_path,
        jitney.optimize(static="config")(lambda x, config: x * config["by"][0]),
        X,
        {"by": [2.0]},
    )
    np.testing.assert_array_equal(loaded(config={"by": [2.0]}, x=X), np.asarray(X) * 2)
    with pytest.raises(
        ContractError,
        match=(
            r"static 'config' is \{'by': \[3.0\]\}, and the program was exported with \{'by':"
            r" \[2.0\]\}"
        ),
    ):
        loaded(X, {"by": [3.0]})


@pytest.mark.parametrize(
    ("exported", "passed"),
    [
        (2, 3),
        (2, 2.0),
        (1, True),
        (0.0, -0.0),
        ("a", "b"),
        (Mode.PLAIN, Mode.SQUARED),
        (jnp.sin, jnp.cos),
        (lambda x: x, lambda x: -x),
    ],
)
def test_another_static_value_is_a_sentence_not_another_number(tmp_path, exported, passed):
    """Numbers by type and sign, members, functions by name, functions without one by their code."""
    loaded = saved(tmp_path, jitney.optimize(static="how")(lambda x, how: x), X, exported)
    loaded(X, exported)
    with pytest.raises(ContractError, match="static 'how' is"):
        loaded(X, passed)


def test_a_default_that_is_an_array_is_not_in_the_file(tmp_path):
    """It has to be given, though the function has it."""

    loaded = saved(tmp_path, jitney.optimize(lambda x, y=X: x * y), X, X)
    np.testing.assert_array_equal(loaded(X, 2 * X), 2 * X**2)
    with pytest.raises(ContractError, match="'y' is a default that the file does not hold"):
        loaded(X)


def test_another_structure_is_a_sentence(tmp_path):
    """A dict with other names, a longer list, a number where an array was, and a module of another
    class or static field.
    """
    loaded = saved(tmp_path, jitney.optimize(lambda tree, model: tree["a"][0]), {"a": [X]}, decay())
    loaded({"a": [X]}, decay())
    wrong = [
        ({"b": [X]}, decay()),
        ({"a": [X, X]}, decay()),
        ({"a": (X,)}, decay()),
        ({"a": [1.0]}, decay()),
        ({"a": [X]}, Pair(X, X)),
    ]
    for args in (*wrong, ({"a": [X]}, Decay(jnp.asarray(0.3, jnp.float32), 3))):
        with pytest.raises(ContractError):
            loaded(*args)


def test_a_module_whose_class_is_not_there_is_a_dict_of_its_fields(tmp_path):
    """In and out, static fields by value; an instance of a class of that name is taken too."""

    class Local(eqx.Module):
        w: Array
        name: str = eqx.field(static=True)

    loaded = saved(tmp_path, jitney.optimize(lambda m: (m.w * 2, m)), Local(X, "one"))
    assert loaded.missing == (f"{__name__}.{Local.__qualname__}",)
    for given in (Local(X, "one"), {"w": X}, {"w": X, "name": "one"}):
        doubled, back = loaded(given)
        np.testing.assert_array_equal(doubled, np.asarray(X) * 2)
        assert back.keys() == {"w", "name"}
        assert back["name"] == "one"
        loaded(back)
    with pytest.raises(ContractError, match=r"static 'm\.name'"):
        loaded({"w": X, "name": "two"})


def test_classes_are_not_imported_where_that_is_not_wanted(tmp_path):
    """`imports=False` gives dicts for modules."""
    jitney.optimize(lambda m: m).export(tmp_path / "f.jitney", decay())
    assert isinstance(jitney.load(tmp_path / "f.jitney")(decay()), Decay)
    assert jitney.load(tmp_path / "f.jitney", imports=False)(decay()).keys() == {"rate", "power"}


def test_a_loaded_function_says_what_it_is(tmp_path):
    """Name, docstring, signature, sizes, plan with what was left behind, versions and digest."""
    f = jitney.optimize(pad={"points": "pow2"}, donate="y")(residual)
    loaded = saved(tmp_path, f, decay(), sizes={"points": 5})
    assert (loaded.__name__, loaded.__doc__) == ("residual", "Model minus data.")
    assert list(inspect.signature(loaded).parameters) == ["model", "t", "y", "scale"]
    assert loaded.versions["jax"] == jax.__version__
    assert loaded.programs[0].sizes == {"points": [5, 8]}
    assert "left behind: pad" not in loaded.plan
    assert "left behind: donate" in loaded.plan
    assert "cache" not in loaded.plan
    for text in (str(loaded), loaded._repr_html_()):
        assert "points=5 to 8" in text
        assert loaded.sha256 in text
    assert repr(loaded).startswith("<jitney loaded residual(model: Decay, t: Float[Array")
    assert loaded.to_dict()["programs"][0]["plan"]["axes"]["points"]["size"] == 5


def test_a_second_call_traces_nothing(tmp_path):
    """Calls of one program share what JAX has compiled."""
    loaded = saved(tmp_path, jitney.optimize(residual), decay(), sizes={"points": 5})
    loaded(decay(), *data(5))
    with jitney.no_compiles():
        loaded(decay(), *data(5), 1.0)
