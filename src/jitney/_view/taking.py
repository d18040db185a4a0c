"""Take calls of one pattern apart in one function, written for it: modules that are remembered, arrays, and containers of them.

`Flattener` asks of each argument what it is, and finds a layout by the answers. A call whose arguments are of the same types as those of
an earlier one will get the same answers nearly always. So the answers are asserted, in the order of the leaves, by a function without
branches but the way out: where one differs it gives None, and the call is taken apart as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import is_
from typing import Any

import equinox as eqx

from .._jax.trees import is_a, tree_flatten, type_of
from .._signature.static_values import is_constant
from .._signature.told_apart import exactly
from .flatten import Flattener, Remembered, remembered

_NUMBERS = (bool, int, float, complex)
Taker = Callable[[Sequence[Any]], "tuple[Any, ...] | None"]
"""From the arguments of a call to its arrays; None if they are not of the pattern."""


def taker(flattener: Flattener, arrays: Sequence[Any], values: Sequence[Any], order: Sequence[int]) -> Taker | None:
    """What takes calls apart whose arguments are of the types of these.

    Args:
        flattener: That of the function.
        arrays: What these arguments were taken apart to.
        values: The arguments, in the order of the parameters.
        order: Which argument, as the call has them, each parameter gets.

    Returns:
        None if a module among them is not remembered yet, or something in them is static.
    """
    writer = _Writer(flattener)
    for value, place in zip(values, order, strict=True):
        writer.add(value, f"a{place}", of_known_type=True)
    if not writer.is_known:
        return None
    take = writer.written(len(order))
    given: list[Any] = [None] * len(order)
    for value, place in zip(values, order, strict=True):
        given[place] = value
    taken = take(given)
    if taken is None or len(taken) != len(arrays) or not all(map(is_, taken, arrays)):
        return None  # an int passed for a float, say
    return take


class _Writer:
    """Writes the function of one pattern; its parts follow `Flattener.__call__`."""

    def __init__(self, flattener: Flattener):
        self.is_known = True
        self._flattener = flattener
        self._names: dict[str, Any] = {"remembered": remembered, "chain": chain.from_iterable, "is_": is_}
        self._lines: list[str] = []
        self._arrays: list[str] = []

    def written(self, count: int) -> Taker:
        lines = [
            f"{''.join(f'a{i}, ' for i in range(count))}= given",
            *self._lines,
            f"return ({''.join(f'{part}, ' for part in self._arrays)})",
        ]
        source = "\n    ".join(["def take(given):", "try:", *(f"    {line}" for line in lines), "except KeyError:", "    return None"])
        exec(compile(source, "<a call, taken apart by jitney>", "exec"), self._names)  # noqa: S102 - of names and numbers made here
        return self._names["take"]

    def add(self, node: Any, name: str, *, of_known_type: bool = False) -> None:
        """Write what takes apart one argument, or part of one, which has this name."""
        kind = type_of(node)
        if self._flattener.is_array(kind):
            if not of_known_type:
                self._leave_unless(f"type({name}) is {self._constant(kind)}")
            self._arrays.append(name)
            return
        part = remembered(id(node))
        if part is not None and part() is node:
            self._module(part, name)
        elif node is None:
            self._leave_unless(f"{name} is None")
        elif kind is dict and (keys := _sorted(node)) is not None:
            self._container(node, name, [node[key] for key in keys], of_known_type=of_known_type, keys=keys)
        elif kind is list or (is_a(node, tuple) and self._flattener.is_plain(node)):
            self._container(node, name, [*node], of_known_type=of_known_type)
        else:
            self._tree(node, name)

    def _container(self, node: Any, name: str, parts: Sequence[Any], *, of_known_type: bool, keys: Sequence[Any] | None = None) -> None:
        """A container of Python's: so many parts, of these keys."""
        of_type = "" if of_known_type else f"type({name}) is {self._constant(type_of(node))} and "
        self._leave_unless(f"{of_type}len({name}) == {len(parts)}")
        names = [f"{name}_{i}" for i in range(len(parts))]
        if keys is None:
            self._lines += [f"{''.join(f'{each}, ' for each in names)}= {name}"] if names else []
        else:
            self._lines += [f"{each} = {name}[{self._constant(key)}]" for each, key in zip(names, keys, strict=True)]
        for part, each in zip(parts, names, strict=True):
            self.add(part, each)

    def _tree(self, node: Any, name: str) -> None:
        """What JAX takes apart: another container of arrays, or nothing. A module is remembered first, which is faster."""
        leaves, treedef = tree_flatten(node)
        kinds = [*map(type_of, leaves)]
        if is_a(node, eqx.Module) or not all(map(self._flattener.is_array, kinds)):
            self.is_known = False
            return
        self._names |= {"flatten": tree_flatten, "kind_of": type_of, "exactly": exactly}
        self._lines.append(f"l_{name}, t_{name} = flatten({name})")
        self._leave_unless(f"t_{name} == {self._constant(treedef)} and [*map(kind_of, l_{name})] == {self._constant(kinds)}")
        told = exactly([treedef])
        if told:
            self._leave_unless(f"exactly([t_{name}]) == {self._constant(told)}")
        self._arrays += [f"*l_{name}"] if leaves else []

    def _module(self, part: Remembered, name: str) -> None:
        structure, of = part.structure, f"of_{name}"
        self._lines.append(f"{of} = remembered(id({name}))")
        self._leave_unless(
            f"{of} is not None and {of}.structure is {self._constant(structure)} and {of}() is {name} "
            f"and all(map(is_, chain({of}.holders), {of}.held))"
        )
        self._lines += [f"if {of}.found is not None:", f"    {of}.found()"]
        if len(structure.arrays) == len(part.leaves):
            self._arrays.append(f"*{of}.leaves")
            return
        self._lines.append(f"l_{name} = {of}.leaves")
        self._arrays += [f"l_{name}[{i}]" for i in structure.arrays]
        self._static({i: leaf for i, leaf in enumerate(part.leaves) if i not in structure.arrays}, f"l_{name}")

    def _static(self, leaves: dict[int, Any], name: str) -> None:
        """What is no array tells the program by its value: functions and texts are in the structure, and numbers are the same objects."""
        for i, leaf in leaves.items():
            kind = type_of(leaf)
            if kind in _NUMBERS:
                self._leave_unless(f"{name}[{i}] is {self._constant(leaf)}")
            elif not is_constant(kind):
                self.is_known = False

    def _leave_unless(self, what: str) -> None:
        self._lines += [f"if not ({what}):", "    return None"]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _sorted(node: dict[Any, Any]) -> list[Any] | None:
    """Its keys as JAX takes them, if they are text; None of others, which may be equal to keys of another type."""
    return sorted(node) if all(type_of(key) is str for key in node) else None
