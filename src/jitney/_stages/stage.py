"""Interface of a stage: one decision with its reason, the transform that carries it out, and a
step on the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import jax

from .._errors import Where
from .._jax.typed import AnyMesh, Array
from .._precision import Policy
from .._signature.hints import Hint
from .._signature.options import Options
from .._view.result import Outcome
from .._view.view import View

P = ParamSpec("P")
R = TypeVar("R")
Fn = Callable[..., Sequence[Array]]
"""Calling convention of all stages: flat arrays in, flat arrays out."""
Shardings = Sequence[jax.sharding.NamedSharding]
S = TypeVar("S", bound="Stage")


class Stage:
    """Decision with its reason. Compared fields change the compiled code; `why` does not.

    The defaults are the identity; `Skip` is the stage that keeps them all. Four stages decide and
    wrap nothing: Fill (the call pads), Place and Jit (the compiled function has them), MappedChunks
    (Vmap takes them).
    """

    name: str
    why: str

    @property
    def scope(self) -> str:
        """Name of its operations in profiles, with the axes that it acts on; "" if the stage
        names them itself.
        """
        return self.name

    @classmethod
    def plan(cls, view: View, request: Request) -> Stage:
        """Decide from the abstract arrays of the view and the options of the request."""
        raise NotImplementedError

    def inner(self, view: View) -> View:
        """View of the arrays that the next stage inside sees."""
        return view

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        """Transform the function inside the stage. What `finish` needs to know of the trace goes
        into the outcome.
        """
        return fn

    def finish(
        self,
        results: Sequence[Array],
        outcome: Outcome,
    ) -> Sequence[Array]:
        """Second step, inside the program, when all functions have run: place results, check
        them, or record what to cut off.
        """
        return results


def name_scope(scope: str, fn: Callable[P, R]) -> Callable[P, R]:
    """Run a function under a name in profiles.

    The name is metadata of the compiler: programs, numbers and cache keys are the same without it.
    """

    @functools.wraps(fn)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.named_scope(scope):
            return fn(*args, **kwargs)

    return inside


@dataclass(frozen=True)
class Request:
    """User's options and their context: all that a stage may look at besides the view."""

    where: Where
    options: Options
    donated: tuple[int, ...] = ()
    nested: bool = False
    # True if a nested call may be cut into chunks all the same, because an outer transform
    # differentiates it once or maps it.
    derived: bool = False
    # True for a derivative that goes backward and that `remat="auto"` acts in.
    recomputes: bool = False
    # Reason why nothing is padded.
    exact: str | None = None
    # Axis -> the size that its bucket ends at, where the body is one program up to there only.
    tops: tuple[tuple[str, int], ...] = ()
    # Reason why nothing is cut into chunks.
    whole: str | None = None
    # Policy that `precision="auto:..."` has chosen, with the reason.
    chosen: tuple[Policy, str] | None = None
    mesh: AnyMesh | None = None
    # Axes named in the signature and the fields of its classes, those of results too; filled where
    # there is a mesh.
    axes: tuple[str, ...] = ()
    # Annotation of the result; filled where there is a mesh.
    result: Hint | None = None
    # Reason why nothing is placed on several devices.
    single: str | None = None
    # Decisions of the stages outside.
    outer: tuple[Stage, ...] = ()

    def divisor(self, axis: str) -> int:
        """Number of devices that share a named axis."""
        rules, mesh = self.options.shard, self.mesh
        if rules is None or mesh is None:
            return 1
        along = dict(rules.axes).get(axis, ())
        return math.prod(mesh.shape.get(name, 1) for name in along)

    def outer_stage(self, kind: type[S]) -> S | None:
        """Decision of a stage outside; None if that stage was skipped."""
        return next((stage for stage in self.outer if isinstance(stage, kind)), None)


@dataclass(frozen=True)
class Skip(Stage):
    """Decision against acting, with its reason."""

    name: str
    why: str
