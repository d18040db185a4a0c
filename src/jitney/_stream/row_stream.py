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
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import jax
import numpy as np

from .._contract.contract import Parameter
from .._errors import ContractError, OptionError
from .._jax.trees import tree_unflatten
from .._jax.typed import Array
from .._program.rows.ragged import IN_ONE_ARRAY, is_list_of_rows
from .._program.rows.results import Gathered, demand_like_results, joined
from .._program.rows.row_checks import demand_equal, rows_from
from .._program.rows.row_kinds import hint_of, holds_rows, takes_rows
from .._program.rows.visits import RowVisit
from .._report.streamed import Streamed, StreamStats
from .._signature.hints import Hint
from .data.slices import Rows
from .data.sources import is_sliceable, source_of

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
    """Return the arguments of a stream of a function that may have rows of unlike lengths, and the
    numbers of those that yield lists of rows; None if there are no such rows.

    An iterator among the arguments is looked into: its first item is a list of rows, or it is none
    of rows.
    """
    found = list(values)
    yielding: set[int] = set()
    has_rows = False
    for i, (parameter, value) in enumerate(zip(core.contract.parameters, values, strict=True)):
        has_rows = has_rows or holds_rows(value, hint_of(parameter))
        if takes_rows(parameter.hint) and _is_iterable(value):
            chunks = iter(value)
            first = next(chunks, None)
            if is_list_of_rows(first):
                yielding.add(i)
                found[i] = chain([first], chunks)
            elif chunks is value:
                found[i] = chain([] if first is None else [first], chunks)
    if not (has_rows or yielding):
        return None
    for i, (parameter, value) in enumerate(zip(core.contract.parameters, values, strict=True)):
        if isinstance(value, (str, Path)) and takes_rows(parameter.hint):
            found[i] = _opened(core, parameter, value)
    return tuple(found), frozenset(yielding)


def _opened(
    core: CompiledFunction,
    parameter: Parameter,
    path: str | Path,
) -> object:
    """Open the array of a file beside the rows: `vmap` maps it, or all rows share it."""
    opened = source_of(parameter.name, path, str(core.where))
    stacks: list[str] = []

    def of_stack(path: str, array: object) -> object:
        stacks.append(path)
        return array

    visit = RowVisit(
        core.where,
        core.options.vmap[0],
        _as_they_are,
        of_stack,
    )
    visit.part(parameter.name, opened, parameter.hint)
    return opened if stacks else np.asarray(opened[...])


def stream_rows(
    program: AnyProgram,
    values: _Values,
    yielding: frozenset[int],
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
        yielding: Numbers of the arguments that yield lists of rows.
        axis: The axis that `chunk` names, if it names one.
        size: Rows of a chunk.
        progress: Whether a bar is shown.
        others: Keywords of the stream that were given and do nothing here.

    Raises:
        OptionError: A keyword does not go with rows.
        ContractError: Arguments differ in the number of their rows, or `chunk` names another axis.
    """
    from .._text.console import bar

    core = program.core
    size = size or _USUAL
    _check_keywords(program, axis, size, others)
    began = time.perf_counter()
    total = _count(core, values, yielding)
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
        for count, arguments in _chunks(core, values, yielding, size, total):
            begins.append(done)
            with rows_from(done):
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
    columns = zip(*(leaves for _, leaves in parts), strict=True)
    whole = list(map(joined, columns))
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


def _check_keywords(
    program: AnyProgram,
    axis: str | None,
    size: int,
    others: Sequence[str],
) -> None:
    """Refuse keywords of a stream that do not go with rows, and another axis than theirs."""
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
            f'write chunk={{"{mapped.name}": {size}}}.',
            code="J218",
        )


def _nothing() -> None:
    """Show nothing."""


def _as_they_are(_path: str, rows: object, _hint: Hint) -> object:
    """Leave rows as they are."""
    return rows


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return (
        isinstance(value, Iterable)
        and not is_sliceable(value)
        and not isinstance(value, (dict, list, tuple, str, bytes, set, frozenset))
    )


def _count(
    core: CompiledFunction,
    values: _Values,
    yielding: frozenset[int],
) -> int | None:
    """How many rows there are, if that is known beforehand.

    Raises:
        ContractError: Two arguments differ in it.
    """
    counts: dict[str, int] = {}

    def of_rows(path: str, rows: object, _hint: Hint) -> object:
        counts[path] = len(cast("Sized", rows))
        return rows

    def of_stack(path: str, array: Array) -> object:
        counts[path] = array.shape[0]
        return array

    _visit_others(
        core,
        values,
        yielding,
        of_rows,
        of_stack,
    )
    if not counts:
        return None
    demand_equal(core.where, counts, core.options.vmap[0].name)
    return next(iter(counts.values()))


def _visit_others(
    core: CompiledFunction,
    values: _Values,
    yielding: frozenset[int],
    of_rows: Callable[[str, object, Hint], object],
    of_stack: Callable[[str, Array], object],
) -> _Values:
    """Visit the arguments that do not yield rows; None stands in the places of those that do."""
    visit = RowVisit(
        core.where,
        core.options.vmap[0],
        of_rows,
        of_stack,
    )
    others = [None if i in yielding else value for i, value in enumerate(values)]
    return visit.arguments(core.contract, others)


def _chunks(
    core: CompiledFunction,
    values: _Values,
    yielding: frozenset[int],
    size: int,
    total: int | None,
) -> Iterator[tuple[int, _Values]]:
    """Yield the arguments of each chunk, and how many rows it has.

    Raises:
        ContractError: Arguments differ in the number of their rows.
    """
    read = {i: iter(cast("Iterable[Sized]", values[i])) for i in yielding}
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
        cut = partial(
            _part,
            begin=begin,
            end=end,
        )
        arguments = [
            *_visit_others(
                core,
                values,
                yielding,
                lambda _path, rows, _hint, cut=cut: cut(rows),
                lambda _path, array, cut=cut: cut(array),
            )
        ]
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
    part = cast("Rows", value)[begin:end]
    return part if isinstance(part, jax.Array) else np.asarray(part)
