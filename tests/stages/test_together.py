"""`donate`, `remat`, `precision` and `vmap` together, in a training step: the numbers of the plain
step.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jitney import optimize
from tests._examples import examples

TOLERANCE = {None: 1e-5, "f32": 1e-5, "f64": 1e-5, "tf32": 2e-2, "bf16": 5e-2, "bf16-all": 1e-1}


class Net(eqx.Module):
    layers: list[eqx.nn.Linear]
    scale: float = eqx.field(static=True)
    activation: object = jnp.tanh

    def __call__(self, x):
        for layer in self.layers:
            x = self.activation(layer(x)) * self.scale
        return x


def single(model: Net, x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(model(x) ** 2)


def several(model: Net, x: Float[Array, "rows n"]) -> Float[Array, "rows"]:
    return jax.vmap(single, in_axes=(None, 0))(model, x)


def step(losses, model, x):
    """One of gradient descent; what is not trained comes back as it is."""
    value, grads = eqx.filter_value_and_grad(lambda m: jnp.mean(losses(m, x)))(model)
    return eqx.apply_updates(
        model, jax.tree.map(lambda g: (-0.1 * g).astype(g.dtype), grads)
    ), value


@pytest.mark.rest
@settings(max_examples=4, deadline=None)
@given(
    depth=st.integers(1, 4),
    width=st.integers(1, 5),
    rows=st.integers(1, 4),
    dtype=st.sampled_from([jnp.float32, jnp.float32, jnp.bfloat16]),
    remat=st.sampled_from([False, True, "dots_saveable", "auto"]),
    precision=st.sampled_from(list(TOLERANCE)),
    mapped=st.booleans(),
    donate=st.booleans(),
)
@examples(
    {"depth": 1, "width": 1, "rows": 1, "dtype": jnp.float32}
    | {"remat": "auto", "precision": None, "mapped": True, "donate": True},
    {"depth": 4, "width": 3, "rows": 2, "dtype": jnp.float32}
    | {"remat": True, "precision": "tf32", "mapped": True, "donate": True},
    {"depth": 1, "width": 5, "rows": 4, "dtype": jnp.bfloat16}
    | {"remat": "dots_saveable", "precision": "f32", "mapped": True, "donate": False},
    {"depth": 2, "width": 3, "rows": 2, "dtype": jnp.float32}
    | {"remat": "dots_saveable", "precision": "bf16", "mapped": False, "donate": True},
    {"depth": 1, "width": 5, "rows": 4, "dtype": jnp.bfloat16}
    | {"remat": False, "precision": "bf16-all", "mapped": False, "donate": True},
    {"depth": 1, "width": 3, "rows": 2, "dtype": jnp.float32}
    | {"remat": False, "precision": "f64", "mapped": False, "donate": False},
)
def test_any_step_equals_the_plain_one(depth, width, rows, dtype, remat, precision, mapped, donate):
    """For any module, dtype and options: parameters after two steps, within the tolerance of the
    policy; static leaves are the same.
    """
    keys = jax.random.split(jax.random.key(depth + 10 * width), depth)
    model = Net([eqx.nn.Linear(width, width, key=key, dtype=dtype) for key in keys], 0.9)
    x = jax.random.normal(jax.random.key(rows), (rows, width), dtype)
    options = {
        "remat": remat,
        "precision": precision,
        **({"memory": "1GiB"} if remat == "auto" else {}),
    }
    losses = optimize(vmap="example", **options)(single) if mapped else optimize(**options)(several)
    ours = optimize(donate="model" if donate else None)(lambda model, x: step(losses, model, x))
    expected, found = (
        model,
        jax.tree.map(lambda leaf: leaf + 0 if eqx.is_array(leaf) else leaf, model),
    )
    # JAX takes the gradient, and warns where its own numbers have 32 bits
    with jax.enable_x64(precision == "f64"):
        for _ in range(2):
            expected, value = step(several, expected, x)
            found, same = ours(found, x)
    tolerance = max(TOLERANCE[precision], 5e-2 if dtype == jnp.bfloat16 else 0)
    assert (found.scale, found.activation) == (0.9, jnp.tanh)
    for a, b in zip(
        jax.tree.leaves((found, same)), jax.tree.leaves((expected, value)), strict=True
    ):
        if eqx.is_array(b):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=tolerance, atol=tolerance)
