"""Value that a trace has read, recorded so that it keeps nothing alive which refers back to it.

    RecordedRead(array of JAX)    unchanged while it is the same object; held weakly
    RecordedRead(a list)          unchanged while its contents are those of then (`state`)

Attributes are read here as they are stored (`raw_attribute`): no property and no `__getattr__` of
the user runs.
"""

from __future__ import annotations

import types
from collections.abc import Mapping

import jax
import numpy as np

from .._errors import repr_of
from .identity import Identity, can_be_weak, identity
from .mutable_objects import bytes_in, is_immutable, leads_nowhere, state
from .read_hooks import ABSENT

Attributes = Mapping[str, object]
GONE = object()
# Longest text of a value in a report, in characters.
_SHOWN = 60
# Containers with fewer items are shown in full.
_FEW = 10
_usual = object.__getattribute__


class RecordedRead:
    """Recorded value of one attribute, or of one static value as a whole.

    Args:
        value: The value. It is held weakly if it may refer back to the object it was read from, or
            the two would keep each other alive.
        nested: Whether the attributes of `value` are recorded themselves, so that here its identity
            suffices.
        by_class: Whether the attribute belongs to a class, which lives as long as its instances.
    """

    __slots__ = ("_then", "nested", "settled", "size", "state", "words")

    def __init__(
        self,
        value: object,
        *,
        nested: bool = False,
        by_class: bool = False,
    ):
        self.settled = nested or value is ABSENT or is_immutable(value)
        self.nested = nested
        is_alone = leads_nowhere(value) or not (
            can_be_weak(type(value)) or isinstance(value, tuple)
        )
        is_strong = (
            value is ABSENT
            or (by_class and hasattr(type(value), "__get__"))
            or (self.settled and is_alone)
        )

        # The value itself, a weak stand-in, or `GONE` for a value of which only the state is kept.
        self._then: object = GONE
        if is_strong:
            self._then = value
        elif can_be_weak(type(value)):
            self._then = identity(value)
        self.state = None if is_strong or nested else state(value)
        self.words = "" if is_strong else _words(value)
        self.size = 0 if is_strong else bytes_in(value)

    @property
    def recorded_value(self) -> object:
        """The recorded value if it is still alive, else `GONE`. `ABSENT` stands for an attribute
        that did not exist.
        """
        if type(self._then) is not Identity:
            return self._then
        value = self._then()
        return GONE if value is None else value

    @property
    def is_quick(self) -> bool:
        """True if an identity comparison with `recorded_value` decides."""
        return self.settled and self._then is not GONE

    @property
    def raw_value(self) -> object:
        """The recorded value or its stand-in."""
        return self._then

    @property
    def is_weak(self) -> bool:
        return type(self._then) is Identity

    @property
    def was(self) -> object:
        """The recorded value, or a description of it once it is gone."""
        return Words(self.words) if self.recorded_value is GONE else self.recorded_value

    def is_over(self) -> bool:
        """Return whether no later value can match: the recorded one counts by identity and is
        gone.
        """
        stand_in = self._then
        if type(stand_in) is not Identity or stand_in() is not None:
            return False
        return self.nested or self.state in (stand_in, (stand_in.kind, stand_in))

    def holds(self, now: object) -> bool:
        if now is ABSENT or self.recorded_value is ABSENT:
            return now is self.recorded_value
        if self.settled and now is self.recorded_value:
            return True
        if self.nested:
            return False
        current = state(now)
        return current == (state(self._then) if self.state is None else self.state)


class Words(str):
    """Text that stands for a value: its `repr` is the text without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _words(value: object) -> str:
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) < _FEW:
        return repr_of(value)[:_SHOWN]
    return type(value).__name__


def weak_stand_in(value: object) -> object:
    """Stand-in for an object; the object itself if it is a class or cannot be weakly referenced."""
    return identity(value) if can_be_weak(type(value)) else value


def strong_value(held: object) -> object:
    """Inverse of `weak_stand_in`; `GONE` if the object is gone."""
    if type(held) is not Identity:
        return held
    value = held()
    return GONE if value is None else value


def place_of(value: object) -> int:
    """Identifier of an object. It is unique, even among later objects at the same address, while
    the stand-in is alive.
    """
    return id(weak_stand_in(value))


def has_dict(value: object) -> bool:
    try:
        _usual(value, "__dict__")
    except AttributeError:
        return False
    return True


def dict_of(value: object) -> Attributes:
    """`__dict__` of an object or a class; an empty one for an object that has only slots."""
    if isinstance(value, type):
        return value.__dict__
    return _usual(value, "__dict__") if has_dict(value) else {}


def raw_attribute(value: object, name: str) -> object:
    """Attribute as stored in the object or its classes: functions unbound, properties as such."""
    held = dict_of(value)
    if name == "__dict__":
        return held
    if name in held or isinstance(value, type):
        return held.get(name, ABSENT)

    for base in type(value).__mro__:
        if name in base.__dict__:
            part = base.__dict__[name]
            # Slots and C-level attributes are descriptors without effects, so their value is read.
            if isinstance(part, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                return getattr(value, name, ABSENT)
            return part

    return ABSENT
