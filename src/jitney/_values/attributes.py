"""Attributes of an object, in its `__dict__` or in slots."""

from __future__ import annotations

import types

from .._jax.trees import attribute


def attributes_of(value: object) -> dict[str, object]:
    """Attributes by name; an empty slot is left out."""
    held = attribute(value, "__dict__", {})
    # Slots are member descriptors of the class that declares them.
    slots = [
        name
        for base in type(value).__mro__
        if "__slots__" in base.__dict__
        for name, member in base.__dict__.items()
        if isinstance(member, types.MemberDescriptorType)
    ]
    if not slots:
        return held
    filled = [name for name in slots if hasattr(value, name)]
    return {**held, **{name: getattr(value, name) for name in filled}}
