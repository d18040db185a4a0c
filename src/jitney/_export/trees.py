"""Arguments and results as data: which containers and modules hold the arrays of a program, and
what is static in them.

Where a class cannot be imported, a dict of its fields stands for it, in arguments and in results;
an argument may always be one.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax

from .._errors import ContractError, ExportError, Where, repr_of
from .._jax.trees import is_a, is_number, type_of
from .._signature.copies import snapshot
from .values import Data, Find, LeftOut, NoData, data_of, imported, is_same, text_of, value_of


@dataclass(frozen=True, eq=False)
class Slot:
    """Stands for an array in a tree that is described."""

    number: int
    scalar: str | None = None  # "float" or "complex", of an argument that takes numbers of Python's


@dataclass(frozen=True, eq=False)
class Held:
    """Stands for a static leaf in a tree that is described."""

    value: Any


class Unportable(Exception):
    """A part of a tree that a file cannot hold: its path, and what it is. It never leaves
    jitney.
    """

    def __init__(self, path: str, what: str):
        super().__init__(path, what)
        self.path, self.what = path, what


_NONE: Mapping[str, Any] = MappingProxyType({})
Tree = Mapping[str, Any]
"""A tree as data of JSON: what `described` returns."""


def described(tree: Any, path: str) -> Tree:
    """A tree whose leaves are slots and held values, as data.

    Raises:
        Unportable: A part of it cannot be.
    """
    kind = type_of(tree)
    if is_a(tree, Slot):
        return {"is": "array", "number": tree.number, "scalar": tree.scalar}
    if is_a(tree, Held):
        return {"is": "static", "value": _data(tree.value, path)}
    if tree is None:
        return {"is": "none"}
    if kind in (tuple, list):
        return {
            "is": kind.__name__,
            "items": [described(part, f"{path}[{i}]") for i, part in enumerate(tree)],
        }
    if kind in (dict, OrderedDict):
        items = [
            [_data(name, path), described(part, f"{path}[{name!r}]")] for name, part in tree.items()
        ]
        return {"is": "dict" if kind is dict else "ordered", "items": items}
    if is_a(tree, tuple) and hasattr(kind, "_fields"):
        items = [
            [name, described(part, f"{path}.{name}")]
            for name, part in zip(kind._fields, tree, strict=True)
        ]
        return {
            "is": "named",
            "class": [kind.__module__, kind.__qualname__],
            "items": items,
            "static": [],
        }
    if is_a(tree, eqx.Module):
        return _module(tree, kind, path)
    raise Unportable(path, f"a {kind.__module__}.{kind.__qualname__}")


def _module(tree: Any, kind: type, path: str) -> Tree:
    there = [field for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
    static = [
        [field.name, _data(getattr(tree, field.name), f"{path}.{field.name}")]
        for field in there
        if field.metadata.get("static")
    ]
    items = [
        [f.name, described(getattr(tree, f.name), f"{path}.{f.name}")]
        for f in there
        if not f.metadata.get("static")
    ]
    unset = [field.name for field in dataclasses.fields(tree) if field not in there]
    return {
        "is": "module",
        "class": [kind.__module__, kind.__qualname__],
        "items": items,
        "static": static,
        "unset": unset,
    }


def _data(value: Any, path: str) -> Data:
    try:
        return data_of(value)
    except NoData as problem:
        raise Unportable(path, str(problem)) from problem


def slots(tree: Tree) -> Iterable[Tree]:
    """The arrays of a described tree."""
    if tree["is"] == "array":
        yield tree
    for part in tree.get("items", ()):
        yield from slots(part[1] if is_a(part, list) else part)


def resolved(tree: Tree, where: object, find: Find = imported) -> Tree:
    """A described tree with its classes, as far as they can be imported here, and its static
    values.

    Raises:
        ExportError: A class has other fields than it had.
    """
    known = dict(tree)
    if "value" in tree:
        known["held"] = value_of(tree["value"], find)
    if "items" in tree:
        is_named = tree["is"] not in ("tuple", "list")
        known["items"] = [
            [part[0], resolved(part[1], where, find)] if is_named else resolved(part, where, find)
            for part in tree["items"]
        ]
    if tree["is"] in ("dict", "ordered"):
        known["names"] = [value_of(name, find) for name, _ in tree["items"]]
    if "class" in tree:
        known["cls"] = find(*tree["class"])
        known["held"] = {name: value_of(data, find) for name, data in tree["static"]}
        if known["cls"] is not None and not _has_fields(known["cls"], tree):
            raise ExportError(
                f"{where}",
                f"{'.'.join(tree['class'])} has other fields than when it was exported.",
                "A module or a named tuple is put together by its fields.",
                "export it anew, or load it where the class is as it was, or is not there: it is a"
                " dict then.",
                code="J291",
            )
    return known


def missing_classes(tree: Tree) -> list[str]:
    """The classes of a resolved tree that cannot be imported here."""
    own = [".".join(tree["class"])] if "class" in tree and tree["cls"] is None else []
    inner = [
        name
        for part in tree.get("items", ())
        for name in missing_classes(part[1] if is_a(part, list) else part)
    ]
    return list(dict.fromkeys([*own, *inner]))


def _has_fields(cls: Any, tree: Tree) -> bool:
    names = [name for name, _ in tree["items"]]
    if tree["is"] == "named":
        return list(getattr(cls, "_fields", ())) == names
    if not is_a(cls, type) or not issubclass(cls, eqx.Module):
        return False
    fields = {field.name: bool(field.metadata.get("static")) for field in dataclasses.fields(cls)}
    told = dict.fromkeys(names, False) | dict.fromkeys([name for name, _ in tree["static"]], True)
    unset = tree.get("unset", ())  # which the first files do not tell
    return (
        fields.keys() >= {*unset}
        and {name: is_static for name, is_static in fields.items() if name not in unset} == told
    )


def built(tree: Tree, arrays: Sequence[Any], functions: Mapping[str, Any] = _NONE) -> Any:
    """A resolved tree with these arrays in it, and functions that have no name, by the digest of
    their code.
    """
    kind = tree["is"]
    if kind == "array":
        return arrays[tree["number"]]
    if kind == "static":
        if tree["value"][0] == "code" and tree["value"][-1] in functions:
            return functions[tree["value"][-1]]
        return snapshot(tree["held"])  # a caller who changes it in place changes no later result
    if kind == "none":
        return None
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(
            built(part, arrays, functions) for part in tree["items"]
        )
    if kind in ("dict", "ordered"):
        return (dict if kind == "dict" else OrderedDict)(
            (name, built(part, arrays, functions))
            for name, (_, part) in zip(tree["names"], tree["items"], strict=True)
        )
    fields: dict[str, Any] = {
        name: built(part, arrays, functions) for name, part in tree["items"]
    } | snapshot(tree["held"])
    cls = tree["cls"]
    if cls is None:
        return fields
    if kind == "named":
        return cls(*fields.values())
    module = object.__new__(cls)  # as Equinox does: `__init__` has run when it was first made
    for name, part in fields.items():
        object.__setattr__(module, name, part)
    return module


@dataclass(frozen=True)
class Taking:
    """Takes the arrays out of the arguments of a call, and compares all else with what was
    exported.
    """

    where: Where
    arrays: list[Any]
    # those without a name, by the digest of their code
    functions: dict[str, Any] = field(default_factory=dict[str, Any])

    def take(self, tree: Tree, value: Any, path: str) -> None:
        """Put the arrays of one argument where the program wants them.

        Raises:
            ContractError: It is another tree, or holds another static value.
        """
        kind = tree["is"]
        if kind == "array":
            self.arrays[tree["number"]] = self._array(tree, value, path)
        elif kind == "static":
            if not is_same(tree["value"], tree["held"], value):
                raise self._static(tree["value"], value, path)
            if tree["value"][0] == "code":
                self.functions[tree["value"][-1]] = value
        elif kind == "none":
            self._demand(value is None, value, path, "None")
        elif kind in ("tuple", "list"):
            items = tree["items"]
            self._demand(
                type_of(value).__name__ == kind and len(value) == len(items),
                value,
                path,
                f"a {kind} of {len(items)}",
            )
            for i, (part, inner) in enumerate(zip(items, value, strict=True)):
                self.take(part, inner, f"{path}[{i}]")
        elif kind in ("dict", "ordered"):
            names = tree["names"]
            what = (
                f"a dict of {', '.join(map(repr, names)) or 'nothing'}"
                if kind == "dict"
                else f"an OrderedDict of {names!r}, in that order,"
            )
            self._demand(_has_names(value, tree), value, path, what)
            for name, (_, part) in zip(names, tree["items"], strict=True):
                self.take(part, value[name], f"{path}[{name!r}]")
        else:
            self._fields(tree, value, path)

    def _fields(self, tree: Tree, value: Any, path: str) -> None:
        items, static = dict(tree["items"]), dict(tree["static"])
        cls = type_of(value)
        get: Callable[[str], Any]
        if cls is dict:
            fits, get = items.keys() <= value.keys() <= {*items, *static}, value.__getitem__
            static = {name: data for name, data in static.items() if name in value}
        else:
            fits = [cls.__module__, cls.__qualname__] == tree["class"] and _set(value) == {
                *items,
                *static,
            }
            get = lambda name: getattr(value, name)  # noqa: E731
        self._demand(
            fits,
            value,
            path,
            f"a {'.'.join(tree['class'])}, or a dict of {', '.join(items) or 'nothing'}",
        )
        for name, data in static.items():
            if not is_same(data, tree["held"][name], get(name)):
                raise self._static(data, get(name), f"{path}.{name}")
        for name, part in items.items():
            self.take(part, get(name), f"{path}.{name}")

    def _array(self, tree: Tree, value: Any, path: str) -> Any:
        if (
            tree["scalar"] is not None
            and is_a(value, (int, float, complex))
            and not is_a(value, bool)
        ):
            whole = type_of(value) is int  # the program is that of a float, or it would be one more
            return {"float": float, "complex": complex}[tree["scalar"]](value) if whole else value
        is_array = (
            hasattr(value, "shape")
            and hasattr(value, "dtype")
            and not is_a(value, jax.ShapeDtypeStruct)
        )
        self._demand(is_array, value, path, "an array")
        return value

    def _demand(self, fits: bool, value: Any, path: str, what: str) -> None:  # noqa: FBT001
        if fits:
            return
        known = value is None or is_number(value) or is_a(value, (str, bool, LeftOut))
        given = repr_of(value) if known else f"a {type_of(value).__qualname__}"
        raise ContractError(
            self.where,
            f"{path!r} is {given}, and the exported program takes {what} there.",
            "A loaded program takes arguments of the structure that it was exported with.",
            "pass that, or export the function with arguments like these.",
            code="J219",
        )

    def _static(self, data: Data, value: Any, path: str) -> ContractError:
        try:
            given = text_of(data_of(value))
        except NoData as problem:
            given = str(problem)
        return ContractError(
            self.where,
            f"static {path!r} is {given}, and the program was exported with {text_of(data)}.",
            "A static value is a part of the compiled program, which a loaded one cannot make"
            " anew.",
            "pass that value, or export the function with this one.",
            code="J219",
        )


def _set(value: Any) -> set[str]:
    """The fields of a module or a named tuple that are there. One more than were exported is one
    more than the program knows.
    """
    if is_a(value, tuple):
        return set(getattr(value, "_fields", ()))
    return (
        {field.name for field in dataclasses.fields(value) if hasattr(value, field.name)}
        if is_a(value, eqx.Module)
        else set()
    )


def _has_names(value: Any, tree: Tree) -> bool:
    """Whether it is a dict with these names, of the same types; in the same order, if it is an
    `OrderedDict`, whose order JAX keeps.
    """
    if type_of(value) is not (dict if tree["is"] == "dict" else OrderedDict):
        return False
    order: Any = sorted if tree["is"] == "dict" else list
    try:
        return order(map(repr, map(data_of, value))) == order(
            repr(name) for name, _ in tree["items"]
        )
    except NoData:
        return False
