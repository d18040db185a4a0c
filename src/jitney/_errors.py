"""Exceptions of jitney, and the only formatter of their messages.

This module stands first because everything else may fail. A message has three parts, in this order:
where and what happened, the rule that was broken, and the fix. Each exception has a short code,
which is an anchor of `docs/errors.md`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ._public import public_in


@public_in("jitney.errors")
class JitneyError(Exception):
    """Base class of all errors that jitney raises itself.

    `code` identifies the class, or one of several causes within the class; each code has an entry
    on the page of errors.
    """

    code: str = "J100"

    def __init__(
        self,
        where: Where | str,
        what: str = "",
        rule: str = "",
        fix: str = "",
        *,
        code: str | None = None,
    ):
        """Take the parts of a message, or the whole message as `where` alone."""
        super().__init__(format_error(where, what, rule, fix) if what else str(where))
        if code is not None:
            self.code = code
        # Python prints a note below the traceback; `str(error)` is the message without it.
        self.add_note(f"{self.code}: docs/errors.md#{self.code.lower()}")


@public_in("jitney.errors")
class OptionError(JitneyError, ValueError):
    """An option of a decorator is unknown, malformed, contradicts another, or is not built yet."""

    code: str = "J101"


@public_in("jitney.errors")
class ContractError(JitneyError, TypeError):
    """An argument or a result does not fit its annotation."""

    code: str = "J102"


@public_in("jitney.errors")
class TraceError(JitneyError, TypeError):
    """The body needs a concrete value while it is being traced."""

    code: str = "J107"


@public_in("jitney.errors")
class CompileError(JitneyError, RuntimeError):
    """A program was compiled where that is forbidden, or would exceed a limit."""

    code: str = "J108"


@public_in("jitney.errors")
class AxisError(JitneyError):
    """An axis cannot be cut into chunks: an operation along it depends on other chunks in a way
    that cannot be carried from chunk to chunk.
    """

    code: str = "J103"


@public_in("jitney.errors")
class PrecisionError(JitneyError, ArithmeticError):
    """No choice of products for `precision="auto:..."` meets its tolerance, or the compiler has no
    kernel for a product in low precision.
    """

    code: str = "J109"


@public_in("jitney.errors")
class MeshError(JitneyError, ValueError):
    """Arrays or devices cannot be arranged as requested: too few devices, an axis that does not
    divide, a mesh without that axis.
    """

    code: str = "J105"


@public_in("jitney.errors")
class ProcessError(JitneyError, RuntimeError):
    """The processes of a run cannot be started or reached, make different calls, or one of them has
    stopped.
    """

    code: str = "J106"


@public_in("jitney.errors")
class BudgetError(JitneyError, MemoryError):
    """A gradient does not fit into its memory limit, whatever is saved and recomputed."""

    code: str = "J112"


@public_in("jitney.errors")
class DerivativeError(JitneyError, TypeError):
    """A derivative was requested with respect to something, or of something, that has none.

    `positions` are the arguments of a sparse derivative that determine where it may be nonzero, and
    were traced.
    """

    code: str = "J104"

    positions: tuple[str, ...] = ()


@public_in("jitney.errors")
class StateError(JitneyError, ValueError):
    """A derived field of a state cannot be computed, or a vector does not fit a state."""

    code: str = "J110"


@public_in("jitney.errors")
class StaticError(JitneyError, TypeError):
    """A static value cannot be keyed."""

    code: str = "J111"


@public_in("jitney.errors")
class DataError(JitneyError, OSError):
    """The data of a stream have changed, or a read returned other rows than were requested."""

    code: str = "J113"


@public_in("jitney.errors")
class ExportError(JitneyError, ValueError):
    """A program cannot be written into a file, or a file cannot be loaded here."""

    code: str = "J114"


@public_in("jitney.errors")
class DonationError(JitneyError, RuntimeError):
    """A donated buffer was used again, or was passed more than once."""

    code: str = "J115"


@public_in("jitney.errors")
class NonFiniteError(JitneyError, FloatingPointError):
    """A decorated call with `debug_nans=True` produced a NaN or an infinity."""

    code: str = "J116"


@public_in("jitney.errors")
class VerificationError(JitneyError, AssertionError):
    """A program's result differs from that of the plain function, or of the reference it is
    compared with.

    `script` is the path of a script that reproduces the difference by itself.
    """

    code: str = "J117"

    script: str | None = None


@public_in("jitney.errors")
class JitneyWarning(UserWarning):
    """Base class of all warnings: something works, but not as requested, and the text says how to
    change that.

    Each subclass is a cause, so that one can be filtered alone; each warning comes once.
    """

    code: ClassVar[str] = "J118"


@public_in("jitney.errors")
class PaddingWarning(JitneyWarning):
    """An axis of `pad` runs at its exact size, since an operation along it has no proof."""

    code: ClassVar[str] = "J121"


@public_in("jitney.errors")
class TransformWarning(JitneyWarning):
    """An option does not act, or not as a whole, since an outer transform traces the call."""

    code: ClassVar[str] = "J122"


@public_in("jitney.errors")
class EagerWarning(JitneyWarning):
    """A function runs un-jitted from now on, as `on_trace_error="eager"` asks, or the calls that
    XLA cannot compile or run, as `on_compile_error` and `on_memory_error` ask.
    """

    code: ClassVar[str] = "J123"


@public_in("jitney.errors")
class RetraceWarning(JitneyWarning):
    """A function compiles more programs than it should: past `max_compiles`, or one for each value
    of a static argument.
    """

    code: ClassVar[str] = "J124"


@public_in("jitney.errors")
class PrecisionWarning(JitneyWarning):
    """Numbers lose digits that matter, or float16 steps are all skipped."""

    code: ClassVar[str] = "J125"


@public_in("jitney.errors")
class CacheWarning(JitneyWarning):
    """The persistent cache is not used, or has outgrown its limit."""

    code: ClassVar[str] = "J126"


@public_in("jitney.errors")
class AnnotationWarning(JitneyWarning):
    """An annotation cannot be read, or which arguments have a mapped axis had to be guessed."""

    code: ClassVar[str] = "J127"


@public_in("jitney.errors")
class VerificationWarning(JitneyWarning):
    """Something is not verified, or differs by a fault of the compiler XLA."""

    code: ClassVar[str] = "J128"


@public_in("jitney.errors")
class DataWarning(JitneyWarning):
    """A checkpoint cannot be written or lacks what an earlier version did not save, or a stream
    reads its data in very small chunks.
    """

    code: ClassVar[str] = "J129"


@public_in("jitney.errors")
class UpdateWarning(JitneyWarning):
    """The body updates its arguments in place, and the updates are lost."""

    code: ClassVar[str] = "J130"


@public_in("jitney.errors")
class SettingWarning(JitneyWarning):
    """A setting of the environment comes too late: JAX has started."""

    code: ClassVar[str] = "J131"


@public_in("jitney.errors")
class MeasurementWarning(JitneyWarning):
    """A measurement leaves open what was asked of it."""

    code: ClassVar[str] = "J132"


@public_in("jitney.errors")
class MemoryWarning(JitneyWarning):
    """A process holds more memory than the budget of `jitney.watch` or `run --memory`."""

    code: ClassVar[str] = "J133"


@public_in("jitney.errors")
class ChunkWarning(JitneyWarning):
    """Calls that ran out of memory are worked on in chunks from now on, as
    `on_memory_error="chunk"` asks.
    """

    code: ClassVar[str] = "J134"


@dataclass(frozen=True)
class Where:
    """Location of a function in messages: `residual() at fit.py:12`."""

    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        call = self.name if self.name.endswith(")") else f"{self.name}()"
        return call if self.file is None else f"{call} at {self.file}:{self.line}"


def format_error(
    where: Where | str,
    what: str,
    rule: str,
    fix: str,
) -> str:
    """Format a message: location and event, the rule, the fix, one line each."""
    return f"{where}: {what}\n{rule}\nFix: {fix}"


# An int may have thousands of digits.
_SHOWN = 57


def repr_of(value: object) -> str:
    """Python's `repr` of a user's value, or a substitute if `repr` raises, since a message must not
    stop a call.

    `repr` raises for an int of more digits than `sys.get_int_max_str_digits()`, in a list too, and
    for a class whose `__repr__` raises.
    """
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a `__repr__` is code of the user's
        # Python limits the decimal digits of an int, but not the hexadecimal ones.
        return (
            f"{value:#x}"[:_SHOWN] + "..."
            if isinstance(value, int)
            else f"<{type(value).__qualname__}>"
        )


_FEW = 4


def shortlist(texts: Sequence[str]) -> str:
    """Join texts to a list, abbreviated after a few items."""
    return (
        ", ".join(texts)
        if len(texts) <= _FEW
        else f"{', '.join(texts[: _FEW - 1])} and {len(texts) - _FEW + 1} more"
    )


def plural(count: int, what: str) -> str:
    """Number and noun: `1 array`, `2 arrays`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def name_fix(
    name: str,
    known: Iterable[str],
    otherwise: str = "correct the name.",
) -> str:
    """Fix for an unknown name: the nearest known name, if one is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def misfit(
    where: Where | str,
    signature: inspect.Signature,
    error: TypeError,
    keywords: Sequence[str] = (),
    elsewhere: Mapping[str, str] = {},
) -> str:
    """Message of a call whose arguments do not fit, in Python's words. An unknown keyword is
    reported first.

    Args:
        where: Location of the function.
        signature: Signature of the function.
        error: Python's error, which for a misspelt keyword may only say that the intended argument
            is missing.
        keywords: Names of the call's keyword arguments.
        elsewhere: Names that are not parameters, and what to write in place of each.
    """
    parameters = signature.parameters
    listed = ", ".join(parameters) or "none"
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [name for name in keywords if name not in parameters and not is_open]
    if unknown:
        what = f"got an unexpected keyword argument {unknown[0]!r}"
        free = [name for name in parameters if name not in keywords]
        fix = elsewhere.get(unknown[0]) or name_fix(unknown[0], free, "leave it out.")
    else:
        what, fix = str(error), _fix_of(str(error), parameters)
    return format_error(where, f"{what}.", f"Its parameters are {listed}.", fix)


def _fix_of(what: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Fix for one of Python's messages about a call."""
    named = re.search(r"'(\w+)'", what)
    name = repr(named[1]) if named else ""
    if what.startswith("missing") and named:
        return f"pass {name}."
    if what.startswith("multiple values") and named:
        return f"pass {name} once, by position or by name."
    if what.startswith("too many positional"):
        return (
            f"pass {sum(parameter.kind in _BY_POSITION for parameter in parameters.values())} by"
            " position at most."
        )
    return "pass positional-only arguments by position."


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
