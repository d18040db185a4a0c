"""Collectives of a compiled program, from its HLO text.

JAX reports how much a program computes, but not what its devices send each other; XLA's text shows
that. Its forms of replica groups, source lines and operations were tried with jaxlib 0.10.0, 0.10.2
and 0.12.0.1.

    %r = f32[8]{0} all-reduce(%x), replica_groups={{0,2},{1,3}}, metadata={... source_line=12}
    Operation(kind="all-reduce", bytes=32, along=("data",), line="step.py:12", ...)
    # on a mesh data=2, model=2: devices 0 and 2 differ along `data` only
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..._owners import is_users

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_OPERATION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>\S+) = (?P<shape>.*?)"
    rf" (?P<kind>{'|'.join(KINDS)})(?:-start)?\((?P<rest>.*)$"
)
HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) .*\{$")
"""Pattern of the first line of a computation."""
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_BITS = re.compile(r"[a-z]+?(\d+)")
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{} ]*\})\}")
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{} ]*\})\}")
Groups = frozenset[frozenset[int]]


@dataclass(frozen=True)
class HloCollective:
    """A collective of a compiled program."""

    kind: str
    # bytes of the result, on one device
    bytes: int
    shape: tuple[int, ...]
    # mesh axes along which the devices communicate
    along: tuple[str, ...]
    # line of the user's code, or else the name of the operation
    line: str
    in_loop: bool
    name: str
    # the computation that contains it
    computation: str
    # type and shape of each result
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    # whether the CPU compiler turned 16-bit numbers of the program into 32 bits
    widened: bool


def collectives(text: str, mesh: Mapping[str, int]) -> list[HloCollective]:
    """Return the collectives of a program that was compiled for a mesh with these axes."""
    lines, loops = _Lines(text), _computations_in_loops(text)
    axes = _groups_by_axes(mesh)
    operations: list[HloCollective] = []
    computation = ""
    for row in text.splitlines():
        started = HEAD.match(row)
        computation = started["name"] if started else computation
        match = _OPERATION.match(row)
        if match:
            shapes = [
                tuple(int(n) for n in dims.split(",") if n)
                for _, dims in ARRAY.findall(match["shape"])
            ]
            size = sum(
                bits(kind) * math.prod(shape)
                for (kind, _), shape in zip(ARRAY.findall(match["shape"]), shapes, strict=True)
            )
            along = _collective_axes(match["rest"], axes, mesh)
            in_loop, widened = computation in loops, "_promoted" in match["rest"]
            whole = max(shapes, key=math.prod)
            arrays = tuple(
                (kind, shape)
                for (kind, _), shape in zip(ARRAY.findall(match["shape"]), shapes, strict=True)
            )
            where = (lines.of(row), in_loop, match["name"], computation)
            operations.append(
                HloCollective(match["kind"], size // 8, whole, along, *where, arrays, widened)
            )
    return operations


def bits(dtype: str) -> int:
    """Return the number of bits of an XLA type."""
    match = _BITS.match(dtype)
    return 8 if dtype == "pred" or match is None else int(match[1])


def _collective_axes(
    rest: str,
    axes: Mapping[Groups, tuple[str, ...]],
    mesh: Mapping[str, int],
) -> tuple[str, ...]:
    """Return the mesh axes along which a collective communicates; all axes if its groups are
    unknown.
    """

    # A permutation: the axes along which some source and its target differ.
    pairs = _PAIRS.search(rest)
    if pairs:
        places = np.array(
            [
                np.unravel_index(device, tuple(mesh.values()))
                for pair in _parse_groups(pairs[1])
                for device in pair
            ]
        )
        moved = places.reshape(-1, 2, len(mesh))
        return tuple(
            name for i, name in enumerate(mesh) if np.any(moved[:, 0, i] != moved[:, 1, i])
        )
    groups = _groups(rest)
    return tuple(mesh) if groups is None else axes.get(groups, tuple(mesh))


def _groups(rest: str) -> Groups | None:
    named, iota, listed = _MESH.search(rest), _IOTA.search(rest), _LISTED.search(rest)

    # The three forms: mesh axes by name, iota (`[2,2]<=[4]`, maybe transposed), or explicit lists.
    if named:
        sizes = {
            key.strip(" '"): int(size)
            for key, size in (part.split("=") for part in named[1].split(","))
        }
        if ":" in named[2] or re.search(r"\bdevice_ids=", rest):
            # a part of an axis, or a device order of its own
            return None
        return _varying(
            tuple(sizes.values()),
            [list(sizes).index(name.strip(" '")) for name in named[2].split(",") if name.strip()],
        )
    if iota:
        order = np.arange(math.prod(_numbers(iota[2]))).reshape(_numbers(iota[2]))
        rows = order.transpose(_numbers(iota[3])) if iota[3] else order
        return frozenset(frozenset(row) for row in rows.reshape(_numbers(iota[1])).tolist())
    return frozenset(frozenset(group) for group in _parse_groups(listed[1])) if listed else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _parse_groups(text: str) -> list[tuple[int, ...]]:
    return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text.replace(" ", ""))]


def _varying(sizes: tuple[int, ...], axes: list[int]) -> Groups:
    """Return the groups of devices that differ along these axes only."""
    order = np.arange(math.prod(sizes)).reshape(sizes)
    count = math.prod(sizes[i] for i in axes)
    rows = np.moveaxis(order, axes, range(-len(axes), 0)) if axes else order
    return frozenset(frozenset(row) for row in rows.reshape(-1, count).tolist())


def _groups_by_axes(mesh: Mapping[str, int]) -> dict[Groups, tuple[str, ...]]:
    """Map the groups of each subset of the mesh axes to that subset. Of subsets with equal groups
    the smallest counts, since an axis of one device changes nothing.
    """
    names = list(mesh)
    axes: dict[Groups, tuple[str, ...]] = {}
    for count in range(len(names) + 1):
        for chosen in combinations(range(len(names)), count):
            axes.setdefault(
                _varying(tuple(mesh.values()), list(chosen)), tuple(names[i] for i in chosen)
            )
    return axes


class _Lines:
    """Tables of files, locations and stack frames in the HLO text, for source lines of
    instructions.
    """

    def __init__(self, text: str):
        head = text.split("\n%", 1)[0]
        names = head.partition("FileNames")[2].partition("FunctionNames")[0]
        self._files = dict(re.findall(r'^(\d+) "(.*)"$', names, re.MULTILINE))
        self._places = {
            i: (file, line)
            for i, file, line in re.findall(
                r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)", head, re.MULTILINE
            )
        }
        frames = re.findall(
            r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?\}", head, re.MULTILINE
        )
        self._frames = {i: (place, parent) for i, place, parent in frames}

    def of(self, row: str) -> str:
        """Return the user's innermost line, `step.py:12`; without one, JAX's name of the
        operation.
        """
        for file, line in self._stack(row):
            if is_users(file):
                return f"{file.rsplit('/', 1)[-1]}:{line}"
        name = re.search(r'op_name="([^"]*)"', row)
        return name[1] if name else ""

    def _stack(self, row: str) -> Iterator[tuple[str, str]]:
        plain = re.search(r'source_file="([^"]*)" source_line=(\d+)', row)
        if plain:
            yield plain[1], plain[2]
        number = re.search(r"stack_frame_id=(\d+)", row)
        at, seen = (number[1] if number else ""), set[str]()
        while at in self._frames and at not in seen:
            seen.add(at)
            place, parent = self._frames[at]
            # the table numbers parents one higher than frames
            at = str(int(parent or 0) - 1)
            if place in self._places:
                file, line = self._places[place]
                yield self._files.get(file, ""), line


def _computations_in_loops(text: str) -> set[str]:
    """Return the computations that run in each iteration of a loop."""
    calls: dict[str, set[str]] = {}
    bodies: set[str] = set()
    computation = ""
    for row in text.splitlines():
        started = HEAD.match(row)
        computation = started["name"] if started else computation
        called = re.findall(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)", row)
        calls.setdefault(computation, set()).update(called)
        bodies.update(re.findall(r"(?:body|condition)=%?([\w.\-]+)", row))

    # Transitive closure of the calls from loop bodies and conditions.
    in_loops: set[str] = set()
    waiting = list(bodies)
    while waiting:
        inside = waiting.pop()
        if inside not in in_loops:
            in_loops.add(inside)
            waiting += calls.get(inside, ())
    return in_loops
