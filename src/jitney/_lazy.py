"""Packages whose names are imported when they are first asked for (PEP 562).

Such a name stands twice in the `__init__.py` that offers it: as an import that only type checkers
follow, and in the table that is handed in here, which they do not see, since to them any name would
be right where there is a `__getattr__`. A name is looked up here once: what is found is an
attribute of the package from then on. It may not be that of a module of its package, which Python
makes an attribute too.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

_ONE_AT_A_TIME: Final = threading.RLock()


def names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from each name and the module that has
    it.

    Threads may ask at once: Python imports a module once, and each of them sets the same. Of JAX
    and Equinox, whose modules import each other, two threads would see parts; they are complete
    before ours are imported. That lock is held for nothing of ours, which may wait for it.
    """
    module = sys.modules[package]

    def asked(name: str) -> Any:
        place = places.get(name)
        if place is None:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}", name=name, obj=module
            )
        with _ONE_AT_A_TIME:
            importlib.import_module("equinox")
        value = getattr(importlib.import_module(f"{package}.{place}"), name)
        setattr(module, name, value)
        return value

    return asked, lambda: sorted({*vars(module), *places}), sorted(places)
