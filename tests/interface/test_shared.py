"""`jitney.shared`: an intermediate computation that several functions use."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize, shared
from jitney.errors import OptionError
from tests._arrays import array
from tests._tracing import count_traces

X = array(np.linspace(0.1, 1.0, 4))


def model():
    """A shared body that counts its traces and those of its derivative, and two functions that use
    it.
    """
    rules = []

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    @sine.defjvp
    def _(primals, tangents):
        rules.append("sine")
        return sine(primals[0]), jnp.cos(primals[0]) * tangents[0]

    body = count_traces(lambda x: jnp.exp(sine(x)))
    common = shared(body)
    first = optimize(lambda x: common(x) * x + common(x))
    second = optimize(lambda x: jnp.sum(common(x) ** 2))
    return body, rules, first, second


def test_it_is_traced_and_differentiated_once():
    """By all functions that use it together, their Jacobians and gradients too."""
    body, rules, first, second = model()

    def plain(x):
        return jnp.exp(jnp.sin(x)) * x + jnp.exp(jnp.sin(x))

    np.testing.assert_allclose(first(X), plain(X), rtol=1e-6)
    np.testing.assert_allclose(first.jacobian(X, wrt="x"), jax.jacfwd(plain)(X), rtol=1e-5)
    want = jax.jvp(lambda x: jnp.sum(jnp.exp(jnp.sin(x)) ** 2), (X,), (X,))
    np.testing.assert_allclose(second.jvp(X, wrt="x", tangents=X), want, rtol=1e-5)
    first.jvp(X, wrt="x", tangents=X)
    assert (body.traces, len(rules)) == (1, 1)


def test_one_program_computes_it_once():
    """Two functions that call it with the same argument, in one program. (What is cheap, XLA may
    compute again where it fuses it.)
    """
    common = shared(jnp.sort)
    first, second = optimize(lambda x: common(x) * 2), optimize(lambda x: jnp.cumsum(common(x)))
    both = jax.jit(lambda x: (first(x), second(x)))
    assert both.lower(X).compile().as_text().count(" sort(") == 1


def test_it_is_a_program_on_its_own():
    """With statics, methods and derivatives."""

    class Firm(eqx.Module):
        share: Float[Array, ""]

        @shared(static="name")
        def output(self, capital: Float[Array, "n"], name: str) -> Float[Array, "n"]:
            return capital**self.share if name == "cobb" else capital

    firm = Firm(jnp.asarray(0.5))
    np.testing.assert_allclose(firm.output(X, "cobb"), X**0.5, rtol=1e-6)
    np.testing.assert_allclose(firm.output(X, "linear"), X)
    np.testing.assert_allclose(
        Firm.output.jacobian(firm, X, "cobb", wrt="capital"), np.diag(0.5 * X**-0.5), rtol=1e-5
    )


def test_options_of_the_outermost_program_are_not_taken():
    """They would be dropped in silence inside another one."""
    with pytest.raises(TypeError, match="donate"):
        shared(donate="x")(lambda x: x)
    with pytest.raises(OptionError):
        shared(static="q")(lambda x: x)
