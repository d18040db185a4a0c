"""A remedy that is proven, and the twin of a function that proves it: the same body with other
options and annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..._body.function import FunctionInfo
from ..._diagnosis.counters.counters import Counters
from ..._signature.hints import Hint

About = tuple[str, str | None]
"""Kind of a cause, with its axis or argument."""


@dataclass(frozen=True)
class Proven:
    """A remedy, the arguments and axes whose causes it ends, and the programs that it saves."""

    remedy: str
    # Kinds of causes, each with its axis or argument.
    ends: frozenset[About]
    saves: str = ""


class _Unheard(Counters):
    """Counters of a function that exists for a proof only: no warning is given."""

    def warn_once(self, about: str) -> bool:
        return False


def twin_of(
    core: FunctionInfo,
    options: Mapping[str, object],
    hints: Mapping[str, Hint],
) -> FunctionInfo:
    """Return the same function with other options and annotations, whose traces nobody counts."""
    plain = core.options.without("cache", "max_compiles", "verify", "debug_nans")
    twin = core.of(core.fn(), replace(plain, **options))
    parameters = tuple(
        replace(each, hint=hints.get(each.name, each.hint)) for each in core.contract.parameters
    )
    twin.contract = replace(core.contract, parameters=parameters)
    twin.counters = _Unheard(core.name)
    return twin
