"""The changes worth most: what would save seconds at the next run, as far as what was seen proves
it.

- A program that was compiled before in the same run, since its function was made anew: JAX's keys
  of the two are equal.
- A function that was compiled for several sizes: how many buckets they share is counted.
- Operations of JAX outside of any `jit`, each a program of its own.
- Programs that the persistent cache does not hold.
- What `findings/` has, a file for each kind: static values, float64, reads, what calls are handed.

Seconds are of the run that was seen. "At most" stands where what takes their place costs something
that was not measured: a larger program, a proof, a reading. Changes may save the same seconds, so
they do not add up.
"""

from __future__ import annotations

import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy
import jax.ops
import jax.scipy.linalg
import jax.scipy.signal
import jax.scipy.special
import jax.scipy.stats

from .._errors import few
from .._owners import short
from .findings.change import Change
from .findings.handed import handed
from .findings.reads import reads
from .findings.statics import statics
from .findings.widened import widened
from .happened import Compiled, Explained

_MOST = 10
_LEAST = 0.01  # seconds
_LEAST_BYTES = 2**20
_SIZES = 3  # from how many on sizes change
_SMALL = 5  # from how many on operations are named
_LOOPS = (
    "scan",
    "while",
    "while_loop",
    "cond",
    "checkpoint",
    "remat",
    "custom_jvp_call",
    "custom_vjp_call",
)
# one program for many operations; `pmap` calls all of its own `_fun`
_WHOLE = {*_LOOPS, "pmap", "shard_map", "_fun"}
_BOUND = True
# who defines what JAX compiles of a function of the user's
_WRAPPED = ("user", "jitney", "equinox")
_JAXS: tuple[Any, ...] = (
    *(jax.lax, jax.numpy, jax.numpy.linalg, jax.numpy.fft, jax.nn, jax.random, jax.ops),
    *(jax.scipy.special, jax.scipy.linalg, jax.scipy.stats, jax.scipy.signal),
)
_AXES = "nmkjil"
_KINDS = {
    "float": "Float",
    "bfloat": "Float",
    "int": "Int",
    "uint": "UInt",
    "bool": "Bool",
    "complex": "Complex",
    "key": "Key",
}
_DIRECTORY, _SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"


def changes(
    compiled: Sequence[Compiled],
    settings: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]] = (),
) -> tuple[Change, ...]:
    """Up to ten, what saves most first, and those behind whose seconds are unknown.

    `settings` are JAX's at the end of the run, `lines` what `findings/lines.py` saw.
    """
    found = [
        *_made_anew(compiled),
        *_sizes(compiled),
        *_operations(compiled),
        *_not_kept(compiled, settings),
    ]
    found += [*statics(compiled), *widened(compiled, lines), *reads(lines), *handed(lines)]
    kept = [
        change
        for change in found
        if (change.nbytes >= _LEAST_BYTES if change.seconds is None else change.seconds >= _LEAST)
    ]
    return tuple(
        sorted(kept, key=lambda change: (-(change.seconds or 0.0), -change.nbytes))[:_MOST]
    )


def _made_anew(compiled: Sequence[Compiled]) -> Iterator[Change]:
    """Equal programs of functions that are defined on one line: all but the first were for
    nothing.
    """
    seen: set[str] = set()
    again: dict[tuple[str, int, str], list[Compiled]] = defaultdict(list)
    for each in compiled:
        if (
            each.key
            and each.key in seen
            and each.cause is not None
            and each.cause.why == "a new function"
            and each.defined == "user"
        ):
            again[each.cause.file, each.cause.line, each.name].append(each)
        seen.add(each.key)
    for (file, line, name), several in again.items():
        calls = few(list(dict.fromkeys(str(each.place) for each in several if each.place)))
        yield Change(
            sum(each.seconds for each in several),
            at_most=False,
            what=(
                f"{name} was made anew, and the same program traced and compiled again,"
                f" {_times(len(several))} (called from {calls})"
            ),
            where=f"{short(file)}:{line}",
            write=(
                "make the function, and `jax.jit` of it, once: outside of the loop, or at the top"
                " of the module"
            ),
        )


def _sizes(compiled: Sequence[Compiled]) -> Iterator[Change]:
    """Functions of the user's that were compiled for several sizes, by dtypes and ranks."""
    groups: dict[Any, dict[Any, Compiled]] = defaultdict(dict)
    for each in compiled:
        read = None if each.shapes is None else [_array(shape) for shape in each.shapes]
        at = _defined_at(each)
        if at is None or read is None or None in read:
            continue
        arrays: Any = tuple(read)
        kinds = tuple((dtype, len(shape)) for dtype, shape in arrays)
        group = groups[*at, each.name, kinds]
        if not group or each.cause is None or each.cause.why != "a new function":
            group.setdefault(tuple(shape for _, shape in arrays), each)
    for (file, line, name, kinds), programs in groups.items():
        change = _padded(name, f"{short(file)}:{line}", kinds, programs)
        if change is not None:
            yield change


def _defined_at(each: Compiled) -> tuple[str, int] | None:
    """Where a function of the user's stands; under `jax.grad` and its kin, of which JAX says
    nothing, the line that calls it.
    """
    if each.cause is not None:
        return (each.cause.file, each.cause.line) if each.defined in _WRAPPED else None
    if (
        each.place is None
        or each.name in _WHOLE
        or not each.name.isidentifier()
        or _is_jaxs(each.name, each.place.file)
    ):
        return None
    return each.place.file, each.place.line


def _padded(name: str, where: str, kinds: Any, programs: Mapping[Any, Compiled]) -> Change | None:
    several = list(programs)
    shared = {
        tuple(
            tuple(_bucket(several, i, d, size) for d, size in enumerate(shape))
            for i, shape in enumerate(each)
        )
        for each in several
    }
    changed = sum(
        each.cause is None or each.cause.why == "other shapes or types"
        for each in programs.values()
    )
    if len(several) < _SIZES or changed < _SIZES - 1 or len(shared) == len(several):
        return None
    spared = len(several) - len(shared)
    whole = sum(each.seconds for each in programs.values())
    axes = _axes(several)
    first = next(iter(programs.values()))
    sizes = "; ".join(
        f"{axis}: {_span(sorted({shapes[i][d] for shapes in several}))}"
        for axis, (i, d) in _first(axes).items()
    )
    return Change(
        whole * spared / len(several),
        at_most=True,
        what=(
            f"{name} was compiled for {len(several)} sizes ({sizes}), {whole:.2f} s; they share"
            f" {_buckets(len(shared))}"
        ),
        where=where if first.defined == "user" else str(first.place or "a library"),
        write=_pad_line(name, kinds, axes, list(programs.values())),
    )


def _bucket(several: Sequence[Any], i: int, d: int, size: int) -> int:
    """The size that a power of two gives; what never changes stays, and sizes 0 and 1 run as they
    are.
    """
    if all(shapes[i][d] == size for shapes in several) or size <= 1:
        return size
    return 1 << (size - 1).bit_length()


def _axes(several: Sequence[Any]) -> dict[tuple[int, int], str]:
    """A name for each dimension that changes; those that are equal in all programs have one
    name.
    """
    names: dict[tuple[int, ...], str] = {}
    found: dict[tuple[int, int], str] = {}
    for i, shape in enumerate(several[0]):
        for d in range(len(shape)):
            sizes = tuple(shapes[i][d] for shapes in several)
            if len(set(sizes)) > 1:
                found[i, d] = names.setdefault(
                    sizes, _AXES[len(names)] if len(names) < len(_AXES) else f"n{len(names)}"
                )
    return found


def _first(axes: Mapping[tuple[int, int], str]) -> dict[str, tuple[int, int]]:
    """Where each axis is first."""
    found: dict[str, tuple[int, int]] = {}
    for at, name in axes.items():
        found.setdefault(name, at)
    return found


def _pad_line(
    name: str, kinds: Any, axes: Mapping[tuple[int, int], str], programs: Sequence[Compiled]
) -> str:
    """The decorator and the annotations, where JAX named the arguments."""
    pad = ", ".join(f'"{axis}": "pow2"' for axis in _first(axes))
    if programs[0].defined == "equinox":
        return (
            f"@jitney.optimize(pad={{{pad}}})  # instead of eqx.filter_jit, with the axes in its"
            " annotations; it is proven, or refused"
        )
    changing = sorted({i for i, _ in axes})
    paths = _paths(programs, len(changing))
    if programs[0].defined == "jitney":
        return (
            "print(f.stats)  # what was proven to help; if it has `pad`, print(f.plan(...)) says"
            " why sizes share no program"
        )
    cause = programs[0].cause
    if paths is None or cause is None or not _jitted(cause.file, cause.line):
        return (
            f"jitney.optimize(pad={{{pad}}}) of what is compiled there, with these axes named in"
            " its annotations; it is proven, or refused"
        )
    shapes = [_array((programs[0].shapes or ())[i]) for i in changing]
    told = ", ".join(
        f"{path}: {_annotation(i, kinds[i][0], array, axes)}"
        for path, i, array in zip(paths, changing, shapes, strict=True)
    )
    numbers = any(
        re.fullmatch(r"u?int\d+\[\], weak_type=True", shape)
        for each in programs
        for shape in each.shapes or ()
    )
    whole = "; Python ints are static there, so pass them as arrays" if numbers else ""
    return (
        f"@jitney.optimize(pad={{{pad}}})  # instead of jax.jit, with {told}; padding is proven, or"
        f" refused with the reason{whole}"
    )


def _jitted(file: str, line: int) -> bool:
    """Whether `jit` and no other transform stands above a function: then its parameters are what is
    compiled.
    """
    above = ""
    while (text := linecache.getline(file, line).strip()) and not text.startswith(
        ("def ", "async def ", "class ")
    ):
        above, line = above + text, line + 1
    return (
        above.startswith("@")
        and "jit" in above
        and re.search("map|grad|jac|hess|checkpoint|remat|vectorize", above) is None
    )


def _annotation(i: int, dtype: str, array: Any, axes: Mapping[tuple[int, int], str]) -> str:
    kind = _KINDS.get((re.match("[a-z]+", dtype) or [""])[0], "Shaped")
    return (
        f"{kind}[Array,"
        f' "{" ".join(axes.get((i, d), str(size)) for d, size in enumerate(array[1]))}"]'
    )


def _paths(programs: Sequence[Compiled], count: int) -> list[str] | None:
    """The names of the arguments that change, if JAX named as many, and they are arguments and not
    parts of one.
    """
    for each in programs:
        cause: Explained | None = each.cause
        paths = (
            [detail.split(", now ")[0] for detail in cause.details]
            if cause and cause.why == "other shapes or types"
            else []
        )
        if len(paths) == count and all(path.isidentifier() for path in paths):
            return paths
    return None


def _operations(compiled: Sequence[Compiled]) -> Iterator[Change]:
    """Functions of JAX, which it never explains, outside of any `jit`. Under `jax.grad` and its kin
    it explains no other ones either.
    """
    explained = {each.name for each in compiled if each.cause is not None}
    groups: dict[tuple[str, int, str], list[Compiled]] = defaultdict(list)
    for each in compiled:
        if (
            each.cause is None
            and each.name not in explained | _WHOLE
            and each.place is not None
            and _is_jaxs(each.name, each.place.file)
        ):
            groups[each.place.file, each.place.first, each.place.function].append(each)
    for (file, line, function), several in groups.items():
        if len(several) < _SMALL:
            continue
        counts = Counter(each.name for each in several)
        named = few([f"{name} {n}" if n > 1 else name for name, n in counts.most_common()])
        yield Change(
            sum(each.seconds for each in several),
            at_most=True,
            what=f"{len(several)} programs for operations of JAX outside of any jit ({named})",
            where=short(file) if function == "<module>" else f"{short(file)}:{line} ({function})",
            write=(
                "@jax.jit  # on a function with these operations: one program instead of"
                f" {len(several)}"
            ),
        )


def _is_jaxs(name: str, file: str) -> bool:
    """Whether a program is one of JAX's functions, by their names, and not one that the file
    defines.
    """
    known = name.startswith(("_", "random_")) or any(hasattr(module, name) for module in _JAXS)
    return known and not any(
        re.match(rf"\s*(async )?def {name}\b", line) for line in linecache.getlines(file)
    )


def _not_kept(compiled: Sequence[Compiled], settings: Mapping[str, Any]) -> Iterator[Change]:
    """What a later run could read instead."""
    missed = [each for each in compiled if not each.hit]
    least = settings.get(_SECONDS, 0.0)
    if not settings.get(_DIRECTORY):
        seconds = sum(each.compile_seconds for each in missed)
        write = (
            f'jax.config.update("{_DIRECTORY}", "/a/folder/of/your/own");'
            f' jax.config.update("{_SECONDS}", 0)'
        )
        yield Change(
            seconds,
            _BOUND,
            f"{len(missed)} programs are compiled at each start: the persistent cache is off",
            "the start",
            write,
        )
    elif least:
        quick = [each.compile_seconds for each in missed if each.compile_seconds < least]
        write = f'jax.config.update("{_SECONDS}", 0)'
        what = (
            f"{len(quick)} programs that compile in less than {least:g} s are not kept in the"
            " persistent cache"
        )
        yield Change(sum(quick), _BOUND, what, "the start", write)


def _array(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Dtype and shape of `float32[3,4]`, weak or not; None of what has a sharding or a symbol in
    it.
    """
    match = re.fullmatch(r"([\w<>:]+)\[([\d,]*)\](, weak_type=True)?", text.strip())
    return (
        None
        if match is None
        else (match[1], tuple(int(size) for size in match[2].split(",") if size))
    )


def _span(sizes: Sequence[int]) -> str:
    return (
        few([str(size) for size in sizes])
        if len(sizes) <= 4
        else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    )


def _buckets(count: int) -> str:
    return "one bucket" if count == 1 else f"{count} buckets"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
