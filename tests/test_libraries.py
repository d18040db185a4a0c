"""Other libraries in decorated functions: what the pages of `docs/with` say that is not Python, or
does not work.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize

pytestmark = pytest.mark.rest
SWEEPS = (Path(__file__).parents[1] / "docs" / "with" / "sweeps.md").read_text()
X = np.linspace(0, 3, 20, dtype=np.float32)


def root(
    start: Float[Array, "k"],
    x: Float[Array, "points"],
    y: Float[Array, "points"],
) -> Float[Array, "k"]:
    """Slope and offset of a line, where the gradient of the misfit is zero."""

    def gradient(p, _):
        misfit = p[0] * x + p[1] - y
        return jnp.stack([jnp.sum(misfit * x), jnp.sum(misfit)])

    return optx.root_find(gradient, optx.Newton(1e-3, 1e-3), start).value


def test_an_axis_inside_a_linear_solver_of_lineax_is_refused_by_name():
    """Its primitive holds a program without its constants: a warning and exact sizes, no crash."""
    f = optimize(pad={"points": "pow2"})(root)
    with pytest.warns(JitneyWarning, match="without its constants .`linear_solve`"):
        line = f(jnp.zeros(2), X, 2 * X + 1)
    np.testing.assert_allclose(line, [2, 1], rtol=1e-4)


def test_the_script_for_slurm_runs_as_a_task_of_an_array(tmp_path):
    """As SLURM starts it: in the folder of the job, with the number of the task."""
    (tmp_path / "misfit.py").write_text(re.search(r'"""\n(.*?)"""', SWEEPS, flags=re.DOTALL)[1])
    script = re.search(r"^```sh\n(.*?)^```", SWEEPS, flags=re.DOTALL | re.MULTILINE)[1]
    python = str(Path(sys.executable).parent)
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": "7", "PATH": f"{python}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, check=True)
    assert np.load(tmp_path / "cost-7.npy") < 1e-6
    assert any((tmp_path / "cache").rglob("*"))
