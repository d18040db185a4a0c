"""The steps of a stream that another process has planned and traced (`cache="program"`), or that
are kept here for the next one.

Each function that a run calls is one exported program, for the whole chunks and for the shorter one
in the end; how they are called is the schedule, which is data. Whoever keeps them runs them as the
next process will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._jax.equinox_checks import own_jit
from .._jax.trees import is_a, tree_flatten, tree_unflatten
from .._kept.in_parts import KeptParts, Parts, in_parts
from .._kept.key import processor
from .._kept.tracing import Trace, called
from .._record.unsure import Unsure
from .._stages import Chunk
from .._view.layout import jit_is_off
from .._view.result import Outcome
from .placement import Laid
from .schedule import Schedule
from .steps import Runnable, Steps

if TYPE_CHECKING:
    from .._program.entry import Entry

_jax: Any = jax


class KeptSteps(Runnable):
    """What was kept of the steps of a stream.

    Args:
        entry: The program.
        stage: The axis.
        laid: Where all of it lies.
        kept: The programs.
    """

    def __init__(self, entry: Entry, stage: Chunk, laid: Laid, kept: KeptParts):
        outcome = Outcome()
        outcome.treedef, outcome.rest = kept.treedef, kept.rest
        super().__init__(entry, stage, laid, Schedule.read(kept.plan["schedule"]), outcome)
        self._program = kept.plan["program"]
        scope = f"{entry.core.name}/stream {stage.axis}"
        parts = [
            _part(scope, content, *how)
            for content, how in zip(kept.programs, kept.plan["parts"], strict=True)
        ]
        each = 4 if self.total % self.size else 3
        passes = [parts[at : at + each] for at in range(0, len(parts) - 1, each)]
        self.begin, self.join = [part[0] for part in passes], [part[-1] for part in passes]
        self.step = [_by_length(self, part[1:-1]) for part in passes]
        self.rest = self.step
        self.end = parts[-1]

    @property
    def program(self) -> str:
        """A digest of every operation and constant."""
        return self._program


def kept_steps(
    entry: Entry,
    arrays: Sequence[Any],
    stage: Chunk,
    laid: Laid,
    size: int | None,
    plan: Callable[[], Steps],
) -> Runnable:
    """The steps of a stream: kept ones, or those that are planned, if they are not to be kept.

    Args:
        entry: The program.
        arrays: Its arguments, or what stands for them.
        stage: The axis.
        laid: Where all of it lies.
        size: Of a chunk; None for as long ones as memory allows.
        plan: Plans them here.
    """
    if entry.kept is None or jit_is_off():
        return plan()
    planned: list[Steps] = []

    def make() -> Parts:
        if laid.place is not None:
            raise Unsure("streams over several devices are not kept yet")
        planned.append(plan())
        return _parts(planned[0])

    told: list[str] = []
    if size is None:  # as long as what the compiler counts says
        try:
            told = list(processor())
        except Unsure as unsure:
            return _noted(plan(), f"not kept: {unsure}")
    kept, why = in_parts(entry, arrays, ["stream", stage.axis, str(size), *told], make)
    if kept is None:
        return _noted(planned[0] if planned else plan(), why)
    return _noted(KeptSteps(entry, stage, laid, kept), why)


def _noted(steps: Runnable, why: str) -> Runnable:
    steps.kept = why
    return steps


class _Writer:
    """Exports functions, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.programs: list[Any] = []
        self.said: list[Any] = []

    def add(self, fn: Callable[..., Any], *given: Any) -> Any:
        """Export it for these arguments; abstract results."""
        trace = Trace(lambda given: fn(*given), self._name, given, None)
        exported = trace.exported()
        if exported.checks:
            raise Unsure("it has run-time checks, and is read in chunks")
        self.programs.append(exported.program)
        avals = exported.program.out_avals
        out = [
            _jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=i in exported.weak)
            for i, x in enumerate(avals)
        ]
        treedef, _ = trace.form()
        self.said.append([_said(tree_unflatten(treedef, list(range(len(out))))), exported.weak])
        return tree_unflatten(treedef, out)


def _parts(steps: Steps) -> Parts:
    """All functions of a run, exported.

    Raises:
        Unsure: One cannot be.
    """
    plan, write = steps.schedule, _Writer(steps.entry.core.name)
    avals = dict(
        zip(plan.takes, (leaf.abstract() for leaf in steps.stage.view.leaves), strict=True)
    )
    values: dict[int, Any] = {n: x for n, x in avals.items() if n not in plan.streamed}
    rest = steps.total % steps.size
    start, kept = _jax.ShapeDtypeStruct((), np.int32), dict[int, Any]()
    with plan.width:
        for p, turn in enumerate(plan.turns):
            new, state = write.add(steps.begin[p], values)
            values = {**values, **new}
            kept = {**kept, **turn.kept(state)}
            for length in filter(None, (steps.size, rest)):
                chunk = {n: _chunk(plan, n, length) for n in plan.streamed}
                state_after, _ = write.add(
                    steps.step[p], values, state, chunk, start, *([kept] if turn.replays else [])
                )
                if not _same(state, state_after):
                    raise Unsure("what it carries from chunk to chunk changes its type")
            values = {**values, **turn.known(write.add(steps.join[p], state))}
            values |= {
                n: _jax.ShapeDtypeStruct(plan.shapes[n], plan.dtypes[n]) for n in turn.collects
            }
        write.add(steps.end, values)
    said = {"schedule": plan.written(), "program": steps.program, "parts": write.said}
    return Parts(write.programs, said, steps.outcome.treedef, steps.outcome.rest)


def _chunk(plan: Schedule, n: int, length: int) -> Any:
    shape, axis = plan.shapes[n], plan.axes[n]
    return _jax.ShapeDtypeStruct((*shape[:axis], length, *shape[axis + 1 :]), plan.dtypes[n])


def _same(first: Any, second: Any) -> bool:
    described = [
        [(x.shape, x.dtype, x.weak_type) for x in tree_flatten(state)[0]]
        for state in (first, second)
    ]
    return described[0] == described[1]


def _part(name: str, content: bytes, structure: Any, weak: Sequence[int]) -> Callable[..., Any]:
    """One program, as the function that it was exported from."""

    def flat(*arrays: Any) -> list[Any]:
        return called(content, arrays, (), weak)

    flat.__name__ = flat.__qualname__ = name
    jitted = own_jit()(flat)

    def part(*given: Any) -> Any:
        return _read(structure, jitted(*tree_flatten(given)[0]))

    return part


def _by_length(steps: Runnable, parts: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """One step of whole chunks, and of the last one if that is shorter."""
    plan = steps.schedule

    def step(values: Any, state: Any, chunk: Any, *more: Any) -> Any:
        n = plan.streamed[0]
        return parts[0 if chunk[n].shape[plan.axes[n]] == plan.size else -1](
            values, state, chunk, *more
        )

    return step


def _said(tree: Any) -> Any:
    """Lists, tuples and dicts of numbers, as plain data."""
    if is_a(tree, dict):
        return ["dict", [[key, _said(part)] for key, part in tree.items()]]
    return [type(tree).__name__, list(map(_said, tree))] if is_a(tree, (list, tuple)) else tree


def _read(said: Any, leaves: Sequence[Any]) -> Any:
    """What was said, with leaves for their numbers."""
    if said is None:
        return None
    if is_a(said, int):
        return leaves[said]
    kind, parts = said
    if kind == "dict":
        return {key: _read(part, leaves) for key, part in parts}
    return (list if kind == "list" else tuple)(_read(part, leaves) for part in parts)
