"""Other libraries in decorated functions, where a page of `docs/with` says what does not work."""

import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize

pytestmark = pytest.mark.rest
X = np.linspace(0, 3, 20, dtype=np.float32)


def root(
    start: Float[Array, "k"],
    x: Float[Array, "points"],
    y: Float[Array, "points"],
) -> Float[Array, "k"]:
    """Slope and offset of a line, where the gradient of the misfit is zero."""

    def gradient(p, _):
        misfit = p[0] * x + p[1] - y
        return jnp.stack([jnp.sum(misfit * x), jnp.sum(misfit)])

    return optx.root_find(gradient, optx.Newton(1e-3, 1e-3), start).value


def test_an_axis_inside_a_linear_solver_of_lineax_is_refused_by_name():
    """Its primitive holds a program without its constants: a warning and exact sizes, no crash."""
    f = optimize(pad={"points": "pow2"})(root)
    with pytest.warns(JitneyWarning, match="without its constants .`linear_solve`"):
        line = f(jnp.zeros(2), X, 2 * X + 1)
    np.testing.assert_allclose(line, [2, 1], rtol=1e-4)
