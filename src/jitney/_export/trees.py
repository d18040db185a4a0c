"""Trees of arguments and results as JSON data: containers and modules, the numbers of the arrays in
them, and their static values.

If a class cannot be imported, a dict of its fields replaces it in arguments and results. An
argument may always be such a dict.

    tree_to_data({"w": Slot(0, None), "act": StaticLeaf("tanh")}, "params")
    # {"is": "dict", "items": [[["str", "w"], {"is": "array", "number": 0, "scalar": None}],
    #                          [["str", "act"], {"is": "static", "value": ["str", "tanh"]}]]}
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
from .._jax.trees import is_number
from .._values.copies import snapshot
from .._values.kinds import BY_NAME, DICT, LIST, ORDERED, TUPLE, Shape, exact_kind, paths
from .._values.static_once import Static
from .._view.taken_apart import may_be_taken_apart
from .values import Data, Find, LeftOut, NoData, data_of, import_object, is_same, text_of, value_of


@dataclass(frozen=True, eq=False)
class Slot:
    """Placeholder for an array in a tree."""

    number: int
    # "float" or "complex" for an argument that may be a Python number by its annotation, "number"
    # for one that is traced without
    scalar: str | None = None


@dataclass(frozen=True, eq=False)
class StaticLeaf:
    """Placeholder for a static leaf in a tree."""

    value: object


_NONE: Mapping[str, object] = MappingProxyType({})
Tree = Mapping[str, Any]
"""A tree as JSON data, as `tree_to_data` returns it."""


def tree_to_data(tree: Any, path: str) -> Tree:
    """Convert a tree of slots and held values to data.

    Raises:
        NoData: A part of it has no data.
    """
    kind = type(tree)
    if isinstance(tree, Slot):
        return {"is": "array", "number": tree.number, "scalar": tree.scalar}
    if isinstance(tree, StaticLeaf):
        return {"is": "static", "value": _data(tree.value, path)}
    if tree is None:
        return {"is": "none"}
    entry = exact_kind(tree)
    if entry in _CONTAINERS:
        items = [tree_to_data(part, f"{path}{at}") for at, part in paths(tree)]
        if entry.shape is Shape.MAPPING:
            items = [[_data(name, path), part] for name, part in zip(tree, items, strict=True)]
        return {"is": _CONTAINERS[entry], "items": items}
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        items = [
            [name, tree_to_data(part, f"{path}.{name}")]
            for name, part in zip(kind._fields, tree, strict=True)
        ]
        return {
            "is": "named",
            "class": _name(kind),
            "items": items,
            "static": [],
        }
    if isinstance(tree, eqx.Module):
        return _module(tree, kind, path)
    if dataclasses.is_dataclass(tree) and may_be_taken_apart(kind):
        items = []
        for field in dataclasses.fields(tree):
            part = getattr(tree, field.name)
            data = tree_to_data(part, f"{path}.{field.name}")
            items.append([field.name, data])
        return {
            "is": "record",
            "class": _name(kind),
            "items": items,
            "static": [],
        }
    raise NoData(f"a {kind.__module__}.{kind.__qualname__}", path)


_CONTAINERS = {TUPLE: "tuple", LIST: "list", DICT: "dict", ORDERED: "ordered"}


def _name(kind: type) -> list[str]:
    return [kind.__module__, kind.__qualname__]


def _module(tree: eqx.Module, kind: type, path: str) -> Tree:
    there = [field for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
    static = [
        [field.name, _data(getattr(tree, field.name), f"{path}.{field.name}")]
        for field in there
        if field.metadata.get("static")
    ]
    items = [
        [f.name, tree_to_data(getattr(tree, f.name), f"{path}.{f.name}")]
        for f in there
        if not f.metadata.get("static")
    ]

    # A field without a value is legal in Equinox, and must be without one in the rebuilt module.
    unset = [field.name for field in dataclasses.fields(tree) if field not in there]
    return {
        "is": "module",
        "class": _name(kind),
        "items": items,
        "static": static,
        "unset": unset,
    }


def _data(value: object, path: str) -> Data:
    try:
        return data_of(value)
    except NoData as problem:
        raise NoData(problem.what, path) from problem


def slots(tree: Tree) -> Iterable[Tree]:
    """Yield the arrays of a tree."""
    if tree["is"] == "array":
        yield tree
    for part in tree.get("items", ()):
        yield from slots(part[1] if isinstance(part, list) else part)


def resolve_tree(tree: Tree, where: object, find: Find = import_object) -> Tree:
    """Return the tree with its static values, and with the classes that can be imported here.

    Raises:
        ExportError: A class has other fields than at the export.
    """
    known = dict(tree)
    if "value" in tree:
        known["held"] = value_of(tree["value"], find)
    if "items" in tree:
        is_named = tree["is"] not in ("tuple", "list")
        known["items"] = [
            [part[0], resolve_tree(part[1], where, find)]
            if is_named
            else resolve_tree(part, where, find)
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
                "A module, a named tuple or a frozen dataclass is put together by its fields.",
                "export it again, or load it where the class is as it was, or is not there: it is a"
                " dict then.",
                code="J291",
            )
    return known


def missing_classes(tree: Tree) -> list[str]:
    """Return the classes of a resolved tree that cannot be imported here."""
    own = [".".join(tree["class"])] if "class" in tree and tree["cls"] is None else []
    inner = [
        name
        for part in tree.get("items", ())
        for name in missing_classes(part[1] if isinstance(part, list) else part)
    ]
    return list(dict.fromkeys([*own, *inner]))


def _has_fields(cls: object, tree: Tree) -> bool:
    names = [name for name, _ in tree["items"]]
    if tree["is"] == "named":
        return list(getattr(cls, "_fields", ())) == names
    if tree["is"] == "record":
        if not dataclasses.is_dataclass(cls) or not isinstance(cls, type):
            return False
        present = [field.name for field in dataclasses.fields(cls)]
        return may_be_taken_apart(cls) and present == names
    if not isinstance(cls, type) or not issubclass(cls, eqx.Module):
        return False
    fields = {field.name: bool(field.metadata.get("static")) for field in dataclasses.fields(cls)}
    exported = dict.fromkeys(names, False)
    exported |= dict.fromkeys([name for name, _ in tree["static"]], True)

    # The first files have no "unset".
    unset = tree.get("unset", ())
    there = {name: is_static for name, is_static in fields.items() if name not in unset}
    return fields.keys() >= {*unset} and there == exported


def build_tree(
    tree: Tree,
    arrays: Sequence[object],
    functions: Mapping[str, object] = _NONE,
) -> Any:
    """Build a resolved tree with the given arrays, and with functions without a name, by the digest
    of their bytecode.
    """
    kind = tree["is"]
    if kind == "array":
        return arrays[tree["number"]]
    if kind == "static":
        if tree["value"][0] == "code" and tree["value"][-1] in functions:
            return functions[tree["value"][-1]]
        # a copy, so that a caller who changes it in place does not change later results
        return snapshot(tree["held"])
    if kind == "none":
        return None
    if kind in ("tuple", "list"):
        parts = [build_tree(part, arrays, functions) for part in tree["items"]]
        return BY_NAME[kind].build(BY_NAME[kind].base, parts)
    if kind in ("dict", "ordered"):
        entry = DICT if kind == "dict" else ORDERED
        parts = [build_tree(part, arrays, functions) for _, part in tree["items"]]
        pairs = zip(tree["names"], parts, strict=True)
        return entry.build(entry.base, [part for pair in pairs for part in pair])
    fields = {name: build_tree(part, arrays, functions) for name, part in tree["items"]}
    fields |= snapshot(tree["held"])
    cls = tree["cls"]
    if cls is None:
        return fields
    if kind == "named":
        return cls(*fields.values())
    # As Equinox unflattens a module: `__init__` ran when the module was first built.
    module = object.__new__(cls)
    for name, part in fields.items():
        object.__setattr__(module, name, part)
    return module


@dataclass(frozen=True)
class Taking:
    """Extraction of the arrays from the arguments of a call, with a comparison of everything else
    against the exported trees.
    """

    where: Where
    arrays: list[object]
    # functions without a name, by the digest of their bytecode
    functions: dict[str, object] = field(default_factory=dict[str, object])

    def take(self, tree: Tree, value: Any, path: str) -> None:
        """Store the arrays of one argument at their numbers.

        Raises:
            ContractError: The argument has another structure or another static value.
        """
        kind = tree["is"]
        if kind == "array":
            self.arrays[tree["number"]] = self._array(tree, value, path)
        elif kind == "static":
            value = value.value if isinstance(value, Static) else value
            if not is_same(tree["value"], tree["held"], value):
                raise self._static(tree["value"], value, path)
            if tree["value"][0] == "code":
                # The result may contain the same function: `build_tree` inserts the caller's.
                self.functions[tree["value"][-1]] = value
        elif kind == "none":
            self._demand(value is None, value, path, "None")
        elif kind in ("tuple", "list"):
            items = tree["items"]
            self._demand(
                type(value).__name__ == kind and len(value) == len(items),
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
        cls = type(value)
        get: Callable[[str], object]
        # A dict may leave out static fields; a module must have exactly the exported ones.
        if cls is dict:
            fits, get = items.keys() <= value.keys() <= {*items, *static}, value.__getitem__
            static = {name: data for name, data in static.items() if name in value}
        else:
            # By identity first: a class may have another home than in the version that exported it.
            is_class = cls is tree["cls"] or [cls.__module__, cls.__qualname__] == tree["class"]
            fits = is_class and _present_fields(value) == {*items, *static}
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

    def _array(self, tree: Tree, value: object, path: str) -> object:
        if (
            tree["scalar"] is not None
            and isinstance(value, (int, float, complex))
            and not isinstance(value, bool)
        ):
            # The program takes a float, so an int is converted: it would need another program.
            if type(value) is not int or tree["scalar"] == "number":
                return value
            kinds = {"float": float, "complex": complex}
            return kinds[tree["scalar"]](value)
        is_array = (
            hasattr(value, "shape")
            and hasattr(value, "dtype")
            and not isinstance(value, jax.ShapeDtypeStruct)
        )
        self._demand(is_array, value, path, "an array")
        return value

    def _demand(self, fits: bool, value: object, path: str, what: str) -> None:  # noqa: FBT001
        if fits:
            return
        known = value is None or is_number(value) or isinstance(value, (str, bool, LeftOut))
        given = repr_of(value) if known else f"a {type(value).__qualname__}"
        raise ContractError(
            self.where,
            f"{path!r} is {given}, and the exported program takes {what} there.",
            "A loaded program takes arguments of the structure that it was exported with.",
            "pass that, or export the function with arguments like these.",
            code="J219",
        )

    def _static(self, data: Data, value: object, path: str) -> ContractError:
        try:
            given = text_of(data_of(value))
        except NoData as problem:
            given = problem.what
        return ContractError(
            self.where,
            f"static {path!r} is {given}, and the program was exported with {text_of(data)}.",
            "A static value is a part of the compiled program, which a loaded one cannot"
            " compile again.",
            "pass that value, or export the function with this one.",
            code="J219",
        )


def _present_fields(value: object) -> set[str]:
    """Return the fields of a module or named tuple that have values; an additional field is one
    that the program does not know.
    """
    if isinstance(value, tuple):
        return set(getattr(value, "_fields", ()))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return set()
    return {field.name for field in dataclasses.fields(value) if hasattr(value, field.name)}


def _has_names(value: object, tree: Tree) -> bool:
    """Return whether a value is a dict with these keys, of the same types; for an `OrderedDict`
    also in the same order, which JAX preserves.
    """
    if type(value) is not (dict if tree["is"] == "dict" else OrderedDict):
        return False
    order = sorted if tree["is"] == "dict" else list
    try:
        given = map(repr, map(data_of, value))
        exported = (repr(name) for name, _ in tree["items"])
        return order(given) == order(exported)
    except NoData:
        return False
