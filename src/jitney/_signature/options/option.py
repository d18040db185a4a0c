"""An option of `@optimize`, written once: as the default of its field in `Options`.

    pad: tuple[tuple[str, Bucket], ...] = option(default=(), read=read_pad, plain=())

The reader, the text in reports, plain runs, the calls under an outer transform, the tolerance of
`verify`, the line of a plan and the row of the documentation follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ..._errors import Where

T = TypeVar("T")
Change = tuple[str, tuple[str, ...]]
"""A change that an option makes to a program: its name, and the named axes that it acts on."""
Decision = tuple[str, bool, str]
"""A line of a plan: its subject, whether it was taken, and the reason."""
EQUAL, ROUNDED = "the same to the bit", "up to rounding"
"""Comparison with the results of `jax.jit`, for most options."""
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
        write: Returns what the author would write for a value.
        plain: The value in a plain run, with which `verify` compares; `MEANING` if it stays.
        nested: Returns whether a value acts differently under an outer `jit` or `grad`, so that
            such calls have a program of their own.
        rounds: Whether results may differ by rounding, as those of sums in another order.
        changes: Takes all options, and returns what this one may change in a program.
        says: Takes all options, and returns the lines of a plan that follow from them alone. Other
            lines are those of stages, and of `_report/option_lines.py`.
        use: What the option is for, in the table of the documentation; "" without a row.
        numbers: How results compare with those of `jax.jit`, there.
    """

    read: Callable[[Where | str, str, object], object] | None
    write: Callable[..., object]
    plain: object
    nested: Callable[..., object]
    rounds: bool
    changes: Callable[..., Iterable[Change]]
    says: Callable[..., Iterable[Decision]]
    use: str
    numbers: str


def option(
    *,
    default: T,
    read: Callable[[Where | str, object], T] | None = None,
    read_as: Callable[[Where | str, str, object], T] | None = None,
    write: Callable[..., object] | None = None,
    plain: T | Meaning = MEANING,
    nested: Callable[..., object] | None = None,
    rounds: bool = False,
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
        plain: The value in a plain run; none for an option that is part of the meaning.
        nested: Returns whether a value acts differently under an outer transform; never, if None.
        rounds: Whether results may differ by rounding.
        changes: Returns what the option may change in a program; nothing, if None.
        says: Returns its lines of a plan; none, if None.
        use: What it is for.
        numbers: How results compare with those of `jax.jit`; as `rounds` says, if None.
    """
    described = OptionSpec(
        _with_name(read) if read is not None else read_as,
        write or _as_it_is,
        plain,
        nested or _never,
        rounds,
        changes or _nothing,
        says or _nothing,
        use,
        numbers or (ROUNDED if rounds else EQUAL),
    )
    return field(default=default, metadata={KEY: described})


def is_given(value: object) -> bool:
    """Return whether an option that is None otherwise has a value."""
    return value is not None


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
