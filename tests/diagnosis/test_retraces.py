"""Why a function was traced again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize


def causes(program, *calls):
    for args in calls:
        program(*args)
    return program.stats.retraces


def test_the_first_call():
    """Nothing to compare with."""
    assert causes(optimize(lambda x: x + 1), (jnp.ones(3),)) == ("first call",)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (np.ones(4, np.float32), "'x' float32[3] -> float32[4]"),
        (np.ones((3, 1), np.float32), "'x' float32[3] -> float32[3,1]"),
        (np.ones(3, np.int32), "'x' float32[3] -> int32[3]"),
    ],
)
def test_another_shape_or_dtype(second, text):
    """Both are named, old and new."""
    assert causes(optimize(lambda x: x * 2), (np.ones(3, np.float32),), (second,))[1] == text


def test_another_weak_type():
    """Same shape and dtype, but a number of Python's made it."""
    strong, weak = jnp.float32(1), jnp.asarray(1.0)
    assert weak.weak_type
    assert (
        causes(optimize(lambda x: x * 2), (strong,), (weak,))[1]
        == "'x' float32[] -> float32[] weak"
    )


def test_another_static_value():
    """By its name, in both values."""

    def body(x, mode, scale: int = 2):
        return x * scale if mode == "up" else x / scale

    f = optimize(body)
    assert causes(f, (jnp.ones(3), "up"), (jnp.ones(3), "down"), (jnp.ones(3), "down", 3))[1:] == (
        "static 'mode' 'up' -> 'down'",
        "static 'scale' 2 -> 3",
    )


def test_another_structure():
    """What came and what went, by path."""

    def body(tree):
        return jax.tree.map(lambda leaf: leaf + 1, tree)

    x = jnp.ones(3)
    found = causes(optimize(body), ({"a": x},), ({"a": x, "b": x},), ({"b": x},))
    assert found[1] == "a new array in tree['b']"
    assert found[2] == "no array any more in tree['a']"


def test_a_path_in_a_tree_is_named():
    """The third of four arrays."""
    trees = [[jnp.ones(n) for n in sizes] for sizes in ((1, 2, 3, 4), (1, 2, 5, 4))]
    assert (
        causes(optimize(lambda tree: tree[2] * 2), (trees[0],), (trees[1],))[1]
        == "'tree[2]' float32[3] -> float32[5]"
    )


def test_many_changes_are_not_all_listed():
    """Three of ten, and how many more."""
    trees = [[jnp.ones(n)] * 10 for n in (2, 3)]
    found = causes(optimize(lambda tree: tree[0]), (trees[0],), (trees[1],))[1]
    assert found.count("->") == 3
    assert found.endswith("and 7 more")


def test_a_setting_of_jax():
    """Same arguments, x64 on."""
    f = optimize(lambda x: x + 1)
    f(jnp.ones(3, jnp.float32))
    with jax.enable_x64(True):
        f(jnp.ones(3, jnp.float32))
    assert f.stats.retraces[1] == "setting jax_enable_x64 False -> True"


def test_another_matmul_precision():
    """JAX's own key holds it."""
    f = optimize(lambda x: x @ x)
    f(jnp.ones((3, 3)))
    with jax.default_matmul_precision("highest"):
        f(jnp.ones((3, 3)))
    assert f.stats.traces == 2
    assert f.stats.retraces[1] == "setting jax_default_matmul_precision None -> 'highest'"


def test_an_outer_transform():
    """The same call, inside of one."""

    @optimize(donate="x")
    def f(x):
        return x + 1

    f(jnp.ones(3))
    jax.jit(f)(jnp.ones(3))
    assert "called outside of one -> inside an outer transform" in f.stats.retraces[1]


def test_another_mesh():
    """One in whose context it is called."""
    f = optimize(lambda x: x + 1)
    f(jnp.ones(3))
    with jitney.mesh(data=1):
        f(jnp.ones(3))
    assert f.stats.retraces[1] == "mesh none -> data=1"


def test_another_decision():
    """A batch for a function that had single elements."""

    @optimize(vmap="batch")
    def f(x: Float[Array, "n"]):
        return x + 1

    found = causes(f, (jnp.ones(3),), (jnp.ones((2, 3)),))[1]
    assert found.startswith("'x' float32[3] -> float32[2,3]; vmap: ")
    assert found.endswith("batch=2 over x; 0 arrays broadcast")


def test_an_outer_trace_is_a_decision_not_a_static_value():
    """With donation the nested call is a program of its own."""
    f = optimize(donate="x")(lambda x: x + 1)
    f(jnp.ones(3))
    jax.jit(f)(jnp.ones(3))
    assert f.stats.retraces[1].startswith("jit: donates x -> under an outer trace")


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*static 'n' takes its 3rd value")
def test_a_hundred_causes_are_kept():
    """The latest ones."""
    f = optimize(lambda x, n: x + n)
    for n in range(105):
        f.lower(jnp.ones(2), n)
    assert len(f.stats.retraces) == 100
    assert f.stats.retraces[-1] == "static 'n' 103 -> 104"


def test_the_line_has_a_new_place_beside_another_dtype():
    """Each is a cause of its own, of different arrays."""
    f = optimize(lambda x, y: x.sum().astype(jnp.float32) + y)
    x, y = np.ones(3, np.float32), jnp.float32(1)
    f(x, y)
    f(x.astype(np.int32), jax.device_put(y, jax.devices()[0]))
    line = f.stats.retraces[-1]
    assert "'x' float32[3] -> int32[3]" in line
    assert "'y'" in line
    assert "committed" in line
