"""Streams of rows of unlike lengths: a list, rows in one array or file, or an iterable of lists,
some rows at a time.

    stream(f, jitney.ragged(file["values"], offsets), chunk={"row": 4096})

Each chunk is one call with its rows, which finds the programs of the chunks before. The results of
all rows are joined on the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import jax
import numpy as np

from .._contract.contract import Parameter
from .._errors import ContractError, OptionError
from .._jax.trees import tree_flatten, tree_map, tree_unflatten
from .._program.rows.columns import IN_ONE_ARRAY, demand_equal
from .._program.rows.ragged import is_list_of_rows
from .._program.rows.results import Gathered, demand_like_results, joined
from .._program.rows.row_kinds import is_one, is_stack, takes_rows
from .._report.streamed import Streamed, StreamStats
from .sources import is_sliceable, source_of

if TYPE_CHECKING:
    from .._interface.program import AnyProgram
    from .._program.core import CompiledFunction

_USUAL = 4096
"""Rows of a chunk, where nobody says how many."""
_Values = tuple[object, ...]


def row_values(
    core: CompiledFunction,
    values: _Values,
) -> tuple[_Values, frozenset[int]] | None:
    """Return the arguments of a stream, and the numbers of those that are rows of unlike lengths;
    None if there are none.

    An iterator among the arguments is looked into: its first item is a list of rows, or it is none
    of rows.
    """
    if not core.may_have_rows:
        return None
    found = list(values)
    rows: set[int] = set()
    for i, (parameter, value) in enumerate(zip(core.contract.parameters, values, strict=True)):
        if not takes_rows(parameter.hint):
            continue
        if is_list_of_rows(value) and not is_one(value, parameter.hint):
            rows.add(i)
        elif _is_iterable(value):
            chunks = iter(value)
            first = next(chunks, None)
            if is_list_of_rows(first):
                rows.add(i)
                found[i] = chain([first], chunks)
            elif chunks is value:
                found[i] = chain([] if first is None else [first], chunks)
    if not rows:
        return None
    for i, (parameter, value) in enumerate(zip(core.contract.parameters, values, strict=True)):
        if isinstance(value, (str, Path)) and takes_rows(parameter.hint):
            found[i] = _opened(core, parameter, value)
    return tuple(found), frozenset(rows)


def _opened(
    core: CompiledFunction,
    parameter: Parameter,
    path: str | Path,
) -> object:
    """Open the array of a file beside the rows: `vmap` maps it, or all rows share it."""
    opened = source_of(parameter.name, path, str(core.where))
    (axis,) = core.options.vmap
    is_named = axis.dims is not None and parameter.name in axis.arguments
    return (
        opened if is_stack(opened, parameter.hint, is_named=is_named) else np.asarray(opened[...])
    )


def stream_rows(
    program: AnyProgram,
    values: _Values,
    rows: frozenset[int],
    *,
    axis: str | None,
    size: int | None,
    progress: bool,
    others: Sequence[str],
) -> Streamed[object]:
    """Run a program over rows, a chunk at a time.

    Args:
        program: The program, not bound to anything.
        values: One for each parameter.
        rows: Numbers of the arguments that are rows of unlike lengths.
        axis: The axis that `chunk` names, if it names one.
        size: Rows of a chunk.
        progress: Whether a bar is shown.
        others: Keywords of the stream that were given and do nothing here.

    Raises:
        OptionError: A keyword does not go with rows.
        ContractError: Arguments differ in the number of their rows, or `chunk` names another axis.
    """
    from .._console import bar

    core = program.core
    (mapped,) = core.options.vmap
    if others:
        raise OptionError(
            str(program),
            f"{others[0]} does not go with rows of unlike lengths.",
            "Results of rows are kept in memory, no file holds them, and a reading that fails is an"
            " error at once.",
            f"leave {others[0]} out.",
            code="J201",
        )
    if axis not in (None, mapped.name):
        raise ContractError(
            core.where,
            f"chunk names {axis!r}, and rows are along {mapped.name!r}.",
            "A stream of rows of unlike lengths takes so many rows at a time.",
            f'write chunk={{"{mapped.name}": {size or _USUAL}}}.',
            code="J218",
        )
    began = time.perf_counter()
    size = size or _USUAL
    total = _count(core, values, rows)
    parts: list[tuple[Hashable, list[Gathered]]] = []
    begins: list[int] = []
    done = 0
    shown: AbstractContextManager[Callable[[], None]] = nullcontext(_nothing)
    if progress and total is not None:
        shown = bar(
            core.name,
            -(-total // size),
            0,
            size,
        )
    with shown as advance:
        for count, arguments in _chunks(core, values, rows, size, total):
            begins.append(done)
            parts.append(core.row_call(arguments).leaves())
            core.counters.calls += 1
            done += count
            advance()
    if not parts:
        raise ContractError(
            core.where,
            "the stream has no rows.",
            "The shapes of a result are those of its rows, and there are none.",
            "leave the stream out where there is no row.",
            code="J221",
        )
    demand_like_results(
        core.where,
        [structure for structure, _ in parts],
        [leaves for _, leaves in parts],
        begins,
    )
    whole = [joined(leaf) for leaf in zip(*(leaves for _, leaves in parts), strict=True)]
    return Streamed(
        tree_unflatten(parts[0][0], whole),
        StreamStats(
            len(parts),
            done,
            1,
            done,
            time.perf_counter() - began,
            0,
            0,
        ),
    )


def _nothing() -> None:
    """Show nothing."""


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return (
        isinstance(value, Iterable)
        and not is_sliceable(value)
        and not isinstance(value, (dict, list, tuple, str, bytes, set, frozenset))
    )


def _stacks(
    core: CompiledFunction,
    values: _Values,
    rows: frozenset[int],
) -> list[int]:
    """Numbers of the arguments that `vmap` maps beside the rows."""
    (axis,) = core.options.vmap
    return [
        i
        for i, (parameter, value) in enumerate(zip(core.contract.parameters, values, strict=True))
        if i not in rows
        and is_stack(
            value,
            parameter.hint,
            is_named=axis.dims is not None and parameter.name in axis.arguments,
        )
    ]


def _count(
    core: CompiledFunction,
    values: _Values,
    rows: frozenset[int],
) -> int | None:
    """How many rows there are, if that is known beforehand.

    Raises:
        ContractError: Two arguments differ in it.
    """
    counts: dict[str, int] = {}
    mapped = [*rows, *_stacks(core, values, rows)]
    for i in sorted(mapped):
        value = values[i]
        name = core.contract.parameters[i].name
        if is_list_of_rows(value):
            counts[name] = len(cast("Sized", value))
        elif i not in rows:
            counts[name] = tree_flatten(value)[0][0].shape[0]
    if not counts:
        return None
    demand_equal(core.where, counts, core.options.vmap[0].name)
    return next(iter(counts.values()))


def _chunks(
    core: CompiledFunction,
    values: _Values,
    rows: frozenset[int],
    size: int,
    total: int | None,
) -> Iterator[tuple[int, _Values]]:
    """Yield the arguments of each chunk, and how many rows it has.

    Raises:
        ContractError: Arguments differ in the number of their rows.
    """
    read = {
        i: iter(cast("Iterable[Sized]", values[i])) for i in rows if not is_list_of_rows(values[i])
    }
    cut = {*rows, *_stacks(core, values, rows)} - set(read)
    begin = 0
    while True:
        items = {i: next(chunks, None) for i, chunks in read.items()}
        for i, item in items.items():
            if item is not None and not isinstance(item, Sized):
                raise ContractError(
                    core.where,
                    f"{core.contract.parameters[i].name!r} yields a {type(item).__name__} behind"
                    f" row {begin}.",
                    "An iterable for rows yields lists of rows.",
                    "yield lists: [rows[i:i + 4096] for i in range(0, len(rows), 4096)].",
                    code="J221",
                )
        if items and all(item is not None and not len(item) for item in items.values()):
            continue  # chunks without rows, which do not end the stream
        counts = {0 if item is None else len(item) for item in items.values()}
        if total is not None:
            left = total - begin
            counts.add(min(left, *counts) if counts else min(left, size))
        count = min(counts)
        if total is not None and not count:
            counts.add(total - begin)
        if len(counts) > 1:
            raise ContractError(
                core.where,
                f"behind row {begin} arguments differ in the number of their rows:"
                f" {' and '.join(map(str, sorted(counts)))}.",
                f"Every argument mapped over {core.options.vmap[0].name!r} must agree on it.",
                "pass as many rows of each.",
                code="J210",
            )
        if not count:
            return
        end = begin + count
        arguments = list(values)
        for i in cut:
            arguments[i] = _part(
                values[i],
                begin,
                end,
            )
        for i, item in items.items():
            arguments[i] = item
        yield count, tuple(arguments)
        begin = end


def _part(
    value: object,
    begin: int,
    end: int,
) -> object:
    if isinstance(value, IN_ONE_ARRAY):
        return value.part(begin, end)
    if isinstance(value, (list, tuple)):
        return list(cast("Sequence[object]", value)[begin:end])
    if is_sliceable(value):
        part = value[begin:end]
        return part if isinstance(part, jax.Array) else np.asarray(part)
    return tree_map(lambda leaf: leaf[begin:end], value)
