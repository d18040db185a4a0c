"""Lookup of the function that `bench` names, in a file or in a module.

A file is executed as a module of its own name, and its folder is put on `sys.path`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax

from ..._errors import OptionError
from ..._interface.program import Program
from ..._jax.trees import tree_flatten
from ..._program.core import CompiledFunction
from ..._program.registry import REGISTRY
from ..._signature.options import Options
from .parsing import WHERE

_RULE = "It is `script.py:function` or `package.module:function`."


@dataclass(frozen=True)
class Target:
    """Function to measure.

    Args:
        name: The text that was typed.
        f: The function, as the file defines it.
        module: Module that defines it.
        core: Its signature as data.
    """

    name: str
    f: Any
    module: ModuleType
    core: CompiledFunction

    def callable_for(self, values: Mapping[str, object]) -> tuple[Callable[..., object], str]:
        """Return the callable to measure, and how it is compiled, in words.

        A function that is not compiled is put under `jax.jit`, where all arguments are static but
        arrays, floats and complex numbers. It is put under `eqx.filter_jit` if a static argument
        would be a module or a tree of several leaves.

        Args:
            values: Its arguments by name.
        """
        if isinstance(self.f, Program):
            return self.f, "as it is decorated"
        # Functions under `jax.jit` and `eqx.filter_jit` have `lower`.
        if hasattr(self.f, "lower"):
            return self.f, "as it is compiled there"
        static = [
            name for name, value in values.items() if not all(map(_is_number, _leaves(value)))
        ]
        if any(
            isinstance(values[name], eqx.Module) or len(_leaves(values[name])) > 1
            for name in static
        ):
            return eqx.filter_jit(self.f), "under eqx.filter_jit"
        return jax.jit(self.f, static_argnames=static), "under jax.jit" + (
            f", {', '.join(static)} static" if static else ""
        )


def find(typed: str) -> Target:
    """Import the function that was typed. Errors raised by the file itself pass through.

    Raises:
        OptionError: The function is missing, or is not callable.
    """
    place, colon, name = typed.rpartition(":")
    if not colon or not place or not name:
        raise _wrong(typed, "it names no function.", "write script.py:function.")
    module = (
        _file(typed, Path(place))
        if place.endswith(".py") or os.sep in place
        else _module(typed, place)
    )
    f = attribute(typed, module, name)
    if not callable(f):
        raise _wrong(typed, f"{name!r} is not a function.", "name one.")

    # An undecorated function is analysed as `jitney.optimize` without options would do it.
    held: Any = f
    core = held.core if isinstance(f, Program) else REGISTRY.core(inspect.unwrap(f), Options())
    return Target(typed, f, module, core)


def attribute(typed: str, module: Any, path: str) -> Any:
    """Return the attribute of a module under a name, which may have dots in it.

    Raises:
        OptionError: There is no such attribute.
    """
    held, named = module, module.__dict__
    for part in path.split("."):
        if not hasattr(held, part):
            names = [
                name
                for name, value in named.items()
                if inspect.isroutine(value) or isinstance(value, Program)
            ]
            there = f"It has {', '.join(names[:10])}." if names else "It has no functions."
            raise OptionError(
                WHERE,
                f"{typed}: {part!r} is not in {module.__name__}.",
                there,
                "correct the name.",
                code="J205",
            )
        held = getattr(held, part)
    return held


def _file(typed: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise _wrong(
            typed, f"{str(file)!r} is not there.", "correct the name, or start where it is found."
        )
    sys.path.insert(0, str(file.resolve().parent))
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, as Python's import does it: dataclasses look their module up there.
    sys.modules[file.stem] = module

    # JAX is imported already, and reads `JAX_*` only then, so a file that sets them would be
    # measured without.
    before = _settings()
    spec.loader.exec_module(module)
    changed = sorted(name for name, value in _settings().items() if before.get(name) != value)
    if changed:
        what = (
            f"{typed}: the file sets {', '.join(changed)} in os.environ, which JAX has read before."
        )
        fix = f"export {changed[0]} in the shell, or use jax.config.update in the file."
        raise OptionError(
            WHERE,
            what,
            "JAX reads its environment when it is imported, which this command does first.",
            fix,
            code="J205",
        )
    return module


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("JAX_")}


def _module(typed: str, name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        fix = "start where it can be imported, or set PYTHONPATH; a file is `script.py:function`."
        raise _wrong(typed, f"there is no module {name!r}.", fix) from None


def _leaves(value: object) -> list[Any]:
    return tree_flatten(value)[0]


def _is_number(leaf: object) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, (float, complex))


def _wrong(typed: str, what: str, fix: str) -> OptionError:
    return OptionError(WHERE, f"{typed}: {what}", _RULE, fix, code="J205")
