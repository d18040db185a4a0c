"""Report of a run: where the seconds went, programs and causes, and the changes worth most.

Input is the `Recording` of `launch.py`. The report is written to stderr when the program is over,
even if it failed, and to a file with `--report`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._diagnosis.memory_course import (
    MemoryCourse,
    MemoryPeak,
    compile_peak,
    course,
    place_of_frames,
)
from .._text.json import Data
from .changes import changes
from .findings.call_arguments import with_transfer_seconds
from .findings.change import ProposedChange, saves
from .findings.clocks import WrongTiming, wrong_timings
from .jax_log import CompileRecord, JaxLog, plain_name, read_events
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
# Lines of causes in the text.
_CAUSES = 12


@dataclass(frozen=True)
class RunReport:
    """Report of a run.

    Args:
        target: The program.
        seconds: Wall-clock seconds to its last line, without its threads and `atexit` after that.
        import_seconds: Seconds of `import jax`; None if it was not imported.
        happened: Programs and seconds of JAX.
        changes: Changes worth most, largest saving first.
        flame: Seconds of tracing, lowering and compiling as a tree; see `page/flame.py`.
        decorated: Sizes, plans and memory of the decorated functions; see `page/decorated.py`.
        own: Causes of the program's own functions under `jitney.optimize`, with remedies.
        unwaited: Wrong timings in the program.
        memory: Course of the process's memory; None where it was not watched.
        unseen: Limits of the report, in words.
    """

    target: str
    seconds: float
    import_seconds: float | None
    happened: JaxLog
    changes: tuple[ProposedChange, ...]
    flame: Mapping[str, object]
    decorated: Sequence[Mapping[str, object]]
    own: tuple[Data, ...] = ()
    unseen: tuple[str, ...] = UNSEEN
    unwaited: tuple[WrongTiming, ...] = ()
    memory: MemoryCourse | None = None

    def phases(self) -> dict[str, float]:
        """Return seconds by phase.

        Simultaneous work of several threads counts once for each, so that nothing may be left for
        the rest.
        """
        told = {"import of jax": self.import_seconds or 0.0, **self.happened.seconds}
        return {**told, "all else": max(0.0, self.seconds - sum(told.values()))}

    def causes(self) -> list[Data]:
        """Return the causes of traces by function and kind, longest first.

        Causes that JAX did not explain are unknown. Functions under `jitney.optimize` have jitney's
        causes and `remedy` instead of JAX's.
        """
        found: dict[tuple[str, str, str], Data] = {}
        known = {row["function"] for row in self.own}
        for each in self.happened.compiled:
            if each.cause is None or (each.code_owner == "jitney" and each.name in known):
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

    def to_dict(self) -> Data:
        """Return the report as plain data, for JSON and for the page."""
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
            "memory": None if self.memory is None else self.memory.to_dict(),
        }

    def __str__(self) -> str:
        from .._text.console import figures, table, text_of

        phases = self.phases()
        rows = [[(name, "cyan"), (f"{seconds:.2f} s", "")] for name, seconds in phases.items()]
        parts = [
            f"jitney: {self.target} ran for {self.seconds:.2f}"
            f" s\n{text_of(table('', rows)).strip()}"
        ]
        if self.happened.watch.work:
            parts.append(text_of(self.happened.watch))
        if self.memory is not None:
            parts.append(text_of(self.memory))
        # A first call has to trace, so it is not a cause to report.
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


def _program(each: CompileRecord) -> Data:
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


def report(
    recording: Recording,
    target: str,
    settings: Mapping[str, object],
) -> RunReport:
    """Return the report of everything that was recorded so far."""
    seconds = time.time() - recording.began if recording.seconds is None else recording.seconds
    seen = read_events(recording.events, recording.began)
    # The program may still run: then its lines are not watched from here on.
    if recording.seen is None:
        stop_watching(recording)

    found, own = changes(seen.compiled, settings, recording.seen or ()), tuple(recording.own)
    unseen = (
        *UNSEEN,
        *filter(
            None, [recording.unexplained, "" if recording.lines is None else recording.lines.unseen]
        ),
    )
    drawn = flame(recording.events)
    figures = wrong_timings(recording.events)

    memory = None
    if recording.memory is not None:
        memory = course(recording.memory, recording.began, list(_compile_peaks(recording)))

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
        memory,
    )


def _compile_peaks(recording: Recording) -> Iterator[MemoryPeak]:
    """Memory while a function was compiled: of each function and line, the compile that added
    most.
    """
    largest: dict[tuple[str, str], MemoryPeak] = {}
    for event in recording.events:
        held = event.get("memory")
        if held is None:
            continue
        place = place_of_frames([frame[:3] for frame in event["frames"]])
        seconds = event["end"] - recording.began
        peak = compile_peak(plain_name(event["name"]), place, seconds, held)
        if peak is not None:
            known = largest.setdefault((peak.of, place), peak)
            largest[peak.of, place] = max(known, peak, key=lambda each: each.added)
    yield from largest.values()


def stop_watching(recording: Recording) -> None:
    """Stop watching the program's lines after the last one, and time their transfers."""
    if recording.lines is not None:
        recording.lines.end()
        recording.seen = with_transfer_seconds(recording.lines.to_data())


def write_report(recording: Recording, target: str, file: str) -> None:
    """Write the report to stderr, and to a file if one is named."""
    jax = sys.modules["jax"]
    told = report(recording, target, {name: getattr(jax.config, name, None) for name in _SETTINGS})
    sys.stderr.write(f"\n{told}")
    if file:
        write(told.to_dict(), Path(file))
        sys.stderr.write(f"It is in {file}.\n")
    sys.stderr.flush()


def write(told: Mapping[str, object], file: Path) -> None:
    """Write a report as JSON or as an HTML page, by the suffix of the file."""
    if file.suffix == ".json":
        text = json.dumps(told, indent=1) + "\n"
    else:
        from .page import page

        text = page(told)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"The report could not be written to {file}: {error.strerror or error}.\n")
