"""What a hunt has tried, what it was refused, and what fell, counted and printed."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BAD = ("wrong", "raw", "hang")


@dataclass
class Report:
    """The sum of what workers told."""

    seed: int
    cases: int = 0
    tried: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    unstable: Counter[str] = field(default_factory=Counter[str])
    reasons: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Take in what a case told; the findings that are new."""
        self.cases += 1
        self.tried.update(message["tried"])
        self.refused.update(message["refused"])
        self.unstable.update(message["unstable"])
        for name, why in message["reasons"].items():
            self.reasons.setdefault(name, set()).update(why)
        new = [
            each
            for each in message["findings"]
            if likeness(each) not in {likeness(old) for old in self.findings}
        ]
        self.findings += message["findings"]
        return new

    def hang(self, index: int, doing: str) -> dict[str, Any]:
        found = {
            "kind": "hang",
            "option": doing,
            "what": "no end",
            "index": index,
            "n": -1,
            "dtype": "",
            "lines": [],
            "code": "",
            "script": "",
        }
        self.findings.append(found)
        return found

    @property
    def counts(self) -> Counter[str]:
        return Counter(each["kind"] for each in self.findings)

    @property
    def is_clean(self) -> bool:
        return not any(self.counts[kind] for kind in BAD)

    def line(self) -> str:
        """How far it is."""
        fell = ", ".join(f"{self.counts[kind]} {kind}" for kind in (*BAD, "rounding", "together"))
        return (
            f"{self.cases} cases, {self.tried.total()} programs, {self.refused.total()} refused,"
            f" {self.unstable.total()} unstable, {fell}"
        )

    def __str__(self) -> str:
        rows = [
            f"{'option':16}{'tried':>8}{'refused':>9}{'unstable':>10}{'wrong':>7}{'raw':>5}{'hang':>6}{'rounding':>10}"
        ]
        for name in sorted(self.tried, key=lambda name: -self.tried[name]):
            kinds = Counter(each["kind"] for each in self.findings if each["option"] == name)
            fell = f"{kinds['wrong']:>7}{kinds['raw']:>5}{kinds['hang']:>6}{kinds['rounding']:>10}"
            rows.append(
                f"{name:16}{self.tried[name]:>8}{self.refused[name]:>9}{self.unstable[name]:>10}{fell}"
            )
        groups: dict[Any, list[dict[str, Any]]] = {}
        for each in self.findings:
            groups.setdefault(likeness(each), []).append(each)
        told = [
            f"{len(alike)} x {shown(alike[0])}"
            for alike in sorted(groups.values(), key=len, reverse=True)
        ]
        return "\n".join(
            [
                *rows,
                "",
                f"seed {self.seed}: {self.line()}",
                *(["", "What fell:", *told] if told else []),
            ]
        )

    def saved(self, path: Path) -> None:
        path.write_text(
            json.dumps(
                {
                    "seed": self.seed,
                    "findings": self.findings,
                    "tried": self.tried,
                    "refused": self.refused,
                },
                indent=1,
            )
        )


def likeness(finding: dict[str, Any]) -> tuple[str, ...]:
    """Findings that are alike have one cause, or look so."""
    last = (
        re.sub(r"\b[a-z]\d[a-d]?\b", "_", finding["lines"][-1].partition(" = ")[2])
        if finding["lines"]
        else ""
    )
    what = re.sub(r"[\d.]+", "0", finding["what"])[:60] if finding["kind"] == "raw" else last
    return finding["kind"], finding["option"].partition("+")[0], what


def shown(finding: dict[str, Any]) -> str:
    """One finding: what happened, the lines, and a script."""
    head = (
        f"{finding['kind']} under {finding['option']} (case {finding['index']}, n={finding['n']},"
        f" {finding['dtype']}): {finding['what']}"
    )
    lines = "\n".join(f"    {line}" for line in finding["lines"])
    text = "\n".join(f"    | {line}" for line in finding["script"].splitlines())
    return f"{head}\n{lines}\n    by {finding['code']}\n{text}"
