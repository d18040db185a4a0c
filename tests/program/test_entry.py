"""What happens on the first call of a key, and only then."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import ContractError
from tests._arrays import array
from tests._tracing import count_traces

X = array(np.linspace(0, 1, 4, dtype=np.float32))


def residual(t: Float[Array, "points"], y: Float[Array, "points"]) -> Float[Array, "points"]:
    return t - y


def line_of(fn):
    return f"test_entry.py:{inspect.getsourcelines(fn)[1]}"


class Layer(eqx.Module):
    weight: Float[Array, "out in"]
    bias: Float[Array, "out"]


class Model(eqx.Module):
    layers: list[Layer]


def test_two_sizes_of_an_axis_are_named_with_who_set_each():
    """Function, file and line; axis, both sizes, both arguments; the rule; the fix."""
    with pytest.raises(ContractError) as caught:
        optimize(residual)(X, X[1:])
    lines = str(caught.value).splitlines()
    assert (
        lines[0]
        == f"residual() at {line_of(residual)}: axis 'points' has two sizes, 4 from 't' and 3 from"
        " 'y'."
    )
    assert lines[1] == "Every argument annotated with 'points' must agree on it."
    assert lines[2].startswith("Fix: ")


def test_a_field_of_a_module_is_named_by_its_path():
    """Two layers; the bias of the second does not fit its weight."""

    @optimize
    def apply(model: Model, x: Float[Array, "n"]):
        return model.layers[0].weight @ x

    model = Model([Layer(jnp.ones((2, 4)), jnp.ones(2)), Layer(jnp.ones((3, 2)), jnp.ones(5))])
    with pytest.raises(ContractError, match=r"model\.layers\[1\]\.bias") as caught:
        apply(model, X)
    assert "'out'" in str(caught.value)
    assert "3" in str(caught.value)
    assert "5" in str(caught.value)


def test_a_result_that_breaks_its_annotation_is_an_error():
    """The body drops a point."""

    @optimize
    def shorter(t: Float[Array, "points"]) -> Float[Array, "points"]:
        return t[1:]

    with pytest.raises(ContractError, match="'points'") as caught:
        shorter(X)
    assert str(caught.value).startswith("shorter() at test_entry.py:")


def test_a_wrong_dtype_is_an_error():
    """Integers for floats."""
    with pytest.raises(ContractError, match="'t'"):
        optimize(residual)(jnp.arange(4), X)


def test_calls_after_a_contract_error_are_checked_again():
    """A failed call leaves nothing behind."""
    f = optimize(residual)
    for _ in range(2):
        with pytest.raises(ContractError):
            f(X, X[1:])
    np.testing.assert_array_equal(f(X, X), np.zeros(4))


class Watched:
    """An axis size that an annotation asks for, and how often it did."""

    asked = 0

    @property
    def size(self):
        type(self).asked += 1
        return 4

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return isinstance(other, Watched)


def test_the_contract_is_checked_once_for_each_key():
    """A symbolic size asks a static argument for its value: on the first call of a key, not on
    later ones.
    """

    def body(config: Watched, x: Float[Array, "{config.size}"]):
        return x + 1

    f = optimize(body, static="config")
    Watched.asked = 0
    f(Watched(), X)
    first = Watched.asked
    assert first > 0
    for _ in range(3):
        f(Watched(), X)
    assert Watched.asked == first


def test_check_false_checks_nothing():
    """Neither arguments nor results; the numbers are the body's."""

    @optimize(contracts=False)
    def product(t: Float[Array, "points"], y: Float[Array, "points"]) -> Float[Array, "points"]:
        return jnp.outer(t, y)

    np.testing.assert_allclose(product(X, X[1:]), np.outer(X, X[1:]), rtol=1e-6)


def test_check_false_still_maps_by_rank():
    """The annotation decides what is mapped, checked or not."""

    @optimize(contracts=False, vmap="batch")
    def total(t: Float[Array, "points"]) -> Float[Array, "wrong names"]:
        return t.sum()

    np.testing.assert_allclose(total(jnp.ones((3, 4))), np.full(3, 4.0))


def test_one_trace_for_each_shape_and_static_value():
    """Two shapes by two values, whatever the order of calls."""

    def body(x, k: int):
        return x * k

    counted = count_traces(body)
    f = optimize(counted)
    for _ in range(2):
        for n in (2, 3):
            for k in (1, 2):
                np.testing.assert_array_equal(f(jnp.ones(n), k), np.full(n, k))
    assert counted.traces == 4


def test_keys_of_jax_are_part_of_the_key():
    """x64, matmul precision and default device change the program, and coming back needs no new
    trace.
    """
    counted = count_traces(lambda x: x * 2)
    f = optimize(counted)
    x = np.ones(3)
    for _ in range(2):
        assert f(x).dtype == jnp.float32
        with jax.enable_x64(True):
            assert f(x).dtype == np.float64
        with jax.default_matmul_precision("highest"):
            f(x)
    assert counted.traces == 3


def test_under_every_transform_of_jax_the_stages_still_apply():
    """jit, grad, vmap, scan and checkpoint around a mapped program in double precision."""

    @optimize(vmap="batch", precision="f64")
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return ((x + 2.0**24) - 2.0**24).sum()

    xs = jnp.ones((3, 4))
    expected = np.full(3, 4.0)
    np.testing.assert_array_equal(jax.jit(total)(xs), expected)
    np.testing.assert_array_equal(jax.vmap(total)(xs[None]), expected[None])
    np.testing.assert_array_equal(jax.checkpoint(total)(xs), expected)
    np.testing.assert_array_equal(
        jax.lax.scan(lambda c, x: (c, total(x)), 0, xs[None])[1], expected[None]
    )
    np.testing.assert_array_equal(jax.grad(lambda x: total(x).sum())(xs), np.ones((3, 4)))


def test_results_that_are_no_arrays_come_with_each_call():
    """Strings, numbers, functions and None, on the first and on later calls."""

    @optimize
    def several(x) -> Any:
        return x + 1, "text", {"n": x.shape[0], "f": jnp.sin}, None

    for x in (X, X, X[1:]):
        array, text, rest, nothing = several(x)
        np.testing.assert_allclose(array, np.asarray(x) + 1)
        assert (text, rest, nothing) == ("text", {"n": x.shape[0], "f": jnp.sin}, None)


@pytest.mark.rest
def test_a_function_that_nobody_holds_is_let_go():
    """Programs of closures that are made in a loop do not pile up."""
    import gc
    import weakref

    def make(k):
        body = lambda x: x + k
        program = optimize(body)
        program(X)
        return weakref.ref(body)

    references = [make(k) for k in range(5)]
    jax.clear_caches()
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


def test_disable_jit_runs_the_body_on_values():
    """For a debugger: branches on values work, results are the user's own tree, the stages stay,
    and nothing is traced.
    """

    @optimize(vmap="batch")
    def f(x: Float[Array, "n"]):
        return (x.sum(), "text")

    branch = optimize(lambda x: x if x[0] > 0 else -x)
    f(X)
    with jax.disable_jit():
        for _ in range(2):
            total, text = f(X)
            assert (float(total), text) == (float(X.sum()), "text")
            np.testing.assert_allclose(f(jnp.ones((2, 4)))[0], [4, 4])
            np.testing.assert_array_equal(branch(X), -np.asarray(X))
        assert "stablehlo" in f.lower(X).as_text()
    assert f.stats.traces == 1
