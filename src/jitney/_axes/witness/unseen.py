"""Whether code that a trace has run may have looked at a size in a way that nobody sees.

`type(n)` and `n is m` ask nothing of the object, so no hook sees them, and who catches the error of `float(n)` goes on another way. So the
functions that have run, those of JAX aside, are held against what is allowed: all operations but `is` of two objects, no handler of
exceptions, and of the global names only numbers, modules and functions that are known to ask nothing, and functions written in Python,
which are looked at when they run. Whatever is not on the list is no error: it costs a trace for each new size.
"""

from __future__ import annotations

import builtins
import dis
import gc
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..._jax.trees import is_a
from ..._owners import owner

_TRUSTED = ("jax", "jaxlib", "jitney", "equinox", "numpy", "stdlib", "generated")
"""They ask of objects what they are, and act alike."""
_COMPANIONS = frozenset(("jaxtyping", "beartype", "wadler_lindig", "opt_einsum", "typing_extensions.py"))
"""What JAX and Equinox call."""
_MODULES = ("jax", "jaxlib", "jitney", "numpy", "math", "functools", "itertools", "collections", "typing", "dataclasses", "enum", "abc",
            "equinox", "jaxtyping", "beartype", "warnings")  # fmt: skip
_NAMES = (
    "abs all any bool bytes callable complex dict divmod enumerate filter float frozenset getattr hasattr int isinstance issubclass iter "
    "len list map max min next object pow print property range reversed round set setattr slice sorted staticmethod classmethod str "
    "sum super "
    "tuple zip ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NotImplementedError OverflowError "
    "RuntimeError StopIteration TypeError ValueError ZeroDivisionError NotImplemented Ellipsis __build_class__ __import__ __debug__"
)
_BUILTINS = frozenset(_NAMES.split())
"""`isinstance`, `hasattr` and their kin ask for attributes, which is seen; conversions raise, or are seen."""


_BLIND = "other tools watch the code that runs, so that nobody sees whether it looks at sizes"


@contextmanager
def scanned(report: Callable[[str], None]) -> Generator[None]:
    """Report each function that runs here, in this thread, and that may look at a size unseen, with its line and what it holds."""
    seen: set[types.CodeType] = set()

    def started(frame: types.FrameType) -> None:
        code = frame.f_code
        seen.add(code)
        if not _is_trusted(code.co_filename) and not _is_collecting(frame):
            for what in _unknown(code, frame.f_globals, frame.f_locals):
                report(f"{Path(code.co_filename).name}:{code.co_firstlineno} ({code.co_name}) {what}")
                return

    with (_monitored if sys.version_info >= (3, 12) else _profiled)(seen, started, report):
        yield


def _is_trusted(file: str) -> bool:
    return owner(file) in _TRUSTED or not _COMPANIONS.isdisjoint(Path(file).parts)


def _is_collecting(frame: types.FrameType | None) -> bool:
    """Whether code runs because Python collects garbage just now."""
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while callbacks and frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _profiled(seen: set[types.CodeType], started: Callable[..., None], report: Callable[[str], None]) -> Generator[None]:
    """By a profile function, in Python 3.11."""

    outer = sys.getprofile()
    if outer is not None and not is_a(outer, _Profile):
        report(_BLIND)
        yield
        return
    sys.setprofile(_Profile(seen, started, outer))
    try:
        yield
    finally:
        sys.setprofile(outer)


class _Profile:
    """A profile function; a trace inside another tells both."""

    def __init__(self, seen: set[types.CodeType], started: Callable[..., None], outer: Any):
        self.seen, self.started, self.outer = seen, started, outer

    def __call__(self, frame: types.FrameType, what: str, value: Any) -> None:
        if what == "call" and frame.f_code not in self.seen:
            self.started(frame)
        if self.outer is not None:
            self.outer(frame, what, value)


@contextmanager
def _monitored(seen: set[types.CodeType], started: Callable[..., None], report: Callable[[str], None]) -> Generator[None]:
    """By `sys.monitoring`, which costs next to nothing."""
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - of Python 3.12
    tool = next((i for i in (3, 4, 5, 2, 1, 0) if monitoring.get_tool(i) is None), None)
    if tool is None:
        report(_BLIND)
        yield
        return
    here = threading.get_ident()

    def event(code: types.CodeType, _: int) -> Any:
        if threading.get_ident() != here:
            return None
        if code not in seen:
            started(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "jitney")
    monitoring.register_callback(tool, monitoring.events.PY_START, event)
    monitoring.set_events(tool, monitoring.events.PY_START)
    monitoring.restart_events()
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.PY_START, None)
        monitoring.free_tool_id(tool)


def _unknown(code: types.CodeType, names: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """What a function does that is not on the list."""
    globals_, handles, compares = _summary(code)
    if handles:
        yield "handles exceptions"
    if compares:
        yield "compares objects by `is`"
    for name in globals_:
        value = names[name] if name in names else getattr(builtins, name, None)
        if not _is_allowed(value):
            yield f"uses `{name}`"
    for name, value in given.items():  # arguments, their defaults, and what it closes over
        if not _is_allowed(value):
            yield f"is given `{name}`"


@lru_cache(maxsize=4096)
def _summary(code: types.CodeType) -> tuple[tuple[str, ...], bool, bool]:
    """The global names of a function, whether it handles exceptions, and whether it asks if two objects are one."""
    instructions = list(dis.get_instructions(code))
    names = tuple(dict.fromkeys(i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")))
    handles = any(i.opname == "CHECK_EXC_MATCH" for i in instructions) or any(
        a.opname == "PUSH_EXC_INFO" and b.opname == "POP_TOP" for a, b in pairwise(instructions)
    )
    return names, handles, any(b.opname == "IS_OP" and not _is_single(a) for a, b in pairwise(instructions))


def _is_single(instruction: dis.Instruction) -> bool:
    """Whether an instruction puts None, True, False or ... there, which no size is."""
    return instruction.opname == "LOAD_CONST" and (instruction.argval is None or is_a(instruction.argval, (bool, type(...))))


def _is_allowed(value: Any) -> bool:
    if is_a(value, types.ModuleType):
        top = value.__name__.partition(".")[0]
        return top in _MODULES or owner(getattr(value, "__file__", None) or "<none>") in ("user", "library")
    if is_a(value, types.BuiltinFunctionType) or (is_a(value, type) and value.__module__ == "builtins"):
        return getattr(value, "__name__", "") in _BUILTINS or (getattr(value, "__module__", "") or "").partition(".")[0] in _MODULES
    return not is_a(value, partial) or _is_allowed(value.func)
