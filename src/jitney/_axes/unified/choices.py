"""Choices that are made once for a program, from traces at a few known sizes, and hold at all
sizes, such as the colours of a sparse Jacobian.

    wish      at size 64, 63, 62: three colourings, each of its own pattern
    settle    one that is right for all of them, or None
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..._errors import DerivativeError
from ..refusal import Refused
from ..symbolic.scope import SCOPE, Proposal
from ..symbolic.size_errors import first_line, place

if TYPE_CHECKING:
    from .sized_function import SizedFunction

W = TypeVar("W")
S = TypeVar("S")

# The number of sizes to rehearse. Three, since the colours of a ring of neighbours (a stencil with
# periodic boundaries) depend on the size modulo 3.
_REHEARSED = 3


class Choices:
    """Store of the choices.

    The symbolic trace reads them first. Then the function is rehearsed: it is traced at known sizes
    to collect a proposal from each. Every later trace reads the same choices, in the same order.
    """

    def __init__(self) -> None:
        self._begun: SizedFunction | None = None
        self._made: list[object] | None = None

    def begin(self, function: SizedFunction) -> None:
        """Set the function to rehearse."""
        self._begun = function

    @property
    def has_decisions(self) -> bool:
        """True if a choice was made."""
        return any(choice is not None for choice in self._made or ())

    @property
    def decisions(self) -> list[Any]:
        """The choices, in the order of the trace; made on first use."""
        # Traces that propose different numbers of choices cannot be matched: none is made.
        if self._made is None:
            proposals = list(self._proposals())
            counts = {len(each) for each in proposals}
            first = proposals[0] if len(counts) == 1 else []
            self._made = [
                _settle_wishes(settle, [each[i][0] for each in proposals])
                for i, (_, settle) in enumerate(first)
            ]
        return self._made

    def _proposals(self) -> Iterator[list[Proposal]]:
        """Yield the proposals at each of the largest sizes. The size of the call is not used, so
        that the choice is the same in every process.

        Raises:
            Refused: The function fails at one of these sizes.
        """
        function = self._begun
        if function is None:
            return
        for below in range(_REHEARSED):
            bounds = function.ranges.items()
            sizes = {name: max(low, high - below) for name, (low, high) in bounds}
            rehearsed: list[Proposal] = []
            try:
                function.at(sizes, rehearsed)
            # These hold at any size.
            except (Refused, DerivativeError):
                raise
            except Exception as error:
                size = " and ".join(map(str, sizes.values()))
                why = f"cannot be traced at size {size}: {first_line(error)}"
                raise Refused(place(error), why) from error
            yield rehearsed


def _settle_wishes(
    settle: Callable[[Sequence[object]], object], wishes: Sequence[object]
) -> object:
    return None if any(wish is None for wish in wishes) else settle(wishes)


def shared_choice(
    wish: Callable[[], W | None], settle: Callable[[Sequence[W]], S | None]
) -> S | None:
    """The choice that holds at all sizes of the trace under way; None if none is made.

    Args:
        wish: Proposal at the size of the trace, called where that is known; None for no choice.
        settle: Makes a choice from the proposals at several sizes, the largest size first.
    """
    scope = SCOPE.get()
    if scope is None or scope.choices is None:
        return None
    if scope.rehearsed is not None:
        scope.rehearsed.append((wish(), settle))
        return None
    made = scope.choices.decisions
    scope.turn += 1
    return made[scope.turn - 1] if scope.turn <= len(made) else None
