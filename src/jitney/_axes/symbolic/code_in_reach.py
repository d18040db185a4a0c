"""Find all code that a call may run before it runs, so that nothing has to be observed while it is
traced.

Observing each function that starts (`executed_code.py`) takes a profile function in Python 3.11,
which made the trace of a small body take three times as long. Most bodies are plain functions that
name modules, numbers and other plain functions:

    def misfit(theta, x, y):           names `kernel`, `jnp`, `jax`, `math`
        ... kernel(theta, x, x) ...    names `jnp`

Where each name in reach is one of these, the bytecode audit needs no run. An object of another
class has methods that run unnamed, so one of them is enough for the observer to be used.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable, Iterator
from functools import partial

import jax
import numpy as np

from ..._jax.trees import attribute
from ..._owners import owner, owner_of_class
from ..._values.kinds import kind_of
from .bytecode_audit import Summary, is_allowed, is_listed, summary_of, violations
from .executed_code import is_trusted

_PLAIN = (
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    type(None),
    type(...),
    # A mark, which code can only tell apart.
    object,
)
_MOST = 2000
"""Limit of the objects that are looked at; beyond it the code counts as unknown."""


def reads_no_size(
    fn: object,
    values: Iterable[object],
) -> bool:
    """Return whether all code that the call of a function may run is known, and passes the audit.

    Args:
        fn: The user's function.
        values: Its arguments.
    """
    none = frozenset[str]()
    todo = [(value, none) for value in (fn, *values)]
    # The dict holds the objects: an id is unique only while its object lives.
    seen: dict[object, object] = {}
    try:
        while todo:
            value, asked = todo.pop()
            key = id(value), asked
            if key in seen:
                continue
            seen[key] = value
            if len(seen) > _MOST or not is_allowed(value):
                return False
            todo += _in_reach(value, asked)
    except _UnknownError:
        return False
    return True


class _UnknownError(Exception):
    """Code is in reach that is not known before it runs."""


Reached = Iterator[tuple[object, frozenset[str]]]
"""Objects, with the names of the attributes that the code reads."""


def _in_reach(
    value: object,
    asked: frozenset[str],
) -> Reached:
    """Yield what code reaches from a value by reading attributes with these names.

    Raises:
        _UnknownError: The value may run code that it does not name.
    """
    if isinstance(value, types.ModuleType):
        yield from _in_module(value, asked)
    elif _is_data(value) or _is_of_its_module(value):
        return
    elif isinstance(value, types.FunctionType):
        yield from _in_function(value)
    elif type(value) in _CONTAINERS:
        for part in kind_of(value).parts(value):
            yield part, asked
    elif isinstance(value, partial) and type(value) in _PARTIAL:
        yield value.func, asked
        yield value.args, asked
        yield value.keywords, asked
    elif _is_jitted(value):
        yield attribute(value, "__wrapped__"), asked
    elif owner_of_class(type(value)) == "jax" and not callable(value):
        # A mark of JAX's own, such as that of an axis without a name.
        yield attribute(value, "__dict__"), asked
    else:
        raise _UnknownError


# Not their subclasses, which may have methods of the user's.
_PARTIAL = (partial, jax.tree_util.Partial)
_CONTAINERS = (tuple, list, set, frozenset, dict)


def _is_data(value: object) -> bool:
    """Return whether a value runs none but trusted code: a number, a text, an array, a tracer."""
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype != object
    is_array = isinstance(value, (jax.Array, np.generic, np.dtype))
    return type(value) in _PLAIN or (is_array and owner_of_class(type(value)) in _ARRAYS)


_ARRAYS = ("jax", "jaxlib", "numpy")


def _is_of_its_module(value: object) -> bool:
    """Return whether a value stands in a trusted module under its own name."""
    module = sys.modules.get(str(attribute(value, "__module__")))
    name = str(attribute(value, "__name__"))
    known = module is builtins or (module is not None and is_listed(module))
    return known and vars(module).get(name) is value


def _is_jitted(value: object) -> bool:
    """Return whether a value is what `jax.jit` returns."""
    return type(value) is _JITTED and isinstance(
        attribute(value, "__wrapped__"), types.FunctionType
    )


_JITTED = type(jax.jit(lambda: None))


def _in_module(
    module: types.ModuleType,
    asked: frozenset[str],
) -> Reached:
    space = vars(module)
    if is_listed(module):
        # Its members are its own, unless they were replaced.
        for name in asked & space.keys():
            member = space[name]
            if isinstance(member, types.ModuleType):
                yield member, asked
            elif not _is_own(member):
                raise _UnknownError
    elif "__getattr__" in space:
        raise _UnknownError
    else:
        for name in asked & space.keys():
            yield space[name], asked


def _is_own(member: object) -> bool:
    """Return whether a member of a trusted module is written in trusted code."""
    while not isinstance(member, types.FunctionType):
        inner = attribute(member, "__wrapped__")
        if inner is None:
            kind = member if isinstance(member, type) else type(member)
            return owner_of_class(kind) not in _UNTRUSTED
        member = inner
    return _is_of_library(member)


def _is_of_library(fn: types.FunctionType) -> bool:
    """Return whether a function is written in a file of a trusted package. Code without a file may
    be typed by the user.
    """
    file = fn.__code__.co_filename
    return is_trusted(file) and owner(file) != "generated"


_UNTRUSTED = ("user", "library")


def _in_function(fn: types.FunctionType) -> Reached:
    """Yield what a function names, closes over, and has as defaults."""
    given = _enclosed(fn)
    code = fn.__code__
    if _is_of_library(fn):
        # A function that one of JAX has made, such as that of `jax.vmap(f)`.
        none = frozenset[str]()
        yield given, none
        yield fn.__dict__, none
        return
    for part in _codes(code):
        summary = _known(part)
        enclosed = given if part is code else {}
        if any(violations(part, fn.__globals__, enclosed)):
            raise _UnknownError
        for name in summary.every:
            builtin = getattr(builtins, name, None)
            value = fn.__globals__.get(name, builtin)
            yield value, summary.asked
        yield given, summary.asked
        yield fn.__dict__, summary.asked


def _enclosed(fn: types.FunctionType) -> dict[str, object]:
    """The values of closure variables and defaults by name.

    Raises:
        _UnknownError: A variable has no value yet.
    """
    names = fn.__code__.co_freevars
    try:
        cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    except ValueError:
        raise _UnknownError from None
    given: dict[str, object] = dict(zip(names, cells, strict=True))
    given["defaults"] = fn.__defaults__
    given["keyword defaults"] = fn.__kwdefaults__
    return given


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of the functions inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _known(code: types.CodeType) -> Summary:
    """The summary of code that names all that it runs.

    Raises:
        _UnknownError: It defines a class, imports, or reads attributes whose names are not known.
    """
    summary = summary_of(code)
    reads_any = "getattr" in summary.every or "__dict__" in summary.asked
    if summary.makes_names or reads_any:
        raise _UnknownError
    return summary
