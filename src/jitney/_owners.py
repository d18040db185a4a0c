"""Owners of code: which package, or the user, a file, frame or class belongs to.

This module stands first, beside the errors: messages point to the user's lines, and whether code
may look at a size depends on its owner. A file belongs to a package if it is in the folder of that
package. A prefix of its path would not do: `site-packages/jax` is also a prefix of jaxopt, jaxley
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
from typing import Literal, ParamSpec, TypeVar

import equinox
import jax
import jaxlib
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
STARTED = time.time_ns()
"""Time of jitney's first use in this process. A file installed later is not the code that runs."""
Owner = Literal[
    "jitney", "jax", "jaxlib", "equinox", "numpy", "library", "stdlib", "generated", "user"
]


def _whole(path: str) -> str:
    """Normalise a path for comparison with a folder. Thousands of paths are compared, for which
    `pathlib` is slow.
    """
    # With a separator at the end, `startswith` matches whole folder names only.
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
    """`os.path.realpath` with a cache of folders, since it would resolve each folder again for each
    file.
    """
    folder, name = os.path.split(file)
    # `os.path` instead of `pathlib`, for speed: see `_whole`.
    if name in ("", ".", "..") or not os.path.isabs(file) or os.path.islink(file):  # noqa: PTH114, PTH117
        return os.path.realpath(file)
    return os.path.join(_real_folder(folder), name)  # noqa: PTH118


_real_folder = functools.cache(os.path.realpath)


@functools.cache
def owner(file: str) -> Owner:
    """Owner of a file. Text that was never a file (`<string>`, `<stdin>`) is "generated"; for its
    frame use `owner_of`.
    """
    if file.startswith("<"):
        return "stdlib" if file.startswith("<frozen") else "generated"
    path = _whole(_real(file))
    for name, folder in _PACKAGES.items():
        if path.startswith(folder):
            return name
    # Site packages lie within the folder of the standard library, so they are tested first.
    if path.startswith(_SITES) or {"site-packages", "dist-packages"} & set(Path(path).parts):
        return "library"
    return "stdlib" if path.startswith(_STDLIB) else "user"


def owner_of(frame: FrameType) -> Owner:
    """Owner of a frame. "generated" is code that a tool wrote (a dataclass's `__eq__`), which acts
    on behalf of its caller.

    Other code without a file belongs to the module it runs in, or to the user if that has no file:
    a notebook, `python -c`, `exec`.
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
    # A program on standard input names itself `<stdin>`.
    return "user" if file is None or file.startswith("<") else owner(file)


def owner_of_class(kind: type[object]) -> Owner:
    """Owner of a class: that of the module it names, or the user if that has no file, as in a
    notebook.
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
    """Return whether a file belongs neither to jitney, nor to an installed package or the standard
    library.
    """
    return owner(file) in ("user", "generated")


def short(file: str) -> str:
    """Short name of a file for messages: its base name, with the folder if the base name alone is
    uninformative. A cell of a notebook is named as the notebook shows it, `In[3]`.
    """
    cell = _cell(file)
    if cell is not None:
        return cell
    path = Path(file)
    return (
        f"{path.parent.name}/{path.name}"
        if path.name in ("__init__.py", "__main__.py")
        else path.name
    )


def _cell(file: str) -> str | None:
    """Name of a cell of IPython or Jupyter, or None if the file is not one.

    Both name the file of a cell after a hash of its text, `859649049.py`. The compiler of the shell
    has the number of the newest cell with that text, and IPython's own tracebacks ask it too.
    """
    # In a process that has not imported IPython there are no cells, so it is not imported here.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # Before IPython 8 its compiler did not tell.
    name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = None if name is None else name(file)
    return None if named is None else named[1]


def is_naming_cell(frame: FrameType | None) -> bool:
    """Return whether a frame runs because jitney asks IPython for the name of a cell, which is for
    messages and no part of what the user calls.
    """
    # Code of the user's that runs below is a part of the trace all the same.
    if "IPython" not in sys.modules or frame is None or owner_of(frame) == "user":
        return False
    while frame is not None and frame.f_code is not _cell.__code__:
        frame = frame.f_back
    return frame is not None


def package(file: str) -> str | None:
    """Package that a file was installed with, such as `equinox`; None for a file of the user or the
    standard library.
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


def spelled_place(
    file: str,
    line: int | str,
    function: str,
    users: str = "",
) -> str:
    """Text of a location: `fit.py:12 (residual)`, or `_solve.py:801 (lineax's linear_solve)` for a
    library's line.

    If the user's line that led to it is known, that comes first: `fit.py:12 (residual; lineax's
    _solve.py:801)`.

    Args:
        file: The file.
        line: The line number.
        function: The function that contains the line.
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
    """Location of a frame of a trace; for a library's frame, led by the user's line that called it.

    Args:
        frame: The frame.
        line: Line number to name instead of the frame's current one.
    """
    caller: FrameType | None = frame
    # A frame of jitney ends the search: the user's frames beyond it called the program, and are not
    # part of the traced body.
    while caller is not None and (whose := owner_of(caller)) != "user":
        caller = None if whose == "jitney" else caller.f_back
    code = frame.f_code
    users = "" if caller is None or caller is frame else place_of(caller)
    return spelled_place(
        code.co_filename,
        line or frame.f_lineno,
        code.co_name,
        users,
    )


def users_level() -> int:
    """The `stacklevel` at which a warning points to the line that called jitney."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and owner(frame.f_code.co_filename) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level - 1


# Owners of the frames between a trace and its caller.
_BETWEEN = ("jitney", "jax", "jaxlib", "equinox")


def users_function() -> str:
    """Innermost user function on the stack with its line: `step (fit.py:12)`."""
    frame = inspect.currentframe()
    while frame is not None:
        if owner_of(frame) == "user":
            return f"{frame.f_code.co_name} ({short(frame.f_code.co_filename)}:{frame.f_lineno})"
        frame = frame.f_back
    return "a library"


def users_place() -> str:
    """Innermost user line on the stack: `fit.py:12 (step)`."""
    frame = inspect.currentframe()
    while frame is not None:
        if owner_of(frame) == "user":
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return "a library"


def user_line(error: BaseException) -> str | None:
    """Innermost line of a traceback outside of jitney, installed packages and the standard library:
    `fit.py:12 (`if x > 0:`)`.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users(frame.filename):
            code = f" (`{frame.line}`)" if frame.line else ""
            return f"{short(frame.filename)}:{frame.lineno}{code}"
    return None


def shorten(error: BaseException) -> None:
    """Remove jitney's own frames from the traceback of an error that goes to the user, and from its
    causes, as JAX does with its own.

    They are also removed from the stack in the message of a failed run-time check.
    `JITNEY_TRACEBACK=full` keeps them, and so does `jax_traceback_filtering="off"`, which keeps
    JAX's. The caller re-raises with a bare `raise`, which adds no frame.
    """
    if os.environ.get("JITNEY_TRACEBACK", "").strip().lower() == "full":
        return
    if getattr(jax.config, "jax_traceback_filtering", None) == "off":
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]

    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = _drop_own_frames(each.__traceback__)
            if (
                isinstance(each, equinox.EquinoxRuntimeError)
                and each.args
                and type(each.args[0]) is str
            ):
                each.args = (_inside_of_jit(each.args[0]), *each.args[1:])
            waiting += [each.__cause__, each.__context__]


def _drop_own_frames(trace: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    owners = [owner(each.tb_frame.f_code.co_filename) for each in frames]
    # An error that jitney raises while JAX traces ends at the user's line, not at the line of JAX
    # that called jitney: IPython shows the last frame even if JAX has marked it as hidden.
    end = len(frames)
    if owners and owners[-1] == "jitney":
        while end and owners[end - 1] in _BETWEEN:
            end -= 1
    theirs = [each for each, whose in zip(frames[:end], owners, strict=False) if whose != "jitney"]
    # The chain links from the outermost frame inwards, so it is rebuilt from its end.
    kept = None
    for each in reversed(theirs):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def _inside_of_jit(message: str) -> str:
    """Message of a failed run-time check of Equinox, with the stack cut to the frames inside of
    jitney's call.

    Equinox cuts the stack likewise at its own `filter_jit`, and omits its frames and JAX's; it does
    not know of other wrappers.
    """
    head, begins, rest = message.partition(_BEGINS)
    stack, ends, said = rest.partition(_ENDS)
    if not ends:
        return message
    frames = _FRAME.split(stack)
    ours = [_is_ours(frame) for frame in frames]
    if not any(ours):
        return message
    # The first frame of jitney is the outermost: what comes before it called the program.
    outside = ours.index(True)
    kept = [frame for i, frame in enumerate(frames) if i > outside and not ours[i]]
    return "".join([head, begins, *kept, ends, said])


def _is_ours(frame: str) -> bool:
    return owner(frame.partition('  File "')[2].partition('", line ')[0]) == "jitney"


# Text of Equinox 0.13.3 to 0.13.8; a message with another text keeps its full stack.
_BEGINS = "Below is the stack inside of JIT:\n"
_ENDS = "\nequinox.EquinoxRuntimeError: "
# Source lines are indented further than the line of their frame.
_FRAME = re.compile('^(?=  File ")', re.MULTILINE)


def public(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call, so that an error leaving it shows only their frames. It
    is meant for functions that are called rarely; a warm call does this itself.
    """

    @functools.wraps(fn)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return shown
