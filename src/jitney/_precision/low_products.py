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
from .._jax.programs.jaxprs import name_of, open_jaxpr, programs, rebind, while_parts
from .._jax.programs.primitives import CALLS, REMATS
from .._jax.typed import AnyJaxpr, Array, Aval, JaxprEqn
from .policy import LOW, Policy
from .product_labels import Label, Labelled, ProductInterpreter, ProductSite
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
        cast = [f"{_products(count)} in {LOW[name]}" for name, count in self.cast.items()]
        lines = [", ".join(cast) or "no product is cast"]
        if self.pinned:
            pinned = _products(sum(self.pinned.values()))
            lines.append(f"{pinned} in float32, by {shortlist(list(self.pinned))}")
        for reason, count in self.stays.items():
            lines.append(f"{_products(count)} in float32: {reason}")

        alone = [f"{name} ({_products(count)})" for name, count in self.alone.items()]
        if alone:
            whose = "their" if len(alone) > 1 else "its"
            lines.append(f"left alone, with {whose} own rule or loop: {', '.join(alone)}")
        return lines


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
    closed: AnyJaxpr,
    arrays: Sequence[Array],
    labels: Sequence[Label],
    policy: Policy,
) -> tuple[list[Array], list[ProductSite]]:
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
    if not policy.exceptions:
        labels = [Label((), label.leaf, label.exact) for label in labels]
    results, _ = walk.run(closed, arrays, labels)
    return results, walk.sites


@dataclass(frozen=True)
class _CastProgram:
    """Program with its products cast."""

    program: AnyJaxpr
    # Labels of its results.
    origins: Sequence[Label]
    # The program before: as long as it is held, its id is not given to another object.
    source: AnyJaxpr


class _Autocast(ProductInterpreter):
    def __init__(self, policy: Policy):
        self.policy = policy
        self.tally = Tally()
        self.sites: list[ProductSite] = []
        self.converted: dict[tuple[int, tuple[Label, ...]], _CastProgram] = {}

    def product(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        site: ProductSite,
    ) -> list[Array]:
        self.sites.append(site)
        type_, exception = self.policy.of(site.paths, site.source)
        if site.stays is not None:
            self.tally.stays[site.stays] += 1
        elif type_ in LOW:
            self.tally.cast[type_] += 1
            x, y, *rest = operands
            return [low_product(eqn, x, y, LOW[type_], rest)]
        else:
            self.tally.pinned[f"`{exception or 'default'}`"] += 1
        return rebind(eqn, operands)

    def evaluate_nested(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        labels: Sequence[Label],
        source: str,
    ) -> Labelled | None:
        count = sum(map(holds_products, programs(eqn.params)))
        if count == 0:
            return None
        name, params = eqn.primitive.name, eqn.params

        if name == "cond":
            branches = [self.cast(branch, labels[1:], source) for branch in params["branches"]]
            cast_branches = tuple(program for program, _ in branches)
            _, origins = branches[0]
            return rebind(eqn, operands, branches=cast_branches), origins

        # A loop that contains a solve is an iteration of Newton's kind; see the end.
        if name == "while" and not solves(eqn):
            fixed, inside, carry = while_parts(eqn, list(labels))
            test, _ = self.cast(params["cond_jaxpr"], [*fixed, *carry], source)
            body, origins = self.cast(params["body_jaxpr"], [*inside, *carry], source)
            results = rebind(eqn, operands, cond_jaxpr=test, body_jaxpr=body)
            return results, origins

        if name == "scan" or name in REMATS:
            body, origins = self.cast(params["jaxpr"], labels, source)
            return rebind(eqn, operands, jaxpr=body), origins

        if name in CALLS and not name.startswith("custom"):
            parameter = CALLS[name]
            program = params[parameter]
            plain, _ = open_jaxpr(program)
            if len(plain.eqns) <= _SMALL:
                return self.run(program, operands, labels, source)
            body, origins = self.cast(program, labels, source)
            return rebind(eqn, operands, **{parameter: body}), origins

        # Record the reason why the products stay.
        if name in SOLVERS or name == "while":
            self.tally.stays["inside a solve or an iteration of Newton's kind"] += count
        else:
            self.tally.alone[name_of(eqn)] += count
        return None

    def cast(
        self,
        jaxpr: AnyJaxpr,
        labels: Sequence[Label],
        source: str,
    ) -> tuple[AnyJaxpr, list[Label]]:
        """Return a program with its products cast, and the labels of its results.

        Memoised, so that one sub-jaxpr stays one.
        """
        key = (id(jaxpr), tuple(labels))
        converted = self.converted.get(key)
        if converted is None:
            converted = self._cast(jaxpr, labels, source)
            self.converted[key] = converted
        return converted.program, list(converted.origins)

    def _cast(
        self,
        jaxpr: AnyJaxpr,
        labels: Sequence[Label],
        source: str,
    ) -> _CastProgram:
        origins: list[Label] = []

        def program(*arrays: jax.Array) -> list[Array]:
            out, origins[:] = self.run(jaxpr, arrays, labels, source)
            return out

        plain, _ = open_jaxpr(jaxpr)
        arguments = [_abstract(var.aval) for var in plain.invars]
        closed: Any = jax.make_jaxpr(program)(*arguments)
        # `params` hold open and closed jaxprs: return the kind that came in.
        cast = closed if type(closed) is type(jaxpr) else open_jaxpr(closed)[0]
        return _CastProgram(cast, origins, jaxpr)


def _abstract(aval: Aval) -> jax.ShapeDtypeStruct:
    weak_type = getattr(aval, "weak_type", False)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak_type)


def _products(count: int) -> str:
    return "1 product" if count == 1 else f"{count} products"
