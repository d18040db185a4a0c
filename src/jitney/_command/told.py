"""The report of a run: where the seconds went, what was compiled and why, and the changes worth
most.

It is written to stderr when the program is over, whether it failed or not, and to a file where one
was asked for.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .changes import changes
from .findings.change import Change, saves
from .findings.clocks import Unwaited, unwaited
from .findings.handed import timed
from .happened import Compiled, Happened, happened
from .page.flame import flame

if TYPE_CHECKING:
    from .launch import Recording

UNSEEN = (
    (
        "what calls of compiled programs cost to run, and transfers that no line of the program"
        " asks for: JAX reports neither"
    ),
    "processes that the program starts, and other uses of the machine",
)
_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_enable_x64",
)
_CAUSES = 12  # lines


@dataclass(frozen=True)
class RunReport:
    """What a run did.

    Args:
        target: The program.
        seconds: How long it ran, to its last line, in wall-clock seconds; not what its threads and
            `atexit` did then.
        import_seconds: Of `import jax`; None where it was not imported.
        happened: What JAX did.
        changes: What to change, what saves most first.
        flame: What making programs cost, as `page/flame.py` has it.
        decorated: What the decorated functions were made for, as `page/decorated.py` has it.
        own: Causes of the program's own functions under `jitney.optimize`, with remedies.
        unwaited: Figures of the program's own that are wrong.
        unseen: What was not seen.
    """

    target: str
    seconds: float
    import_seconds: float | None
    happened: Happened
    changes: tuple[Change, ...]
    flame: Mapping[str, Any]
    decorated: Sequence[Mapping[str, Any]]
    own: tuple[dict[str, Any], ...] = ()
    unseen: tuple[str, ...] = UNSEEN
    unwaited: tuple[Unwaited, ...] = ()

    def phases(self) -> dict[str, float]:
        """Seconds by phase. Work of several threads at a time counts once for each, so that nothing
        may be left for the rest.
        """
        told = {"import of jax": self.import_seconds or 0.0, **self.happened.seconds}
        return {**told, "all else": max(0.0, self.seconds - sum(told.values()))}

    def causes(self) -> list[dict[str, Any]]:
        """Why functions were traced, by function and kind, what took longest first. What JAX did
        not explain is unknown.

        Those of jitney come with what it knows of them, and `remedy`, instead of what JAX says.
        """
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        known = {row["function"] for row in self.own}
        for each in self.happened.compiled:
            if each.cause is None or (each.defined == "jitney" and each.name in known):
                continue
            line = str(each.place or "a library")
            row = found.setdefault(
                (each.name, line, each.cause.why),
                {
                    "function": each.name,
                    "line": line,
                    "cause": each.cause.why,
                    "times": 0,
                    "seconds": 0.0,
                    "example": "",
                    "remedy": "",
                },
            )
            row["times"] += 1
            row["seconds"] += each.seconds
            row["example"] = "; ".join(each.cause.details[:2]) or row["example"]
        return sorted([*found.values(), *self.own], key=lambda row: -row["seconds"])

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return {
            **self.happened.watch.to_dict(),
            "target": self.target,
            "seconds": self.seconds,
            "phases": self.phases(),
            "programs": [_program(each) for each in self.happened.compiled],
            "causes": self.causes(),
            "unwaited": [each.to_dict() for each in self.unwaited],
            "changes": [change.to_dict() for change in self.changes],
            "timeline": [
                {"phase": p, "name": n, "start": s, "seconds": d}
                for p, n, s, d in self.happened.spans
            ],
            "flame": dict(self.flame),
            "decorated": list(self.decorated),
            "unseen": list(self.unseen),
        }

    def __str__(self) -> str:
        from .._console import figures, table, text_of

        phases = self.phases()
        rows = [[(name, "cyan"), (f"{seconds:.2f} s", "")] for name, seconds in phases.items()]
        parts = [
            f"jitney: {self.target} ran for {self.seconds:.2f}"
            f" s\n{text_of(table('', rows)).strip()}"
        ]
        if self.happened.watch.work:
            parts.append(text_of(self.happened.watch))
        if causes := [row for row in self.causes() if row["cause"] != "first call"][:_CAUSES]:
            words = [
                ": ".join(filter(None, (row["line"], row["cause"], row["example"], row["remedy"])))
                for row in causes
            ]
            told = [
                (row["function"], text, f"{row['times']}x", f"{row['seconds']:.2f} s")
                for row, text in zip(causes, words, strict=True)
            ]
            parts.append(text_of(figures("traced again, in JAX's words or jitney's", told)))
        if self.unwaited:
            parts.append(
                "\n".join(
                    [
                        "the program's own figures",
                        *(f"{i:2}. {each}" for i, each in enumerate(self.unwaited, 1)),
                    ]
                )
            )
        parts.append(self._changes())
        parts.append("not seen: " + "; ".join(self.unseen) + ".")
        return "\n\n".join(parts) + "\n"

    def _changes(self) -> str:
        if not self.changes:
            return "No change is known that would save time."
        lines = ["changes worth most (each alone; seconds of this run)"]
        for i, each in enumerate(self.changes, 1):
            lines += [
                f"{i:2}. {saves(each.to_dict())}: {each.where}: {each.what}",
                f"      {each.write}",
            ]
        return "\n".join(lines)


def _program(each: Compiled) -> dict[str, Any]:
    return {
        "function": each.name,
        "line": None if each.place is None else str(each.place),
        "cause": "unknown" if each.cause is None else each.cause.why,
        "shapes": None if each.shapes is None else list(each.shapes),
        "trace_seconds": each.trace_seconds,
        "lower_seconds": each.lower_seconds,
        "compile_seconds": each.compile_seconds,
        "cache_hit": each.hit,
        "start": each.start,
    }


def report(recording: Recording, target: str, settings: Mapping[str, Any]) -> RunReport:
    """What was recorded until now."""
    seconds = time.time() - recording.began if recording.seconds is None else recording.seconds
    seen = happened(recording.events, recording.began)
    if recording.seen is None:
        over(recording)
    found, own = changes(seen.compiled, settings, recording.seen or ()), tuple(recording.own)
    unseen = (
        *UNSEEN,
        *filter(
            None, [recording.unexplained, "" if recording.lines is None else recording.lines.unseen]
        ),
    )
    drawn = flame(recording.events)
    figures = unwaited(recording.events)
    return RunReport(
        target,
        seconds,
        recording.import_seconds,
        seen,
        found,
        drawn,
        recording.decorated,
        own,
        unseen,
        figures,
    )


def over(recording: Recording) -> None:
    """The program's last line has run: watch its lines no more, and time what they moved."""
    if recording.lines is not None:
        recording.lines.end()
        recording.seen = timed(recording.lines.told())


def tell(recording: Recording, target: str, file: str) -> None:
    """Write the report, to stderr and to a file where one is named."""
    jax: Any = sys.modules["jax"]
    told = report(recording, target, {name: getattr(jax.config, name, None) for name in _SETTINGS})
    sys.stderr.write(f"\n{told}")
    if file:
        write(told.to_dict(), Path(file))
        sys.stderr.write(f"It is in {file}.\n")
    sys.stderr.flush()


def write(told: Mapping[str, Any], file: Path) -> None:
    """A page, or data, by the end of the file's name."""
    if file.suffix == ".json":
        text = json.dumps(told, indent=1) + "\n"
    else:
        from .page import page

        text = page(told)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"The report could not be written to {file}: {error.strerror or error}.\n")
