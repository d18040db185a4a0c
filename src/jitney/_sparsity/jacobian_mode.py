"""Choice of how to compute a Jacobian: forward, reverse or coloured, whichever its sizes and its
sparsity pattern make cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
from jax.extend import core

from .._host.own_time import OWN_TIME
from .._jax.programs.jaxprs import calls_back, effectful_equations, open_jaxpr, programs
from .._jax.trees import Tracer
from .._jax.typed import ClosedJaxpr
from .._jax.xla.memory import Misfit, compiled_bytes, fit, text
from .colours.colouring import Colouring, scheme_of, star_scheme
from .colours.modes import REVERSE, WAYS, Mode, PassMode
from .compressed import Blocks, blocks_by_colour, dense
from .directions import Leaves, Linearized
from .fold_decisions import fold_decisions
from .pattern import Pattern
from .timed import TimedFunction, seconds

# Forward and reverse are timed from this many dense passes on, if their costs differ at most by
# this ratio.
_MANY, _CLOSE = 64, 2.0
# So many dense passes cost less than a search for structure.
FEW = 8
# A colouring is taken if it costs at most this part of the dense passes.
WORTH = 0.5


@dataclass(frozen=True)
class UnknownPositions:
    """No sparse Jacobian: the function indexes at traced positions, and any element may be nonzero.

    Args:
        sources: Tracers from which the positions are computed, each with the line that reads or
            writes there.
    """

    sources: Sequence[tuple[object, str]]


@dataclass(frozen=True)
class JacobianResult:
    """Jacobian, with the mode that computed it.

    Args:
        value: Results of the function.
        blocks: For each result a block per argument.
        mode: Mode that was used.
        why: Reason, with the costs of the other modes.
        directions: Directions of a dense array; 0 for other blocks.
        at_a_time: Number of them that run at a time; None for all.
    """

    value: Leaves
    blocks: Blocks
    mode: str
    why: str
    directions: int = 0
    at_a_time: int | None = None


def jacobian(
    fn: Callable[[Leaves], Leaves],
    at: Leaves,
    mode: Mode,
    ways: tuple[PassMode, ...] = WAYS,
    *,
    as_sparse: bool,
    budget: int | None = None,
    symmetric: bool = False,
    at_a_time: int | None = None,
    tried: int | None = None,
) -> JacobianResult | UnknownPositions:
    """Jacobian of a function of lists of arrays. The function is traced once.

    Args:
        fn: Function from a list of arrays to a list of arrays.
        at: The point.
        mode: Requested mode, or "auto".
        ways: Modes of the passes that may be used.
        as_sparse: Whether blocks are BCOO arrays.
        budget: Bytes that temporaries and arguments may take: as many directions at a time as fit,
            or one by one.
        symmetric: Whether the Jacobian is known to be symmetric, as a Hessian is.
        at_a_time: Number of directions at a time of a dense Jacobian, which `budget` then does not
            choose.
        tried: Number of directions, of all over a dense Jacobian, that are computed to be timed;
            the blocks are then not those of the Jacobian.
    """
    traced, shapes = jax.make_jaxpr(fn, return_shape=True)(list(at))
    with OWN_TIME.running():
        traced = fold_decisions(traced, at)

    # Cost of the dense passes in each mode.
    columns, rows = elements(at), elements(shapes)
    costs = f"{columns} forward passes or {rows} backward ones, of about {REVERSE} each"
    requested: tuple[PassMode, ...] = tuple(way for way in WAYS if way == mode)
    if requested:
        ways = requested
        costs = f"mode={mode!r}; {costs}"
    else:
        ways, note = possible(traced, ways)
        costs = f"{note}; {costs}" if note else costs
    passes: dict[PassMode, float] = {}
    for way in WAYS:
        if way in ways:
            passes[way] = columns if way == "forward" else REVERSE * rows
    best = min(passes, key=lambda way: passes[way])

    # Detect the pattern if a coloured or sparse result needs it, or if it may save many passes.
    may_save = mode == "auto" and passes[best] > FEW
    look = mode == "coloured" or as_sparse or may_save
    forward = best == "forward" or (look and "forward" in ways)
    linearized = Linearized.of(run_of(traced), at, forward=forward)
    blurred: dict[int, tuple[object, str]] = {}
    with OWN_TIME.running():
        pattern = linearized.pattern(blurred) if look and not in_place(traced) else None
    sources = [(value, line) for value, line in blurred.values() if isinstance(value, Tracer)]
    if as_sparse and sources:
        return UnknownPositions(sources)

    # Colour the pattern, and compare with the dense passes.
    scheme: Colouring | None = None
    directions = columns if best == "forward" else rows
    mode_found, why = best, costs
    if pattern is None and as_sparse:
        why = f"no structure was found: all {columns * rows} elements are stored; {costs}"
    elif pattern is not None:
        part = f"{pattern.count} of {columns * rows} elements are not zero"
        limit = WORTH * passes[best] if mode == "auto" and not as_sparse else math.inf
        is_symmetric = symmetric and len(at) == 1 and pattern.size == pattern.columns
        with OWN_TIME.running():
            scheme = scheme_of(pattern, ways, limit)
            if is_symmetric and "forward" in ways:
                most = limit + 1 if scheme is None else scheme.cost
                scheme = star_scheme(pattern, most) or scheme
        if scheme is None:
            why = f"{costs}; {part}, which colouring does not make cheaper"
        else:
            mode_found = "coloured"
            directions = scheme.count
            why = f"{scheme.text}: {part}{shape_text(pattern, scheme)}; without that {costs}"
    if sources and scheme is None:
        lines = dict.fromkeys(line for _, line in sources if line)
        places = ", ".join(lines) or "some line"
        why = f"{why}; positions at {places} are traced: static, they would show what is zero"

    def blocks(linearized: Linearized, batch: int | None) -> tuple[Leaves, Blocks]:
        if pattern is None or scheme is None:
            return dense(linearized, best, as_sparse=as_sparse, batch=batch, tried=tried)
        return blocks_by_colour(
            linearized,
            pattern,
            scheme,
            as_sparse=as_sparse,
            batch=batch,
        )

    # Dense passes of similar cost are timed, unless a budget decides by memory.
    if scheme is None and mode == "auto" and len(passes) > 1 and budget is None:
        with OWN_TIME.running():
            best, note = _time_modes(traced, at, passes, best)
        mode_found, why = best, why + note

    # Under a budget, run as many directions at a time as fit.
    is_dense = scheme is None and not as_sparse
    batch = at_a_time if is_dense else None
    if budget is not None and directions > 1 and batch is None:
        with OWN_TIME.running():
            batch, note = _fitting(traced, at, blocks, directions, budget, forward=forward)
        why = f"{why}; {note}"
    value, computed = blocks(linearized, batch)
    return JacobianResult(
        value,
        computed,
        mode_found,
        why,
        directions if is_dense else 0,
        batch,
    )


def _time_modes(
    traced: object,
    at: Leaves,
    passes: Mapping[PassMode, float],
    best: PassMode,
) -> tuple[PassMode, str]:
    """Faster of forward and reverse, where the counts of passes are close and large enough to
    matter.
    """
    low, high = sorted(passes.values())
    # Timing runs the program on made-up arguments, which callbacks must not see.
    if low < _MANY or high > _CLOSE * low or calls_back(traced):
        return best, ""

    def dense_by(way: PassMode) -> TimedFunction:
        forward = way == "forward"

        def blocks(fn: Callable[[Leaves], Leaves], at: Leaves) -> object:
            linearized = Linearized.of(fn, at, forward=forward)
            return dense(linearized, way, as_sparse=False)[1]

        return blocks

    times = seconds(traced, at, {way: dense_by(way) for way in passes})
    if times is None:
        return best, ""
    fastest = min(passes, key=lambda way: times[way])
    listed = [f"{way} {times[way] * 1e3:.3g} ms" for way in passes]
    return fastest, "; timed once: " + ", ".join(listed)


def run_of(traced: object) -> Callable[[Leaves], Leaves]:
    """Closed program as a function of a list of arrays."""
    run = core.jaxpr_as_fun(traced)
    return lambda arrays: run(*arrays)


def _fitting(
    traced: object,
    at: Leaves,
    blocks: Callable[[Linearized, int | None], tuple[Leaves, Blocks]],
    directions: int,
    budget: int,
    *,
    forward: bool,
) -> tuple[int | None, str]:
    """Number of directions at a time that fits into memory, as the compiler counts it; None for
    all.
    """
    program, constants = open_jaxpr(traced)

    def abstract(leaves: Leaves) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]

    def measure(batch: int) -> int:
        def jacobian_of(constants: Leaves, at: Leaves) -> object:
            run = run_of(ClosedJaxpr(program, list(constants)))
            linearized = Linearized.of(run, at, forward=forward)
            return blocks(linearized, batch if batch < directions else None)[1]

        return compiled_bytes(jacobian_of, [abstract(constants), abstract(at)])

    whole = measure(directions)
    if whole <= budget:
        return None, f"all directions at once take {text(whole)} of {text(budget)}"
    chunks = fit(measure, directions - 1, budget)
    if isinstance(chunks, Misfit):
        return (
            1,
            (
                f"one direction at a time: not one fits into {text(budget)}, compiled by itself it"
                f" takes {text(chunks.least)}"
            ),
        )
    return chunks.width, f"chunked: {chunks.width} of {directions} directions at a time, {chunks}"


def possible(traced: object, ways: tuple[PassMode, ...]) -> tuple[tuple[PassMode, ...], str]:
    """Modes that a program allows, of those that may be used, and the reason why others drop
    out.
    """
    if _contains(traced, lambda name: name.startswith("custom_vjp")):
        return ("reverse",), "a `jax.custom_vjp` inside has a backward pass alone"
    # JAX does not batch a JVP that mutates references.
    if "reverse" in ways and in_place(traced):
        return ("reverse",), "references inside change in place, so that no structure is known"
    if "reverse" in ways and _contains(traced, lambda name: name == "while"):
        return ("forward",), "a `while` loop inside has a forward pass alone"
    return ways, ""


def in_place(traced: object) -> bool:
    """Return whether a program has effects other than callbacks, such as mutation of references.

    Then a value depends on more than the operands of its equation.
    """
    return next(effectful_equations(open_jaxpr(traced)[0].eqns), None) is not None


def shape_text(pattern: Pattern, scheme: Colouring) -> str:
    """Shape of a sparsity pattern, for a line of the plan."""
    if scheme.mirrored is not None:
        return " (symmetric)"
    is_square = pattern.size == pattern.columns
    if scheme.count <= 1 and not len(scheme.apart):
        is_diagonal = is_square and (pattern.rows == pattern.indices).all()
        return " (diagonal)" if is_diagonal else ""
    if len(scheme.apart):
        lines = "rows" if scheme.by == "forward" else "columns"
        return f" (and {len(scheme.apart)} long {lines} of their own)"
    # Bandwidth: the largest distance from the diagonal.
    distances = abs(pattern.rows - pattern.indices)
    band = 2 * int(distances.max(initial=0)) + 1
    if is_square and band < pattern.columns // 2:
        return f" (a band of {band})"
    return ""


def elements(tree: object) -> int:
    """Number of elements in the arrays of a pytree."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def _contains(jaxpr: object, what: Callable[[str], bool]) -> bool:
    """Return whether a primitive occurs in a program, outside of functions with custom
    derivative rules.
    """
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        name = eqn.primitive.name
        if what(name):
            return True
        if name in _OWN:
            continue
        if any(_contains(inner, what) for inner in programs(eqn.params)):
            return True
    return False


_OWN = ("custom_jvp_call", "custom_vjp_call", "custom_linear_solve")
