"""Names under which JAX shows a function of flat arrays and its arguments, in messages, profiles
and the text of programs: those of the user's function.

JAX reads both from `inspect.unwrap` and `inspect.signature`, so the names must be set before `jit`
and any other transform that traces.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jax.extend import source_info_util

Flat = TypeVar("Flat", bound=Callable[..., Any])


@functools.cache
def hide_own_frames() -> None:
    """Exclude the files of jitney from those that JAX takes for the user's, in source lines of
    messages and of compiled programs.

    Runs once in a process, before the first trace, because an import of jitney must not change JAX.
    """
    source_info_util.register_exclusion(f"{Path(__file__).parents[1]}{os.sep}")


class _Path(inspect.Parameter):
    """A positional parameter with a path for a name, such as `params['w']`, which `inspect` would
    reject as an identifier.
    """

    def __init__(self, path: str, *, rest: bool = False):
        super().__init__(
            "path", inspect.Parameter.VAR_POSITIONAL if rest else inspect.Parameter.POSITIONAL_ONLY
        )
        self._path = path

    @property
    def name(self) -> str:
        return self._path


# the extra arguments of a padded call, after its arrays; a blank cannot be in an argument's name
_REST = _Path("true sizes", rest=True)


def rename(flat: Flat, fn: object, paths: Sequence[str]) -> Flat:
    """Give a function of flat arrays the name, file and line of the user's function, and its
    arguments their paths as names.

    It holds no reference to the user's function: what JAX caches of a trace must not keep that
    alive.
    """
    hide_own_frames()
    where = _code_of(fn)
    set_: Any = flat
    if isinstance(where, types.CodeType) and len({*paths}) == len(paths):
        set_.__wrapped__ = _stand_in(where)
        set_.__signature__ = inspect.Signature([*map(_Path, paths), _REST])
    return flat


def named_like(flat: Flat, other: Any) -> Flat:
    """Give a function of flat arrays the names of another function of the same arrays."""
    named: Any = flat
    if (
        isinstance(flat, types.FunctionType)
        and named is not other
        and hasattr(other, "__signature__")
    ):
        named.__wrapped__, named.__signature__ = other.__wrapped__, other.__signature__
    return named


def body_of(jitted: Any) -> Any:
    """Return the function of flat arrays inside of a jitted one, not the stand-in for the user's
    function.
    """
    return inspect.unwrap(
        jitted, stop=lambda fn: hasattr(getattr(fn, "__wrapped__", None), "stands_in")
    )


def _code_of(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    return getattr(fn if hasattr(fn, "__code__") else type(fn).__call__, "__code__", None)


def _stand_in(where: types.CodeType) -> Callable[[], None]:
    def nothing() -> None: ...

    # JAX reads name, file and line from the code object; the body never runs.
    nothing.__code__ = nothing.__code__.replace(
        co_filename=where.co_filename, co_firstlineno=where.co_firstlineno, co_name=where.co_name
    )
    nothing.__name__ = nothing.__qualname__ = where.co_name
    nothing.__dict__["stands_in"] = True
    return nothing
