"""Globals that a function reads, each resolved through modules as far as its dotted name goes."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .._owners import owner
from .allowlist import BARRED_ATTRIBUTES
from .instructions import CodeReads
from .origin import is_installed
from .unsure import NotDeterministic

MISSING = ("no such name",)


@dataclass(frozen=True)
class Global:
    """A global name that code reads, and its value.

    Args:
        name: The name as written, `np.linalg.norm`.
        value: The value that the name leads to.
        through: The modules passed on the way.
        module: The last of these modules, or `builtins`; None for a global of the function's own
            module.
    """

    name: str
    value: object
    through: tuple[str, ...]
    module: str | None


def is_users(fn: types.FunctionType) -> bool:
    """Return whether a function is the user's, by its file, or for generated code by its module."""
    whose = owner(fn.__code__.co_filename)
    return whose == "user" or (
        whose == "generated" and not is_installed(str(fn.__globals__.get("__name__", "")))
    )


def globals_of(fn: types.FunctionType, reads: CodeReads) -> Iterator[Global]:
    """Yield the globals that the code of a function reads.

    Raises:
        NotDeterministic: The code has a read that cannot be followed, sets a global, or makes a
        set.
    """

    # Refuse code whose effect or iteration order is not a function of its reads.
    if reads.changes:
        raise NotDeterministic(f"`{fn.__name__}` sets the global `{reads.changes[0]}`")
    if reads.has_sets:
        raise NotDeterministic(
            f"`{fn.__name__}` makes a set, whose order may be another in each process"
        )
    barred = BARRED_ATTRIBUTES & reads.attributes
    if barred:
        raise NotDeterministic(
            f"`{fn.__name__}` asks for `{min(barred)}`, and what that reads is not followed"
        )

    # An import inside of a function counts as a read of the modules on its path.
    for name, level in reads.imports:
        yield from _imported_globals(fn, name, level)
    for chain in reads.chains:
        yield from _follow_chain(fn, chain)


def _imported_globals(
    fn: types.FunctionType,
    name: str,
    level: int,
) -> Iterator[Global]:
    package = str(fn.__globals__.get("__package__") or "")
    if level < 0 or (level > 0 and not package):
        raise NotDeterministic(f"`{fn.__name__}` imports while it is traced")

    # A relative import of `level` dots starts at the package, `level - 1` parents up.
    whole = name
    if level > 0:
        at = package.split(".")
        parents = at[: len(at) - level + 1]
        whole = ".".join([*parents, name] if name else parents)
    # Only modules that are imported already: importing one now would run code that nobody watches.
    parts = whole.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        module = sys.modules.get(path)
        if module is None:
            raise NotDeterministic(f"`{fn.__name__}` imports `{path}` while it is traced")
        yield Global(path, module, (path,), None)


def _follow_chain(fn: types.FunctionType, chain: tuple[str, ...]) -> Iterator[Global]:
    first, *rest = chain
    space = fn.__globals__
    if first in space:
        value, module = space[first], None
    else:
        value, module = fn.__builtins__.get(first, MISSING), "builtins"

    # Step through modules; the first value that is not a module ends the resolved part of the
    # chain.
    name, through = first, list[str]()
    for part in rest:
        if not isinstance(value, types.ModuleType):
            break
        module = value.__name__
        through.append(module)
        value = attribute_of(value, part)
        name = f"{name}.{part}"
    yield Global(name, value, tuple(through), module)

    # The attribute that follows the resolved part, read of a class: `keys` and `items` lead to
    # sets.
    behind = rest[len(through) :][:1]
    if (
        behind
        and isinstance(value, type)
        and issubclass(value, Mapping)
        and behind[0] in ("keys", "items")
    ):
        raise NotDeterministic(
            f"`{fn.__name__}` uses `{name}.{behind[0]}`, of which sets are made, whose order may be"
            " another in each process"
        )

    # An installed class is hashed by name, so an attribute that the user has set in it is added.
    if behind and isinstance(value, type):
        last = behind[0]
        for kind in value.__mro__:
            space = vars(kind)
            if last in space:
                yield Global(f"{name}.{last}", space[last], (), None)


def attribute_of(module: types.ModuleType, name: str) -> object:
    """Return the value of a module's name, or `MISSING`.

    Raises:
        NotDeterministic: A `__getattr__` of a user's module computes the value.
    """
    if name in vars(module):
        return vars(module)[name]
    if "__getattr__" in vars(module):
        if not is_installed(module.__name__):
            raise NotDeterministic(
                f"`{module.__name__}.{name}` is made by `__getattr__` of the module"
            )
        return getattr(module, name, MISSING)
    return MISSING
