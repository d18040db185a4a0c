"""`report`: the HTML page of a run whose report was saved as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import cast

from .._errors import OptionError
from .._text.json import Data
from .run_report import UNSEEN, write

_WHERE = "python -m jitney report"
_RULE = "It reads what `python -m jitney run --report out.json` has written."


def carry_out(given: argparse.Namespace) -> int:
    """Read the JSON and write the page."""
    source, target = Path(given.data), Path(given.page)
    if target.suffix != ".html":
        raise OptionError(
            _WHERE,
            f"{given.page!r} is not a page.",
            "A page is a file that ends in .html.",
            "write out.html.",
            code="J205",
        )
    try:
        told = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(
            _WHERE,
            f"{source} cannot be read ({error.strerror or error}).",
            _RULE,
            "correct the name.",
            code="J205",
        ) from None
    except ValueError as error:
        raise OptionError(
            _WHERE, f"{source} is no JSON: {error}.", _RULE, "run the program again.", code="J205"
        ) from None

    # `UNSEEN` serves as the version: a report of another jitney has other sentences, or other keys.
    unseen = cast("Data", told).get("unseen", []) if isinstance(told, dict) else []
    if unseen[: len(UNSEEN)] != list(UNSEEN) or "decorated" not in told:
        raise OptionError(
            _WHERE,
            f"{source} holds no report of this version.",
            _RULE,
            "run the program again.",
            code="J205",
        )
    write(cast("Data", told), target)
    return 0
