"""`jitney.analysis.frontier`: memory against recomputation, for the gradient of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import jax

from .._errors import DerivativeError
from .._interface.derivatives.derivative import Derivative, program_of
from .._interface.derivatives.varying_arguments import argument_names, check_names
from .._jax.xla.memory import budget_of
from .._owners import public
from .._remat import (
    EVERYTHING,
    MeasuredOption,
    NoneFits,
    Problem,
    choose,
    frontier_of,
    offload_obstacle,
)
from .._report.comparisons import Frontier, Saving
from .._signature.options import Wrt
from .._stages import AutoRemat, Place
from .._stages.plan import Plan

if TYPE_CHECKING:
    from .._interface.program import Program

# Memory limits to explore where none is given, as fractions of that of saving everything.
_PARTS = (0.8, 0.6, 0.4, 0.25)


@public
def frontier(
    program: Program[..., object] | Derivative[..., object],
    /,
    *examples: object,
    wrt: Wrt = None,
    memory: int | str | None = None,
    sizes: Mapping[str, int] | None = None,
    **keywords: object,
) -> Frontier:
    """Tabulate the memory of a function's gradient against its recomputed operations, for several
    choices of the residuals that the forward pass saves.

    The choices are those of `remat="auto"`: everything; matrix products; and for the first layers
    of a stack, some of them together, products or only the layers' inputs. Layers are found in the
    program: operations that a Python loop repeats, or the iterations of a `lax.scan`. The memory is
    that of the compiled gradient; recomputed operations are counted in its jaxpr, since compilers
    count the body of a loop once.

    Args:
        program: A function under `@optimize`, or its `grad` or `value_and_grad`.
        examples: As for `Program.compile`.
        wrt: The arguments that the gradient is taken with respect to: a name or several. By default
            all that hold floating-point arrays.
        memory: Bytes, a text such as `"2GiB"`, or `"auto"` for the free memory: the choice of
            `remat="auto"` is marked then. By default that of the decoration. Without one, choices
            down to a quarter of the memory of saving everything are sought; a lower limit may find
            one that takes less.
        sizes: As for `Program.compile`.
        keywords: Examples by name.

    For a function with `shard`, memory is that of one device, and operations are those of all.

    Returns:
        The choices that were compiled. Printed, a table; `svg()` is a picture.

    Raises:
        DerivativeError: The function has no gradient, or an argument does not exist.
        OptionError: `memory` is not a size.
    """
    if isinstance(program, Derivative):
        program = program.function
        wrt = wrt if wrt is not None else program.defaults.wrt
    entry, arrays = program_of("jitney.analysis.frontier()", program).abstract(
        examples, keywords, sizes
    )
    core = entry.core
    given = memory if memory is not None else core.options.memory
    budget = None if given is None else budget_of(core.where, given)
    names = argument_names(core.where, "wrt", wrt)[0] if wrt is not None else None
    check_names(core.where, names or (), core)
    with entry.numbers(), entry.scope():
        planned = entry.plan_call(arrays)
        view, place = planned.view, planned.plan.of(Place)
        request = replace(
            entry.on_mesh(),
            options=core.options.without("pad", "chunk", "memory", "remat", "roll"),
        )
        body = entry.body_inside(Plan.make(view, request), AutoRemat)
        chosen = [
            i for i, leaf in enumerate(view.leaves) if names is None or leaf.argument in names
        ]
        shardings = None if place is None else place.shardings
        jaxpr = jax.make_jaxpr(body)(*(leaf.abstract() for leaf in view.leaves))
        problem = Problem(jaxpr, chosen, shardings)
        if not problem.has_gradient:
            raise DerivativeError(
                core.where,
                "it has no gradient.",
                "A gradient is of real results with respect to floating-point arguments.",
                "name arguments that hold such arrays with `wrt`.",
            )
        if budget is None:
            point, down_to = None, _explore_limits(problem)
        else:
            point, down_to = _choice(problem, budget), None
    return _frontier(str(core.where), problem, budget, point, down_to)


def _explore_limits(problem: Problem) -> int | None:
    """Compile the gradient for several memory limits; the compiled points are collected in
    `problem`. Return the lowest of them if something fits it, since less may be possible then.
    """
    # Without a limit everything is saved. Limits descend, so none fits below one that does not.
    most = problem.measure(EVERYTHING).bytes
    limits = [int(part * most) for part in _PARTS]
    for limit in limits:
        if isinstance(choose(problem, limit), NoneFits):
            return None
    return limits[-1]


def _choice(problem: Problem, budget: int) -> MeasuredOption | None:
    """Return the choice of `remat="auto"` within a budget; None if nothing fits."""
    problem.measure(EVERYTHING)
    chosen = choose(problem, budget)
    return None if isinstance(chosen, NoneFits) else chosen.point


def _frontier(
    function: str,
    problem: Problem,
    budget: int | None,
    chosen: MeasuredOption | None,
    down_to: int | None,
) -> Frontier:
    points = sorted(problem.points.values(), key=lambda point: (-point.bytes, point.flops))
    best = {point.option for point in frontier_of(points)}
    ways = {
        point.option: Saving(str(point.option), point.bytes, point.flops, point.option in best)
        for point in points
    }
    return Frontier(
        function,
        problem.forward,
        budget,
        tuple(ways.values()),
        ways[chosen.option] if chosen else None,
        offload_obstacle(),
        down_to,
    )
