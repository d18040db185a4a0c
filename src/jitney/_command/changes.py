"""Changes that would save most in the next run of a program, as proven by the events of this run.

- A program that was compiled twice in one run because its function was created anew: JAX's cache
  keys of the two are equal.
- A function that was compiled for several sizes: the buckets that these sizes share are counted.
- Operations of JAX outside of any `jit`, each of them a program of its own.
- Programs that are missing from the persistent cache.
- The kinds in `findings/`, a file for each: static values, float64, reads, arguments of
  calls, compiles that few calls repay, loops that are a `jax.vmap`.

Seconds are those of the recorded run. A saving is "at most" where the replacement has a cost that
was not measured: a larger program, a proof, a read. Several changes may save the same seconds, so
savings do not add up.
"""

from __future__ import annotations

import itertools
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

from .._errors import shortlist
from .._owners import short
from .._text.json import Record
from .findings.annotated_axes import annotated_axes
from .findings.call_arguments import argument_changes
from .findings.change import ProposedChange
from .findings.promotion import promotion_changes
from .findings.repeated_calls import loops, reads, unrepaid
from .findings.statics import statics
from .jax_log import CompileRecord, Explanation

_MOST = 10
# Seconds below which a change is not worth a line.
_LEAST = 0.01
_LEAST_BYTES = 2**20
# Sizes from which on an axis counts as changing.
_SIZES = 3
# Programs from which on separate operations are reported.
_SMALL = 5
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
# Names of programs that hold many operations, so they are not eager operations of JAX. `pmap` names
# all of its programs `_fun`.
_WHOLE = {*_LOOPS, "pmap", "shard_map", "_fun"}
_BOUND = True
_Shapes = tuple[tuple[int, ...], ...]
# Values of `CompileRecord.code_owner` under which the compiled function is the user's: JAX reports
# the wrapper of jitney or of Equinox as the place of definition.
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
    compiled: Sequence[CompileRecord],
    settings: Mapping[str, object],
    lines: Sequence[Mapping[str, object]] = (),
) -> tuple[ProposedChange, ...]:
    """Return up to ten changes, largest saving first, then those with unknown seconds by memory.

    Args:
        compiled: Programs of the run, in order of compilation.
        settings: JAX's configuration at the end of the run.
        lines: Events recorded by `findings/lines.py`.
    """
    found = [
        *_recreated_functions(compiled),
        *_sizes(compiled),
        *_operations(compiled),
        *_uncached_programs(compiled, settings),
    ]
    found += [
        *statics(compiled),
        *promotion_changes(compiled, lines),
        *reads(lines),
        *argument_changes(lines),
        *unrepaid(compiled, lines),
        *loops(compiled, lines),
    ]
    # Small savings are not worth a line: in seconds if they are known, else in bytes.
    kept = [
        change
        for change in found
        if (change.nbytes >= _LEAST_BYTES if change.seconds is None else change.seconds >= _LEAST)
    ]
    return tuple(
        sorted(kept, key=lambda change: (-(change.seconds or 0.0), -change.nbytes))[:_MOST]
    )


def _recreated_functions(compiled: Sequence[CompileRecord]) -> Iterator[ProposedChange]:
    """Yield the functions that were created again on the same line with an equal program.

    All programs but the first of each function were compiled for nothing.
    """
    seen: set[str] = set()
    again: dict[tuple[str, int, str], list[CompileRecord]] = defaultdict(list)
    for each in compiled:
        # Only the user's own functions: a library that creates functions anew cannot be fixed here.
        # The key is recorded after the test, so that the first program of a key never counts.
        if (
            each.key
            and each.key in seen
            and each.cause is not None
            and each.cause.why == "a new function"
            and each.code_owner == "user"
        ):
            again[each.cause.file, each.cause.line, each.name].append(each)
        seen.add(each.key)
    for (file, line, name), several in again.items():
        calls = shortlist(list(dict.fromkeys(str(each.place) for each in several if each.place)))
        yield ProposedChange(
            sum(each.seconds for each in several),
            at_most=False,
            what=(
                f"{name} was created again, and the same program traced and compiled again,"
                f" {_times(len(several))} (called from {calls})"
            ),
            where=f"{short(file)}:{line}",
            write=(
                "make the function, and `jax.jit` of it, once: outside of the loop, or at the top"
                " of the module"
            ),
        )


def _sizes(compiled: Sequence[CompileRecord]) -> Iterator[ProposedChange]:
    """Yield the user's functions that were compiled for several sizes, by dtypes and ranks."""
    groups = defaultdict(dict)
    for each in compiled:
        read = None if each.shapes is None else [_array(shape) for shape in each.shapes]
        at = _defined_at(each)
        if at is None or read is None or None in read:
            continue
        arrays: Any = tuple(read)
        kinds = tuple((dtype, len(shape)) for dtype, shape in arrays)
        group = groups[*at, each.name, kinds]
        # A function that is created anew is compiled whatever its sizes are, so padding would not
        # spare that program. It counts only as the first of its group.
        if not group or each.cause is None or each.cause.why != "a new function":
            group.setdefault(tuple(shape for _, shape in arrays), each)
    for (file, line, name, kinds), programs in groups.items():
        change = _padding_change(name, f"{short(file)}:{line}", kinds, programs)
        if change is not None:
            yield change


def _defined_at(each: CompileRecord) -> tuple[str, int] | None:
    """Return file and line of the definition of a user's function, or None for any other program.

    Under `jax.grad` and its kin JAX reports no cause; the line of the call stands in for the
    definition.
    """
    if each.cause is not None:
        return (each.cause.file, each.cause.line) if each.code_owner in _WRAPPED else None
    if (
        each.place is None
        or each.name in _WHOLE
        or not each.name.isidentifier()
        or _is_jaxs(each.name, each.place.file)
    ):
        return None
    return each.place.file, each.place.line


def _padding_change(
    name: str,
    where: str,
    kinds: object,
    programs: Mapping[Any, CompileRecord],
) -> ProposedChange | None:
    several = list(programs)
    # The set of padded shapes: as many programs as `pad="pow2"` would compile.
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

    # At least `_SIZES` sizes, all but the first of which were caused by shapes, and a bucket that
    # two of them share.
    if len(several) < _SIZES or changed < _SIZES - 1 or len(shared) == len(several):
        return None
    spared = len(several) - len(shared)
    whole = sum(each.seconds for each in programs.values())
    axes = _axes(several, _own_names(name, several, list(programs.values())))
    first = next(iter(programs.values()))
    sizes = "; ".join(
        f"{axis}: {_span(sorted({shapes[i][d] for shapes in several}))}"
        for axis, (i, d) in _first(axes).items()
    )

    # Programs are taken to cost the same, and a padded program may cost more: hence "at most".
    return ProposedChange(
        whole * spared / len(several),
        at_most=True,
        what=(
            f"{name} was compiled for {len(several)} sizes ({sizes}), {whole:.2f} s; they share"
            f" {_buckets(len(shared))}"
        ),
        where=where if first.code_owner == "user" else str(first.place or "a library"),
        write=_pad_line(name, kinds, axes, list(programs.values())),
    )


def _bucket(several: Sequence[Any], i: int, d: int, size: int) -> int:
    """Return the next power of two; sizes that never change, and sizes 0 and 1, stay the same."""
    if all(shapes[i][d] == size for shapes in several) or size <= 1:
        return size
    return 1 << (size - 1).bit_length()


def _axes(
    several: Sequence[_Shapes], own: Mapping[tuple[int, int], str]
) -> dict[tuple[int, int], str]:
    """Name each dimension that changes, as the function's annotations do (`own`); others with equal
    sizes in all programs share a name.
    """
    changing = _changing_sizes(several)
    names = {changing[at]: axis for at, axis in reversed([*own.items()])}
    possible = itertools.chain(_AXES, (f"n{i}" for i in itertools.count(len(_AXES))))
    free = (name for name in possible if name not in own.values())
    found: dict[tuple[int, int], str] = {}
    for at, sizes in changing.items():
        if at not in own and sizes not in names:
            names[sizes] = next(free)
        found[at] = own.get(at) or names[sizes]
    return found


def _changing_sizes(several: Sequence[_Shapes]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the sizes of each dimension (argument, dimension) that changes, by program."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for i, shape in enumerate(several[0]):
        for d in range(len(shape)):
            sizes = tuple(shapes[i][d] for shapes in several)
            if len(set(sizes)) > 1:
                found[i, d] = sizes
    return found


def _own_names(
    name: str, several: Sequence[_Shapes], programs: Sequence[CompileRecord]
) -> dict[tuple[int, int], str]:
    """Return the names that the function's annotations give to dimensions that change."""
    changing = _changing_sizes(several)
    arguments = sorted({i for i, _ in changing})
    cause = programs[0].cause
    paths = _paths(programs, len(arguments))
    if cause is None or paths is None:
        return {}
    annotated = annotated_axes(cause.file, cause.line, name)
    dims = {i: annotated.get(path, ()) for i, path in zip(arguments, paths, strict=True)}
    # Under a transform an array has other dimensions than the parameter.
    fits = {i: names for i, names in dims.items() if len(names) == len(several[0][i])}
    own = {(i, d): fits[i][d] for i, d in changing if i in fits}
    own = {at: axis for at, axis in own.items() if axis.isidentifier()}
    # Nothing checks annotations under `jax.jit`: one name for other sizes names nothing.
    columns: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for at, axis in own.items():
        columns[axis].add(changing[at])
    return {at: axis for at, axis in own.items() if len(columns[axis]) == 1}


def _first(axes: Mapping[tuple[int, int], str]) -> dict[str, tuple[int, int]]:
    """Return the first position (argument, dimension) of each axis."""
    found: dict[str, tuple[int, int]] = {}
    for at, name in axes.items():
        found.setdefault(name, at)
    return found


def _pad_line(
    name: str,
    kinds: Any,
    axes: Mapping[tuple[int, int], str],
    programs: Sequence[CompileRecord],
) -> str:
    """Return the line to write: a decorator, with annotations where JAX named the arguments."""
    pad = ", ".join(f'"{axis}": "pow2"' for axis in _first(axes))
    if programs[0].code_owner == "equinox":
        return (
            f"@jitney.optimize(pad={{{pad}}})  # instead of eqx.filter_jit, with the axes in its"
            " annotations; it is proven, or refused"
        )
    changing = sorted({i for i, _ in axes})
    paths = _paths(programs, len(changing))
    if programs[0].code_owner == "jitney":
        return (
            "print(f.stats)  # what was proven to help; if it has `pad`, print(f.plan(...)) says"
            " why sizes share no program"
        )
    cause = programs[0].cause
    if paths is None or cause is None or not _has_only_jit(cause.file, cause.line):
        return (
            f"jitney.optimize(pad={{{pad}}}) of what is compiled there, with these axes named in"
            " its annotations; it is proven, or refused"
        )
    shapes = [_array((programs[0].shapes or ())[i]) for i in changing]
    told = ", ".join(
        f"{path}: {_annotation(i, kinds[i][0], array, axes)}"
        for path, i, array in zip(paths, changing, shapes, strict=True)
    )

    # A weakly typed integer scalar was a Python int: under `jax.jit` it is traced, under `optimize`
    # it is static and would compile for each value.
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


def _has_only_jit(file: str, line: int) -> bool:
    """Return whether a function's decorators have `jit` and no other transform of JAX.

    Only then are the parameters of the function those of the compiled program.
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


def _annotation(
    i: int,
    dtype: str,
    array: Any,
    axes: Mapping[tuple[int, int], str],
) -> str:
    kind = _KINDS.get((re.match("[a-z]+", dtype) or [""])[0], "Shaped")
    return (
        f"{kind}[Array,"
        f' "{" ".join(axes.get((i, d), str(size)) for d, size in enumerate(array[1]))}"]'
    )


def _paths(programs: Sequence[CompileRecord], count: int) -> list[str] | None:
    """Return the names of the arguments that change, in order.

    None unless JAX named as many arguments as change, all of them whole arguments and not leaves of
    one.
    """
    for each in programs:
        cause: Explanation | None = each.cause
        paths = (
            [detail.split(", now ")[0] for detail in cause.details]
            if cause and cause.why == "other shapes or types"
            else []
        )
        if len(paths) == count and all(path.isidentifier() for path in paths):
            return paths
    return None


def _operations(compiled: Sequence[CompileRecord]) -> Iterator[ProposedChange]:
    """Yield groups of JAX's own operations that were compiled outside of any `jit`, by function.

    JAX never explains the compilation of its own functions. Under `jax.grad` and its kin it does
    not explain that of the user's functions either, so names that it explained anywhere are left
    out.
    """
    explained = {each.name for each in compiled if each.cause is not None}
    groups: dict[tuple[str, int, str], list[CompileRecord]] = defaultdict(list)
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
        named = shortlist([f"{name} {n}" if n > 1 else name for name, n in counts.most_common()])
        yield ProposedChange(
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
    """Return whether a program is a function of JAX by name, and not of the file."""
    known = name.startswith(("_", "random_")) or any(hasattr(module, name) for module in _JAXS)
    return known and not any(
        re.match(rf"\s*(async )?def {name}\b", line) for line in linecache.getlines(file)
    )


def _uncached_programs(
    compiled: Sequence[CompileRecord], settings: Record
) -> Iterator[ProposedChange]:
    """Yield the programs that a later run could read from the persistent cache instead."""
    missed = [each for each in compiled if not each.hit]
    least = settings.get(_SECONDS, 0.0)
    if not settings.get(_DIRECTORY):
        seconds = sum(each.compile_seconds for each in missed)
        write = (
            f'jax.config.update("{_DIRECTORY}", "/a/folder/of/your/own");'
            f' jax.config.update("{_SECONDS}", 0)'
        )
        yield ProposedChange(
            seconds,
            _BOUND,
            f"{len(missed)} programs are compiled at each start: the persistent cache is off",
            "the start",
            write,
        )
    elif least:
        # The cache is on, but JAX does not write programs to it that compile faster than this.
        quick = [each.compile_seconds for each in missed if each.compile_seconds < least]
        write = f'jax.config.update("{_SECONDS}", 0)'
        what = (
            f"{len(quick)} programs that compile in less than {least:g} s are not kept in the"
            " persistent cache"
        )
        yield ProposedChange(sum(quick), _BOUND, what, "the start", write)


def _array(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Parse `float32[3,4]`, weakly typed or not; None with a sharding or a symbol."""
    match = re.fullmatch(r"([\w<>:]+)\[([\d,]*)\](, weak_type=True)?", text.strip())
    return (
        None
        if match is None
        else (match[1], tuple(int(size) for size in match[2].split(",") if size))
    )


def _span(sizes: Sequence[int]) -> str:
    return (
        shortlist([str(size) for size in sizes])
        if len(sizes) <= 4
        else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    )


def _buckets(count: int) -> str:
    return "one bucket" if count == 1 else f"{count} buckets"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
