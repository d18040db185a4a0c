"""Owner of a function, class or module: the user, whose code is hashed by content, or an installed
package, which is known by name and file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from .._jax.trees import attribute
from .._owners import owner

CORE = ("jax", "jaxlib", "jitney", "equinox", "numpy")
"""Packages whose versions are in the key; they read clocks and the environment for their own
purposes.
"""
_KNOWN = frozenset(
    (
        *CORE,
        "absl",
        "beartype",
        "chex",
        "diffrax",
        "einops",
        "etils",
        "jaxtyping",
        "lineax",
        "ml_dtypes",
        "opt_einsum",
        "optax",
        "optimistix",
        "platformdirs",
        "typing_extensions",
        "wadler_lindig",
    )
)
"""Packages whose functions are functions of their arguments, without handlers or other state that
could be set elsewhere.
"""


_NAMED = (type, FunctionType, ModuleType)
static_attribute: Callable[[type, str], Any] = type.__getattribute__
"""`type.__getattribute__`: an attribute of a class without its metaclass's hooks."""


def is_installed(name: str) -> bool:
    """Return whether a module is of the standard library or of an installed package."""
    return module_origin(name) not in ("user", "generated")


def module_origin(name: str) -> str:
    """Return the owner of a module, by its name; "user" if unknown."""
    module = sys.modules.get(name)
    if module is None:
        return "user"
    file = getattr(module, "__file__", None)
    # most modules
    if type(file) is str and file not in ("", "built-in", "frozen"):
        return owner(file)
    file = file or getattr(getattr(module, "__spec__", None), "origin", None)
    if isinstance(file, str) and file in ("built-in", "frozen"):
        return "stdlib"
    if not isinstance(file, str):
        # a namespace package has a path but no file
        paths = list(getattr(module, "__path__", ()))
        return (
            owner(paths[0]) if paths else "stdlib" if name in sys.builtin_module_names else "user"
        )
    return owner(file)


def is_known(module: str) -> bool:
    """Return whether an installed module belongs to a package whose functions read no state that is
    set elsewhere.
    """
    return module.partition(".")[0] in _KNOWN


def importable(value: object) -> tuple[str, str] | None:
    """Return module and name under which an installed module offers exactly this object, or None.

    No attribute is read of an instance of a user's class, since that could run the user's code.
    """
    if not isinstance(value, _NAMED) and not is_installed(
        str(static_attribute(type(value), "__module__"))
    ):
        return None
    module = attribute(value, "__module__", None)
    name = attribute(value, "__qualname__", None) or attribute(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return None
    return (module, name) if lookup_name(module, name) is value else None


def lookup_name(module: str, name: str) -> object:
    """Return the value of a dotted name in an imported module, or None."""
    value = sys.modules.get(module)
    for part in name.split("."):
        if value is None:
            return None
        value = (
            vars(value).get(part) if isinstance(value, ModuleType) else getattr(value, part, None)
        )
    return value
