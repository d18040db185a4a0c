"""Detection of sets that code makes without naming `set`: by `&`, `|`, `-`, `^` of the key views of
dicts, and by methods of other sets.

The iteration order of a set of texts differs between processes. Set displays, `set` and `frozenset`
are refused by bytecode and name (`functions.py`). A view of keys or items is detected when it is
created, so it must be consumed on the spot: by a loop, by `in`, or as the argument of a builtin
function that does not make a set of it.
"""

from __future__ import annotations

import collections.abc
import dis
import types
from functools import lru_cache
from typing import TypeGuard

OF_SETS = frozenset(
    (
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
        "__class__",
        "__or__",
        "__and__",
        "__sub__",
        "__xor__",
        "__ror__",
        "__rand__",
        "__rsub__",
        "__rxor__",
        "__ior__",
        "__iand__",
        "__isub__",
        "__ixor__",
    )
)
"""Attributes by which an existing set makes another one; calling the type of a set does so too."""
_VIEWS = frozenset(("keys", "items"))
_METHODS = (types.BuiltinFunctionType, types.MethodDescriptorType)
_Method = types.BuiltinFunctionType | types.MethodDescriptorType
_CALLS = ("PRECALL", "KW_NAMES", "CALL", "CALL_KW")
_USES_UP = ("GET_ITER", "CONTAINS_OP", "LIST_EXTEND", "UNPACK_SEQUENCE", "UNPACK_EX", "POP_TOP")
_INTO_ORDER = frozenset(("list", "tuple", "enumerate", "dict", "iter", "sum", "zip"))
_WITHOUT_ORDER = frozenset(("sorted", "len", "min", "max", "any", "all"))
_LOADS = (
    "LOAD_FAST",
    "LOAD_FAST_CHECK",
    "LOAD_FAST_BORROW",
    "LOAD_DEREF",
    "LOAD_GLOBAL",
    "LOAD_NAME",
)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
MAKES_SETS = tuple(
    getattr(kind, "_from_iterable").__code__  # noqa: B009
    for kind in (collections.abc.KeysView, collections.abc.ItemsView)
)
"""Code of the functions that turn the views of other mappings into sets."""


def is_view(called: object) -> TypeGuard[_Method]:
    """Return whether a callable returns the keys or the items of a dict."""
    return isinstance(called, _METHODS) and called.__name__ in _VIEWS


def is_used_up(frame: types.FrameType) -> bool:
    """Return whether the result of the current call of a frame is consumed by a loop or the like,
    and goes nowhere else.
    """
    builtins = _uses(frame.f_code).get(frame.f_lasti)
    # A global of the same name hides the builtin.
    return builtins is not None and not any(name in frame.f_globals for name in builtins)


@lru_cache(maxsize=4096)
def _uses(code: types.CodeType) -> dict[int, tuple[str, ...]]:
    """Map the offset of each call of `keys` or `items` that is consumed on the spot to the builtin
    function that consumes it, if one does.
    """
    steps = [
        step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "NOP")
    ]
    found: dict[int, tuple[str, ...]] = {}
    for at, step in enumerate(steps):
        if step.opname not in _ATTRIBUTES or step.argval not in _VIEWS:
            continue
        end = at + 1

        # The call itself: PRECALL and CALL in Python 3.11, CALL alone later.
        places: list[int] = []
        while (
            end < len(steps)
            and steps[end].opname in ("PRECALL", "CALL")
            and steps[end].arg == 0
            and len(places) < 2
        ):
            places.append(steps[end].offset)
            end += 1

        # The next instruction consumes the view, or a builtin does. `list` and its like must take
        # the view as their only argument; `sorted` and its like may take others after it.
        behind = steps[end].opname if end < len(steps) else ""
        function = _function(steps, at)
        if behind in _USES_UP:
            found.update(dict.fromkeys(places, ()))
        elif function in _WITHOUT_ORDER or (function in _INTO_ORDER and behind in _CALLS):
            found.update(dict.fromkeys(places, (function,)))
    return found


def _function(steps: list[dis.Instruction], at: int) -> str:
    """Return the global function whose first argument is the object of this attribute access; "" if
    there is none.
    """
    at -= 1
    # Backward over `a.b.c` to the load of `a`, then over PUSH_NULL to the load of the function.
    while at >= 0 and steps[at].opname in _ATTRIBUTES:
        at -= 1
    if at < 1 or steps[at].opname not in _LOADS:
        return ""
    at -= 1
    while at > 0 and steps[at].opname == "PUSH_NULL":
        at -= 1
    return str(steps[at].argval) if steps[at].opname == "LOAD_GLOBAL" else ""
