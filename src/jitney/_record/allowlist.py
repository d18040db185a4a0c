"""Allow list of the standard library, and the names that code must not read or call if its result
is to be a function of what it reads.

Clocks, random numbers, the environment, files, frames and addresses differ between processes; none
of them can be in a key.
"""

from __future__ import annotations

import os
import time

from .._jax.trees import attribute
from .origin import is_installed, is_known
from .unsure import NotDeterministic

_PURE = frozenset(
    (
        "builtins",
        "math",
        "cmath",
        "functools",
        "_functools",
        "itertools",
        "operator",
        "_operator",
        "collections",
        "_collections",
        "_collections_abc",
        "typing",
        "_typing",
        "types",
        "_types",
        "dataclasses",
        "enum",
        "abc",
        "_abc",
        "numbers",
        "fractions",
        "copy",
        "contextlib",
        "string",
        "bisect",
        "_bisect",
        "heapq",
        "_heapq",
        "__future__",
        "re",
    )
)
_BARRED_BUILTINS = frozenset(
    (
        "open",
        "input",
        "eval",
        "exec",
        "compile",
        "globals",
        "locals",
        "vars",
        "dir",
        "id",
        "hash",
        "getattr",
        "hasattr",
        "setattr",
        "delattr",
        "__import__",
        "breakpoint",
        "print",
        "help",
        "memoryview",
    )
)
_SETS = ("set", "frozenset")
_BARRED_OF = {
    "operator": ("attrgetter", "methodcaller"),
    "typing": ("get_type_hints",),
    "dataclasses": ("fields", "asdict", "astuple"),
    # "now" and "today" are the current time
    "numpy": ("datetime64",),
}
BARRED_ATTRIBUTES = frozenset(
    (
        "__code__",
        "__dict__",
        "__globals__",
        "__closure__",
        "__subclasses__",
        "__builtins__",
        "__annotations__",
        "__doc__",
        "__defaults__",
        "__kwdefaults__",
        "__wrapped__",
        "__firstlineno__",
        "__line__",
        "f_back",
        "f_globals",
        "f_locals",
        "gi_frame",
        "cr_frame",
        "tb_frame",
        "__getattribute__",
        "attrgetter",
        "methodcaller",
        "__signature__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__orig_bases__",
        "__parameters__",
        "__type_params__",
        "__abstractmethods__",
        "__static_attributes__",
        "__hash__",
        "memory_stats",
        "live_arrays",
        "live_buffers",
        "is_ready",
        "ctypes",
        "unsafe_buffer_pointer",
        "__array_interface__",
        "__array_namespace__",
        "cache_info",
        "cache_clear",
    )
)
"""Attributes that bypass names, or that show more of a function or class than its digest covers."""
FORMATS = frozenset(("format", "format_map", "vformat", "get_field", "Formatter"))
"""Names of functions that read attributes named inside of a format string."""
_READS_FILES = frozenset(
    ("load", "loadtxt", "genfromtxt", "fromfile", "memmap", "fromregex", "DataSource")
)
_CALLS = frozenset(
    getattr(module, name)
    for module, names in (
        (
            time,
            (
                "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time"
                " process_time_ns localtime gmtime strftime"
            ),
        ),
        (os, "urandom getpid getcwd listdir scandir open"),
    )
    for name in names.split()
    if hasattr(module, name)
)
_BARRED_CALLS = _CALLS | {open}
ENVIRONMENT = frozenset(("getenv", "__getitem__", "__iter__", "__len__", "copy"))
"""Functions of `os.py` through which the environment is read."""


def check_module(name: str, *, stdlib: bool) -> None:
    """Refuse a module by its name.

    Raises:
        NotDeterministic: Its functions are not functions of their arguments.
    """
    root = name.partition(".")[0]
    if not stdlib and is_installed(name) and not is_known(name):
        raise NotDeterministic(
            f"it uses the package `{root}`, which has not been checked for a state of its own"
        )
    if stdlib and root not in _PURE:
        raise NotDeterministic(f"it reads `{name}`, which may differ in another process")
    if name.startswith("numpy.random"):
        raise NotDeterministic(f"it reads `{name}`, which may differ in another process")


def check_name(module: str, name: str) -> None:
    """Refuse a function by its name.

    Raises:
        NotDeterministic: It reads something that is not in its arguments.
    """
    if module == "builtins" and name in _BARRED_BUILTINS:
        raise NotDeterministic(f"it uses `{name}`, and what that reads is not followed")
    if module == "builtins" and name in _SETS:
        raise NotDeterministic(f"it uses `{name}`, whose order may be another in each process")
    if name in _BARRED_OF.get(module.lstrip("_"), ()):
        raise NotDeterministic(f"it uses `{module}.{name}`, and what that reads is not followed")
    if module.partition(".")[0] in ("numpy", "jax") and name in _READS_FILES:
        raise NotDeterministic(f"it uses `{module}.{name}`, which reads files")


def is_barred_call(called: object) -> bool:
    """Return whether a builtin function returns something that differs between processes."""
    try:
        if called in _BARRED_CALLS:
            return True
    # The callable is not hashable.
    except TypeError:
        return False
    owner = attribute(called, "__self__", None)
    module = attribute(called, "__module__", None) or type(owner).__module__
    return isinstance(module, str) and module.startswith(
        ("_random", "random", "numpy.random", "secrets", "_io", "socket", "_socket", "mmap")
    )
