"""Other libraries in decorated functions: what the pages of `docs/with` say that is not Python, or
does not work.
"""

import ast
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

from jitney import optimize

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


def test_an_axis_inside_a_linear_solver_of_lineax_is_padded():
    """Its primitive holds a program without its constants, so it is traced at known sizes."""
    f = optimize(pad={"points": "pow2"})(root)
    for points in (20, 17, 30):
        x = np.linspace(0, 3, points, dtype=np.float32)
        np.testing.assert_allclose(f(jnp.zeros(2), x, 2 * x + 1), [2, 1], rtol=1e-4)
    assert f.stats.compiles == 1


def test_the_script_for_slurm_runs_as_a_task_of_an_array(tmp_path):
    """As SLURM starts it: in the folder of the job, with the number of the task."""
    (tmp_path / "misfit.py").write_text(re.search(r'"""\n(.*?)"""', SWEEPS, flags=re.DOTALL)[1])
    script = re.search(r"^```sh\n(.*?)^```", SWEEPS, flags=re.DOTALL | re.MULTILINE)[1]
    python = str(Path(sys.executable).parent)
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": "7", "PATH": f"{python}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, check=True)
    assert np.load(tmp_path / "cost-7.npy") < 1e-6
    assert any((tmp_path / "cache").rglob("*"))


IN_MAIN = """\
import os
import sys

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

SCALE = 2.0


@jitney.optimize(pad={"n": "pow2"})
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return SCALE * jnp.sum(x)


def task(rows):
    return os.getpid(), float(total(np.ones(rows, np.float32))), int(total.stats.traces)


def swept():
    if sys.argv[1] == "joblib":
        from joblib import Parallel, delayed

        return Parallel(n_jobs=2, batch_size=1)(delayed(task)(rows) for rows in ROWS)
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            return client.gather(client.map(task, ROWS))


ROWS = [5, 6, 7, 8]
if __name__ == "__main__":
    first = swept()
    SCALE = 3.0
    print(first + swept())
"""


@pytest.mark.parametrize("library", ["joblib", "dask.distributed"])
def test_a_function_of_the_script_itself_is_swept(library, tmp_path):
    """Each worker traces it once for all sizes of a bucket, and again for another global value."""
    pytest.importorskip(library)
    (tmp_path / "script.py").write_text(IN_MAIN)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), library],
        capture_output=True,
        check=True,
    )
    tasks = ast.literal_eval(done.stdout.decode())
    assert [value for _, value, _ in tasks] == [10, 12, 14, 16, 15, 18, 21, 24]
    assert {traces for _, _, traces in tasks} == {1}
    assert os.getpid() not in {process for process, _, _ in tasks}
