"""Remedies of pipelines, of meshes and of what is simulated on them, with one device."""

from __future__ import annotations

from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._simulate.other_process import CompileFailure
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
BATCH = array(np.arange(12.0).reshape(4, 3), np.float32)
ROWS = np.asarray(BATCH)
PIPELINE, PARTS, SIMULATE = (
    "_devices/pipeline.py",
    "_processes/from_processes.py",
    "_simulate/simulate.py",
)


class Scale(eqx.Module):
    """A layer: each element times its parameters."""

    w: Array

    def __call__(self, x, *, key=None):
        return self.w * x


class Twice(eqx.Module):
    """Without parameters."""

    def __call__(self, x):
        return 2 * x


class Offset(eqx.Module):
    b: Array

    def __call__(self, x):
        return x + self.b


class Wider(eqx.Module):
    w: Array

    def __call__(self, x):
        return jnp.concatenate([self.w * x, x])


LAYERS = [Scale(X), Scale(array(2 * np.asarray(X)))]
TWICE_SCALED = ROWS * HOST * (2 * HOST)


def piped(x=BATCH, layers=LAYERS, mesh="stage", **options):
    """Through the layers, on a mesh with this axis."""
    made = jitney.pipeline(layers, **{"axis": "stage", "microbatches": 2, **options})
    if mesh is None:
        return made(x)
    with jitney.mesh(**{mesh: 1}):
        return made(x)


def with_its_own():
    made = jitney.pipeline(
        LAYERS, axis="stage", microbatches=2, mesh=jitney.mesh(stage=1, devices=jax.devices()[:1])
    )
    return made(BATCH)


def inside_another():
    made = jitney.pipeline(
        LAYERS, axis="stage", microbatches=2, mesh=jitney.mesh(stage=1, devices=jax.devices()[:1])
    )
    with jax.set_mesh(jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])):
        return made(BATCH)


def stacked_scales():
    return eqx.filter_vmap(Scale)(jnp.stack([X, 2 * X]))


def together(x, along="data", axis=0, mesh="data"):
    """Of this process alone."""
    if mesh is None:
        return jitney.processes.from_processes(x, along, axis=axis)
    with jitney.mesh(**{mesh: 1}):
        return jitney.processes.from_processes(x, along, axis=axis)


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def squares(x: Float[Array, "n"]):
    return jnp.sum(jnp.sort(jnp.outer(x, jnp.arange(64.0)), axis=1))


def simulated(fn=total, mesh=4, size=4096, **options):
    f = optimize(shard={"n": "data"}, **options)(fn)
    jitney.simulation.simulate(f, sizes={"n": size}, device="h100", mesh=mesh)


def fails_elsewhere():
    """The other process runs out of memory, say."""
    with patch(
        "jitney._simulate.simulate.compile_elsewhere", return_value=CompileFailure("out of memory")
    ):
        simulated(mesh={"data": 64})


def in_shard_map(fn):
    """What another mesh's devices do, each with its part."""
    mesh = jitney.mesh(a=1, devices=jax.devices()[:1]).mesh
    spec = jax.sharding.PartitionSpec("a")
    return jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(X)


def doubled(x: Float[Array, "n"]):
    return 2 * x


LAID = optimize(shard={"n": "data"}, mesh=jitney.mesh(data=1, devices=jax.devices()[:1]))(doubled)


PADDED = optimize(
    shard={"n": "data"}, mesh=jitney.mesh(data=1, devices=jax.devices()[:1]), pad={"n": "pow2"}
)(total)


def counts(*shapes):
    f = optimize(chunk={"n": 1024})(total)
    for shape in shapes:
        f.plan(jax.ShapeDtypeStruct(shape, np.float32))


CASES = [
    # Pipelines.
    Remedy(
        f"{PIPELINE}:Pipeline._sizes",
        "call it inside `with jitney.mesh(…=-1):`",
        lambda: piped(mesh=None),
        piped,
        TWICE_SCALED,
        core=True,
    ),
    Remedy(
        f"{PIPELINE}:Pipeline._sizes",
        "or give mesh=jitney.mesh(…=-1)",
        lambda: piped(mesh=None),
        with_its_own,
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:Pipeline._sizes",
        "leave mesh= out, or call it outside of the other mesh",
        inside_another,
        with_its_own,
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:Pipeline._sizes",
        "correct the name, or make a mesh that has it",
        lambda: piped(mesh="data"),
        piped,
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:pipeline",
        "write microbatches=8",
        lambda: piped(microbatches=0),
        lambda: piped(jnp.concatenate([BATCH, BATCH]), microbatches=8),
        np.concatenate([TWICE_SCALED, TWICE_SCALED]),
    ),
    Remedy(
        f"{PIPELINE}:_of_jax",
        "put several steps into one module, such as eqx.nn.Sequential([...])",
        lambda: piped(layers=[LAYERS, LAYERS]),
        lambda: piped(layers=[eqx.nn.Sequential(LAYERS)]),
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:_of_jax",
        "and arrays into one with a `__call__`",
        lambda: piped(layers=[X, 2 * X]),
        piped,
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:_check_stack",
        "call a function without parameters before or behind the pipeline",
        lambda: piped(layers=[Twice(), Twice()]),
        lambda: 2 * piped(),
        2 * TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:_check_stack",
        "stack layers with eqx.filter_vmap(Block)(keys)",
        lambda: piped(layers=Scale(jnp.asarray(2.0))),
        lambda: piped(layers=stacked_scales()),
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:_batch",
        "stack the elements: jnp.stack([...])",
        lambda: piped([*BATCH]),
        lambda: piped(jnp.stack([*BATCH])),
        TWICE_SCALED,
    ),
    Remedy(
        f"{PIPELINE}:_stack_layers",
        "pass at least one",
        lambda: piped(layers=[]),
        lambda: piped(layers=[Scale(X)]),
        ROWS * HOST,
    ),
    Remedy(
        f"{PIPELINE}:_stack_layers",
        "put what differs before or behind the pipeline",
        lambda: piped(layers=[*LAYERS, Offset(X)]),
        lambda: piped() + X,
        TWICE_SCALED + HOST,
    ),
    Remedy(
        f"{PIPELINE}:_check_divides",
        "make it a multiple of",
        lambda: piped(microbatches=3),
        lambda: piped(BATCH[:3], microbatches=3),
        TWICE_SCALED[:3],
    ),
    Remedy(
        f"{PIPELINE}:_check_layer",
        "put layers that change them before or behind the pipeline",
        lambda: piped(layers=[Wider(X), Wider(X)]),
        lambda: jax.vmap(Wider(X))(piped()),
        np.concatenate([TWICE_SCALED * HOST, TWICE_SCALED], axis=1),
    ),
    # Parts of several processes, of which here is one.
    Remedy(
        f"{PARTS}:from_processes",
        'write jitney.processes.from_processes(x, "data")',
        lambda: together(X, along=3),
        lambda: together(X),
        HOST,
    ),
    Remedy(
        f"{PARTS}:from_processes",
        "call it inside `with jitney.mesh(data=-1):`",
        lambda: together(X, mesh=None),
        lambda: together(X),
        HOST,
    ),
    Remedy(
        f"{PARTS}:from_processes",
        "count it from the front",
        lambda: together(BATCH, axis=-1),
        lambda: together(BATCH, axis=1),
        ROWS,
    ),
    Remedy(
        f"{PARTS}:_check",
        "pass arrays that have it",
        lambda: together(X, axis=1),
        lambda: together(BATCH, axis=1),
        ROWS,
    ),
    # Meshes, and programs of many devices.
    Remedy(
        "_jax/mesh.py:_divided_already",
        "call the function outside of it",
        lambda: in_shard_map(LAID),
        lambda: in_shard_map(lambda x: x) + LAID(X) - X,
        2 * HOST,
    ),
    Remedy(
        "_jax/mesh.py:_divided_already",
        "or write it there without `shard`",
        lambda: in_shard_map(LAID),
        lambda: in_shard_map(optimize(doubled)),
        2 * HOST,
    ),
    Remedy(
        f"{SIMULATE}:_mesh_of",
        "simulate smaller meshes, mesh=[...]",
        lambda: simulated(mesh={"data": 2**20}),
        lambda: simulated(mesh=[{"data": 2}, {"data": 4}]),
    ),
    Remedy(
        "_stages/chunking/chunk.py:Chunk._fitting",
        'give it `chunk={"…": ...}` instead of `memory`',
        lambda: simulated(squares, {"data": 2}, memory="100 KiB"),
        lambda: simulated(squares, {"data": 2}, chunk={"n": 512}),
    ),
    Remedy(
        "_stages/chunking/chunk.py:Chunk.of",
        "work on the parts one after the other",
        lambda: counts((2**31,)),
        lambda: counts((2**30,), (2**30,)),
    ),
    Remedy(
        f"{SIMULATE}:simulate",
        "try fewer",
        fails_elsewhere,
        lambda: simulated(mesh={"data": 2}),
    ),
    Remedy(
        f"{SIMULATE}:simulate",
        "or look at `f.lower(...)`",
        fails_elsewhere,
        lambda: LAID.lower(X).as_text() and None,
    ),
    Remedy(
        "_program/outer_transforms.py:is_padded",
        "call it outside of one",
        lambda: jax.grad(PADDED)(X),
        lambda: PADDED(X),
        HOST @ HOST,
    ),
    Remedy(
        "_program/outer_transforms.py:is_padded",
        "or take its gradient with `.grad`",
        lambda: jax.grad(PADDED)(2 * X),
        lambda: PADDED.grad(X, wrt="x"),
        2 * HOST,
    ),
]
