"""Rematerialise: recompute intermediate values in the backward pass instead of keeping them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import jax

from .._stage import Fn, Request, Skip
from .._view import View


@dataclass(frozen=True)
class Remat:
    """`jax.checkpoint` around the body, under a policy of `jax.checkpoint_policies`."""

    policy: str
    why: str = field(compare=False)
    name: str = field(default="remat", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        policy = request.options.remat
        if policy is None:
            return Skip("remat", "no `remat` policy given")
        return cls(policy, f"the backward pass keeps what `{policy}` says and recomputes the rest")

    def inner(self, view: View) -> View:
        return view

    def wrap(self, fn: Fn) -> Fn:
        policy = getattr(jax.checkpoint_policies, self.policy)
        return jax.checkpoint(fn, policy=policy)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
