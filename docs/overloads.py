"""An overloaded function on the page of the API: one signature, the longest of its overloads, whose options have types and defaults.

mkdocstrings reads parameters from the bare implementation, which takes `**options`; mkdocs.yml names this file.
"""

from __future__ import annotations

from typing import Any

import griffe


class OneSignature(griffe.Extension):
    """Gives an overloaded function the parameters and the result of its longest overload."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through a package once it is read."""
        _simplify(pkg)


def _simplify(holder: griffe.Module | griffe.Class) -> None:
    for member in holder.members.values():
        if isinstance(member, (griffe.Module, griffe.Class)):
            _simplify(member)
        elif isinstance(member, griffe.Function) and member.overloads:
            longest = max(member.overloads, key=lambda overload: len(overload.parameters))
            member.parameters, member.returns, member.overloads = (
                longest.parameters,
                longest.returns,
                None,
            )
