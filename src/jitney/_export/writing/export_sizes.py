"""Sizes that a program is exported for, and the arrays of its examples at these sizes.

each({"n": (64, range(128, 1025))}, where)
# ExportSizes(exact={"n": 64}, ranges={}), ExportSizes(exact={}, ranges={"n": range(128, 1025)})
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._axes import Refused
from ..._errors import (
    ContractError,
    ExportError,
    Where,
    shortlist,
)
from ..._program.entry import Specialization
from ..._program.examples import sizes_of_examples
from ..._signature.options import tolerance_of
from ..._stages import Vmap
from ..._stages.stage import Skip
from ..._view.named_axes import (
    NoSize,
    named_axes,
    refuse_two_sizes,
    shape_at,
    sizes_of,
)
from .lowering import Resized

Program = Any
"""A `Program` of `_interface/`, a layer above this one."""


@dataclass(frozen=True)
class ExportSizes:
    """Sizes of one exported program.

    Args:
        exact: Axis -> size.
        ranges: Axis -> all sizes that the program covers.
    """

    exact: Mapping[str, int]
    ranges: Mapping[str, range]

    def representative(self) -> dict[str, int]:
        """Return one size of each axis; axes differ in size where their ranges allow it."""
        sizes = dict(self.exact)
        for name, span in self.ranges.items():
            taken = set(sizes.values())
            sizes[name] = next((size for size in span if size not in taken), span[0])
        return sizes


def size_combinations(sizes: Mapping[str, object] | None, where: Where) -> Iterator[ExportSizes]:
    """Yield every combination of the requested sizes.

    Raises:
        ExportError: A size or a range is malformed, or a range contains 0 or 1.
    """
    listed: dict[str, list[Any]] = {}
    for name, asked in (sizes or {}).items():
        parts = list(asked) if isinstance(asked, (tuple, list)) else [asked]
        for part in parts:
            if not isinstance(part, range) and (
                not isinstance(part, (int, np.integer)) or isinstance(part, bool) or part < 0
            ):
                raise ExportError(
                    where,
                    f"sizes={{{name!r}: {asked!r}}} is not a size.",
                    "A size is an int; several are a tuple of them, each of "
                    "which is a program; a `range` is one program for all of its sizes.",
                    f"write {{{name!r}: range(2, 1025)}}.",
                    code="J292",
                )
            # A symbolic size is 2 or more: at 0 arrays are empty, at 1 they broadcast.
            if isinstance(part, range) and (part.step != 1 or len(part) < 2 or part.start < 2):
                raise ExportError(
                    where,
                    f"{name!r} is to stand for {part!r}.",
                    "One program stands for sizes from 2 on: 0 and 1 are sizes at "
                    "which arrays are empty, or broadcast.",
                    f"write {{{name!r}: ({_separate_sizes(part)}, range(2, {max(4, part.stop)}))}}:"
                    " 0 and 1 have programs of their own.",
                    code="J292",
                )
        if not parts:
            raise ExportError(
                where,
                f"sizes has none for {name!r}.",
                "Each size is a program.",
                "name one.",
                code="J292",
            )
        listed[name] = parts
    for chosen in itertools.product(*listed.values()):
        at = dict(zip(listed, chosen, strict=True))
        yield ExportSizes(
            {k: int(v) for k, v in at.items() if not isinstance(v, range)},
            {k: v for k, v in at.items() if isinstance(v, range)},
        )


def _separate_sizes(asked: range) -> str:
    """Sizes of a range that need programs of their own, as text."""
    return "0, 1" if asked.start == 0 else "1"


def missing_sizes(
    program: Program,
    at: ExportSizes,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    where: Where,
) -> dict[str, int]:
    """Return a size for each axis of `sizes` that no example has."""
    core = program.core
    for option, is_there in (
        ("chunk", core.options.chunk),
        ("precision", tolerance_of(core.options.precision) is not None),
    ):
        if at.ranges and is_there:
            raise ExportError(
                where,
                f"an axis stands for a range of sizes, and `{option}` is decided for one.",
                "A range is one program, which is the same at all of its sizes.",
                f"list the sizes, or leave out `{option}`.",
                code="J292",
            )
    (first, by_name), _ = program.flattened()
    try:
        examples = core.binder.signature.bind_partial(
            *first, *args, **{**by_name, **kwargs}
        ).arguments
    except TypeError:
        # `abstract` binds them again and raises the message
        examples = dict[str, object]()
    known = sizes_of_examples(core.contract, examples)

    return {name: size for name, size in at.representative().items() if name not in known}


def resizing(
    entry: Specialization,
    arrays: Sequence[object],
    at: ExportSizes,
    where: Where,
) -> Resized:
    """Return the function that gives the arrays of a call at other sizes of named axes.

    Raises:
        ContractError: No array has one of these axes.
    """
    view = entry.fill_in_sizes(entry.layout.view(entry.core.contract, arrays, entry.statics))
    mapped = Vmap.plan(view, entry.request)
    named = named_axes(
        view,
        () if isinstance(mapped, Skip) else tuple(zip(mapped.axes, mapped.levels, strict=True)),
    )
    known = sizes_of(view, named)
    for name in (*at.exact, *at.ranges):
        if name not in known:
            raise ContractError(
                where,
                f"sizes names {name!r}, and no array that it is called with has that axis.",
                f"The axes are {shortlist(sorted(known)) or 'none'}.",
                "correct the name, or pass examples that have it.",
                code="J216",
            )

        refuse_two_sizes(where, name, view, named)

    def resized(changed: Mapping[str, object]) -> list[jax.ShapeDtypeStruct]:
        return [
            jax.ShapeDtypeStruct(
                shape_at(leaf, axes, known, changed), leaf.dtype, weak_type=leaf.weak_type
            )
            for leaf, axes in zip(view.leaves, named, strict=True)
        ]

    return resized


def arrays_at(
    resized: Resized,
    examples: Sequence[Any],
    sizes: Mapping[str, int],
    where: Where,
) -> Sequence[Any]:
    """Return the arrays of a program: the examples themselves if they have its sizes, else abstract
    arrays.
    """
    try:
        stand_ins = resized(sizes)
    except Refused as refusal:
        raise ExportError(
            where,
            f"it {refusal.what}.",
            "Arrays of the examples with an axis of `sizes` are taken at that size.",
            (
                "leave that axis out of `sizes` and pass examples, or ask for a size at which it is"
                " a whole number."
                if isinstance(refusal, NoSize)
                else "pass no example of that array, or one of that size."
            ),
            code="J292",
        ) from refusal
    return [
        array if np.shape(array) == taken.shape else taken
        for array, taken in zip(examples, stand_ins, strict=True)
    ]
