"""The public names of jitney, module by module."""

import importlib
from types import ModuleType
from typing import Any

import jitney

MODULES = tuple(
    importlib.import_module(f"jitney.{name}")
    for name in ("analysis", "errors", "processes", "simulation", "states", "testing", "types")
)


def public_names(*modules: ModuleType) -> dict[str, Any]:
    """Path as users write it -> the object, of the top level and of some modules or all."""
    top = {
        f"jitney.{name}": getattr(jitney, name)
        for name in jitney.__all__
        if not isinstance(getattr(jitney, name), ModuleType)
    }
    return top | {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in modules or MODULES
        for name in module.__all__
        if f"jitney.{name}" not in top
    }
