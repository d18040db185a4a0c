"""Numbers that a body needs while it is traced: found by tracing, and held static.

A Python number without an annotation is data (`_view/numbers.py`), and is traced, as under
`jax.jit`. Where the trace fails on it, at an `if`, a shape or an index of Python, it is held:
static, with the line that needs it as the reason.

    def decay(x, rate, order):               decay(x, 0.5, 2.0)
        return x * rate if order > 1 else x      rate is traced, order is held: `order > 1`

Which numbers are held follows from the body, the shapes and the other static values alone. So it is
the same on each host and in each order of calls. Each set of shapes is asked for itself.

    layout      all numbers traced     its entry has `held_at`: shapes -> numbers to hold
      holding   some of them held      its entry has `held_at` for the others, and so on
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import jax

from ..._body.body import CallPlanner
from ..._body.call_key import trace_key
from ..._diagnosis.needed_values import need_of
from ..._errors import JitneyError
from ..._owners import user_line
from ..._signature.options import tolerance_of
from ..._stages.derivatives.derive import Derived
from ..._view.layout import Layout
from ..._view.result import Outcome
from .leaked_tracers import refuse_left_in_result

Held = Mapping[int, str]
"""Indices among the leaves of a call, with the reason for each."""
Trial = Callable[[Layout], CallPlanner]
"""Function from a layout of a call to an entry for one trace, which nobody keeps."""


class Redirected(Exception):
    """A program with held numbers is new for these shapes, and the body needs none of them, or
    others, there: the call is repeated, and finds another entry.
    """


class NumberChoices:
    """Which numbers of the calls of one entry are held, at which shapes.

    Args:
        held_at: Key of a trace -> the numbers that it needs.
        traced_at: Keys of traces that need none.
        differ: True once a trace was found to need others than those before.
    """

    def __init__(self) -> None:
        self.differ = False
        self.held_at: dict[Hashable, Held] = {}
        self.traced_at: set[Hashable] = set()

    @property
    def depends_on_shapes(self) -> bool:
        """True if calls of some shapes need other numbers than calls of others."""
        return (
            self.differ
            or bool(self.traced_at)
            or len({frozenset(held) for held in self.held_at.values()}) > 1
        )

    def note_difference(self) -> None:
        """Note that a trace needs others than those before."""
        self.differ = True

    def held(self, arrays: Sequence[object]) -> Held:
        """Numbers that are held for a call of these arrays, as far as it is known."""
        if not self.held_at:
            return {}
        if not self.depends_on_shapes:
            return next(iter(self.held_at.values()))
        return self.held_at.get(trace_key(arrays), {})


def numbers_to_hold(
    layout: Layout,
    leaves: Sequence[object],
    entry: CallPlanner,
    error: BaseException,
    trial: Trial,
) -> Held:
    """Numbers that a body needs, whose trace has failed.

    Args:
        layout: Layout of the call.
        leaves: Leaves of the call.
        entry: The entry whose trace has failed.
        error: What it failed with.
        trial: Returns an entry of the call in another layout.

    Returns:
        Nothing if the trace fails with all numbers held too: the error is not about them.
    """
    named, why = numbers_in(error, layout, entry)
    if named:
        return dict.fromkeys(named, why)

    # The error names none: whoever checks types raises errors of its own. Hold none, for the error
    # may be about something else: what comes after the trace, as a limit or a callback, or the
    # first trace only. Then hold all that may be, and release what need not be.
    def succeeds(held: frozenset[int]) -> bool:
        other = layout.with_held(dict.fromkeys(held, ""), leaves)
        return attempt(trial(other), other.pick([*leaves])) is None

    def without(held: frozenset[int], group: Sequence[Sequence[int]]) -> frozenset[int]:
        fewer = held.difference(*group)
        if succeeds(fewer):
            return fewer
        if len(group) > 1:
            half = len(group) // 2
            held = without(without(held, group[:half]), group[half:])
        return held

    varied = _varied(entry.core.fn())
    numbers = sorted(i for i in layout.numbers if layout.names[i][0] not in varied)
    held = frozenset(numbers)
    if succeeds(frozenset()) or not succeeds(held):
        return {}
    groups = _groups(layout, numbers)
    if len(groups) > 1:
        half = len(groups) // 2
        held = without(without(held, groups[:half]), groups[half:])
    return dict.fromkeys(held, why)


def _groups(layout: Layout, numbers: Sequence[int]) -> list[list[int]]:
    """Numbers that are held together: those of one frozen dataclass, whose hash needs them all, and
    each other one by itself.
    """
    groups: dict[int, list[int]] = {}
    for i in numbers:
        groups.setdefault(layout.record_of.get(i, -1 - i), []).append(i)
    return [*groups.values()]


def _varied(fn: object) -> Sequence[str]:
    """Arguments of a derivative that it is with respect to, or that are directions."""
    return (*(fn.wrt or ()), *fn.directions) if isinstance(fn, Derived) else ()


def numbers_in(
    error: BaseException, layout: Layout, entry: CallPlanner
) -> tuple[frozenset[int], str]:
    """Numbers of a layout that an error of its entry's trace names, and the reason for the plan."""
    need = None if isinstance(error, JitneyError) else need_of(error, entry.paths)
    named = () if need is None else need.arguments
    found = [layout.dynamic[n] for n in named if n < len(layout.dynamic)]
    numbers = layout.numbers.intersection(found)
    line = user_line(error)
    why = (
        "needed as a number"
        if numbers
        else f"if it is traced, the body raises {type(error).__name__}"
    )
    return numbers, f"{why} at {line}" if line else why


def attempt(entry: CallPlanner, arrays: Sequence[object]) -> Exception | None:
    """Trace the body of an entry on abstract values, and return the error that it raises."""
    if tolerance_of(entry.options.precision) is not None:
        # Its policy is chosen by values, which there are none of, and matters for no number.
        options = entry.request.options.without("precision")
        entry = copy.copy(entry)
        entry.request = replace(entry.request, options=options)

    def run(*arrays: object) -> object:
        outcome = Outcome()
        out = entry.apply_plan(entry.plan_call(arrays, jit=False), arrays, outcome)
        refuse_left_in_result(entry.core.where, outcome)
        return out

    try:
        with entry.numbers(), entry.scope():
            jax.eval_shape(run, *arrays)
    # Whatever the user's code raises: it is raised again where it is not about a number.
    except Exception as error:  # noqa: BLE001
        return error
    return None


def hold(layout: Layout, held: Held, leaves: Sequence[object]) -> Layout:
    """Layout of the same calls with more numbers held."""
    key = frozenset(held)
    known = layout.holding.get(key)
    if known is None:
        known = layout.holding[key] = layout.with_held(held, leaves)
    return known
