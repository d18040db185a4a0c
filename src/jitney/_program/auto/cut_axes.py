"""Axes along which calls of a size can be cut: a mapped one, the directions of a Jacobian, or
the axis that `memory` cuts; and the options with which nothing is cut (`obstacle`).

    vmap="fit"          elements of the axis, which are proven to be computed each alone
    f.jacobian          directions: columns forward, rows in reverse, each a pass of its own
    memory="2GiB"       chunks of the axis that `memory` has chosen, narrower than those that fit

Nothing here runs a call. A Jacobian is traced for its directions, and where `memory` is given, the
whole is compiled as the first call has compiled it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax

from ... import _axes
from ..._jax.programs.jaxprs import equations
from ..._jax.typed import Array
from ..._jax.xla.memory import budget_of, counted_bytes, text
from ..._signature.options import AUTO, OPTIONAL, Options, is_measured, tolerance_of
from ..._sparsity import PassMode
from ..._stages import Chunk
from ..._stages.chunking.cut import Cut
from ..._stages.derivatives.decisions import decisions
from ..._stages.derivatives.derive import JACOBIANS, Derived
from ..._verify import is_verified
from ..compiled_calls import CompiledCalls
from ..runners.unsplit import Unsplit, effects_obstacle, joint_rules_obstacle
from ..runners.workers.device_parts import DEVICES
from ..runners.workers.worker_calls import element_of, mapped_axis
from .search import LONG_WIDTHS, WHOLE, WIDTHS, RunWay

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class CutAxis:
    """Elements of a call of which some run at a time.

    Args:
        like: A way of this kind.
        size: How many elements there are.
        dims: Their axis in each array; None where an array does not have it.
        widths: Elements at a time that may be tried.
        same: A way that runs the program of the whole, traced with less work.
        threads: Whether threads may share them.
        joined: Whether elements may wait for each other.
    """

    like: RunWay
    size: int
    dims: Dims
    widths: tuple[int, ...]
    same: RunWay = WHOLE
    threads: bool = False
    joined: bool = False


def is_jacobian(fn: object) -> bool:
    """Return whether a function is a Jacobian that passes in several directions make."""
    return isinstance(fn, Derived) and fn.what in JACOBIANS and not (fn.plain or fn.sparse)


def cuts_mapped(entry: CompiledCalls) -> bool:
    """Return whether calls are cut along their mapped axis alone."""
    options = entry.options
    return bool(options.vmap) and options.memory is None


def axis_of(entry: CompiledCalls, arrays: Sequence[Array]) -> CutAxis | Unsplit:
    """Return what calls of these arrays are cut along; or why along nothing, as where the program
    does something besides computing.
    """
    if cuts_mapped(entry):
        return _mapped(entry, arrays)
    cut = None if entry.options.memory is None else _cut_of(entry, arrays)
    if isinstance(cut, Unsplit):
        return cut
    if is_jacobian(entry.core.fn()) and not entry.options.vmap:
        if cut is not None and cut.passes is not None:
            return Unsplit("`memory` cuts an axis, and the directions of the Jacobian too")
        return _directions(entry, arrays)
    return _chunks(entry, arrays, cut)


def _mapped(entry: CompiledCalls, arrays: Sequence[Array]) -> CutAxis | Unsplit:
    body = element_of(entry, arrays)
    why = effects_obstacle(body) or joint_rules_obstacle(_axes.joint_rules(body))
    mapped = why or mapped_axis(entry, arrays)
    if isinstance(mapped, Unsplit):
        return mapped
    _, size, dims = mapped
    return CutAxis(
        WHOLE,
        size,
        dims,
        () if entry.options.chunk else WIDTHS,
        threads=True,
        joined=any(eqn.primitive.name in ("cond", "while") for eqn in equations(body)),
    )


def _directions(entry: CompiledCalls, arrays: Sequence[Array]) -> CutAxis | Unsplit:
    with entry.numbers(), decisions() as made:
        body = jax.make_jaxpr(entry.run_inner_stages)(*arrays)
    why = effects_obstacle(body) or _rules_obstacle(entry, arrays)
    if why is not None:
        return why
    last = made[-1]
    if last.directions < 2:
        return Unsplit(f"no directions to cut: {last.mode}")
    most = last.at_a_time or last.directions
    # The mode is the first word: "forward over reverse" of a Hessian.
    like = RunWay(kind="directions", axis=last.mode.split()[0])
    return CutAxis(
        like,
        last.directions,
        (None,) * len(arrays),
        tuple(width for width in WIDTHS if width < most),
        replace(like, width=last.at_a_time),
    )


def _rules_obstacle(entry: CompiledCalls, arrays: Sequence[Array]) -> Unsplit | None:
    """Return the first operation that sees all directions, by a trace of the function itself: that
    of its Jacobian has applied the rules for `jax.vmap`.
    """
    derived = entry.core.fn()
    if not isinstance(derived, Derived):
        return None
    plain = entry.of(entry.core.of(derived.fn, entry.core.options.without("memory")))
    with entry.numbers():
        body = jax.make_jaxpr(plain.run_inner_stages)(*arrays)
    return joint_rules_obstacle(_axes.joint_rules(body))


def _cut_of(entry: CompiledCalls, arrays: Sequence[Array]) -> Cut | Unsplit:
    """Return how `memory` cuts calls, or why it has no axis to cut."""
    plan = entry.plan_call(arrays).plan
    chunk = plan.of(Chunk)
    if chunk is None:
        return Unsplit(plan.stage("chunk").why)
    with entry.numbers():
        return chunk.cut(entry.body_inside(plan, Chunk))


def _chunks(
    entry: CompiledCalls,
    arrays: Sequence[Array],
    cut: Cut | None,
) -> CutAxis | Unsplit:
    options = entry.options
    if cut is None:
        return Unsplit("nothing to cut")
    mapped = {axis.name for axis in options.vmap}
    if cut.passes is None and cut.axis not in mapped:
        return Unsplit("all of it fits into `memory` at once")
    body = element_of(entry, arrays) if mapped else jax.make_jaxpr(entry.run_inner_stages)(*arrays)
    why = effects_obstacle(body) or joint_rules_obstacle(_axes.joint_rules(body))
    if why is not None:
        return why
    widths = WIDTHS if cut.axis in mapped else LONG_WIDTHS
    like = RunWay(kind="memory", axis=cut.axis)
    return CutAxis(
        like,
        cut.size or cut.width,  # `width` is the size where all of it fits
        (None,) * len(arrays),
        tuple(width for width in widths if width < cut.width),
        WHOLE if cut.passes is None else replace(like, width=cut.width),
    )


def options_of(way: RunWay, options: Options) -> Options:
    """Return the options of calls that run in a way."""
    # Calls over a mesh are not tried (`obstacle`): an optional one is not there.
    options = options.without("shard", "mesh")
    if way.kind == "memory" and way.width is not None:
        return replace(options, memory=None, chunk=((way.axis, way.width),))
    if way.kind == "directions":
        return options.without("memory")
    if way.width is not None:
        options = replace(options, chunk=((options.vmap[0].name, way.width),))
    workers = {"threads": AUTO, "devices": DEVICES}.get(way.carrier, options.workers)
    return replace(options, workers=workers)


def function_of(way: RunWay, fn: Callable[..., object]) -> Callable[..., object]:
    """Return the function of calls that run in a way."""
    if way.kind == "directions" and isinstance(fn, Derived):
        mode: PassMode = "forward" if way.axis == "forward" else "reverse"
        return replace(
            fn,
            mode=mode,
            at_a_time=way.width,
            tried=way.tried,
        )
    return fn


def refused_memory(
    entry: CompiledCalls,
    of_way: CompiledCalls,
    arrays: Sequence[Array],
) -> str:
    """Return why a way takes more memory than the option `memory` allows; "" if it does not. It is
    compiled.
    """
    if entry.options.memory is None:
        return ""
    budget = budget_of(entry.core.where, entry.options.memory)
    taken = counted_bytes(of_way.ahead(arrays))
    return f"it takes {text(taken)}, and `memory` is {text(budget)}" if taken > budget else ""


def obstacle(options: Options, fn: object) -> str | None:
    """Return why nothing is tried of a function with these options; None if something may be."""
    if not (options.vmap or options.memory is not None or is_jacobian(fn)):
        return "no `vmap` axis, whose elements are proven to be computed each alone"
    given = {
        "donate": options.donate,
        "pad": options.pad,
        'remat="auto"': options.memory is not None and options.remat == AUTO,
        "memory and workers": options.memory is not None and options.workers is not None,
        "shard": options.shard is not None and options.mesh != OPTIONAL,
        'precision="auto:..."': tolerance_of(options.precision) is not None,
        "max_compiles": options.max_compiles is not None,
        'runtime_checks="later"': options.runtime_checks == "later",
        "jitney.accumulate": options.accumulate,
        "progress": options.progress,
        "on_compile_error": options.on_compile_error != "raise",
        "on_memory_error": options.on_memory_error != "raise",
        "JITNEY_DISABLE": options.disabled is not None,
    }
    named = next((name for name, is_given in given.items() if is_given), None)
    if named is not None:
        return f"not together with `{named}`"
    if is_measured(options.chunk):
        return '`chunk="fast"` measures by itself'
    if options.chunk and options.chunk[0][0] not in {axis.name for axis in options.vmap}:
        return f"`chunk` cuts {options.chunk[0][0]!r}, and one axis is cut at a time"
    if options.chunk and options.workers is not None:
        return "`chunk` and `workers` are given"
    return "`verify` compares what it runs, and all at once" if is_verified(options) else None
