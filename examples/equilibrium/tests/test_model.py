"""What a model is made of: layouts, points, the graph of its equations, and messages about what
does not fit.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import Model, ModelError, Point, derived, steady_state
from examples.equilibrium._graph import Graph, read
from examples.equilibrium._model import NAMES
from examples.equilibrium._rolled import Rolled
from examples.equilibrium._variables import Layout
from examples.equilibrium.models import an_schorfheide, brock_mirman, gali, rbc, scalars, sectors

MODELS = [
    brock_mirman.MODEL,
    gali.MODEL,
    an_schorfheide.MODEL,
    *(case.model for case in rbc.CASES),
    sectors.model(3),
    scalars.model(3),
]


def test_a_group_and_its_vector_are_the_same_numbers():
    """Modules and dicts, of scalars and of vectors, there and back."""
    group = sectors.Controls(1.0, *(np.arange(3.0) + i for i in range(5)))
    layout = Layout.of(group)
    vector = layout.vector(group)
    assert layout.names[:3] == ("c", "inv[0]", "inv[1]")
    np.testing.assert_array_equal(vector[layout.index("", "mp[2]")], group.mp[2])
    np.testing.assert_array_equal(layout.group(vector).ret, group.ret)


@pytest.mark.core("Gali, chapter 3")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_entries_are_residuals_and_dense_jacobian(model):
    """At a point that is no steady state, against `jax.jacfwd` of the equations."""
    rng = np.random.default_rng(0)
    u, x = (np.abs(part) + 0.2 for part in model.guess)
    spread = lambda part: part * rng.uniform(0.7, 0.9, part.shape)
    theta, z = model.theta(model.params), rng.normal(size=model.sizes["z"]) / 10
    place = [theta, *map(spread, (u, x)), z, *map(spread, (u, x)), z / 2]
    with jax.enable_x64(True):
        equations = lambda *at: jnp.concatenate(
            [jnp.ravel(leaf) for leaf in jax.tree.leaves(model._residuals(*at))]
        )
        value, blocks = jax.jit(
            lambda *at: (equations(*at), jax.jacfwd(equations, tuple(range(7)))(*at))
        )(*place)
        entries = np.asarray(jax.jit(model.local.entries)(np.concatenate(place)[:, None]))[:, 0]
    assert model.graph is not None
    np.testing.assert_allclose(entries[: model.local.rows], value, rtol=1e-12, atol=1e-13)
    ours = model.local.blocks(entries)
    for name, block in zip(NAMES, blocks, strict=True):
        np.testing.assert_allclose(ours[name], block, rtol=1e-11, atol=1e-12)


def test_scalar_and_vector_formulas_are_as_many_instructions():
    """The scheduler finds the sectors again in fourteen blocks of scalars, and forty sectors take
    few lines more.
    """
    lines = {
        (form, n): form.model(n).local.entries.table[0].size
        for form in (scalars, sectors)
        for n in (14, 40)
    }
    assert lines[scalars, 14] <= lines[sectors, 14] + 2
    assert lines[sectors, 40] < 2.6 * lines[sectors, 14]


@pytest.mark.rest
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: jnp.sqrt(x) * jnp.tanh(y) + jnp.sin(x) / jnp.cos(y),
        lambda x, y: jnp.log1p(x) - jnp.expm1(y) + jax.nn.sigmoid(x * y),
        lambda x, y: x**y + y**2 + x**-1 + x**0.5 + x**3 - 2.0 * x,
        lambda x, y: jnp.sum(x * y) * x + jnp.concatenate([x[2:], y[:2]]) + jnp.flip(x),
        lambda x, y: jnp.stack([x, y]).reshape(8)[1::2] + x.reshape(2, 2).T.ravel() + y[1],
        lambda x, y: (
            jnp.exp(jnp.sum(x.reshape(2, 2), 0))[0] + jnp.outer(x, y).sum(1) - jnp.square(y)
        ),
    ],
)
def test_the_graph_computes_what_jax_computes(function):
    """Values and derivatives, at several places at once."""
    with jax.enable_x64(True):
        program = jax.make_jaxpr(function)(jnp.ones(4), jnp.ones(4))
        graph = Graph()
        inputs = [
            np.array([graph.node("in", len(graph.nodes)) for _ in range(4)]) for _ in range(2)
        ]
        (out,) = read(graph, program.jaxpr, program.consts, inputs)
        outputs = out.ravel().tolist()
        partials = graph.partials(outputs, 8)
        cells = [
            (row, column, node)
            for row, found in enumerate(partials)
            for column, node in found.items()
        ]
        rolled = Rolled(graph.nodes, [*outputs, *(node for *_, node in cells)])
        places = np.random.default_rng(0).uniform(0.2, 0.9, (8, 5))
        values = np.asarray(jax.jit(rolled)(places))
        for period in range(5):
            at = places[:4, period], places[4:, period]
            np.testing.assert_allclose(values[: len(outputs), period], function(*at), rtol=1e-12)
            dense = np.hstack(jax.jacfwd(function, (0, 1))(*at))
            ours = np.zeros_like(dense)
            for i, (row, column, _) in enumerate(cells):
                ours[row, column] = values[len(outputs) + i, period]
            np.testing.assert_allclose(ours, dense, rtol=1e-11, atol=1e-13)


def linear_model(equations, **changed):
    """One control, one state, one shock, and a matrix of parameters."""
    given = {
        "controls": {"u": 0.1},
        "states": {"x": 0.2},
        "shocks": {"z": 0.0},
        "persistence": lambda p: {"z": p["rho"]},
        "params": {"rho": 0.5, "a": 0.5},
    }
    return Model(equations, **{**given, **changed}, name="toy")


@pytest.mark.rest
def test_what_no_graph_holds_goes_through_the_dense_jacobian():
    """A matrix product and a maximum: u = max(a x, -1) + z, and x' = 0.9 x + 1."""
    matrix = jnp.array([[0.9, 1.0]])
    equations = lambda p, now, ahead: {
        "rule": now.u - jnp.maximum(p["a"] * now.x, -1.0) - now.z,
        "law": ahead.x - (matrix @ jnp.stack([now.x, jnp.ones_like(now.x)]))[0],
    }
    model = linear_model(equations)
    assert model.graph is None
    steady = steady_state(model, model.params)
    # the matrix is float32
    np.testing.assert_allclose([steady["x"], steady["u"]], [10.0, 5.0], rtol=1e-6)


@pytest.mark.rest
def test_derived_quantities_are_computed_once_and_only_if_read():
    """However often equations read them."""
    computed = []

    class Counted(Point):
        @derived
        def twice(self):
            computed.append(self.u)
            return 2.0 * self.u

        @derived
        def unread(self):
            raise AssertionError

    equations = lambda p, now, ahead: {
        "rule": now.twice + now.twice - 4.0 * now.x,
        "law": ahead.x - 0.5 * now.x - now.twice * p["a"] + 1.0,
    }
    model = linear_model(equations, point=Counted)
    steady_state(model, model.params)
    assert len(computed) == 1


def test_too_few_equations_are_refused():
    """With both counts."""
    model = linear_model(lambda p, now, ahead: {"rule": now.u - now.x})
    with pytest.raises(ModelError, match=r"1 equations, and 2 controls and states"):
        steady_state(model, model.params)


def test_a_name_for_two_things_is_refused():
    """When the model is made."""
    with pytest.raises(ModelError, match="'u' stands for two things"):
        linear_model(None, states={"u": 0.0})


def test_an_unknown_name_lists_the_variables():
    """In equations, as an attribute error."""
    model = linear_model(lambda p, now, ahead: {"rule": now.consumption})
    with pytest.raises(
        AttributeError, match="neither a variable nor a derived quantity 'consumption'"
    ):
        steady_state(model, model.params)


def test_parameters_are_equinox_modules_or_dicts():
    """Modules with arrays in their fields flatten as dicts do."""
    assert eqx.tree_equal(
        sectors.model(2)
        .parameters.group(sectors.model(2).theta(sectors.Params(Zbar=np.ones(2))))
        .Zbar,
        np.ones(2),
    )
