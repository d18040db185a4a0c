"""Branches and loops under `jax.vmap`, for a plan.

A branch computes all sides, and a loop runs until its slowest element ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax

from .._jax.programs.jaxprs import equations, open_jaxpr, source_of
from .._jax.typed import AnyJaxpr
from .._stages import Chunk, Vmap
from .._stages.autocast import body_of
from .._stages.plan import Plan
from .._view.view import View

if TYPE_CHECKING:
    from .._program.entry import Specialization


@dataclass(frozen=True)
class JoinedControlFlow:
    """Branch or loop that all elements of a mapped axis go through together.

    Args:
        place: The user's line.
        is_loop: True for a `while_loop`, false for a `cond` or `switch`.
    """

    place: str
    is_loop: bool


def joined_lanes(
    plan: Plan,
    entry: Specialization,
    view: View,
) -> list[JoinedControlFlow]:
    """Find the branches and loops that differ between the elements of the mapped axes.

    The body is traced for one element, and mapped: `vmap` turns a `cond` whose predicate is mapped
    into a select, and gives such a `while_loop` a condition for each element (jax 0.10.2 and
    0.12.0.1).
    """
    with entry.numbers():
        # The body for one element, and the body with the mapped axis.
        one = body_of(entry.body_inside(plan, Vmap), _abstract(plan.seen_inside(Vmap, view)))
        if not any(eqn.primitive.name in ("cond", "while") for eqn in equations(one)):
            return []
        mapped = body_of(entry.body_inside(plan, Chunk), _abstract(plan.seen_inside(Chunk, view)))

    # A `cond` that `vmap` turned into a select is missing from the mapped program.
    branches = Counter(_branches(one)) - Counter(_branches(mapped))
    return [
        *(JoinedControlFlow(place, is_loop=False) for place in branches),
        *(JoinedControlFlow(place, is_loop=True) for place in dict.fromkeys(_joining(mapped))),
    ]


def _abstract(view: View) -> list[jax.ShapeDtypeStruct]:
    return [leaf.abstract() for leaf in view.leaves]


def _branches(jaxpr: AnyJaxpr) -> Iterator[str]:
    return (source_of(eqn) for eqn in equations(jaxpr) if eqn.primitive.name == "cond")


def _joining(jaxpr: AnyJaxpr) -> Iterator[str]:
    """Yield the loops whose condition has an element for each one of the mapped axis.

    Such a loop runs while any of them holds.
    """
    for eqn in equations(jaxpr):
        # The condition of an unmapped loop is a scalar.
        if (
            eqn.primitive.name == "while"
            and open_jaxpr(eqn.params["cond_jaxpr"])[0].outvars[0].aval.shape
        ):
            yield source_of(eqn)
