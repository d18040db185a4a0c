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

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax

from .._body.call_key import trace_key
from .._diagnosis.needed_values import need_of
from .._errors import JitneyError
from .._owners import user_line
from .._view.layout import Layout

if TYPE_CHECKING:
    from .entry import Specialization

Held = Mapping[int, str]
"""Indices among the leaves of a call, with the reason for each."""
Trial = Callable[[Layout], "Specialization"]
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
    """

    def __init__(self) -> None:
        self.held_at: dict[Hashable, Held] = {}
        self.traced_at: set[Hashable] = set()

    @property
    def depends_on_shapes(self) -> bool:
        """True if calls of some shapes need other numbers than calls of others."""
        return bool(self.traced_at) or len({frozenset(held) for held in self.held_at.values()}) > 1

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
    entry: Specialization,
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
    need = None if isinstance(error, JitneyError) else need_of(error, entry.paths)
    named = () if need is None else need.arguments
    candidates = [layout.dynamic[n] for n in named if n < len(layout.dynamic)]
    found = [i for i in candidates if i in layout.numbers]
    line = user_line(error)
    if found:
        return dict.fromkeys(
            found, f"needed as a number at {line}" if line else "needed as a number"
        )

    # The error names none: whoever checks types raises errors of its own. Hold all, then one alone.
    def succeeds(held: Sequence[int]) -> bool:
        other = layout.with_held(dict.fromkeys(held, ""), leaves)
        return attempt(trial(other), other.pick([*leaves])) is None

    numbers = sorted(layout.numbers)
    if not succeeds(numbers):
        return {}
    alone = [[i] for i in numbers] if len(numbers) > 1 else []
    needed = next((each for each in alone if succeeds(each)), numbers)
    why = f"traced it raises {type(error).__name__}" + (f" at {line}" if line else "")
    return dict.fromkeys(needed, why)


def attempt(entry: Specialization, arrays: Sequence[object]) -> Exception | None:
    """Trace the body of an entry on abstract values, and return the error that it raises."""
    try:
        with entry.numbers(), entry.scope():
            jax.eval_shape(entry.run_inner_stages, *arrays)
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
