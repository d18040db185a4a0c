"""Code generation for calls: one function that flattens the arguments of calls like one that was
seen.

JAX asks each node for its type, and a module answers in Python, in about a microsecond. Successive
calls nearly always give the same answers. So a function without branches (but the exit) asserts
them in the order of the leaves: it compares the number, names and types of the arguments and reads
each field of each module directly. If an answer differs it returns None, and JAX flattens the
arguments. Nothing is remembered about any argument, so it makes no difference whether a module is
old, new, or was changed behind its own back (`object.__setattr__`).

The lines for an argument `eqx.nn.Linear(2, 3)`, whose static fields are compared with constants:

    if type(a0) is not c1: return None
    v1 = fields(a0)
    if len(v1) != 5 or v1['in_features'] is not c2 and (...): return None
    v2 = v1['weight']
    if type(v2) is not c8: return None
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

from .._jax.trees import tree_flatten, tree_unflatten
from .._jax.typed import Array
from .._values.mutable_objects import can_change
from .._values.static_values import Opaque, is_constant
from .._values.strict_keys import strict_key
from .fitting import WHOLE
from .nodes import FIELDS, children, fields_of, is_leaf, names_of_children
from .taken_apart import TakenApart
from .view import is_array

_NUMBERS = (bool, int, float, complex)
_EXACT = (bool, int, str, bytes)
"""Types whose equal values are indistinguishable to a body; so are equal floats other than zero."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """Value of one parameter of a call.

    Args:
        twin: The value rebuilt from its leaves, which nobody changes while a function is written
            from it.
        place: Index of the argument in the call; None for a default.
        value: The value itself.
    """

    twin: object
    place: int | None
    value: object


_Args = tuple[object, ...]
_Kwargs = Mapping[str, object]
Taker = Callable[[_Args, _Kwargs], Sequence[Array] | None]
"""Function from the positional and keyword arguments of a call to its arrays; None for a call that
differs from the one it was written for.
"""
LeavesTaker = Callable[[_Args, _Kwargs], Sequence[object] | None]
"""The same for calls with one module, of which all leaves are returned."""


def taker(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    values: Sequence[Argument],
    dynamic: Container[int],
    arrays: Sequence[Array],
) -> Taker | None:
    """Generate the function that flattens calls like this one.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        values: The same values in the order of JAX's leaves.
        dynamic: Indices of the traced leaves; each other leaf has to equal the one of this call.
        arrays: The arrays of this call.

    Returns:
        None if the arguments contain something that such a function cannot verify.
    """
    writer = _TakerWriter(dynamic)
    for value in values:
        writer.argument(value)
    if not writer.is_known:
        return None
    take = writer.compile_function(len(args), tuple(kwargs))
    # The function is used only if it reproduces this call.
    return take if _gives(take, args, kwargs, arrays) else None


@functools.lru_cache(maxsize=256)
def arrays_taker(
    kinds: tuple[type, ...],
    names: tuple[str, ...],
    order: tuple[int, ...],
) -> Taker:
    """Generate the function that flattens calls with one array for each parameter.

    Args:
        kinds: Types of the arguments, keyword arguments last.
        names: Names of the keyword arguments.
        order: Indices of the arguments in the order of the parameters.
    """
    writer = _TakerWriter(None)
    for place in order:
        writer.array(kinds[place], f"a{place}")
    count = len(kinds) - len(names)
    is_in_order = order == tuple(range(len(kinds)))
    return writer.compile_function(count, names, whole=not names and is_in_order)


def leaves_taker(treedef: Hashable, leaves: Sequence[object]) -> LeavesTaker | None:
    """Generate the function that gives the leaves of modules of this structure, with leaves of
    these types, and equal to these if `is_keyed_by_value`.
    """
    # A rebuilt module, which nobody changes meanwhile.
    module = tree_unflatten(treedef, leaves)
    writer = _TakerWriter(None)
    writer.add(module, "a0")
    if not writer.is_known:
        return None
    take = writer.compile_function(1, ())
    return take if _gives(take, (module,), {}, leaves) else None


def is_keyed_by_value(leaf: object) -> bool:
    """Return whether the key of a module identifies this leaf by its value, as it does for a
    function or another constant.
    """
    return is_constant(type(leaf)) and not can_change(leaf) and not is_array(leaf)


def no_call(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> None:
    """Reject every call: the initial `Taker`, before the first call."""


def _gives(
    take: LeavesTaker,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    leaves: Sequence[object],
) -> bool:
    """Return whether a function gives the same leaves as JAX."""
    taken = take(args, kwargs)
    if taken is None or len(taken) != len(leaves):
        return False
    return all(map(is_, taken, leaves))


class _TakerWriter:
    """Writer of the function for one pattern of calls, with a line or two for each node.

    Args:
        dynamic: Indices of the leaves that the function returns; None for all.
    """

    def __init__(self, dynamic: Container[int] | None):
        self.is_known = True
        self._dynamic = dynamic
        # Globals of the generated function.
        self._names: dict[str, Any] = {"fields": FIELDS.__get__}
        self._lines: list[str] = []
        self._given: list[str] = []
        # Number of leaves so far.
        self._count = 0
        # Number of local variables so far.
        self._parts = 0

    def compile_function(
        self,
        count: int,
        names: tuple[str, ...],
        *,
        whole: bool = False,
    ) -> Taker:
        """Compile the function.

        Args:
            count: Number of positional arguments.
            names: Names of the keyword arguments.
            whole: Whether the arguments are the result as they are.
        """
        lines = [
            f"if len(kwargs) != {len(names)}:" if names else "if kwargs:",
            "    return None",
        ]

        # The variables of the arguments.
        arguments = ", ".join(f"a{i}" for i in range(count))
        lines.append(f"{arguments}, = args" if arguments else "() = args")
        lines += [f"a{count + i} = kwargs[{name!r}]" for i, name in enumerate(names)]

        # The lines of the nodes, and the result.
        lines += self._lines
        parts = "".join(f"{part}, " for part in self._given)
        lines.append("return args" if whole else f"return ({parts})")

        # A missing key or field, or another number of items, raises one of these.
        way_out = ["except (KeyError, ValueError):", "    return None"]
        body = ["try:", *(f"    {line}" for line in lines), *way_out]
        source = "\n    ".join(["def take(args, kwargs):", *body])

        # The source consists of names and numbers generated here, and of no text of the user's.
        exec(compile(source, "<a call, taken apart by jitney>", "exec"), self._names)  # noqa: S102
        return self._names["take"]

    def argument(self, argument: Argument) -> None:
        """Write the lines for one argument, or for a default, which may have been changed in
        place.
        """
        before = len(self._lines)
        twin, value = argument.twin, argument.value
        if isinstance(twin, Opaque) and isinstance(value, Opaque):
            value = value.once or value.value
        name = f"a{argument.place}" if argument.place is not None else self._constant(value)
        if isinstance(twin, Opaque):
            self._count += 1
            if twin.once is None:
                self._static(twin.value, name)
            else:
                self._leave_if([f"{name} is not {self._constant(twin.once)}"])
        else:
            self.add(twin, name)

        # A static argument differs most often, so it is compared first.
        if is_leaf(twin):
            self._lines = self._lines[before:] + self._lines[:before]

    def array(self, kind: type, name: str) -> None:
        """Write the lines for an array of this type."""
        unlike = f"type({name}) is not {self._constant(kind)}"
        self._leave_if([unlike, *self._may_not_fit(kind, name)])
        self._given.append(name)

    def add(self, node: object, name: str) -> None:
        """Write the lines for one part of an argument, which is stored in the variable `name`."""
        kind = type(node)
        unlike = [f"type({name}) is not {self._constant(kind)}"]
        if node is None:
            self._leave_if([f"{name} is not None"])
        elif is_leaf(node):
            self._leaf(node, name, unlike)
        elif isinstance(node, eqx.Module) and _has_all_fields(node):
            self._module(node, name, unlike)
        elif isinstance(node, TakenApart) and node.kind.__dictoffset__:
            self._record(node, name)
        # Only text keys: other keys may equal keys of another type.
        elif type(node) is dict and all(type(key) is str for key in node):
            keys = sorted(node)
            self._container(
                [node[key] for key in keys],
                name,
                unlike,
                keys,
            )
        elif type(node) is list or (isinstance(node, tuple) and _is_in_order(node)):
            self._container([*node], name, unlike)
        else:
            self._tree(node, name)

    def _leaf(
        self,
        node: object,
        name: str,
        unlike: list[str],
    ) -> None:
        number, self._count = self._count, self._count + 1
        kind = type(node)
        if self._dynamic is None or number in self._dynamic:
            if self._dynamic is None and is_keyed_by_value(node):
                self._leave_if([self._differs(node, name)])
            else:
                self._leave_if([*unlike, *self._may_not_fit(kind, name)])
            self._given.append(name)
        else:
            self._static(node, name)

    def _may_not_fit(self, kind: type, name: str) -> list[str]:
        """Condition for a NumPy array of 64-bit integers, whose range is checked in each call
        (`fitting.py`).
        """
        if issubclass(kind, np.ndarray):
            return [f"{name}.dtype in {self._constant(WHOLE)}"]
        return ["True"] if kind in (np.int64, np.uint64) else []

    def _static(self, value: object, name: str) -> None:
        """Write the comparison of a static value, whose `==` has to cover all its contents."""
        kind = type(value)
        is_plain = value is None or kind in _NUMBERS
        self.is_known &= is_plain or is_constant(kind) or issubclass(kind, enum.Enum)
        self._leave_if([self._differs(value, name)])

    def _module(
        self,
        node: eqx.Module,
        name: str,
        unlike: list[str],
    ) -> None:
        attributes, variable = fields_of(node), self._name()
        self._leave_if(unlike)
        # The `__dict__` is read once by its descriptor, past Equinox's attribute lookup.
        self._lines.append(f"{variable} = fields({name})")

        # Static fields are compared.
        fields = dataclasses.fields(node)
        static = [field.name for field in fields if field.metadata.get("static", False)]
        differences = [
            self._differs(attributes[field], f"{variable}[{field!r}]") for field in static
        ]
        self._leave_if([f"len({variable}) != {len(attributes)}", *differences])

        # The others are nodes.
        for field in fields:
            if field.name not in static:
                part = self._name()
                self._lines.append(f"{part} = {variable}[{field.name!r}]")
                self.add(attributes[field.name], part)

    def _record(self, node: TakenApart, name: str) -> None:
        """Write the lines for a frozen dataclass that is taken apart, as it stands in the call."""
        variable = self._name()
        self._leave_if([f"type({name}) is not {self._constant(node.kind)}"])
        self._lines.append(f"{variable} = vars({name})")
        self._leave_if([f"len({variable}) != {len(node.names)}"])
        for field, value in zip(node.names, node.parts, strict=True):
            part = self._name()
            self._lines.append(f"{part} = {variable}[{field!r}]")
            self.add(value, part)

    def _container(
        self,
        parts: Sequence[object],
        name: str,
        unlike: list[str],
        keys: Sequence[str] | None = None,
    ) -> None:
        """Write the lines for a Python container with so many parts, or with these keys."""
        self._leave_if([*unlike, f"len({name}) != {len(parts)}"])
        names = [self._name() for _ in parts]
        if keys is not None:
            for part, key in zip(names, keys, strict=True):
                self._lines.append(f"{part} = {name}[{self._constant(key)}]")
        elif names:
            targets = "".join(f"{part}, " for part in names)
            self._lines.append(f"{targets}= {name}")
        for part, of in zip(parts, names, strict=True):
            self.add(part, of)

    def _tree(self, node: object, name: str) -> None:
        """Write the lines for a node that JAX flattens: another container, or a module whose
        attributes are not exactly its fields.
        """
        leaves, treedef = tree_flatten(node)
        flat, structure = self._name(), self._name()
        self._names |= {"flatten": tree_flatten, "exactly": strict_key}
        self._lines.append(f"{flat}, {structure} = flatten({name})")
        self._leave_if(
            [
                f"{structure} != {self._constant(treedef)}",
                f"exactly([{structure}]) != {self._constant(strict_key([treedef]))}",
            ]
        )
        for i, leaf in enumerate(leaves):
            part = self._name()
            self._lines.append(f"{part} = {flat}[{i}]")
            self._leaf(leaf, part, [f"type({part}) is not {self._constant(type(leaf))}"])

    def _differs(self, value: object, name: str) -> str:
        """Condition that a variable holds another value.

        Identity is compared first. For types that are quick to compare an equal value is accepted
        too; for others an equal but distinct object exits to JAX.
        """
        kind, constant = type(value), self._constant(value)
        is_quick = kind in _EXACT or (kind is float and value == value and value != 0)
        if not is_quick:
            return f"{name} is not {constant}"
        unlike = f"type({name}) is not {self._constant(kind)}"
        return f"{name} is not {constant} and ({unlike} or {name} != {constant})"

    def _leave_if(self, conditions: Sequence[str]) -> None:
        if conditions:
            self._lines += [f"if {' or '.join(conditions)}:", "    return None"]

    def _name(self) -> str:
        self._parts += 1
        return f"v{self._parts}"

    def _constant(self, value: object) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _has_all_fields(module: eqx.Module) -> bool:
    """Return whether the attributes of a module are exactly its fields, all in its `__dict__`, so
    that its leaves can be read there.
    """
    attributes = fields_of(module)
    fields = dataclasses.fields(module)
    if len(attributes) != len(fields):
        return False
    return all(field.name in attributes for field in fields)


def _is_in_order(node: tuple[object, ...]) -> bool:
    """Return whether JAX flattens a tuple of this class item by item, in order."""
    if type(node) is tuple:
        return True
    # Items may be the same object, such as None, so their names are compared too.
    named = names_of_children(node)
    fields: tuple[str, ...] = getattr(type(node), "_fields", ())
    same = [*map(id, children(node))] == [*map(id, node)]
    return same and named == [*fields]
