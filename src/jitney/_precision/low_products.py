"""Autocast: evaluate a jaxpr with its matrix products and convolutions in a low type, accumulated
in float32, and all else as it is.

Loops, branches, calls and rematerialised parts keep their primitives and parameters; only their
sub-jaxprs are replaced, with products cast inside. Functions with a custom derivative rule are
bound as they are, which keeps the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax

from .._errors import shortlist
from .._jax.jaxprs import bound, name_of, opened, programs, while_parts
from .._jax.primitives import CALLS, REMATS
from .._jax.typed import Aval, JaxprEqn
from .policy import LOW, Policy
from .product_labels import Label, ProductInterpreter, ProductSite
from .products import SOLVERS, holds_products, low_product, solves

# A call of up to so many equations is inlined: then the labels of its products show what they share
# with others.
_SMALL = 16


@dataclass
class Tally:
    """Statistics of the products of one program."""

    # Cast products, by low type.
    cast: Counter[str] = field(default_factory=Counter[str])
    # Products in float32, by the exception that names them.
    pinned: Counter[str] = field(default_factory=Counter[str])
    # Products that are never cast, by reason.
    stays: Counter[str] = field(default_factory=Counter[str])
    # Products that are left alone, by the function that holds them.
    alone: Counter[str] = field(default_factory=Counter[str])

    @property
    def lines(self) -> list[str]:
        """Lines for the plan."""
        cast = (
            ", ".join(f"{_products(count)} in {LOW[name]}" for name, count in self.cast.items())
            or "no product is cast"
        )
        kept = [f"{_products(count)} in float32: {name}" for name, count in self.stays.items()]
        if self.pinned:
            kept = [
                f"{_products(sum(self.pinned.values()))} in float32, by"
                f" {shortlist(list(self.pinned))}",
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
    """Collect the statistics of the programs that are cast meanwhile."""
    collected: list[Tally] = []
    token = _TALLIES.set(collected)
    try:
        yield collected
    finally:
        _TALLIES.reset(token)


def autocast(
    closed: object, arrays: Sequence[object], labels: Sequence[Label], policy: Policy
) -> tuple[list[Any], list[ProductSite]]:
    """Evaluate a program under a policy; return its results and its products.

    Args:
        closed: The program.
        arrays: Its arguments.
        labels: Origin of each argument.
        policy: Type of each product.
    """
    walk = _Autocast(policy)
    collected = _TALLIES.get()
    if collected is not None:
        collected.append(walk.tally)
    # Without exceptions no path matters. Dropping the paths lets calls of one function share one
    # cast program.
    told = labels if policy.exceptions else [Label((), label.leaf, label.exact) for label in labels]
    out, _ = walk.run(closed, arrays, told)
    return out, walk.sites


class _Autocast(ProductInterpreter):
    def __init__(self, policy: Policy):
        self.policy = policy
        self.tally = Tally()
        self.sites: list[ProductSite] = []
        self.converted: dict[Any, tuple[Any, Sequence[Label], Any]] = {}

    def product(self, eqn: JaxprEqn, operands: Sequence[jax.Array], site: ProductSite) -> list[Any]:
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
        self, eqn: JaxprEqn, operands: Sequence[jax.Array], labels: Sequence[Label], source: str
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
        # A loop that contains a solve is an iteration of Newton's kind; see the end.
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
        # Record the reason why the products stay.
        if name in SOLVERS or name == "while":
            self.tally.stays["inside a solve or an iteration of Newton's kind"] += count
        else:
            self.tally.alone[name_of(eqn)] += count
        return None

    def cast(self, jaxpr: object, labels: Sequence[Label], source: str) -> tuple[Any, list[Label]]:
        """Return a program with its products cast, and the labels of its results.

        Memoised, so that one sub-jaxpr stays one.
        """
        key = (id(jaxpr), tuple(labels))
        if key not in self.converted:
            traced: list[Label] = []

            def program(*arrays: object) -> list[Any]:
                out, traced[:] = self.run(jaxpr, arrays, labels, source)
                return out

            new = jax.make_jaxpr(program)(*(_abstract(var.aval) for var in opened(jaxpr)[0].invars))
            self.converted[key] = (
                # `params` hold open and closed jaxprs: return the kind that came in.
                new if type(new) is type(jaxpr) else opened(new)[0],
                traced,
                jaxpr,
            )
        new, origins, _ = self.converted[key]
        return new, list(origins)


def _abstract(aval: Aval) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _products(count: int) -> str:
    return "1 product" if count == 1 else f"{count} products"
