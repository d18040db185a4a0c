"""Options in a script that reproduces a difference from plain JAX, as source text.

script_pad((("n", Bucket(ladder="pow2")),))  ->  "{'n': jitney.Bucket(ladder='pow2')}"
"""

from __future__ import annotations

import jax

from ..._jax.xla.compiler import CompilerOptions
from ..buckets import Bucket
from ..policies import RematPolicy


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
