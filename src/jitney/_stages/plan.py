"""A plan: the stages of one call, decided outside-in over shapes and built inside-out over functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._view.view import View
from . import PIPELINE
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Plan:
    """Every decision about a call, those not taken too, from the outside to the inside."""

    stages: tuple[Any, ...]

    @classmethod
    def make(cls, view: View, request: Request) -> Plan:
        """Decide every stage.

        Raises:
            ContractError: The arrays cannot be mapped as asked.
        """
        stages: list[Stage | Skip] = []
        for kind in PIPELINE:
            stage: Stage | Skip = kind.plan(view, request)
            stages.append(stage)
            view = stage.inner(view)
        return cls(tuple(stages))

    def stage(self, name: str) -> Any:
        return next(stage for stage in self.stages if stage.name == name)

    def build(self, body: Fn, inside: str = "jit") -> Fn:
        """The body with every stage inside of one around it."""
        first = [stage.name for stage in self.stages].index(inside) + 1
        for stage in reversed(self.stages[first:]):
            body = stage.wrap(body)
        return body


def difference(old: Plan | None, new: Plan) -> list[str]:
    """The stages that two plans decide differently."""
    if old is None:
        return []
    return [f"{b.name}: {a.why} -> {b.why}" for a, b in zip(old.stages, new.stages, strict=True) if a != b]
