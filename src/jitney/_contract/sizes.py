"""Binding of axis names to sizes, and evaluation of sizes that are written as expressions.

It builds on `_signature/array_hints.py`, which reads the expected shape, and
`_contract/contract.py`, which walks values, builds on it. The rules are those of jaxtyping with one
difference: an expression may refer to an axis that a later argument binds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._extent import Unreadable, fill_braces, names_in, read
from .._signature.hints import ArrayHint, Dim


@dataclass(frozen=True)
class Unknown:
    """Size that cannot be computed, with the reason."""

    reason: str


@dataclass(frozen=True)
class Mismatch:
    """Parts of the message for a value that does not fit."""

    what: str
    rule: str
    fix: str
    code: str = "J102"
    # The fix for a result, if it is another one.
    fix_of_result: str = ""


@dataclass(frozen=True)
class Later:
    """Symbolic axis whose evaluation waits for names that are bound later."""

    expr: str
    size: int
    who: str
    text: str


Bound = tuple[int, str]
"""Size of an axis, with the value that set it."""
Variadic = tuple[bool, tuple[int, ...], str]
"""True if the axes may be broadcast; their sizes, and the value that set them."""
Structure = tuple[Hashable, str]
"""Structure of a tree, with the value that set it."""


@dataclass
class AxisBindings:
    """Bindings of one check, each with the value that set it. `who` is quoted: `'t'`,
    `'model.layers[0].weight'`.
    """

    bound: dict[str, Bound] = field(default_factory=dict[str, Bound])
    variadic: dict[str, Variadic] = field(default_factory=dict[str, Variadic])
    structures: dict[str, Structure] = field(default_factory=dict[str, Structure])
    later: list[Later] = field(default_factory=list[Later])
    notes: list[str] = field(default_factory=list[str])

    def copy(self) -> AxisBindings:
        """Snapshot of the bindings."""
        return AxisBindings(
            dict(self.bound),
            dict(self.variadic),
            dict(self.structures),
            list(self.later),
            list(self.notes),
        )

    def restore(self, other: AxisBindings) -> None:
        """Return to a snapshot, after an alternative that did not fit."""
        saved = other.copy()
        self.bound, self.variadic, self.structures = saved.bound, saved.variadic, saved.structures
        self.later, self.notes = saved.later, saved.notes

    @property
    def size_by_axis(self) -> dict[str, int]:
        """Sizes by axis name."""
        return {name: size for name, (size, _) in self.bound.items()}


def fit_shape(
    hint: ArrayHint,
    shape: tuple[int, ...],
    who: str,
    sizes: AxisBindings,
    arguments: Mapping[str, object],
    leaf: str | None = None,
) -> Mismatch | None:
    """Compare a shape with a hint and bind its names. `leaf` is the tree position that `?n` is
    bound for.
    """
    pairs, middle = _align(hint, shape)
    if pairs is None:
        return _wrong_rank(hint, shape, who)
    for dim, axis in pairs:
        problem = _fit_axis(
            dim,
            shape[axis],
            axis,
            who,
            hint.text,
            sizes,
            arguments,
            leaf,
        )
        if problem is not None:
            return problem
    if middle is None:
        return None
    dim, part = middle
    return None if dim.name is None else _fit_variadic(dim, part, who, sizes, leaf)


def settle(sizes: AxisBindings, arguments: Mapping[str, object]) -> Mismatch | None:
    """Evaluate the deferred expressions, once every name is bound. An expression that remains
    unknown becomes a note.
    """
    # The list is emptied, so that the check of the result evaluates only its own expressions.
    waiting, sizes.later = sizes.later, []
    for item in waiting:
        value = evaluate(item.expr, sizes.size_by_axis, arguments)
        if isinstance(value, Unknown):
            sizes.notes.append(
                f"{item.who}: `{item.expr}` in {item.text} is not checked: {value.reason}"
            )
        elif value != item.size:
            return _wrong_expression(item.expr, value, item.size, item.who, item.text, sizes)
    return None


_Pairs = list[tuple[Dim, int]]


def _align(
    hint: ArrayHint, shape: tuple[int, ...]
) -> tuple[_Pairs | None, tuple[Dim, tuple[int, ...]] | None]:
    """Pair each axis with its dim. A variadic dim gets the remaining axes in the middle."""
    dims, rank = hint.dims, len(shape)
    at = next((i for i, dim in enumerate(dims) if dim.variadic), None)
    if at is None:
        if rank != len(dims):
            return None, None
        return list(zip(dims, range(rank), strict=True)), None

    before, after = dims[:at], dims[at + 1 :]
    if rank < len(before) + len(after):
        return None, None
    end = rank - len(after)
    pairs = list(zip(before, range(at), strict=True))
    pairs += zip(after, range(end, rank), strict=True)
    return pairs, (dims[at], shape[at:end])


def _fit_axis(
    dim: Dim,
    size: int,
    axis: int,
    who: str,
    text: str,
    sizes: AxisBindings,
    arguments: Mapping[str, object],
    leaf: str | None,
) -> Mismatch | None:
    # An axis of size 1 under `#name` broadcasts, and binds nothing.
    if dim.kind == "anonymous" or (dim.broadcast and size == 1):
        return None
    if dim.kind == "fixed":
        return None if size == dim.size else _fixed_size_mismatch(dim, size, axis, who, text)
    if dim.expr is not None:
        value = evaluate(dim.expr, sizes.size_by_axis, arguments)
        if isinstance(value, Unknown):
            # An argument further on may bind the names.
            sizes.later.append(Later(dim.expr, size, who, text))
        elif value != size:
            return _wrong_expression(dim.expr, value, size, who, text, sizes)
        return None
    if dim.per_leaf and leaf is None:
        sizes.notes.append(
            f"{who}: `{dim.text}` is not checked: it needs a `PyTree[..., 'T']` around it"
        )
        return None
    name = _key(dim, leaf)
    first, setter = sizes.bound.setdefault(name, (size, who))
    return None if first == size else two_sizes(name, (first, setter), (size, who))


def _fit_variadic(
    dim: Dim,
    part: tuple[int, ...],
    who: str,
    sizes: AxisBindings,
    leaf: str | None,
) -> Mismatch | None:
    """Compare axes with a variadic dim by jaxtyping's rule: `*#name` may broadcast against the
    others, `*name` may not.
    """
    if dim.per_leaf and leaf is None:
        sizes.notes.append(
            f"{who}: `{dim.text}` is not checked: it needs a `PyTree[..., 'T']` around it"
        )
        return None
    name = _key(dim, leaf)
    if name not in sizes.variadic:
        sizes.variadic[name] = (dim.broadcast, part, who)
        return None
    loose, before, setter = sizes.variadic[name]
    clash = two_sizes(f"*{name}", (before, setter), (part, who))
    if not loose and not dim.broadcast:
        return None if before == part else clash
    try:
        joint = np.broadcast_shapes(before, part)
    except ValueError:
        return clash

    # Only a side marked `#` may be the one that is broadcast.
    if (not dim.broadcast and joint != part) or (not loose and joint != before):
        return clash

    # A loose binding grows to the joint shape; a strict one equals it already.
    if loose:
        sizes.variadic[name] = (dim.broadcast, joint, who if joint == part else setter)
    return None


def _key(dim: Dim, leaf: str | None) -> str:
    return f"{dim.name} ({leaf})" if dim.per_leaf else str(dim.name)


# Messages.


def two_sizes(
    name: str,
    first: tuple[object, str],
    second: tuple[object, str],
) -> Mismatch:
    """Mismatch for an axis that has different sizes in two arguments."""
    sizes = f"{first[0]} from {first[1]} and {second[0]} from {second[1]}"
    if first[1] == second[1]:
        sizes = f"{first[0]} and {second[0]}, both from {first[1]}"
    return Mismatch(
        f"axis '{name}' has two sizes, {sizes}.",
        f"Every argument annotated with '{name}' must agree on it.",
        "pass equal sizes, or rename the axis in one annotation.",
        "J210",
    )


def _wrong_rank(
    hint: ArrayHint,
    shape: tuple[int, ...],
    who: str,
) -> Mismatch:
    rank = hint.rank
    least = len(hint.dims) - 1
    wants = f"at least {_axes(least)}" if rank is None else _axes(rank)
    return Mismatch(
        f"{who} has {_axes(len(shape))}, shape {tuple(shape)}, and {hint.text} has {wants}.",
        "An annotation says which axes the body"
        f" sees{', and an outer `jax.vmap` takes one away' if len(shape) + 1 == rank else ''}.",
        "pass an array of that rank, correct the annotation, or give an extra axis to `vmap`.",
        "J211",
        "return an array of that rank, or correct the annotation of the result.",
    )


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _fixed_size_mismatch(
    dim: Dim,
    size: int,
    axis: int,
    who: str,
    text: str,
) -> Mismatch:
    return Mismatch(
        f"{who} has size {size} along axis {axis}, and {text} says {dim.size}.",
        "A number in a shape is the only size that fits.",
        f"pass size {dim.size}, or put a name in place of '{dim.text}' in the annotation.",
        "J210",
    )


def _wrong_expression(
    expr: str,
    value: float,
    size: int,
    who: str,
    text: str,
    sizes: AxisBindings,
) -> Mismatch:
    names = names_in(expr)
    used = [
        f"{name}={bound} from {setter}"
        for name, (bound, setter) in sizes.bound.items()
        if name in names
    ]
    values = f" with {', '.join(used)}" if used else ""
    return Mismatch(
        f"axis '{expr}' of {who} has size {size}, and {text} makes it {value}{values}.",
        "A size that is written as an expression must equal its value.",
        "pass an array of that size, or correct the expression in the annotation.",
        "J210",
    )


def evaluate(
    expr: str,
    sizes: Mapping[str, object],
    arguments: Mapping[str, object],
) -> Any:
    """Evaluate a symbolic size, or return an `Unknown`. Braces are filled in from the arguments
    first, as in an f-string: `{self.dim}+1`.
    """
    try:
        return read(fill_braces(expr, arguments)).at(sizes)
    except Unreadable as error:
        return Unknown(str(error))
