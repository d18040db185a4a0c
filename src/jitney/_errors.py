"""Every exception that jitney raises, and the one formatter of their messages.

It stands first because everything else may fail. A message has three parts, in this order: where
and what happened, the rule that was broken, and the fix. Each exception has a short code, which is
an anchor of `docs/errors.md`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class JitneyError(Exception):
    """Base of all errors that jitney raises on its own account.

    `code` is that of the class, or of one cause among several that the class has: each stands on
    the page of errors.
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
        """Take the parts of a message, or `where` alone, which is the whole of it then."""
        super().__init__(sentence(where, what, rule, fix) if what else str(where))
        if code is not None:
            self.code = code
        # Python prints it under the traceback; `str` has the message alone.
        self.add_note(f"{self.code}: docs/errors.md#{self.code.lower()}")


class OptionError(JitneyError, ValueError):
    """An option of a decorator is unknown, malformed, contradicts another, or is not built yet."""

    code: str = "J101"


class ContractError(JitneyError, TypeError):
    """An argument or a result does not fit its annotation."""

    code: str = "J102"


class TraceError(JitneyError, TypeError):
    """The body needs a concrete value while it is being traced."""

    code: str = "J107"


class CompileError(JitneyError, RuntimeError):
    """A program was compiled where that is forbidden, or would be past a limit."""

    code: str = "J108"


class AxisError(JitneyError):
    """An axis cannot be cut into chunks: an operation looks along it in a way that is not carried
    from chunk to chunk.
    """

    code: str = "J103"


class PrecisionError(JitneyError, ArithmeticError):
    """`precision="auto:..."` finds no choice of products that holds its tolerance, or the compiler
    has no kernel for a low product.
    """

    code: str = "J109"


class MeshError(JitneyError, ValueError):
    """Arrays or devices cannot be laid out as asked: too few devices, an axis that does not divide,
    a mesh without that axis.
    """

    code: str = "J105"


class ProcessError(JitneyError, RuntimeError):
    """The processes of a run cannot be started or reached, differ in what they call, or one of them
    has stopped.
    """

    code: str = "J106"


class BudgetError(JitneyError, MemoryError):
    """A gradient does not fit into the memory that it may take, whatever is saved and
    recomputed.
    """

    code: str = "J112"


class DerivativeError(JitneyError, TypeError):
    """A derivative is asked for with respect to something, or of something, that has none.

    `positions` are the arguments of a sparse derivative that decide where it may be nonzero, and
    were traced.
    """

    code: str = "J104"

    positions: tuple[str, ...] = ()


class StateError(JitneyError, ValueError):
    """A derived field of a state cannot be computed, or a vector does not fit a state."""

    code: str = "J110"


class StaticError(JitneyError, TypeError):
    """A static value cannot be keyed."""

    code: str = "J111"


class DataError(JitneyError, OSError):
    """The data of a stream are not what they were, or a reading gave other rows than were asked
    for.
    """

    code: str = "J113"


class ExportError(JitneyError, ValueError):
    """A program cannot be written into a file, or a file cannot be loaded here."""

    code: str = "J114"


class DonationError(JitneyError, RuntimeError):
    """A donated buffer was used again, or was passed more than once."""

    code: str = "J115"


class NonFiniteError(JitneyError, FloatingPointError):
    """A decorated call with `debug_nans=True` made a NaN or an infinity."""

    code: str = "J116"


class VerificationError(JitneyError, AssertionError):
    """A program gives another result than the plain function, or what it is measured against.

    `script` is the path of what shows it by itself.
    """

    code: str = "J117"

    script: str | None = None


class JitneyWarning(UserWarning):
    """Something works, but not as it was asked for; the text says what to do."""

    code: ClassVar[str] = "J118"


@dataclass(frozen=True)
class Where:
    """A function as messages name it: `residual() at fit.py:12`."""

    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        call = self.name if self.name.endswith(")") else f"{self.name}()"
        return call if self.file is None else f"{call} at {self.file}:{self.line}"


def sentence(where: Where | str, what: str, rule: str, fix: str) -> str:
    """Format a message: where and what, the rule, the fix, one line each."""
    return f"{where}: {what}\n{rule}\nFix: {fix}"


_SHOWN = 57  # of the thousands of digits of an int


def repr_of(value: Any) -> str:
    """What Python shows of a user's value. What is said of a call must not stop it, so where Python
    shows nothing it is the type.

    That is so of an int of more digits than `sys.get_int_max_str_digits()`, in a list too, and of a
    class whose `__repr__` raises.
    """
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a `__repr__` is code of the user's
        return (
            f"{value:#x}"[:_SHOWN] + "..."
            if isinstance(value, int)
            else f"<{type(value).__qualname__}>"
        )


_FEW = 4


def few(texts: Sequence[str]) -> str:
    """A list that is read, however long it is."""
    return (
        ", ".join(texts)
        if len(texts) <= _FEW
        else f"{', '.join(texts[: _FEW - 1])} and {len(texts) - _FEW + 1} more"
    )


def counted(count: int, what: str) -> str:
    """`1 array`, `2 arrays`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def name_fix(name: str, known: Iterable[str], otherwise: str = "correct the name.") -> str:
    """What to do about a name that nobody knows: the nearest of those that are known, if one is
    near.
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def misfit(
    where: Where | str,
    signature: inspect.Signature,
    error: TypeError,
    keywords: Sequence[str] = (),
    elsewhere: Mapping[str, str] = {},
) -> str:
    """The message of a call whose arguments do not fit: as Python says it, and first that of a
    keyword which nobody knows.

    Args:
        where: Of the function.
        signature: Of the function.
        error: Of Python, which says of a misspelt keyword that the argument it was meant for is
            missing.
        keywords: The names of the call.
        elsewhere: Names that are no parameters, and what to write in place of each.
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
    return sentence(where, f"{what}.", f"Its parameters are {listed}.", fix)


def _fix_of(what: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """What to write where Python says this of a call."""
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
