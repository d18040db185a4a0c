"""Lines of a plan that take a trace of the body, or a compiled gradient: the derivative, layers,
products and constants of an autocast, what elements do together, and donated buffers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from .. import _precision
from .._body.function import FunctionInfo
from .._diagnosis.needed_values import CAUGHT
from .._jax.typed import Array, DType
from .._jax.xla.memory import compiled_bytes, text
from .._signature.options import AUTO
from .._stages import Place, Precision, Vmap
from .._stages.autocast import Autocast, body_of
from .._stages.derivatives.decisions import Decision, decisions
from .._stages.derivatives.derive import Derived
from .._stages.plan import Plan
from .._stages.precision import COMPUTE
from .._stages.roll import NONE, Roll, rolls
from .._view.view import Leaf, View, is_array
from .lanes import joined_lanes
from .option_lines import PlanLine, untraced

if TYPE_CHECKING:
    from .._program.entry import Specialization

# Ratios of bytes with and without a policy, above which the policy gains little, and nothing.
_GAINS_LITTLE, _GAINS_NOTHING = 0.9, 0.98


def _vmap_derivative_note(axes: Sequence[str]) -> str:
    """Return a sentence on the derivative under `vmap`, and on the one that is often meant."""
    named = " and ".join(axes)
    return (
        f"one for each {named} (`vmap`); that of their mean is the derivative of a program that"
        " returns the mean of these"
    )


def derivative_lines(
    core: FunctionInfo,
    plan: Plan,
    entry: Specialization,
    arrays: Sequence[Array],
    padded: Sequence[Decision],
) -> list[PlanLine]:
    """Return how a derivative is computed, if the program is one.

    `padded` are the decisions that were made while the derivative was proven for a bucket.
    """
    derived = core.fn()
    if not isinstance(derived, Derived):
        return []
    made = padded[-1:]
    # No bucket: trace the derivative, and collect its decision.
    if not made:
        with entry.numbers(), decisions() as exact:
            jax.eval_shape(entry.run_inner_stages, *arrays)
        made = exact[:1]
    lines = [
        PlanLine("derivative", taken=True, why=f"{decision.mode}: {decision.why}")
        for decision in made
    ]
    mapped = plan.of(Vmap)
    if mapped is not None:
        lines.append(PlanLine("derivative", taken=True, why=_vmap_derivative_note(mapped.axes)))
    return lines


def remat_lines(
    core: FunctionInfo,
    plan: Plan,
    entry: Specialization,
    view: View,
    *,
    compiles: bool,
) -> list[PlanLine]:
    """Return the line on recomputation in the backward pass of a derivative."""
    derived = core.fn()
    if not isinstance(derived, Derived) or not derived.remat:
        return []
    if derived.remat == AUTO:
        return [
            PlanLine(
                "remat", taken=True, why="inside the derivative: what is saved is the line above"
            )
        ]
    why = f"inside the derivative: the backward pass keeps what `{derived.remat}` says"
    return [
        PlanLine(
            "remat",
            taken=True,
            why=why + (_remat_gain(core, derived, entry, plan, view) if compiles else ""),
        )
    ]


def _remat_gain(
    core: FunctionInfo,
    derived: Derived,
    entry: Specialization,
    plan: Plan,
    view: View,
) -> str:
    """Return what a policy of `remat` gains, by compiling the gradient with and without it."""
    if core.options.chunk or core.options.pad:
        return ""
    place = plan.of(Place)
    shardings = None if place is None else place.shardings
    plain = entry.of(core.of(replace(derived, remat=None), core.options))
    # Compiled with the shardings of the call, so that the bytes are those of one device.
    with entry.numbers():
        avals = [leaf.abstract() for leaf in view.leaves]
        with_it, without = (
            compiled_bytes(each.run_inner_stages, avals, shardings) for each in (entry, plain)
        )
    both = f"; {text(with_it)} with it, {text(without)} without"
    if with_it <= _GAINS_LITTLE * without:
        return both
    gains = "nothing" if with_it > _GAINS_NOTHING * without else "little"
    return (
        f"{both}: it gains {gains} around the whole body; `memory` in its place, or"
        ' remat="auto" with `memory`, places checkpoints'
    )


def layer_lines(
    plan: Plan,
    entry: Specialization,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Return the layers of the body that become loops, and those that do not; traces the body."""
    if plan.of(Roll) is None:
        return []
    try:
        with entry.numbers(), rolls() as made:
            jax.eval_shape(entry.run_inner_stages, *arrays)
    except CAUGHT as error:
        return [untraced(error, "layers", "nothing says which there are")]
    return [PlanLine("layers", taken, why) for taken, why in made] or [
        PlanLine("layers", taken=False, why=NONE)
    ]


def product_lines(
    plan: Plan,
    entry: Specialization,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Return what an autocast does with the products of the body; traces the body."""
    stage = plan.of(Autocast)
    if stage is None or stage.policy is None:
        return []
    try:
        with entry.numbers(), _precision.tallies() as counts:
            jax.eval_shape(entry.run_inner_stages, *arrays)
    except CAUGHT as error:
        return [untraced(error, "products", "nothing says which there are")]
    tally = counts[0]
    taken = bool(tally.cast)
    return [PlanLine("products", taken, text) for text in tally.lines]


def constant_lines(
    plan: Plan,
    entry: Specialization,
    view: View,
) -> list[PlanLine]:
    """Return the constants of the body that overflow to infinity in its compute dtype.

    Traces the body twice, in the dtype of the arguments and in the compute dtype.
    """
    stage = plan.of(Precision)
    if stage is None or stage.policy not in COMPUTE:
        return []
    low = np.dtype(COMPUTE[stage.policy])
    # Only a narrower dtype loses constants that the wider one has.
    if low.itemsize >= np.dtype(stage.back).itemsize:
        return []
    narrow = [leaf.abstract() for leaf in plan.seen_inside(Precision, view).leaves]
    # Shapes as the body gets them, with the dtypes of the arguments.
    wide = [
        jax.ShapeDtypeStruct(each.shape, leaf.dtype)
        for each, leaf in zip(narrow, view.leaves, strict=True)
    ]

    so = "nothing says which constants are out of range"
    # The overflow is what is looked for, so NumPy's warning of it is off.
    with entry.numbers(), np.errstate(over="ignore"):
        try:
            inside = body_of(entry.body_inside(plan, Precision), narrow)
        except CAUGHT as error:
            return [untraced(error, "constants", so)]
        try:
            # With wider arguments the body may mix dtypes, which strict promotion would refuse.
            with jax.numpy_dtype_promotion("standard"):
                outside = body_of(entry.body_inside(plan, Precision), wide)
        except Exception:  # noqa: BLE001 - the body is the user's, and may refuse any type but the one it is computed in
            return [
                PlanLine(
                    "constants",
                    taken=False,
                    why=f"the body cannot be traced in the types of its arguments, so {so}",
                )
            ]
        found = _precision.lost_constants(outside, inside, low)

    limit = f"whose largest number is {_largest(low):.6g}"
    return [
        PlanLine(
            "constants",
            taken=False,
            why=f"{value:g} at {line} is {'-' * (value < 0)}inf in {low}, {limit}",
        )
        for value, line in found
    ]


def lane_lines(plan: Plan, entry: Specialization, view: View) -> list[PlanLine]:
    """Return the branches and loops that the elements of a mapped axis go through together.

    Traces the body.
    """
    mapped = plan.of(Vmap)
    if mapped is None:
        return []
    try:
        found = joined_lanes(plan, entry, view)
    except CAUGHT as error:
        return [untraced(error, "lanes", "nothing says which branches there are")]

    each, options = (
        " of ".join(f"each {axis}" for axis in reversed(mapped.axes)),
        entry.core.options,
    )
    # The advice is right only if nothing else cuts, pads or shards the axis.
    is_free = len(mapped.axes) == 1 and not (
        options.chunk or options.pad or options.memory is not None or options.shard
    )
    cure = f'; chunk={{"{mapped.axes[0]}": 1}} works on one at a time, ' if is_free else ""

    lines: list[PlanLine] = []
    for each_joined in found:
        what = "goes on until the slowest ends" if each_joined.is_loop else "computes every branch"
        own = (
            ("and ends each by itself" if each_joined.is_loop else "and computes one")
            if cure
            else ""
        )
        lines.append(
            PlanLine("lanes", taken=True, why=f"{each} {what}: {each_joined.place}{cure}{own}")
        )
    return lines


def donation_lines(
    entry: Specialization,
    view: View,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Return the bytes that donation saves, and the buffers that no result can take over.

    JAX pairs buffers with results by shape and dtype, one result for each buffer; the compiler's
    `memory_analysis().alias_size_in_bytes` counts the same bytes.
    """
    try:
        results = jax.eval_shape(entry.run_inner_stages, *arrays)
    except CAUGHT as error:
        return [untraced(error, "donation", "nothing says which buffers could be reused")]

    made = filter(is_array, jax.tree.leaves(results))
    free = Counter((leaf.shape, leaf.dtype) for leaf in made)
    taken: list[Leaf] = []
    lines: list[PlanLine] = []

    # Each donated buffer uses up one free result of its shape and dtype.
    for leaf in (view.leaves[i] for i in entry.request.donated):
        free[leaf.shape, leaf.dtype] -= 1
        if free[leaf.shape, leaf.dtype] >= 0:
            taken.append(leaf)
            continue
        why = (
            f"the buffer of {leaf.path!r} is donated but not reused: no result is left with its"
            f" shape and dtype ({leaf})"
        )
        lines.append(PlanLine("donation", taken=False, why=why))

    saved = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in taken)
    buffers = f"{len(taken)} buffer{'s' if len(taken) > 1 else ''}"
    reused = PlanLine(
        "donation",
        taken=True,
        why=f"saves {text(saved)}: results take over {buffers} of {_listing(taken)}",
    )
    return [reused, *lines] if taken else lines


def _listing(leaves: Sequence[Leaf]) -> str:
    return ", ".join(dict.fromkeys(leaf.argument for leaf in leaves))


def _largest(dtype: DType) -> float:
    numpy = jnp
    return float(numpy.finfo(dtype).max)
