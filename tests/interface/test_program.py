"""What a program does besides being called: compile, plan, lower, stats, and being a value."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import ContractError, TraceError
from tests._arrays import weak
from tests._monitor import listening


class Decay(eqx.Module):
    rate: Float[Array, ""]


def residual(
    model: Decay, t: Float[Array, "points"], y: Float[Array, "points"], kind: str = "exp"
) -> Float[Array, "points"]:
    return jnp.exp(-model.rate * t) - y if kind == "exp" else t - y


MODEL = Decay(weak(0.5))


def made(**options):
    def body(
        model: Decay, t: Float[Array, "points"], y: Float[Array, "points"], kind: str = "exp"
    ) -> Float[Array, "points"]:
        return residual(model, t, y, kind)

    return optimize(**options)(body)


def test_compiled_ahead_a_call_neither_traces_nor_compiles():
    """From sizes for what the signature describes, and an example for the rest; JAX itself is
    asked.
    """
    f = made(vmap={"fit": {"t": 0, "y": 0}})
    assert f.compile(MODEL, sizes={"points": 16, "fit": 4}) is f
    t, y = jnp.ones((4, 16)), jnp.ones((4, 16))
    with listening() as events:
        f(MODEL, t, y)
    assert events.count("compile") == events.count("trace", "body") == 0
    assert (f.stats.traces, f.stats.compiles, f.stats.hits) == (1, 1, 1)


def test_compile_takes_abstract_values_and_statics_by_name():
    """`jax.ShapeDtypeStruct` in place of arrays."""
    f = made()
    shape = jax.ShapeDtypeStruct((7,), jnp.float32)
    f.compile(MODEL, shape, y=shape, kind="line")
    f(MODEL, jnp.ones(7), jnp.ones(7), kind="line")
    assert f.stats.traces == 1
    f(MODEL, jnp.ones(7), jnp.ones(7))
    assert f.stats.traces == 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "axis 'points' has no size"),
        ({"point": 3}, "sizes names 'point', which is not an axis"),
        ({"points": -1}, "axis 'points' has size -1"),
        ({"points": 2.0}, "axis 'points' has size 2.0"),
    ],
)
def test_sizes_that_are_missing_or_wrong(sizes, message):
    """With a sentence."""
    with pytest.raises(ContractError, match=message):
        made().compile(MODEL, sizes=sizes)


def test_what_has_no_description_needs_an_example():
    """A module cannot be made from a size."""
    with pytest.raises(ContractError, match="nothing tells what 'model' is"):
        made().compile(sizes={"points": 3})


def test_the_plan_is_text_and_data():
    """The same decisions; plain where there is no terminal; nothing is traced or compiled."""
    f = made(vmap="fit")
    with listening() as events:
        plan = f.plan(MODEL, sizes={"points": 16, "fit": 4})
    assert events.count("compile") == 0
    data = plan.to_dict()
    assert json.loads(json.dumps(data)) == data
    text = str(plan)
    assert "\x1b[" not in text
    assert all(line["name"] in text for line in data["decisions"])
    assert "fit=4 over t, y" in text
    assert data["axes"]["points"]["size"] == 16


def test_lower_gives_what_jax_lowers():
    """Its text, its cost and a compiled program that can be called."""
    f = made()
    lowered = f.lower(MODEL, jnp.ones(5), jnp.ones(5))
    assert "stablehlo" in lowered.as_text()
    compiled = lowered.compile()
    np.testing.assert_allclose(
        compiled(MODEL, jnp.ones(5), jnp.ones(5)), np.full(5, np.exp(-0.5) - 1), rtol=1e-5
    )


def test_stats_count_as_jax_does():
    """Traces, compiles and hits, and why each trace happened."""
    f = made(cache=False)
    with listening() as events:
        for n in (3, 3, 4, 4, 4):
            f(MODEL, jnp.ones(n), jnp.ones(n))
    stats = f.stats
    assert (stats.calls, stats.traces, stats.compiles, stats.hits) == (5, 2, 2, 3)
    assert events.count("trace", "body") == 2
    assert stats.trace_seconds > 0
    assert stats.compile_seconds > 0
    assert len(stats.retraces) == 2
    assert "float32[3] -> float32[4]" in stats.retraces[1]
    assert json.loads(json.dumps(stats.to_dict()))["calls"] == 5


def test_a_bound_program_tells_of_its_function():
    """`model.method.compile` leaves the instance out; stats are those of the method."""

    class Line(eqx.Module):
        slope: Float[Array, ""]

        @optimize
        def at(self, t: Float[Array, "n"]) -> Float[Array, "n"]:
            return self.slope * t

    line = Line(jnp.array(2.0))
    line.at.compile(sizes={"n": 5})
    line.at(jnp.ones(5))
    assert line.at.stats == Line.at.stats
    assert line.at.stats.traces == 1
    assert "n = 5" in str(line.at.plan(sizes={"n": 5}))


def test_programs_are_values():
    """Equal functions with equal options are one; bound programs compare by their instance."""

    def body(x):
        return x

    assert optimize(body) == optimize(body) != optimize(body, remat=True)
    assert hash(optimize(body)) == hash(optimize(body))
    assert optimize(body) != body


def test_a_program_is_a_pytree_of_what_it_is_bound_to():
    """Its arrays are traced where it is an argument of another."""
    model = Decay(jnp.array(2.0))

    class Held(eqx.Module):
        w: Array

        @optimize
        def scale(self, x):
            return self.w * x

    assert len(jax.tree.leaves(optimize(residual))) == 0
    bound = Held(jnp.array(3.0)).scale
    assert [float(leaf) for leaf in jax.tree.leaves(bound)] == [3.0]
    np.testing.assert_allclose(jax.jit(lambda f, x: f(x))(bound, jnp.ones(2)), [3, 3])
    assert float(eqx.filter_grad(lambda f: f(jnp.ones(())))(bound)._args[0].w) == 1.0
    del model


def test_trace_and_eval_shape_are_those_of_jit():
    """Program, lowering and shapes, with static values in place."""
    f = optimize(lambda x, k: {"power": x**k, "k": k})
    x = jnp.arange(3.0)
    assert str(f.trace(x, 2).jaxpr) == str(jax.jit(lambda x: x**2).trace(x).jaxpr)
    np.testing.assert_array_equal(
        f.trace(x, 2).lower().compile()(x, 2)["power"], np.arange(3.0) ** 2
    )
    traces = f.stats.traces
    shapes = f.eval_shape(x, 2)
    assert shapes == {"power": jax.ShapeDtypeStruct((3,), np.float32), "k": 2}
    assert f.stats.traces == traces
    with pytest.raises(TraceError, match="which depends on 'x'"):
        optimize(lambda x: x[x > 0]).eval_shape(x)


def test_clear_cache_forgets_programs_and_keeps_counts():
    """Of derivatives too."""
    f = optimize(lambda x: (x**2).sum())
    x = jnp.ones(3)
    for _ in range(2):
        f(x)
        f.grad(x)
        f.clear_cache()
    assert (f.stats.calls, f.stats.traces, f.grad.stats.traces) == (2, 2, 2)
