"""The examples as they were before, which nothing decorates: what their "after" does is named as a
change worth making.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.command._scripts import watched

ROOT = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
TRF = """
import jax, jax.numpy as jnp, numpy as np
from examples.trf import before
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)

@jax.jit
def value(p, t, y):
    return p[0] * jnp.exp(-p[1] * t) + p[2] - y

slope = jax.jit(jax.jacfwd(value))
for n in (20, 21, 22, 23) * 150:
    t = np.linspace(0, 4, n)
    y = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.01 * rng.normal(size=n)

    def fun(p):
        return np.asarray(value(p, t, y))

    def jac(p):
        return np.asarray(slope(p, t, y))

    before.least_squares(fun, np.ones(3), jac)
"""
HOMODYNE = """
import pathlib, tempfile
import numpy as np
from examples.homodyne import before
from examples.homodyne._data import Data, TRUTH

with tempfile.TemporaryDirectory() as folder:
    for points in (40000, 48000, 56000):
        summed = before.products(Data.make(pathlib.Path(folder) / str(points), points))
        for scale in (0.9, 1.0, 1.1):
            summed(TRUTH * scale)
"""
SURROGATE = """
import jax, numpy as np
from examples.surrogate import before
from examples.surrogate._expert import batch
from examples.surrogate._step import Recipe, start
from examples.surrogate.model import Surrogate

model, recipe = Surrogate(8, key=jax.random.key(0)), Recipe()
opt = start(recipe, model)
for variables in (3, 4):
    model, opt, _ = before.step(recipe, model, opt, batch(np.random.default_rng(variables), 2, variables, 6))
"""
# What each says, with what the "after" has: one program for a whole fit, at any number of points;
# all angles and points in one; one step.
PORTS = {
    "trf": (
        TRF,
        ("value was compiled for 4 sizes",),
        ("np.asarray(x)", "p, t, y, up to", "for value at each of"),
    ),
    "homodyne": (
        HOMODYNE,
        ("residual was compiled for 3 sizes", "operations of JAX outside of any jit"),
        ("np.asarray(x)",),
    ),
    "surrogate": (SURROGATE, ("operations of JAX outside of any jit",), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("port", PORTS)
def test_what_an_after_does_is_named_of_its_before(port, tmp_path):
    """Each by its line, with what it would save; of lines only where Python sees them."""
    code, always, seen = PORTS[port]
    (tmp_path / "before_it.py").write_text(ROOT + code)
    done = watched(tmp_path, "before_it.py", report=str(tmp_path / "out.json"))
    assert done.status == 0, done.err
    told = json.loads((tmp_path / "out.json").read_text())["changes"]
    for said in (*always, *(seen if sys.version_info >= (3, 13) else ())):
        assert any(said in change["what"] for change in told), (
            said,
            [change["what"] for change in told],
        )
    assert all(change["seconds"] is None or 0 < change["seconds"] < 600 for change in told)
