"""Ahead of time: sizes for what the signature describes, examples for the rest."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Complex64, Float, Float16, Int, PRNGKeyArray

import jitney
from jitney import JitneyWarning, optimize
from jitney.errors import ContractError
from tests._monitor import listening
from tests._switched import configured
from tests._tracing import count_traces


def ones(*shape):
    return jnp.ones(shape)


def compiles_once(
    program, compile_args, call_args, sizes=None, compile_kwargs=None, call_kwargs=None
):
    """Compile, then call; JAX must report work for the first only. Gives the result."""
    name = program.__name__
    with listening() as events:
        assert program.compile(*compile_args, sizes=sizes, **(compile_kwargs or {})) is program
    assert events.count("compile", name) == 1
    with listening() as events:
        out = program(*call_args, **(call_kwargs or {}))
    assert [events.count(what, name) for what in ("trace", "lower", "compile")] == [0, 0, 0]
    return out


def test_sizes_describe_annotated_arrays():
    """Named, fixed, computed and scalar axes."""

    def ahead_named(
        t: Float[Array, "n"],
        w: Float[Array, "n+1 2"],
        s: Float[Array, ""],
        i: Int[Array, "2*n"],
        b: Bool[Array, "3 n"],
    ):
        return t.sum() + w.sum() + s, i, b

    f = optimize(ahead_named)
    args = (ones(4), ones(5, 2), jnp.float32(1), jnp.arange(8), jnp.ones((3, 4), bool))
    assert compiles_once(f, (), args, {"n": 4})[0] == 15


def test_exact_dtypes_are_as_annotated():
    """`Float16` and `Complex64` are what they say, `Float` is JAX's default float."""

    def ahead_exact(a: Float16[Array, "n"], b: Complex64[Array, "n"], c: Float[Array, "n"]):
        return a, b, c

    out = compiles_once(
        optimize(ahead_exact),
        (),
        (ones(2).astype(jnp.float16), ones(2).astype(jnp.complex64), ones(2)),
        {"n": 2},
    )
    assert [leaf.dtype for leaf in out] == [jnp.float16, jnp.complex64, jnp.float32]


@pytest.mark.parametrize("by", ["the option", "the setting"])
def test_a_padded_function_is_compiled_at_exact_size_where_debug_nans_runs_it_so(by):
    """Ahead as in the call."""
    options = {"debug_nans": True} if by == "the option" else {}
    with configured(debug_nans=True):
        f = optimize(pad={"n": "pow2"}, **options)(square)
        f.compile(sizes={"n": 3})
        given = ones(3)
        with jitney.no_compiles():
            f(given)


def test_the_default_float_follows_x64():
    """Compiled where doubles are the default, called there."""
    f = optimize(count_traces(lambda x: x))
    g = count_traces(square)
    with jax.enable_x64(True):
        f = optimize(g)
        f.compile(sizes={"n": 3})
        f(jnp.ones(3))
        assert f.plan(sizes={"n": 3}).to_dict()["arguments"] == ["x: float64[3]"]
    assert g.traces == 1


def square(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * x


def test_the_axis_of_vmap_has_a_size_too():
    """By the rank rule and by the explicit form, at its position."""

    def ahead_ruled(x: Float[Array, "n"], y: Float[Array, "n"]):
        return (x * y).sum()

    with pytest.warns(
        JitneyWarning, match=r"axis 'fit' was put into 'x', 'y', left out of the examples"
    ) as warned:
        assert compiles_once(
            optimize(vmap="fit")(ahead_ruled), (), (ones(8, 3), ones(8, 3)), {"n": 3, "fit": 8}
        ).shape == (8,)
    assert warned[0].filename == __file__
    assert r"x=jax.ShapeDtypeStruct((3,), 'float32')" in str(warned[0].message)

    def ahead_said(x: Float[Array, "n"], y: Float[Array, "n"]):
        return (x * y).sum()

    f = optimize(vmap={"fit": {"x": 1}, "trial": {"y": 0}})(ahead_said)
    assert compiles_once(f, (), (ones(3, 8), ones(2, 3)), {"n": 3, "fit": 8, "trial": 2}).shape == (
        8,
        2,
    )

    def ahead_last(x: Float[Array, "n m"]):
        return x.sum()

    assert compiles_once(
        optimize(vmap={"fit": {"x": -1}})(ahead_last),
        (),
        (ones(3, 4, 8),),
        {"n": 3, "m": 4, "fit": 8},
    ).shape == (8,)


def test_an_example_says_that_its_argument_is_shared():
    """So there is nothing to warn of, and calls that share it find the program."""

    def ahead_shared(x: Float[Array, "n"], y: Float[Array, "n"]):
        return (x * y).sum()

    assert compiles_once(
        optimize(vmap="fit")(ahead_shared), (ones(3),), (ones(3), ones(8, 3)), {"fit": 8}
    ).shape == (8,)
    mapped = optimize(vmap="fit")(ahead_shared)
    # `y`, an example, has it already
    with pytest.warns(JitneyWarning, match=r"axis 'fit' was put into 'x'"):
        mapped.compile(y=ones(8, 3), sizes={"n": 3, "fit": 8})
    # which says so itself
    assert "fit=8 over x, y" in str(mapped.plan(y=ones(8, 3), sizes={"n": 3, "fit": 8}))


def test_the_axis_of_vmap_left_out_is_a_single_element():
    """No size, no axis."""

    @optimize(vmap="fit")
    def ahead_single(x: Float[Array, "n"]):
        return x.sum()

    assert compiles_once(ahead_single, (), (ones(3),), {"n": 3}).shape == ()


class Linear(eqx.Module):
    weight: Float[Array, "out in"]
    name: str = "linear"

    def __call__(self, x):
        return self.weight @ x


def test_a_module_is_an_example():
    """Sizes for the rest; the arrays of the example are not looked into, only their shapes."""

    def ahead_module(model: Linear, x: Float[Array, "in"]):
        return model(x)

    out = compiles_once(
        optimize(ahead_module), (Linear(ones(2, 3)),), (Linear(3 * ones(2, 3)), ones(3)), {"in": 3}
    )
    np.testing.assert_array_equal(out, [9, 9])


def test_a_module_of_abstract_values_is_an_example():
    """As `eqx.filter_eval_shape` makes it."""

    def ahead_abstract(model: Linear, x):
        return model(x)

    model = eqx.filter_eval_shape(lambda: Linear(ones(2, 3)))
    x = jax.ShapeDtypeStruct((3,), jnp.float32)
    np.testing.assert_array_equal(
        compiles_once(optimize(ahead_abstract), (model, x), (Linear(ones(2, 3)), ones(3))), [3, 3]
    )


def test_a_bound_method_has_its_instance():
    """Only the rest needs sizes."""

    class Model(eqx.Module):
        weight: Array

        @optimize
        def ahead_method(self, x: Float[Array, "in"]):
            return self.weight @ x

    model = Model(ones(2, 3))
    np.testing.assert_array_equal(
        compiles_once(model.ahead_method, (), (ones(3),), {"in": 3}), [3, 3]
    )


def test_static_values_by_keyword():
    """In the middle of the signature, with arrays made around them."""

    def ahead_static(x: Float[Array, "n"], mode: str, y: Float[Array, "n"], *, k: int):
        return x + k * y if mode == "up" else x - k * y

    f = optimize(ahead_static)
    out = compiles_once(f, (), (ones(3), "up", ones(3)), {"n": 3}, {"mode": "up", "k": 2}, {"k": 2})
    np.testing.assert_array_equal(out, [3, 3, 3])


def test_floats_need_no_example_and_defaults_are_kept():
    """A `float` is traced, so any number fits; a default that is given stays a default."""

    def ahead_float(
        x: Float[Array, "n"],
        rate: float,
        shift: float = 0.5,
        table: Float[Array, "n"] | None = None,
        n: int = 2,
    ):
        return rate * x + shift + n

    out = compiles_once(optimize(ahead_float), (), (ones(3), 2.0), {"n": 3})
    np.testing.assert_array_equal(out, [4.5] * 3)


def test_sizes_of_examples_serve_the_rest():
    """One array tells the axis of the other."""

    def ahead_partial(x: Float[Array, "n"], y: Float[Array, "n+1"]):
        return x.sum() + y.sum()

    assert compiles_once(optimize(ahead_partial), (ones(3),), (ones(3), ones(4))) == 7


def test_a_size_that_depends_on_the_instance():
    """A symbolic axis reads a field of what was given."""

    class Grid(eqx.Module):
        n: int

        @optimize
        def ahead_grid(self, x: Float[Array, "{self.n}"]):
            return x.sum()

    assert compiles_once(Grid(4).ahead_grid, (), (ones(4),)) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"donate": "x"},
        {"cache": False},
        {"compiler": "fast"},
        {"remat": True},
        {"precision": "bf16-all"},
    ],
)
def test_every_option_compiles_ahead(options):
    """And the first call finds it."""

    def ahead_option(x: Float[Array, "n"], y: Float[Array, "n"]):
        return x + y

    np.testing.assert_array_equal(
        compiles_once(optimize(**options)(ahead_option), (), (ones(3), ones(3)), {"n": 3}),
        [2, 2, 2],
    )


def body(x: Float[Array, "n"], y: Float[Array, "n m"], z: Float[Array, "..."] = None):
    return x @ y


@pytest.mark.parametrize(
    ("sizes", "what", "fix"),
    [
        (
            {"n": 3},
            "'y' is annotated Float[Array, 'n m'], and axis 'm' has no size",
            "pass sizes={'n': ..., 'm': ...}",
        ),
        ({}, "axis 'n' has no size", "pass sizes={'n': ...}"),
        (
            {"n": 3, "m": 2, "points": 4},
            "sizes names 'points', which is not an axis",
            "correct the name",
        ),
        ({"n": True, "m": 2}, "axis 'n' has size True", "pass one"),
        ({"n": -1, "m": 2}, "axis 'n' has size -1", "pass one"),
        ({"n": 3.0, "m": 2}, "axis 'n' has size 3.0", "pass one"),
    ],
)
@pytest.mark.parametrize("how", ["compile", "plan"])
def test_sizes_that_are_missing_unknown_or_no_sizes(sizes, what, fix, how):
    """Each its own sentence, with what to do."""
    with pytest.raises(ContractError) as caught:
        getattr(optimize(body), how)(sizes=sizes)
    first, rule, last = str(caught.value).splitlines()
    assert first.startswith("body() at test_examples.py:")
    assert what in first
    assert rule.endswith(".")
    assert last.startswith("Fix: ")
    assert fix in last


@pytest.mark.parametrize("fn", [lambda model: model, lambda x, key: x])
def test_what_no_annotation_describes_needs_an_example(fn):
    """Nothing to go by."""
    with pytest.raises(ContractError, match=r"nothing tells what '(model|x)' is"):
        optimize(fn).compile()


def test_a_module_needs_an_example():
    """Its structure is in no annotation."""

    @optimize
    def apply(model: Linear, x: Float[Array, "in"]):
        return model(x)

    with pytest.raises(ContractError, match="pass an example for 'model'"):
        apply.compile(sizes={"in": 3})


def test_an_axis_of_any_rank_needs_an_example():
    """`...` and `*batch` have no sizes to give."""

    @optimize
    def f(x: Float[Array, "*batch n"]):
        return x

    with pytest.raises(ContractError, match="stands for any axes"):
        f.compile(sizes={"n": 3})


def test_a_size_that_contradicts_an_example_is_an_error():
    """The example has 3 points."""
    with pytest.raises(ContractError, match="'n'"):
        optimize(body).compile(ones(3), sizes={"n": 4, "m": 2})


def test_arguments_that_fit_no_signature_are_a_type_error():
    """As a call would say."""
    with pytest.raises(TypeError, match=r"body\(\) at .*unexpected keyword argument 'q'"):
        optimize(body).compile(q=3)


def test_random_keys_need_an_example():
    """Their kind is not in the annotation."""

    @optimize
    def ahead_key(key: PRNGKeyArray, x: Float[Array, "n"]):
        return x + jax.random.normal(key, x.shape)

    key = jax.random.key(0)
    compiles_once(ahead_key, (key,), (key, ones(3)), {"n": 3})
    with pytest.raises(ContractError, match="'key'"):
        ahead_key.compile(sizes={"n": 3})
