"""Static values that are copied and keyed once, before any call: `jitney.static(value)`.

A call compares what its static arguments hold, so that no later change reaches a program. Of a
`Static` nothing can change: it holds a copy that nobody else has. So the same `Static` in two calls
is the same value, and an equal value that is passed as it is runs the same program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import partial
from types import MappingProxyType, MethodType
from typing import Generic, TypeVar, cast

import numpy as np

from .._errors import StaticError, Where
from .._owners import public
from .._public import public_in
from .attributes import attributes_of
from .copies import snapshot
from .kinds import children
from .mutable_objects import is_consumable, is_immutable
from .static_values import Opaque, Unkeyed, is_keyed_by_fields

_T = TypeVar("_T")
_WHERE = Where("jitney.static")
# Kinds that `snapshot` copies, part by part.
_COPIED = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    np.ndarray,
    MappingProxyType,
    partial,
    MethodType,
)


@public_in("jitney.types")
class Static(Generic[_T]):
    """A static value that was copied and keyed once; `jitney.static` makes it.

    Two are equal if their values are equal in each respect that a body could observe. A copy of one
    is the same object. A pickled one is keyed anew where it is loaded.

    Args:
        value: The value.

    Raises:
        StaticError: It has no key, or holds an object that may change and is not copied.
    """

    __slots__ = ("__weakref__", "leaf")

    def __init__(self, value: _T):
        try:
            held = snapshot(value)
            self.leaf = Opaque(held, self)
        except Unkeyed as problem:
            raise problem.of(_WHERE, "the value") from None
        for part in _changing_parts(held):
            raise StaticError(
                _WHERE,
                f"the value is or holds a {type(part).__qualname__}, which may change later.",
                "Its later changes would reach programs that were made before them, since only"
                " containers, arrays and dataclasses are copied.",
                "pass the value as it is, or make the class a frozen dataclass.",
            )

    @property
    def value(self) -> _T:
        """The value, a new copy each time."""
        return snapshot(cast("_T", self.leaf.value))

    @property
    def key(self) -> Hashable:
        """The key of an argument with this value."""
        return self.leaf.key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Static) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __copy__(self) -> Static[_T]:
        return self

    def __deepcopy__(self, memo: object) -> Static[_T]:
        return self

    def __reduce__(self) -> tuple[type[Static[_T]], tuple[object]]:
        return Static, (self.leaf.value,)

    def __repr__(self) -> str:
        return f"jitney.static({self.leaf.value!r})"


def _changing_parts(value: object) -> Iterator[object]:
    """Parts of a copy that are not copied, and may change."""
    if is_immutable(value) and not is_consumable(value):
        return
    if not isinstance(value, _COPIED) and not is_keyed_by_fields(value):
        yield value
        return
    if isinstance(value, defaultdict):
        yield from _changing_parts(value.default_factory)
    for part in (*children(value), *attributes_of(value).values()):
        yield from _changing_parts(part)


@public
def static(value: _T) -> _T:
    """Copy and key a static value once, so that calls need not compare what it holds.

    ```python
    KNOTS = jitney.static([0.1 * k for k in range(100)])

    @jitney.optimize(static="knots")
    def hinge(x, knots): ...

    hinge(x, KNOTS)
    ```

    A call compares a list of 100 each time, item by item; of this one it compares the identity. The
    body gets a copy of the value, and the program is the one that the value itself would run.
    Changes of `value` after this call have no effect: freeze it anew.

    The result stands for `value` as an argument that `static=` names, or as the default of one.
    There the type checker takes it for the value, which is what the body gets. In a field of a
    module or in a container it is a hashable object of the class `jitney.types.Static`, whose
    `value` is a new copy each time.

    Args:
        value: What `static=` takes: a list, a dict, a NumPy array, a dataclass, and so on.

    Raises:
        StaticError: The value has no key, or holds an object that may change and is not copied.
    """
    return value if isinstance(value, Static) else cast("_T", Static(value))
