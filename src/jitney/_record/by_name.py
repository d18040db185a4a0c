"""`getattr` and `hasattr` in the user's code: of which object they ask for which attribute, by the
instructions in front of the call.

A name that is written there is an attribute like any other. One that is computed is known when the
call is made, and is looked up then, as long as object and name are simple: locals, cells, globals,
constants, and what lies in the attributes of such. Where they are not, or where `getattr` is not
called but handed on, nobody sees what is read.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._jax.trees import is_a, space_of, type_of
from .unsure import Unsure

ASKING = {"getattr": getattr, "hasattr": hasattr}
Load = tuple[Any, ...]
"""How to get a value again: `("local", name)`, `("global", name)`, `("constant", value)`, or
`("attribute", load, name)`.
"""
_NOT_SIMPLE: Load = ("not simple",)
_LOADS = {
    "LOAD_FAST": "local",
    "LOAD_FAST_CHECK": "local",
    "LOAD_FAST_BORROW": "local",
    "LOAD_DEREF": "local",
    "LOAD_GLOBAL": "global",
    "LOAD_CONST": "constant",
    "LOAD_SMALL_INT": "constant",
}
_PAIRS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")  # of Python 3.13, and of 3.14
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_KNOWN = (*_LOADS, *_ATTRIBUTES, *_PAIRS, "PUSH_NULL", "PRECALL", "KW_NAMES")
_IN_PLACE = (
    "BINARY_",
    "COMPARE_OP",
    "CONTAINS_OP",
    "IS_OP",
    "UNARY_",
    "FORMAT_",
    "CONVERT_VALUE",
    "BUILD_",
    "CALL",
)
"""Instructions that put one result in place of what they take from the stack."""


@dataclass(frozen=True)
class Site:
    """A call of `getattr` or `hasattr`.

    Args:
        offset: Of the instruction.
        target: Whose attribute it asks for.
        name: Of the attribute.
    """

    offset: int
    target: Load
    name: Load

    @property
    def written(self) -> str | None:
        """The name, where it is written there."""
        return self.name[1] if self.name[0] == "constant" and is_a(self.name[1], str) else None

    @property
    def chain(self) -> tuple[str, ...] | None:
        """A written name behind the global that it is asked of, as `functions.py` follows it."""
        if self.written is None:
            return None
        parts, load = [self.written], self.target
        while load[0] == "attribute":
            parts.append(load[2])
            load = load[1]
        return (load[1], *reversed(parts)) if load[0] == "global" else None


def site(steps: list[dis.Instruction], at: int) -> Site | None:
    """The call for which the instruction at a place loads `getattr`; None where nobody sees what is
    asked for.
    """
    load = steps[at]
    if load.opname != "LOAD_GLOBAL" or load.arg is None or not load.arg & 1:  # not for a call
        return None
    stack: list[Load] = []
    for step in steps[at + 1 :]:
        if step.opname == "CALL" and step.arg == len(stack):
            return _asked(step.offset, stack)
        if not _is_stepped(stack, step):
            return None
    return None


def _asked(offset: int, stack: list[Load]) -> Site | None:
    if len(stack) not in (2, 3):
        return None
    call = Site(offset, stack[0], stack[1])
    # what else stands there may change what a name stands for
    is_simple = all(load != _NOT_SIMPLE for load in stack)
    return call if call.written is not None or is_simple else None


def _is_stepped(stack: list[Load], step: dis.Instruction) -> bool:
    """Do to the stack what an instruction does; whether it is known what that is."""
    name, kind = step.opname, _LOADS.get(step.opname)
    if kind is not None:
        # of a function that will be called
        beside = [_NOT_SIMPLE] * (kind == "global" and (step.arg or 0) & 1)
        stack += [*beside, (kind, step.argval)]
    elif name in _PAIRS:
        stack += [("local", local) for local in step.argval]
    elif name == "PUSH_NULL":
        stack.append(_NOT_SIMPLE)
    elif name in _ATTRIBUTES and stack:
        target = stack.pop()
        is_method = dis.stack_effect(step.opcode, step.arg) == 1
        stack += (
            [_NOT_SIMPLE] * 2
            if is_method
            else [_NOT_SIMPLE if target == _NOT_SIMPLE else ("attribute", target, step.argval)]
        )
    elif name.startswith(_IN_PLACE):
        taken = (
            (step.arg or 0) + 2 if name == "CALL" else 1 - dis.stack_effect(step.opcode, step.arg)
        )
        if taken > len(stack):
            return False
        del stack[len(stack) - taken :]
        stack.append(_NOT_SIMPLE)
    return name in _KNOWN or name.startswith(_IN_PLACE)


def value_of(load: Load, frame: types.FrameType) -> Any:
    """What a simple expression stands for in a frame, nothing being called.

    Raises:
        Unsure: Nobody knows without calling something.
    """
    kind, name = load[0], load[-1]
    if kind == "constant":
        return name
    if kind == "attribute":
        return _attribute(value_of(load[1], frame), name)
    spaces: tuple[Any, ...] = (
        (frame.f_locals,) if kind == "local" else (frame.f_globals, frame.f_builtins)
    )
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        raise Unsure(
            f"`{frame.f_code.co_name}` looks attributes up by name while a class is defined"
        )
    for space in spaces:
        if name in space:
            return space[name]
    raise Unsure(f"`{frame.f_code.co_name}` looks attributes up by name, and `{name}` is not seen")


def _attribute(value: Any, name: str) -> Any:
    """An attribute that lies in an object, a slot or a module, and is not made by code."""
    if is_a(value, types.ModuleType) and name in space_of(value):
        return space_of(value)[name]
    kind = type_of(value)
    of_class: Any = next(
        (space_of(base)[name] for base in kind.__mro__ if name in space_of(base)), None
    )
    if kind.__getattribute__ is object.__getattribute__ and not is_a(value, type):
        if type_of(of_class) is types.MemberDescriptorType:
            return of_class.__get__(value)
        own: Mapping[str, Any] = space_of(value) if hasattr(value, "__dict__") else {}
        if not hasattr(type_of(of_class), "__set__") and name in own:
            return own[name]
    raise Unsure(
        f"it looks attributes up by name, and `{name}` of a {kind.__qualname__} is not seen without"
        " calling something"
    )
