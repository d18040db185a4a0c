"""In a notebook a function is traced as in a script: the name of a cell, for which jitney asks
IPython, is no part of a trace.
"""

import pytest

pytestmark = pytest.mark.rest

BODY = """
import jax.numpy as jnp, numpy as np, jitney
from jaxtyping import Array, Float

@jitney.optimize(pad={"points": "pow2"})
def loss(p: Float[Array, ""], t: Float[Array, "points"]) -> Float[Array, ""]:
    return jnp.mean(jnp.exp(-p * t))

def plan(n):
    return str(loss.grad.plan(jnp.ones(()), np.ones(n, np.float32), wrt="p"))
"""


def test_a_padded_derivative_is_not_traced_for_each_size(notebook):
    """Its plan has no line that says so."""
    notebook.run(BODY)
    cell = notebook.run("print(plan(70)); print('each new size' in plan(70))")
    assert cell.printed.strip().endswith("False")
