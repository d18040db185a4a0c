"""Reader of a trace file, `*.xplane.pb`: spans, and JAX's names of the operations in programs.

Messages of protocol buffers are read by their field numbers, which are part of the format and keep
their meaning (xplane.proto and hlo.proto of OpenXLA). `jax.profiler.ProfileData` leaves out the
programs, which XLA writes into the same file, and aborts the process where warnings are errors (a
DeprecationWarning while its types are created, jaxlib 0.12.0.1). Tried with jax 0.10.2 and
0.12.0.1.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._owners import is_users, short
from .._text.json import Data

# Name of the fact that marks an operation of a compiled program.
_OPERATION = "hlo_op"
Message = dict[int, list[Any]]
"""Values of each field, by its number: ints, or the bytes of texts and of messages."""


@dataclass(frozen=True)
class Span:
    """Span of time: a call, an operation, or other work that JAX and XLA record.

    Args:
        process: The host, or a device.
        thread: Number of the row in the trace.
        row: Name of the row.
        name: Name of the event.
        start: Start in nanoseconds.
        end: End in nanoseconds.
        facts: Properties by name.
    """

    process: str
    thread: int
    row: str
    name: str
    start: float
    end: float
    facts: Data

    @property
    def is_operation(self) -> bool:
        """True for an operation of a compiled program."""
        return _OPERATION in self.facts


@dataclass(frozen=True)
class HloOperation:
    """Operation of a compiled program.

    Args:
        name: XLA's name.
        path: JAX's name: functions, scopes and transforms around it, and its own. For a fusion of
            several operations the paths of all, with ";" between, or of the last.
        place: The user's line, `fit.py:12`; "" if unknown.
    """

    name: str
    path: str = ""
    place: str = ""


@dataclass(frozen=True)
class HloProgram:
    """Compiled program in the trace: its name, and its operations by name."""

    name: str
    operations: dict[str, HloOperation]


class ProfilerTrace:
    """Spans of a trace, and the compiled programs that they may belong to.

    A span has the name and the id of its program, but the id is not reliable: a program from the
    persistent cache keeps the id that it was compiled with, which another program may have too. So
    the candidates are all programs of that name that contain every operation that ran, and an
    operation gets the properties on which all candidates agree.
    """

    def __init__(self, spans: list[Span], programs: list[HloProgram]):
        self.spans = spans
        self._programs: dict[_Key, list[HloProgram]] = {}
        ran: defaultdict[_Key, set[str]] = defaultdict(set)
        for span in spans:
            if span.is_operation:
                ran[_key(span)].add(str(span.facts[_OPERATION]))
        for key, names in ran.items():
            # If no program has all operations that ran, every program of that name stays a
            # candidate.
            named = [program for program in programs if program.name == key[1]]
            self._programs[key] = [
                program for program in named if names <= set(program.operations)
            ] or named
        self._operations: dict[tuple[_Key, str], HloOperation] = {}

    def programs(self, span: Span) -> list[HloProgram]:
        """Return the programs that an operation may belong to."""
        return self._programs[_key(span)]

    def operation(self, span: Span) -> HloOperation:
        """Return the operation of a span."""
        key = _key(span), str(span.facts[_OPERATION])
        if key not in self._operations:
            name = key[1]
            self._operations[key] = _common_properties(
                name,
                [each.operations[name] for each in self.programs(span) if name in each.operations],
            )
        return self._operations[key]


_Key = tuple[str, str]


def _key(span: Span) -> _Key:
    return str(span.facts.get("program_id")), str(span.facts.get("hlo_module"))


def _common_properties(name: str, operations: list[HloOperation]) -> HloOperation:
    """Return the properties of an operation that all candidates share; of paths a prefix."""
    if not operations:
        return HloOperation(name)
    paths, places = {each.path for each in operations}, {each.place for each in operations}
    place = places.pop() if len(places) == 1 else ""
    if len(paths) == 1:
        return HloOperation(name, paths.pop(), place)
    parts = [parts_of(path) for path in paths]
    shared = 0
    while all(len(each) > shared + 1 and each[shared] == parts[0][shared] for each in parts):
        shared += 1
    own = re.sub(r"\.\d+$", "", name)
    path = "/".join([*parts[0][:shared], own])
    return HloOperation(name, path, place)


def parts_of(path: str) -> list[str]:
    """Split a path at "/"; text in brackets stays together."""
    parts, depth = [""], 0
    for sign in path:
        depth += (sign == "(") - (sign == ")")
        if sign == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def read(file: Path, facts: Iterable[str]) -> ProfilerTrace:
    """Return the operations in a trace file, and the spans with any of the given facts."""
    wanted = frozenset([*facts, _OPERATION])
    planes = [_message(plane) for plane in _message(memoryview(file.read_bytes())).get(_PLANES, ())]
    programs = [
        HloProgram(_text(module, _MODULE_NAME), dict(_operations(module)))
        for module in _modules(planes)
    ]
    lines = ((plane, _message(line)) for plane in planes for line in plane.get(_LINES, ()))
    return ProfilerTrace(
        [
            span
            for thread, (plane, line) in enumerate(lines, 1)
            for span in _spans(plane, line, thread, wanted)
        ],
        programs,
    )


# Field numbers of an XSpace, an XPlane, an XLine, an XEvent, an entry of a map, an XEventMetadata
# and an XStat.
_PLANES = 1
_PLANE_NAME, _LINES, _KINDS, _FACT_NAMES = 2, 3, 4, 5
_LINE_NAME, _LINE_START, _EVENTS, _LINE_SHOWN = 2, 3, 4, 11
_KIND, _OFFSET, _DURATION, _FACTS = 1, 2, 3, 4
_KEY, _VALUE = 1, 2
_KIND_NAME, _KIND_FACTS = 2, 5
_FACT_NAME, _DOUBLE, _UNSIGNED, _SIGNED, _STRING, _BYTES, _REFERENCE = 1, 2, 3, 4, 5, 6, 7
# Field numbers of an HloProto, an HloModuleProto, an HloComputationProto, an HloInstructionProto,
# and an OpMetadata.
_MODULE, _MODULE_NAME, _COMPUTATIONS, _FRAMES = 1, 1, 3, 17
_INSTRUCTIONS, _COMPUTATION_ID, _NAME, _KIND_OF, _METADATA, _CALLED = 2, 5, 1, 2, 7, 38
_PATH, _FILE, _LINE, _FRAME = 2, 3, 4, 15
# Field numbers of a StackFrameIndexProto, its locations and its frames. Its indices count from 1.
_FILES, _LOCATIONS, _STACK = 1, 3, 4
_LOCATION_FILE, _LOCATION_LINE, _FRAME_LOCATION, _PARENT = 1, 3, 1, 2


def _spans(
    plane: Message,
    line: Message,
    thread: int,
    wanted: frozenset[str],
) -> Iterator[Span]:
    """Yield the spans of a row with any of the wanted facts.

    JAX records about thirty spans for each call, and two of them are wanted.
    """
    kinds = {
        _number(entry, _KEY): _text(_first(entry, _VALUE), _KIND_NAME)
        for entry in map(_message, plane.get(_KINDS, ()))
    }
    names = {
        _number(entry, _KEY): _text(_first(entry, _VALUE), _KIND_NAME)
        for entry in map(_message, plane.get(_FACT_NAMES, ()))
    }

    # An XStat begins with the id of its name: tag 0x08 (field 1, varint), then the id. A search for
    # these bytes skips most events unparsed; chance matches are dropped below.
    marks = [b"\x08" + _encode_varint(number) for number, name in names.items() if name in wanted]
    process, row = _text(plane, _PLANE_NAME), _text(line, _LINE_SHOWN) or _text(line, _LINE_NAME)
    began = _number(line, _LINE_START)

    for data in line.get(_EVENTS, ()):
        raw = bytes(data)
        if not any(mark in raw for mark in marks):
            continue
        event = _message(raw)
        facts = {
            names.get(_number(fact, _FACT_NAME), ""): _value(fact, names)
            for fact in map(_message, event.get(_FACTS, ()))
        }
        if not wanted.isdisjoint(facts):
            start = began + _number(event, _OFFSET) / _PICO
            end = start + _number(event, _DURATION) / _PICO
            yield Span(
                process, thread, row, kinds.get(_number(event, _KIND), ""), start, end, facts
            )


# Picoseconds, the unit of events, in a nanosecond.
_PICO = 1000


def _value(fact: Message, names: dict[int, str]) -> Any:
    """Return the value of a fact; a text may be a reference to one of the names."""
    if _REFERENCE in fact:
        return names.get(_number(fact, _REFERENCE), "")
    if _STRING in fact:
        return bytes(fact[_STRING][0]).decode(errors="replace")
    if _DOUBLE in fact:
        return struct.unpack("<d", fact[_DOUBLE][0])[0]
    if _SIGNED in fact:
        # int64 is written as a varint in two's complement.
        value = _number(fact, _SIGNED)
        return value - (1 << 64) if value >> 63 else value
    return _number(fact, _UNSIGNED)


def _modules(planes: list[Message]) -> Iterator[Message]:
    """Yield the compiled programs: facts of event kinds in a plane of their own."""
    for plane in planes:
        if _text(plane, _PLANE_NAME) != "/host:metadata":
            continue
        for kind in map(_message, plane.get(_KINDS, ())):
            for fact in map(_message, _first(kind, _VALUE).get(_KIND_FACTS, ())):
                if _BYTES in fact:
                    yield _first(_first(fact, _BYTES), _MODULE)


def _operations(module: Message) -> Iterator[tuple[str, HloOperation]]:
    frames = _first(module, _FRAMES)
    files = [bytes(name).decode() for name in frames.get(_FILES, ())]
    locations = [
        (_number(each, _LOCATION_FILE), _number(each, _LOCATION_LINE))
        for each in map(_message, frames.get(_LOCATIONS, ()))
    ]
    stack = [
        (_number(each, _FRAME_LOCATION), _number(each, _PARENT))
        for each in map(_message, frames.get(_STACK, ()))
    ]

    def place(metadata: Message) -> str:
        # The file in the metadata first, then the frames from the innermost outwards.
        lines = [(_text(metadata, _FILE), _number(metadata, _LINE))]
        at, seen = _number(metadata, _FRAME), set[int]()
        while 0 < at <= len(stack) and at not in seen:
            seen.add(at)
            location, at = stack[at - 1]
            file, line = locations[location - 1]
            lines.append((files[file - 1], line))
        return next(
            (f"{short(file)}:{line}" for file, line in lines if file and is_users(file)), ""
        )

    # First pass: all instructions, and the operations inside of each computation.
    fused: dict[int, list[HloOperation]] = {}
    found: list[tuple[HloOperation, Message]] = []
    for computation in map(_message, module.get(_COMPUTATIONS, ())):
        inside = fused[_number(computation, _COMPUTATION_ID)] = list[HloOperation]()
        for instruction in map(_message, computation.get(_INSTRUCTIONS, ())):
            metadata = _first(instruction, _METADATA)
            operation = HloOperation(
                _text(instruction, _NAME), _text(metadata, _PATH), place(metadata)
            )
            found.append((operation, instruction))
            if operation.path and _text(instruction, _KIND_OF) not in ("parameter", "constant"):
                inside.append(operation)

    # Second pass: a fusion without a path gets the paths of the operations in its computation.
    for operation, instruction in found:
        if not operation.path and _text(instruction, _KIND_OF) == "fusion":
            inside = [
                each for number in _numbers(instruction, _CALLED) for each in fused.get(number, ())
            ]
            places = {each.place for each in inside}
            together = ";".join(dict.fromkeys(each.path for each in inside))
            operation = HloOperation(
                operation.name, together, places.pop() if len(places) == 1 else ""
            )
        yield operation.name, operation


def _message(data: bytes | memoryview) -> Message:
    """Parse the fields of a message of protocol buffers."""
    found: Message = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        # A key is the field number and, in the low three bits, the wire type.
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == _SIZED else (_FIXED[kind], at)
            value, at = data[at : at + size], at + size
        found.setdefault(number, []).append(value)
    return found


# Wire types: a varint; a length and so many bytes; 64 and 32 bits.
_VARINT, _SIZED = 0, 2
_FIXED = {1: 8, 5: 4}


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        # The high bit of a byte announces a further one; the first byte has the lowest bits.
        if byte < 0x80:
            return value, at


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _first(message: Message, number: int) -> Message:
    return _message(message[number][0]) if number in message else {}


def _text(message: Message, number: int) -> str:
    return bytes(message[number][0]).decode() if number in message else ""


def _number(message: Message, number: int) -> int:
    return message[number][0] if number in message else 0


def _numbers(message: Message, number: int) -> list[int]:
    """Return a repeated number, whose values are written one by one or packed into bytes."""
    found: list[int] = []
    for value in message.get(number, ()):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            each, at = _varint(value, at)
            found.append(each)
    return found
