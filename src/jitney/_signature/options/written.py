"""Options in the form in which an author writes them, for the report of a program, for fixes in
messages, and for scripts.
"""

from __future__ import annotations

from .table import NAMES, OPTIONS, Options


def option_texts(options: Options) -> tuple[str, ...]:
    """Options that differ from the defaults, as source text: `donate='state'`, `pad={'n':
    'pow2'}`.
    """
    return tuple(
        f"{name}={OPTIONS[name].write(value)!r}" for name, value in _chosen(options).items()
    )


def script_texts(options: Options) -> dict[str, str]:
    """Options that a script needs to compute the same, as source text."""
    texts: dict[str, str] = {}
    for name, value in _chosen(options).items():
        text = OPTIONS[name].script(value) if name in NAMES else None
        if text is not None:
            texts[name] = text
    return texts


def _chosen(options: Options) -> dict[str, object]:
    values = {name: getattr(options, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value != OPTIONS[name].default}
