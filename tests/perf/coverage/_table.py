"""The scoreboard as a table for people: a line for each axis of a model, a column for each way, and
each refusal below with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._model import WAYS
from ._tried import Cell


def printed(cells: Sequence[Cell]) -> str:
    """The tables, in Markdown."""
    parts = [
        _group(group, [cell for cell in cells if cell.group == group])
        for group in ("models", "scripts", "libraries", "calls")
    ]
    return "\n\n".join(part for part in parts if part)


def page(cells: Sequence[Cell], groups: Sequence[str]) -> str:
    """What stands in docs/models.md: the tables of these groups, and below each why mathematics
    does not allow what it does not. A column says what is otherwise with numbers of 64 bits.
    """
    parts: list[str] = []
    for group in groups:
        both = [cell for cell in cells if cell.group == group]
        mine = [cell for cell in both if cell.bits == 32]
        table, _, _ = _group(group, mine, _wide(both)).partition("\n\n")
        reasons: dict[str, list[str]] = {}
        for cell in mine:
            if cell.never is not None:
                reasons.setdefault(cell.never, []).append(f"{cell.model} ({cell.axis})")
        why = [
            f"- {', '.join(dict.fromkeys(where))}: {reason}." for reason, where in reasons.items()
        ]
        parts.append(
            "\n".join([table, "", *_counts(both), "", 'Where it says "mathematics":', "", *why])
        )
    return "\n\n".join(parts)


def counted(cells: Sequence[Cell]) -> dict[str, int]:
    """How many are exact of how many that mathematics allows, and how many are wrong numbers or raw
    errors.
    """
    allowed = [cell for cell in cells if cell.never is None]
    wrong = sum(cell.outcome in ("WRONG", "raw error") for cell in cells)
    return {
        "exact": sum(cell.outcome == "exact" for cell in allowed),
        "all": len(allowed),
        "wrong": wrong,
    }


def _wide(cells: Sequence[Cell]) -> dict[tuple[str, str], str]:
    """What is otherwise with 64 bits, along each axis of a model."""
    words: dict[tuple[str, str], str] = {}
    for place in dict.fromkeys((cell.model, cell.axis) for cell in cells):
        mine = [cell for cell in cells if (cell.model, cell.axis) == place]
        narrow, wide = ([cell for cell in mine if cell.bits == bits] for bits in (32, 64))
        other = [
            f"{way} {_of(way, wide, [])}"
            for way in WAYS
            if wide and _of(way, narrow, []) != _of(way, wide, [])
        ]
        words[place] = "; ".join(other) or ("the same" if wide else "-")
    return words


def _group(
    group: str, cells: Sequence[Cell], wide: Mapping[tuple[str, str], str] | None = None
) -> str:
    if not cells:
        return ""
    columns = [*WAYS, "float64"] if wide else WAYS
    lines = [f"| {group} | axis | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
    reasons: list[str] = []
    rows: dict[tuple[str, str, str], list[str]] = {}
    for model, axis in dict.fromkeys((cell.model, cell.axis) for cell in cells):
        mine = [cell for cell in cells if (cell.model, cell.axis) == (model, axis)]
        words = [_of(way, mine, reasons) for way in WAYS]
        if wide:
            words.append(wide[model, axis])
        module, call = _call(model) if wide and group == "calls" else (model, "")
        rows.setdefault((module, axis, " | ".join(words)), []).append(call)
    for (module, axis, said), calls in rows.items():
        names = f"{module}: {', '.join(calls)}" if any(calls) else module
        lines.append(f"| {names} | {axis} | {said} |")
    return "\n".join([*lines, "", _count(cells), "", *reasons])


def _call(model: str) -> tuple[str, str]:
    """The module of a call and its name in it; calls of one with the same outcome share a line."""
    name, bracket, rest = model.partition(" (")
    module, _, call = name.rpartition(".")
    return module, call + bracket + rest


def _counts(cells: Sequence[Cell]) -> list[str]:
    """How many cells are exact with numbers of each width."""
    lines: list[str] = []
    for bits in dict.fromkeys(cell.bits for cell in cells):
        mine = [cell for cell in cells if cell.bits == bits]
        of = counted([cell for cell in mine if cell.of == "gradient"])
        lines.append(f"float{bits}: {_count(mine)} Gradients: {of['exact']} of {of['all']}.")
        lines.append("")
    return lines[:-1]


def _of(way: str, cells: Sequence[Cell], reasons: list[str]) -> str:
    said = {cell.of: _word(cell, reasons) for cell in cells if cell.way == way}
    words = list(dict.fromkeys(said.values()))
    return words[0] if len(words) == 1 else "; ".join(f"{of} {word}" for of, word in said.items())


def _word(cell: Cell, reasons: list[str]) -> str:
    if cell.outcome == "exact":
        return "exact" if cell.never is None else "**exact, though never**"
    line = f"{cell.model}, {cell.axis}, {cell.way} of the {cell.of}: {cell}"
    line += f" (mathematics: {cell.never})" if cell.never else ""
    reasons.append(line)
    if cell.outcome == "refused":
        return "mathematics" if cell.never else "**refused**"
    return f"**{cell.outcome}**"


def _count(cells: Sequence[Cell]) -> str:
    """How many cells are exact of those that mathematics allows: of each way, and of all."""
    lines: list[str] = []
    for way in (*WAYS, "all"):
        of = counted([cell for cell in cells if cell.way == way or way == "all"])
        lines.append(f"{way} {of['exact']} of {of['all']}")
    never = sum(cell.never is not None for cell in cells)
    return (
        f"Exact, of values and gradients that mathematics allows: {', '.join(lines)}. "
        f"It does not allow {never}. Wrong numbers and raw errors: {counted(cells)['wrong']}."
    )
