"""Options in the form in which an author writes them, for the report of a program and for fixes in
messages.
"""

from __future__ import annotations

from dataclasses import fields

from .table import OPTIONS, Options


def option_texts(options: Options) -> tuple[str, ...]:
    """Options that differ from the defaults, as source text: `donate='state'`, `pad={'n':
    'pow2'}`.
    """
    chosen = {field.name: getattr(options, field.name) for field in fields(options)}
    usual = Options()
    return tuple(
        f"{name}={OPTIONS[name].write(value)!r}"
        for name, value in chosen.items()
        if value != getattr(usual, name)
    )
