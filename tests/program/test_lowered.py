"""`lower(...)`: JAX's stages, called as the function is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import ContractError, StaticError
from tests._arrays import array
from tests._monitor import listening

X = array(np.linspace(0, 1, 4, dtype=np.float32))


@optimize
def scaled(x: Float[Array, "n"], k: int = 2, *, shift=1.0, up=True):
    return k * x + shift if up else k * x - shift


def test_the_text_is_that_of_the_program():
    """Named after the function; nothing is compiled."""
    with listening() as events:
        text = scaled.lower(X).as_text()
    assert "scaled" in text
    assert "stablehlo" in text
    assert events.count("compile", "scaled") == 0


def test_what_is_compiled_is_called_as_the_function():
    """By position and by keyword, defaults filled in."""
    compiled = scaled.lower(X, shift=3.0).compile()
    expected = 2 * np.asarray(X) + 3
    for out in (
        compiled(X, shift=3.0),
        compiled(x=X, shift=3.0),
        compiled(X, 2, up=True, shift=3.0),
    ):
        np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_other_static_values_are_an_error():
    """The program holds those it was lowered for."""
    compiled = scaled.lower(X).compile()
    with pytest.raises(StaticError, match="another structure or other static values"):
        compiled(X, 3)


def test_a_program_that_was_compiled_ahead_outlives_the_functions_memory():
    """`clear_cache` forgets its entry; the caller holds the program. Other values are refused."""
    f = optimize(lambda x, k=2: k * x)
    compiled = f.lower(X).compile()
    f.clear_cache()
    np.testing.assert_allclose(compiled(X), 2 * np.asarray(X))
    f(X)
    np.testing.assert_allclose(compiled(X), 2 * np.asarray(X))
    with pytest.raises(StaticError, match="another structure or other static values"):
        compiled(X, 3)


def test_other_shapes_are_jax_own_error():
    """As of `jax.jit(...).lower(...).compile()`."""
    with pytest.raises(TypeError):
        scaled.lower(X).compile()(X[1:])


def test_what_jax_tells_of_a_program_passes_through():
    """Costs, memory, XLA's text, options of the compiler."""
    lowered = scaled.lower(X)
    assert lowered.cost_analysis()["flops"] > 0
    compiled = lowered.compile(compiler_options={"xla_llvm_disable_expensive_passes": True})
    assert compiled.cost_analysis()["flops"] > 0
    assert "HloModule" in compiled.as_text()
    np.testing.assert_allclose(compiled(X), 2 * np.asarray(X) + 1, rtol=1e-6)
    with pytest.raises(AttributeError):
        _ = compiled.no_such_thing


def test_results_and_bindings_are_the_users_own():
    """A method of a module, and a result that is more than arrays."""

    class Model(eqx.Module):
        w: Array

        @optimize
        def __call__(self, x):
            return {"y": self.w * x, "n": x.shape[0]}

    out = Model(X).__call__.lower(X).compile()(X)
    np.testing.assert_allclose(out["y"], np.asarray(X) ** 2, rtol=1e-6)
    assert out["n"] == 4


def test_abstract_arguments_lower():
    """Shapes are enough."""
    compiled = scaled.lower(jax.ShapeDtypeStruct((4,), jnp.float32)).compile()
    np.testing.assert_allclose(compiled(X), 2 * np.asarray(X) + 1, rtol=1e-6)


def test_donation_holds():
    """The compiled program takes the buffer."""
    compiled = optimize(donate="x")(lambda x: x + 1).lower(X).compile()
    x = X + 0
    compiled(x)
    assert x.is_deleted()


def test_stages_hold():
    """A mapped program is lowered mapped."""

    @optimize(vmap="batch")
    def total(x: Float[Array, "n"]):
        return x.sum()

    np.testing.assert_allclose(
        total.lower(jnp.ones((3, 4))).compile()(jnp.ones((3, 4))), np.full(3, 4.0)
    )


def test_the_contract_holds():
    """Lowering is planning."""

    @optimize
    def add(x: Float[Array, "n"], y: Float[Array, "n"]):
        return x + y

    with pytest.raises(ContractError, match="axis 'n' has two sizes"):
        add.lower(X, X[1:])


def test_lowering_and_calling_share_a_trace():
    """In either order."""
    f = optimize(lambda x: x + 3)
    f.lower(X)
    f(X)
    f.lower(X)
    assert f.stats.traces == 1
