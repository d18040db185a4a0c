"""Tools take `wrt` of a derivative as a call of it does; of a function it is an argument like
others.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import ContractError

ROWS = np.ones((8, 3), np.float32)


@optimize
def loss(w: Float[Array, "d"], x: Float[Array, "b d"]):
    return jnp.mean(x @ w)


@optimize
def of_wrt(wrt: Float[Array, "d"], x: Float[Array, "b d"]):
    return jnp.mean(x @ wrt)


@pytest.mark.core("axes")
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        (jitney.analysis.strategy, {"memory": "1GiB"}),
        (jitney.analysis.axes, {}),
        (jitney.analysis.precision_report, {}),
    ],
    ids=["strategy", "axes", "precision_report"],
)
def test_a_tool_takes_wrt_where_the_derivative_does(tool, more):
    """The gradient with respect to one argument; a function with an argument of that name is asked
    about with it.
    """
    assert str(tool(loss.grad, ROWS[0], ROWS, wrt="w", **more)) == str(
        tool(loss.grad.program(wrt="w"), ROWS[0], ROWS, **more)
    )
    assert tool(of_wrt, x=ROWS, wrt=ROWS[0])
    with pytest.raises(ContractError, match=r"'wrt'(.|\n)*derivatives take it"):
        tool(loss, ROWS[0], ROWS, wrt="w")
