"""Bytecode audit: might a function that ran during a trace have looked at a size unseen?

`type(n)` and `n is m` call no method of the object, so no hook of `dim_hooks.py` sees them; and
code that catches the error of `float(n)` goes on differently. So each function that has run
(`executed_code.py`), those of JAX aside, is checked against an allowlist:

- all instructions but `is` between two objects, and no exception handlers;
- its globals and arguments, and their attributes under the names that it reads: numbers, modules
  and functions that are known not to inspect objects, and functions written in Python, which are
  checked when they run;
- its calls, wherever the callee comes from (in Python 3.11 builtin functions only, so that a class
  out of an unchecked object is missed).

Code that is not on the list is not an error: it costs one trace for each new size.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import inspect
import operator
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import jax
import numpy as np

from ..._jax.trees import attribute
from ..._owners import owner
from ..._values.kinds import CONTAINERS, Shape, kind_of

_MODULES = (
    "jax",
    "jaxlib",
    "jitney",
    "numpy",
    "math",
    "functools",
    "itertools",
    "collections",
    "typing",
    "dataclasses",
    "enum",
    "abc",
    "equinox",
    "jaxtyping",
    "beartype",
    "warnings",
    "operator",
    "_operator",
)
_BARRED = (operator.is_, operator.is_not, contextlib.suppress)
"""Members of trusted modules that inspect objects unseen, or swallow exceptions."""
_NAMES = (
    "abs all any bool bytes callable complex dict divmod enumerate filter float frozenset getattr"
    " hasattr int isinstance issubclass iter len list map max min next object pow print property"
    " range reversed round set setattr slice sorted staticmethod classmethod str sum super tuple"
    " zip ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError"
    " NotImplementedError OverflowError RuntimeError StopIteration TypeError ValueError"
    " ZeroDivisionError NotImplemented Ellipsis __build_class__ __import__ __debug__"
)
_BUILTINS = frozenset(_NAMES.split())
"""Builtins that are allowed: `isinstance`, `hasattr` and the like read attributes, which the hooks
see; conversions raise, or are seen.
"""


def violations(
    code: types.CodeType,
    names: Mapping[str, object],
    given: Mapping[str, object],
) -> Iterator[str]:
    """Yield what a function does that is not on the allowlist, as parts of a sentence."""
    summary = _summary(code)
    catches_all = summary.catches_all or not all(
        _is_own_error(names.get(name)) for name in summary.caught
    )
    if catches_all or _rewords(summary, names, given):
        yield "handles exceptions"
    if summary.compares:
        yield "compares objects by `is`"
    for name in summary.asked:
        if _is_special(name):
            yield f"asks for `{name}`"

    # With `getattr` it may read any attribute.
    reads_any = "getattr" in summary.names or "__dict__" in summary.asked
    asked = None if reads_any else summary.asked
    for name in summary.names:
        value = names[name] if name in names else getattr(builtins, name, None)
        if not all(map(is_allowed, _nested_objects(value, asked))):
            yield f"uses `{name}`"
    # Arguments, their defaults, and closure variables.
    for name, value in given.items():
        if not all(map(is_allowed, _nested_objects(value, asked))):
            yield f"is given `{name}`"


def _rewords(
    summary: _Summary,
    names: Mapping[str, object],
    given: Mapping[str, object],
) -> bool:
    """Return whether a handler may turn an error into one of the user's own classes, which another
    function may catch.
    """
    values = [names[name] for name in summary.every if name in names]
    values += given.values()
    return summary.raises_again and any(
        isinstance(value, types.FunctionType) or _is_own_error(value) for value in values
    )


def _is_special(name: str) -> bool:
    """Return whether an attribute is a special one of Python's that is not there for arithmetic,
    containers or classes: `__class__`, `__reduce__`, ...
    """
    if not (name.startswith("__") and name.endswith("__")) or name in _ORDINARY:
        return False
    return hasattr(object, name) or not any(
        hasattr(kind, name) for kind in (int, float, list, np.ndarray)
    )


_PLAIN = (
    "__init__ __post_init__ __call__ __enter__ __exit__ __new__ __setattr__ __init_subclass__"
    " __name__ __qualname__ __module__ __doc__ __annotations__ __version__ __array__ __jax_array__"
    " __debug__ __future__ __dict__"
)
_ORDINARY = frozenset(_PLAIN.split())
# Limit of the objects that are searched in one value; beyond it the value is not allowed.
_MANY = 1 << 12


def _nested_objects(value: object, names: frozenset[str] | None) -> Iterator[object]:
    """Yield a value and the objects in it: elements of containers, and attributes with these names,
    or all if `names` is None.
    """
    todo = [value]
    seen: dict[int, object] = {}
    while todo:
        part = todo.pop()
        if id(part) not in seen and not isinstance(part, _SINGLE):
            # The dict holds the object: an id is unique only while its object lives.
            seen[id(part)] = part
            # `type` stands for too many objects: it is not allowed.
            yield part if len(seen) <= _MANY else type
            if len(seen) > _MANY:
                return
            todo.extend(_parts(part, names))


_SINGLE = (str, bytes, bool, int, float, complex, type(None), np.ndarray, np.generic, jax.Array)


def _parts(value: object, names: frozenset[str] | None) -> Iterator[object]:
    kind = kind_of(value)
    if kind.shape is not Shape.ARRAY and isinstance(value, CONTAINERS):
        yield from kind.parts(value)
    if isinstance(value, types.ModuleType) and value is not operator and not _is_users(value):
        return
    space = attribute(value, "__dict__", None) or {}
    for name in names if names is not None else [*space, *dir(type(value))]:
        if name.startswith("__"):
            continue
        part = inspect.getattr_static(value, name, None)
        if isinstance(part, types.MemberDescriptorType):
            yield getattr(value, name, None)
        else:
            yield attribute(part, "__func__", part)


def _is_own_error(value: object) -> bool:
    """Return whether a value is an exception class of the user or a library: JAX raises none of
    these for a size.
    """
    module = sys.modules.get(attribute(value, "__module__", ""))
    return (
        isinstance(value, type)
        and issubclass(value, BaseException)
        and module is not None
        and _is_users(module)
    )


@dataclass(frozen=True)
class _Summary:
    """Summary of a function's bytecode.

    Args:
        names: The global names that it reads, except those that only build an error message.
        every: All global names that it reads.
        caught: The global names of the exception classes that it catches and goes on after.
        catches_all: True if it catches others too, or swallows them as a context manager.
        raises_again: True if it has exception handlers, and all of them raise.
        compares: True if it compares two objects by `is`.
        asked: The names of the attributes that it reads.
    """

    names: tuple[str, ...]
    every: tuple[str, ...]
    caught: tuple[str, ...]
    catches_all: bool
    raises_again: bool
    compares: bool
    asked: frozenset[str]


@lru_cache(maxsize=4096)
def _summary(code: types.CodeType) -> _Summary:
    instructions = list(dis.get_instructions(code))
    pairs = list(pairwise(instructions))
    uses = [
        (each.argval, _is_for_error(instructions[at + 1 :]))
        for at, each in enumerate(instructions)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    # Python compiles `except E` to a load of E and CHECK_EXC_MATCH. None stands for a class that is
    # not one global name, such as a tuple or an attribute.
    matches = [
        before.argval if before.opname == "LOAD_GLOBAL" else None
        for before, each in pairs
        if each.opname == "CHECK_EXC_MATCH"
    ]

    # A handler that ends with POP_EXCEPT and no RERAISE behind it has swallowed the exception.
    is_bare = _is_bare(pairs)
    handles = bool(matches) or is_bare
    goes_on = any(a.opname == "POP_EXCEPT" and b.opname != "RERAISE" for a, b in pairs)
    matches_all = not matches or None in matches or is_bare
    classes = [name for name in matches if name is not None]
    attributes = [each.argval for each in instructions if each.opname in _ATTRIBUTES]
    return _Summary(
        names=tuple(dict.fromkeys(name for name, in_error in uses if not in_error)),
        every=tuple(dict.fromkeys(name for name, _ in uses)),
        caught=tuple(classes) if goes_on else (),
        catches_all=(handles and goes_on and matches_all) or _swallows(code, pairs),
        raises_again=handles and not goes_on,
        compares=any(b.opname == "IS_OP" and not _is_single(a) for a, b in pairs),
        asked=frozenset(attributes),
    )


def _is_bare(pairs: Sequence[tuple[dis.Instruction, dis.Instruction]]) -> bool:
    """Return whether there is a bare `except`."""
    # Its handler pops the exception without matching it.
    return any(a.opname == "PUSH_EXC_INFO" and b.opname == "POP_TOP" for a, b in pairs)


def _swallows(
    code: types.CodeType, pairs: Sequence[tuple[dis.Instruction, dis.Instruction]]
) -> bool:
    """Return whether a function is an `__exit__` that may suppress the exception."""
    if code.co_name != "__exit__":
        return False
    # Each return value has to be the constant None or False; `code` stands for an unknown one.
    # RETURN_CONST is an instruction of some versions of Python only.
    values = [
        a.argval if a.opname == "LOAD_CONST" else code
        for a, b in pairs
        if b.opname == "RETURN_VALUE"
    ]
    values += [b.argval for _, b in pairs if b.opname == "RETURN_CONST"]
    return any(value is not None and value is not False for value in values)


def _is_for_error(rest: Sequence[dis.Instruction]) -> bool:
    """Return whether the instructions lead straight to a `raise`."""
    for instruction in rest:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if (
            instruction.is_jump_target
            or instruction.opcode in _JUMPS
            or instruction.opname.startswith(("RETURN", "YIELD", "STORE"))
        ):
            return False
    return False


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")


def _is_single(instruction: dis.Instruction) -> bool:
    """Return whether an instruction loads None, True, False or `...`, none of which is a size."""
    return instruction.opname == "LOAD_CONST" and (
        instruction.argval is None or isinstance(instruction.argval, (bool, type(...)))
    )


def is_allowed(value: object) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES or _is_users(value)
    # Slot wrappers: `object.__eq__` compares by `is`.
    if isinstance(value, (types.WrapperDescriptorType, types.MethodWrapperType)):
        return not _is_special(value.__name__)
    if any(value is barred for barred in _BARRED):
        return False
    # A method of a builtin object: it uses items, hashes and equality, which the hooks see.
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(
        value.__self__, (types.ModuleType, type, type(None))
    ):
        return True
    if isinstance(value, types.BuiltinFunctionType) or (
        isinstance(value, type) and value.__module__ == "builtins"
    ):
        return (
            attribute(value, "__name__", "") in _BUILTINS
            or (attribute(value, "__module__", "") or "").partition(".")[0] in _MODULES
        )
    if isinstance(value, types.MethodType):
        return is_allowed(value.__func__)
    return not isinstance(value, partial) or is_allowed(value.func)


def _is_users(module: types.ModuleType) -> bool:
    return owner(getattr(module, "__file__", None) or "<none>") in ("user", "library")
