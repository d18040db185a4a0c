"""Programs of `jax.export` from bytes, calls of them, and a cheaper way for JAX to find LAPACK.

JAX imports `scipy.linalg` when it lowers an exported program for a CPU, in case the program calls
LAPACK: 0.08 s once in a process, half of the first call of a cached program. A program without
custom calls does not need it. For one with them, JAX needs two modules that SciPy documents, of
which a look-up by name runs all of `scipy.linalg`. The two modules alone, and one lowering, take a
quarter of that. They are C extensions and need nothing of the package around them: tried with SciPy
1.17.1 and 1.18.1, JAX 0.10.0 to 0.12.0.1. If anything differs from what is expected here, JAX does
its usual look-up.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

import jax
import jax.extend.core
from jax.core import ShapedArray
from jax.interpreters import mlir

from ..mesh import context

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


_AROUND = "scipy.linalg"
_NEEDED = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")


@cache
def look_up() -> None:
    """Have JAX look up LAPACK now, if it has not done so. The result is the same: later imports of
    these modules get the same modules.
    """
    if {_AROUND, *_NEEDED} & sys.modules.keys() or _is_another_thread() or not context().empty:
        # The modules are imported already, or another thread may be importing them, or a mesh would
        # enter the lowering below.
        return
    with suppress(ImportError), _provide_modules(), jax.disable_jit(False):  # noqa: FBT003
        if all(name in sys.modules for name in _NEEDED):
            scalar, row = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((1, 1), (1,)))
            # The primitive of LAPACK with the shortest lowering.
            jax.jit(jax.lax.linalg.householder_product).trace(scalar, row).lower(
                lowering_platforms=("cpu",)
            )


def _is_another_thread() -> bool:
    """Return whether another thread may run code. A finished timer cannot; JAX has one while it
    starts its backend.
    """
    others = [
        thread for thread in threading.enumerate() if thread is not threading.current_thread()
    ]
    return not all(
        isinstance(thread, threading.Timer) and thread.finished.is_set() for thread in others
    )


@contextmanager
def _provide_modules() -> Generator[None]:
    """Scope in which both modules are in `sys.modules`. They are removed again, since a later
    import of `scipy.linalg` has to bind their names itself.
    """
    try:
        folders = [
            os.path.join(folder, "linalg")  # noqa: PTH118 - as Python has them
            for folder in importlib.import_module("scipy").__path__
        ]
        for name in _NEEDED:
            # The finder and loader of the import system, without importing the parent package.
            spec = PathFinder.find_spec(name, folders)
            if spec is None or spec.loader is None:
                break
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        yield
    finally:
        for name in _NEEDED:
            sys.modules.pop(name, None)
