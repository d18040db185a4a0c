"""Cost model of a compiled program, from its HLO text: floating-point operations and bytes of
memory traffic on one device.

XLA's own `cost_analysis()` counts the body of a loop once. Here it is multiplied by the trip count,
which XLA writes next to the loop if it is known. Tried with jaxlib 0.10.0, 0.10.2 and 0.12.0.1.

    %w = f32[8,4] while(%init), body=%b, backend_config={"known_trip_count":{"n":"10"}}
    %d = f32[8,4] dot(%x, %k), lhs_contracting_dims={1}, ...      # in %b: 10 * 2 * 8 * 4 * width
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from .hlo import ARRAY, HEAD, bits

_NAME = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")
_OPERANDS = re.compile(r"%([\w.\-]+)")
_TURNS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_INNER = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_MOVING = (
    "parameter constant tuple get-tuple-element bitcast copy convert transpose reshape broadcast"
    " slice dynamic-slice dynamic-update-slice concatenate pad gather iota reverse bitcast-convert"
    " copy-start copy-done after-all opt-barrier partition-id replica-id while call conditional"
    " fusion custom-call all-reduce all-gather reduce-scatter all-to-all collective-permute"
    " collective-broadcast select-and-scatter scatter sort rng-bit-generator infeed outfeed domain"
    " add-dependency all-gather-start all-gather-done all-reduce-start all-reduce-done"
    " collective-permute-start collective-permute-done"
)
_MOVES = frozenset(_MOVING.split())
_VIEWS = (
    "parameter constant tuple get-tuple-element bitcast while call conditional after-all"
    " partition-id replica-id opt-barrier domain add-dependency"
)
_NOT_IN_MEMORY = frozenset(_VIEWS.split())


@dataclass(frozen=True)
class Instruction:
    """An instruction of a computation."""

    name: str
    op: str
    # type and shape of each result
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    operands: tuple[str, ...]
    rest: str
    root: bool

    @property
    def elements(self) -> int:
        return sum(math.prod(shape) for _, shape in self.arrays)

    @property
    def bytes(self) -> int:
        return sum(bits(kind) * math.prod(shape) for kind, shape in self.arrays) // 8

    @property
    def callees(self) -> list[str]:
        branches = _BRANCHES.search(self.rest)
        return _INNER.findall(self.rest) + (_OPERANDS.findall(branches[1]) if branches else [])


class ProgramCost:
    """Operations and memory traffic of one run of a compiled program on one device."""

    def __init__(self, text: str):
        self._rows: dict[str, dict[str, Instruction]] = {}
        self._entry = ""
        computation = ""

        # A computation starts at a header line; the instructions up to the next header belong to
        # it.
        for line in text.splitlines():
            head = HEAD.match(line)
            if head:
                computation = head["name"]
                self._rows[computation] = {}
                self._entry = computation if head["entry"] else self._entry
            row = _row(line) if computation else None
            if row is not None:
                self._rows[computation][row.name] = row

    @cached_property
    def turns(self) -> dict[str, int]:
        """Number of runs of each computation. The reducers of `reduce` and its like are left out:
        the instruction that uses one accounts for it.
        """
        runs: dict[str, int] = {}
        waiting = [(self._entry, 1)]
        while waiting:
            computation, times = waiting.pop()
            runs[computation] = runs.get(computation, 0) + times
            for row in self._rows[computation].values():
                if row.op in ("while", "fusion", "call", "conditional"):
                    # Nested loops multiply; a computation with several callers adds up.
                    turns = times * (_turns_of(row) or 1)
                    waiting += [(inner, turns) for inner in row.callees if inner in self._rows]
        return runs

    @property
    def endless(self) -> int:
        """Number of loops without a known trip count; their bodies count once."""
        return sum(
            row.op == "while" and _turns_of(row) is None for _, row, _ in self._weighted_rows()
        )

    @property
    def opaque(self) -> list[str]:
        """Targets of custom calls, whose work is unknown."""
        targets = [
            re.search(r'custom_call_target="([^"]*)"', row.rest)
            for _, row, _ in self._weighted_rows()
            if row.op == "custom-call"
        ]
        return sorted({target[1] for target in targets if target is not None})

    @property
    def branches(self) -> int:
        """Number of conditionals; all their branches are counted."""
        return sum(row.op == "conditional" for _, row, _ in self._weighted_rows())

    def cuts(self) -> dict[str, int]:
        """Map the name of each instruction whose only use is a `dynamic-slice` to the number of
        elements of that slice.
        """
        cut_out: dict[str, int] = {}
        for rows in self._rows.values():
            users: dict[str, list[Instruction]] = {}
            for row in rows.values():
                for operand in row.operands:
                    users.setdefault(operand, []).append(row)
            for name, row in rows.items():
                seen = users.get(name, [])
                # Look through views.
                while len(seen) == 1 and seen[0].op in ("reshape", "bitcast"):
                    seen = users.get(seen[0].name, [])
                if len(seen) == 1 and seen[0].op == "dynamic-slice" and not row.root:
                    cut_out[name] = seen[0].elements
        return cut_out

    @cached_property
    def products(self) -> int:
        """Floating-point operations of matrix products and convolutions: two for each
        multiply-add.
        """
        return sum(
            times * self._product(computation, row)
            for computation, row, times in self._weighted_rows()
            if row.op in ("dot", "convolution")
        )

    @cached_property
    def other_flops(self) -> int:
        """Floating-point operations of all other instructions: one for each element computed or
        reduced.
        """
        return sum(
            times * self._flops_of_other(computation, row)
            for computation, row, times in self._weighted_rows()
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes that instructions read and write, each fusion counted as one instruction; without
        the traffic between devices.
        """
        fused = {
            inner
            for _, row, _ in self._weighted_rows()
            if row.op == "fusion"
            for inner in row.callees
        }
        return sum(
            times * self._bytes_in_memory(computation, row)
            for computation, row, times in self._weighted_rows()
            if computation not in fused
        )

    def _weighted_rows(self) -> Iterator[tuple[str, Instruction, int]]:
        for computation, times in self.turns.items():
            for row in self._rows[computation].values():
                yield computation, row, times

    def _operand(
        self,
        computation: str,
        row: Instruction,
        i: int,
    ) -> Instruction:
        return self._rows[computation][row.operands[i]]

    def _product(self, computation: str, row: Instruction) -> int:
        left, right = (self._operand(computation, row, i).arrays[0][1] for i in (0, 1))
        if row.op == "dot":
            axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", row.rest)
            contracted = axes[1].split(",") if axes and axes[1] else ()
            return 2 * row.elements * math.prod(left[int(i)] for i in contracted)

        # A convolution: each output element takes one multiply-add per kernel element, without the
        # output feature dimension "o".
        labels = re.search(r"dim_labels=\w+_(\w+)->", row.rest)
        kernel = (
            [size for label, size in zip(labels[1], right, strict=True) if label != "o"]
            if labels
            else right
        )
        return 2 * row.elements * math.prod(kernel)

    def _flops_of_other(self, computation: str, row: Instruction) -> int:
        if row.op in ("reduce", "reduce-window", "scatter"):
            kinds = [self._operand(computation, row, i) for i in range(len(row.operands))]
            # A reduction costs one operation per element of its largest input; a scatter, per
            # element of its updates (the last operand).
            return max(
                (
                    operand.elements
                    for operand in (kinds[-1:] if row.op == "scatter" else kinds)
                    if _is_float(operand)
                ),
                default=0,
            )
        return (
            row.elements if _is_float(row) and row.op not in (*_MOVES, "dot", "convolution") else 0
        )

    def _bytes_in_memory(self, computation: str, row: Instruction) -> int:
        if (
            row.op in _NOT_IN_MEMORY
            or row.op.startswith(("all-", "collective-", "reduce-scatter"))
            or self._only_widens(row)
        ):
            return 0

        # Slices touch only the part that they read; updates happen in place. A scatter reads its
        # updates, and reads and writes the same number of elements.
        operands = [self._operand(computation, row, i) for i in range(len(row.operands))]
        sizes = [self._narrow(computation, operand) for operand in operands]
        if row.op in ("dynamic-slice", "slice", "gather"):
            return 2 * row.bytes
        if row.op == "dynamic-update-slice":
            return 2 * sizes[1]
        if row.op == "scatter":
            return 3 * sizes[-1]
        if row.op != "fusion":
            return row.bytes + sum(sizes)

        # A fusion: its intermediate values stay in registers or caches.
        inside = self._rows[row.callees[0]]
        return self._output_bytes(inside, row) + sum(
            self._read(inside, i, size) for i, size in enumerate(sizes)
        )

    def _output_bytes(
        self,
        inside: dict[str, Instruction],
        row: Instruction,
    ) -> int:
        """Return the bytes that a fusion writes: for an array updated in place, those of the
        update.
        """
        roots = [member for member in inside.values() if member.root]
        roots = (
            [inside[name] for result in roots for name in result.operands]
            if roots and roots[0].op == "tuple"
            else roots
        )
        written = 0
        for root in roots:
            made = _view_source(inside, root)
            written += (
                inside[made.operands[1]].bytes if made.op == "dynamic-update-slice" else root.bytes
            )
        return written if roots else row.bytes

    def _read(
        self,
        inside: dict[str, Instruction],
        i: int,
        size: int,
    ) -> int:
        """Return the bytes that a fusion reads of argument `i`: if it is only sliced or updated,
        those of the slices.
        """
        names = {
            row.name
            for row in inside.values()
            if row.op == "parameter" and row.rest.startswith(f"{i})")
        }
        uses = [row for row in inside.values() if names & set(row.operands)]
        if not uses or not all(
            row.op in ("dynamic-slice", "gather", "dynamic-update-slice")
            and row.operands[0] in names
            for row in uses
        ):
            return size
        # An update in place does not read its target.
        return sum(0 if row.op == "dynamic-update-slice" else row.bytes for row in uses)

    def _only_widens(self, row: Instruction) -> bool:
        """Return whether an instruction only converts types: the CPU compiler widens 16-bit numbers
        in memory, other compilers do so while reading.
        """
        return row.op == "convert" or (
            row.op == "fusion"
            and {member.op for member in self._rows[row.callees[0]].values()}
            == {"parameter", "convert"}
        )

    def _narrow(self, computation: str, row: Instruction) -> int:
        return (
            min(row.bytes, self._operand(computation, row, 0).bytes)
            if self._only_widens(row)
            else row.bytes
        )


def _turns_of(row: Instruction) -> int | None:
    if row.op != "while":
        return 1
    known = _TURNS.search(row.rest)
    return int(known[1]) if known else None


def _view_source(inside: dict[str, Instruction], row: Instruction) -> Instruction:
    """Return the instruction that a row is a view of."""
    while row.op in ("bitcast", "copy", "reshape") and row.operands:
        row = inside[row.operands[0]]
    return row


def _is_float(row: Instruction) -> bool:
    return any(kind.startswith(("f", "bf", "c")) for kind, _ in row.arrays)


def _row(line: str) -> Instruction | None:
    """Parse `ROOT %name = shape op(operands), attributes`; None if the line is not an
    instruction.
    """
    named = _NAME.match(line)
    if named is None:
        return None
    rest = line[named.end() :]
    cut = _closing(rest) + 1 if rest.startswith("(") else rest.find(" ")
    op, _, arguments = rest[cut:].lstrip().partition("(")
    arrays = tuple(
        (kind, tuple(int(n) for n in dims.split(",") if n))
        for kind, dims in ARRAY.findall(rest[:cut])
    )
    operands = (
        ()
        if op in ("constant", "parameter")
        else tuple(_OPERANDS.findall(arguments[: _closing(f"({arguments}") - 1]))
    )
    return Instruction(
        named[2],
        op,
        arrays,
        operands,
        arguments,
        named[1] is not None,
    )


def _closing(text: Sequence[str] | str) -> int:
    """Index of the bracket that closes the one at the start of a text."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return i
    return len(text)
