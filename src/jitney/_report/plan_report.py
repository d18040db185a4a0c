"""Report of a plan: text, in colours on a terminal, a dict, or HTML in a notebook.

Input is a plan on abstract values; output is a `Report` whose `PlanLine`s are decisions with
reasons. Some lines need a trace of the body, or a compiled gradient, for which this file asks the
stages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _precision, _verify
from .._body.function import FunctionInfo
from .._diagnosis.needed_values import CAUGHT, need_of
from .._host.switches import SETTINGS, VARIABLES, Settings
from .._jax.compile_cache.cache import facts as cache_facts
from .._jax.typed import Array, DType
from .._jax.xla.memory import compiled_bytes, text
from .._program.auto.obstacles import obstacle
from .._program.runners.captured_calls import CapturedArray, captured_arrays
from .._program.runners.checked_calls import waits
from .._program.runners.sharded_calls import transfers
from .._program.runners.worker_calls import Unsplit, reason_of, refuse_part, split_of
from .._public import public_in
from .._signature.options import AUTO, Options, is_measured
from .._stages import Chunk, MappedChunks, Mask, Place, Precision, Vmap
from .._stages.autocast import Autocast, body_of
from .._stages.chunk import Cut
from .._stages.derivatives.decisions import Decision, decisions
from .._stages.derivatives.derive import Derived
from .._stages.plan import Plan
from .._stages.precision import COMPUTE
from .._stages.roll import NONE, Roll, rolls
from .._stages.stage import Skip
from .._text.json import Data
from .._text.shown import Shown
from .._text.svg import Picture
from .._verify import is_verified
from .._view.layout import static_text
from .._view.view import Leaf, View, is_array
from .axis_facts import facts_of
from .lanes import joined_lanes

if TYPE_CHECKING:
    from rich.table import Table

    from .._program.entry import Specialization


@dataclass(frozen=True)
class PlanLine:
    """Decision: its subject, whether it was taken, and the reason."""

    name: str
    taken: bool
    why: str

    @property
    def asked(self) -> bool:
        """True if it was taken, or asked for and not taken."""
        return self.taken or _NOT_ASKED.fullmatch(self.why) is None


# Ratios of bytes with and without a policy, above which the policy gains little, and nothing.
_GAINS_LITTLE, _GAINS_NOTHING = 0.9, 0.98
_ERROR = "an error names argument and line"
# Reasons of decisions that nobody asked for.
_NOT_ASKED = re.compile(rf"no [^,;]+ given|not asked for|nothing is padded|{_ERROR}")


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Report(Shown):
    """Result of `f.plan(...)`: every decision about one call, with its reason.

    Printed, it has the decisions that were taken, those that were asked for and not taken, and one
    line of all others; `lines` and `to_dict()` have all.
    """

    function: str
    plan: Plan
    lines: tuple[PlanLine, ...]
    arguments: tuple[str, ...]
    static: tuple[str, ...]
    axes: tuple[tuple[str, int, str], ...]
    view: View = field(repr=False, compare=False)
    cut: Cut | None = field(default=None, repr=False, compare=False)

    def draw(self) -> Picture:
        """Draw the call as SVG text, in light and dark.

        Each stage that is taken is a frame around those inside of it, with the cells of each
        bucket, the chunks of each pass, and the part of an array on each device. A notebook shows
        the picture; elsewhere write it into a file.
        """
        from .drawing import draw

        # Reversed, so that the first line of a name wins.
        told = {line.name: line.why for line in reversed(self.lines) if line.taken}
        return draw(self.function, self.plan, self.view, self.cut, told)

    def to_dict(self) -> Data:
        """Return the report as plain data."""
        return {
            "function": self.function,
            "decisions": [
                {"name": line.name, "taken": line.taken, "why": line.why} for line in self.lines
            ],
            "arguments": list(self.arguments),
            "static": list(self.static),
            "axes": {name: {"size": size, "set_by": who} for name, size, who in self.axes},
        }

    def __rich__(self) -> Table:
        from .._text.console import table

        rows: list[list[tuple[str, str]]] = []
        for line in self.lines:
            if not line.asked:
                continue
            style = "green" if line.taken else "dim"
            rows.append(
                [(line.name, style), (line.why if line.taken else f"skipped: {line.why}", style)]
            )
        idle = dict.fromkeys(line.name for line in self.lines if not line.asked)
        rows += [[("others", "dim"), (f"not asked for: {', '.join(idle)}", "dim")]] if idle else []
        rows += [
            [("axis", "cyan"), (f"{name} = {size}, set by {who}", "")]
            for name, size, who in self.axes
        ]
        rows += [
            [(kind, ""), (text, "")]
            for kind, texts in (("traced", self.arguments), ("static", self.static))
            for text in texts
        ]
        return table(f"plan of {self.function}", rows)

    def _repr_html_(self) -> str:
        from .._text.console import html_of

        return f"{self.draw()}{html_of(self)}"


def report(
    core: FunctionInfo,
    entry: Specialization,
    arrays: Sequence[Array],
    *,
    compiles: bool = True,
) -> Report:
    """Plan a call on abstract values, and return every decision.

    Args:
        core: The function.
        entry: Program of the call.
        arrays: Its arrays, or abstract ones.
        compiles: True to compile a gradient, to measure what a policy of `remat` gains.

    Raises:
        ContractError: The call does not fit the contract.
    """
    with entry.numbers():
        # Chunks and devices need not divide a padded axis at its exact size. This plan has neither;
        # `padded_plan` has both.
        planned = entry.plan_call(arrays, jit=not core.options.pad)
        autocast = planned.plan.of(Autocast)
        # Before its first call an autocast has no policy, and the body cannot be built.
        ready = autocast is None or autocast.policy is not None
        padded = bool(core.options.pad) and ready
        with decisions() as made:
            plan = entry.padded_plan(planned.view) if padded else planned.plan
        facts = facts_of(entry, arrays, dict(core.options.pad)) if padded else {}
        donated = entry.request.donated and not entry.request.nested and ready
        donation = _donation(entry, planned.view, arrays) if donated else []

    # Lines of the stages. In a derivative `remat` is applied inside, and has a line of its own.
    inside = isinstance(core.fn(), Derived)
    hidden = _hidden_stages(core, inside=inside)
    stages = [
        PlanLine("remat" if s.name == "saved" else s.name, not isinstance(s, Skip), s.why)
        for s in plan.stages
        if s.name not in hidden
    ]

    # Chunks, with the passes over the data and the memory that was measured for them.
    stages = [_width_line(entry, arrays, line) for line in stages]
    cut = _cut(plan, entry, planned.view) if ready else None
    if cut is not None:
        is_cut = cut.is_mapped or cut.passes is not None
        stages.append(PlanLine("passes", is_cut, cut.text))
        if cut.fit is not None:
            stages.append(PlanLine("memory", taken=True, why=str(cut.fit)))

    # Lines that need more than the plan: the placement of the arrays, and traces of the body.
    stages += [
        PlanLine("transfer", taken=True, why=why)
        for why in transfers(plan.of(Place), arrays, entry.paths)
    ]
    if ready:
        stages += _derivative(core, plan, entry, arrays, made if plan.of(Mask) is not None else ())
        stages += _remat_lines(core, plan, entry, planned.view, compiles=compiles)
    stages += _layer_lines(plan, entry, arrays) if ready else []
    stages += _lanes(planned.plan, entry, planned.view) if ready else []
    stages += _products(plan, entry, arrays) + _constants(planned.plan, entry, planned.view)
    stages += [
        PlanLine(f"axis {name}", fact.refused is None, fact.text) for name, fact in facts.items()
    ]

    sizes = planned.sizes.bound if planned.sizes is not None else {}
    held = (entry.layout.held.get(i) for i in entry.layout.static)
    static = zip(entry.layout.static_names(), entry.statics, held, strict=True)
    return Report(
        function=str(core.where),
        plan=plan,
        lines=(
            *stages,
            *donation,
            *_other_decisions(
                entry, planned.notes, _verify_line(entry, arrays, ready=ready), _late(entry)
            ),
            *_captured_lines(entry, arrays),
            *_serialized_line(core, entry, arrays),
            *_workers_line(entry, arrays),
            *_auto_line(entry, arrays),
            *_fallback_lines(entry, arrays),
        ),
        arguments=tuple(str(leaf) for leaf in planned.view.leaves),
        static=tuple(
            f"{name} = {static_text(value)}{f': {why}' if why else ''}"
            for name, value, why in static
        ),
        axes=tuple((name, size, who) for name, (size, who) in sizes.items()),
        view=planned.view,
        cut=cut,
    )


def _cut(
    plan: Plan,
    entry: Specialization,
    view: View,
) -> Cut | None:
    """Return how an axis is cut into chunks, if one is; traces the body."""
    chunk, mapped = plan.of(Chunk), plan.of(MappedChunks)
    with entry.numbers():
        if mapped is not None:
            avals = [leaf.abstract() for leaf in plan.seen_inside(Vmap, view).leaves]
            if not mapped.is_proven(entry.body_inside(plan, Vmap), avals):
                return Cut(
                    mapped.axis,
                    None,
                    mapped.length,
                    size=mapped.size,
                    is_mapped=True,
                )
            plan = plan.by_proof()
            chunk = plan.of(Chunk)
        return None if chunk is None else chunk.cut(entry.body_inside(plan, Chunk))


def _hidden_stages(core: FunctionInfo, *, inside: bool) -> tuple[str, ...]:
    """Return the names of stages without a line.

    Of the two stages of `remat` it is the one that is not in use, and both if `remat` is inside a
    derivative.
    """
    if inside:
        return ("remat", "saved")
    return ("remat",) if core.options.remat == AUTO else ("saved",)


def _vmap_derivative_note(axes: Sequence[str]) -> str:
    """Return a sentence on the derivative under `vmap`, and on the one that is often meant."""
    named = " and ".join(axes)
    return (
        f"one for each {named} (`vmap`); that of their mean is the derivative of a program that"
        " returns the mean of these"
    )


def _derivative(
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


def _remat_lines(
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


def _layer_lines(
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
        # Only a body that needs the value of a tracer is reported as a line; other errors pass.
        if need_of(error) is None:
            raise
        return [
            PlanLine(
                "layers",
                taken=False,
                why="the body cannot be traced, so nothing says which there are",
            )
        ]
    return [PlanLine("layers", taken, why) for taken, why in made] or [
        PlanLine("layers", taken=False, why=NONE)
    ]


def _products(
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
        if need_of(error) is None:
            raise
        return [
            PlanLine(
                "products",
                taken=False,
                why="the body cannot be traced, so nothing says which there are",
            )
        ]
    return [PlanLine("products", bool(counts[0].cast), text) for text in counts[0].lines]


def _constants(
    plan: Plan,
    entry: Specialization,
    view: View,
) -> list[PlanLine]:
    """Return the constants of the body that overflow to infinity in its compute dtype.

    Traces the body twice, in the dtype of the arguments and in the compute dtype.
    """
    stage = plan.of(Precision)
    low = None if stage is None or stage.policy not in COMPUTE else np.dtype(COMPUTE[stage.policy])
    # Only a narrower dtype loses constants that the wider one has.
    if stage is None or low is None or low.itemsize >= np.dtype(stage.back).itemsize:
        return []
    narrow = [leaf.abstract() for leaf in plan.seen_inside(Precision, view).leaves]
    # Shapes as the body gets them, with the dtypes of the arguments.
    wide = [
        jax.ShapeDtypeStruct(each.shape, leaf.dtype)
        for each, leaf in zip(narrow, view.leaves, strict=True)
    ]

    why = "the body cannot be traced{}, so nothing says which constants are out of range"
    # The overflow is what is looked for, so NumPy's warning of it is off.
    with entry.numbers(), np.errstate(over="ignore"):
        try:
            inside = body_of(entry.body_inside(plan, Precision), narrow)
        except CAUGHT as error:
            if need_of(error) is None:
                raise
            return [PlanLine("constants", taken=False, why=why.format(""))]
        try:
            # With wider arguments the body may mix dtypes, which strict promotion would refuse.
            with jax.numpy_dtype_promotion("standard"):
                outside = body_of(entry.body_inside(plan, Precision), wide)
        except Exception:  # noqa: BLE001 - the body is the user's, and may refuse any type but the one it is computed in
            return [
                PlanLine("constants", taken=False, why=why.format(" in the types of its arguments"))
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


def _lanes(plan: Plan, entry: Specialization, view: View) -> list[PlanLine]:
    """Return the branches and loops that the elements of a mapped axis go through together.

    Traces the body.
    """
    mapped = plan.of(Vmap)
    if mapped is None:
        return []
    try:
        found = joined_lanes(plan, entry, view)
    except CAUGHT as error:
        if need_of(error) is None:
            raise
        return [
            PlanLine(
                "lanes",
                taken=False,
                why="the body cannot be traced, so nothing says which branches there are",
            )
        ]

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


def _donation(
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
        if need_of(error) is None:
            raise
        return [
            PlanLine(
                "donation",
                taken=False,
                why="the body cannot be traced, so nothing says which buffers could be reused",
            )
        ]

    free = Counter((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(results) if is_array(leaf))
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


def _other_decisions(
    entry: Specialization,
    notes: Sequence[str],
    verified: PlanLine,
    late: PlanLine,
) -> list[PlanLine]:
    """Return the decisions besides the stages."""
    core, options = entry.core, entry.options
    contract = PlanLine(
        "contract",
        options.contracts,
        "checked once for each new call key" if options.contracts else "`contracts=False`",
    )

    unresolved = [
        f"annotation of {name!r} could not be resolved" for name in core.contract.unresolved
    ]
    facts = cache_facts()
    jax_options: Any = jax.config
    kept = options.cache and bool(jax_options.jax_enable_compilation_cache)
    where = f"persistent compilation cache: {facts.reason}" + (
        f" ({facts.directory})" if facts.directory else ""
    )

    return [
        contract,
        *(PlanLine("contract", taken=False, why=note) for note in (*notes, *unresolved)),
        PlanLine(
            "cache",
            kept,
            where if options.cache else "`cache=False`: compiled again in every process",
        ),
        PlanLine("max_compiles", options.max_compiles is not None, _compile_limit(core)),
        PlanLine(
            "trace errors",
            options.on_trace_error == "eager",
            _on_trace_error(options.on_trace_error),
        ),
        verified,
        late,
        PlanLine(
            "debug_nans",
            bool(options.debug_nans),
            (
                "every result is checked, which waits for it"
                if options.debug_nans
                else "not asked for"
            ),
        ),
        *settings_line(core.options),
    ]


def settings_line(options: Options) -> list[PlanLine]:
    """Return where each setting of the process that is in effect comes from, or the option that
    overrides it; none if all are as usual.
    """
    given = {name: getattr(options, name) for name in VARIABLES}
    in_effect = asdict(SETTINGS.now)
    if options.disabled is not None or (
        set(given.values()) == {None} and SETTINGS.now == Settings()
    ):
        return []
    told = [
        f"{name}={in_effect[name] if value is None else value!r}"
        f" by {SETTINGS.source(name) if value is None else 'the option'}"
        for name, value in given.items()
    ]
    return [PlanLine("settings", taken=True, why=", ".join(told))]


def _captured_lines(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the program of a call has the large arrays that it captures; none before the first
    call, whose trace shows them.
    """
    with entry.numbers():
        captured = captured_arrays(entry, _program_arguments(entry, arrays))
        if entry.workers is not None and not captured:
            captured = captured_arrays(entry, entry.workers.first_part(arrays))
    return captured_lines(captured)


def captured_lines(captured: Sequence[CapturedArray]) -> list[PlanLine]:
    """Return a line for each large array that a program captures."""
    lines: list[PlanLine] = []
    for each in captured:
        told = f"{each.name} ({each.shape}, {text(each.nbytes)})"
        why = f"{told} is an argument of the program: neither compiled nor cached with it"
        if each.obstacle is not None:
            why = (
                f"{told} is a constant of the program, compiled and cached with it:"
                f" {each.obstacle}; pass it as an argument"
            )
        lines.append(PlanLine("captured array", each.obstacle is None, why))
    return lines


def _program_arguments(entry: Specialization, arrays: Sequence[Array]) -> Sequence[object]:
    """Return the arrays that the program gets: padded ones, if it pads."""
    return arrays if entry.padded is None else entry.padded.program_arguments(arrays)


def _serialized_line(
    core: FunctionInfo,
    entry: Specialization,
    arrays: Sequence[Array],
) -> list[PlanLine]:
    """Return the state of the serialised program of `cache="program"`."""
    if core.options.cache != "program":
        return []
    if entry.kept is None:
        return [
            PlanLine(
                "cached program",
                taken=False,
                why="not cached: under an outer transform it is traced",
            )
        ]
    with entry.numbers():
        given = _program_arguments(entry, arrays)
        return [
            PlanLine("cached program", *entry.kept.note(given, next(iter(entry.mesh_key()), None)))
        ]


def _width_line(
    entry: Specialization,
    arrays: Sequence[Array],
    line: PlanLine,
) -> PlanLine:
    """Return the line of a stage, which for chunks of a measured width has what was measured."""
    if line.name != "chunk" or not is_measured(entry.options.chunk):
        return line
    if entry.widths is None:
        return replace(line, why="under an outer trace: all at once")
    choice = entry.widths.choice(arrays)
    if choice is None:
        return replace(line, why="the first call of this size measures which width is quickest")
    return PlanLine("chunk", choice.width is not None, choice.why)


def _workers_line(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the mapped axis is split over threads, if `workers` is given; traces the body."""
    if entry.options.workers is None:
        return []
    taken = False
    try:
        split = split_of(entry, arrays)
        refuse_part(entry, split, arrays)
    except Unsplit as unsplit:
        why = reason_of(entry, unsplit)
    except CAUGHT as error:
        if need_of(error) is None:
            raise
        why = "the body cannot be traced, so nothing says what it does besides computing"
    else:
        taken, why = True, str(split)
    return [PlanLine("workers", taken, why)]


def _auto_line(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how the call runs with `auto`, and what was measured."""
    if not entry.options.auto:
        return []
    if entry.auto is not None:
        return [PlanLine("auto", *entry.auto.describe(arrays))]
    why = obstacle(entry.options, entry.core.fn())
    return [PlanLine("auto", taken=False, why=why or "under an outer trace: all at once")]


def _fallback_lines(entry: Specialization, arrays: Sequence[Array]) -> list[PlanLine]:
    """Return how calls run that XLA could not compile or run, if options ask for it."""
    if entry.fallback is None:
        return []
    return [PlanLine(name, taken=True, why=why) for name, why in entry.fallback.describe(arrays)]


def _verify_line(
    entry: Specialization,
    arrays: Sequence[Array],
    *,
    ready: bool,
) -> PlanLine:
    """Return whether the plain function is run too, for comparison; traces it."""
    options = entry.core.options
    if options.disabled is not None:
        return PlanLine("verify", taken=False, why="JITNEY_DISABLE leaves nothing to compare")
    if not is_verified(options) or not ready:
        return PlanLine("verify", taken=False, why="not asked for" if ready else "not called yet")
    try:
        return PlanLine("verify", *_verify.forecast(entry, arrays))
    except CAUGHT as error:
        if need_of(error) is None:
            raise
        return PlanLine(
            "verify",
            taken=False,
            why="the body cannot be traced, so there is nothing to compare with",
        )


def _late(entry: Specialization) -> PlanLine:
    """Return who raises the error of a run-time check."""
    why = waits(entry.options)
    if why is None and entry.request.nested:
        why = "under an outer trace checks are Equinox's own callbacks"
    return PlanLine(
        "late checks",
        why is None,
        why or "a later call raises what one finds, `jitney.wait()`, or the end of Python",
    )


def _compile_limit(core: FunctionInfo) -> str:
    limit = core.options.max_compiles
    return (
        "not asked for"
        if limit is None
        else (
            f"{core.counters.compile_events} of {limit.count} programs compiled; past it:"
            f" {limit.past}"
        )
    )


def _on_trace_error(choice: str) -> str:
    return "the function runs un-jitted if it cannot be traced" if choice == "eager" else _ERROR


def _largest(dtype: DType) -> float:
    numpy = jnp
    return float(numpy.finfo(dtype).max)
