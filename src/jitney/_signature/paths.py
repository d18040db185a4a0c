"""Paths to a part of an argument, as people write them in options.

    "params.layers[0].weight", "params['layers'][0]['weight']"  ->  params, layers, 0, weight

A part is written as the body reaches it. Dots serve for the items of a dict too, so that one text
fits modules and dicts. The children of a node are attributes, positions or keys, and not a mixture,
so two parts of one argument have different steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Steps = tuple[str, ...]
"""Steps of a path: the name of the argument, then attributes, positions and keys."""

_NAME = re.compile(r"[^\W\d]\w*")
_STEP = re.compile(
    r"""\.(?P<attribute>\w+)"""
    r"""|\[(?P<quote>['"])(?P<key>(?:(?!(?P=quote))[^\\]|\\.)*)(?P=quote)\]"""
    r"""|\[(?P<other>[^\]'"]+)\]"""
)


def steps_of(path: str) -> Steps | None:
    """Split a path into its steps; None if it is not a path."""
    steps = [*_matches(path)]
    return tuple(map(_text, steps)) if steps and steps[-1].end() == len(path) else None


def root_of(path: str) -> str:
    """Name of the argument that a path begins with; "" if it is not a path."""
    steps = steps_of(path)
    return "" if steps is None else steps[0]


def stem_of(path: str, whole: Steps) -> str | None:
    """Text of the part of a path that has these steps: `params['layers']` of
    `params['layers'][0]`; None if the path does not begin with them.
    """
    for count, step in enumerate(_matches(path)):
        if _text(step) != whole[count]:
            return None
        if count + 1 == len(whole):
            return path[: step.end()]
    return None


def dotted(path: str) -> str:
    """The same path with dots for the items of dicts, where keys are words."""
    return re.sub(r"""\[(['"])(\w+)\1\]""", r".\2", path)


def _matches(path: str) -> Iterator[re.Match[str]]:
    step = _NAME.match(path)
    while step is not None:
        yield step
        step = _STEP.match(path, step.end())


def _text(step: re.Match[str]) -> str:
    parts = step.groupdict()
    texts = [parts[kind] for kind in ("attribute", "key", "other") if parts.get(kind) is not None]
    return texts[0] if texts else step[0]
