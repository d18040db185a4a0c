"""A file is used where the code that it was made of is not."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = """
    import equinox as eqx, jax, jax.numpy as jnp, jitney
    from jaxtyping import Array, Float

    class Fit(eqx.Module):
        rate: Float[Array, ""]
        degree: int = eqx.field(static=True)

    def activation(x):
        return jnp.tanh(x)

    @jitney.optimize
    def step(model: Fit, t: Float[Array, "points"], act=activation):
        loss = lambda model: jnp.sum(eqx.error_if(act(model.rate * t), jnp.any(t < 0), "a time below zero") ** model.degree)
        value, slope = jax.value_and_grad(loss)(model)
        return jax.tree.map(lambda p, g: p - 0.5 * g, model, slope), value, act
"""
MAKE = """
    import jax.numpy as jnp, numpy as np, source
    model, t = source.Fit(jnp.asarray(0.3, jnp.float32), 2), jnp.linspace(0.0, 1.0, 7)
    source.step.export("step.jitney", model, sizes={"points": range(2, 100)})
    new, value, _ = source.step(model, t)
    np.savez("expected.npz", rate=new.rate, value=value)
"""
USE = """
    import sys, jitney, jax.numpy as jnp, numpy as np
    step = jitney.load("step.jitney")
    assert "source" not in sys.modules and step.missing == ("source.Fit",), step.missing
    t, expected = jnp.linspace(0.0, 1.0, 7), np.load("expected.npz")
    model, value, act = step({"rate": jnp.asarray(0.3, jnp.float32), "degree": 2}, t, "source.activation")
    np.testing.assert_array_equal(model["rate"], expected["rate"])
    np.testing.assert_array_equal(value, expected["value"])
    assert act == "source.activation", act
    step(model, jnp.linspace(0.0, 1.0, 50), act)
    other = {"rate": model["rate"], "degree": 3}
    for wrong, what in (((other, t, act), "static 'model.degree' is 3"), ((model, -t, act), "a time below zero")):
        try:
            step(*wrong)
        except Exception as error:
            assert what in str(error), error
        else:
            raise AssertionError(what)
"""


def _python(folder: Path, text: str) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p and "tests" not in p),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.rest
def test_a_program_runs_where_its_module_does_not_exist(tmp_path):
    """Numbers of another process to the bit; its module is a dict, its function a name, its check
    and its statics hold.
    """
    (tmp_path / "source.py").write_text(textwrap.dedent(SOURCE))
    _python(tmp_path, MAKE)
    (tmp_path / "source.py").unlink()
    _python(tmp_path, USE)
