"""What is said to a tool that is asked about no program."""

import jax.numpy as jnp
import pytest

import jitney


@pytest.mark.parametrize(
    "tool",
    [
        lambda f: jitney.analysis.communication(f, jnp.ones(3)),
        lambda f: jitney.analysis.frontier(f, jnp.ones(3)),
        lambda f: jitney.simulation.simulate(f, jnp.ones(3), device="cpu"),
        lambda f: jitney.analysis.strategy(f, jnp.ones(3), memory="1MiB"),
        lambda f: jitney.stream(f, {"x": jnp.ones(3)}, chunk={"n": 2}),
    ],
    ids=["communication", "frontier", "simulate", "strategy", "stream"],
)
def test_a_plain_function_is_refused_with_what_to_do(tool):
    """Its name, and the decorator that is missing."""

    def plain(x):
        return x

    with pytest.raises(
        jitney.errors.OptionError,
        match=r"(?s)jitney\.[\w.]+\(\): .*plain.* is not a program.*Fix: decorate it",
    ):
        tool(plain)
