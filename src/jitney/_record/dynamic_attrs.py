"""Symbolic execution of the instructions before a call of `getattr` or `hasattr`: which attribute
of which object the user's code looks up.

A literal name is an attribute like any other. A computed name is known when the call runs and is
looked up then, provided that object and name are simple: locals, cells, globals, constants, and
attributes of these. If they are not, or if `getattr` is passed on instead of called, the read is
unknown.

    getattr(config.model, key)
    GetattrSite(offset, target=("attribute", ("global", "config"), "model"), name=("local", "key"))
"""

from __future__ import annotations

import dis
import inspect
import types
from dataclasses import dataclass
from typing import Any

from .unsure import NotDeterministic

ASKING = {"getattr": getattr, "hasattr": hasattr}
Load = tuple[Any, ...]
"""Expression that yields a value again: `("local", name)`, `("global", name)`, `("constant",
value)`, or `("attribute", load, name)`.
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
# superinstructions of Python 3.13 and of 3.14, which push two locals
_PAIRS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
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
"""Prefixes of instructions that replace their operands on the stack by one result."""


@dataclass(frozen=True)
class GetattrSite:
    """A call of `getattr` or `hasattr`.

    Args:
        offset: Offset of the call instruction.
        target: Expression for the object.
        name: Expression for the name of the attribute.
    """

    offset: int
    target: Load
    name: Load

    @property
    def literal_name(self) -> str | None:
        """The attribute name if it is a literal, else None."""
        kind, text = self.name[0], self.name[-1]
        return text if kind == "constant" and isinstance(text, str) else None

    @property
    def chain(self) -> tuple[str, ...] | None:
        """The dotted name, `("np", "linalg")`, of a literal attribute of a global, as
        `functions.py` resolves it; None for other targets.
        """
        if self.literal_name is None:
            return None
        parts, load = [self.literal_name], self.target
        while load[0] == "attribute":
            parts.append(load[2])
            load = load[1]
        return (load[1], *reversed(parts)) if load[0] == "global" else None


def getattr_site(steps: list[dis.Instruction], at: int) -> GetattrSite | None:
    """Return the call for which instruction `at` loads `getattr`; None if its operands are
    unknown.
    """
    load = steps[at]
    # The lowest bit of the argument of LOAD_GLOBAL marks a load for a call (it also pushes NULL).
    if load.opname != "LOAD_GLOBAL" or load.arg is None or not load.arg & 1:
        return None

    # Step until a CALL takes exactly what was pushed since: that is the call of this `getattr`.
    stack: list[Load] = []
    for step in steps[at + 1 :]:
        if step.opname == "CALL" and step.arg == len(stack):
            return _getattr_site(step.offset, stack)
        if not _is_stepped(stack, step):
            return None
    return None


def _getattr_site(offset: int, stack: list[Load]) -> GetattrSite | None:
    if len(stack) not in (2, 3):
        return None
    call = GetattrSite(offset, stack[0], stack[1])
    if call.literal_name is not None:
        return call
    # A call or an operation among the operands might rebind the local or global that they read.
    return None if _NOT_SIMPLE in stack else call


def _is_stepped(stack: list[Load], step: dis.Instruction) -> bool:
    """Apply an instruction to the symbolic stack; return False if its effect is unknown."""
    name, kind = step.opname, _LOADS.get(step.opname)
    if kind is not None:
        # LOAD_GLOBAL for a call pushes a NULL as well
        beside = [_NOT_SIMPLE] * (kind == "global" and (step.arg or 0) & 1)
        stack += [*beside, (kind, step.argval)]
    elif name in _PAIRS:
        stack += [("local", local) for local in step.argval]
    elif name == "PUSH_NULL":
        stack.append(_NOT_SIMPLE)
    elif name in _ATTRIBUTES and stack:
        target = stack.pop()
        # As a method load it pushes two entries: the function and its `self`.
        is_method = dis.stack_effect(step.opcode, step.arg) == 1
        if is_method:
            stack += [_NOT_SIMPLE] * 2
        elif target == _NOT_SIMPLE:
            stack.append(_NOT_SIMPLE)
        else:
            stack.append(("attribute", target, step.argval))
    elif name.startswith(_IN_PLACE):
        # CALL also takes the callable and the NULL or `self` next to it.
        taken = (
            (step.arg or 0) + 2 if name == "CALL" else 1 - dis.stack_effect(step.opcode, step.arg)
        )
        if taken > len(stack):
            return False
        del stack[len(stack) - taken :]
        stack.append(_NOT_SIMPLE)
    return name in _KNOWN or name.startswith(_IN_PLACE)


def value_of(load: Load, frame: types.FrameType) -> object:
    """Evaluate a simple expression in a frame without calling anything.

    Raises:
        NotDeterministic: The value cannot be found without a call.
    """
    kind, name = load[0], load[-1]
    if kind == "constant":
        return name
    if kind == "attribute":
        return _attribute(value_of(load[1], frame), name)
    spaces = (frame.f_locals,) if kind == "local" else (frame.f_globals, frame.f_builtins)
    # Class bodies read their names from a namespace of any mapping type.
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        raise NotDeterministic(
            f"`{frame.f_code.co_name}` looks attributes up by name while a class is defined"
        )
    for space in spaces:
        if name in space:
            return space[name]
    raise NotDeterministic(
        f"`{frame.f_code.co_name}` looks attributes up by name, and `{name}` is not seen"
    )


def _attribute(value: object, name: str) -> object:
    """Return an attribute that is stored in an object, a slot or a module, not computed by code."""
    if isinstance(value, types.ModuleType) and name in vars(value):
        return vars(value)[name]

    # The rules of `object.__getattribute__`: a slot or another data descriptor precedes the
    # instance's own `__dict__`. Descriptors other than slots are not called.
    kind = type(value)
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if kind.__getattribute__ is object.__getattribute__ and not isinstance(value, type):
        if type(of_class) is types.MemberDescriptorType:
            return of_class.__get__(value)
        own = vars(value) if hasattr(value, "__dict__") else {}
        if not hasattr(type(of_class), "__set__") and name in own:
            return own[name]
    raise NotDeterministic(
        f"it looks attributes up by name, and `{name}` of a {kind.__qualname__} is not seen without"
        " calling something"
    )
