"""How JAX names a function of flat arrays and its arguments: as the user does, in messages, in
profiles and in the text of programs.

JAX reads both from `inspect.unwrap` and `inspect.signature`. It stands before `jit` and all else
that traces.
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
    """Have JAX count the files of jitney among those that are not the user's: in what it and XLA
    say of a line, and what they print.

    Once in a process, when the first function is traced: an import has no effects on JAX.
    """
    source_info_util.register_exclusion(f"{Path(__file__).parents[1]}{os.sep}")


class _Path(inspect.Parameter):
    """A positional argument that is called by a path, such as `params['w']`, which `inspect` takes
    for no name.
    """

    def __init__(self, path: str, *, rest: bool = False):
        super().__init__(
            "path", inspect.Parameter.VAR_POSITIONAL if rest else inspect.Parameter.POSITIONAL_ONLY
        )
        self._path = path

    @property
    def name(self) -> str:
        return self._path


# of a padded call, which stand behind its arrays; no argument has a blank in its name
_REST = _Path("true sizes", rest=True)


def named_as(flat: Flat, fn: Any, paths: Sequence[str]) -> Flat:
    """A function of flat arrays that JAX calls by the name, file and line of the user's, and its
    arguments by their paths.

    The user's function is not held: what JAX keeps of a trace must not keep it alive.
    """
    hide_own_frames()
    where = _code_of(fn)
    set_: Any = flat
    if isinstance(where, types.CodeType) and len({*paths}) == len(paths):
        set_.__wrapped__ = _stand_in(where)
        set_.__signature__ = inspect.Signature([*map(_Path, paths), _REST])
    return flat


def named_like(flat: Flat, other: Any) -> Flat:
    """A function of the same flat arrays as another, called as that one is."""
    named: Any = flat
    if (
        isinstance(flat, types.FunctionType)
        and named is not other
        and hasattr(other, "__signature__")
    ):
        named.__wrapped__, named.__signature__ = other.__wrapped__, other.__signature__
    return named


def body_of(jitted: Any) -> Any:
    """The function of flat arrays that JAX has jitted, which is no stand-in for the user's."""
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

    nothing.__code__ = nothing.__code__.replace(
        co_filename=where.co_filename, co_firstlineno=where.co_firstlineno, co_name=where.co_name
    )
    nothing.__name__ = nothing.__qualname__ = where.co_name
    nothing.__dict__["stands_in"] = True
    return nothing
