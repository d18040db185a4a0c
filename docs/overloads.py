"""An overloaded function on the page of the API: one signature, the longest of its overloads.

Options that are the keys of a `TypedDict` become parameters, each with its type, and with the default that the table of options has.
mkdocstrings reads parameters from the bare implementation, which takes `**options`; mkdocs.yml names this file.
"""

from __future__ import annotations

from typing import Any

import griffe

OPTIONS = "_signature.options.table"


class OneSignature(griffe.Extension):
    """Gives an overloaded function the parameters and the result of its longest overload."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through a package once it is read."""
        _simplify(pkg, _options(pkg))


def _options(package: griffe.Module) -> list[griffe.Parameter]:
    """The options of `@optimize`, as parameters."""
    try:
        table = package[OPTIONS]
    except KeyError:
        return []
    return [
        griffe.Parameter(
            name,
            annotation=key.annotation,
            kind=griffe.ParameterKind.keyword_only,
            default=_default(table["Options"][name].value),
        )
        for name, key in table["OptionKeywords"].attributes.items()
    ]


def _default(call: Any) -> str:
    """The default in `option(default=...)`; an option that is a tuple inside is left out by None."""
    found = next(str(each.value) for each in call.arguments if each.name == "default")
    return "None" if found == "()" else found


def _simplify(holder: griffe.Module | griffe.Class, options: list[griffe.Parameter]) -> None:
    for member in holder.members.values():
        if isinstance(member, (griffe.Module, griffe.Class)):
            _simplify(member, options)
        elif isinstance(member, griffe.Function) and member.overloads:
            longest = max(member.overloads, key=lambda overload: len(overload.parameters))
            given = [
                each
                for each in longest.parameters
                if str(each.annotation) != "Unpack[OptionKeywords]"
            ]
            if len(given) < len(longest.parameters):
                given += options
            member.parameters = griffe.Parameters(*given)
            member.returns, member.overloads = longest.returns, None
