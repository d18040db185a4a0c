"""Attributes of an object, in its `__dict__` or in slots, and variables that a function closes
over.
"""

from __future__ import annotations

import types

from .._jax.trees import attribute


def attributes_of(value: object) -> dict[str, object]:
    """Attributes by name, as they are stored: no code of the class runs, and an empty slot is left
    out. Private slots have the names that Python has made of them.
    """
    held = attribute(value, "__dict__", {})
    slots: dict[str, object] = {}
    # Slots are member descriptors of the class that declares them.
    for base in type(value).__mro__:
        if "__slots__" not in base.__dict__:
            continue
        for name, member in base.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and name not in slots:
                try:
                    slots[name] = member.__get__(value)
                except AttributeError:
                    continue
    return {**held, **slots} if slots else held


_LEFT_OUT = object()


def closure_variables(
    fn: types.FunctionType,
    *,
    unset: object = _LEFT_OUT,
) -> dict[str, object]:
    """Variables that a function closes over, by name. One that is not set yet is left out, or has
    the value `unset`.
    """
    names, cells = fn.__code__.co_freevars, fn.__closure__ or ()
    variables: dict[str, object] = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            variables[name] = cell.cell_contents
        # Python has no other public question for a cell that is empty.
        except ValueError:
            if unset is not _LEFT_OUT:
                variables[name] = unset
    return variables
