"""Whose a function, a class or a module is: the user's, which is followed, or of something
installed, which is known by name and file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from .._jax.trees import attribute, is_a, space_of, type_of
from .._owners import owner

CORE = ("jax", "jaxlib", "jitney", "equinox", "numpy")
"""They are in the key by version, and ask clocks and the environment for their own purposes."""
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
"""Packages whose functions are functions of their arguments: no handlers or states of their own
that somebody sets elsewhere.
"""


_NAMED = (type, FunctionType, ModuleType)
static_attribute: Callable[[Any, str], Any] = type.__getattribute__
"""What a class has under a name, whatever its metaclass says."""


def is_installed(name: str) -> bool:
    """Whether a module is of the standard library or lies where packages are installed."""
    return whose(name) not in ("user", "generated")


def whose(name: str) -> str:
    """Whose a module is, by its name; the user's where nobody knows."""
    module = sys.modules.get(name)
    if module is None:
        return "user"
    file: Any = getattr(module, "__file__", None)
    if type(file) is str and file not in ("", "built-in", "frozen"):  # of most
        return owner(file)
    file = file or getattr(getattr(module, "__spec__", None), "origin", None)
    if is_a(file, str) and file in ("built-in", "frozen"):
        return "stdlib"
    if not is_a(file, str):
        paths = list(getattr(module, "__path__", ()))  # a package without a file of its own
        return (
            owner(paths[0]) if paths else "stdlib" if name in sys.builtin_module_names else "user"
        )
    return owner(file)


def is_known(module: str) -> bool:
    """Whether an installed module is of a package whose functions read nothing that is set
    elsewhere.
    """
    return module.partition(".")[0] in _KNOWN


def importable(value: Any) -> tuple[str, str] | None:
    """Module and name by which an installed module offers exactly this object; None where none
    does.

    An instance of a user's class is not asked: what answers is code of the user's.
    """
    if not is_a(value, _NAMED) and not is_installed(
        str(static_attribute(type_of(value), "__module__"))
    ):
        return None
    module: Any = attribute(value, "__module__", None)
    name: Any = attribute(value, "__qualname__", None) or attribute(value, "__name__", None)
    if not is_a(module, str) or not is_a(name, str) or not is_installed(module):
        return None
    return (module, name) if reached(module, name) is value else None


def reached(module: str, name: str) -> Any:
    """What a dotted name leads to in a module that is imported; None where nothing is."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        if value is None:
            return None
        value = space_of(value).get(part) if is_a(value, ModuleType) else getattr(value, part, None)
    return value
