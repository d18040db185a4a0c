"""Options that had another name until 0.3.0. The old names are understood for two versions.

This module stands before `options.py`, whose `read_options` knows the present names only.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._errors import OptionError, Where
from .._former import warn_former

RENAMED = {"check": "contracts", "checks": "runtime_checks"}
"""Old name -> present name."""


def with_present_names(where: Where | str, given: Mapping[str, object]) -> dict[str, object]:
    """Return options by their present names, with a warning for each that is given by its old one.

    Raises:
        OptionError: One option is given by both of its names.
    """
    present = dict(given)
    for old, new in RENAMED.items():
        if old not in present:
            continue
        if new in present:
            raise OptionError(
                where,
                f"`{old}` and `{new}` are both given.",
                f"They are one option: `{new}` was called `{old}` before version 0.3.0.",
                f"keep `{new}`.",
                code="J201",
            )
        warn_renamed(where, old)
        present[new] = present.pop(old)
    return present


def warn_renamed(where: Where | str, old: str) -> None:
    """Warn, at the user's line, that an option is called by its old name."""
    new = RENAMED[old]
    warn_former(
        where,
        f"the option `{old}` is called `{new}` now.",
        "Its meaning is the same.",
        f"write `{new}` instead of `{old}`.",
    )
