"""Plan of one call: its stages, decided outside-in over shapes and built inside-out over
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._jax.debug_names import named_like
from .._jax.typed import Array
from .._view.result import Outcome
from .._view.view import View
from . import PIPELINE, Jit, MappedChunks, Vmap
from .stage import Fn, Request, S, Stage, name_scope


@dataclass(frozen=True)
class Plan:
    """Decisions of all stages about a call, skipped ones too, from the outside to the inside."""

    stages: tuple[Stage, ...]

    @classmethod
    def make(cls, view: View, request: Request) -> Plan:
        """Decide every stage.

        Raises:
            ContractError: The arrays cannot be mapped as the options say.
        """
        stages: list[Stage] = []
        for kind in PIPELINE:
            # A stage may look at the decisions outside it, and sees the arrays as they arrive
            # inside them.
            stage = kind.plan(view, replace(request, outer=tuple(stages)))
            stages.append(stage)
            view = stage.inner(view)
        return cls(tuple(stages))

    def of(self, kind: type[S]) -> S | None:
        """Decision of a stage; None if it was skipped, or another class has its place: Chunk may
        plan a MappedChunks, Precision an Autocast.
        """
        return next((stage for stage in self.stages if isinstance(stage, kind)), None)

    def stage(self, name: str) -> Stage:
        """Decision with this name, skipped or not."""
        return next(stage for stage in self.stages if stage.name == name)

    def by_proof(self) -> Plan:
        """Plan that cuts the axis of MappedChunks by the rules of operations instead."""
        stages: list[Stage] = []
        for stage in self.stages:
            if isinstance(stage, MappedChunks):
                stages.append(stage.proven)
            elif isinstance(stage, Vmap):
                stages.append(replace(stage, loop=None))
            else:
                stages.append(stage)
        return Plan(tuple(stages))

    def build(self, body: Fn, outcome: Outcome) -> Fn:
        """Wrap the body in every stage inside Jit, and run their second steps on the results.

        The second steps run in the order of the decisions: a call that Fill refuses runs at exact
        size, whatever the other stages would report.
        """
        wrapped = self.inside(Jit, body, outcome)

        def built(*arrays: Array) -> Sequence[Array]:
            results = wrapped(*arrays)
            for stage in self.stages:
                results = stage.finish(results, outcome)
            return results

        return named_like(built, wrapped)

    def inside(
        self,
        kind: type[Stage],
        body: Fn,
        outcome: Outcome,
    ) -> Fn:
        """Wrap the body in the stages inside one stage."""
        inside = self.stages[PIPELINE.index(kind) + 1 :]
        for stage in reversed(inside):
            wrapped = stage.wrap(body, outcome)
            # Skipped stages return the body itself and get no scope.
            if wrapped is not body and stage.scope:
                wrapped = name_scope(stage.scope, wrapped)
            body = named_like(wrapped, body)
        return body

    def seen_inside(
        self,
        kind: type[Stage],
        view: View,
    ) -> View:
        """View of the arrays inside one stage."""
        for stage in self.stages[: PIPELINE.index(kind) + 1]:
            view = stage.inner(view)
        return view


def difference(old: Plan | None, new: Plan) -> list[str]:
    """List the stages that two plans decide differently."""
    if old is None:
        return []
    pairs = zip(old.stages, new.stages, strict=True)
    return [f"{b.name}: {a.why} -> {b.why}" for a, b in pairs if a != b]
