"""Messages for code that needs a size as a Python number: the user's line, the expression, and a
way to write it without the number.
"""

from __future__ import annotations

import ast
import linecache
import traceback

import jax.numpy as jnp

from ..._owners import is_users, owner, short

_JAX = {
    "convolve": "`jax.scipy.signal.convolve`",
    "correlate": "`jax.scipy.signal.correlate`",
    "accumulate": "`jax.lax.cummax`, `cummin`, `cumsum` or `cumprod`",
    "take": "`x[i % x.shape[0]]`",
    "searchsorted": "`jnp.sum(table < x[..., None], -1)`",
}
"""Functions of `jax.numpy` that need the length of an array as a number -> a replacement that does
not.
"""

_INTERNAL = ("_DimExpr", "Symbolic dimension", "has no attribute")
"""Marks of messages about the inside of JAX's symbolic dimensions; the expression says more than
these.
"""


def place(error: BaseException) -> str:
    """The innermost line of the user's code in a traceback, or ""."""
    frame = _innermost(error)
    return f"{short(frame.filename)}:{frame.lineno} ({frame.name})" if frame else ""


def explain_size_error(error: BaseException) -> str:
    """Explain an error by the size that code needs: the expression, and a replacement.

    Args:
        error: The error of JAX, NumPy or Python where code used a symbolic size as a number.
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_jax = [frame for frame in frames if owner(frame.filename) == "jax"]
    asking = next((frame.name for frame in of_jax if frame.name in _JAX), None)
    if asking:
        return f"needs to know a size (asked by JAX's `{asking}`; not by {_JAX[asking]})"
    expression, text = _expression(_innermost(error)), first_line(error)
    if not expression:
        return f"needs to know a size: {text}"
    why = f"needs to know a size, for `{expression}`"
    is_position = "as an integer" in text or "__index__" in text
    instead = _instead(expression, is_position=is_position)
    if instead:
        return f"{why}; {instead}"
    if any(words in text for words in _INTERNAL):
        return why
    return f"{why}: {text}"


def first_line(error: BaseException) -> str:
    """The first line of an error."""
    return str(error).strip().partition("\n")[0].rstrip(":.") or type(error).__name__


def _instead(expression: str, *, is_position: bool) -> str:
    """A replacement for an expression of Python that needs a number, as a position of an element or
    otherwise; "" if there is none.
    """
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return ""
    match node:
        case ast.Call(ast.Name("len"), [array]):
            return f"`{ast.unparse(array)}.shape[0]` is the same"
        case ast.Call(ast.Name("int" | "float"), [number]):
            return f"`{ast.unparse(number)}` alone will do in an operation of JAX"
        case ast.Call(ast.Name("range")):
            return "write `jax.lax.fori_loop`, `jax.lax.scan` or `jax.vmap`"
        case ast.Call(ast.Attribute(ast.Name("np" | "numpy" | "math"), name)) if hasattr(jnp, name):
            return f"write `jnp.{name}`"
        case ast.BinOp(ast.List(), ast.Mult()) | ast.BinOp(_, ast.Mult(), ast.List()):
            return "write `jnp.full` or `jnp.tile`"
        case ast.Subscript(array, place) if is_position:
            return f"write `jnp.asarray({ast.unparse(array)})[{ast.unparse(place)}]`"
        case _:
            return ""


def _innermost(error: BaseException) -> traceback.FrameSummary | None:
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_users(frame.filename)]
    return users[-1] if users else None


def _expression(frame: traceback.FrameSummary | None) -> str:
    """The expression that a frame was in, if it stands in one line; else ""."""
    # Python counts columns in bytes of UTF-8.
    if (
        frame is None
        or frame.lineno is None
        or frame.colno is None
        or frame.end_lineno != frame.lineno
    ):
        return ""
    line = linecache.getline(frame.filename, frame.lineno).encode()
    return line[frame.colno : frame.end_colno].decode().strip()
