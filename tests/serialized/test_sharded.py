"""Programs over several devices, in processes that have eight virtual ones."""

import json
import os
import subprocess
import sys

import pytest

from tests.serialized import _lab as lab

TEXT = """
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jitney
import numpy as np
from jaxtyping import Array, Float

import lab_helper as helper


def several(x: Float[Array, "batch d"], w: Float[Array, "d hidden"]):
    y = x @ w * helper.K
    return {"both": y, "first": jnp.tanh(x), "sum": jnp.sum(x), "second": y.T @ y, "none": w * 2}


def annotated(x: Float[Array, "batch d"], w: Float[Array, "d hidden"]) -> Float[Array, "batch hidden"]:
    return helper.K * jnp.tanh(x @ w)


def loss(x: Float[Array, "batch d"], w: Float[Array, "d hidden"]) -> Float[Array, ""]:
    return jnp.sum(annotated(x, w) ** 2)


def laid(out):
    return [[str(leaf.sharding.spec), [device.id for device in leaf.sharding.mesh.devices.flat]] for leaf in jax.tree.leaves(out)]


rng = np.random.default_rng(0)
x, w = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((8, 4), (4, 6)))
rules, mesh = {"batch": "data", "hidden": "model"}, jitney.mesh(data=2, model=2, devices=jax.devices()[:4])
said = {}
for body in (several, annotated, loss):
    made = []
    for cache in (True, "program"):
        program = jitney.optimize(cache=cache, shard=rules, mesh=mesh)(body)
        called = program.grad if body is loss else program
        out = called(x, w)
        want = dict(zip(("x", "w"), jax.grad(loss, (0, 1))(x, w))) if body is loss else body(x, w)
        for got, plain in zip(jax.tree.leaves(out), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-5)
        made.append(laid(out))
    assert made[0] == made[1], made
    said[body.__name__] = [line.why for line in called.plan(x, w).lines if line.name == "cached program"]


def plain(x: Float[Array, "batch d"]) -> Float[Array, "batch d"]:
    return 2 * x


def checked(x: Float[Array, "batch d"]) -> Float[Array, "batch d"]:
    return eqx.error_if(2 * x, jnp.array(False), "never")


def told(program, *given):
    program(*given)
    return [line.why for line in program.plan(*given).lines if line.name == "cached program"]


explicit = jitney.mesh(data=2, devices=jax.devices()[:2], explicit=True)
one = jitney.mesh(data=2, devices=jax.devices()[:2])
said["no shard"] = told(jitney.optimize(cache="program")(plain), x)
said["explicit"] = told(jitney.optimize(cache="program", shard={"batch": "data"}, mesh=explicit)(plain), x)
either = jitney.optimize(cache="program", shard={"batch": "data"})(plain)
said["meshes"] = []
for devices in (jax.devices()[:2], jax.devices()[2:4]):
    with jitney.mesh(data=2, devices=devices):
        said["meshes"] += [line.why for line in either.plan(x).lines if line.name == "cached program"] + told(either, x)


def statistics(x: Float[Array, "batch d"]) -> tuple[Float[Array, ""], Float[Array, "batch d"], Float[Array, "d"]]:
    return jnp.var(x), helper.K * jax.nn.softmax(x, 0), jnp.sum(x, 0)


rules, rows = {"batch": "data"}, jnp.asarray(rng.normal(size=(27, 4)), jnp.float32)
for name, options in (("chunk", {"chunk": {"batch": 4}}), ("pad", {"pad": {"batch": [8, 32]}})):
    made = []
    for cache in (True, "program"):
        program = jitney.optimize(cache=cache, shard=rules, mesh=one, **options)(statistics)
        given = rows if name == "pad" else jnp.tile(x, (2, 1))
        out = program(given)
        made.append((laid(out), [np.asarray(part).tobytes() for part in out]))
    assert made[0] == made[1], name
    said[name] = told(program, given)
said["checks"] = told(jitney.optimize(cache="program", shard=rules, mesh=one)(checked), x)
with one:
    said["context"] = told(jitney.optimize(cache="program", shard={"batch": "data"})(plain), x)
print(json.dumps(said))
"""
TOGETHER = ("chunk", "pad")
SEVERAL = ("several", "annotated", "loss", *TOGETHER, "context")


@pytest.mark.rest
@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
def test_results_lie_where_they_lie_where_it_is_traced(tmp_path):
    """With equal numbers; a helper that is edited is the one that is computed with. Chunks, padding
    and what is computed again go together with it, and each mesh has a note of its own.
    """
    runs: list[dict[str, list[str]]] = []
    for k in (2.0, 2.0, 3.0):
        lab.write(tmp_path, {"lab_main.py": TEXT, "lab_helper.py": f"K = {k}\n"})
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
        }
        env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        run = subprocess.run(
            [sys.executable, "-c", "import lab_main"],
            env=env,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        runs.append(json.loads(run.stdout.splitlines()[-1]))
    kept, edited = "cached for other processes", ("several", "annotated", "loss", *TOGETHER)
    for run, made in zip(runs, ((*edited, "context"), (), edited), strict=True):
        assert [name for name in SEVERAL if run[name] == [kept]] == list(made)
        assert all(run[name][0].startswith("found") for name in SEVERAL if name not in made)
    for name, why in (
        ("no shard", "without `shard`"),
        ("explicit", "explicit axes"),
        ("checks", "run-time checks, and runs over several"),
    ):
        assert why in runs[0][name][0]
    found = "found: neither traced nor lowered in this process"
    assert [run["meshes"][::2] for run in runs] == [["not called yet"] * 2] * 3
    assert [run["meshes"][1::2] for run in runs] == [[kept, kept], [found, found], [found, found]]
