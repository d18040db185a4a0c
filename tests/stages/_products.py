"""Products in the program of a function, and a model that has some."""

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jaxtyping import Array, Float

from tests._arrays import array, filled

rng = np.random.default_rng(5)
W = array(rng.normal(size=(6, 4)))
X = array(rng.normal(size=(3, 6)))
LOW = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
HOST = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@pytest.fixture
def native(monkeypatch):
    """Products in the low type itself, as everywhere but on CPUs."""
    # first, since it is taken from there when it is asked for
    monkeypatch.setattr("jitney._precision.has_kernels", lambda low: True)
    monkeypatch.setattr("jitney._precision.products.has_kernels", lambda low: True)


def products(fn, *args):
    """(type of the factors, type of the result) of each product in the program of a function, at
    any depth, in order.
    """
    found = []

    def visit(jaxpr):
        for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
            if eqn.primitive.name in ("dot_general", "conv_general_dilated"):
                found.append((str(eqn.invars[0].aval.dtype), str(eqn.outvars[0].aval.dtype)))
                assert eqn.invars[0].aval.dtype == eqn.invars[1].aval.dtype
            for value in eqn.params.values():
                for part in value if isinstance(value, (tuple, list)) else (value,):
                    if hasattr(getattr(part, "jaxpr", part), "eqns"):
                        visit(part)

    visit(jax.make_jaxpr(fn)(*args))
    return found


def rounded(x, policy="bf16"):
    """What the low type keeps of an array, in float64."""
    return np.asarray(x).astype(HOST[policy]).astype(np.float64)


def lines(program, *args):
    return [d["why"] for d in program.plan(*args).to_dict()["decisions"] if d["name"] == "products"]


class Net(eqx.Module):
    body: list[eqx.nn.Linear]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(jax.random.key(1), 3)
        self.body = [eqx.nn.Linear(6, 8, key=keys[0]), eqx.nn.Linear(8, 8, key=keys[1])]
        self.norm = eqx.nn.LayerNorm(8)
        self.head = eqx.nn.Linear(8, 2, key=keys[2])

    def __call__(self, x):
        for layer in self.body:
            x = jnp.tanh(layer(x))
        return self.head(self.norm(x))


NET = filled(Net)


def loss(model: Net, x: Float[Array, "n 6"]) -> Float[Array, ""]:
    return jnp.mean(jax.nn.logsumexp(jax.vmap(model)(x), axis=-1) ** 2)
