"""Buckets for the sizes of recorded calls: the most general ones that save programs, and their
proof.

The recorded calls are planned and traced with the buckets, as a function with this option would
do it, and their programs are counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain, combinations

from ..._body.function import FunctionInfo
from ..._errors import plural
from ..._signature.buckets import Bucket
from ..._signature.hints import Hint
from ..._signature.options import Options, bucket_spelling
from ..entry import Specialization
from ..runners.padded_calls import PaddedCalls
from ..runners.padding_recipes import PaddingRecipe
from .proofs import Proven, twin_of
from .recorded_calls import RecordedCall, program_key

# The most padding, as a share of the size, of buckets fitted to recorded sizes: as powers of two.
_WASTE = 1.0
# Up to this many axes are tried in all combinations.
_AXES = 4
_POW2 = Bucket(ladder="pow2")

Pads = dict[str, Bucket]


def find_buckets(
    core: FunctionInfo,
    seen: Sequence[RecordedCall],
    axes: Sequence[str],
    hints: Mapping[str, Hint],
) -> Proven | None:
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
        return Proven(_option_text(core.options, pads, hints), frozenset(ends), saves)
    return None


def _ladders(
    core: FunctionInfo,
    seen: Sequence[RecordedCall],
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


def _twins(
    core: FunctionInfo,
    seen: Sequence[RecordedCall],
    pads: Pads,
    hints: Mapping[str, Hint],
) -> dict[int, PaddedCalls]:
    """Return, for each entry, padded calls with these buckets."""
    buckets = {**dict(core.options.pad), **pads}
    twin = twin_of(core, {"pad": tuple(buckets.items())}, hints)
    entries = {id(each.entry): each.entry for each in seen}
    calls: dict[int, PaddedCalls] = {}
    for key, entry in entries.items():
        same = Specialization(twin, entry.layout, entry.weak_statics, entry.key)
        calls[key] = PaddedCalls(same)
    return calls


def _program(
    calls: PaddedCalls | None, seen: RecordedCall
) -> tuple[Hashable, PaddingRecipe | None]:
    """Return the key of the program of a call, and how the call is padded; None if it is not."""
    padded = None
    if calls is not None:
        with calls.entry.numbers():
            padded = calls.demand_bucket(seen.arrays)
    return program_key(seen, padded), padded


def _proof(
    twins: Mapping[int, PaddedCalls],
    seen: Sequence[RecordedCall],
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
