"""Proven remedies for retraces: buckets that let the sizes of earlier calls share programs, and
static numbers that can be arrays.

A cause names the difference between two calls; whether an option would help is another question.
The option itself answers it: the same function with `pad`, say, is planned and traced for the calls
that were recorded, as its own calls would be, and the programs are counted. Nothing is compiled.
The proof costs traces, so it is made where somebody reads `stats.causes`, and once for the same
calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import jax

from .._body.function import FunctionInfo
from .._diagnosis.cause import Cause
from .._diagnosis.counters.counters import Counters, Event
from .._diagnosis.counters.stats import Advised
from .._errors import plural
from .._jax.trees import canonicalize_dtype, issubdtype, tree_flatten
from .._jax.typed import DType
from .._signature.array_hints import array_of_kind
from .._signature.buckets import Bucket
from .._signature.hints import AnyHint, Hint
from .._signature.options import Options, bucket_spelling, tolerance_of
from .._values.attribute_reads import Statics
from .._values.static_values import Opaque
from .._view.layout import Layout, aval_parts
from .._view.result import unmix
from .compiled_calls import SpecializedFunction
from .entry import Specialization
from .runners.padded_calls import PaddedCalls
from .runners.padding_recipes import PaddingRecipe

# The most calls, each of other sizes, for which buckets are looked for.
_CALLS = 512
# The most padding, as a share of the size, of buckets fitted to recorded sizes: as powers of two.
_WASTE = 1.0
# Up to this many axes are tried in all combinations.
_AXES = 4
_NAMES = ("n", "m", "k", "l")
_KINDS = (
    ("Bool", jax.numpy.bool_),
    ("Int", jax.numpy.integer),
    ("Float", jax.numpy.floating),
    ("Complex", jax.numpy.complexfloating),
)

Pads = dict[str, Bucket]
_About = tuple[str, str | None]
"""Kind of a cause, with its axis or argument."""


class _Unheard(Counters):
    """Counters of a function that exists for a proof only: no warning is given."""

    def warn_once(self, about: str) -> bool:
        return False


@dataclass(frozen=True)
class _RecordedCall:
    """A call that was traced, or that ran padded in a program that another call was traced for."""

    entry: Specialization
    arrays: tuple[jax.ShapeDtypeStruct, ...]
    # Sizes of its named axes.
    sizes: Mapping[str, int]
    # True sizes of its padded axes.
    true: Mapping[str, int]
    # How it ran padded, if it did.
    padded: PaddingRecipe | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        return hash(self.entry.key), tuple(map(aval_parts, self.arrays))

    @property
    def statics(self) -> dict[str, object]:
        """Static values by path."""
        return dict(zip(self.entry.layout.static_names(), self.entry.statics, strict=True))

    @property
    def program(self) -> tuple[Hashable, ...]:
        """Key of the program that it ran."""
        return _program_key(self, self.padded)

    def key_without(self, argument: str) -> Hashable:
        """Return a key of its program that is equal for all values of one static argument."""
        keys = zip(self.entry.layout.static_names(), self.entry.place[-1], strict=True)
        others = tuple((name, key) for name, key in keys if name != argument)
        return self.program[1:], others

    def size(self, axis: str) -> int | None:
        return self.true.get(axis, self.sizes.get(axis))


@dataclass(frozen=True)
class _Proven:
    """A remedy, the arguments and axes whose causes it ends, and the programs that it saves."""

    remedy: str
    # Kinds of causes, each with its axis or argument.
    ends: frozenset[_About]
    saves: str = ""


class Advice:
    """Remedies that are proven to help a function, by its recorded calls."""

    def __init__(self, core: SpecializedFunction[Specialization]):
        # A weak reference: whoever keeps statistics keeps no programs alive.
        self._core = weakref.ref(core)
        self._known: dict[Hashable, Sequence[_Proven]] = {}
        self._lock = threading.RLock()

    def __call__(self, events: Sequence[Event]) -> Advised:
        """Return the causes of these events, each with a remedy if one was proven."""
        causes = tuple(event.timed_causes() for event in events)
        core = self._core()
        if core is None:
            return Advised(causes)
        options = core.options
        # A trace alone does not determine what is chosen by values, by the compiler or by devices.
        if (
            tolerance_of(options.precision) is not None
            or options.memory is not None
            or options.shard is not None
            or options.disabled
        ):
            return Advised(causes)

        # Prove remedies for the causes that have none yet.
        try:
            with self._lock:
                asked = {_about(cause) for each in causes for cause in each if not cause.remedy}
                proven = self._find_proofs(core, asked)
        except ReferenceError:
            # The function is gone, or an object that it was called with.
            return Advised(causes)

        remedies = {about: each.remedy for each in reversed(proven) for about in each.ends}

        def with_remedy(cause: Cause) -> Cause:
            return replace(cause, remedy=cause.remedy or remedies.get(_about(cause), ""))

        advised = tuple(tuple(map(with_remedy, each)) for each in causes)
        return Advised(advised, {each.remedy: each.saves for each in proven if each.saves})

    def _find_proofs(
        self,
        core: SpecializedFunction[Specialization],
        asked: set[_About],
    ) -> Sequence[_Proven]:
        seen = _recorded_calls(core)
        key = frozenset(asked), tuple(each.key for each in seen)
        if key not in self._known:
            proven = [] if len(seen) < 2 else [*_prove_remedies(core, seen, asked)]
            self._known = {key: proven}
        return self._known[key]


def _recorded_calls(core: SpecializedFunction[Specialization]) -> list[_RecordedCall]:
    """Return the calls that were traced on their own, and those of other sizes that shared their
    programs, each once.
    """
    entries = {hash(entry.key): entry for entry in [*core.entries.values()]}
    recipes = {
        key: {} if entry.padded is None else entry.padded.recipes()
        for key, entry in entries.items()
    }
    traced: dict[Hashable, _RecordedCall] = {}
    for trace in core.log.traces:
        if trace.arrays is not None and trace.key in entries:
            entry = entries[trace.key]
            padded = recipes[trace.key].get(tuple(map(aval_parts, trace.arrays)))
            call = _RecordedCall(entry, trace.arrays, trace.sizes, trace.true, padded)
            traced[call.key] = call

    # The other sizes in a bucket. Axes that are not padded have the same size in all calls of a
    # program.
    sizes = {call.program: call.sizes for call in traced.values()}
    seen = dict(traced)
    for entry in {id(call.entry): call.entry for call in traced.values()}.values():
        for avals, padded in recipes[hash(entry.key)].items():
            arrays = tuple(
                jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in avals
            )
            axes = () if padded is None else padded.fill.axes
            true = {axis.name: axis.size for axis in axes}
            call = _RecordedCall(entry, arrays, {}, true, padded)
            seen.setdefault(call.key, replace(call, sizes=sizes.get(call.program, {})))
    return [*seen.values()]


def _are_all(core: FunctionInfo, seen: Sequence[_RecordedCall]) -> bool:
    """Return whether each size that a padded axis had in a call is among these calls."""
    return all(
        set(counted) <= {each.true.get(axis) for each in seen}
        for axis, counted in core.counters.sizes.items()
    )


def _prove_remedies(
    core: FunctionInfo,
    seen: Sequence[_RecordedCall],
    asked: set[_About],
) -> Iterator[_Proven]:
    # For a padded function buckets are proposed only if all of its sizes are among these calls; for
    # another, powers of two are proven for the latest traces.
    all_sizes = len(seen) <= _CALLS and _are_all(core, seen)
    differ = {axis for kind, axis in asked if kind == "axis" and all_sizes}

    # Named axes of several sizes: buckets.
    axes = [
        axis for axis in seen[0].sizes if axis in differ and core.author_context().can_pad(axis)
    ]
    if axes:
        proven = _find_buckets(core, seen, axes, {})
        if proven is not None:
            yield proven

    # Sizes without a name: annotations that name them, and buckets.
    if all_sizes and any(kind == "shape" for kind, _ in asked):
        hints, new = _new_annotations(core, seen)
        proven = _find_buckets(core, seen, new, hints) if new else None
        if proven is not None:
            yield proven

    # Static numbers: arrays in their place.
    for kind, argument in sorted(asked, key=str):
        if kind == "static value" and argument is not None:
            proven = _traced_number(core, seen, argument)
            if proven is not None:
                yield proven


def _about(cause: Cause) -> _About:
    if cause.kind == "shape" and cause.axis is not None:
        return "axis", cause.axis
    return cause.kind, cause.argument


# Remedies for sizes: buckets.


def _find_buckets(
    core: FunctionInfo,
    seen: Sequence[_RecordedCall],
    axes: Sequence[str],
    hints: Mapping[str, Hint],
) -> _Proven | None:
    """Return the most general buckets that save programs for some of these axes; among equally
    general ones, those that save most.

    Args:
        core: The function.
        seen: Its calls.
        axes: Axes of several sizes.
        hints: Annotations that would have to be written first, by argument.
    """
    # Count the programs with each choice of axes and buckets, from keys alone.
    now = len({each.program for each in seen})
    candidates: list[tuple[int, int, int, Pads]] = []
    numbers = range(1, len(axes) + 1) if len(axes) <= _AXES else (1, len(axes))
    choices = chain.from_iterable(combinations(axes, number) for number in numbers)
    for some in choices:
        for rank, pads in enumerate(_ladders(core, seen, some)):
            twins = _twins(core, seen, pads, hints)
            programs = {_program(twins.get(id(each.entry)), each)[0] for each in seen}
            then = len(programs)
            if then < now:
                candidates.append((rank, then, len(some), pads))

    # Trace them, the best candidate first, until one is proven.
    for _, then, _, pads in sorted(candidates, key=lambda each: each[:3]):
        added = _proof(_twins(core, seen, pads, hints), seen, core.counters.sizes)
        if added is None:
            continue
        latest = "the latest " if core.log.dropped and not core.options.pad else ""
        saves = f"{plural(then, 'program')} instead of {latest}{now}, {added:.0%} of padding"
        ends = {("axis", axis) for axis in pads} | {("shape", argument) for argument in hints}
        return _Proven(_option_text(core.options, pads, hints), frozenset(ends), saves)
    return None


def _ladders(
    core: FunctionInfo,
    seen: Sequence[_RecordedCall],
    axes: Sequence[str],
) -> Iterator[Pads]:
    """Yield powers of two, if nothing is written for these axes yet, then buckets fitted to the
    recorded sizes, if these are all sizes.
    """
    written = {name for name, _ in core.options.pad}
    if not written & set(axes):
        yield dict.fromkeys(axes, _POW2)
    if core.log.dropped:
        return
    sizes: dict[str, list[int]] = {}
    for axis in axes:
        of_axis = [each.size(axis) for each in seen]
        sizes[axis] = [size for size in of_axis if size is not None and size > 1]
    if all(sizes.values()):
        yield {axis: Bucket.fit(sizes[axis], _WASTE) for axis in axes}


_POW2 = Bucket(ladder="pow2")


def _twins(
    core: FunctionInfo,
    seen: Sequence[_RecordedCall],
    pads: Pads,
    hints: Mapping[str, Hint],
) -> dict[int, PaddedCalls]:
    """Return, for each entry, padded calls with these buckets."""
    buckets = {**dict(core.options.pad), **pads}
    twin = _twin(core, {"pad": tuple(buckets.items())}, hints)
    entries = {id(each.entry): each.entry for each in seen}
    calls: dict[int, PaddedCalls] = {}
    for key, entry in entries.items():
        same = Specialization(twin, entry.layout, entry.weak_statics, entry.key)
        calls[key] = PaddedCalls(same)
    return calls


def _twin(
    core: FunctionInfo,
    options: Mapping[str, object],
    hints: Mapping[str, Hint],
) -> FunctionInfo:
    """Return the same function with other options and annotations, whose traces nobody counts."""
    plain = core.options.without("cache", "max_compiles", "verify", "debug_nans")
    twin = core.of(core.fn(), replace(plain, **options))
    parameters = tuple(
        replace(each, hint=hints.get(each.name, each.hint)) for each in core.contract.parameters
    )
    twin.contract = replace(core.contract, parameters=parameters)
    twin.counters = _Unheard(core.name)
    return twin


def _program(
    calls: PaddedCalls | None, seen: _RecordedCall
) -> tuple[Hashable, PaddingRecipe | None]:
    """Return the key of the program of a call, and how the call is padded; None if it is not."""
    padded = None
    if calls is not None:
        with calls.entry.numbers():
            padded = calls.demand_bucket(seen.arrays)
    return _program_key(seen, padded), padded


def _program_key(seen: _RecordedCall, padded: PaddingRecipe | None) -> tuple[Hashable, ...]:
    """Return the key of the program of a call that is padded in this way."""
    entry, arrays = seen.key
    if padded is None:
        return entry, arrays
    return entry, padded.counts.names, padded.counts.weak, padded.key


def _proof(
    twins: Mapping[int, PaddedCalls],
    seen: Sequence[_RecordedCall],
    times: Mapping[str, Mapping[int, int]],
) -> float | None:
    """Return the padding of the axes, as `Stats.padding` would have it, if all of these calls run
    padded; None if one of them is refused.

    Args:
        twins: Padded calls by entry.
        seen: The calls.
        times: Numbers of calls by axis and size, where they were counted.
    """
    buckets: dict[str, dict[int, int]] = {}
    traced: set[Hashable] = set()
    try:
        for each in seen:
            # `_program` proves a call of another size than the one that its program was traced
            # for: a refusal raises there.
            calls = twins[id(each.entry)]
            key, padded = _program(calls, each)
            if padded is None:
                continue
            if key not in traced:
                traced.add(key)
                abstract = (*padded.abstract(each.arrays), padded.counts.abstract())
                calls.entry.lower(abstract, "trace")
                calls.entry.land()
            for axis in padded.fill.axes:
                buckets.setdefault(axis.name, {})[axis.size] = axis.high
    except Exception:  # noqa: BLE001 - the user's code, run once more: whatever it raises, nothing is proven
        return None
    added: list[float] = []
    for axis, highs in buckets.items():
        counted = {size: times.get(axis, {}).get(size, 1) for size in highs}
        rows = sum(highs[size] * n for size, n in counted.items())
        added.append(rows / sum(size * n for size, n in counted.items()) - 1)
    return sum(added) / len(added) if added else None


def _option_text(
    options: Options,
    pads: Pads,
    hints: Mapping[str, Hint],
) -> str:
    """Return the option as text to paste."""
    buckets = {**dict(options.pad), **pads}
    words = ", ".join(f'"{axis}": {_bucket_text(bucket)}' for axis, bucket in buckets.items())
    if not hints:
        return f"pad={{{words}}}"
    annotated = ", ".join(
        f"{name}: {hint.text.replace(chr(39), chr(34))}" for name, hint in hints.items()
    )
    return f"annotate {annotated}, and pad={{{words}}}"


def _bucket_text(bucket: Bucket) -> str:
    return repr(bucket_spelling(bucket)).replace("'", '"')


def _new_annotations(
    core: FunctionInfo, seen: Sequence[_RecordedCall]
) -> tuple[dict[str, Hint], list[str]]:
    """Return annotations for arguments whose sizes differ and have no names, and the new names.

    Sizes that are always equal share a name. Calls that differ in anything besides such sizes get
    no annotations.
    """
    first = seen[0]
    if any(each.entry is not first.entry or len(each.arrays) != len(first.arrays) for each in seen):
        return {}, []
    shapes = [[aval_parts(array)[0] for array in each.arrays] for each in seen]
    if any(len({len(shape) for shape in column}) > 1 for column in zip(*shapes, strict=True)):
        return {}, []

    # Name sizes by their values over all calls: two dimensions with equal columns are one axis.
    names: dict[tuple[int | None, ...], str] = {
        tuple(each.size(axis) for each in seen): axis for axis in first.sizes
    }
    possible = (*_NAMES, *(f"n{i}" for i in range(len(shapes[0]))))
    free = (name for name in possible if name not in core.axes)
    parameters = {parameter.name: parameter.hint for parameter in core.contract.parameters}
    paths = [first.entry.layout.names[i] for i in first.entry.layout.dynamic]
    hints: dict[str, Hint] = {}
    new: list[str] = []

    # An annotation can name the axes of an argument that is one array, and not of a leaf inside it.
    for i, column in enumerate(zip(*shapes, strict=True)):
        argument, path = paths[i]
        if len(set(column)) == 1:
            continue
        if not isinstance(parameters.get(argument), AnyHint):
            continue
        if path != argument:
            return {}, []
        dims: list[str] = []
        for sizes in zip(*column, strict=True):
            if len(set(sizes)) == 1:
                dims.append("_")
                continue
            if sizes not in names:
                names[sizes] = next(free)
            dims.append(names[sizes])
        new += [dim for dim in dims if dim != "_" and dim not in new]
        _, dtype, _ = aval_parts(first.arrays[i])
        hints[argument] = array_of_kind(_kind(dtype), " ".join(dims))
    return hints, new


def _kind(dtype: DType) -> str:
    """Return jaxtyping's word for a dtype."""
    return next((name for name, kind in _KINDS if issubdtype(dtype, kind)), "Shaped")


# Remedies for static numbers: tracing them.


def _traced_number(
    core: FunctionInfo,
    seen: Sequence[_RecordedCall],
    argument: str,
) -> _Proven | None:
    """Return the remedy of an annotation that traces a static number, if the body can be traced so
    and its results keep their types.
    """
    taken = [each for each in seen if _is_number(each.statics.get(argument))]
    if not taken:
        return None

    # The twin: the number is a parameter with the annotation of an array, and not static.
    last = taken[-1]
    layout, statics = last.entry.layout, last.statics
    kind = "Float" if any(isinstance(each.statics[argument], float) for each in taken) else "Int"
    static = tuple(name for name in core.options.static if name != argument)
    twin = _twin(core, {"static": static}, {argument: array_of_kind(kind, "")})

    # Evaluate both abstractly, and compare the types of the results.
    with last.entry.numbers():
        dtype = canonicalize_dtype(float if kind == "Float" else int)
        stand_in = jax.ShapeDtypeStruct((), dtype, weak_type=True)
        parts: list[object] = []
        for name, value in statics.items():
            parts.append(stand_in if name == argument else Opaque.holding(value))
        values = layout.trees(last.arrays, parts)
        there = Layout(twin.binder, twin.contract, values, core.options.donate)
        leaves = tree_flatten(values)[0]
        key = ("traced", last.entry.key)
        entry = Specialization(twin, there, Statics(there.statics(leaves)), key)
        try:
            results = _results(entry, there.pick(leaves))
        except Exception:  # noqa: BLE001 - the user's code, with what it was not written for: whatever it raises, it takes no array
            return None
        if results != _results(last.entry, last.arrays):
            return None
    listed = f"take {argument!r} out of `static`, and " if static != core.options.static else ""
    then = len({each.key_without(argument) for each in taken})
    now = len({each.program for each in taken})
    saves = f"{plural(then, 'program')} instead of {now}"
    return _Proven(
        f'{listed}annotate {argument}: {kind}[ArrayLike, ""]',
        frozenset({("static value", argument)}),
        saves,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _results(entry: Specialization, arrays: Sequence[object]) -> list[object]:
    out = unmix(jax.eval_shape(entry.run_inner_stages, *arrays))
    leaves = jax.tree.leaves(out)
    return [aval_parts(leaf)[:2] if hasattr(leaf, "dtype") else leaf for leaf in leaves]
