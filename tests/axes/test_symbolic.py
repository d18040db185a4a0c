"""The trace at the true size: code that it finds clean, and what it cannot see."""

import functools
import gc
import operator
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._axes import Refused, trace
from jitney._axes.symbolic.executed_code import observe_code
from tests.axes._sizes import V


def test_code_that_asks_nothing_is_traced_once_for_all_sizes():
    """The divisor of a mean, shapes and slices: 200 sizes of one bucket share one trace."""
    traces = 0

    def body(x: V):
        nonlocal traces
        traces += 1
        return jnp.mean(x) + x[-1] * x[1:].sum() / x.shape[0]

    padded = optimize(body, pad={"n": "pow2"})
    for n in range(300, 500):
        padded(np.ones(n, np.float32))
    assert traces == 2  # with a symbol, and at the first size
    assert padded.stats.traces == 1


LAYERS = {
    "Linear": lambda k: (eqx.nn.Linear(4, 3, key=k), (4,)),
    "MLP": lambda k: (eqx.nn.MLP(4, 1, 8, 2, key=k), (4,)),
    "Conv2d": lambda k: (eqx.nn.Conv2d(2, 3, 3, key=k), (2, 6, 6)),
    "MaxPool2d": lambda k: (eqx.nn.MaxPool2d(2, 2), (2, 6, 6)),
    "AvgPool2d": lambda k: (eqx.nn.AvgPool2d(2, 2), (2, 6, 6)),
    "LayerNorm": lambda k: (eqx.nn.LayerNorm(4), (4,)),
    "RMSNorm": lambda k: (eqx.nn.RMSNorm(4), (4,)),
    "GroupNorm": lambda k: (eqx.nn.GroupNorm(2, 4), (4, 5)),
    "GRUCell": lambda k: (
        functools.partial(eqx.nn.GRUCell(4, 5, key=k), hidden=jnp.zeros(5)),
        (4,),
    ),
    "LSTMCell": lambda k: (
        functools.partial(eqx.nn.LSTMCell(4, 5, key=k), hidden=(jnp.zeros(5), jnp.zeros(5))),
        (4,),
    ),
    "Sequential": lambda k: (
        eqx.nn.Sequential([eqx.nn.Linear(4, 4, key=k), eqx.nn.Lambda(jax.nn.relu)]),
        (4,),
    ),
}


@pytest.mark.core("Linear")
@pytest.mark.parametrize("name", [*LAYERS, "MultiheadAttention"])
def test_layers_of_equinox_need_no_trace_for_each_size(name):
    """Along the batch, and attention along its sequence; forward and backward."""
    key = jax.random.key(0)
    if name == "MultiheadAttention":
        layer, shape = eqx.nn.MultiheadAttention(2, 4, key=key), (4,)
        run = lambda x: layer(x, x, x)
    else:
        layer, shape = LAYERS[name](key)
        run = jax.vmap(layer)
    loss = jax.value_and_grad(lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(run(x))))
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"], *shape), np.float32)]
    assert trace(loss, avals, {"d0": (5, 8)}, {"d0": 6}).each is None


@pytest.mark.rest
def test_what_runs_when_garbage_is_collected_is_not_the_bodys():
    """A callback of the collector may do what it likes."""

    def collected(phase, info):
        type(phase)

    def body(x):
        gc.collect()
        return [x * 2]

    gc.callbacks.append(collected)
    try:
        program = trace(
            body,
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
            {"d0": (5, 8)},
            {"d0": 6},
        )
    finally:
        gc.callbacks.remove(collected)
    assert program.each is None or "collected" not in program.each


@pytest.mark.rest
def test_what_is_collected_and_runs_once_more_is_not_the_bodys():
    """A generator that is closed, and a finalizer; what runs afterwards is looked at."""

    class Held:
        def __del__(self):
            type(self)

    def generated():
        held = [Held()]
        try:
            yield held
        finally:
            type(held)

    found = []

    def body():
        return type(found)

    circle = [generated()]
    circle += [circle, next(circle[0])]
    with observe_code(found.append):
        del circle
        gc.collect()
        assert found == []
        body()
    assert found
    assert all("(body)" in line for line in found)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has `sys.monitoring` for this")
def test_under_a_profiler_each_size_is_traced():
    """A profile function is the user's, and stays; what runs is not seen then."""
    events = []
    sys.setprofile(lambda *event: events.append(event[1]))
    try:
        program = trace(
            lambda x: [x * 2],
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
            {"d0": (5, 8)},
            {"d0": 6},
        )
        profiled = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert profiled is not None
    assert events
    assert program.each is not None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has `sys.monitoring` for this")
def test_a_body_that_is_profiled_inside_is_traced_at_each_size():
    """What runs after its profile function is set is not seen."""

    def body(x):
        sys.setprofile(lambda *event: None)
        return [x * 2]

    try:
        program = trace(
            body,
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
            {"d0": (5, 8)},
            {"d0": 6},
        )
    finally:
        sys.setprofile(None)
    assert program.each is not None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no `sys.monitoring`")
def test_where_all_monitors_are_taken_each_size_is_traced(monkeypatch):
    """Debuggers, profilers and coverage hold six at most."""
    monkeypatch.setattr(sys.monitoring, "get_tool", lambda _: "another")
    program = trace(
        lambda x: [x * 2],
        lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
        {"d0": (5, 8)},
        {"d0": 6},
    )
    assert program.each is not None


def test_the_constant_of_each_size_is_checked_against_the_program():
    """What is the same operation with another constant is not the same."""
    values = iter([1.0, 1.0, 2.0])

    def body(x):
        return [x * next(values)]

    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    program = trace(body, avals, {"d0": (5, 8)}, {"d0": 6})
    with pytest.raises(Refused, match="does other operations at size 7"):
        program.numbers_at(body, avals, {"d0": 7})


def test_ordinary_code_with_functions_in_containers_is_clean():
    """`self.layers[0](x)`, tables of functions, partials, what a module holds."""

    class Stack(eqx.Module):
        layers: list[Any]
        act: Any = eqx.field(static=True)

        def __call__(self, x):
            for layer in self.layers:
                x = self.act(layer(x))
            return self.layers[0](x)

    keys = jax.random.split(jax.random.key(0), 2)
    stack = Stack([eqx.nn.Linear(1, 1, key=key) for key in keys], jax.nn.relu)
    table = {
        "double": lambda x: 2 * x,
        "mean": jnp.mean,
        "axis": functools.partial(jnp.sum, axis=0),
    }

    def body(x: V):
        x = jax.vmap(stack)(x[:, None])[:, 0]
        return table["double"](x) - table["mean"](x) + getattr(jnp, "sum")(x) + table["axis"](x)  # noqa: B009

    assert (
        trace(
            body,
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)],
            {"d0": (257, 512)},
            {"d0": 300},
        ).each
        is None
    )


@pytest.mark.core("some")
@pytest.mark.parametrize(
    "fn",
    [lambda x: x.at[-1].set(0.0), lambda x: x[jnp.array([0, 2, 2])]],
    ids=["the last", "some"],
)
def test_constant_positions_are_in_as_many_bits(fn):
    """With x64, JAX counts positions in 32 bits along an axis whose size it knows."""
    f, x = (
        optimize(pad={"n": "pow2"}, precision="f64")(named(fn)),
        np.random.default_rng(0).normal(size=16),
    )
    for n in (13, 9, 16):
        with jax.enable_x64(True):
            want = jax.jit(fn)(x[:n])
        np.testing.assert_array_equal(f(x[:n]), want)
    assert f.stats.traces == 1


def named(fn):
    def body(x: Float[Array, "n"]):
        return fn(x)

    return body


@pytest.mark.core("above")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[jnp.argsort(x) + jnp.int64(2**32)],
        lambda x: x[jnp.arange(x.shape[0])[::-1] - jnp.int64(2**33)],
        lambda x: x[jnp.argsort(x)],
    ],
    ids=["above", "below", "within"],
)
def test_positions_beyond_32_bits_are_those_of_the_known_size(fn):
    """JAX cuts them off where it knows the size: whatever it reads there is read under `pad`."""
    f, x = optimize(pad={"n": "pow2"})(named(fn)), np.random.default_rng(0).normal(size=16)
    with jax.enable_x64(True):
        for n in (13, 9):
            np.testing.assert_array_equal(f(x[:n]), jax.jit(fn)(x[:n]))
    assert f.stats.traces == 1


def test_where_jax_asks_by_another_name_positions_of_64_bits_are_refused(monkeypatch):
    """JAX's question is answered by the names of its functions; the witness judges without them."""
    monkeypatch.setattr("jitney._axes.symbolic.jax_sizes._CHOICES", ())
    with (
        jax.enable_x64(True),
        pytest.raises(Refused, match="has int32 at size 7, and int64 where the size is not known"),
    ):
        trace(
            lambda x, i: [x.at[i].add(1.0)],
            lambda sizes: [
                jax.ShapeDtypeStruct((sizes["d0"],), np.float64),
                jax.ShapeDtypeStruct((3,), np.int64),
            ],
            {"d0": (5, 8)},
            {"d0": 7},
            examples=False,
        )


@pytest.mark.parametrize(
    "asked",
    [operator.index, range, lambda n: [0] * n, lambda n: [*range(9)][n]],
    ids=["index", "range", "repeat", "element"],
)
def test_only_jax_is_told_that_a_size_is_a_number(asked):
    """The method that answers JAX refuses anybody else, as an object without it does."""

    def body(x):
        try:
            asked(x.shape[0])
        except TypeError:
            return [x]
        return [2 * x]

    with jax.enable_x64(True), pytest.raises(Refused):
        trace(
            body,
            lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float64)],
            {"d0": (5, 8)},
            {"d0": 7},
            examples=False,
        )


TYPED = """
def body(x: Float[Array, "n"]):
    n = x.shape[0]
    return jnp.sum(x) * (2.0 if n is SPECIAL else 1.0)
"""


@pytest.mark.core("<stdin>")
@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<ipython-input-1-abc>"])
def test_code_that_was_typed_may_look_at_a_size_unseen(file):
    """At a prompt, for `python -c`, into `exec`: 100 is compared by `is`, and each size is
    traced.
    """
    names = {"jnp": jnp, "Float": Float, "Array": Array, "SPECIAL": 100, "__name__": "typed"}
    exec(compile(TYPED, file, "exec"), names)
    f = optimize(pad={"n": "pow2"}, cache=False)(names["body"])
    assert float(f(np.ones(90, np.float32))) == 90
    # The bucket's second program takes the factor as a number that Python computes at each size.
    assert float(f(np.ones(100, np.float32))) == 200
    assert float(f(np.ones(101, np.float32))) == 101
    assert float(f(np.ones(90, np.float32))) == 90
    assert f.stats.compiles == 2
