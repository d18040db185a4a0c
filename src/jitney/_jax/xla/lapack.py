"""A cheaper way for JAX to find LAPACK in SciPy, once in a process.

JAX needs two modules that SciPy documents, but importing them by name runs all of `scipy.linalg`:
0.08 s, half of the first call of a cached program. The two modules alone, and one lowering, take a
quarter of that. They are C extensions and need nothing of the package around them: tried with SciPy
1.17.1 and 1.18.1, JAX 0.10.0 to 0.12.0.1. If anything differs from what is expected here, JAX does
its usual look-up.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import PathFinder

import jax

from ..mesh import context

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
            # the primitive of LAPACK with the shortest lowering
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
