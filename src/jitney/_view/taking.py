"""Take calls of one pattern apart in one function, written for it: modules that are remembered, arrays, and tuples of them.

`Flattener` asks of each argument what it is, and finds a layout by the answers. A call whose arguments are of the same types as those of
an earlier one will get the same answers nearly always. So the answers are asserted, in the order of the leaves, by a function without
branches but the way out: where one differs it gives None, and the call is taken apart as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import is_
from typing import Any

from .._jax.trees import is_a, tree_flatten, type_of
from .._signature.told_apart import exactly
from .flatten import Flattener, remembered

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
        None if no module among them is remembered yet, or JAX would take them apart in part.
    """
    writer = _Writer(flattener)
    for value, place in zip(values, order, strict=True):
        writer.add(value, f"a{place}", of_known_type=True)
    if not writer.modules or not writer.is_known:
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
        self.modules = 0
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
        source = "\n    ".join(["def take(given):", *lines])
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
        if part is not None and part.module() is node:
            self._module(part.structure, name)
        elif is_a(node, tuple) and self._flattener.holds_more(node):
            if not of_known_type:
                self._leave_unless(f"type({name}) is {self._constant(kind)}")
            self._leave_unless(f"len({name}) == {len(node)}")
            names = [f"{name}_{i}" for i in range(len(node))]
            self._lines.append(f"{''.join(f'{each}, ' for each in names)}= {name}")
            for child, each in zip(node, names, strict=True):
                self.add(child, each)
        elif tree_flatten(node)[0]:
            self.is_known = False
        else:
            self._without_leaves(node, name)

    def _without_leaves(self, node: Any, name: str) -> None:
        structure = tree_flatten(node)[1]
        told = exactly([structure])
        self._names |= {"flatten": tree_flatten, "exactly": exactly}
        self._leave_unless(f"flatten({name}) == {self._constant(([], structure))}")
        if told:
            self._leave_unless(f"exactly(flatten({name})[1:]) == {self._constant(told)}")

    def _module(self, structure: Any, name: str) -> None:
        self.modules += 1
        of = f"of_{name}"
        self._lines.append(f"{of} = remembered(id({name}))")
        self._leave_unless(
            f"{of} is not None and {of}.structure is {self._constant(structure)} and {of}.module() is {name} "
            f"and all(map(is_, chain({of}.holders), {of}.held))"
        )
        self._lines += [f"if {of}.found is not None:", f"    {of}.found()"]
        if structure.constants:
            self._lines.append(f"l_{name} = {of}.leaves")
            self._arrays += [f"l_{name}[{i}]" for i in structure.arrays]
        else:
            self._arrays.append(f"*{of}.leaves")

    def _leave_unless(self, what: str) -> None:
        self._lines += [f"if not ({what}):", "    return None"]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name
