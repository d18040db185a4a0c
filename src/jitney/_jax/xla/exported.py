"""Programs of `jax.export` from bytes, and calls of them.

JAX imports `scipy.linalg` when it lowers an exported program for a CPU, in case the program calls
LAPACK: 0.08 s once in a process, half of the first call of a cached program, unless `lapack.py` did
the look-up before. A program without custom calls does not need it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core
from jax.core import ShapedArray
from jax.interpreters import mlir

from .lapack import look_up

_CALLS = "custom_call"
# in bytes; longer programs hold large constants, and are assumed to have custom calls
_SEARCHED = 1 << 24


def export() -> Any:
    """Module `jax.export`, imported on demand because `import jax` does not import it."""
    return importlib.import_module("jax.export")


def program_of(content: bytes) -> Any:
    """Deserialise a program so that it can be called.

    JAX looks for LAPACK if a program is exported for CPUs. So a program without custom calls is
    marked as one for another platform, with the platform check disabled; both are fields of JAX's
    public dataclass, tried with 0.10.0 to 0.12.0.1, and the lowering is the same. A program that
    calls LAPACK before the look-up would crash the process: see `is_plain`.
    """
    exported = export().deserialize(bytearray(content))
    if exported.platforms != ("cpu",):
        return exported
    if _may_call(content):
        look_up()
        return exported
    return dataclasses.replace(
        exported,
        platforms=("any",),
        disabled_safety_checks=(export().DisabledSafetyCheck.platform(),),
    )


@dataclass(frozen=True, eq=False)
class _ExportedParameter:
    """JAX's exported program, compared by identity so that it can be a parameter of a primitive."""

    exported: Any


def results_of(exported: object, arrays: Sequence[object]) -> list[Any]:
    """Return the results of a single-device program for these arrays, inside a trace that no other
    transform surrounds.

    JAX treats results of the primitive `call_exported` as committed to their device, but results of
    `jax.jit` only if an argument is (tried with jax 0.10.2). It goes by the name of the primitive,
    so a primitive of jitney's is bound here, with the lowering of JAX's.
    """
    return _CALL.bind(*arrays, program=_ExportedParameter(exported))


def _avals(*_: object, program: _ExportedParameter) -> list[Any]:
    return [
        ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
        for aval in program.exported.out_avals
    ]


def _call(*arrays: object, program: _ExportedParameter) -> Any:
    return program.exported.call(*arrays)


_CALL = jax.extend.core.Primitive("jitney_kept")
_CALL.multiple_results = True
_CALL.def_abstract_eval(_avals)
mlir.register_lowering(_CALL, mlir.lower_fun(_call, multiple_results=True))


def is_plain(exported: Any, content: bytes) -> bool:
    """Return whether the serialised bytes reveal custom calls just as the module's text does."""
    return _may_call(content) or _CALLS not in exported.mlir_module()


def _may_call(content: bytes) -> bool:
    return len(content) > _SEARCHED or _CALLS.encode() in content
