"""Packages whose names are imported on first access (PEP 562).

Each name occurs twice in the `__init__.py` or public module that offers it: as an import that only
type checkers follow, and in a table for this module, which type checkers do not see (a
`__getattr__` in their view would make every name valid). Each name is looked up here once and is an
attribute of the package afterwards. A name may not be that of a module of its package, since Python
makes modules attributes too.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

_ONE_AT_A_TIME: Final = threading.RLock()


def names(
    package: str,
    places: Mapping[str, str],
    *,
    modules: Sequence[str] = (),
    former: str | None = None,
    private: bool = True,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Build `__getattr__`, `__dir__` and `__all__` of a package from a table of names and their
    modules.

    Several threads may access a name at once: Python imports a module once, and each thread sets
    the same value. JAX and Equinox have modules that import each other, so two threads could see
    them half imported; they are therefore imported first, under a lock. The lock is not held while
    modules of jitney are imported, because these might wait for it.

    Args:
        package: The package or the module that offers the names.
        places: Name -> the module that defines it, relative to the package.
        modules: Its public modules, which are also imported on first access. `__all__` leaves them
            out.
        former: Module that knows former names: its `find(name)` returns the value, or None.
        private: Whether `dir` shows everything in the package. Otherwise it shows these names, and
            those that Python gives to a module.
    """
    module = sys.modules[package]
    within = module.__package__
    offered = sorted({*places, *modules})

    def asked(name: str) -> object:
        if name in modules:
            # Python makes a module an attribute of its package when it is imported.
            return importlib.import_module(f"{within}.{name}")
        place = places.get(name)
        if place is None:
            if former is not None and not name.startswith("_"):
                found = importlib.import_module(f"{within}.{former}").find(name)
                if found is not None:
                    return found
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}", name=name, obj=module
            )
        with _ONE_AT_A_TIME:
            importlib.import_module("equinox")
        value = getattr(importlib.import_module(f"{within}.{place}"), name)
        # As an attribute the name is found without `__getattr__` from now on.
        setattr(module, name, value)
        return value

    def shown() -> list[str]:
        there = [name for name in vars(module) if private or name.startswith("__")]
        return sorted({*there, *offered})

    # A star import brings no modules: `types` would hide Python's own.
    return asked, shown, sorted(places)
