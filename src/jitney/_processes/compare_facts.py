"""Verdict on the facts that processes have proposed: empty if they agree, else a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._errors import shortlist

_RULE = (
    "All processes of a run take the same step: one function, one plan, one set of shapes and"
    " static values."
)
_FIXES = {
    "function": (
        "call the same functions in the same order in every process; `if index == 0:` around a call"
        " leaves the others waiting."
    ),
    "array": "give each process an equal part; see jitney.processes.from_processes.",
    "static": "pass the same value in every process.",
    "plan": (
        "decorate the function with the same options everywhere, and run the same version of the"
        " code."
    ),
    "value": (
        "make it from the same seed or file in every process, or, where each has a part, put it"
        " together with jitney.processes.from_processes."
    ),
    "program": (
        "do not ask for the process inside the function, and pass arrays that it captures as"
        " arguments; `.lower(...).as_text()` of each process shows where they differ."
    ),
}


def verdict_on(proposed: Mapping[int, Sequence[Sequence[str]]]) -> str:
    """Compare the facts of what processes are about to run.

    Args:
        proposed: The facts of each process: kind, name, text.

    Returns:
        The differences, the rule and the fix; empty if the facts are all the same.
    """
    facts: dict[int, dict[tuple[str, str], str]] = {}
    for index, rows in proposed.items():
        facts[index] = {(kind, name): text for kind, name, text in rows}
    keys = dict.fromkeys(key for texts in facts.values() for key in texts)

    differences: dict[str, list[str]] = {}
    for key in keys:
        kind, name = key
        # Values are compared among the processes that have them: a part belongs to some only.
        compared = [i for i in sorted(facts) if kind != "value" or key in facts[i]]
        texts = {i: facts[i].get(key, "not there") for i in compared}
        if len(set(texts.values())) > 1:
            difference = _difference(kind, name, texts)
            differences.setdefault(kind, []).append(difference)

    # Report the first kind only: another shape, for example, makes another program too.
    for kind, fix in _FIXES.items():
        if kind in differences:
            return message_text(
                f"its processes differ: {shortlist(differences[kind])}.", _RULE, fix
            )
    return ""


def message_text(what: str, rule: str, fix: str) -> str:
    """Text of a message without the place of an error."""
    return f"{what}\n{rule}\nFix: {fix}"


def _difference(kind: str, name: str, texts: Mapping[int, str]) -> str:
    groups: dict[str, list[int]] = {}
    for index, text in texts.items():
        groups.setdefault(text, []).append(index)
    # Processes with the same text are one group, in the order of their numbers.
    first, *others = groups.values()
    if kind == "value":
        return f"{name} has other numbers in {_names(others[0])} than in {_names(first)}"
    if kind == "program":
        return (
            f"the traced program is another in {_names(others[0])} than in {_names(first)}, though"
            " shapes, static values and plan agree"
        )
    described = [f"{text} in {_names(members)}" for text, members in groups.items()]
    return f"{name} is {' and '.join(described)}"


def _names(indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return f"process {indices[0]}"
    return f"processes {shortlist([str(i) for i in indices])}"
