"""What every stage is: one decision with its reason, the transform that carries it out, and what it
does with the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax

from .._errors import Where
from .._precision import Policy
from .._signature.hints import Hint
from .._signature.options import Options
from .._view.result import Outcome
from .._view.view import View

Fn = Callable[..., Sequence[Any]]
"""The one calling convention inside: flat arrays in, flat arrays out."""
S = TypeVar("S", bound="Stage")


class Stage:
    """One decision. Compared fields change the compiled code; `why` does not.

    A stage that does not say otherwise changes nothing: its like is `Skip`.
    """

    name: str
    why: str

    @property
    def scope(self) -> str:
        """What profilers show of the operations inside of it: its name, and the axes that it is
        for. "" if it says so itself.
        """
        return self.name

    @classmethod
    def plan(cls, view: View, request: Request) -> Stage:
        """Decide, by the arrays that the stage sees and what was asked for."""
        raise NotImplementedError

    def inner(self, view: View) -> View:
        """The arrays that what stands inside of it sees."""
        return view

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        """The function inside of it, transformed. What the second step needs to know of the trace
        is left in the outcome.
        """
        return fn

    def finish(self, results: Sequence[Any], outcome: Outcome) -> Sequence[Any]:
        """The second step, inside the program, when all functions have run: place results, check
        them, say what is cut off them.
        """
        return results


def named(scope: str, fn: Fn) -> Fn:
    """The function, under a name in profiles. It is there for the compiler's notes alone: programs,
    numbers and keys are the same.
    """

    @functools.wraps(fn)
    def inside(*arrays: Any) -> Sequence[Any]:
        with jax.named_scope(scope):
            return fn(*arrays)

    return inside


@dataclass(frozen=True)
class Request:
    """What the user asked for, and of whom: all that a stage may look at besides the view."""

    where: Where
    options: Options
    donated: tuple[int, ...] = ()
    nested: bool = False
    # whether, nested, it may be cut into chunks all the same: an outer transform differentiates it
    # once, or maps it
    derived: bool = False
    exact: str | None = None  # why nothing is padded
    whole: str | None = None  # why nothing is cut into chunks
    chosen: tuple[Policy, str] | None = None  # what `precision="auto:..."` has come to, and why
    mesh: Any = None  # that the call runs on
    axes: tuple[str, ...] = ()  # named in the signature, results too; known where the mesh is
    result: Hint | None = None  # the annotation of the result; known where the mesh is
    single: str | None = None  # why nothing is placed on several devices
    outer: tuple[Stage, ...] = ()  # what has been decided outside of a stage

    def divisor(self, axis: str) -> int:
        """How many devices share a named axis."""
        rules = self.options.shard
        along = () if rules is None or self.mesh is None else dict(rules.axes).get(axis, ())
        sizes: Any = {} if self.mesh is None else self.mesh.shape
        return math.prod(sizes.get(name, 1) for name in along)

    def decided(self, kind: type[S]) -> S | None:
        """What a stage outside has decided; None if it was not to act."""
        return next((stage for stage in self.outer if isinstance(stage, kind)), None)


@dataclass(frozen=True)
class Skip(Stage):
    """A decision not taken, with its reason."""

    name: str
    why: str
