"""Arguments that are rows, by their values and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import cast

from ..._body.function import FunctionInfo
from ..._contract.contract import Parameter
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
from .ragged import is_list_of_rows


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


def hint_of(parameter: Parameter) -> Hint:
    """Return the annotation of the value of a parameter: of `*args` and `**kwargs` each item has
    the one that is written.
    """
    kind, hint = parameter.kind, parameter.hint
    if kind == inspect.Parameter.VAR_POSITIONAL:
        return ContainerHint(tuple, (hint,), variadic=True, text="tuple")
    if kind == inspect.Parameter.VAR_KEYWORD:
        return ContainerHint(dict, (hint,), variadic=True, text="dict")
    return hint


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
    core: FunctionInfo,
    values: Sequence[object],
) -> bool:
    """Return whether a call is run by rows: it has a list of them among its arguments."""
    return cuts_rows(core.options) or any(
        may_be_rows(value) and holds_rows(value, hint_of(parameter))
        for parameter, value in zip(core.contract.parameters, values, strict=True)
    )


def may_be_rows(value: object) -> bool:
    """Return whether a value is a list of rows or holds one under some annotation."""
    if isinstance(value, dict):
        return any(map(may_be_rows, cast("dict[object, object]", value).values()))
    # Of the subclasses of tuple those with names are containers.
    return is_list_of_rows(value) or (
        isinstance(value, tuple) and any(map(may_be_rows, cast("tuple[object, ...]", value)))
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
    of = container_hint(value, hint)
    if of is not None and any(holds_rows(item, each) for _, item, each in items_of(value, of)):
        return True
    return are_rows(value, hint)


def container_hint(
    value: object,
    hint: Hint,
) -> ContainerHint | None:
    """Return the annotation of a container of the kind that a value is, also if it is one
    alternative of a union; None if there is none.
    """
    options = hint.options if isinstance(hint, UnionHint) else (hint,)
    fitting = [
        option
        for option in options
        if isinstance(option, ContainerHint) and type(value) is option.kind
    ]
    return fitting[0] if len(fitting) == 1 else None


def items_of(
    value: object,
    hint: ContainerHint,
) -> Iterator[tuple[object, object, Hint]]:
    """Key, value and annotation of each item, in JAX's order; none of what does not fit."""
    if hint.kind is dict:
        known = cast("dict[str, object]", value)
        # JAX cannot order keys of several types, either.
        if len(set(map(type, known))) > 1:
            return
        items = sorted(known.items(), key=lambda item: item[0])
    else:
        items = list(enumerate(cast("Sequence[object]", value)))
    hints: Iterable[Hint] = hint.items
    if hint.kind is dict and hint.keys:
        by_key: dict[object, Hint] = dict(zip(hint.keys, hint.items, strict=True))
        if not {key for key, _ in items} <= by_key.keys():
            return
        hints = [by_key[key] for key, _ in items]
    elif hint.variadic:
        hints = repeat(hint.items[0], len(items))
    elif len(hint.items) != len(items):
        return
    for (key, item), of in zip(items, hints, strict=True):
        yield key, item, of


def is_one(
    value: object,
    hint: Hint,
) -> bool:
    return isinstance(hint, ModuleHint) and isinstance(value, hint.cls)
