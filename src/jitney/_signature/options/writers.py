"""Writers of options: from what `Options` holds back to what an author writes, and to source text
in a script that reproduces a difference from plain JAX.

write_pad((("n", Bucket(ladder="pow2")),))   ->  {"n": "pow2"}
script_pad((("n", Bucket(ladder="pow2")),))  ->  "{'n': jitney.Bucket(ladder='pow2')}"
"""

from __future__ import annotations

import jax

from ..._jax.xla.compiler import CompilerOptions
from ..buckets import Bucket
from ..policies import RematPolicy
from .values import CompileLimit, Sharding, VmapAxis


def bucket_spelling(bucket: Bucket) -> object:
    """Shortest spelling of a bucket: the name of its ladder, its sizes, or the whole `Bucket`."""
    if bucket.count is not None:
        return bucket
    return bucket.ladder or (bucket if bucket.sizes is None else [*bucket.sizes])


def write_names(names: tuple[str, ...]) -> object:
    return names[0] if len(names) == 1 else names


def write_vmap(axes: tuple[VmapAxis, ...]) -> object:
    if len(axes) == 1 and axes[0].dims is None:
        return axes[0].name
    return {axis.name: dict(axis.dims or ()) for axis in axes}


def write_pad(pad: tuple[tuple[str, Bucket], ...]) -> object:
    return {name: bucket_spelling(bucket) for name, bucket in pad}


def write_precision(precision: str | tuple[tuple[str, str], ...]) -> object:
    return precision if isinstance(precision, str) else dict(precision)


def write_limit(limit: CompileLimit) -> object:
    return limit.count if limit.past == "warn" else f"{limit.past}:{limit.count}"


def write_shard(shard: Sharding) -> object:
    axes = {name: write_names(along) for name, along in shard.axes}
    if not axes:
        return "fsdp"
    return ("fsdp", axes) if shard.fsdp else axes


def not_in_scripts(_: object) -> None:
    """No text: the option changes no number of a compiled program."""


def script_pad(pad: tuple[tuple[str, Bucket], ...]) -> str:
    buckets = [f"{name!r}: jitney.{bucket!r}" for name, bucket in pad]
    return f"{{{', '.join(buckets)}}}"


def script_remat(remat: str | RematPolicy) -> str:
    # A policy without a name cannot be written; what it keeps changes no number.
    return repr(True if isinstance(remat, RematPolicy) else remat)


def script_mesh(mesh: jax.sharding.Mesh | str) -> str:
    if isinstance(mesh, str):
        return repr(mesh)
    sizes = [f"{name}={size}" for name, size in mesh.shape.items()]
    return f"jitney.mesh({', '.join(sizes)})"


def script_compiler(compiler: str | CompilerOptions) -> str | None:
    if compiler == "default":
        return None
    return repr(dict(compiler) if isinstance(compiler, tuple) else compiler)
