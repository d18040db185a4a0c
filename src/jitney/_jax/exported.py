"""Programs of `jax.export` as bytes, and back.

Where an exported program is lowered for a CPU, JAX imports `scipy.linalg`, whose LAPACK it may
call: 0.08 s once in a process, half of the first call of a program that was kept, if `lapack.py`
did not look it up. One that calls nothing outside of XLA needs none of it.
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
_SEARCHED = 1 << 24  # bytes; what is longer holds large constants, and is taken for one that calls


def export() -> Any:
    """Imported where it is needed: not by `import jax`."""
    return importlib.import_module("jax.export")


def program_of(content: bytes) -> Any:
    """What was written, to be called.

    JAX looks for LAPACK if a program says that it is for CPUs. One that calls nothing outside of
    XLA says here that it is for another platform, and that its platform is not to be compared; both
    are fields of JAX's public dataclass, tried with 0.10.0 to 0.12.0.1. What is lowered is the
    same. A program that calls LAPACK before it was looked for would end the process, hence
    `is_plain`.
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
class _Program:
    """JAX's exported program, which counts by being itself."""

    exported: Any


def results_of(exported: Any, arrays: Sequence[Any]) -> list[Any]:
    """What a program on one device gives of these arrays, in the trace around it, which no other
    transform stands around.

    JAX takes the results of whatever calls an exported program for committed to their device, those
    of `jax.jit` only where an argument is (tried with jax 0.10.2). It goes by the name of the
    operation, so this is one of our own, which is lowered as JAX's.
    """
    return _CALL.bind(*arrays, program=_Program(exported))


def _avals(*_: Any, program: _Program) -> list[Any]:
    return [
        ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
        for aval in program.exported.out_avals
    ]


def _call(*arrays: Any, program: _Program) -> Any:
    return program.exported.call(*arrays)


_extend: Any = jax.extend.core
_CALL = _extend.Primitive("jitney_kept")
_CALL.multiple_results = True
_CALL.def_abstract_eval(_avals)
_mlir: Any = mlir
_mlir.register_lowering(_CALL, _mlir.lower_fun(_call, multiple_results=True))


def is_plain(exported: Any, content: bytes) -> bool:
    """Whether its bytes say of an exported program what its text says: that it calls what is
    outside of XLA, or does not.
    """
    return _may_call(content) or _CALLS not in exported.mlir_module()


def _may_call(content: bytes) -> bool:
    return len(content) > _SEARCHED or _CALLS.encode() in content
