"""Calls of a file with rows of unlike lengths: rows are put into the buckets that the file has, and
run by their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..._contract.contract import Contract, check_arguments
from ..._errors import AxisError, ContractError, shortlist
from ..._extent import read_dim
from ..._jax.settings import x64_is_on
from ..._jax.tracing import is_staged
from ..._jax.typed import Array, NumPyArray
from ..._program.rows.blocks import block, shared_array
from ..._program.rows.columns import Column, of_leaves, rows_of
from ..._program.rows.group import Member, RowGroup
from ..._program.rows.lengths import RowShape, cut_columns, read_lengths
from ..._program.rows.lots import (
    Lot,
    cheap_rows,
    lots_of,
    rungs_of,
)
from ..._program.rows.ragged import PaddedRows, is_list_of_rows
from ..._program.rows.results import Part, varying, whole_results
from ..._program.rows.row_checks import (
    INSIDE_JIT,
    demand_arrays,
    demand_equal,
    demand_sizes,
    refuse_none,
)
from ..._serialized.padded_cuts import read as read_cuts
from ..._view.layout import MAX_ENTRIES
from ..._view.result_padding import Cut
from ..header import (
    Header,
    ProgramEntry,
    RowsEntry,
    block_of,
)
from ..trees import (
    Taking,
    Tree,
    build_tree,
    slots,
)
from ..values import value_of
from .running import RunFlat
from .sizes import fits, nearest, sizes_of


@dataclass(frozen=True)
class _BucketPrograms:
    """The programs of one bucket of a file.

    Args:
        told: The header entry of one of them.
        rungs: How many rows they take, in descending order.
        numbers: How many rows at a time -> the program's number in the file.
        group: What rows of one bucket have in common.
        cuts: The filled axes of each result.
    """

    told: ProgramEntry
    rungs: tuple[int, ...]
    numbers: Mapping[int, int]
    group: RowGroup
    cuts: Sequence[Cut]

    @property
    def is_filled(self) -> bool:
        """True if no padded axis of its rows is at exact size."""
        return all(isinstance(size, list) for size in self.told["sizes"].values())


@dataclass(frozen=True)
class LoadedRows:
    """The rows that a file takes.

    Args:
        told: The header entry of the rows.
        header: The header.
        contract: The contract of one row.
        arguments: Resolved trees of the arguments of one row.
        bound: Arrays that the function is bound to, by number.
        result: Resolved tree of the result.
        run: Function from the number of a program to its runner.
    """

    told: RowsEntry
    header: Header
    contract: Contract
    arguments: Mapping[str, Tree]
    bound: Sequence[tuple[int, Array]]
    result: Tree
    run: Callable[[int], RunFlat]
    _buckets: list[_BucketPrograms] = field(default_factory=list[_BucketPrograms])
    # By dtypes and the sizes of all axes of all arrays that rows have their own of.
    _members: dict[Hashable, dict[tuple[int, ...], Member]] = field(
        default_factory=dict[Hashable, dict[tuple[int, ...], Member]]
    )
    _runs: dict[Hashable, RunFlat] = field(default_factory=dict[Hashable, RunFlat])

    def __post_init__(self):
        by_sizes: dict[str, dict[int, int]] = {}
        programs = self.header["programs"]
        for number, told in enumerate(programs):
            # Programs of one bucket differ in the number of rows.
            block = block_of(told)
            key = repr([told["sizes"], told["arrays"], block["shapes"], block["numbers"]])
            by_sizes.setdefault(key, {})[block["rows"]] = number
        for numbers in by_sizes.values():
            rungs = tuple(sorted(numbers, reverse=True))
            told = programs[numbers[rungs[0]]]
            shapes = tuple(tuple(shape) for shape in block_of(told)["shapes"])
            group = RowGroup(
                len(self._buckets),
                None,
                shapes,
            )
            cuts = read_cuts(block_of(told)["cuts"]) or [()] * len(told["results"])
            self._buckets.append(_BucketPrograms(told, rungs, numbers, group, cuts))

    def call(
        self,
        values: Sequence[object],
        lengths: object,
    ) -> object:
        """Return the result of a call.

        Args:
            values: One for each parameter.
            lengths: Axis -> lengths of the rows of padded arrays; None if there are none.

        Raises:
            ContractError: Its rows do not fit, or no program of the file takes one.
            AxisError: An outer `jit` traces the call.
        """
        where = self.contract.where
        if is_staged():
            raise AxisError(where, *INSIDE_JIT)
        taking = Taking(where, [None] * len(self.told["shapes"]))
        columns, count = self._columns(values, taking)
        if lengths is not None:
            given = read_lengths(where, [*self.told["symbols"].values()], lengths)
            shapes = [self._shape(number, column) for number, column in enumerate(columns)]
            columns = cut_columns(
                where,
                columns,
                shapes,
                given,
                count,
            )
        for column in columns:
            column.demand_fit(where)
        lots = self._lots(columns, count)
        parts = [
            part
            for lot, cheap in zip(lots, cheap_rows(lots, columns), strict=True)
            for part in self._run(lot, columns, cheap)
        ]
        near = () if any(part.is_filled for part in parts) else self._near(columns, count)
        leaves = whole_results(
            parts,
            varying(parts, near),
            count,
            ragged=self.told["ragged"],
            is_alike=not any(column.kind == "each" for column in columns),
        )
        return build_tree(
            self.result,
            leaves,
            taking.functions,
        )

    def _columns(
        self,
        values: Sequence[object],
        taking: Taking,
    ) -> tuple[list[Column], int]:
        """Columns of the arrays of a row, and how many rows there are."""
        where = self.contract.where
        columns: dict[int, Column] = {
            number: Column("shared", array, self._path(number)) for number, array in self.bound
        }
        counts: dict[str, int] = {}
        for (name, tree), value in zip(self.arguments.items(), values, strict=True):
            numbers = [slot["number"] for slot in slots(tree)]
            if name not in self.told["arguments"]:
                taking.take(
                    tree,
                    value,
                    name,
                )
                found = [Column("shared", taking.arrays[number]) for number in numbers]
            elif is_list_of_rows(value):
                counts[name] = len(value)  # pyright: ignore[reportArgumentType]
                if not counts[name]:
                    raise refuse_none(where, name)
                found = self._each(
                    name,
                    tree,
                    value,
                    taking,
                )
            else:
                taking.take(
                    tree,
                    value,
                    name,
                )
                found = [Column("stack", taking.arrays[number]) for number in numbers]
                self._demand_stack(
                    name,
                    numbers,
                    found,
                )
                counts[name] = int(found[0].values.shape[0])
                if not counts[name]:
                    raise refuse_none(where, name)
            for number, column in zip(numbers, found, strict=True):
                columns[number] = Column(
                    column.kind,
                    column.values,
                    self._path(number),
                )
        demand_equal(where, counts, self.told["axis"])
        return [columns[number] for number in range(len(columns))], next(iter(counts.values()))

    def _each(
        self,
        name: str,
        tree: Tree,
        value: object,
        taking: Taking,
    ) -> list[Column]:
        where = self.contract.where
        if tree["is"] != "array":
            flat: list[list[object]] = []
            numbers = [slot["number"] for slot in slots(tree)]
            for row, part in enumerate(rows_of(value)):
                taking.take(tree, part, f"{name}[{row}]")
                flat.append([taking.arrays[number] for number in numbers])
            return [of_leaves(where, name, list(column)) for column in zip(*flat, strict=True)]
        if isinstance(value, PaddedRows):
            if value.is_traced:
                raise AxisError(where, *INSIDE_JIT)
            demand_sizes(
                where,
                name,
                value,
            )
            return [Column("each", value)]
        rows = rows_of(value)
        arrays = demand_arrays(where, name, rows) if isinstance(rows, list) else rows
        return [Column("each", arrays)]

    def _demand_stack(
        self,
        name: str,
        numbers: Sequence[int],
        columns: Sequence[Column],
    ) -> None:
        for number, column in zip(numbers, columns, strict=True):
            rank = len(self.told["shapes"][number])
            shape = np.shape(column.values)
            if len(shape) != rank + 1:
                axis = self.told["axis"]
                raise ContractError(
                    self.contract.where,
                    f"{self._path(number)!r} has shape {shape}, and {name!r} was exported with rows"
                    f" of {rank} axes.",
                    f"A loaded program maps {axis!r} over the arguments that it was exported with"
                    " rows of.",
                    f"pass a list of rows, also of one, or an array with {axis!r} in front.",
                    code="J219",
                )

    def _path(self, number: int) -> str:
        return self.header["programs"][0]["arrays"][number]["path"]

    def _shape(
        self,
        number: int,
        column: Column,
    ) -> RowShape:
        symbols, shape = self.told["symbols"], self.told["shapes"][number]
        names = {
            axis: frozenset(symbols[name] for name in read_dim(size).names)
            for axis, size in enumerate(shape)
            if isinstance(size, str)
        }
        longest = column.values.shape[1:] if column.kind == "stack" else ()
        # Axes without lengths are as long as they are.
        known = {
            symbols[size]: own
            for size, own in zip(shape, longest, strict=False)
            if isinstance(size, str) and size in symbols
        }
        return RowShape(
            self._path(number), longest, names, partial(_shape_at, shape, symbols, known)
        )

    def _lots(
        self,
        columns: Sequence[Column],
        count: int,
    ) -> list[Lot]:
        """Put the rows into buckets."""
        kinds = (x64_is_on(), *(column.signature() for column in columns))

        def learn(sizes: tuple[int, ...], row: int) -> Member:
            if sum(map(len, self._members.values())) >= MAX_ENTRIES:
                self._members.clear()
            member = self._member(columns, row)
            self._members.setdefault(kinds, {})[sizes] = member
            return member

        return lots_of(
            columns,
            np.arange(count),
            lambda: self._members.get(kinds, {}),
            learn,
        )

    def _member(
        self,
        columns: Sequence[Column],
        row: int,
    ) -> Member:
        """The bucket of a row, and its sizes there.

        Raises:
            ContractError: The file has no program for it.
        """
        arrays = [column.abstract(row) for column in columns]
        bound = {number for number, _ in self.bound}
        fitting = [bucket for bucket in self._buckets if fits(bucket.told, arrays, bound)]
        if not fitting:
            raise self._refuse(arrays, row)
        # A program of exactly that size comes first.
        fitting.sort(key=lambda bucket: bucket.is_filled)
        for bucket in fitting:
            known = sizes_of(bucket.told, arrays)
            numbers = block_of(bucket.told)["numbers"]
            if numbers is None:
                return Member(bucket.group, known)
            own = [known[name] for name in block_of(bucket.told)["axes"]]
            values = next((values for sizes, values in numbers if sizes == own), None)
            if values is not None:
                return Member(bucket.group, known, [value_of(value) for value in values])
        known = sizes_of(fitting[0].told, arrays)
        at = " and ".join(f"{name}={size}" for name, size in known.items())
        raise ContractError(
            self.contract.where,
            f"row {row} has {at}, and Python computes numbers from that, or looks at it.",
            "The file serves the sizes of the rows that it was exported with.",
            "export it with a row of that length too, an array or a jax.ShapeDtypeStruct.",
            code="J219",
        )

    def _refuse(
        self,
        arrays: Sequence[object],
        row: int,
    ) -> ContractError:
        where = self.contract.where
        if self.header["checks_contract"]:
            values = {name: build_tree(tree, arrays) for name, tree in self.arguments.items()}
            try:
                check_arguments(self.contract, values)
            except ContractError as error:
                own = str(error).replace(f"{where}: ", f"{where}: row {row}: ", 1)
                return ContractError(own, code=error.code)
        given, wanted, _ = nearest([bucket.told for bucket in self._buckets], arrays)
        held = [_in_words(bucket.told["sizes"]) for bucket in self._buckets]
        return ContractError(
            where,
            f"row {row}: no exported program takes {shortlist(given)}.",
            f"The nearest takes {shortlist(wanted)}, and the file has {shortlist(held)}: buckets of"
            " the rows that it was exported with, where 0 and 1 are sizes of their own.",
            "export it with such a row too, an array or a jax.ShapeDtypeStruct, or cut the row.",
            code="J219",
        )

    def _run(
        self,
        lot: Lot,
        columns: Sequence[Column],
        cheap: int,
    ) -> Iterator[Part]:
        bucket = next(bucket for bucket in self._buckets if bucket.group is lot.group)
        begin = 0
        cut = rungs_of(
            len(lot.rows),
            bucket.rungs[0],
            exactly=False,
            cheap=cheap,
            rungs=bucket.rungs,
        )
        for count, rung in cut:
            # Behind the rows the last one is repeated.
            at = np.minimum(np.arange(begin, begin + rung), begin + count - 1)
            begin += count
            given = _given(
                bucket,
                lot,
                columns,
                at,
            )
            key = (bucket.numbers[rung], x64_is_on())
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = self.run(bucket.numbers[rung])
            leaves = run(given)
            own = at[:count]
            yield Part(
                lot.rows[own],
                lot.sizes(own),
                None,
                leaves,
                bucket.cuts,
                bucket.is_filled,
            )

    def _near(
        self,
        columns: Sequence[Column],
        count: int,
    ) -> list[list[tuple[int, ...]]]:
        """The axes of unlike lengths of results, where all rows run at exact size."""
        groups = {id(lot.group) for lot in self._lots(columns, count)}
        return [
            [tuple(axes) for axes in block_of(bucket.told)["near"]]
            for bucket in self._buckets
            if id(bucket.group) in groups
        ]


def _given(
    bucket: _BucketPrograms,
    lot: Lot,
    columns: Sequence[Column],
    at: NumPyArray,
) -> list[object]:
    """Arguments of a program, for the rows at these places."""
    rows, told = lot.rows[at], block_of(bucket.told)
    given: list[object] = [
        shared_array(column.values, shape)
        if column.kind == "shared"
        else block(column, rows, shape, takes=takes)
        for column, shape, takes in zip(columns, bucket.group.shapes, told["takes"], strict=True)
    ]
    sizes = lot.sizes(at)
    return [*given, *(sizes[name] for name in told["axes"]), *lot.numbers(at)]


def _shape_at(
    shape: Sequence[int | str],
    symbols: Mapping[str, str],
    known: Mapping[str, int],
    sizes: Mapping[str, int],
) -> list[object]:
    at = {symbol: {**known, **sizes}.get(name) for symbol, name in symbols.items()}
    there = {symbol: size for symbol, size in at.items() if size is not None}
    return [size if isinstance(size, int) else read_dim(size).at(there) for size in shape]


def _in_words(sizes: Mapping[str, int | list[int]]) -> str:
    texts = (
        f"{name}={f'{size[0]}-{size[1]}' if isinstance(size, list) else size}"
        for name, size in sizes.items()
    )
    return " ".join(texts)
