"""Take the arguments of a call apart in one function, written for calls like one that was seen.

JAX asks of each node what it is, and a module answers in Python, about a microsecond each. A call
after another one will get the same answers nearly always. So the answers are asserted, in the order
of the leaves, by a function without branches but the way out: it asks for the number, the names and
the types of the arguments, reads each field of each module where it lies, and where one is not as
it was it gives None, and the arguments are taken apart by JAX. Nothing is remembered of any
argument, so it makes no difference whether a module is an old one, a new one, or an old one that
somebody has changed behind its back (`object.__setattr__`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from operator import is_
from typing import Any

import equinox as eqx
import numpy as np

from .._jax.trees import is_a, tree_flatten, tree_unflatten, type_of
from .._signature.plain_objects import can_change
from .._signature.static_values import Opaque, is_constant
from .._signature.told_apart import exactly
from .fitting import WHOLE
from .nodes import FIELDS, children, fields_of, is_leaf
from .view import is_array

_NUMBERS = (bool, int, float, complex)
_EXACT = (bool, int, str, bytes)
"""Of one of these types, equal values are the same to a body; of floats, those that are no
zeros.
"""


@dataclasses.dataclass(frozen=True)
class Argument:
    """One value of a call.

    Args:
        twin: One made of the leaves that the call was taken apart to, which nobody changes while a
            function is written from it.
        place: Which of the arguments of the call it is; None of a default.
        value: Itself.
    """

    twin: Any
    place: int | None
    value: Any


Taker = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any] | None]
"""From the arguments of a call, and those by keyword, to its leaves; None of one that is not like
what it was written for.
"""


def taker(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    values: Sequence[Argument],
    dynamic: Container[int],
    arrays: Sequence[Any],
) -> Taker | None:
    """What takes calls like this one apart.

    Args:
        args: Its arguments.
        kwargs: Those by keyword.
        values: The same in the order of JAX's leaves.
        dynamic: The numbers of the leaves that are traced; the others are what they are in these.
        arrays: What these arguments were taken apart to.

    Returns:
        None if there is something in them that tells more than such a function could ask.
    """
    writer = _Writer(dynamic)
    for value in values:
        writer.argument(value)
    if not writer.is_known:
        return None
    take = writer.written(len(args), tuple(kwargs))
    return take if _gives(take, args, kwargs, arrays) else None


@functools.lru_cache(maxsize=256)
def arrays_taker(kinds: tuple[type, ...], names: tuple[str, ...], order: tuple[int, ...]) -> Taker:
    """What takes calls apart that give an array for each parameter.

    Args:
        kinds: The types of the arguments, those by keyword last.
        names: Those of the latter.
        order: The places of the arguments in the order of the parameters.
    """
    writer = _Writer(None)
    for place in order:
        writer.array(kinds[place], f"a{place}")
    return writer.written(
        len(kinds) - len(names), names, whole=not names and order == tuple(range(len(kinds)))
    )


def leaves_taker(treedef: Hashable, leaves: Sequence[Any]) -> Taker | None:
    """What gives the leaves of modules of this structure, of types like these, and equal to these
    where `is_told`.
    """
    module = tree_unflatten(treedef, leaves)  # which nobody changes while it is looked at
    writer = _Writer(None)
    writer.add(module, "a0")
    if not writer.is_known:
        return None
    take = writer.written(1, ())
    return take if _gives(take, (module,), {}, leaves) else None


def is_told(leaf: Any) -> bool:
    """Whether the key of a module tells this leaf by its value: it is a function or another
    constant.
    """
    return is_constant(type_of(leaf)) and not can_change(leaf) and not is_array(leaf)


def no_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """What takes calls apart before there was one."""


def _gives(
    take: Taker, args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: Sequence[Any]
) -> bool:
    """Whether it does what JAX does."""
    taken = take(args, kwargs)
    return taken is not None and len(taken) == len(leaves) and all(map(is_, taken, leaves))


class _Writer:
    """Writes the function of one pattern, a line or two for each node.

    Args:
        dynamic: The numbers of the leaves that it gives; all of them without.
    """

    def __init__(self, dynamic: Container[int] | None):
        self.is_known = True
        self._dynamic = dynamic
        self._names: dict[str, Any] = {"fields": FIELDS.__get__}
        self._lines: list[str] = []
        self._given: list[str] = []
        self._count = 0  # of leaves so far
        self._parts = 0  # that have a name so far

    def written(self, count: int, names: tuple[str, ...], *, whole: bool = False) -> Taker:
        """The function of calls with so many arguments, and others by these names; `whole`, if the
        arguments are what it gives.
        """
        arguments = [f"a{i}" for i in range(count)]
        lines = [f"if len(kwargs) != {len(names)}:" if names else "if kwargs:", "    return None"]
        lines.append(f"{', '.join(arguments)}, = args" if arguments else "() = args")
        lines += [f"a{count + i} = kwargs[{name!r}]" for i, name in enumerate(names)]
        lines += [
            *self._lines,
            "return args" if whole else f"return ({''.join(f'{part}, ' for part in self._given)})",
        ]
        way_out = ["except (KeyError, ValueError):", "    return None"]
        source = "\n    ".join(
            ["def take(args, kwargs):", "try:", *(f"    {line}" for line in lines), *way_out]
        )
        exec(compile(source, "<a call, taken apart by jitney>", "exec"), self._names)  # noqa: S102 - of names and numbers made here
        return self._names["take"]

    def argument(self, argument: Argument) -> None:
        """Write what takes apart one argument; or a default, in which something may be changed in
        place.
        """
        before, twin, value = len(self._lines), argument.twin, argument.value
        is_whole = is_a(twin, Opaque)
        name = (
            f"a{argument.place}"
            if argument.place is not None
            else self._constant(value.value if is_whole else value)
        )
        if is_whole:
            self._count += 1
            self._static(twin.value, name)
        else:
            self.add(twin, name)
        if is_leaf(twin):  # a static one is asked for first, since it differs first
            self._lines = self._lines[before:] + self._lines[:before]

    def array(self, kind: type, name: str) -> None:
        """Write what takes an array of this type."""
        self._leave_if(
            [f"type({name}) is not {self._constant(kind)}", *self._may_not_fit(kind, name)]
        )
        self._given.append(name)

    def add(self, node: Any, name: str) -> None:
        """Write what takes apart one part of an argument, which has this name."""
        kind = type_of(node)
        unlike = [f"type({name}) is not {self._constant(kind)}"]
        if node is None:
            self._leave_if([f"{name} is not None"])
        elif is_leaf(node):
            self._leaf(node, name, unlike)
        elif is_a(node, eqx.Module) and _has_all_fields(node):
            self._module(node, name, unlike)
        # other keys may be equal to keys of another type
        elif kind is dict and all(type_of(key) is str for key in node):
            keys = sorted(node)
            self._container([node[key] for key in keys], name, unlike, keys)
        elif kind is list or (is_a(node, tuple) and _is_in_order(node)):
            self._container([*node], name, unlike)
        else:
            self._tree(node, name)

    def _leaf(self, node: Any, name: str, unlike: list[str]) -> None:
        number, self._count = self._count, self._count + 1
        kind = type_of(node)
        if self._dynamic is None or number in self._dynamic:
            # one passed for a float becomes that float
            self.is_known &= self._dynamic is None or kind is not int
            is_array = not (self._dynamic is None and is_told(node))
            self._leave_if(
                [*unlike, *self._may_not_fit(kind, name)]
                if is_array
                else [self._differs(node, name)]
            )
            self._given.append(name)
        else:
            self._static(node, name)

    def _may_not_fit(self, kind: Any, name: str) -> list[str]:
        """That it is an array of NumPy's whose integers have 64 bits: whoever takes the call apart
        looks at them (`fitting.py`).
        """
        if issubclass(kind, np.ndarray):
            return [f"{name}.dtype in {self._constant(WHOLE)}"]
        return ["True"] if kind in (np.int64, np.uint64) else []

    def _static(self, value: Any, name: str) -> None:
        """What is static tells the program by its value, which has to say all that it holds."""
        kind = type_of(value)
        self.is_known &= (
            value is None or kind in _NUMBERS or is_constant(kind) or issubclass(kind, enum.Enum)
        )
        self._leave_if([self._differs(value, name)])

    def _module(self, node: Any, name: str, unlike: list[str]) -> None:
        held, lies_in = fields_of(node), self._name()
        self._leave_if(unlike)
        self._lines.append(f"{lies_in} = fields({name})")
        static = [
            field.name for field in dataclasses.fields(node) if field.metadata.get("static", False)
        ]
        self._leave_if(
            [
                f"len({lies_in}) != {len(held)}",
                *(self._differs(held[field], f"{lies_in}[{field!r}]") for field in static),
            ]
        )
        for field in dataclasses.fields(node):
            if field.name not in static:
                part = self._name()
                self._lines.append(f"{part} = {lies_in}[{field.name!r}]")
                self.add(held[field.name], part)

    def _container(
        self, parts: Sequence[Any], name: str, unlike: list[str], keys: Sequence[str] | None = None
    ) -> None:
        """A container of Python's: so many parts, of these keys."""
        self._leave_if([*unlike, f"len({name}) != {len(parts)}"])
        names = [self._name() for _ in parts]
        if keys is not None:
            self._lines += [
                f"{part} = {name}[{self._constant(key)}]"
                for part, key in zip(names, keys, strict=True)
            ]
        elif names:
            self._lines.append(f"{''.join(f'{part}, ' for part in names)}= {name}")
        for part, of in zip(parts, names, strict=True):
            self.add(part, of)

    def _tree(self, node: Any, name: str) -> None:
        """What JAX takes apart: another container, or a module that has not its fields and nothing
        else.
        """
        leaves, treedef = tree_flatten(node)
        flat, structure = self._name(), self._name()
        self._names |= {"flatten": tree_flatten, "exactly": exactly}
        self._lines.append(f"{flat}, {structure} = flatten({name})")
        self._leave_if(
            [
                f"{structure} != {self._constant(treedef)}",
                f"exactly([{structure}]) != {self._constant(exactly([treedef]))}",
            ]
        )
        for i, leaf in enumerate(leaves):
            part = self._name()
            self._lines.append(f"{part} = {flat}[{i}]")
            self._leaf(leaf, part, [f"type({part}) is not {self._constant(type_of(leaf))}"])

    def _differs(self, value: Any, name: str) -> str:
        """That what has this name is another value: another object nearly always is, and is equal
        where that is asked quickly.
        """
        kind, constant = type_of(value), self._constant(value)
        if kind in _EXACT or (kind is float and value == value and value != 0):
            return (
                f"{name} is not {constant} and (type({name}) is not {self._constant(kind)} or"
                f" {name} != {constant})"
            )
        return f"{name} is not {constant}"

    def _leave_if(self, what: Sequence[str]) -> None:
        self._lines += [f"if {' or '.join(what)}:", "    return None"] if what else []

    def _name(self) -> str:
        self._parts += 1
        return f"v{self._parts}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _has_all_fields(module: Any) -> bool:
    """Whether JAX's leaves of it are those of its fields, which all lie in its `__dict__`, with
    nothing beside them.
    """
    held = fields_of(module)
    return len(held) == len(dataclasses.fields(module)) and all(
        field.name in held for field in dataclasses.fields(module)
    )


def _is_in_order(node: Any) -> bool:
    """Whether JAX takes a tuple of this class apart as it is, which parts that are equal do not
    show.
    """
    parts = [*map(id, node)]
    return type_of(node) is tuple or (
        len(set(parts)) == len(parts) and [*map(id, children(node))] == parts
    )
