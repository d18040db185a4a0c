"""What every stage is: one decision with its reason, plus the transform that carries it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .._errors import Where
from .._precision import Policy
from .._signature.options import Options
from .._view.view import View

Fn = Callable[..., Sequence[Any]]
"""The one calling convention inside: flat arrays in, flat arrays out."""


@dataclass(frozen=True)
class Request:
    """What the user asked for, and of whom: all that a stage may look at besides the view."""

    where: Where
    options: Options
    donated: tuple[int, ...] = ()
    nested: bool = False
    exact: str | None = None  # why nothing is padded
    whole: str | None = None  # why nothing is cut into chunks
    chosen: tuple[Policy, str] | None = None  # what `precision="auto:..."` has come to, and why
    mesh: Any = None  # that the call runs on
    axes: tuple[str, ...] = ()  # named in the signature, results too; known where the mesh is
    single: str | None = None  # why nothing is placed on several devices

    def divisor(self, axis: str) -> int:
        """How many devices share a named axis."""
        rules = self.options.shard
        along = () if rules is None or self.mesh is None else dict(rules.axes).get(axis, ())
        sizes: Any = {} if self.mesh is None else self.mesh.shape
        return math.prod(sizes.get(each, 1) for each in along)


@dataclass(frozen=True)
class Skip:
    """A decision not taken, with its reason."""

    name: str
    why: str

    def wrap(self, fn: Fn) -> Fn:
        return fn

    def inner(self, view: View) -> View:
        return view


class Stage(Protocol):
    """One decision. Compared fields change the compiled code; `why` does not."""

    @property
    def name(self) -> str: ...
    @property
    def why(self) -> str: ...
    @classmethod
    def plan(cls, view: View, request: Request) -> Stage | Skip: ...
    def inner(self, view: View) -> View: ...
    def wrap(self, fn: Fn) -> Fn: ...
