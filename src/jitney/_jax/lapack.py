"""JAX looks LAPACK up in SciPy, once in a process, by two modules that SciPy documents; importing
these by name runs all of `scipy.linalg`.

That is 0.08 s, half of the first call of a program that was kept; the two modules alone, and one
lowering, are a quarter of it. They are C, and need nothing of the package around them: tried with
SciPy 1.17.1 and 1.18.1, JAX 0.10.0 to 0.12.0.1. Where anything is not as it is here, JAX looks as
it does by itself.
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
from typing import Any

import jax

from .mesh import context

_jax: Any = jax
_AROUND = "scipy.linalg"
_NEEDED = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")


@cache
def look_up() -> None:
    """Have JAX look for LAPACK now, if it has not. It finds the same as ever: whoever imports these
    modules later gets the same ones.
    """
    if {_AROUND, *_NEEDED} & sys.modules.keys() or _is_another_thread() or not context().empty:
        # they are there, or another thread may be about to import them, or JAX asks where things
        # lie of what it lowers
        return
    with suppress(ImportError), _offered(), jax.disable_jit(False):  # noqa: FBT003
        if all(name in sys.modules for name in _NEEDED):
            scalar, row = (_jax.ShapeDtypeStruct(shape, "float32") for shape in ((1, 1), (1,)))
            # of all, the shortest
            _jax.jit(_jax.lax.linalg.householder_product).trace(scalar, row).lower(
                lowering_platforms=("cpu",)
            )


def _is_another_thread() -> bool:
    """Whether another thread may do anything; a timer that is done does not. JAX has one while it
    starts its backend.
    """
    others = [
        thread for thread in threading.enumerate() if thread is not threading.current_thread()
    ]
    return not all(
        isinstance(thread, threading.Timer) and thread.finished.is_set() for thread in others
    )


@contextmanager
def _offered() -> Generator[None]:
    """Both are in `sys.modules` meanwhile, not for good: who imports `scipy.linalg` has it bind its
    own names.
    """
    try:
        folders = [
            os.path.join(folder, "linalg")  # noqa: PTH118 - as Python has them
            for folder in importlib.import_module("scipy").__path__
        ]
        for name in _NEEDED:
            spec = PathFinder.find_spec(name, folders)
            if spec is None or spec.loader is None:
                break
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        yield
    finally:
        for name in _NEEDED:
            sys.modules.pop(name, None)
