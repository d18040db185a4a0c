"""Accidental promotion of float32 to float64, where x64 is on.

Two kinds: a function that is compiled again because its argument came back wider, and operations
that mix the two dtypes. Python numbers are weakly typed and do not widen an array; NumPy's float64
does, scalar or array.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..._errors import shortlist
from ..._owners import short
from ..._text.json import Record
from ..jax_log import CompileRecord
from .change import ProposedChange

_MIXING = {
    "add",
    "subtract",
    "multiply",
    "true_divide",
    "divide",
    "power",
    "maximum",
    "minimum",
    "matmul",
    "dot",
    "_where",
    "hypot",
}
_NARROW, _WIDE = re.compile(r"float32\[([\d,]*)\]"), re.compile(r"float64\[[\d,]*\]")


def promotion_changes(
    compiled: Sequence[CompileRecord], seen: Sequence[Mapping[str, object]]
) -> Iterator[ProposedChange]:
    """Yield changes of functions, then of operations."""
    yield from _functions(compiled, seen)
    yield from _operations(compiled)


def _functions(
    compiled: Sequence[CompileRecord], seen: Sequence[Record]
) -> Iterator[ProposedChange]:
    groups: dict[tuple[str, int, str], list[CompileRecord]] = defaultdict(list)
    for each in compiled:
        if (
            each.cause is not None
            and each.cause.file
            and any(_came_wider(detail) for detail in each.cause.details)
        ):
            groups[each.cause.file, each.cause.line, each.name].append(each)
    for (file, line, name), programs in groups.items():
        paths = dict.fromkeys(
            str(path)
            for each in programs
            if each.cause
            for path in map(_came_wider, each.cause.details)
            if path
        )
        # Names of float64 arrays of NumPy at the recorded calls of this function.
        doubles = dict.fromkeys(
            double
            for place in seen
            if place["kind"] == "call" and tuple(place["defined"] or ()) == (file, line)
            for double in place["doubles"]
        )
        by = f"; NumPy's float64 goes in as {shortlist(list(doubles))}" if doubles else ""
        calls = shortlist(list(dict.fromkeys(str(each.place) for each in programs if each.place)))
        what = (
            f"{name} was compiled again because {shortlist(list(paths))} came as float64, and as"
            " float32"
            f" before (called from {calls}){by}"
        )
        cast = next(iter(doubles), "what is float64")
        yield ProposedChange(
            sum(each.seconds for each in programs),
            at_most=True,
            what=what,
            where=f"{short(file)}:{line}",
            write=(
                f"np.asarray({cast}, np.float32)  # or a Python number, where it is one: float64"
                " beside float32 gives float64"
            ),
        )


def _came_wider(detail: str) -> str | None:
    """Return the argument in `x, now f64[3] and before f32[3]`; None for other details."""
    match = re.fullmatch(r"(.+), now f64\[([\d,]*)\].* and before f32\[([\d,]*)\].*", detail)
    return match[1] if match and match[2] == match[3] else None


def _operations(compiled: Sequence[CompileRecord]) -> Iterator[ProposedChange]:
    """Yield JAX's own operations outside of any `jit` that promote float32 to float64."""
    groups: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for each in compiled:
        # JAX gives causes for the user's functions only, so a program without one may be an
        # operation.
        if (
            each.cause is not None
            or each.name not in _MIXING
            or each.shapes is None
            or each.place is None
        ):
            continue
        narrow = [match[1] for shape in each.shapes if (match := _NARROW.fullmatch(shape))]
        if narrow and any(_WIDE.fullmatch(shape) for shape in each.shapes):
            count = max(
                math.prod(int(size) for size in sizes.split(",") if size) for sizes in narrow
            )
            groups[str(each.place)].append((each.name.strip("_"), 4 * count))
    for where, several in groups.items():
        names = shortlist(list(dict.fromkeys(name for name, _ in several)))
        yield ProposedChange(
            None,
            at_most=False,
            what=(
                f"float32 meets float64 in {names}, so that the result is float64, of twice the"
                " size"
            ),
            where=where,
            write=(
                "jnp.asarray(y, x.dtype)  # of the float64 one, or a Python number, which widens"
                " nothing"
            ),
            nbytes=max(count for _, count in several),
        )
