"""The four ports count as code that cannot look at a size unseen, so that no size costs a trace
more.
"""

from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import examples.trf._program as trf
from examples.equilibrium import _sweep
from examples.equilibrium.models import brock_mirman, sectors
from examples.homodyne.model import Setup, gram
from examples.surrogate._expert import batch, log_sum
from examples.surrogate._step import start, step_of
from examples.surrogate._validate import predict
from examples.surrogate.tests._small import RUN
from examples.trf import least_squares
from jitney._axes.symbolic.executed_code import observe_code


def looks(fn, *args):
    """What a trace of a function finds that may look at sizes."""
    found = []
    with observe_code(found.append):
        eqx.filter_make_jaxpr(fn)(*args)
    return found


@pytest.fixture(scope="module")
def drawn():
    return batch(np.random.default_rng(3), 2, 3, samples=6)


@pytest.mark.rest
def test_the_step_of_the_surrogate_is_clean(drawn):
    """Loss, gradient, optimiser: it is padded along examples, samples and variables."""
    model = RUN.model()
    step = step_of(RUN.recipe, pad=None)
    given = drawn.x, drawn.index, drawn.mask, drawn.expert
    assert looks(step._fn, model, start(RUN.recipe, model), *given) == []


@pytest.mark.rest
def test_predictions_of_the_surrogate_are_clean(drawn):
    """They are padded in a validation."""
    assert looks(predict._fn, RUN.model(), drawn.x[0], drawn.index[0], drawn.mask[0]) == []


def test_the_expert_of_the_surrogate_is_clean():
    """Its tables are NumPy's."""
    with jax.enable_x64(True):
        assert looks(log_sum._fn, np.ones((3, 4))) == []


@pytest.mark.rest
def test_the_products_of_homodyne_are_clean():
    """They are cut, and streamed."""
    points = np.ones(16, np.float32)
    over = jax.vmap(gram, (None, None, 0, None, None, 0))
    assert (
        looks(
            over,
            np.ones(9, np.float32),
            Setup(),
            np.ones(2, np.float32),
            points,
            points,
            np.ones((2, 16), np.float32),
        )
        == []
    )


@pytest.mark.core("brock_mirman")
@pytest.mark.parametrize(
    "model", [brock_mirman.MODEL, sectors.model(3)], ids=["brock_mirman", "sectors"]
)
def test_the_sweep_of_the_equilibrium_is_clean(model):
    """Steady states, derivatives and paths of one draw."""
    with jax.enable_x64(True):
        theta, *rest = _sweep.arguments(
            model, jax.tree.map(lambda value: np.asarray(value)[None], model.params), None, None, 5
        )
        assert looks(_sweep.one_draw(model), theta[0], *rest) == []


@pytest.mark.rest
def test_the_fits_of_trf_are_clean():
    """A whole fit is one program."""
    found = []
    fitted = trf.fitted

    def watched(*args):
        with observe_code(found.append):
            return fitted(*args)

    def residual(p, t, y):
        return p[0] * jnp.exp(-p[1] * t) - y

    t = np.linspace(0, 1, 10)
    with mock.patch.object(trf, "fitted", watched), jax.numpy_dtype_promotion("standard"):
        least_squares(residual, [1.0, 0.1], args=(t, t))
    assert found == []
