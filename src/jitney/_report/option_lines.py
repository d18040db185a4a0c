"""Lines of a plan on options besides the stages: what each one does in a call, and why not.

`plan_report.py` puts them behind the lines of the stages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import jax

from .. import _verify
from .._body.function import FunctionInfo
from .._diagnosis.needed_values import CAUGHT, need_of
from .._host.switches import SETTINGS, VARIABLES, Settings
from .._jax.compile_cache.cache import facts as cache_facts
from .._jax.typed import Array
from .._jax.xla.memory import text
from .._program.auto.cut_axes import obstacle
from .._program.runners.captured_calls import CapturedArray, captured_arrays
from .._program.runners.checked_calls import waits
from .._program.runners.unsplit import Unsplit
from .._program.runners.workers.worker_calls import part_obstacle, reason_of, split_of
from .._signature.options import USUAL_ERROR, Options, is_measured
from .._verify import is_verified

if TYPE_CHECKING:
    from .._program.entry import Specialization

# Reasons of decisions that nobody asked for.
_NOT_ASKED = re.compile(rf"no [^,;]+ given|not asked for|nothing is padded|{USUAL_ERROR}")


@dataclass(frozen=True)
class PlanLine:
    """Decision: its subject, whether it was taken, and the reason."""

    name: str
    taken: bool
    why: str

    @property
    def asked(self) -> bool:
        """True if it was taken, or asked for and not taken."""
        return self.taken or _NOT_ASKED.fullmatch(self.why) is None


def untraced(error: Exception, name: str, so: str) -> PlanLine:
    """Return the line of a subject that is open because the body needs the value of a tracer.

    Raises:
        Exception: `error`, if it is another one.
    """
    if need_of(error) is None:
        raise error
    return PlanLine(name, taken=False, why=f"the body cannot be traced, so {so}")


def option_lines(
    core: FunctionInfo,
    entry: Specialization,
    arrays: Sequence[Array],
    notes: Sequence[str],
    *,
    ready: bool,
) -> list[PlanLine]:
    """Return the lines of all options that are not stages.

    Args:
        core: The function.
        entry: Program of the call.
        arrays: Its arrays, or abstract ones.
        notes: What the contract has noted of the call.
        ready: Whether the body can be built.
    """
    return [
        *other_decisions(entry, notes, _verify_line(entry, arrays, ready=ready), _late(entry)),
        *_captured_lines(entry, arrays),
        *_serialized_line(core, entry, arrays),
        *_workers_line(entry, arrays),
        *_auto_line(entry, arrays),
        *_fallback_lines(entry, arrays),
    ]


def other_decisions(
    entry: Specialization,
    notes: Sequence[str],
    verified: PlanLine,
    late: PlanLine,
) -> list[PlanLine]:
    """Return the decisions besides the stages."""
    core, options = entry.core, entry.options
    said = {line[0]: PlanLine(*line) for line in options.decisions}

    unresolved = [
        f"annotation of {name!r} could not be resolved" for name in core.contract.unresolved
    ]
    facts = cache_facts()
    jax_options: Any = jax.config
    kept = options.cache and bool(jax_options.jax_enable_compilation_cache)
    where = f"persistent compilation cache: {facts.reason}" + (
        f" ({facts.directory})" if facts.directory else ""
    )

    return [
        said.pop("contract"),
        *(PlanLine("contract", taken=False, why=note) for note in (*notes, *unresolved)),
        PlanLine(
            "cache",
            kept,
            where if options.cache else "`cache=False`: compiled again in every process",
        ),
        PlanLine("max_compiles", options.max_compiles is not None, _compile_limit(core)),
        said.pop("trace errors"),
        verified,
        late,
        *said.values(),
        *settings_line(core.options),
    ]


def settings_line(options: Options) -> list[PlanLine]:
    """Return where each setting of the process that is in effect comes from, or the option that
    overrides it; none if all are as usual.
    """
    given = {name: getattr(options, name) for name in VARIABLES}
    in_effect = asdict(SETTINGS.now)
    if options.disabled is not None or (
        set(given.values()) == {None} and SETTINGS.now == Settings()
    ):
        return []
    told = [
        f"{name}={in_effect[name] if value is None else value!r}"
        f" by {SETTINGS.source(name) if value is None else 'the option'}"
        for name, value in given.items()
    ]
    return [PlanLine("settings", taken=True, why=", ".join(told))]


def _captured_lines(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the program of a call has the large arrays that it captures; none before the first
    call, whose trace shows them.
    """
    with entry.numbers():
        captured = captured_arrays(entry, _program_arguments(entry, arrays))
        if entry.workers is not None and not captured:
            captured = captured_arrays(entry, entry.workers.first_part(arrays))
    return captured_lines(captured)


def captured_lines(captured: Sequence[CapturedArray]) -> list[PlanLine]:
    """Return a line for each large array that a program captures."""
    lines: list[PlanLine] = []
    for each in captured:
        told = f"{each.name} ({each.shape}, {text(each.nbytes)})"
        why = f"{told} is an argument of the program: neither compiled nor cached with it"
        if each.obstacle is not None:
            why = (
                f"{told} is a constant of the program, compiled and cached with it:"
                f" {each.obstacle}; pass it as an argument"
            )
        lines.append(PlanLine("captured array", each.obstacle is None, why))
    return lines


def _program_arguments(entry: Specialization, arrays: Sequence[Array]) -> Sequence[object]:
    """Return the arrays that the program gets: padded ones, if it pads."""
    return arrays if entry.padded is None else entry.padded.program_arguments(arrays)


def _serialized_line(
    core: FunctionInfo,
    entry: Specialization,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Return the state of the serialised program of `cache="program"`."""
    if core.options.cache != "program":
        return []
    if entry.kept is None:
        return [
            PlanLine(
                "cached program",
                taken=False,
                why="not cached: under an outer transform it is traced",
            )
        ]
    with entry.numbers():
        given = _program_arguments(entry, arrays)
        mesh = next(iter(entry.mesh_key()), None)
        noted = entry.kept.note(given, mesh)
        return [PlanLine("cached program", *noted)]


def width_line(
    entry: Specialization,
    arrays: Sequence[Array],
    line: PlanLine,
) -> PlanLine:
    """Return the line of a stage, which for chunks of a measured width has what was measured."""
    if line.name != "chunk" or not is_measured(entry.options.chunk):
        return line
    if entry.widths is None:
        return replace(line, why="under an outer trace: all at once")
    choice = entry.widths.choice(arrays)
    if choice is None:
        return replace(line, why="the first call of this size measures which width is quickest")
    return PlanLine("chunk", choice.width is not None, choice.why)


def _workers_line(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the mapped axis is split over threads, if `workers` is given; traces the body."""
    if entry.options.workers is None:
        return []
    try:
        split = split_of(entry, arrays)
        unsplit = split if isinstance(split, Unsplit) else part_obstacle(entry, split, arrays)
    except CAUGHT as error:
        return [untraced(error, "workers", "nothing says what it does besides computing")]
    why = str(split) if unsplit is None else reason_of(entry, unsplit)
    return [PlanLine("workers", unsplit is None, why)]


def _auto_line(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the call runs with `auto`, and what was measured."""
    if not entry.options.auto:
        return []
    if entry.auto is not None:
        return [PlanLine("auto", *entry.auto.describe(arrays))]
    why = obstacle(entry.options, entry.core.fn())
    return [PlanLine("auto", taken=False, why=why or "under an outer trace: all at once")]


def _fallback_lines(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how calls run that XLA could not compile or run, if options ask for it."""
    if entry.fallback is None:
        return []
    reasons = entry.fallback.describe(arrays)
    return [PlanLine(name, taken=True, why=why) for name, why in reasons]


def _verify_line(
    entry: Specialization,
    arrays: Sequence[Array],
    *,
    ready: bool,
) -> PlanLine:
    """Return whether the plain function is run too, for comparison; traces it."""
    options = entry.core.options
    if options.disabled is not None:
        return PlanLine("verify", taken=False, why="JITNEY_DISABLE leaves nothing to compare")
    if not is_verified(options) or not ready:
        return PlanLine("verify", taken=False, why="not asked for" if ready else "not called yet")
    try:
        return PlanLine("verify", *_verify.forecast(entry, arrays))
    except CAUGHT as error:
        return untraced(error, "verify", "there is nothing to compare with")


def _late(entry: Specialization) -> PlanLine:
    """Return who raises the error of a run-time check."""
    why = waits(entry.options)
    if why is None and entry.request.nested:
        why = "under an outer trace checks are Equinox's own callbacks"
    return PlanLine(
        "late checks",
        why is None,
        why or "a later call raises what one finds, `jitney.wait()`, or the end of Python",
    )


def _compile_limit(core: FunctionInfo) -> str:
    limit = core.options.max_compiles
    return (
        "not asked for"
        if limit is None
        else (
            f"{core.counters.compile_events} of {limit.count} programs compiled; past it:"
            f" {limit.past}"
        )
    )
