"""The globals that a function of the user's names, each followed through modules as far as its
attributes are written behind it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._jax.trees import is_a, space_of
from .._owners import owner
from .allowed import BARRED_ATTRIBUTES
from .instructions import Reads
from .unsure import Unsure
from .whose import is_installed

MISSING = ("no such name",)


@dataclass(frozen=True)
class Global:
    """One name that is read.

    Args:
        name: As it is written, `np.linalg.norm`.
        value: What it leads to.
        through: The modules on the way.
        module: The last of them, or `builtins`; None of a global of the function's own module.
    """

    name: str
    value: Any
    through: tuple[str, ...]
    module: str | None


def is_users(fn: types.FunctionType) -> bool:
    """Whether a function is the user's: its file, or the module that text without a file runs
    in.
    """
    whose = owner(fn.__code__.co_filename)
    return whose == "user" or (
        whose == "generated" and not is_installed(str(fn.__globals__.get("__name__", "")))
    )


def globals_of(fn: types.FunctionType, reads: Reads) -> Iterator[Global]:
    """All that the code of a function names.

    Raises:
        Unsure: It names things in a way that cannot be followed.
    """
    if reads.changes:
        raise Unsure(f"`{fn.__name__}` sets the global `{reads.changes[0]}`")
    if reads.has_sets:
        raise Unsure(f"`{fn.__name__}` makes a set, whose order may be another in each process")
    barred = BARRED_ATTRIBUTES & reads.attributes
    if barred:
        raise Unsure(
            f"`{fn.__name__}` asks for `{min(barred)}`, and what that reads is not followed"
        )
    for name, level in reads.imports:
        yield from _imported(fn, name, level)
    for chain in reads.chains:
        yield from _followed(fn, chain)


def _imported(fn: types.FunctionType, name: str, level: int) -> Iterator[Global]:
    package = str(fn.__globals__.get("__package__") or "")
    if level < 0 or (level > 0 and not package):
        raise Unsure(f"`{fn.__name__}` imports while it is traced")
    whole = name
    if level > 0:
        at = package.split(".")
        whole = ".".join([*at[: len(at) - level + 1], *filter(None, [name])])
    parts = whole.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        module = sys.modules.get(path)
        if module is None:
            raise Unsure(f"`{fn.__name__}` imports `{path}` while it is traced")
        yield Global(path, module, (path,), None)


def _followed(fn: types.FunctionType, chain: tuple[str, ...]) -> Iterator[Global]:
    first, *rest = chain
    space: Any = fn.__globals__
    if first in space:
        value, module = space[first], None
    else:
        value, module = fn.__builtins__.get(first, MISSING), "builtins"
    name, through = first, list[str]()
    for part in rest:
        if not is_a(value, types.ModuleType):
            break
        module = value.__name__
        through.append(module)
        value = attribute_of(value, part)
        name = f"{name}.{part}"
    yield Global(name, value, tuple(through), module)
    behind = rest[len(through) :][:1]
    if (
        behind
        and is_a(value, type)
        and issubclass(value, Mapping)
        and behind[0] in ("keys", "items")
    ):
        raise Unsure(
            f"`{fn.__name__}` uses `{name}.{behind[0]}`, of which sets are made, whose order may be"
            " another in each process"
        )
    if behind and is_a(value, type):  # what somebody may have set in a class that is known by name
        spaces = [space_of(kind) for kind in value.__mro__]
        yield from (
            Global(f"{name}.{behind[0]}", space[behind[0]], (), None)
            for space in spaces
            if behind[0] in space
        )


def attribute_of(module: types.ModuleType, name: str) -> Any:
    """A name of a module; `MISSING` where it has none.

    Raises:
        Unsure: The module is the user's, and makes it by code.
    """
    if name in vars(module):
        return vars(module)[name]
    if "__getattr__" in vars(module):
        if not is_installed(module.__name__):
            raise Unsure(f"`{module.__name__}.{name}` is made by `__getattr__` of the module")
        return getattr(module, name, MISSING)
    return MISSING
