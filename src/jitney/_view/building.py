"""Make the modules of a result as Equinox makes them, in one function for each structure, and remember them for the next call.

Equinox unflattens a module in Python, as it flattens it, and in a training loop the modules that come in are those that went out. The
function is written from a result that JAX's own unflatten made of stand-ins: a module is an object of its class with such fields and no
others, a container of Python's is a display, and other nodes JAX makes. What the function makes is compared once with what JAX makes,
part by part; were it another, JAX would make all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx

from .._jax.trees import Tracer, is_a, tree_flatten, tree_unflatten, type_of
from .flatten import END, Structure, children, fields_of, is_leaf, remember, structure

_FIELDS: Any = vars(eqx.Module)["__dict__"]  # what a module's `__dict__` is set by: `object.__setattr__` looks for it each time
_IN_VAIN = 32  # results that no call took, until none is remembered any more
Build = Callable[[Sequence[Any]], Any]


class _StandIn:
    """For a leaf, while the function is written."""


def holds_modules(treedef: Any) -> bool:
    """Whether a module is among the nodes."""
    node = treedef.node_data()
    return node is not None and (issubclass(node[0], eqx.Module) or any(map(holds_modules, treedef.children())))


def builder(treedef: Any, rest: Sequence[tuple[int, Any]], fresh: Callable[[Any], Any]) -> Build:
    """What makes results of one structure from their arrays.

    Args:
        treedef: The structure.
        rest: What a result holds besides arrays, by its number among the leaves.
        fresh: A copy of such a value for one result, or the value itself.
    """
    held = dict(rest)
    leaves: list[Any] = [held[i] if i in held else _StandIn() for i in range(treedef.num_leaves)]
    build = _Writer(treedef, held, fresh).written()
    made = build([leaf for i, leaf in enumerate(leaves) if i not in held])
    copied = {id(value) for value in held.values() if fresh(value) is not value}
    if _are_alike(made, tree_unflatten(treedef, leaves), copied):
        return build

    def by_jax(arrays: Sequence[Any]) -> Any:
        found = iter(arrays)
        return tree_unflatten(treedef, [fresh(held[i]) if i in held else next(found) for i in range(treedef.num_leaves)])

    return by_jax


def _are_alike(a: Any, b: Any, copied: set[int]) -> bool:
    """Whether two trees are of the same nodes and leaves; of values that are copied, copies."""
    if a is b:
        return True
    if type_of(a) is not type_of(b):
        return False
    if id(b) in copied:
        return True
    if is_a(b, eqx.Module) or type_of(b) is dict:
        of_a, of_b = _items(a), _items(b)
        return [*of_a] == [*of_b] and all(_are_alike(of_a[key], part, copied) for key, part in of_b.items())
    parts, others = children(a), children(b)
    return not is_leaf(b) and len(parts) == len(others) and all(_are_alike(x, y, copied) for x, y in zip(parts, others, strict=True))


def _items(node: Any) -> dict[Any, Any]:
    return fields_of(node) if is_a(node, eqx.Module) else node


class _Memory:
    """Remembers one module of the results."""

    def __init__(self, treedef: Any):
        self.wanted = True
        self._treedef = treedef
        self._in_vain = 0
        self._structure: Structure | None = None
        self._kinds: list[type] = []

    def keep(self, module: Any, leaves: list[Any], holders: list[Any], held: list[Any]) -> None:
        kinds = [*map(type_of, leaves)]
        if kinds != self._kinds or self._structure is None:
            if any(issubclass(kind, (Tracer, _StandIn)) for kind in kinds):
                return
            self._kinds, self._structure = kinds, structure(self._treedef, leaves)
        self._in_vain += 1
        self.wanted = self._in_vain < _IN_VAIN
        remember(module, leaves, self._structure, holders, held, self._found)

    def _found(self) -> None:
        self._in_vain, self.wanted = 0, True


@dataclasses.dataclass
class _Outermost:
    """A module of the result with no other around it, in the words of the function."""

    holders: list[str] = dataclasses.field(default_factory=list[str])
    held: list[str] = dataclasses.field(default_factory=list[str])  # what they hold, one by one
    is_known: bool = True  # whether all of its nodes are


class _Writer:
    """Writes the function of one structure."""

    def __init__(self, treedef: Any, held: dict[int, Any], fresh: Callable[[Any], Any]):
        self._names: dict[str, Any] = {"new": object.__new__, "put": _FIELDS.__set__, "fresh": fresh, "END": END, "end": END[0]}
        self._names["unflatten"] = tree_unflatten
        self._lines: list[str] = []
        self._keeps: list[str] = []
        stand_ins = [_StandIn() for _ in range(treedef.num_leaves)]
        self._number = {id(each): i for i, each in enumerate(stand_ins)}
        self._leaves = [f"a{i}" for i in range(treedef.num_leaves)]
        arrays = "".join(f"a{i}, " for i in range(treedef.num_leaves) if i not in held)
        self._lines += [f"{arrays}= arrays"] if arrays else []
        for i, value in held.items():
            name = self._constant(value)
            if fresh(value) is value:
                self._leaves[i] = name
            else:
                self._lines.append(f"a{i} = fresh({name})")
        self._alive = whole = tree_unflatten(treedef, stand_ins)  # its identities count
        self._whole = self._part(whole, None)

    def written(self) -> Build:
        """The function, compiled."""
        lines = [*self._lines, f"whole = {self._whole}", *self._keeps, "return whole"]
        source = "\n    ".join(["def build(arrays):", *lines])
        exec(compile(source, "<a result, built by jitney>", "exec"), self._names)  # noqa: S102 - of names and numbers made here
        return self._names["build"]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _part(self, node: Any, around: _Outermost | None) -> str:
        """The expression of a part of the result; what has to be done before is a line."""
        kind, number = type_of(node), self._number.get(id(node))
        if number is not None:
            return self._leaves[number]
        if node is None:
            return "None"
        if is_a(node, eqx.Module) and _lies_in_vars(node):
            return self._module(node, around)
        if kind in (list, dict):
            return self._container(node, around)
        if kind is tuple or (is_a(node, tuple) and hasattr(kind, "_fields")):
            parts = "".join(f"{self._part(part, around)}, " for part in node)
            return self._named(f"({parts})" if kind is tuple else f"{self._constant(kind)}({parts})", around)
        if around is not None:
            around.is_known = False
        leaves, treedef = tree_flatten(node)
        return f"unflatten({self._constant(treedef)}, [{self._flat(leaves)}])"

    def _flat(self, stand_ins: Sequence[Any]) -> str:
        return ", ".join(self._leaves[self._number[id(leaf)]] for leaf in stand_ins)

    def _container(self, node: Any, around: _Outermost | None) -> str:
        """A list or a dict, which has a name where it may be looked at again."""
        parts = [self._part(part, around) for part in (node if is_a(node, list) else node.values())]
        keys = [] if is_a(node, list) else [*map(self._constant, node)]
        text = f"{{{', '.join(map(': '.join, zip(keys, parts, strict=True)))}}}" if not is_a(node, list) else f"[{', '.join(parts)}]"
        name = self._named(text, around)
        if around is not None:
            around.holders += [name, "END"] if is_a(node, list) else [f"{name}.keys()", f"{name}.values()", "END"]
            around.held += [*keys, *parts, "end"]
        return name

    def _named(self, text: str, around: _Outermost | None) -> str:
        """An expression; in a module a name of what it makes, which is looked at again."""
        if around is None:
            return text
        name = f"h{len(self._lines)}"
        self._lines.append(f"{name} = {text}")
        return name

    def _module(self, node: Any, around: _Outermost | None) -> str:
        outer = around or _Outermost()
        traced = {field.name for field in dataclasses.fields(node) if not field.metadata.get("static")}
        parts = {name: self._part(part, outer) if name in traced else self._constant(part) for name, part in _items(node).items()}
        fields = ", ".join(f"{name!r}: {part}" for name, part in parts.items())
        name, number = self._constant(type_of(node)), len(self._lines)
        self._lines += [f"d{number} = {{{fields}}}", f"m{number} = new({name})", f"put(m{number}, d{number})"]
        outer.holders.append(f"d{number}.values()")
        outer.held += parts.values()
        if around is None and outer.is_known:
            self._keep(node, f"m{number}", outer)
        return f"m{number}"

    def _keep(self, node: Any, name: str, outer: _Outermost) -> None:
        leaves, treedef = tree_flatten(node)
        memory, holders, held = self._constant(_Memory(treedef)), ", ".join([*outer.holders, "END"]), ", ".join([*outer.held, "end"])
        self._keeps += [f"if {memory}.wanted:", f"    {memory}.keep({name}, [{self._flat(leaves)}], [{holders}], [{held}])"]


def _lies_in_vars(module: Any) -> bool:
    """Whether all of its fields do, and none in a slot."""
    return all(field.name in vars(module) or not hasattr(module, field.name) for field in dataclasses.fields(module))
