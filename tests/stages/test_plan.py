"""The order of the stages, and one line for each."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize
from jitney._stages.plan import Plan, difference
from tests._arrays import array
from tests._monitor import listening
from tests._tracing import count_traces

X = array(np.ones(3))


def body(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return (x * jnp.sin(y)).sum()


def plan_of(*args, **options):
    return optimize(**options)(body).plan(*args).plan


def test_every_stage_has_a_line_in_the_order_of_the_pipeline():
    """Taken or not, from the outside to the inside, each with a reason."""
    for options in ({}, {"vmap": "batch", "remat": True, "precision": "bf16-all", "donate": "x"}):
        decisions = optimize(**options)(body).plan(X, X).to_dict()["decisions"]
        names = [
            "fill",
            "place",
            "jit",
            "roll",
            "shard",
            "chunk",
            "vmap",
            "mask",
            "remat",
            "precision",
        ]
        assert [d["name"] for d in decisions][: len(names)] == names
        assert all(d["why"] for d in decisions)


def test_stages_act_together():
    """Mapped, rematerialised and in half precision: the numbers of a loop, and the types of the
    arguments.
    """
    seen = []

    def recorded(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        seen.append((x.shape, x.dtype))
        return body(x, y)

    xs = jnp.asarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3))
    out = optimize(vmap="batch", remat=True, precision="f64")(recorded)(xs, X)
    assert set(seen) == {((3,), np.dtype(np.float64))}
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, np.asarray(xs, np.float64).sum(1) * np.sin(1), rtol=1e-6)


def test_precision_stands_inside_remat():
    """The values that the backward pass keeps are the arguments as they came, not low-precision
    copies of them.
    """
    f = optimize(remat=True, precision="bf16-all")(body)
    _, back = jax.vjp(f, X, X)
    assert {leaf.dtype for leaf in jax.tree.leaves(back)} == {np.dtype(np.float32)}


def test_plans_are_equal_when_their_decisions_are():
    """The reason does not count: another batch size is the same decision."""
    one, two, three = (plan_of(jnp.ones((n, 3)) if n else X, X, vmap="batch") for n in (2, 5, 0))
    assert one == two != three
    assert hash(one) == hash(two)
    assert isinstance(one, Plan)


def test_the_difference_of_two_plans_names_the_stage():
    """Old reason and new."""
    (line,) = difference(plan_of(X, X, vmap="batch"), plan_of(jnp.ones((2, 3)), X, vmap="batch"))
    assert line.startswith("vmap: ")
    assert line.endswith("batch=2 over x; 1 array broadcast")
    assert difference(None, plan_of(X, X)) == []


def test_planning_neither_traces_nor_compiles():
    """Shapes are enough."""
    counted = count_traces(body)
    f = optimize(remat=True, precision="f64")(counted)
    with listening() as events:
        f.plan(X, X)
        f.plan(sizes={"n": 3})
    assert counted.traces == 0
    assert [events.count(what) for what in ("trace", "lower", "compile")] == [0, 0, 0]
    assert f.stats.traces == 0


def test_planning_a_map_runs_the_body_on_abstract_values():
    """For its branches; that is no trace, and nothing is compiled."""
    counted = count_traces(body)
    f = optimize(vmap="batch")(counted)
    with listening() as events:
        f.plan(sizes={"n": 3, "batch": 2})
    assert counted.traces == 1
    assert [events.count(what) for what in ("lower", "compile")] == [0, 0]
    assert f.stats.traces == 0
