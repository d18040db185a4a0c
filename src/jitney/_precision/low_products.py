"""Evaluate a program with its matrix products and convolutions in a low type, accumulated in
float32; all else as it is.

Loops, branches, calls and rematerialised parts keep their operations and get programs that are cast
inside, so that everything that JAX knows of them stays. The bodies of functions with a derivative
rule of their own are left alone: rebinding them keeps the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax

from .._errors import few
from .._jax.jaxprs import bound, name_of, opened, programs, while_parts
from .._jax.primitives import CALLS, REMATS
from .._jax.trees import type_of
from .fed_by import Feeds, Label, Site
from .policy import LOW, Policy
from .products import SOLVERS, holds_products, low_product, solves

_jax: Any = jax
# a call of up to so many operations is inlined: what its products share with others shows then
_SMALL = 16


@dataclass
class Tally:
    """What was done with the products of one program."""

    cast: Counter[str] = field(default_factory=Counter[str])  # by type
    pinned: Counter[str] = field(default_factory=Counter[str])  # by the exception that says float32
    stays: Counter[str] = field(default_factory=Counter[str])  # by the reason
    alone: Counter[str] = field(default_factory=Counter[str])  # by the function that holds them

    @property
    def lines(self) -> list[str]:
        """For the plan."""
        cast = (
            ", ".join(f"{_products(count)} in {LOW[name]}" for name, count in self.cast.items())
            or "no product is cast"
        )
        kept = [f"{_products(count)} in float32: {name}" for name, count in self.stays.items()]
        if self.pinned:
            kept = [
                f"{_products(sum(self.pinned.values()))} in float32, by {few(list(self.pinned))}",
                *kept,
            ]
        alone = [f"{name} ({_products(count)})" for name, count in self.alone.items()]
        left = (
            [
                f"left alone, with {'their' if len(alone) > 1 else 'its'} own rule or loop:"
                f" {', '.join(alone)}"
            ]
            if alone
            else []
        )
        return [cast, *kept, *left]


_TALLIES: ContextVar[list[Tally] | None] = ContextVar("tallies", default=None)


@contextmanager
def tallies() -> Generator[list[Tally]]:
    """Collect what is done in the programs that are cast meanwhile."""
    collected: list[Tally] = []
    token = _TALLIES.set(collected)
    try:
        yield collected
    finally:
        _TALLIES.reset(token)


def autocast(
    closed: Any, arrays: Sequence[Any], labels: Sequence[Label], policy: Policy
) -> tuple[list[Any], list[Site]]:
    """The results of a program under a policy, and its products.

    Args:
        closed: The program.
        arrays: Its arguments.
        labels: Where they come from.
        policy: Which products are cast to what.
    """
    walk = _Autocast(policy)
    collected = _TALLIES.get()
    if collected is not None:
        collected.append(walk.tally)
    # Paths that nothing asks for are dropped, so that calls of one inner function are one again.
    told = labels if policy.exceptions else [Label((), label.leaf, label.exact) for label in labels]
    out, _ = walk.run(closed, arrays, told)
    return out, walk.sites


class _Autocast(Feeds):
    def __init__(self, policy: Policy):
        self.policy = policy
        self.tally = Tally()
        self.sites: list[Site] = []
        self.converted: dict[Any, tuple[Any, Sequence[Label], Any]] = {}

    def product(self, eqn: Any, operands: Sequence[Any], site: Site) -> list[Any]:
        self.sites.append(site)
        type_, said_by = self.policy.of(site.paths, site.source)
        if site.stays is not None:
            self.tally.stays[site.stays] += 1
        elif type_ in LOW:
            self.tally.cast[type_] += 1
            return [low_product(eqn, operands[0], operands[1], LOW[type_], operands[2:])]
        else:
            self.tally.pinned[f"`{said_by or 'default'}`"] += 1
        return bound(eqn, operands)

    def other(
        self, eqn: Any, operands: Sequence[Any], labels: Sequence[Label], source: str
    ) -> tuple[list[Any], list[Label]] | None:
        count = sum(map(holds_products, programs(eqn.params)))
        if count == 0:
            return None
        name, params = eqn.primitive.name, eqn.params
        if name == "cond":
            branches = [self.cast(branch, labels[1:], source) for branch in params["branches"]]
            return (
                bound(eqn, operands, branches=tuple(program for program, _ in branches)),
                branches[0][1],
            )
        if name == "while" and not solves(eqn):
            fixed, inside, carry = while_parts(eqn, list(labels))
            test, _ = self.cast(params["cond_jaxpr"], [*fixed, *carry], source)
            body, origins = self.cast(params["body_jaxpr"], [*inside, *carry], source)
            return bound(eqn, operands, cond_jaxpr=test, body_jaxpr=body), origins
        if name == "scan" or name in REMATS:
            body, origins = self.cast(params["jaxpr"], labels, source)
            return bound(eqn, operands, jaxpr=body), origins
        if name in CALLS and not name.startswith("custom"):
            program = params[CALLS[name]]
            if len(opened(program)[0].eqns) <= _SMALL:
                return self.run(program, operands, labels, source)
            body, origins = self.cast(program, labels, source)
            return bound(eqn, operands, **{CALLS[name]: body}), origins
        if name in SOLVERS or name == "while":
            self.tally.stays["inside a solve or an iteration of Newton's kind"] += count
        else:
            self.tally.alone[name_of(eqn)] += count
        return None

    def cast(self, jaxpr: Any, labels: Sequence[Label], source: str) -> tuple[Any, list[Label]]:
        """The same program with its products cast, and where its results come from; the same again
        if it comes again.
        """
        key = (id(jaxpr), tuple(labels))
        if key not in self.converted:
            traced: list[Label] = []

            def program(*arrays: Any) -> list[Any]:
                out, traced[:] = self.run(jaxpr, arrays, labels, source)
                return out

            new: Any = _jax.make_jaxpr(program)(
                *(_abstract(var.aval) for var in opened(jaxpr)[0].invars)
            )
            self.converted[key] = (
                new if type_of(new) is type_of(jaxpr) else opened(new)[0],
                traced,
                jaxpr,
            )
        new, origins, _ = self.converted[key]
        return new, list(origins)


def _abstract(aval: Any) -> Any:
    return _jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False)
    )


def _products(count: int) -> str:
    return "1 product" if count == 1 else f"{count} products"
