"""An option of `@optimize`, written once: as the default of its field in `Options`.

    pad: tuple[tuple[str, Bucket], ...] = option(default=(), read=read_pad, plain=())

The reader, the text in reports, plain runs, the calls under an outer transform, the tolerance of
`verify`, the line of a plan and the row of the documentation follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from ..._errors import Where

T = TypeVar("T")
Change = tuple[str, tuple[str, ...]]
"""A change that an option makes to a program: its name, and the named axes that it acts on."""
Decision = tuple[str, bool, str]
"""A line of a plan: its subject, whether it was taken, and the reason."""
EQUAL: Final = "the same to the bit"
SUMS_ROUNDED: Final = "elementwise the same to the bit, sums up to rounding"
ROUNDED: Final = "up to rounding"
Tolerance = Literal[
    "the same to the bit",
    "elementwise the same to the bit, sums up to rounding",
    "up to rounding",
]
"""Comparison with the results of `jax.jit`: what `verify` allows, and the documentation says."""
KEY = "option"
"""Where the metadata of a field hold its `OptionSpec`."""


class Meaning:
    """Type of `MEANING`."""


MEANING: Final = Meaning()
"""In place of a value in plain runs: the option is part of the meaning of a function, and stays."""


@dataclass(frozen=True)
class OptionSpec:
    """How an option is read, written, and left out.

    Args:
        read: Takes the place of the decoration, the name of the option and the value that the
            author wrote, and returns what `Options` holds; None if jitney sets the option itself.
        default: The value if the option is not given.
        write: Returns what the author would write for a value.
        script: Returns the source text of a value in a script that reproduces a difference; None if
            the script does without.
        left: Why a file of `f.export` does without the option, as its plan says; "" if the plan
            says nothing, and None if the file has what it does.
        plain: The value in a plain run, with which `verify` compares; `MEANING` if it stays.
        nested: Returns whether a value acts differently under an outer `jit` or `grad`, so that
            such calls have a program of their own.
        tolerance: How results may differ from those of a plain run.
        changes: Takes all options, and returns what this one may change in a program.
        says: Takes all options, and returns the lines of a plan that follow from them alone. Other
            lines are those of stages, and of `_report/option_lines.py`.
        use: What the option is for, in the table of the documentation; "" without a row.
        numbers: How results compare with those of `jax.jit`, there.
    """

    read: Callable[[Where | str, str, object], object] | None
    default: object
    write: Callable[..., object]
    script: Callable[..., str | None]
    left: str | None
    plain: object
    nested: Callable[..., object]
    tolerance: Tolerance
    changes: Callable[..., Iterable[Change]]
    says: Callable[..., Iterable[Decision]]
    use: str
    numbers: str

    @property
    def off(self) -> object:
        """The value with which the option does nothing."""
        return self.default if isinstance(self.plain, Meaning) else self.plain


def option(
    *,
    default: T,
    read: Callable[[Where | str, object], T] | None = None,
    read_as: Callable[[Where | str, str, object], T] | None = None,
    write: Callable[..., object] | None = None,
    script: Callable[..., str | None] | None = None,
    left: str | None = None,
    plain: T | Meaning = MEANING,
    nested: Callable[..., object] | None = None,
    tolerance: Tolerance = EQUAL,
    changes: Callable[..., Iterable[Change]] | None = None,
    says: Callable[..., Iterable[Decision]] | None = None,
    use: str = "",
    numbers: str | None = None,
) -> T:
    """Make the field of an option.

    Args:
        default: The value if the option is not given.
        read: Its reader.
        read_as: One that serves several options, and takes the name of the option too. Without a
            reader jitney sets the option itself.
        write: Returns what the author would write for a value; a value itself, if None.
        script: Returns the source text in a script; that of what the author would write, if None.
        left: Why a file of `f.export` does without it; None if the file has it.
        plain: The value in a plain run; none for an option that is part of the meaning.
        nested: Returns whether a value acts differently under an outer transform; never, if None.
        tolerance: How results may differ from those of a plain run.
        changes: Returns what the option may change in a program; nothing, if None.
        says: Returns its lines of a plan; none, if None.
        use: What it is for.
        numbers: How results compare with those of `jax.jit`; as `tolerance` says, if None.
    """
    written = write or _as_it_is
    described = OptionSpec(
        _with_name(read) if read is not None else read_as,
        default,
        written,
        script or (lambda value: repr(written(value))),
        left,
        plain,
        nested or _never,
        tolerance,
        changes or _nothing,
        says or _nothing,
        use,
        numbers or tolerance,
    )
    return field(default=default, metadata={KEY: described})


def is_given(value: object) -> bool:
    """Return whether an option that is None otherwise has a value."""
    return value is not None


def is_value(one: object) -> Callable[[object], bool]:
    """Return a function that returns whether an option has this value."""
    return lambda value: value == one


def _with_name(
    read: Callable[[Where | str, object], T],
) -> Callable[[Where | str, str, object], T]:
    def read_as(where: Where | str, _: str, value: object) -> T:
        return read(where, value)

    return read_as


def _as_it_is(value: object) -> object:
    return value


def _never(_: object) -> bool:
    return False


def _nothing(_: object) -> tuple[()]:
    return ()
