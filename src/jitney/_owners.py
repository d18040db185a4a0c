"""Whose code a file or a frame is: the one place that says so.

It stands first, beside the errors: messages point to the user's lines, and what may look at a size,
and what may not, depends on who looks. A file belongs to a package if it lies in the folder of that
package. The first letters of its path say nothing: `site-packages/jax` also begins jaxopt, jaxley
and jax_md.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import site
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

import equinox
import jax
import jaxlib
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
STARTED = time.time_ns()
"""When jitney was first used in this process: what was installed later is not what runs."""
Owner = Literal[
    "jitney", "jax", "jaxlib", "equinox", "numpy", "library", "stdlib", "generated", "user"
]


def _whole(path: str) -> str:
    """A path as it is compared with others: some thousand are, for which `pathlib` takes its
    time.
    """
    return os.path.normcase(path) + os.sep


_PACKAGES: dict[Owner, str] = {
    "jitney": _whole(os.path.realpath(Path(__file__).parent)),
    "jax": _whole(os.path.realpath(Path(jax.__file__).parent)),
    "jaxlib": _whole(os.path.realpath(Path(jaxlib.__file__).parent)),
    "equinox": _whole(os.path.realpath(Path(equinox.__file__).parent)),
    "numpy": _whole(os.path.realpath(Path(np.__file__).parent)),
}
_SITES = tuple(
    _whole(os.path.realpath(folder))
    for folder in (
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
        site.getusersitepackages(),
    )
)
_STDLIB = tuple(
    _whole(os.path.realpath(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib")
)


def _real(file: str) -> str:
    """`os.path.realpath`, which looks at each folder on the way again for each file."""
    folder, name = os.path.split(file)
    if name in ("", ".", "..") or not os.path.isabs(file) or os.path.islink(file):  # noqa: PTH114, PTH117 - see `_whole`
        return os.path.realpath(file)
    return os.path.join(_real_folder(folder), name)  # noqa: PTH118


_real_folder = functools.cache(os.path.realpath)


@functools.cache
def owner(file: str) -> Owner:
    """Whose a file is. Text that was never a file (`<string>`, `<stdin>`) is generated; its frame
    says more: see `owner_of`.
    """
    if file.startswith("<"):
        return "stdlib" if file.startswith("<frozen") else "generated"
    path = _whole(_real(file))
    for name, folder in _PACKAGES.items():
        if path.startswith(folder):
            return name
    if path.startswith(_SITES) or {"site-packages", "dist-packages"} & set(Path(path).parts):
        return "library"
    return "stdlib" if path.startswith(_STDLIB) else "user"


def owner_of(frame: FrameType) -> Owner:
    """Whose a frame is; "generated" is what a tool wrote (a dataclass's `__eq__`), which acts for
    whoever called it.

    All else without a file is of the module that it runs in, and of the user where that has none: a
    notebook, `python -c`, `exec`.
    """
    code = frame.f_code
    name = owner(code.co_filename)
    if (
        name != "generated"
        or code.co_qualname.startswith("__create_fn__.")
        or code.co_filename.startswith("<attrs generated")
    ):
        return name
    module = sys.modules.get(frame.f_globals.get("__name__", ""))
    file: str | None = getattr(module, "__file__", None)
    return "user" if file is None else owner(file)


def owner_of_class(kind: type[Any]) -> Owner:
    """Whose a class is: of the module that it names, and of the user where that has no file, as in
    a notebook.
    """
    module = sys.modules.get(kind.__module__)
    file: str | None = getattr(module, "__file__", None)
    if file is not None:
        return owner(file)
    return (
        "stdlib"
        if kind.__module__ in sys.stdlib_module_names and kind.__module__ != "__main__"
        else "user"
    )


def is_users(file: str) -> bool:
    """Whether a file is neither jitney's, nor of an installed package or the standard library."""
    return owner(file) in ("user", "generated")


def short(file: str) -> str:
    """A file as messages name it: its name, and the folder too where the name alone says
    nothing.
    """
    path = Path(file)
    return (
        f"{path.parent.name}/{path.name}"
        if path.name in ("__init__.py", "__main__.py")
        else path.name
    )


def package(file: str) -> str | None:
    """The package that a file was installed with, `equinox`; None of a file of the user's, or of
    Python's own.
    """
    name = owner(file)
    if name in _PACKAGES:
        return name
    parts = Path(file).parts
    last = max(
        (i for i, part in enumerate(parts) if part in ("site-packages", "dist-packages")),
        default=None,
    )
    return None if name != "library" or last is None else parts[last + 1].removesuffix(".py")


def spelled_place(file: str, line: int | str, function: str, users: str = "") -> str:
    """`fit.py:12 (residual)`; `_solve.py:801 (lineax's linear_solve)` of a library's line.

    The user's line that led to that one comes first where it is known: `fit.py:12 (residual;
    lineax's _solve.py:801)`.

    Args:
        file: Where it is.
        line: Its number.
        function: What it belongs to.
        users: The user's line, as this function spells it, or "".
    """
    library = package(file)
    of = "" if library is None else f"{library}'s "
    if not users or is_users(file):
        return f"{short(file)}:{line} ({of}{function})"
    return (
        f"{users[:-1].partition('; ')[0]}; {of}{short(file)}:{line})"
        if users.endswith(")")
        else users
    )


def place_of(frame: FrameType, line: int | None = None) -> str:
    """Where a frame of a trace is; of a library's, the user's line that called it first.

    Args:
        frame: It.
        line: The line to name in place of the one that it is at.
    """
    caller: FrameType | None = frame
    while caller is not None and (whose := owner_of(caller)) != "user":
        caller = None if whose == "jitney" else caller.f_back
    code = frame.f_code
    users = "" if caller is None or caller is frame else place_of(caller)
    return spelled_place(code.co_filename, line or frame.f_lineno, code.co_name, users)


def users_level() -> int:
    """The `stacklevel` at which a warning points to the line that called jitney."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and owner(frame.f_code.co_filename) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level - 1


_BETWEEN = ("jitney", "jax", "jaxlib", "equinox")  # what stands between a trace and whoever called


def users_function() -> str:
    """`step (fit.py:12)`: the user's function that called jitney, and its line; of those on the
    stack the innermost.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if owner_of(frame) == "user":
            return f"{frame.f_code.co_name} ({short(frame.f_code.co_filename)}:{frame.f_lineno})"
        frame = frame.f_back
    return "a library"


def users_place() -> str:
    """`fit.py:12 (step)`: the innermost line of the user's on the stack."""
    frame = inspect.currentframe()
    while frame is not None:
        if owner_of(frame) == "user":
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return "a library"


def user_line(error: BaseException) -> str | None:
    """`fit.py:12 (`if x > 0:`)`: the innermost line of the traceback outside jitney, installed
    packages and the standard library.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users(frame.filename):
            code = f" (`{frame.line}`)" if frame.line else ""
            return f"{short(frame.filename)}:{frame.lineno}{code}"
    return None


def shorten(error: BaseException) -> None:
    """Leave jitney's own frames out of the traceback of an error that goes to the user, and of its
    causes, as JAX does with its own.

    So they are out of the stack in the message of a failed run-time check.

    `JITNEY_TRACEBACK=full` keeps them. Whoever calls this re-raises with a bare `raise`, which adds
    no frame again.
    """
    if os.environ.get("JITNEY_TRACEBACK", "").strip().lower() == "full":
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = _without_ours(each.__traceback__)
            if (
                isinstance(each, equinox.EquinoxRuntimeError)
                and each.args
                and type(each.args[0]) is str
            ):
                each.args = (_inside_of_jit(each.args[0]), *each.args[1:])
            waiting += [each.__cause__, each.__context__]


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    theirs: list[TracebackType] = []
    while trace is not None:
        if owner(trace.tb_frame.f_code.co_filename) != "jitney":
            theirs.append(trace)
        trace = trace.tb_next
    kept = None
    for each in reversed(theirs):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def _inside_of_jit(message: str) -> str:
    """The message of a failed run-time check of Equinox, whose stack begins behind the frame of
    jitney that the function was called by.

    Equinox cuts it so at its own `filter_jit`, whose frames and those of JAX it leaves out; it
    knows of no other.
    """
    head, begins, rest = message.partition(_BEGINS)
    stack, ends, said = rest.partition(_ENDS)
    if not ends:
        return message
    frames = _FRAME.split(stack)
    ours = [_is_ours(frame) for frame in frames]
    if not any(ours):
        return message
    outside = ours.index(True)
    kept = [frame for i, frame in enumerate(frames) if i > outside and not ours[i]]
    return "".join([head, begins, *kept, ends, said])


def _is_ours(frame: str) -> bool:
    return owner(frame.partition('  File "')[2].partition('", line ')[0]) == "jitney"


# In the words of Equinox 0.13.3 to 0.13.8; in others the stack stays as it is.
_BEGINS = "Below is the stack inside of JIT:\n"
_ENDS = "\nequinox.EquinoxRuntimeError: "
_FRAME = re.compile('^(?=  File ")', re.MULTILINE)  # lines of code stand further in


def public(fn: Callable[P, R]) -> Callable[P, R]:
    """What users call: an error that leaves it shows their frames. For what is called once in a
    while; a warm call does so itself.
    """

    @functools.wraps(fn)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    shown_: Any = shown
    return shown_
