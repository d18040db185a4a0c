"""Arguments that are rows, by their values and annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, cast

from ..._jax.trees import tree_flatten
from ..._signature.hints import (
    ArrayHint,
    ContainerHint,
    Hint,
    ModuleHint,
    ScalarHint,
    StaticHint,
    UnionHint,
)
from ..._signature.options import Options
from ..._view.view import leaf_hints
from .ragged import is_list_of_rows

if TYPE_CHECKING:
    from ..core import CompiledFunction


def takes_rows(hint: Hint) -> bool:
    """Return whether a list for an argument of this annotation is a list of rows, and no value of
    its own.
    """
    if isinstance(hint, ContainerHint):
        return bool(hint.keys)  # a TypedDict or a NamedTuple
    if isinstance(hint, UnionHint):
        own = [option for option in hint.options if not _is_alone(option)]
        return bool(own) and all(map(takes_rows, own))
    return isinstance(hint, (ArrayHint, ModuleHint))


def _is_alone(hint: Hint) -> bool:
    """Return whether no list is of an annotation, whether of values or of rows: None, a number."""
    return isinstance(hint, ScalarHint) or (isinstance(hint, StaticHint) and hint.hint is None)


def may_have_rows(options: Options) -> bool:
    """Return whether calls may have lists of rows: there is an axis for them, and sizes are padded,
    or nothing is compiled (JITNEY_DISABLE, which leaves `vmap` alone).
    """
    is_open = bool(options.pad) or options.disabled is not None
    return len(options.vmap) == 1 and is_open


def cuts_rows(options: Options) -> bool:
    """Return whether a number of rows or their memory is bounded, or rows are summed: then all
    calls are run by rows.
    """
    is_cut = bool(options.chunk) or options.memory is not None
    return may_have_rows(options) and (options.accumulate or (bool(options.pad) and is_cut))


def has_rows(
    core: CompiledFunction,
    values: Sequence[object],
) -> bool:
    """Return whether a call is run by rows: it has a list of them among its arguments."""
    return cuts_rows(core.options) or any(
        holds_rows(value, parameter.hint)
        for parameter, value in zip(core.contract.parameters, values, strict=True)
    )


def are_rows(
    value: object,
    hint: Hint,
) -> bool:
    """Return whether an argument, or an item of one, is rows."""
    return is_list_of_rows(value) and takes_rows(hint) and not is_one(value, hint)


def holds_rows(
    value: object,
    hint: Hint,
) -> bool:
    """Return whether an argument is rows, or a container with items that are."""
    if isinstance(hint, ContainerHint) and not hint.keys:
        return any(holds_rows(item, of) for _, item, of in items_of(value, hint))
    return are_rows(value, hint)


def items_of(
    value: object,
    hint: ContainerHint,
) -> Iterator[tuple[object, object, Hint]]:
    """Key, value and annotation of each item, in JAX's order; none of what does not fit."""
    if type(value) is not hint.kind:
        return
    if hint.kind is dict:
        items = sorted(cast("dict[str, object]", value).items())
    else:
        items = list(enumerate(cast("Sequence[object]", value)))
    if not hint.variadic and len(hint.items) != len(items):
        return
    hints = repeat(hint.items[0], len(items)) if hint.variadic else hint.items
    for (key, item), of in zip(items, hints, strict=True):
        yield key, item, of


def is_one(
    value: object,
    hint: Hint,
) -> bool:
    return isinstance(hint, ModuleHint) and isinstance(value, hint.cls)


def is_stack(
    value: object,
    hint: Hint | None,
    *,
    is_named: bool,
) -> bool:
    """Return whether `vmap` maps an argument that is no list."""
    if isinstance(hint, UnionHint):
        (hint,) = leaf_hints(hint, value) if hasattr(value, "shape") else (hint,)
    if isinstance(hint, (ArrayHint, ScalarHint)):
        shape = getattr(
            value,
            "shape",
            None,
        )
        rank = hint.rank if isinstance(hint, ArrayHint) else 0
        return shape is not None and rank is not None and len(shape) == rank + 1
    leaves = tree_flatten(value)[0]
    return is_named and bool(leaves) and all(getattr(leaf, "ndim", 0) for leaf in leaves)
