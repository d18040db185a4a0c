"""What one version of Python and JAX finds of what another has left: compiled programs, kept
programs, files of `f.export`.

`python -m tests.upgrades PYTHON PYTHON ...` has each interpreter write all three into a folder of
its own, and each of them read each folder, where it lay and moved: a table of what was found, made
anew or refused. Numbers are compared with NumPy's in every cell.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = """
import jax.numpy as jnp
import jitney
from jaxtyping import Array, Float


def misfit(rate: Float[Array, ""], t: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.cumsum(jnp.exp(-rate * t)) ** 2)


compiled = jitney.optimize(pad={"n": "pow2"})(misfit)
kept = jitney.optimize(cache="program")(misfit)
"""
RUN = """
import json, platform, sys
from pathlib import Path
import jax, numpy as np
import jitney
from fit import compiled, kept

rate, t = np.float32(0.5), np.linspace(0, 1, 100, dtype=np.float32)
true = np.sum(np.cumsum(np.exp(-rate * t.astype(float))) ** 2)
file, role = Path(sys.argv[1]) / "misfit.jitney", sys.argv[2]
if role == "write":
    kept.export(file, sizes={"n": range(2, 1000)})
values = [compiled(rate, t), kept(rate, t)]
said = "loaded"
try:
    values.append(jitney.load(file)(rate, t))
except jitney.errors.ExportError as error:
    said = f"refused ({error.code})"
print(json.dumps({
    "version": f"Python {platform.python_version()}, jax {jax.__version__}",
    "compiled": "found" if compiled.stats.persistent_hits and not compiled.stats.compiles else "compiled anew",
    "kept": "traced anew" if kept.stats.traces else "found",
    "file": said,
    "right": bool(np.allclose(values, true, rtol=1e-4)),
}))
"""


def run(python: str, folder: Path, role: str) -> dict[str, str]:
    """One process of one interpreter."""
    env = {
        **os.environ,
        "PYTHONPATH": f"{folder.parent}{os.pathsep}{ROOT / 'src'}",
        "JITNEY_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [python, "-c", RUN, str(folder), role],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    if done.returncode:
        raise SystemExit(f"{python}, {role}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(pythons: list[str]) -> int:
    """Print a row for each pair of writer and reader; 1 where a number is wrong."""
    wrong = 0
    print(
        "| left by | read by | compiled programs | in another folder | cached programs | file"
        " |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as outer:
        (Path(outer) / "fit.py").write_text(MODULE)
        place, left, moved = (Path(outer) / name for name in ("place", "left", "moved"))
        for writer in pythons:
            place.mkdir()
            wrote = run(writer, place, "write")
            place.rename(left)
            for reader in pythons:
                shutil.copytree(left, place)  # what another reader has added is not found
                read = run(reader, place, "read")
                shutil.copytree(left, moved)
                elsewhere = run(reader, moved, "read")
                right = read["right"] and elsewhere["right"]
                wrong += not right
                told = (
                    [read["compiled"], elsewhere["compiled"], read["kept"], read["file"]]
                    if right
                    else ["WRONG"]
                )
                print(f"| {' | '.join([wrote['version'], read['version'], *told])} |", flush=True)
                shutil.rmtree(place)
                shutil.rmtree(moved)
            shutil.rmtree(left)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
