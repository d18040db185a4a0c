"""Source of a function for a stand-alone script: an import where that finds it, else a copy, with
the values that it names.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax import Array

from .._jax.trees import attribute
from .._owners import is_users
from .._values.attributes import closure_variables

_STANDARD = {"jax", "jnp", "np", "jitney"}
_MODULES = (types.ModuleType,)


class SourceText:
    """Source text of a function, and the expression by which the script calls it (`name`).

    Args:
        fn: The function.
    """

    def __init__(self, fn: Callable[..., object]):
        self.lines: list[str] = []
        self.copies: list[str] = []
        self.paths: list[str] = []
        self._known: set[str] = set(_STANDARD)
        self.name = self._function(fn, "fn")

    @property
    def text(self) -> str:
        """Imports, followed by the copies."""
        return "\n".join(dict.fromkeys(self.lines)) + "".join(
            f"\n\n\n{copy}" for copy in self.copies
        )

    def _function(self, fn: object, name: str) -> str:
        # An import. `__wrapped__` undoes the decorator of the module.
        imported = self._find_import(fn)
        if imported is not None:
            module, qualified = imported
            first = qualified.split(".")[0]
            self.lines.append(f"from {module} import {first}")
            return f"getattr({qualified}, '__wrapped__', {qualified})"

        # A copy of the source, without its decorators.
        tree = _parse_function(fn)
        if tree is None:
            self.lines.append(f"{name} = ...  # {fn!r}: its source is not known, put it here")
            return name
        if isinstance(tree, ast.Lambda):
            self._add_names(fn, tree)
            self.copies.append(f"{name} = {ast.unparse(tree)}")
            return name
        tree.decorator_list = []
        self._add_names(fn, tree)
        self.copies.append(ast.unparse(tree))
        return tree.name

    def _find_import(self, value: object) -> tuple[str, str] | None:
        """Return module and qualified name, if an import finds this very object or its decorated
        form.
        """
        module = attribute(value, "__module__", None)
        name = attribute(value, "__qualname__", None)
        if not module or not name or "<" in name or module in ("__main__", "builtins"):
            return None
        reached = sys.modules.get(module)
        for part in name.split("."):
            reached = getattr(reached, part, None)
        if reached is not value and attribute(reached, "__wrapped__", None) is not value:
            return None

        # User modules need their root folder on `sys.path`.
        file = attribute(sys.modules.get(module), "__file__", None)
        if file is not None and is_users(file):
            place = Path(file).resolve()
            depth: int = module.count(".") + (place.name == "__init__.py")
            root = place.parents[depth]
            if str(root) not in self.paths:
                self.paths.append(str(root))

        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            spec = None
        return (module, name) if spec is not None else None

    def _add_names(self, fn: object, tree: ast.AST) -> None:
        """Add the globals and closure variables that the copy of a function names."""
        scope = {**attribute(fn, "__globals__", {}), **_closure(fn)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name):
                continue
            name = node.id
            if name not in self._known and name in scope:
                self._known.add(name)
                self._value(name, scope[name])

    def _value(self, name: str, value: Any) -> None:
        inner = attribute(value, "__wrapped__", value)
        if isinstance(value, _MODULES):
            self.lines.append(f"import {value.__name__} as {name}")
        elif value is None or isinstance(value, (bool, int, float, complex, str)):
            self.lines.append(f"{name} = {value!r}")
        elif hasattr(value, "__array__") and hasattr(value, "dtype") and value.size <= _FEW:
            self.lines.append(f"{name} = jnp.asarray({value.tolist()!r}, jnp.{value.dtype})")
        elif value is Array:
            self.lines.append(f"from jax import Array as {name}")
        elif (imported := self._find_import(value)) is not None:
            module, qualified = imported
            first, *rest = qualified.split(".")
            renamed = f" as {name}" if not rest and first != name else ""
            self.lines.append(f"from {module} import {first}{renamed}")
            if rest:
                self.lines.append(f"{name} = {qualified}")
        elif isinstance(inner, types.FunctionType):
            expression = self._function(inner, name)
            if expression != name:
                self.copies.append(f"{name} = {expression}")
        else:
            self.lines.append(f"{name} = ...  # {type(value).__name__}: make it here")


_FEW = 64


def _closure(fn: Any) -> dict[str, object]:
    """Return the closure variables of a function."""
    has_cells = attribute(fn, "__closure__", None)
    return closure_variables(fn) if has_cells else {}


def _parse_function(fn: Any) -> ast.FunctionDef | ast.Lambda | None:
    """Return the syntax tree of a function or a lambda; None if the source is missing or
    ambiguous.
    """
    try:
        text = textwrap.dedent(inspect.getsource(fn)).strip()
    except (OSError, TypeError):
        return None
    # `getsource` of a lambda gives the whole statement around it: as it is, without the comma of an
    # argument list, or the right side of an assignment.
    for candidate in (text, text.rstrip(","), text.partition("=")[2].strip()):
        try:
            tree = ast.parse(candidate)
        except SyntaxError:
            continue
        if tree.body and isinstance(tree.body[0], ast.FunctionDef) and fn.__name__ != "<lambda>":
            return tree.body[0]
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        names = list(inspect.signature(fn).parameters)
        same = [node for node in lambdas if [a.arg for a in node.args.args] == names]
        # Several lambdas on one line are ambiguous unless their parameters differ.
        return same[0] if len(same) == 1 else None
    return None
